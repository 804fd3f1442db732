//! Evaluates rules on the server's `QueryEngine`, within the time limit of their group; results are written to the
//! store like any other samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use quiver_alertd::rules::{Engines, GroupContext};
use quiver_alerting::rules::{Element, ElementValue, Engine, Language, NewestSample, Reads, RuleSample};
use quiver_api::expression_checks::olap_query;
use quiver_api::identity::Identities;
use quiver_api::live_settings::LiveSettings;
use quiver_logsql::{LogsqlEngine, QueryScope, histogram_buckets, stats_columns};
use quiver_olap::OlapEngine;
use quiver_olap::query::request::Request as OlapRequest;
use quiver_promql::selectors::selectors;
use quiver_promql::{NewestValue, PromqlEngine, QueryOptions, QueryValue, StepResult};
use quiver_query::tables::DomainAccess;
use quiver_query::{Limits, QueryContext, QueryEngine, QueryInfo, from_datafusion};
use quiver_store::Store;
use quiver_types::metrics::HistogramSample;
use quiver_types::read_stats::get;
use quiver_types::{
    Access, AccessSegment, Clock, Domain, LabelSet, Matcher, MetricsBatch, Millis, MillisRange, Right, SegmentRows,
};
use tokio::runtime::Handle;

/// Makes engines for the evaluation of rules.
#[derive(Debug)]
pub struct StoreEngines {
    /// Evaluates rules of language `promql`.
    pub promql: Arc<PromqlEngine>,
    /// Evaluates rules of language `logsql`.
    pub logsql: Arc<LogsqlEngine>,
    /// Evaluates rules of language `olap`.
    pub olap: Arc<OlapEngine>,
    /// Runs the queries.
    pub engine: Arc<QueryEngine>,
    /// Stores the results.
    pub store: Arc<Store>,
    /// Limits of queries.
    pub live: Arc<ArcSwap<LiveSettings>>,
    /// Measures the duration of evaluations.
    pub clock: Arc<dyn Clock>,
    /// Most elements in a result.
    pub results_max: u64,
    /// Labels that name the service of an alert or a series.
    pub service_labels: Arc<[String]>,
    /// Accounts, if access control is on.
    pub identities: Option<Arc<Identities>>,
}

impl Engines for StoreEngines {
    fn engine(&self, asker: &GroupContext) -> Arc<dyn Engine + Send + Sync> {
        let live = self.live.load();
        let mut limits = live.query_limits.clone();
        limits.timeout = limits.timeout.min(asker.timeout);
        limits.rows_max = limits.rows_max.min(self.results_max);
        Arc::new(StoreEngine {
            promql: Arc::clone(&self.promql),
            logsql: Arc::clone(&self.logsql),
            olap: Arc::clone(&self.olap),
            engine: Arc::clone(&self.engine),
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            limits,
            writes: asker.rights.iter().map(|rights| rights.access(Right::Edit, Domain::Alerting)).collect(),
            service_labels: Arc::clone(&self.service_labels),
            identities: self.identities.clone(),
            scanned: asker.rights.iter().map(|_| AtomicU64::new(0)).collect(),
            asker: asker.clone(),
            handle: Handle::current(),
        })
    }
}

/// The engine of one evaluation of a group. Blocks the calling thread.
#[derive(Debug)]
struct StoreEngine {
    promql: Arc<PromqlEngine>,
    logsql: Arc<LogsqlEngine>,
    olap: Arc<OlapEngine>,
    engine: Arc<QueryEngine>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// The services for which each rule may write.
    writes: Vec<Access>,
    service_labels: Arc<[String]>,
    identities: Option<Arc<Identities>>,
    /// Bytes that the queries of each rule have read.
    scanned: Vec<AtomicU64>,
    asker: GroupContext,
    handle: Handle,
}

