//! Look-ups over an index of a few series.

use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use arrow::util::display::array_value_to_string;
use async_trait::async_trait;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan as _, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt as _;
use quiver_types::metrics::MetricMetadata;
use quiver_types::scan::ScanSource;
use quiver_types::series::SeriesTableBuilder;
use quiver_types::source::SeriesExemplars;
use quiver_types::{
    Access, ErrorKind, LabelSet, MatchOp, Matcher, Millis, MillisRange, ReadStats, Result, SampleRequest,
    SelectedSamples, SelectedSeries, SeriesSelector, SeriesSnapshot, SeriesTable, Version,
};

use super::*;
use crate::{EngineSettings, Limits, QueryContext, QueryEngine, Rules, from_datafusion};

/// An index that holds all it is asked for in memory.
#[derive(Debug, Default)]
struct Known {
    series: Vec<Vec<(&'static str, String)>>,
    metadata: Vec<MetricMetadata>,
    exemplars: Vec<SeriesExemplars>,
}

impl Known {
    fn table(&self, selectors: &[Vec<Matcher>]) -> SeriesTable {
        let mut table = SeriesTableBuilder::default();
        for labels in &self.series {
            let value =
                |name: &str| labels.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value.as_str());
            let matches =
                |selector: &Vec<Matcher>| selector.iter().all(|matcher| matcher.matches(value(&matcher.name)));
            if selectors.is_empty() || selectors.iter().any(matches) {
                table.push(labels.iter().map(|(name, value)| (*name, value.as_str())));
            }
        }
        table.finish()
    }
}

/// Look-ups read no samples.
#[derive(Debug)]
struct NoSamples;

impl SelectedSamples for NoSamples {
    fn table(self: Arc<Self>, _: Option<Arc<Vec<bool>>>, _: SampleRequest, _: &ReadStats) -> Arc<dyn ScanSource> {
        unreachable!("look-ups read no samples")
    }
}

#[async_trait]
impl SeriesSnapshot for Known {
    fn version(&self) -> Version {
        Version { written: 0, dropped: 0 }
    }

    fn first_change(&self, _: Version, _: MillisRange) -> Option<Millis> {
        None
    }

    async fn select(&self, _: &Access, selector: &SeriesSelector, _: &ReadStats) -> Result<SelectedSeries> {
        let table = Arc::new(self.table(std::slice::from_ref(&selector.matchers)));
        Ok(SelectedSeries { table, has_histograms: false, keep: None, samples: Arc::new(NoSamples) })
    }

    async fn label_names(
        &self,
        _: &Access,
        selectors: &[Vec<Matcher>],
        _: MillisRange,
        _: &ReadStats,
    ) -> Result<Vec<String>> {
        Ok(self.table(selectors).names().iter().map(ToString::to_string).collect())
    }

