//! Arithmetic between metrics queries: `({ … } | rate()) / ({} | rate()) * 100`.
//!
//! Each query is evaluated separately; then series with equal labels are combined step by step. A series without labels
//! is combined with every series of the other side.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_query::{QueryContext, QueryReservation};

use super::ast::Query;
use super::error::TraceqlError;
use super::expressions::Sign;
use super::memory::{LABEL_BYTES, reserve};
use super::numbers::Node;
use super::parser;
use super::series::{MetricSeries, MetricWindow, SECOND_NS, keep, pick};
use super::steps::fill;
use super::value::FieldValue;
use crate::engine::{TraceError, TracesEngine};

/// The label of a series without others.
const NAME: &str = "__name__";

/// Numbers over time: those of one query, or what is worked out of several.
#[derive(Debug, Clone)]
pub struct Figures(Node);

impl Figures {
    /// Reads a query, or arithmetic between queries of metrics in parentheses.
    ///
    /// # Errors
    /// Neither; of the two errors the one that stands later in the text.
    pub fn parse(text: &str) -> Result<Self, TraceqlError> {
        let failed = match Query::parse(text) {
            Ok(query) => return Ok(Self(Node::Query(Box::new(query)))),
            Err(failed) => failed,
        };
        parser::numbers(text).map(Self).map_err(|other| failed.or_later(other))
    }

    /// The query, where there is one alone.
    fn alone(&self) -> Option<&Query> {
        match &self.0 {
            Node::Query(query) => Some(query),
            _ => None,
        }
    }

    /// Says whether there are numbers, and not spans.
    pub fn is_metric(&self) -> bool {
        self.alone().is_none_or(Query::is_metric)
    }

    /// Says whether the numbers are still to be divided by the time of a step.
    pub fn is_rate(&self) -> bool {
        self.alone().is_some_and(Query::is_rate)
    }

    /// Says whether a step that is not told of has no number, where others have 0.
    pub fn leaves_gaps(&self) -> bool {
        self.alone().is_none_or(Query::leaves_gaps)
    }

    /// How many exemplars its hints ask for.
    pub fn exemplars(&self) -> Option<usize> {
        self.alone().and_then(Query::exemplars)
    }
}

impl Node {
    /// Works the numbers out of those of its queries, which come in their order.
    fn worked_out(
        &self,
        found: &mut VecDeque<Vec<MetricSeries>>,
        memory: &QueryReservation,
    ) -> Result<Vec<MetricSeries>, TraceError> {
        match self {
            Self::Query(_) => Ok(found.pop_front().unwrap_or_default()),
            Self::Worked(left, sign, right) => {
                let left = left.worked_out(found, memory)?;
                let right = right.worked_out(found, memory)?;
                joined(&left, *sign, &right, memory)
            }
            Self::Fixed { of, sign, fixed, is_left } => {
                let mut series = of.worked_out(found, memory)?;
                for one in &mut series {
                    for (_, value) in &mut one.points {
                        let (left, right) = if *is_left { (*fixed, *value) } else { (*value, *fixed) };
                        *value = apply(*sign, left, right);
                    }
                    one.points.retain(|(_, value)| !value.is_nan());
                }
                series.retain(|one| !one.points.is_empty());
                Ok(series)
            }
            Self::Kept(of, compare, number) => {
                let mut series = of.worked_out(found, memory)?;
                keep(&mut series, (*compare, *number), 1.0, true);
                Ok(series)
            }
            Self::Picked(of, end, most) => {
                let mut series = of.worked_out(found, memory)?;
                pick(&mut series, *end, *most);
                Ok(series)
            }
        }
    }
}

/// Division by 0 gives no number.
fn apply(sign: Sign, left: f64, right: f64) -> f64 {
    if sign == Sign::By && right == 0.0 { f64::NAN } else { sign.of(left, right) }
}