/// Restricts series to those with these labels.
fn within(labels: &[(String, String)]) -> AccessSegment {
    let matchers = labels.iter().map(|(name, value)| Matcher::equal(name, value)).collect();
    AccessSegment { identity: format!("extra_label {labels:?}"), rows: SegmentRows::Series(vec![matchers]) }
}

/// The label that tells the results of one `stats` pipe apart.
const RESULT_LABEL: &str = "stats_result";

/// The error of a rule whose last editor has lost rights that it runs with.
const LOST: &str = "FORBIDDEN: the last editor of the rule has lost a right that it runs with";

impl StoreEngine {
    /// Whether the last editor of a rule may no longer view what the rule reads.
    fn is_lost(&self, rule: usize, language: Language) -> bool {
        let Some(identities) = &self.identities else { return false };
        let (Some(rights), Some(editor)) = (self.asker.rights.get(rule), self.asker.editors.get(rule)) else {
            return false;
        };
        let domain = match language {
            Language::Promql => Some(Domain::Metrics),
            Language::Logsql => Some(Domain::Logs),
            Language::Olap => None,
        };
        !identities.auth.still_shows(editor, rights, domain)
    }

    fn context(&self, rule: usize, language: Language, expr: &str) -> Result<QueryContext, String> {
        if self.is_lost(rule, language) {
            return Err(LOST.to_owned());
        }
        let asked = QueryInfo {
            language: language.as_str(),
            caller: format!("rule group {}", self.asker.group),
            ..QueryInfo::default()
        };
        let domain = if language == Language::Logsql { Domain::Logs } else { Domain::Metrics };
        let rights = self.asker.rights.get(rule).cloned().unwrap_or_default();
        let mut access = rights.access(Right::View, domain);
        if domain == Domain::Metrics && !self.asker.extra_labels.is_empty() {
            access = access.narrowed(within(&self.asker.extra_labels));
        }
        let ctx = QueryContext::asked(access, self.limits.clone(), asked.with_text(expr));
        self.engine.begin(&ctx);
        Ok(ctx)
    }

    /// Counts the bytes that a query of a rule has read.
    fn count(&self, rule: usize, ctx: &QueryContext) {
        if let Some(scanned) = self.scanned.get(rule) {
            scanned.fetch_add(get(&ctx.stats.bytes_read), Relaxed);
        }
    }

    async fn promql(&self, rule: usize, expr: &str, at: Millis) -> Result<Vec<Element>, String> {
        let ctx = self.context(rule, Language::Promql, expr)?;
        let options = QueryOptions { no_cache: true, ..QueryOptions::default() };
        let answer = self.promql.instant(expr, at, &options, &ctx).await;
        self.count(rule, &ctx);
        elements_of(&answer.map_err(|e| e.to_string())?.value)
    }

    async fn logsql(&self, rule: usize, expr: &str, at: Millis) -> Result<Vec<Element>, String> {
        let query = quiver_logsql::parse(expr).map_err(|e| e.to_string())?;
        let columns = stats_columns(&query).map_err(|e| e.to_string())?;
        let end = at.saturating_mul(1_000_000);
        let window = i64::try_from(self.asker.interval.as_nanos()).unwrap_or(i64::MAX);
        // A query without a time filter covers the interval that ends now.
        let start_ns = (!query.has_time_filter()).then(|| end.saturating_sub(window));
        let scope = QueryScope { now_ns: end, start_ns, end_ns: Some(end - 1), ..QueryScope::default() };
        let ctx = self.context(rule, Language::Logsql, expr)?;
        let (mut out, rows_max) = (Vec::new(), self.limits.rows_max);
        let read = self.logsql.each_row(&query, &scope, &ctx, |row| {
            let (mut labels, mut values) = (Vec::new(), Vec::new());
            for (name, value) in row {
                if columns.values.iter().any(|column| column == name) {
                    match value.parse::<f64>() {
                        Ok(number) => values.push((name.to_owned(), None, number)),
                        // Each bucket of a histogram is an element of its own.
                        Err(_) => values.extend(
                            histogram_buckets(value)
                                .into_iter()
                                .flatten()
                                .map(|(range, hits)| (format!("{name}_bucket"), Some(range.to_owned()), hits as f64)),
                        ),
                    }
                } else if columns.labels.iter().any(|column| column == name) && !value.is_empty() {
                    labels.push((name.to_owned(), value.to_owned()));
                }
            }
            for (name, range, number) in values {
                let own = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).chain([(RESULT_LABEL, name.as_str())]);
                let own = own.chain(range.as_deref().map(|range| ("vmrange", range)));
                out.push(Element { labels: LabelSet::from_pairs(own), value: ElementValue::Float(number) });
            }
            if out.len() as u64 > rows_max {
                let text = format!("the result has more than {rows_max} elements (`alerting.results_max`)");
                return Err(quiver_types::Error::new(quiver_types::ErrorKind::LimitExceeded, text));
            }
            Ok(())
        });
        let read = read.await;
        self.count(rule, &ctx);
        read.map_err(|e| e.to_string())?;
        Ok(out)
    }
}

