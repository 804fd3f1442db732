//! Translates the filters of a statement that the scan of spans can apply.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use quiver_types::spans::{AttributeTest, Place, SpanFilter, TextTest, parse_hex};

use super::columns::{KINDS, Kinds, STATUSES, SpanRowKind, attribute_of};
use super::conventions::{self, Form, Step};
use crate::tables::cells::CellKind;
use crate::tables::filter_lowering::{Condition, Lower, LoweredFilter, MANY, int_of, nanos_of, range_of, texts_of};

/// The store's name for a missing service; tables show NULL.
const NO_SERVICE: &str = "unknown_service";

/// Translates filters over `spans`, `span_events` and `span_links`.
#[derive(Debug)]
pub(super) struct SpanLower {
    pub(super) row_kind: SpanRowKind,
    pub(super) kinds: Kinds,
}

type LoweredSpanFilter = Option<LoweredFilter<SpanFilter>>;

impl Lower for SpanLower {
    type Filter = SpanFilter;

    fn condition(&self, column: &str, condition: &Condition<'_>) -> LoweredSpanFilter {
        let of_span = match (self.row_kind, column) {
            // Events and links have names, times and attributes of their own.
            (SpanRowKind::Event | SpanRowKind::Link, "name" | "attributes" | "time") => return None,
            (SpanRowKind::Event | SpanRowKind::Link, "span_name") => "name",
            (SpanRowKind::Event | SpanRowKind::Link, "span_start") => "start_time",
            (_, name) => name,
        };
        match of_span {
            "trace_id" => trace(condition),
            "parent_span_id" => match condition {
                Condition::Null => Some(LoweredFilter::exact(SpanFilter::Root)),
                Condition::NotNull => Some(LoweredFilter::exact(not(SpanFilter::Root))),
                _ => None,
            },
            "service_name" => text(condition, SpanFilter::Service, Some(NO_SERVICE)),
            "name" => text(condition, SpanFilter::Name, None),
            "status_message" => text(condition, SpanFilter::Message, None),
            "scope_name" => text(condition, SpanFilter::ScopeName, None),
            "scope_version" => text(condition, SpanFilter::ScopeVersion, None),
            "kind" => words(condition, &KINDS, SpanFilter::Kinds),
            "status_code" => words(condition, &STATUSES, |statuses| {
                SpanFilter::Or(statuses.into_iter().map(SpanFilter::Status).collect())
            }),
            "start_time" => times(condition, SpanFilter::Starts),
            // A span overlaps a range if it ends in it or later and starts in it or earlier, so this accepts all spans
            // that end in the range.
            "end_time" => match times(condition, SpanFilter::Starts)?.filter {
                SpanFilter::Starts(min, max) => {
                    let both = (min > i64::MIN) && (max < i64::MAX);
                    let overlaps = SpanFilter::Overlaps(min, max);
                    Some(if both || min == i64::MIN {
                        LoweredFilter::wider(overlaps)
                    } else {
                        LoweredFilter::exact(overlaps)
                    })
                }
                other => Some(LoweredFilter::exact(other)),
            },
            "duration" => numbers(condition, SpanFilter::Duration),
            name => self.attribute(name, condition),
        }
    }

    fn all_of(filters: Vec<SpanFilter>) -> SpanFilter {
        filters.into_iter().fold(SpanFilter::All, SpanFilter::and)
    }

    fn any_of(filters: [SpanFilter; 2]) -> Option<SpanFilter> {
        Some(SpanFilter::Or(filters.into()))
    }
}

fn not(filter: SpanFilter) -> SpanFilter {
    SpanFilter::Not(Box::new(filter))
}

fn trace(condition: &Condition<'_>) -> LoweredSpanFilter {
    let values = match condition {
        Condition::Compare(Operator::Eq, value) => vec![*value],
        Condition::In(values) => values.clone(),
        _ => return None,
    };
    // Tables show ids as lower-case hex, so other texts equal none.
    let written = |text: &&str| text.len() == 32 && !text.bytes().any(|b| b.is_ascii_uppercase());
    let ids = texts_of(&values)?.into_iter().filter(written).filter_map(parse_hex);
    let mut ids: Vec<[u8; 16]> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    Some(LoweredFilter::exact(if ids.is_empty() { SpanFilter::None } else { SpanFilter::Traces(Arc::new(ids)) }))
}

