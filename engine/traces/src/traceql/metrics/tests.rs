use quiver_types::spans::{Attributes, Value};

use super::*;
use crate::assemble::tests::span;
use crate::lists::histogram::{Measured, Series};
use crate::testing::memory;

fn metric(text: &str) -> Metric {
    let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    query.metric.unwrap_or_else(|| panic!("{text} gives no numbers"))
}

/// Cells of values by a label and the start of a step, filled as spans fill them.
fn groups(metric: &Metric, values: &[(&str, i64, f64)]) -> Groups {
    let by_power = matches!(metric.function, MetricFunction::Quantiles(..) | MetricFunction::Histogram(_));
    let mut groups = Groups::new();
    for (id, (label, at, value)) in (0_u8..).zip(values) {
        if placed(Some(*value), by_power).is_none() {
            continue;
        }
        let labels = vec![FieldValue::text(*label)];
        let cell = groups.entry(labels).or_default().entry(*at).or_default();
        cell.first.get_or_insert(([id; 16], at + 1, *value));
        if by_power {
            cell.count_value(*value, 1.0);
        } else {
            cell.add(*value, 1.0);
        }
    }
    groups
}

/// Series as texts: labels, then times and numbers.
fn shown(series: &[MetricSeries]) -> Vec<String> {
    let one = |one: &MetricSeries| {
        let shown = |value: &FieldValue| value.as_text().map_or(format!("{value:?}"), str::to_owned);
        let labels = one.labels.iter().map(|(name, value)| format!("{name}={}", shown(value)));
        labels.chain(one.points.iter().map(|(at, value)| format!("{at}:{value}"))).collect::<Vec<_>>().join(" ")
    };
    series.iter().map(one).collect()
}

const VALUES: [(&str, i64, f64); 5] = [("a", 0, 4.0), ("a", 0, 1.0), ("a", 60, 7.0), ("b", 0, -2.0), ("b", 0, -2.0)];

#[test]
fn each_function_makes_its_number_of_a_step() {
    let memory = memory(4 << 20);
    for (function, a, b) in [
        ("rate()", "0:2 60:1", "0:2"),
        ("count_over_time()", "0:2 60:1", "0:2"),
        ("min_over_time(.n)", "0:1 60:7", "0:-2"),
        ("max_over_time(.n)", "0:4 60:7", "0:-2"),
        ("sum_over_time(.n)", "0:5 60:7", "0:-4"),
        ("avg_over_time(.n)", "0:2.5 60:7", "0:-2"),
        // Durations are given in seconds.
        ("sum_over_time(duration)", "0:0.000000005 60:0.000000007", "0:-0.000000004"),
        ("max_over_time(span:childCount)", "0:4 60:7", "0:-2"),
    ] {
        let metric = metric(&format!("{{}} | {function} by (name)"));
        let series = series_of(&metric, &groups(&metric, &VALUES), &memory).unwrap();
        let expected = [format!("name=a {a}"), format!("name=b {b}")];
        assert_eq!(shown(&series), expected, "{function}");
    }
}

#[test]
fn histograms_and_quantiles_are_of_powers_of_two() {
    let memory = memory(4 << 20);
    let series = |function: &str| {
        let metric = metric(&format!("{{}} | {function} by (name)"));
        shown(&series_of(&metric, &groups(&metric, &VALUES), &memory).unwrap())
    };
    let a = "name=a";
    // What is smaller than 2 has no place.
    assert_eq!(
        series("histogram_over_time(.n)"),
        [format!("{a} __bucket=Double(4.0) 0:1"), format!("{a} __bucket=Double(8.0) 60:1")]
    );
    // Durations are given in seconds.
    let of_durations = metric("{} | histogram_over_time(duration)");
    let found = series_of(&of_durations, &groups(&of_durations, &VALUES[..2]), &memory).unwrap();
    let bounds: Vec<&FieldValue> = found.iter().filter_map(|one| Some(&one.labels.last()?.1)).collect();
    assert_eq!(bounds, [&FieldValue::Double(4e-9)]);
    assert_eq!(
        series("quantile_over_time(.n, 0.5, 1)"),
        [format!("{a} p=Double(0.5) 0:4 60:8"), format!("{a} p=Double(1.0) 0:4 60:8")]
    );
}