impl StoreEngine {
    /// Runs an analytics query; relative time ranges refer to the time of the evaluation.
    async fn olap(&self, rule: usize, expr: &str, at: Millis) -> Result<Vec<Element>, String> {
        let value = olap_query(expr)?;
        let catalog = self.olap.catalog();
        let rights = self.asker.rights.get(rule).cloned().unwrap_or_default();
        let access = DomainAccess::of(|domain| rights.access(Right::View, domain));
        let now_ns = at.saturating_mul(1_000_000);
        let mut asked = OlapRequest::to_load(&value, &catalog, &access, now_ns).map_err(|e| e.to_string())?;
        asked.check(false).map_err(|e| e.to_string())?;
        if value.get("limit").is_none() {
            // Results must not be cut silently: exceeding the row limit is an error.
            asked.queries.iter_mut().for_each(|query| query.limit = None);
        }
        let ctx = self.context(rule, Language::Olap, expr)?;
        let sets = self.olap.load(&catalog, &asked, &access, &ctx).await;
        self.count(rule, &ctx);
        let sets = sets.map_err(|e| e.to_string())?;
        let measure = asked.queries[0].measures.first().map(ToString::to_string).unwrap_or_default();
        let mut out = Vec::new();
        for set in &sets {
            let names = label_names(&set.columns, &measure);
            for batch in &set.batches {
                out.extend(elements_of_rows(batch, &names).map_err(|e| e.to_string())?);
            }
        }
        Ok(out)
    }
}

/// The label for each column: the name of its member, prefixed by its model if two are equal. `None` for the measure.
fn label_names(columns: &[String], measure: &str) -> Vec<Option<String>> {
    let short = |column: &str| column.rsplit('.').next().unwrap_or(column).to_owned();
    let name = |column: &String| {
        let alike = columns.iter().filter(|other| *other != measure && short(other) == short(column)).count();
        let label = if alike > 1 { column.replace('.', "_") } else { short(column) };
        (column != measure).then_some(label)
    };
    columns.iter().map(name).collect()
}

fn elements_of_rows(batch: &RecordBatch, names: &[Option<String>]) -> Result<Vec<Element>, ArrowError> {
    let Some(at) = names.iter().position(Option::is_none) else { return Ok(Vec::new()) };
    let values = cast(batch.column(at), &DataType::Float64)?;
    let values = values.as_primitive::<Float64Type>();
    let mut out = Vec::new();
    for row in (0..batch.num_rows()).filter(|&row| values.is_valid(row)) {
        let mut labels = Vec::new();
        for (name, column) in names.iter().zip(batch.columns()) {
            if let Some(name) = name.as_deref().filter(|_| column.is_valid(row)) {
                labels.push((name, array_value_to_string(column, row)?));
            }
        }
        let labels = LabelSet::from_pairs(labels.iter().filter(|(_, v)| !v.is_empty()).map(|(n, v)| (*n, v.as_str())));
        out.push(Element { labels, value: ElementValue::Float(values.value(row)) });
    }
    Ok(out)
}