/// Conditions on a text. `shown` is the store's name for a missing one; tests that accept it are not exact.
fn text(condition: &Condition<'_>, filter: impl Fn(TextTest) -> SpanFilter, shown: Option<&str>) -> LoweredSpanFilter {
    let one = |test: TextTest| {
        let exact = shown.is_none_or(|shown| !test.matches(shown));
        LoweredFilter { filter: filter(test), exact }
    };
    let any = |texts: Vec<&str>| {
        if texts.len() >= MANY {
            return one(TextTest::one_of(texts));
        }
        let tests: Vec<_> = texts.into_iter().map(|text| one(TextTest::Is(text.to_owned()))).collect();
        let exact = tests.iter().all(|test| test.exact);
        let mut filters: Vec<SpanFilter> = tests.into_iter().map(|test| test.filter).collect();
        let filter = match filters.len() {
            0 => SpanFilter::None,
            1 => filters.swap_remove(0),
            _ => SpanFilter::Or(filters),
        };
        LoweredFilter { filter, exact }
    };
    match condition {
        Condition::Compare(Operator::Eq, value) => Some(any(texts_of(&[value])?)),
        Condition::In(values) => Some(any(texts_of(values)?)),
        // Rows without a text pass the store's test, but not the statement's.
        Condition::NotIn(values) => {
            let taken = any(texts_of(values)?);
            taken.exact.then(|| LoweredFilter::wider(not(taken.filter)))
        }
        Condition::Prefix(prefix) => Some(one(TextTest::Prefix(prefix.clone()))),
        Condition::Contains(part) => Some(one(TextTest::Contains(part.clone()))),
        _ => None,
    }
}

/// Conditions on a column with few possible names that is never NULL.
fn words(condition: &Condition<'_>, names: &[&str], filter: impl Fn(Vec<u8>) -> SpanFilter) -> LoweredSpanFilter {
    let numbers = |values: &[&ScalarValue]| -> Option<Vec<u8>> {
        let texts = texts_of(values)?;
        let numbers = (0..names.len()).filter(|&at| texts.contains(&names[at]));
        Some(numbers.map(|at| at as u8).collect())
    };
    match condition {
        Condition::Compare(Operator::Eq, value) => Some(LoweredFilter::exact(filter(numbers(&[value])?))),
        Condition::In(values) => Some(LoweredFilter::exact(filter(numbers(values)?))),
        Condition::NotIn(values) => Some(LoweredFilter::exact(not(filter(numbers(values)?)))),
        _ => None,
    }
}

fn times(condition: &Condition<'_>, filter: impl Fn(i64, i64) -> SpanFilter) -> LoweredSpanFilter {
    let Condition::Compare(op, value) = condition else { return None };
    let (nanos, _) = nanos_of(value)?;
    Some(LoweredFilter::exact(range_of(*op, nanos).map_or(SpanFilter::None, |(min, max)| filter(min, max))))
}

fn numbers(condition: &Condition<'_>, filter: impl Fn(i64, i64) -> SpanFilter) -> LoweredSpanFilter {
    let range = |op, value: &ScalarValue| {
        let value = int_of(value)?;
        Some(range_of(op, value).map_or(SpanFilter::None, |(min, max)| filter(min, max)))
    };
    match condition {
        Condition::Compare(op, value) => range(*op, value).map(LoweredFilter::exact),
        Condition::In(values) if values.len() >= MANY => {
            let numbers = values.iter().map(|value| int_of(value)).collect::<Option<Vec<_>>>()?;
            let (min, max) = (numbers.iter().min()?, numbers.iter().max()?);
            Some(LoweredFilter::wider(filter(*min, *max)))
        }
        Condition::In(values) => {
            let each = values.iter().map(|value| range(Operator::Eq, value));
            Some(LoweredFilter::exact(SpanFilter::Or(each.collect::<Option<Vec<_>>>()?)))
        }
        _ => None,
    }
}

