//! A filter of the traces in a part, in a file of its own, so that a lookup over all time reads little of the parts
//! that do not have its trace.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch};
use parquet::basic::Compression;
use quiver_types::tables::spans as table;
use quiver_types::{ReadStats, read_stats};

use super::trace_filter::{TraceFilter, spread};
use crate::error::{Context, Result};
use crate::part::bloom::Words;
use crate::part::file::{Draft, PartFile, column, properties};
use crate::part::footer::damaged;
use crate::part::{FileMeta, Part};

/// An index with fewer entries is read as fast as a filter.
const ENTRIES_MIN: usize = 4096;
/// Filter bits per trace.
const BITS: usize = 12;

/// Writes the filter of the traces of an index, if it is worthwhile; entries must be sorted by hash.
pub(super) fn write(draft: &mut Draft, entries: &[(u32, u32, u32)], range: (i64, i64)) -> Result<Option<FileMeta>> {
    if entries.len() < ENTRIES_MIN {
        return Ok(None);
    }
    let mut filter = Words::default();
    entries.chunk_by(|a, b| a.0 == b.0).for_each(|same| filter.add_hash(spread(same[0].0)));
    let filter: ArrayRef = Arc::new(BinaryArray::from_iter_values([filter.finish_with(BITS)]));
    let p = properties()
        .set_compression(Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(column(&["filter"]), false)
        .build();
    let mut file = PartFile::create(draft, "traces", table::traces(), p)?;
    file.write(&RecordBatch::try_new(table::traces(), vec![filter]).internal("cannot build a filter of traces")?)?;
    file.finish(&draft.spec, range, &[]).map(Some)
}

impl Part {
    /// Tells whether a part may contain any of the traces, as far as this is known without its index.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn may_hold_traces(&self, ids: &[[u8; 16]], stats: &ReadStats) -> Result<bool> {
        let Some(file) = self.meta.file("traces") else { return Ok(true) };
        let filter = self.trace_filter(file, stats).await?;
        Ok(ids.iter().any(|id| filter.may_hold(id)))
    }

    async fn trace_filter(&self, file: &FileMeta, stats: &ReadStats) -> Result<Arc<TraceFilter>> {
        if let Some(known) = self.cache().traces.get(&self.meta.id) {
            read_stats::add(&stats.cache_hits, 1);
            return Ok(known);
        }
        read_stats::add(&stats.cache_misses, 1);
        // Requests that are served from memory stay on the caller's thread; yield before a file is read.
        tokio::task::yield_now().await;
        let (_, batches) = self.read_whole(file, stats).await?;
        let filter = batches.first().filter(|batch| batch.num_rows() == 1);
        let filter = filter.and_then(|batch| batch.column(0).as_binary_opt::<i32>());
        let filter = filter.ok_or_else(|| damaged(&file.key, "it holds no filter"))?;
        let filter = Arc::new(TraceFilter(filter.value(0).to_vec()));
        self.cache().traces.insert(self.meta.id, Arc::clone(&filter), filter.0.len() as u64 + 64);
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quiver_types::tables::spans::trace_hash;

    use super::super::super::tests::{block_on, open, spec, write as metrics};
    use super::*;
    use crate::part::{PartMeta, PartSpec};

    /// A part that has a filter of traces, if their index is large.
    fn filtered(root: &Path, ids: &[[u8; 16]]) -> PartMeta {
        let mut meta = metrics(root, 0, &super::super::super::tests::small());
        let mut entries: Vec<(u32, u32, u32)> = (0..).zip(ids).map(|(n, id)| (trace_hash(id), n, 1)).collect();
        entries.sort_unstable();
        let mut draft = Draft::new(root, PartSpec { table: "spans".to_owned(), ..spec(0) });
        meta.files.extend(write(&mut draft, &entries, (0, 1)).unwrap());
        draft.keep();
        meta
    }

    fn ids(from: u128, to: u128) -> Vec<[u8; 16]> {
        (from..to).map(u128::to_be_bytes).collect()
    }

    #[test]
    fn no_trace_of_a_large_part_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let held = ids(0, ENTRIES_MIN as u128);
        let part = open(dir.path(), &filtered(dir.path(), &held));
        let stats = ReadStats::default();
        let filter = block_on(part.trace_filter(part.meta.file("traces").unwrap(), &stats)).unwrap();
        assert!(held.iter().all(|id| filter.may_hold(id)));
        let others = ids(1 << 100, (1 << 100) + 2000);
        let wrong = others.iter().filter(|id| filter.may_hold(id)).count();
        assert!(wrong < 60, "{wrong} of 2,000");
        let missing: Vec<[u8; 16]> = others.into_iter().filter(|id| !filter.may_hold(id)).take(3).collect();
        let may = |ids: &[[u8; 16]]| block_on(part.may_hold_traces(ids, &stats)).unwrap();
        assert!(!may(&missing) && !may(&[]));
        assert!(may(&[missing[0], held[7], missing[1]]), "one of them is enough");
        assert_eq!(read_stats::get(&stats.objects_read), 1, "it is read once");
    }

    #[test]
    fn few_traces_have_no_filter() {
        let dir = tempfile::tempdir().unwrap();
        let part = open(dir.path(), &filtered(dir.path(), &ids(0, ENTRIES_MIN as u128 - 1)));
        assert!(part.meta.file("traces").is_none());
        let stats = ReadStats::default();
        assert!(block_on(part.may_hold_traces(&ids(9, 10), &stats)).unwrap(), "nobody knows");
        assert_eq!(read_stats::get(&stats.objects_read), 0);
    }
}