/// Breaks if a span counts once though it stands for several, or the least and the greatest value grow with that.
#[test]
fn spans_count_as_many_times_as_they_stand_for() {
    let memory = memory(1 << 20);
    for (function, expected) in [
        ("rate()", &["0:5"][..]),
        ("count_over_time()", &["0:5"]),
        ("sum_over_time(.n)", &["0:26"]),
        ("avg_over_time(.n)", &["0:5.2"]),
        ("min_over_time(.n)", &["0:4"]),
        ("max_over_time(.n)", &["0:6"]),
        ("histogram_over_time(.n)", &["__bucket=Double(4.0) 0:2", "__bucket=Double(8.0) 0:3"]),
        ("quantile_over_time(.n, 0.4, 0.9)", &["p=Double(0.4) 0:4", "p=Double(0.9) 0:8"]),
    ] {
        let metric = metric(&format!("{{}} | {function} by (name) with (extrapolate=true)"));
        let mut cell = Cell::default();
        for (value, weight) in [(4.0, 2.0), (6.0, 3.0)] {
            if matches!(metric.function, MetricFunction::Quantiles(..) | MetricFunction::Histogram(_)) {
                cell.count_value(value, weight);
            } else {
                cell.add(value, weight);
            }
        }
        let groups = Groups::from([(vec![FieldValue::text("a")], [(0, cell)].into())]);
        let series = series_of(&metric, &groups, &memory).unwrap();
        let expected: Vec<String> = expected.iter().map(|one| format!("name=a {one}")).collect();
        assert_eq!(shown(&series), expected, "{function}");
    }
    let mut one = span(1, 0, "", 2, 0, 9);
    one.trace_state = "ot=th:c".to_owned();
    let weight = |text: &str| weight(&metric(text), &one);
    assert_eq!([weight("{} | rate()"), weight("{} | rate() with (extrapolate=true)")], [1.0, 4.0]);
}

/// What a test sees of an exemplar.
type ShownExemplar = (u8, i64, i64, Option<f64>);

/// Breaks if an exemplar stands with a series that does not count it, or its value is in another unit than the numbers.
#[test]
fn exemplars_are_the_first_of_each_step() {
    let memory = memory(4 << 20);
    let exemplars = |function: &str| -> Vec<Vec<ShownExemplar>> {
        let metric = metric(&format!("{{}} | {function} by (name)"));
        let series = series_of(&metric, &groups(&metric, &VALUES), &memory).unwrap();
        let of = |one: &MetricExemplar| (one.trace[0], one.start, one.at, one.value);
        series.iter().map(|one| one.exemplars.iter().map(of).collect()).collect()
    };
    assert_eq!(exemplars("rate()"), [vec![(0, 1, 0, None), (2, 61, 60, None)], vec![(3, 1, 0, None)]]);
    assert_eq!(
        exemplars("max_over_time(duration)"),
        [vec![(0, 1, 0, Some(4e-9)), (2, 61, 60, Some(7e-9))], vec![(3, 1, 0, Some(-2e-9))]]
    );
    // Of several quantiles the last alone has them, of a histogram the power that the value is in.
    assert_eq!(
        exemplars("quantile_over_time(.n, 0.5, 1)"),
        [vec![], vec![(0, 1, 0, Some(4.0)), (2, 61, 60, Some(7.0))]]
    );
    assert_eq!(exemplars("histogram_over_time(.n)"), [vec![(0, 1, 0, None)], vec![(2, 61, 60, None)]]);
}

/// Breaks if an answer is made before the memory is asked for it.
#[test]
fn series_count_in_the_memory_of_their_query() {
    let (long, memory) = ("x".repeat(2 << 20), memory(1 << 20));
    for function in ["rate()", "histogram_over_time(.n)", "quantile_over_time(.n, 0.5)"] {
        let metric = metric(&format!("{{}} | {function} by (name)"));
        let groups = groups(&metric, &[(long.as_str(), 0, 4.0)]);
        let found = series_of(&metric, &groups, &memory);
        assert!(matches!(found, Err(TraceError::Engine(_))), "{function}");
    }
}

#[test]
fn counts_of_a_plan_are_series() {
    let metric = metric("{} | rate() by (name)");
    let counts = |name: &str| {
        let points = vec![(0, Measured::Whole(4)), (60, Measured::Whole(7))];
        Histogram { step: 60, series: vec![Series { name: name.to_owned(), points }] }
    };
    let made = |has_steps: bool| series_of_counts(&metric, &counts("a"), has_steps, &memory(1 << 20)).unwrap();
    assert_eq!(shown(&made(true)), ["name=a 0:4 60:7"]);
    assert_eq!(shown(&made(false)), ["name=a 0:11"]);
    // Names count before they are copied.
    let found = series_of_counts(&metric, &counts(&"x".repeat(2 << 20)), true, &memory(1 << 20));
    assert!(matches!(found, Err(TraceError::Engine(_))));
}