impl SpanLower {
    fn attribute(&self, column: &str, condition: &Condition<'_>) -> LoweredSpanFilter {
        let (_, kind) = self.kinds.iter().find(|(name, _)| name == column)?;
        if let Some(steps) = conventions::steps(column) {
            let each = steps.iter().map(|step| by_convention(step, *kind, condition)).collect::<Option<Vec<_>>>()?;
            return Some(LoweredFilter::wider(SpanFilter::Or(each)));
        }
        let (place, key) = attribute_of(column)?;
        let filter = |test| SpanFilter::Attribute { place: Some(place), key: key.to_owned(), test };
        // The store keeps the service apart from the attributes, with a name where there is none.
        if (place, key) == (Place::Resource, "service.name") {
            return text(condition, SpanFilter::Service, Some(NO_SERVICE)).map(|l| LoweredFilter::wider(l.filter));
        }
        if matches!(condition, Condition::NotNull) {
            // Empty texts exist in the store, but are NULL in the table.
            return Some(LoweredFilter::wider(filter(AttributeTest::Exists)));
        }
        if *kind == CellKind::Text {
            let test = |test: TextTest| filter(AttributeTest::Text(test));
            return match condition {
                // A missing attribute would pass the store's negation.
                Condition::NotIn(values) => {
                    texts_of(values)?;
                    Some(LoweredFilter::wider(filter(AttributeTest::Exists)))
                }
                other => text(other, test, None),
            };
        }
        number(condition, filter)
    }
}

/// A condition on one of the attributes that a column by the conventions reads. It is wider than the condition on the
/// column, since an earlier attribute may decide, and older values are converted.
fn by_convention(step: &Step, kind: CellKind, condition: &Condition<'_>) -> Option<SpanFilter> {
    let filter = |test| SpanFilter::Attribute { place: Some(step.place), key: step.key.clone(), test };
    let exists = || Some(filter(AttributeTest::Exists));
    if (step.place, step.key.as_str()) == (Place::Resource, "service.name") {
        return None;
    }
    match condition {
        Condition::Null => None,
        Condition::NotNull | Condition::NotIn(_) => exists(),
        _ if step.form != Form::Same => exists(),
        Condition::Compare(Operator::NotEq, _) => exists(),
        other if kind == CellKind::Text => Some(text(other, |test| filter(AttributeTest::Text(test)), None)?.filter),
        other => Some(number(other, filter)?.filter),
    }
}

