//! How long a query will take, as planning learns it: a short one is evaluated on its caller's thread, which saves two switches of
//! threads; they take as long as a look at some thousand values.

use std::str::Bytes;
use std::sync::atomic::Ordering::Relaxed;

use quiver_query::give_way;

use super::Planner;

/// A query that looks at no more values takes a millisecond or less, mostly.
const QUICK_VALUES: u64 = 200_000;
/// Above all sums of values: the query has left its caller's thread.
const LEFT: u64 = 1 << 62;
/// The labels of a row take an operation as long as so many values do.
const LABEL_VALUES: i64 = 16;
/// Texts up to this length are parsed on the caller's thread, if they hold no more patterns than these: to compile one takes
/// up to a millisecond, and some more if it repeats something.
const QUICK_TEXT: usize = 2 << 10;
const QUICK_PATTERNS: usize = 4;

/// Whether a query of this text may be parsed on its caller's thread.
pub(crate) fn is_quickly_parsed(text: &str) -> bool {
    // In the language itself no digit stands behind a brace.
    let repeats = || text.as_bytes().windows(2).any(|pair| pair[0] == b'{' && pair[1].is_ascii_digit());
    let taken = || text.matches('~').count() + text.matches("label_replace").count();
    text.len() <= QUICK_TEXT && !repeats() && (taken() <= QUICK_PATTERNS || patterns(text) <= QUICK_PATTERNS)
}

/// How many strings of a query may be patterns that are more than plain texts, which are compiled in microseconds.
fn patterns(text: &str) -> usize {
    let (mut rest, mut count) = (text.bytes(), 0);
    while let Some(byte) = rest.next() {
        match byte {
            // A quote in a comment begins no string.
            b'#' => _ = rest.find(|byte| *byte == b'\n'),
            b'"' | b'\'' | b'`' => count += usize::from(is_pattern(byte, &mut rest)),
            _ => {}
        }
    }
    count
}

/// Reads a string behind its first quote to its end; says whether it has a character that means something in a pattern.
fn is_pattern(quote: u8, rest: &mut Bytes<'_>) -> bool {
    let mut found = false;
    while let Some(byte) = rest.next().filter(|byte| *byte != quote) {
        // An escape may produce any of these characters.
        found |= br"\.*+?|()[]{}^$".contains(&byte);
        if byte == b'\\' && quote != b'`' {
            rest.next();
        }
    }
    found
}

impl Planner {
    /// Counts values that a node will look at: those of a window, at each step, of each row.
    pub(crate) fn will_look_at(&self, rows: usize, steps: usize, window: i64) {
        let values = (rows as u64).saturating_mul(steps as u64).saturating_mul(window.max(0) as u64);
        // Many such numbers have a sum.
        self.looked_at.fetch_add(values.min(1 << 40), Relaxed);
    }

    /// Counts what an operation does with the labels of so many rows.
    pub(crate) fn will_work_on_labels(&self, rows: usize) {
        self.will_look_at(rows, 1, LABEL_VALUES);
    }

