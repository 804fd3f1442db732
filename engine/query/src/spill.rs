//! Spill files of one query, within the space that all queries share. If that is full, the error says whether other
//! queries fill it; I/O errors are reported in the same way wherever they occur.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use datafusion::prelude::SessionConfig;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use quiver_types::error::disk_is_full;
use quiver_types::{Error, ErrorKind};

use self::closed_files::closed;
use crate::error::to_datafusion;
use crate::pool::QueryPool;

mod closed_files;

/// How the folders begin that engines make for their files.
const FOLDER: &str = "datafusion-";

/// Makes the folder of spill files, without those that a process left that could not remove them any more. For who has
/// the folder alone, before its first engine starts.
///
/// # Errors
/// Internal: the disk does not let it.
pub fn spill_folder(dir: &Path) -> quiver_types::Result<()> {
    let cleared = || -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(FOLDER) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    };
    cleared().map_err(|e| {
        Error::internal(format!("cannot make or clear the folder of spill files `{}`", dir.display())).with_source(e)
    })
}

/// Makes exchanges write each batch to a file of its own. With larger ones, those that write to the same output have a file
/// each that they go on writing, in turns, while the reader wants all of the first before the others: once it waits for
/// more of the first, every writer waits for the reader, and the query stands still until its deadline.
pub(crate) fn one_batch_per_file(config: SessionConfig) -> SessionConfig {
    config.set_u64("datafusion.execution.max_spill_file_size_bytes", 1)
}

/// What each partition of a sort keeps to merge with, of the memory that is there for one thread.
const MERGE_PART: usize = 16;
/// As much is kept where there is enough memory.
const MERGE_BYTES: usize = 10 << 20;

/// Makes sorts keep less memory for their last merge where there is little: a whole query may have no more than several
/// partitions keep by default.
pub(crate) fn sorted_within(config: SessionConfig, thread_bytes: usize) -> SessionConfig {
    config.with_sort_spill_reservation_bytes((thread_bytes / MERGE_PART).min(MERGE_BYTES))
}

/// The room that spill files of all queries share.
#[derive(Debug)]
pub(crate) struct SpillRoom {
    /// Makes files, and bounds nothing: what it could not write it would count for ever.
    disk: Arc<DiskManager>,
    used: AtomicU64,
    max: u64,
}

impl SpillRoom {
    /// Makes a room of so many bytes.
    pub(crate) fn new(disk: Arc<DiskManager>, max: u64) -> Arc<Self> {
        Arc::new(Self { disk, used: AtomicU64::new(0), max })
    }

    /// Gives where a query makes its files.
    pub(crate) fn files(self: &Arc<Self>, query: &Arc<QueryPool>) -> Arc<DiskManager> {
        let files = Files { room: Arc::clone(self), query: Arc::clone(query) };
        let made = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files)).build();
        // One that makes files elsewhere needs no folder, which is all that could fail.
        made.map_or_else(|_| Arc::clone(&self.disk), Arc::new)
    }
}

/// What is said of a disk that does not take, keep or give spill files: nothing of it is the query's fault.
fn failed(error: impl StdError + Send + Sync + 'static) -> Error {
    let text = if disk_is_full(&error) {
        "the disk has no room for the spill files that this query needs: ask again later"
    } else {
        "the disk fails the spill files that this query needs (the log has it): ask again later"
    };
    Error::new(ErrorKind::Unavailable, text).with_source(error)
}

fn failed_at(error: DataFusionError) -> DataFusionError {
    to_datafusion(failed(error))
}

struct Files {
    room: Arc<SpillRoom>,
    query: Arc<QueryPool>,
}

impl TempFileFactory for Files {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let made = self.room.disk.create_tmp_file(description).map_err(failed_at)?;
        let inner = closed(made, &self.room.disk).map_err(|error| to_datafusion(failed(error)))?;
        let (room, query) = (Arc::clone(&self.room), Arc::clone(&self.query));
        let written = Arc::new(SpillUsage { bytes: AtomicU64::new(0), room, query });
        Ok(Arc::new(CountedSpillFile { inner, written }))
    }
}

/// A file whose bytes count for its query, and go with it.
struct CountedSpillFile {
    inner: Arc<dyn SpillFile>,
    written: Arc<SpillUsage>,
}

impl SpillFile for CountedSpillFile {
    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> Option<u64> {
        self.inner.size()
    }

    fn read_stream(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
        let pieces = self.inner.read_stream().map_err(failed_at)?;
        Ok(pieces.map(|piece| piece.map_err(failed_at)).boxed())
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        let inner = self.inner.open_writer().map_err(failed_at)?;
        Ok(Box::new(Writer { inner, written: Arc::clone(&self.written) }))
    }
}