/// The key of a series: its labels without the name.
type SeriesKey<'s> = Vec<&'s (String, FieldValue)>;

fn key(series: &MetricSeries) -> SeriesKey<'_> {
    series.labels.iter().filter(|(name, _)| name != NAME).collect()
}

/// Places of series by their keys.
fn keyed(series: &[MetricSeries]) -> BTreeMap<SeriesKey<'_>, usize> {
    series.iter().enumerate().map(|(n, one)| (key(one), n)).collect()
}

/// The series of a key, else the one without labels.
fn find(known: &BTreeMap<SeriesKey<'_>, usize>, key: &SeriesKey<'_>) -> Option<usize> {
    known.get(key).or_else(|| known.get(&SeriesKey::new())).copied()
}

/// Puts series of both sides together.
fn joined(
    left: &[MetricSeries],
    sign: Sign,
    right: &[MetricSeries],
    memory: &QueryReservation,
) -> Result<Vec<MetricSeries>, TraceError> {
    // Labels are held once more in the outcome, and named by a key for each side.
    for one in left.iter().chain(right) {
        let labels = one.labels.iter().map(|(name, value)| LABEL_BYTES + name.len() + value.held_bytes());
        reserve(memory, 2 * labels.sum::<usize>(), one.points.len(), 0)?;
    }
    let (of_left, of_right) = (keyed(left), keyed(right));
    let wanted = if of_right.contains_key(&SeriesKey::new()) { left } else { right };
    let mut out = Vec::new();
    for key in wanted.iter().map(key) {
        let (Some(own), Some(other)) = (find(&of_left, &key), find(&of_right, &key)) else { continue };
        let (own, other) = (&left[own], &right[other]);
        let value = |&(at, value): &(i64, f64)| {
            let found = other.points.binary_search_by_key(&at, |point| point.0).ok()?;
            Some((at, apply(sign, value, other.points[found].1))).filter(|(_, value)| !value.is_nan())
        };
        let points: Vec<(i64, f64)> = own.points.iter().filter_map(value).collect();
        if !points.is_empty() {
            out.push(MetricSeries { labels: united(own, sign, other), points, exemplars: Vec::new() });
        }
    }
    Ok(out)
}

/// The labels of both; the name says what was done, where both have one.
fn united(left: &MetricSeries, sign: Sign, right: &MetricSeries) -> Vec<(String, FieldValue)> {
    let name = |series: &MetricSeries| {
        let found = series.labels.iter().find(|(name, _)| name == NAME);
        found.and_then(|(_, value)| value.as_text().map(str::to_owned))
    };
    let mut labels: Vec<(String, FieldValue)> = left.labels.iter().filter(|(name, _)| name != NAME).cloned().collect();
    for (name, value) in right.labels.iter().filter(|(name, _)| name != NAME) {
        if labels.iter().all(|(known, _)| known != name) {
            labels.push((name.clone(), value.clone()));
        }
    }
    if let (Some(left), Some(right)) = (name(left), name(right)) {
        labels.push((NAME.to_owned(), FieldValue::Text(format!("({left} {} {right})", sign.text()))));
    }
    labels
}

/// Makes numbers of what a query counted: rates per second, and 0 where a step without spans has 0.
fn settled(
    query: &Query,
    mut series: Vec<MetricSeries>,
    window: MetricWindow,
    memory: &QueryReservation,
) -> Result<Vec<MetricSeries>, TraceError> {
    let MetricWindow { range, step, .. } = window;
    let length = step.unwrap_or_else(|| range.1.saturating_sub(range.0).max(SECOND_NS as i64));
    let by = if query.is_rate() { length as f64 / SECOND_NS } else { 1.0 };
    if !query.leaves_gaps() {
        fill(&mut series, window, memory)?;
    }
    for one in &mut series {
        one.points.retain(|(_, value)| !value.is_nan());
        one.points.iter_mut().for_each(|(_, value)| *value /= by);
    }
    Ok(series)
}