/// Comparisons of numbers. Texts that contain numbers pass, too, so they are never exact.
fn number(condition: &Condition<'_>, filter: impl Fn(AttributeTest) -> SpanFilter) -> LoweredSpanFilter {
    let value_of = |value: &ScalarValue| match value {
        ScalarValue::Float64(Some(n)) if n.is_finite() => Some(*n),
        other => int_of(other).map(|n| n as f64),
    };
    let range = |op: Operator, value: f64| match op {
        Operator::Eq => Some((value, value)),
        Operator::Lt | Operator::LtEq => Some((f64::NEG_INFINITY, value)),
        Operator::Gt | Operator::GtEq => Some((value, f64::INFINITY)),
        _ => None,
    };
    let test = |op, value: &ScalarValue| {
        let (min, max) = range(op, value_of(value)?)?;
        Some(filter(AttributeTest::Number(min, max)))
    };
    match condition {
        Condition::Compare(op, value) => test(*op, value).map(LoweredFilter::wider),
        Condition::In(values) if values.len() >= MANY => {
            let numbers = values.iter().map(|value| value_of(value)).collect::<Option<Vec<_>>>()?;
            let min = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let max = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Some(LoweredFilter::wider(filter(AttributeTest::Number(min, max))))
        }
        Condition::In(values) => {
            let each = values.iter().map(|value| test(Operator::Eq, value));
            Some(LoweredFilter::wider(SpanFilter::Or(each.collect::<Option<Vec<_>>>()?)))
        }
        Condition::NotIn(values) => {
            values.iter().map(|value| value_of(value)).collect::<Option<Vec<_>>>()?;
            Some(LoweredFilter::wider(filter(AttributeTest::Exists)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Expr, col, ident, lit};

    use super::*;
    use crate::tables::filter_lowering::lower;

    fn check(expr: Expr, expected: &str, exact: bool) {
        let kinds = vec![("attributes.n".to_owned(), CellKind::Int), ("attributes.t".to_owned(), CellKind::Text)];
        let lowered = lower(&SpanLower { row_kind: SpanRowKind::Span, kinds }, &expr).expect("the store can say it");
        assert_eq!((lowered.filter.to_string().as_str(), lowered.exact), (expected, exact), "{expr}");
    }

    #[test]
    fn filters_of_spans() {
        check(col("service_name").eq(lit("cart")), "service = \"cart\"", true);
        check(col("service_name").eq(lit(NO_SERVICE)), "service = \"unknown_service\"", false);
        check(col("service_name").not_eq(lit("cart")), "not service = \"cart\"", false);
        check(col("service_name").eq(lit("")), "none", true);
        check(col("kind").eq(lit("SERVER")), "kind in [2]", true);
        check(col("kind").eq(lit("UNSPECIFIED")), "kind in [0]", true);
        check(col("kind").eq(lit("server")), "kind in []", true);
        check(col("status_code").eq(lit("OK")), "(status = 1)", true);
        check(col("duration").gt(lit(5i64)), "duration in [6, 9223372036854775807]", true);
        check(col("parent_span_id").is_null(), "root", true);
        check(ident("attributes.n").gt_eq(lit(5i64)), "span.n in [5, inf]", false);
        check(ident("attributes.t").like(lit("/a%")), "span.t begins with \"/a\"", true);
        check(ident("attributes.t").not_eq(lit("x")), "span.t exists", false);
        let id = "0af7651916cd43dd8448eb211c80319c";
        check(col("trace_id").eq(lit(id)), &format!("trace = {id}"), true);
        check(col("trace_id").eq(lit(id.to_uppercase())), "none", true);
    }

    #[test]
    fn filters_by_the_conventions() {
        let check = |name: &str, expr: Expr, expected: Option<&str>| {
            let kinds = vec![(name.to_owned(), conventions::kind_of(name).expect("it is one"))];
            let lowered = lower(&SpanLower { row_kind: SpanRowKind::Span, kinds }, &expr);
            assert!(lowered.as_ref().is_none_or(|l| !l.exact), "{expr}");
            assert_eq!(lowered.map(|l| l.filter.to_string()).as_deref(), expected, "{expr}");
        };
        let status = || ident("res@host.name");
        check("res@host.name", status().eq(lit("a")), Some("(resource.host.name = \"a\")"));
        check("res@host.name", status().is_null(), None);
        let system = "(span.db.system.name = \"redis\" or span.db.system exists or resource.db.system.name = \"redis\" or resource.db.system exists)";
        check("@db.system.name", ident("@db.system.name").eq(lit("redis")), Some(system));
    }

    #[test]
    fn events_have_names_of_their_own() {
        let events = SpanLower { row_kind: SpanRowKind::Event, kinds: Vec::new() };
        assert!(lower(&events, &col("name").eq(lit("exception"))).is_none());
        assert_eq!(lower(&events, &col("span_name").eq(lit("GET"))).unwrap().filter.to_string(), "name = \"GET\"");
    }

    fn said(row_kind: SpanRowKind, expr: &Expr) -> Option<(String, bool)> {
        let kinds = [
            ("attributes.n", CellKind::Int),
            ("attributes.t", CellKind::Text),
            ("resource.service.name", CellKind::Text),
            ("@server.port", CellKind::Int),
            ("@url.path", CellKind::Text),
            ("res@service.name", CellKind::Text),
            ("res@host.name", CellKind::Text),
        ];
        let kinds = kinds.map(|(name, kind)| (name.to_owned(), kind)).to_vec();
        lower(&SpanLower { row_kind, kinds }, expr).map(|lowered| (lowered.filter.to_string(), lowered.exact))
    }

    #[test]
    fn what_the_store_can_say_of_spans() {
        let at = |ns: i64| lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())));
        let (min, max) = (i64::MIN, i64::MAX);
        for (expr, expected, exact) in [
            (col("start_time").gt(at(5)), format!("start in [6, {max}]"), true),
            (col("start_time").lt(at(min)), "none".to_owned(), true),
            (col("end_time").gt_eq(at(5)), format!("overlaps [5, {max}]"), true),
            (col("end_time").lt_eq(at(5)), format!("overlaps [{min}, 5]"), false),
            (col("end_time").eq(at(5)), "overlaps [5, 5]".to_owned(), false),
            (col("end_time").gt(at(max)), "none".to_owned(), true),
            (col("duration").eq(lit(5i64)), "duration in [5, 5]".to_owned(), true),
            (col("duration").lt(lit(min)), "none".to_owned(), true),
            (
                col("duration").in_list(vec![lit(1i64), lit(3i64)], false),
                "(duration in [1, 1] or duration in [3, 3])".to_owned(),
                true,
            ),
            (col("parent_span_id").is_not_null(), "not root".to_owned(), true),
            (
                col("kind").in_list(vec![lit("CLIENT"), lit("x"), lit("SERVER")], false),
                "kind in [2, 3]".to_owned(),
                true,
            ),
            (col("kind").not_eq(lit("SERVER")), "not kind in [2]".to_owned(), true),
            (col("kind").not_eq(lit("x")), "not kind in []".to_owned(), true),
            (col("status_code").not_eq(lit("OK")), "not (status = 1)".to_owned(), true),
            (col("status_code").eq(lit("ok")), "()".to_owned(), true),
            (col("name").like(lit("%pay%")), "name contains \"pay\"".to_owned(), true),
            (col("name").in_list(vec![lit("b"), lit("")], false), "name = \"b\"".to_owned(), true),
            (col("scope_name").eq(lit("a")), "scope name = \"a\"".to_owned(), true),
            (col("scope_version").like(lit("1.%")), "scope version begins with \"1.\"".to_owned(), true),
            (col("status_message").eq(lit("a")), "status message = \"a\"".to_owned(), true),
            (col("service_name").like(lit("%know%")), "service contains \"know\"".to_owned(), false),
            (
                col("service_name").in_list(vec![lit("a"), lit(NO_SERVICE)], false),
                "(service = \"a\" or service = \"unknown_service\")".to_owned(),
                false,
            ),
        ] {
            assert_eq!(said(SpanRowKind::Span, &expr), Some((expected, exact)), "{expr}");
        }
    }

    #[test]
    fn what_it_cannot_say() {
        let list = |values: [&str; 2]| values.map(lit).to_vec();
        for expr in [
            col("service_name").not_eq(lit(NO_SERVICE)),
            col("service_name").is_null(),
            col("name").gt(lit("a")),
            col("name").eq(lit(5i64)),
            col("kind").is_null(),
            col("kind").gt(lit("A")),
            col("parent_span_id").eq(lit("0011223344556677")),
            col("trace_id").is_not_null(),
            col("trace_id").not_eq(lit("00")),
            col("duration").not_eq(lit(5i64)),
            col("duration").gt(lit(0.5)),
            col("start_time").is_null(),
            col("span_id").eq(lit("0011223344556677")),
            col("attributes").is_null(),
            ident("attributes.unknown").eq(lit("a")),
            ident("attributes.t").is_null(),
            ident("attributes.t").gt(lit("a")),
            ident("attributes.n").is_null(),
            ident("attributes.n").in_list(list(["1", "2"]), false),
            ident("res@service.name").eq(lit("a")),
            ident("@url.path").is_null(),
        ] {
            assert_eq!(said(SpanRowKind::Span, &expr), None, "{expr}");
        }
    }

    #[test]
    fn ids_of_traces_are_written_in_one_form() {
        let id = |digit: &str| digit.repeat(32);
        let list = |texts: Vec<String>| {
            said(SpanRowKind::Span, &col("trace_id").in_list(texts.into_iter().map(lit).collect(), false))
        };
        let of = |text: String| Some((text, true));
        assert_eq!(list(vec![id("a"), id("1")]), of("trace in 2 ids".to_owned()));
        assert_eq!(
            list(vec![id("a"), id("a"), id("A"), "a".to_owned(), id("g"), String::new()]),
            of(format!("trace = {}", id("a")))
        );
        assert_eq!(list(vec!["ä".repeat(16)]), of("none".to_owned()));
        assert_eq!(said(SpanRowKind::Link, &col("trace_id").eq(lit(id("b")))), of(format!("trace = {}", id("b"))));
    }

    #[test]
    fn attributes_are_asked_for_more_than_they_are() {
        for (expr, expected, exact) in [
            (ident("attributes.t").is_not_null(), "span.t exists", false),
            (
                ident("attributes.t").in_list(vec![lit("a"), lit("b")], false),
                "(span.t = \"a\" or span.t = \"b\")",
                true,
            ),
            (ident("attributes.n").lt(lit(5i64)), "span.n in [-inf, 5]", false),
            (ident("attributes.n").not_eq(lit(5i64)), "span.n exists", false),
            (ident("resource.service.name").eq(lit("a")), "service = \"a\"", false),
            (
                ident("@server.port").eq(lit(80i64)),
                "(span.server.port in [80, 80] or span.net.peer.port in [80, 80] or span.net.host.port in [80, 80] or \
                 resource.server.port in [80, 80] or resource.net.peer.port in [80, 80] or resource.net.host.port in [80, 80])",
                false,
            ),
            (
                ident("@url.path").eq(lit("/a")),
                "(span.url.path = \"/a\" or span.http.target exists or resource.url.path = \"/a\" or resource.http.target exists)",
                false,
            ),
            (
                ident("@url.path").not_eq(lit("/a")),
                "(span.url.path exists or span.http.target exists or resource.url.path exists or resource.http.target exists)",
                false,
            ),
        ] {
            assert_eq!(said(SpanRowKind::Span, &expr), Some((expected.to_owned(), exact)), "{expr}");
        }
    }

    #[test]
    fn long_lists_are_one_test() {
        let texts = |count: usize| (0..count).map(|n| lit(format!("t{n}"))).collect::<Vec<Expr>>();
        let numbers = |count: i64| (0..count).map(|n| lit(n * n - 3)).collect::<Vec<Expr>>();
        for (expr, expected, exact) in [
            (ident("attributes.t").in_list(texts(20_000), false), "span.t in 20000 texts", true),
            (col("name").in_list([texts(16), texts(16)].concat(), false), "name in 16 texts", true),
            (col("service_name").in_list(texts(16), true), "not service in 16 texts", false),
            (
                col("service_name").in_list([texts(16), vec![lit(NO_SERVICE)]].concat(), false),
                "service in 17 texts",
                false,
            ),
            (ident("res@host.name").in_list(texts(16), false), "(resource.host.name in 16 texts)", false),
            (ident("attributes.n").in_list(numbers(20), false), "span.n in [-3, 358]", false),
            (col("duration").in_list(numbers(20), false), "duration in [-3, 358]", false),
        ] {
            assert_eq!(said(SpanRowKind::Span, &expr), Some((expected.to_owned(), exact)), "{expected}");
        }
    }

    #[test]
    fn rows_of_events_and_links_have_columns_of_their_own() {
        for row_kind in [SpanRowKind::Event, SpanRowKind::Link] {
            for expr in [col("name").eq(lit("a")), col("attributes").is_null(), col("time").is_null()] {
                assert_eq!(said(row_kind, &expr), None, "{expr}");
            }
            let at = lit(ScalarValue::TimestampNanosecond(Some(7), Some("UTC".into())));
            let starts = said(row_kind, &col("span_start").eq(at));
            assert_eq!(starts, Some(("start in [7, 7]".to_owned(), true)), "a span's time is that of its rows");
        }
        assert_eq!(said(SpanRowKind::Span, &col("span_name").eq(lit("a"))), None, "spans have no such column");
    }
}