/// Bytes of a file.
struct SpillUsage {
    bytes: AtomicU64,
    room: Arc<SpillRoom>,
    query: Arc<QueryPool>,
}

impl SpillUsage {
    /// Counts bytes before they are written: what all hold is never more than what is known of each.
    fn add(&self, bytes: u64) -> Result<(), Error> {
        self.bytes.fetch_add(bytes, Relaxed);
        let own = self.query.spilled.fetch_add(bytes, Relaxed) + bytes;
        let all = self.room.used.fetch_add(bytes, Relaxed) + bytes;
        if all <= self.room.max {
            return Ok(());
        }
        self.sub(bytes);
        Err(if own <= self.room.max {
            let text = "other queries hold the room for spill files that this one needs (setting `query.spill_max`): \
                        ask again later";
            Error::new(ErrorKind::Unavailable, text)
        } else {
            let text = "query needs more room for spill files than its limit allows (setting `query.spill_max`)";
            Error::new(ErrorKind::LimitExceeded, text)
        })
    }

    fn sub(&self, bytes: u64) {
        self.room.used.fetch_sub(bytes, Relaxed);
        self.query.spilled.fetch_sub(bytes, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for SpillUsage {
    fn drop(&mut self) {
        self.sub(self.bytes.load(Relaxed));
    }
}

/// Writes a file.
struct Writer {
    inner: Box<dyn SpillWriter>,
    written: Arc<SpillUsage>,
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let asked = bytes.len() as u64;
        self.written.add(asked).map_err(io::Error::other)?;
        let taken = self.inner.write(bytes).map_err(|error| io::Error::other(failed(error)));
        let left = asked - taken.as_ref().map_or(0, |bytes| *bytes as u64).min(asked);
        self.written.sub(left);
        taken
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(|error| io::Error::other(failed(error)))
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        self.inner.finish().map_err(failed_at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::error::ArrowError;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::TaskContext;
    use datafusion::execution::disk_manager::DiskManagerMode;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::repartition::RepartitionExec;
    use datafusion::physical_plan::{ExecutionPlan as _, Partitioning, collect};
    use futures::TryStreamExt as _;
    use parking_lot::{Condvar, Mutex};

    use super::*;
    use crate::from_datafusion;
    use crate::pool::SharedPool;
    use crate::testing::engine;

    fn queries<const N: usize>() -> [Arc<QueryPool>; N] {
        let shared = SharedPool::new(Arc::new(GreedyMemoryPool::new(6400)), 6400, Arc::default());
        [(); N].map(|()| Arc::new(QueryPool::new(Arc::clone(&shared), 6400)))
    }

    #[test]
    fn who_finds_the_room_filled_by_others_may_come_again() {
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![std::env::temp_dir()]));
        let room = SpillRoom::new(Arc::new(disk.build().unwrap()), 100);
        let [one, other] = queries();
        let write = |query: &Arc<QueryPool>, bytes: usize| {
            let file = room.files(query).create_tmp_file("a test").unwrap();
            let outcome = file.open_writer().unwrap().write_all(&vec![0; bytes]);
            (file, outcome.err().map(|error| from_datafusion(ArrowError::from(error).into()).kind))
        };
        let (held, refused) = write(&one, 60);
        assert_eq!((refused, one.spilled.load(Relaxed)), (None, 60));
        assert_eq!(write(&other, 60).1, Some(ErrorKind::Unavailable));
        assert_eq!(write(&other, 101).1, Some(ErrorKind::LimitExceeded), "more than there is");
        assert_eq!(write(&one, 60).1, Some(ErrorKind::LimitExceeded), "its own files fill it");
        drop(held);
        assert_eq!(write(&one, 60).1, None);
        let left = (room.used.load(Relaxed), one.spilled.load(Relaxed), other.spilled.load(Relaxed));
        assert_eq!(left, (0, 0, 0));
    }

    /// A disk that fails every call from the given one on.
    #[derive(Clone, Copy)]
    struct Failing {
        call: Call,
        code: i32,
    }

    #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
    enum Call {
        Create,
        Open,
        Write,
        Flush,
        Finish,
        Read,
    }

    impl Failing {
        fn at(self, call: Call) -> Result<()> {
            if call < self.call { Ok(()) } else { Err(io::Error::from_raw_os_error(self.code).into()) }
        }
    }

    impl TempFileFactory for Failing {
        fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
            self.at(Call::Create)?;
            Ok(Arc::new(*self))
        }
    }

    impl SpillFile for Failing {
        fn size(&self) -> Option<u64> {
            None
        }

        fn read_stream(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
            let read = self.at(Call::Read).map(|()| Bytes::new());
            Ok(futures::stream::iter([read]).boxed())
        }

        fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
            self.at(Call::Open)?;
            Ok(Box::new(*self))
        }
    }