impl TracesEngine {
    /// Gives numbers over time, as [`TracesEngine::traceql_metric`] does where they are those of one query; what is
    /// worked out is divided by the time already, and has no exemplars.
    ///
    /// # Errors
    /// Those of the queries.
    pub fn traceql_figures<'a>(
        self: &'a Arc<Self>,
        ctx: &'a QueryContext,
        figures: &'a Figures,
        window: MetricWindow,
    ) -> BoxFuture<'a, Result<Vec<MetricSeries>, TraceError>> {
        async move {
            if let Some(query) = figures.alone() {
                return self.traceql_metric(ctx, query, window).await;
            }
            let mut queries = Vec::new();
            figures.0.queries(&mut queries);
            let memory = self.collected("series that are worked out", ctx);
            let mut found = VecDeque::new();
            for query in queries {
                let window = MetricWindow { exemplars: false, ..window };
                let series = self.traceql_metric(ctx, query, window).await?;
                found.push_back(settled(query, series, window, &memory)?);
            }
            let series = figures.0.worked_out(&mut found, &memory)?;
            ctx.keep(memory);
            Ok(series)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory;

    #[test]
    fn what_is_read() {
        let shape = |text: &str| {
            fn of(numbers: &Node) -> String {
                match numbers {
                    Node::Query(_) => "q".to_owned(),
                    Node::Worked(left, sign, right) => format!("({} {} {})", of(left), sign.text(), of(right)),
                    Node::Fixed { of: one, sign, fixed, is_left: true } => {
                        format!("({fixed} {} {})", sign.text(), of(one))
                    }
                    Node::Fixed { of: one, sign, fixed, .. } => format!("({} {} {fixed})", of(one), sign.text()),
                    Node::Kept(one, _, number) => format!("{} kept {number}", of(one)),
                    Node::Picked(one, end, most) => format!("{} picked {end:?} {most}", of(one)),
                }
            }
            Figures::parse(text).map_or_else(|e| e.to_string(), |figures| of(&figures.0))
        };
        assert_eq!(shape("{} | rate()"), "q");
        assert_eq!(shape("({ status = error } | rate()) / ({} | rate())"), "(q / q)");
        assert_eq!(shape("({} | rate()) + ({} | rate()) * ({} | rate())"), "(q + (q * q))");
        assert_eq!(shape("100 * (({} | rate()) - ({} | rate() by (name) | topk(2))) / 2.5"), "((100 * (q - q)) / 2.5)");
        assert_eq!(shape("(({} | count() > 1) && {} | rate()) * (1 + 1 / 2)"), "(q * 1)");
        assert_eq!(shape("(({} | rate()) / 2) > 5 | bottomk(3)"), "(q / 2) kept 5 picked Least 3");
        assert_eq!(shape("({} | max_over_time(duration)) > 10s"), "q kept 10");
        assert_eq!(shape("({} | rate()) > 1 / 2 + 3 | topk(2)"), "q kept 3 picked Greatest 2");
        // There may be blanks between a sign and its number.
        assert_eq!(shape("({} | rate()) * - 2 > -(1 + 2) - -1"), "(q * -2) kept -2");
        assert!(shape("-({} | rate())").contains("unexpected -"), "{}", shape("-({} | rate())"));
        for compared in ["({} | compare({ true })) / 2", "2 * ({} | compare({ true }))", "({} | compare({})) > 1"] {
            assert!(shape(compared).contains("`compare()` cannot"), "{}", shape(compared));
        }
        // Read once, and not once more for each parenthesis.
        assert!(Figures::parse(&"({} | rate() > (((".repeat(15)).is_err());
        assert!(shape("1 + 2").contains("needs a query of metrics"), "{}", shape("1 + 2"));
        assert!(shape("({} | rate()) * 5s").contains("without a unit"), "{}", shape("({} | rate()) * 5s"));
        assert!(shape("({ foo } | rate()) / 2").contains("unknown identifier: foo"));
        assert!(shape(&format!("({{}} | rate()){}", " + 1".repeat(300))).contains("more than 256 conditions"));
    }

    #[test]
    fn series_are_put_together() {
        let one = |name: Option<&str>, points: &[(i64, f64)]| MetricSeries {
            labels: vec![match name {
                Some(name) => ("name".to_owned(), FieldValue::text(name)),
                None => (NAME.to_owned(), FieldValue::text("rate")),
            }],
            points: points.to_vec(),
            exemplars: Vec::new(),
        };
        let points = |series: &[MetricSeries]| series.iter().map(|s| s.points.clone()).collect::<Vec<_>>();
        let memory = memory(1 << 20);
        let by_name = [one(Some("a"), &[(0, 4.0), (1, 6.0)]), one(Some("b"), &[(0, 8.0)])];
        let all = [one(None, &[(0, 2.0), (1, 0.0)])];
        let shares = joined(&by_name, Sign::By, &all, &memory).expect("numbers");
        assert_eq!(points(&shares), [vec![(0, 2.0)], vec![(0, 4.0)]]);
        assert_eq!(shares[0].labels, by_name[0].labels);
        let turned = joined(&all, Sign::Minus, &by_name, &memory).expect("numbers");
        assert_eq!(points(&turned), [vec![(0, -2.0), (1, -6.0)], vec![(0, -6.0)]]);
        let same = joined(&by_name[..1], Sign::Plus, &by_name, &memory).expect("numbers");
        assert_eq!(points(&same), [vec![(0, 8.0), (1, 12.0)]]);
        let named = joined(&all, Sign::Times, &all, &memory).expect("numbers");
        assert_eq!(named[0].labels, [(NAME.to_owned(), FieldValue::text("(rate * rate)"))]);
    }
    /// What arithmetic makes of the numbers of its queries, which come one for each.
    fn worked_out(text: &str, found: &[&[(i64, f64)]], memory: &QueryReservation) -> Vec<Vec<(i64, f64)>> {
        let figures = Figures::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let one = |points: &&[(i64, f64)]| vec![MetricSeries { points: points.to_vec(), ..MetricSeries::default() }];
        let mut found: VecDeque<Vec<MetricSeries>> = found.iter().map(one).collect();
        let series = figures.0.worked_out(&mut found, memory).expect("numbers");
        assert!(found.is_empty(), "{text} leaves numbers of queries");
        series.into_iter().map(|one| one.points).collect()
    }

    /// Breaks if a series stays of which there is no number, or numbers of one query are taken for those of another.
    #[test]
    fn numbers_are_worked_out_step_by_step() {
        const Q: &str = "({} | rate())";
        let memory = memory(1 << 20);
        let check = |text: &str, found: &[&[(i64, f64)]], expected: &[&[(i64, f64)]]| {
            let text = text.replace('q', Q);
            assert_eq!(worked_out(&text, found, &memory), expected, "{text}");
        };
        let [some, zero]: [&[(i64, f64)]; 2] = [&[(0, 4.0), (60, 6.0)], &[(0, 0.0), (60, 2.0)]];
        check("q * 2 + 1", &[some], &[&[(0, 9.0), (60, 13.0)]]);
        check("1 - q", &[some], &[&[(0, -3.0), (60, -5.0)]]);
        check("12 / q", &[some], &[&[(0, 3.0), (60, 2.0)]]);
        check("q / 8", &[some], &[&[(0, 0.5), (60, 0.75)]]);
        // By 0 there is no number, and a series without any is none.
        check("1 / q", &[zero], &[&[(60, 0.5)]]);
        check("q / 0", &[some], &[]);
        check("q / q", &[some, zero], &[&[(60, 3.0)]]);
        check("q / q", &[zero, some], &[&[(0, 0.0), (60, 2.0 / 6.0)]]);
        check("q - (q - q)", &[some, some, zero], &[&[(0, 0.0), (60, 2.0)]]);
        check("(q - q) - q", &[some, some, zero], &[&[(0, 0.0), (60, -2.0)]]);
        // Of steps that one side lacks there is no number.
        check("q + q", &[some, &[(60, 1.0), (120, 1.0)]], &[&[(60, 7.0)]]);
        check("q + q", &[some, &[(120, 1.0)]], &[]);
        check("q + q", &[some, &[]], &[]);
        check("(q * 2) > 8", &[some], &[&[(60, 12.0)]]);
        check("(q * 2) > 12", &[some], &[]);
        check("(q + q) | topk(1)", &[some, some], &[&[(0, 8.0), (60, 12.0)]]);
    }

    /// Rates are per second, and steps without spans have 0 before anything is worked out of them.
    #[test]
    fn numbers_of_queries_are_settled() {
        const S: i64 = 1_000_000_000;
        let memory = memory(1 << 20);
        let check =
            |text: &str, range: (i64, i64), step: Option<i64>, points: &[(i64, f64)], expected: &[(i64, f64)]| {
                let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
                let one = MetricSeries { points: points.to_vec(), ..MetricSeries::default() };
                let window = step.map_or(MetricWindow::whole(range), |step| MetricWindow::of_steps(range, step, false));
                let found = settled(&query, vec![one], window, &memory).expect("numbers");
                assert_eq!(found[0].points, expected, "{text} {range:?} {step:?}");
            };
        let (rate, count) = ("{} | rate()", "{} | count_over_time()");
        let step = 60 * S;
        let counted = [(60 * S, 6.0)];
        check(rate, (60 * S, 180 * S), Some(step), &counted, &[(0, 0.0), (60 * S, 0.1), (120 * S, 0.0)]);
        check(count, (60 * S, 180 * S), Some(step), &counted, &[(0, 0.0), (60 * S, 6.0), (120 * S, 0.0)]);
        // The window begins and ends within a step, here before 1970.
        check(count, (-S, 0), Some(step), &[], &[(-120 * S, 0.0), (-60 * S, 0.0)]);
        // What a choice left out stays out.
        let left_out = [(0, f64::NAN), (60 * S, 6.0)];
        check("{} | rate() < 1", (60 * S, 61 * S), Some(step), &left_out, &[(60 * S, 0.1)]);
        check("{} | max_over_time(duration)", (60 * S, 180 * S), Some(step), &counted, &counted);
        check("{} | rate() > 0", (60 * S, 180 * S), Some(step), &counted, &[(60 * S, 0.1)]);
        // A whole window is one step; of none it is a second.
        check(rate, (0, 120 * S), None, &[(0, 6.0)], &[(0, 0.05)]);
        check(rate, (5, 5), None, &[(0, 6.0)], &[(0, 6.0)]);
        check(count, (0, 120 * S), None, &[(0, 6.0)], &[(0, 6.0)]);
    }

    #[test]
    fn the_later_of_two_errors_is_told() {
        let check = |text: &str, column: usize, reason: &str| {
            let error = Figures::parse(text).err().unwrap_or_else(|| panic!("{text} is read"));
            assert_eq!((error.column, error.reason.as_str()), (column, reason), "{text}");
        };
        check("({} | rate()) / ({} | rate(", 28, "syntax error: unexpected $end, expecting )");
        check(
            "({} | rate()) | count() > 1",
            17,
            "only `topk` and `bottomk` can follow arithmetic of numbers over time",
        );
        check("({} | rate()) | topk(0)", 22, "expected a whole number from 1 to 10000");
        check("({} | rate()) / 0 * (1 / 0)", 24, "a number without bounds");
        // In parentheses a query is itself.
        assert!(Figures::parse("(({} | rate()))").is_ok_and(|figures| figures.is_metric() && figures.is_rate()));
    }
}
