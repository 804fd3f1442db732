//! Decides how many rows are converted to columns at once. In columns, data shared by spans is repeated in every row: a
//! large resource that is held once in a batch could grow to hundreds of megabytes with the usual number of rows.

use arrow::array::{AsArray, BinaryArray};
use arrow::datatypes::UInt32Type;
use quiver_types::SpansBatch;

use super::columns::BLOBS;

/// Maximum rows that are converted at once: few enough that data which is read twice is still in the CPU cache.
pub(super) const CHUNK_ROWS: usize = 8 * 1024;
/// Maximum bytes of their attributes, events and links, unless a single row exceeds it.
const CHUNK_BYTES: usize = 32 << 20;

/// Sizes of the rows of batches.
pub(super) struct Weights<'b>(Vec<OfBatch<'b>>);

struct OfBatch<'b> {
    own: [&'b BinaryArray; 3],
    contexts: &'b [u32],
    /// Attribute bytes of each context.
    shared: Vec<usize>,
}

impl<'b> Weights<'b> {
    pub(super) fn of(batches: &'b [SpansBatch]) -> Self {
        let of_batch = |batch: &'b SpansBatch| {
            let shared = ["resource", "scope_attributes"].map(|name| batch.contexts[name].as_binary::<i32>());
            let bytes = |context: usize| shared.iter().map(|column| column.value(context).len()).sum::<usize>();
            OfBatch {
                own: BLOBS.map(|name| batch.spans[name].as_binary::<i32>()),
                contexts: batch.spans["context"].as_primitive::<UInt32Type>().values(),
                shared: (0..batch.contexts.num_rows()).map(bytes).collect(),
            }
        };
        Self(batches.iter().map(of_batch).collect())
    }

    fn of_row(&self, (batch, row): (u32, u32)) -> usize {
        let (of, row) = (&self.0[batch as usize], row as usize);
        let own: usize = of.own.iter().map(|column| column.value(row).len()).sum();
        own + of.shared[of.contexts[row] as usize]
    }

    /// How many of the first rows are to be converted at once; at least one.
    pub(super) fn rows_at_once(&self, rows: &[(u32, u32)]) -> usize {
        let mut bytes = 0;
        let fitting = rows.iter().take(CHUNK_ROWS).take_while(|row| {
            bytes += self.of_row(**row);
            bytes <= CHUNK_BYTES
        });
        fitting.count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder, Value};

    use super::*;

    /// Spans with a resource and attributes of so many bytes each.
    fn batch(spans: u64, resource: usize, own: usize) -> SpansBatch {
        let mut b = SpansBuilder::default();
        let bytes = |len: usize| "x".repeat(len);
        let (text, mut written) = (bytes(resource), Vec::new());
        b.write_attributes(&mut vec![("r", Value::Text(&text))], &mut written);
        let context = b.context(&ContextFields { service: "s", resource: &written, ..Default::default() });
        let text = bytes(own);
        for n in 1..=spans {
            b.attributes(&mut vec![("a", Value::Text(&text))]);
            let (trace_id, span_id) = (u128::from(n).to_be_bytes(), n.to_be_bytes());
            b.span(&SpanFields { trace_id, span_id, context, name: "n", start: 1, end: 2, ..SpanFields::default() });
        }
        b.finish()
    }

    /// Breaks if a flush takes as many rows of a large resource at once as of a small one.
    #[test]
    fn heavy_rows_are_taken_few_at_a_time() {
        let batches = [batch(20_000, 100, 10), batch(20_000, 16 << 10, 10), batch(40, 10, 32 << 10)];
        let weights = Weights::of(&batches);
        let rows = |batch: u32| (0..batches[batch as usize].len() as u32).map(|row| (batch, row)).collect::<Vec<_>>();
        assert_eq!(weights.rows_at_once(&rows(0)), CHUNK_ROWS);
        assert_eq!(weights.rows_at_once(&rows(0)[..7]), 7);
        let heavy = weights.rows_at_once(&rows(1));
        assert!((2000..2048).contains(&heavy), "{heavy}");
        let many: Vec<_> = rows(2).into_iter().cycle().take(2000).collect();
        assert!((1000..1024).contains(&weights.rows_at_once(&many)));
    }
}