    async fn label_values(
        &self,
        _: &Access,
        name: &str,
        selectors: &[Vec<Matcher>],
        _: MillisRange,
        _: &ReadStats,
    ) -> Result<Vec<String>> {
        let table = self.table(selectors);
        let mut values: Vec<String> = (0..table.len()).map(|row| table.value(row, name).to_owned()).collect();
        values.retain(|value| !value.is_empty());
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    async fn metadata(&self, _: &Access, metric: Option<&str>, _: &ReadStats) -> Result<Vec<MetricMetadata>> {
        Ok(self.metadata.iter().filter(|m| metric.is_none_or(|metric| m.metric == metric)).cloned().collect())
    }

    async fn exemplars(
        &self,
        _: &Access,
        _: &[Vec<Matcher>],
        _: MillisRange,
        _: &ReadStats,
    ) -> Result<Vec<SeriesExemplars>> {
        Ok(self.exemplars.clone())
    }
}

fn series_of(all: &[&[(&'static str, &str)]]) -> Vec<Vec<(&'static str, String)>> {
    all.iter().map(|labels| labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()).collect()
}

/// Three metrics with a label of two values.
fn few() -> Known {
    Known {
        series: series_of(&[
            &[("__name__", "up"), ("job", "b")],
            &[("__name__", "up"), ("job", "a")],
            &[("__name__", "cpu"), ("job", "a")],
            &[("__name__", "load")],
        ]),
        ..Known::default()
    }
}

fn matcher(name: &str, value: &str) -> Matcher {
    Matcher::new(name, MatchOp::Equal, value).unwrap()
}

fn source(known: Known) -> IndexSource {
    IndexSource { snapshot: Arc::new(known), access: Access::full() }
}

/// Runs a plan, and gives the rows as their values with `|` between them.
async fn rows(plan: Result<LogicalPlan>) -> Vec<String> {
    let engine = QueryEngine::new(&EngineSettings::small(16 << 20)).unwrap();
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let (own, inner, plan) = (Arc::clone(&engine), ctx.clone(), plan.unwrap());
    let work = async move {
        let rows = own.execute(&plan, &inner, Rules::Direct).await?;
        rows.try_collect::<Vec<RecordBatch>>().await.map_err(from_datafusion)
    };
    let batches = engine.run(&ctx, work).await.unwrap();
    let value = |batch: &RecordBatch, row: usize| -> String {
        let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join("|")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| value(batch, row))).collect()
}

/// Runs a look-up as it stands.
async fn looked_up(
    known: Known,
    look_up: LookUp,
    projection: Option<Vec<usize>>,
    limit: Option<usize>,
) -> Vec<RecordBatch> {
    let node = IndexExec::over(look_up, source(known), projection, limit).unwrap();
    collect(Arc::new(node), SessionContext::new().task_ctx()).await.unwrap()
}

#[tokio::test]
async fn series_come_once_and_in_order() {
    let twice = vec![vec![matcher("__name__", "up")], vec![matcher("job", "a")]];
    let all = series(&source(few()), twice.clone(), MillisRange::ALL, None);
    let expected =
        [r#"{"__name__":"cpu","job":"a"}"#, r#"{"__name__":"up","job":"a"}"#, r#"{"__name__":"up","job":"b"}"#];
    assert_eq!(rows(all).await, expected);
    assert_eq!(rows(series(&source(few()), twice.clone(), MillisRange::ALL, Some(2))).await, expected[..2]);
    assert!(rows(series(&source(few()), Vec::new(), MillisRange::ALL, None)).await.is_empty(), "nobody asked for any");
    let plain = looked_up(few(), LookUp::Series(twice, MillisRange::ALL), None, None).await;
    assert_eq!(plain.iter().map(RecordBatch::num_rows).sum::<usize>(), 4, "one that matches two comes twice");
}

#[tokio::test]
async fn names_and_values_are_bounded() {
    let names = |fetch| label_names(&source(few()), Vec::new(), MillisRange::ALL, fetch);
    assert_eq!(rows(names(None)).await, ["__name__", "job"]);
    assert_eq!(rows(names(Some(1))).await, ["__name__"]);
    assert!(rows(names(Some(0))).await.is_empty());
    let values = |name: &str, selectors, fetch| {
        label_values(&source(few()), name.to_owned(), selectors, MillisRange::ALL, fetch)
    };
    assert_eq!(rows(values("job", Vec::new(), None)).await, ["a", "b"]);
    assert_eq!(rows(values("job", vec![vec![matcher("__name__", "cpu")]], None)).await, ["a"]);
    assert_eq!(rows(values("__name__", Vec::new(), Some(2))).await, ["cpu", "load"]);
    assert!(rows(values("other", Vec::new(), None)).await.is_empty());
}

#[tokio::test]
async fn metadata_is_bounded_by_metric_and_within_each() {
    let of = |metric: &str, help: &str| MetricMetadata {
        metric: metric.to_owned(),
        metric_type: "counter".to_owned(),
        unit: String::new(),
        help: help.to_owned(),
    };
    let known = || Known {
        metadata: vec![of("a", "2"), of("a", "1"), of("b", "1"), of("c", "3"), of("c", "2"), of("c", "1")],
        ..Known::default()
    };
    let check = async |metric: Option<&str>, metrics, each, expected: &[&str]| {
        let plan = metadata(&source(known()), metric.map(str::to_owned), metrics, each);
        let found: Vec<String> =
            rows(plan).await.iter().map(|row| row.split('|').take(4).collect::<Vec<_>>().join("|")).collect();
        assert_eq!(found, expected, "{metric:?} {metrics:?} {each:?}");
    };
    let [a2, a1, b, c3] = ["a|counter||2", "a|counter||1", "b|counter||1", "c|counter||3"];
    let (c2, c1) = ("c|counter||2", "c|counter||1");
    check(None, None, None, &[a2, a1, b, c3, c2, c1]).await;
    check(None, Some(2), None, &[a2, a1, b]).await;
    check(None, None, Some(1), &[a2, b, c3]).await;
    check(None, Some(1), Some(1), &[a2]).await;
    check(None, Some(0), None, &[]).await;
    check(Some("c"), None, Some(2), &[c3, c2]).await;
    check(Some("none"), None, None, &[]).await;
}

#[tokio::test]
async fn exemplars_name_their_traces() {
    let labels = |pairs: &[(&str, &str)]| LabelSet::from_pairs(pairs.iter().copied());
    let known = || Known {
        exemplars: vec![
            SeriesExemplars {
                labels: labels(&[("__name__", "a")]),
                exemplars: vec![
                    (5, 0.5, labels(&[("trace_id", "AB"), ("user", "u")])),
                    (6, -1.0, labels(&[("traceID", "cd")])),
                    (7, f64::INFINITY, labels(&[])),
                ],
            },
            SeriesExemplars { labels: labels(&[("__name__", "b")]), exemplars: Vec::new() },
            SeriesExemplars { labels: labels(&[]), exemplars: vec![(8, 2.0, labels(&[("trace.id", "ab")]))] },
        ],
        ..Known::default()
    };
    let found = looked_up(known(), LookUp::Exemplars(Vec::new(), MillisRange::ALL), None, None).await;
    let column = |at: usize| found.iter().map(|batch| Arc::clone(batch.column(at))).collect::<Vec<_>>();
    let series: Vec<u64> = column(0).iter().flat_map(|c| c.as_primitive::<UInt64Type>().values().to_vec()).collect();
    assert_eq!(series, [0, 0, 0, 2], "numbers are those of the series");
    let times: Vec<i64> = column(2).iter().flat_map(|c| c.as_primitive::<Int64Type>().values().to_vec()).collect();
    let values: Vec<f64> = column(3).iter().flat_map(|c| c.as_primitive::<Float64Type>().values().to_vec()).collect();
    assert_eq!((times, values), (vec![5, 6, 7, 8], vec![0.5, -1.0, f64::INFINITY, 2.0]));
    let traced = async |trace: &str, fetch| {
        let plan = exemplars_of_trace(&source(known()), Vec::new(), MillisRange::ALL, trace, fetch);
        rows(plan).await.iter().map(|row| row.split('|').nth(2).unwrap().to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(traced("aB", 10).await, ["5", "8"], "ids are found in any case");
    assert_eq!(traced("ab", 1).await, ["5"]);
    assert_eq!(traced("cd", 10).await, ["6"]);
    assert!(traced("u", 10).await.is_empty(), "other labels name no trace");
    let all = rows(exemplars(&source(known()), Vec::new(), MillisRange::ALL)).await;
    assert_eq!(all[0], r#"0|{"__name__":"a"}|5|0.5|{"trace_id":"AB","user":"u"}"#);
    assert_eq!(all[3], r#"2|{}|8|2.0|{"trace.id":"ab"}"#);
}

#[tokio::test]
async fn values_are_counted_label_by_label() {
    let mut counted = rows(cardinality(&source(few()))).await;
    assert_eq!(counted.remove(0), "||4", "all series come first");
    counted.sort_unstable();
    assert_eq!(counted, ["__name__|cpu|1", "__name__|load|1", "__name__|up|2", "job|a|2", "job|b|1"]);
    assert_eq!(rows(cardinality(&source(Known::default()))).await, ["||0"]);
}

#[tokio::test]
async fn a_look_up_gives_no_more_than_its_limit() {
    let many = || Known {
        series: (0..9_000).map(|n| vec![("__name__", "a".to_owned()), ("n", format!("{n:05}"))]).collect(),
        ..Known::default()
    };
    let of_all = || LookUp::Series(vec![vec![matcher("__name__", "a")]], MillisRange::ALL);
    for (limit, expected) in [(None, 9_000), (Some(0), 0), (Some(8193), 8193), (Some(30_000), 9_000)] {
        let found = looked_up(many(), of_all(), None, limit).await;
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), expected, "{limit:?}");
        assert!(found.iter().all(|batch| batch.num_rows() <= 8192));
    }
    let values = || LookUp::Values("n".to_owned(), Vec::new(), MillisRange::ALL);
    let found = looked_up(many(), values(), None, Some(8_500)).await;
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 8_500);
    let last = found.iter().rev().find(|batch| batch.num_rows() > 0).unwrap();
    assert_eq!(last.column(0).as_string::<i32>().value(last.num_rows() - 1), "08499");
    let counted = looked_up(few(), LookUp::Cardinality, Some(vec![2, 0]), Some(1)).await;
    assert_eq!(counted[0].schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["series", "label"]);
    assert_eq!(counted[0].column(0).as_primitive::<UInt64Type>().values(), &[4]);
}

#[tokio::test]
async fn batches_count_in_the_memory_of_the_query() {
    let known = Known { series: vec![vec![("__name__", "x".repeat(100_000))]], ..Known::default() };
    let look_up = LookUp::Names(Vec::new(), MillisRange::ALL);
    let node = |known| Arc::new(IndexExec::over(look_up.clone(), source(known), None, None).unwrap());
    let run = async |node: Arc<IndexExec>, bytes: usize| {
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes))).build_arc();
        let session = SessionContext::new_with_config_rt(SessionConfig::new(), runtime.unwrap());
        collect(node, session.task_ctx()).await.map_err(from_datafusion)
    };
    assert_eq!(run(node(few()), 1 << 20).await.unwrap().len(), 1);
    assert_eq!(run(node(few()), 1).await.unwrap_err().kind, ErrorKind::LimitExceeded);
    let of_values = LookUp::Values("__name__".to_owned(), Vec::new(), MillisRange::ALL);
    let long = Arc::new(IndexExec::over(of_values, source(known), None, None).unwrap());
    assert_eq!(run(long, 50_000).await.unwrap_err().kind, ErrorKind::LimitExceeded);
}

#[test]
fn plans_show_what_is_looked_up() {
    let range = MillisRange::new(-5, 7);
    let selectors =
        || vec![vec![matcher("a", "x\"y"), Matcher::new("b", MatchOp::NotRegex, "c.*").unwrap()], Vec::new()];
    let matched = r#", match={a="x\"y", b!~"c.*"}, match={}"#;
    for (look_up, expected) in [
        (LookUp::Series(selectors(), MillisRange::ALL), format!("series{matched}")),
        (LookUp::Names(Vec::new(), range), "label names, time=[-5, 7]".to_owned()),
        (LookUp::Values("a b".to_owned(), selectors(), range), format!("values of \"a b\"{matched}, time=[-5, 7]")),
        (LookUp::Metadata(None), "metadata".to_owned()),
        (LookUp::Metadata(Some("up".to_owned())), "metadata of \"up\"".to_owned()),
        (LookUp::Exemplars(Vec::new(), MillisRange::ALL), "exemplars".to_owned()),
        (LookUp::Cardinality, "series by label and value".to_owned()),
    ] {
        assert_eq!(look_up.to_string(), expected);
        let node = IndexExec::over(look_up, source(few()), None, Some(3)).unwrap();
        assert_eq!(displayable(&node).one_line().to_string().trim(), format!("IndexExec: {expected}, limit=3"));
        assert!(node.execute(1, SessionContext::new().task_ctx()).is_err(), "there is one partition");
    }
    assert!(IndexExec::over(LookUp::Cardinality, source(few()), Some(vec![3]), None).is_err(), "no such column");
}
