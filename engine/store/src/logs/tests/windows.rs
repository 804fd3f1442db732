//! Large rows: they are returned a few megabytes at a time, and freed right after.

use quiver_types::scan::batch_bytes;

use super::model::{Contains, Equals, Model, row};
use super::*;

/// Rows of long texts, some of digits, some not; streams of short and of long ones.
fn long_rows() -> Model {
    let mut model = Model::default();
    for i in 0..12_000i64 {
        let app = ["short", "long", "digits"][(i % 3) as usize];
        let mut r = row(T0 + i * SECOND, &[("app", app)], app);
        let noise = format!("{:016x}", (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match app {
            "short" => r.field(MSG, &noise),
            "long" => r.field(MSG, &format!("request {i} of {}", noise.repeat(120))),
            _ => r.field("dump", &noise.repeat(64)),
        }
        r.field("status", if i % 10 == 0 { "500" } else { "200" });
        model.rows.push(r);
    }
    model
}

#[tokio::test(flavor = "multi_thread")]
async fn long_rows_come_in_small_batches() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = long_rows();
    let store = open(settings(dir.path())).await;
    for batch in model.batches(12_000) {
        store.write_logs(batch).await.expect("written");
    }
    for flushed in [false, true] {
        if flushed {
            store.flush_all().await.expect("flushed");
        }
        let name = || value("status", Equals("500".into()));
        let message = || value(MSG, Contains("request".into()));
        for filter in [LogFilter::All, name(), message(), LogFilter::And(vec![name(), message()])] {
            let expected = sorted(model.select(&Access::full(), &filter));
            // The second time a column may come out of the cache, or goes there.
            for _ in 0..3 {
                let batches = read(&store, &Access::full(), &everything(filter.clone())).await;
                assert_eq!(sorted(texts(&batches)), expected, "{filter}");
                let most = batches.iter().map(batch_bytes).max().expect("batches");
                assert!(most < 8 << 20, "{filter}: a batch of {most} bytes");
            }
        }
        let columns = vec![LogColumn::text(MSG)];
        let request = LogRequest { columns, rest: false, ..everything(LogFilter::All) };
        let batches = read(&store, &Access::full(), &request).await;
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 12_000);
        assert!(batches.len() > 2, "{} batches", batches.len());
        for order in [LogOrder::NewestFirst, LogOrder::OldestFirst] {
            let batches = read(&store, &Access::full(), &LogRequest { order, ..everything(LogFilter::All) }).await;
            let most = batches.iter().map(batch_bytes).max().expect("batches");
            assert!(most < 8 << 20, "{order:?}: a batch of {most} bytes");
            assert_eq!(sorted(texts(&batches)), sorted(model.select(&Access::full(), &LogFilter::All)));
        }
    }
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_rows_of_wide_blocks_are_looked_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut model = long_rows();
    for (i, row) in model.rows.iter_mut().enumerate() {
        row.field("id", &format!("id{i}"));
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(12_000) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    let filter = value("id", Equals("id7000".into()));
    let expected = model.select(&Access::full(), &filter);
    // What is used a second time is kept: pages that have the row, not columns of the whole block.
    for time in 1..=3 {
        let stats = Arc::new(ReadStats::default());
        let snapshot = logs_source(&store).snapshot();
        let batches = read_of(&*snapshot, &Access::full(), &everything(filter.clone()), &stats).await;
        assert_eq!((texts(&batches).len(), texts(&batches)), (1, expected.clone()), "time {time}");
        let (pages, total) =
            (quiver_types::read_stats::get(&stats.pages_read), quiver_types::read_stats::get(&stats.pages_total));
        assert!(pages * 4 <= total, "time {time}: {pages} pages of {total}");
    }
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_wide_column_finds_cost_little_more_the_second_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let key = |i: usize| format!("{:016x}", (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(25);
    let mut model = long_rows();
    for (i, row) in model.rows.iter_mut().enumerate() {
        row.field("key", &key(i));
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(12_000) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    let filter = value("key", Equals(key(7000)));
    let expected = model.select(&Access::full(), &filter);
    // The filter is put to windows of the block, but the other columns are read for the one row. Of those only what has few
    // pages is read as a whole the second time, to be kept.
    let mut first = None;
    for time in 1..=3 {
        let stats = Arc::new(ReadStats::default());
        let snapshot = logs_source(&store).snapshot();
        let batches = read_of(&*snapshot, &Access::full(), &everything(filter.clone()), &stats).await;
        assert_eq!(texts(&batches), expected, "time {time}");
        let pages = quiver_types::read_stats::get(&stats.pages_read);
        let first = *first.get_or_insert(pages);
        let most = if time == 2 { first + first / 4 } else { first };
        assert!(pages <= most, "time {time}: {pages} pages, {first} at first");
    }
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_use_of_a_column_reads_what_it_asks_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    for batch in long_rows().batches(12_000) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    // More than half of each stream, and then all of them: that is not less because a cache had them.
    let mut pages = Vec::new();
    for filter in [LogFilter::Time(vec![(T0, T0 + 6500 * SECOND)]), LogFilter::All] {
        let request = LogRequest { columns: vec![LogColumn::text(MSG)], rest: false, ..everything(filter) };
        let stats = Arc::new(ReadStats::default());
        read_of(&*logs_source(&store).snapshot(), &Access::full(), &request, &stats).await;
        pages.push(quiver_types::read_stats::get(&stats.pages_read));
    }
    assert!(pages[0] * 4 < pages[1] * 3, "{pages:?} pages");
    store.close(Duration::from_secs(10)).await;
}