    /// Call it before expensive work: long queries then continue on the engine's threads.
    pub(crate) async fn give_way_if_long(&self) {
        if (QUICK_VALUES + 1..LEFT).contains(&self.looked_at.load(Relaxed)) {
            self.looked_at.store(LEFT, Relaxed);
            give_way().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::ThreadId;

    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use async_trait::async_trait;
    use parking_lot::Mutex;
    use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine};
    use quiver_types::metrics::MetricMetadata;
    use quiver_types::scan::{PlannedScan, ScanShape, ScanSource};
    use quiver_types::source::{SelectedSamples, SeriesExemplars};
    use quiver_types::{
        Access, Error, Matcher, Millis, MillisRange, ReadStats, Result, SampleRequest, SelectedSeries, SeriesSelector,
        SeriesSnapshot, SeriesSource, SeriesTable, Version,
    };

    use super::is_quickly_parsed;
    use crate::{PromqlEngine, PromqlSettings, QueryOptions, QueryTimes};

    /// Series without labels, so many; and the threads on which tables over them were made.
    #[derive(Debug, Clone)]
    struct Series(usize, Arc<Mutex<Vec<ThreadId>>>);

    impl SeriesSource for Series {
        fn snapshot(&self) -> Arc<dyn SeriesSnapshot> {
            Arc::new(self.clone())
        }
    }

    #[async_trait]
    impl SeriesSnapshot for Series {
        fn version(&self) -> Version {
            Version { written: 0, dropped: 0 }
        }

        fn first_change(&self, _: Version, _: MillisRange) -> Option<Millis> {
            None
        }

        async fn select(&self, _: &Access, _: &SeriesSelector, _: &ReadStats) -> Result<SelectedSeries> {
            let table = Arc::new(SeriesTable::new(self.0, Vec::new()));
            Ok(SelectedSeries { table, has_histograms: false, keep: None, samples: Arc::new(self.clone()) })
        }

        async fn label_names(
            &self,
            _: &Access,
            _: &[Vec<Matcher>],
            _: MillisRange,
            _: &ReadStats,
        ) -> Result<Vec<String>> {
            Ok(Vec::new())
        }

        async fn label_values(
            &self,
            _: &Access,
            _: &str,
            _: &[Vec<Matcher>],
            _: MillisRange,
            _: &ReadStats,
        ) -> Result<Vec<String>> {
            Ok(Vec::new())
        }

        async fn metadata(&self, _: &Access, _: Option<&str>, _: &ReadStats) -> Result<Vec<MetricMetadata>> {
            Ok(Vec::new())
        }

        async fn exemplars(
            &self,
            _: &Access,
            _: &[Vec<Matcher>],
            _: MillisRange,
            _: &ReadStats,
        ) -> Result<Vec<SeriesExemplars>> {
            Ok(Vec::new())
        }
    }

    impl SelectedSamples for Series {
        fn table(self: Arc<Self>, _: Option<Arc<Vec<bool>>>, _: SampleRequest, _: &ReadStats) -> Arc<dyn ScanSource> {
            self.1.lock().push(std::thread::current().id());
            self
        }
    }

    impl ScanSource for Series {
        fn schema(&self) -> SchemaRef {
            let list = |kind| DataType::ListView(Arc::new(Field::new_list_field(kind, false)));
            let (times, values) = (list(DataType::Int64), list(DataType::Float64));
            let row = Field::new("row", DataType::UInt32, false);
            Arc::new(Schema::new(vec![row, Field::new("ts", times, false), Field::new("v", values, false)]))
        }

        fn scan(&self, _: &ScanShape) -> Result<Arc<dyn PlannedScan>> {
            Err(Error::internal("far enough"))
        }
    }

    /// Whether each table for a query over so many series was made on the thread that asked.
    async fn stays(query: &str, series: usize, end_ms: Millis) -> Vec<bool> {
        let source = Series(series, Arc::default());
        let engine = QueryEngine::new(&EngineSettings { threads: 1, ..EngineSettings::small(1 << 24) }).unwrap();
        let engine = PromqlEngine::new(Arc::new(source.clone()), engine, PromqlSettings::default());
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let times = QueryTimes::range(0, end_ms, 1000).unwrap();
        let outcome = engine.evaluate(query, times, &QueryOptions::default(), &ctx).await;
        assert!(outcome.unwrap_err().to_string().contains("far enough"), "{query}");
        let here = std::thread::current().id();
        let threads = source.1.lock();
        assert!(!threads.is_empty(), "{query}");
        threads.iter().map(|thread| *thread == here).collect()
    }

    #[tokio::test]
    async fn what_is_long_leaves_the_thread() {
        assert_eq!(stays("up", 1, 10_000).await, [true]);
        assert_eq!(stays("sum(rate(up[1m]))", 10, 100_000).await, [true]);
        // Many series, many steps, long windows.
        assert_eq!(stays("up", 1000, 10_000).await, [false]);
        assert_eq!(stays("up", 1, 10_000_000).await, [false]);
        assert_eq!(stays("rate(up[30d])", 1, 10_000).await, [false]);
        // Subqueries of many steps and many terms, before their first selector is resolved.
        assert_eq!(stays("max_over_time(vector(1)[1d:1s]) + up", 1, 10_000).await, [false]);
        assert_eq!(stays("max_over_time(up[1h:1s])", 1, 100_000).await, [false]);
        assert_eq!(stays(&format!("{}up", "time() + ".repeat(220)), 1, 1_000_000).await, [false]);
    }

    /// Breaks if calls of `label_replace` that set a constant are taken for patterns that take long to compile.
    #[tokio::test]
    async fn plain_texts_are_no_patterns() {
        let calls = |pattern: &str| vec![format!(r#"label_replace(up, "a", "b", "c", {pattern})"#); 5].join(" or ");
        let plain = [r#""""#, "'host-3'", "`a b`"];
        let others = [r#""x.*""#, r#""\x2e""#, r"'it\'s'", "`a|b`", r#""[0-9]""#];
        for (pattern, expected) in plain.map(|p| (p, true)).into_iter().chain(others.map(|p| (p, false))) {
            assert_eq!(is_quickly_parsed(&calls(pattern)), expected, "{pattern}");
        }
        assert!(stays(&calls(r#""""#), 1, 10_000).await.iter().all(|near| *near));
        let matchers = format!("up{{{}}}", r#"a=~"x.*","#.repeat(5));
        assert!(!is_quickly_parsed(&matchers));
        assert!(!is_quickly_parsed(&format!("# a quote: \"\n{matchers}")), "of a comment");
    }

    #[tokio::test]
    async fn long_texts_are_not_even_parsed_there() {
        assert_eq!(stays(&format!("up{}", " ".repeat(4096)), 1, 10_000).await, [false]);
        assert_eq!(stays(r#"up{a=~"x.*y"}"#, 1, 10_000).await, [true]);
        assert_eq!(stays(r#"up{a=~"(x|y){20}"}"#, 1, 10_000).await, [false]);
        let five: Vec<_> = (0..5).map(|i| format!(r#"a=~"x.*{i}""#)).collect();
        assert_eq!(stays(&format!("up{{{}}}", five.join(",")), 1, 10_000).await, [false]);
        assert_eq!(stays(&format!("up{{{}}}", five[1..].join(",")), 1, 10_000).await, [true]);
    }

    #[tokio::test]
    async fn labels_of_many_rows_leave_the_thread_before_they_are_worked_on() {
        let some = "scalar(count_over_time(up[1s]))";
        let sum = format!("{some} + {some}");
        assert_eq!(stays(&sum, 1000, 0).await, [true, true]);
        assert_eq!(stays(&sum, 20_000, 0).await, [true, false]);
    }
}