#[test]
fn labels_are_values_of_their_type() {
    let mut one = span(1, 0, "", 2, 100, 1_500_100);
    one.status = 2;
    let list = r#"{"arrayValue":{"values":[{"intValue":"1"}]}}"#;
    one.attributes = Attributes::of([
        ("list", Value::Json(list)),
        ("n", Value::Int(i64::MIN)),
        ("nan", Value::Double(f64::NAN)),
        ("text", Value::Text("a\"b")),
        ("yes", Value::Bool(true)),
    ]);
    let text = |text: &str| FieldValue::text(text);
    for (field, expected) in [
        (".text", text("a\"b")),
        (".n", FieldValue::Int(i64::MIN)),
        ("span.nan", FieldValue::Double(f64::NAN)),
        (".yes", FieldValue::Bool(true)),
        (".list", FieldValue::Structure(list.to_owned())),
        ("resource.n", FieldValue::Nil),
        (".none", FieldValue::Nil),
        ("resource.service.name", text("unknown_service")),
        ("duration", FieldValue::Nanos(1_500_000)),
        ("status", text("error")),
        ("kind", text("server")),
        // Every span has one, which may be empty.
        ("statusMessage", text("")),
        ("span:parentID", FieldValue::Nil),
        ("span:id", text("0000000000000001")),
        ("event:timeSinceStart", FieldValue::Nil),
    ] {
        let metric = metric(&format!("{{}} | rate() by ({field})"));
        assert_eq!(label(&one, &metric.by[0]), expected, "{field}");
    }
}

/// Breaks if a span without a value gets the label, or a series has no label at all.
#[test]
fn labels_without_a_value_are_left_out() {
    let labels = |function: &str, values: &[FieldValue]| {
        let metric = metric(&format!("{{}} | {function} by (.a, .b)"));
        let groups = Groups::from([(values.to_vec(), [(0, Cell::default())].into())]);
        let series = series_of(&metric, &groups, &memory(1 << 20)).unwrap();
        series.first().map(|one| one.labels.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(" "))
    };
    let (nil, text) = (FieldValue::Nil, FieldValue::text("x"));
    for (values, plain, quantile) in [
        ([text.clone(), text.clone()], ".a .b", ".a .b p"),
        ([nil.clone(), text.clone()], ".b", ".b p"),
        ([text, nil.clone()], ".a", ".a p"),
        ([nil.clone(), nil], ".a", "p"),
    ] {
        assert_eq!(labels("rate()", &values).as_deref(), Some(plain), "{values:?}");
        assert_eq!(labels("quantile_over_time(.n, .5)", &values).as_deref(), Some(quantile), "{values:?}");
    }
}

/// What a plan counts by itself, and where whole traces are needed: each of them would be wrong for the others.
#[test]
fn how_spans_are_read() {
    let of = |text: &str| {
        let metric = metric(&format!("{{}} | {text}"));
        let needs_trace = metric.by.iter().chain(counted(&metric)).any(is_of_trace);
        (counted_by(&metric), needs_trace, columns(&metric).len())
    };
    let (near, all) = (summary_columns().len() + 2, all_columns().len());
    for (text, counted, of_trace, columns) in [
        ("rate()", Some(SplitBy::Nothing), false, near),
        ("count_over_time() by (resource.service.name)", Some(SplitBy::Service), false, near),
        ("rate() by (.service.name)", Some(SplitBy::Service), false, near),
        ("rate() by (span.service.name)", None, false, near),
        ("rate() by (name)", Some(SplitBy::Operation), false, near),
        ("rate() by (status)", Some(SplitBy::Status), false, near),
        ("rate() by (kind)", None, false, near),
        ("rate() by (name, status)", None, false, near),
        ("max_over_time(duration)", None, false, near),
        ("max_over_time(event:timeSinceStart)", None, false, all),
        ("rate() by (event.a)", None, false, all),
        ("rate() by (instrumentation.a)", None, false, all),
        ("rate() by (rootName)", None, true, all),
        ("avg_over_time(trace:duration) by (name)", None, true, all),
        ("rate() by (trace:id, span:childCount)", None, true, all),
        ("rate() with (extrapolate=true)", None, false, near + 1),
        ("rate() by (name) with (sample=0.1, extrapolate = true)", None, false, near + 1),
        ("rate() with (extrapolate=false)", Some(SplitBy::Nothing), false, near),
    ] {
        assert_eq!(of(text), (counted, of_trace, columns), "{text}");
    }
}

/// Steps without spans have 0 where spans are counted, unless a choice leaves 0 out.
#[test]
fn where_steps_have_no_number() {
    for (text, expected) in [
        ("{} | rate()", false),
        ("{} | rate() by (name) >= 0", false),
        ("{} | rate() < 1", false),
        ("{} | rate() != 0", true),
        ("{} | rate() > 0", true),
        ("{} | rate() | topk(3)", true),
        ("{} | max_over_time(duration)", true),
        ("{} | quantile_over_time(duration, 0.5)", false),
        ("{}", false),
    ] {
        assert_eq!(Query::parse(text).unwrap().leaves_gaps(), expected, "{text}");
    }
}