impl Engine for StoreEngine {
    fn query(&self, rule: usize, language: Language, expr: &str, at: Millis) -> Result<Vec<Element>, String> {
        match language {
            Language::Promql => self.handle.block_on(self.promql(rule, expr, at)),
            Language::Logsql => self.handle.block_on(self.logsql(rule, expr, at)),
            Language::Olap => self.handle.block_on(self.olap(rule, expr, at)),
        }
    }

    fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
        let written = self.handle.block_on(self.store.write_own_metrics(batch_of(samples)));
        let outcome = written.map_err(|e| e.to_string())?;
        if outcome.refused.is_empty() { Ok(()) } else { Err(format!("refused: {:?}", outcome.refused)) }
    }

    fn may_write(&self, rule: usize, labels: &LabelSet) -> bool {
        let writes = self.writes.get(rule);
        writes.is_some_and(|writes| writes.is_full() || writes.allows(labels.service(&self.service_labels)))
    }

    fn scanned_bytes(&self, rule: usize) -> Option<u64> {
        self.scanned.get(rule).map(get)
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn newest(
        &self,
        rule: usize,
        matchers: &[Matcher],
        (from, to): (Millis, Millis),
    ) -> Result<Vec<NewestSample>, String> {
        let ctx = self.context(rule, Language::Promql, "ALERTS_FOR_STATE")?;
        let memory = self.engine.reservation("alerts of before", &ctx);
        let (reader, rows_max) = (self.promql.raw(&ctx), self.limits.rows_max);
        let (selectors, range) = (vec![matchers.to_vec()], MillisRange::new(from, to));
        let work = async move {
            let mut newest = reader.newest(selectors, range).await?;
            let (table, mut out) = (Arc::clone(&newest.table), Vec::new());
            newest
                .each(|row, ts, value| {
                    let NewestValue::Float(value) = value else { return Ok(()) };
                    if out.len() as u64 >= rows_max {
                        let text = format!("there are more than {rows_max} alerts (`alerting.results_max`)");
                        return Err(quiver_types::Error::new(quiver_types::ErrorKind::LimitExceeded, text));
                    }
                    let bytes: usize = table.labels(row as usize).map(|(n, v)| n.len() + v.len() + 8).sum();
                    memory.try_grow(bytes + size_of::<NewestSample>()).map_err(from_datafusion)?;
                    out.push((LabelSet::from_pairs(table.labels(row as usize)), ts, value));
                    Ok(())
                })
                .await?;
            Ok((out, memory))
        };
        let found = self.handle.block_on(self.engine.run(&ctx, work));
        self.count(rule, &ctx);
        found.map(|(out, _)| out).map_err(|e| e.to_string())
    }

    fn reads(&self, language: Language, expr: &str) -> Reads {
        match language {
            Language::Promql => match quiver_promql::parser::parse(expr) {
                Ok(tree) => Reads::Series(selectors(&tree).into_iter().map(<[Matcher]>::to_vec).collect()),
                // An invalid expression fails when it is evaluated.
                Err(_) => Reads::Series(Vec::new()),
            },
            // Rules never write logs.
            Language::Logsql => Reads::Series(Vec::new()),
            Language::Olap => Reads::Anything,
        }
    }
}

/// Converts a result to elements.
///
/// # Errors
/// It is a range vector or a string.
pub(crate) fn elements_of(value: &QueryValue) -> Result<Vec<Element>, String> {
    match value {
        QueryValue::Scalar { value, .. } => {
            Ok(vec![Element { labels: LabelSet::default(), value: ElementValue::Float(*value) }])
        }
        QueryValue::Vector(result) => Ok(elements(result)),
        _ => Err("rule result is not a vector or scalar".to_owned()),
    }
}