    impl io::Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // As the writer of files does: what the disk said lies within an error of another kind.
            self.at(Call::Write)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.at(Call::Flush).map_err(io::Error::from)
        }
    }

    impl SpillWriter for Failing {
        fn finish(&mut self) -> Result<()> {
            self.at(Call::Finish)
        }
    }

    /// Spills and reads back, as operators do.
    async fn spilled(disk: &Arc<DiskManager>) -> Result<()> {
        let file = disk.create_tmp_file("a test")?;
        let mut writer = file.open_writer()?;
        writer.write_all(&[0; 60]).map_err(ArrowError::from)?;
        writer.flush()?;
        writer.finish()?;
        file.read_stream()?.try_collect::<Vec<_>>().await?;
        Ok(())
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_told_in_one_way() {
        // ENOSPC, EDQUOT, EIO.
        let codes = [(28, true), (122, true), (5, false)];
        for call in [Call::Create, Call::Open, Call::Write, Call::Flush, Call::Finish, Call::Read] {
            for (code, full) in codes {
                let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(Failing { call, code }));
                let room = SpillRoom::new(Arc::new(disk.build().unwrap()), 100);
                let [query] = queries();
                // More often than there would be room for, were what failed counted.
                for _ in 0..3 {
                    let error = spilled(&room.files(&query)).await.expect_err("the disk failed");
                    let error = from_datafusion(error.context("a sort"));
                    assert_eq!(error.kind, ErrorKind::Unavailable, "{call:?} {code}: {error}");
                    assert_eq!(error.message.contains("no room"), full, "{call:?} {code}: {error}");
                    assert_eq!(disk_is_full(&error), full, "{call:?} {code}: {error}");
                }
                assert_eq!((room.used.load(Relaxed), query.spilled.load(Relaxed)), (0, 0), "{call:?} {code}");
            }
        }
    }

    /// Makes its first file once somebody asks for a second one: two write to the same output of an exchange at once.
    struct InPairs {
        disk: Arc<DiskManager>,
        asked: Mutex<usize>,
        again: Condvar,
    }

    impl TempFileFactory for InPairs {
        fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
            let mut asked = self.asked.lock();
            *asked += 1;
            self.again.notify_all();
            while *asked < 2 {
                self.again.wait(&mut asked);
            }
            drop(asked);
            self.disk.create_tmp_file(description)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn exchanges_through_files_come_to_their_end() {
        const BATCHES: i64 = 64;
        const ROWS: i64 = 64;
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        let batch = |n: i64| {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(n * ROWS..(n + 1) * ROWS));
            RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap()
        };
        let inputs = [0, BATCHES].map(|first| (first..first + BATCHES).map(batch).collect::<Vec<_>>());
        let input = MemorySourceConfig::try_new_exec(&inputs, Arc::clone(&schema), None).unwrap();
        let by_key = Partitioning::Hash(vec![col("a", &schema).unwrap()], 2);
        let plan = Arc::new(RepartitionExec::try_new(input, by_key).unwrap());
        let mode = DiskManagerMode::Directories(vec![std::env::temp_dir()]);
        let disk = Arc::new(DiskManagerBuilder::default().with_mode(mode).build().unwrap());
        let files = InPairs { disk, asked: Mutex::new(0), again: Condvar::new() };
        let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files));
        // No batch finds memory.
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(1, 1.0).with_disk_manager_builder(disk);
        let config = engine().relational().config().clone().with_batch_size(16);
        let task = TaskContext::default().with_session_config(config).with_runtime(runtime.build_arc().unwrap());
        let run = collect(Arc::clone(&plan) as _, Arc::new(task));
        let batches = tokio::time::timeout(Duration::from_mins(1), run).await.expect("it ends").unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), (2 * BATCHES * ROWS) as usize);
        assert!(plan.metrics().unwrap().spill_count().unwrap() > 2);
    }

    #[test]
    fn what_a_killed_process_left_goes() {
        let dir = std::env::temp_dir().join(format!("quiver-spill-folder-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("datafusion-x1")).unwrap();
        std::fs::write(dir.join("datafusion-x1/.tmp1"), b"rows").unwrap();
        std::fs::write(dir.join("notes"), b"of others").unwrap();
        spill_folder(&dir).unwrap();
        let entries = std::fs::read_dir(&dir).unwrap();
        let left: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(left, ["notes"]);
    }
}