fn elements(result: &StepResult) -> Vec<Element> {
    let mut out = Vec::new();
    for row in result.rows() {
        let labels = || LabelSet::from_pairs(result.table.labels(row.row as usize));
        if row.present.first() == Some(&true) {
            out.push(Element { labels: labels(), value: ElementValue::Float(row.values[0]) });
        } else if let Some((_, _, h)) = row.hists.first() {
            let value = ElementValue::Histogram(Box::new(h.clone()), quiver_promql::histogram::text(h));
            out.push(Element { labels: labels(), value });
        }
    }
    out
}

/// Makes the batch that writes the samples of rules.
pub(crate) fn batch_of(samples: &[RuleSample]) -> MetricsBatch {
    let mut batch = MetricsBatch::default();
    for sample in samples {
        let series = batch.push_series(sample.labels.canonical());
        match &sample.value {
            ElementValue::Float(value) => batch.push_sample(series, sample.ts, *value, 0),
            ElementValue::Histogram(h, _) => {
                batch.histograms.push(HistogramSample { series, ts: sample.ts, start_ts: 0, histogram: (**h).clone() });
            }
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn element(labels: &[(&str, &str)], value: f64) -> Element {
        Element { labels: LabelSet::from_pairs(labels.iter().copied()), value: ElementValue::Float(value) }
    }

    #[test]
    fn columns_of_analytics_are_labels_but_for_the_measure() {
        let check = |columns: &[&str], expected: &[Option<&str>]| {
            let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
            let names = label_names(&columns, "spans.count");
            assert_eq!(names.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{columns:?}");
        };
        check(&["spans.service", "spans.count"], &[Some("service"), None]);
        check(&["spans.service", "logs.service", "spans.count"], &[Some("spans_service"), Some("logs_service"), None]);
        // A label may have the same name as the measure.
        check(&["logs.count", "spans.count"], &[Some("count"), None]);
        check(&["plain"], &[Some("plain")]);
    }

    #[test]
    fn rows_of_analytics_are_elements_where_there_is_a_number() {
        let services: ArrayRef = Arc::new(StringArray::from(vec![Some("cart"), None, Some(""), Some("pay")]));
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3), None]));
        let batch = RecordBatch::try_from_iter([("spans.service", services), ("spans.count", counts)]).unwrap();
        let elements = elements_of_rows(&batch, &[Some("service".to_owned()), None]).unwrap();
        let expected = [element(&[("service", "cart")], 1.0), element(&[], 2.0), element(&[], 3.0)];
        assert_eq!(elements, expected);
        let none = elements_of_rows(&batch, &[Some("a".to_owned()), Some("b".to_owned())]).unwrap();
        assert!(none.is_empty(), "there is no measure");
    }

    #[test]
    fn rules_are_about_vectors_and_numbers() {
        let scalar = elements_of(&QueryValue::Scalar { time_ms: 5, value: 1.5 });
        assert_eq!(scalar, Ok(vec![element(&[], 1.5)]));
        let text = elements_of(&QueryValue::String { time_ms: 5, text: "1".to_owned() });
        assert_eq!(text, Err("rule result is not a vector or scalar".to_owned()));
    }

    #[test]
    fn samples_of_rules_are_written_with_their_series() {
        let written = |name: &str, ts, value| RuleSample {
            labels: LabelSet::from_pairs([("__name__", name)]),
            ts,
            value: ElementValue::Float(value),
        };
        let batch = batch_of(&[written("a", 5, 1.5), written("b", 6, 2.5)]);
        assert_eq!((&batch.ts[..], &batch.values[..]), (&[5, 6][..], &[1.5, 2.5][..]));
        assert_eq!((batch.series.len(), &batch.sample_series[..]), (2, &[0, 1][..]));
        let labels = |n: usize| &batch.label_bytes[batch.series[n].start as usize..batch.series[n].end as usize];
        assert_eq!(labels(1), LabelSet::from_pairs([("__name__", "b")]).canonical());
        assert!(batch.start_ts.is_empty() && batch.histograms.is_empty());
    }
}
