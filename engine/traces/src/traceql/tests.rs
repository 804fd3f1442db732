use std::sync::Arc;

use quiver_types::spans::{Attributes, Event, STATUS_ERROR, Span, SpanContext, Value};

use super::*;
use crate::assemble::tests::span;
use crate::assemble::{Trace, assemble};

mod errors;
mod events_and_links;
mod naive_model;
mod pipeline;
mod scan_filter;

/// A shop: web calls cart twice and payment once, which fails.
fn shop() -> Trace {
    let with = |mut span: Span, service: &str, name: &str, attributes: &[(&str, Value<'_>)]| {
        let resource = Attributes::of([("host.name", Value::Text("h1")), ("both", Value::Text("resource"))]);
        let context = SpanContext { service: service.into(), resource, ..SpanContext::default() };
        span.context = Arc::new(context);
        span.name = name.into();
        span.attributes = Attributes::of(attributes.iter().copied());
        span
    };
    let ms = |n: i64| n * 1_000_000;
    let code = |n| ("http.code", Value::Int(n));
    let root =
        with(span(1, 0, "", 2, ms(1), ms(600)), "web", "POST /checkout", &[code(500), ("both", Value::Text("span"))]);
    let first = with(span(2, 1, "", 3, ms(2), ms(90)), "web", "GET cart", &[code(200), ("odd key", Value::Bool(true))]);
    let second = with(span(3, 1, "", 3, ms(100), ms(130)), "web", "GET cart", &[code(200)]);
    let mut charge = with(span(4, 1, "", 3, ms(140), ms(500)), "web", "Charge", &[("amount", Value::Double(1299.5))]);
    charge.status = STATUS_ERROR;
    charge.status_message = "declined".into();
    let attributes = Attributes::of([("type", Value::Text("Declined"))]);
    charge.events = vec![Event { time: 5, name: "exception".into(), dropped: 0, attributes }];
    let cart = with(span(5, 2, "", 2, ms(10), ms(80)), "cart", "GET /cart", &[("items", Value::Text("3"))]);
    let mut pay = with(span(6, 4, "", 2, ms(150), ms(480)), "payment", "charge", &[]);
    pay.status = STATUS_ERROR;
    assemble([1; 16], vec![root, first, second, charge, cart, pay])
}

fn ids(trace: &Trace, found: Option<TraceMatch>) -> Vec<u64> {
    let of = |i: usize| u64::from_be_bytes(trace.spans[i].span_id);
    found.map(|f| f.spans.into_iter().map(of).collect()).unwrap_or_default()
}

#[test]
fn what_queries_want() {
    let trace = shop();
    let check = |text: &str, expected: &[u64]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
    };
    for all in ["", "{}", "{ }", "{ true }", "{ !false }", "({})", "// all\n{ // of\n} // them"] {
        check(all, &[1, 2, 5, 3, 4, 6]);
    }
    check("{ false }", &[]);
    check(r#"{ resource.service.name = "cart" }"#, &[5]);
    check(r#"{ resource.service.name != "web" }"#, &[5, 6]);
    check(r#"{resource.service.name=~"ca.*|pay.*" && status=error}"#, &[6]);
    check(r#"{ .service.name = "payment" }"#, &[6]);
    check(r#"{ name = "Charge" || span:name = "charge" }"#, &[4, 6]);
    check(r#"{ name !~ "GET.*" && kind = client }"#, &[4]);
    check("{ kind != client && kind != server }", &[]);
    check("{ status = error }", &[4, 6]);
    check("{ error = status }", &[4, 6]);
    check("{ status != unset }", &[4, 6]);
    check(r#"{ statusMessage = "declined" }"#, &[4]);
    check("{ duration > 300ms }", &[1, 4, 6]);
    check("{ 330ms <= duration && duration <= 360000000 }", &[4, 6]);
    check("{ duration > 1h30m }", &[]);
    check(
        "{ traceDuration > 0.5s && rootName = \"POST /checkout\" && rootServiceName=`web` && .http.code = 200 }",
        &[2, 3],
    );
    check("{ traceDuration < 500ms }", &[]);
    check("{ span.http.code >= 500 }", &[1]);
    check("{ span.http.code = 200.0 }", &[2, 3]);
    check("{ span.amount > 1000 }", &[4]);
    check("{ span.amount > -1 && span.amount < 1.3e3 }", &[4]);
    check("{ .items = 3 }", &[5]);
    check(r#"{ span."odd key" }"#, &[2]);
    check("{ span.\"odd key\" = false }", &[]);
    check(r#"{ .both = "span" }"#, &[1]);
    check(r#"{ resource.both = "resource" && .both != "resource" }"#, &[1]);
    check("{ span.http.code != nil }", &[1, 2, 3]);
    check("{ span.http.code = nil && kind = server }", &[5, 6]);
    check("{ span.http.code != 200 }", &[1]);
    check("{ !(span.http.code = 200) && kind = client }", &[4]);
    check(r#"{ event:name = "exception" && event.type = "Declined" }"#, &[4]);
    check("{ event:timeSinceStart < 1ms }", &[4]);
    check("{ event:timeSinceStart > 1ms }", &[]);
    check("{ nestedSetParent < 0 }", &[1]);
    check("{ !(span:parentID != nil) }", &[1]);
    check(r#"{ span:parentID = "0000000000000004" }"#, &[6]);
    check(r#"{ trace:id = "01010101010101010101010101010101" && span:id =~ ".*5" }"#, &[5]);
    check(r#"{ trace:id = "1010101010101010101010101010101" && span:id =~ ".*5" }"#, &[5]);
    check(r#"{ trace:id != "1010101010101010101010101010101" }"#, &[]);
    // What is worked out.
    check("{ .both = resource.both }", &[2, 5, 3, 4, 6]);
    check("{ span.http.code * 2 + 100 >= 2 ^ 3 * 100 }", &[1]);
    check("{ duration / 2 > 100ms + 60ms }", &[1, 4, 6]);
    check("{ span.http.code % 3 = 2 && duration < traceDuration - 500ms }", &[2, 3]);
    check("{ 1000 < span.amount - (100 + 0.5) * 2 }", &[4]);
    check(r#"{ name > "POST /a" && name <= "charge" }"#, &[1, 6]);
    check("{ span.nowhere + 1 > 0 || .odd = 1 - 1 }", &[]);
    check("{ event:timeSinceStart + 1 < 0 }", &[4]);
    // Whole numbers stay whole.
    check("{ span.http.code / 300 = 1 && 7 / 2 = 3 && 7 / 2.0 = 3.5 }", &[1]);
    check("{ span.http.code / 300.0 > 1.6 || span.amount / 2 = 649.75 }", &[1, 4]);
    // A sign stands for all of a power.
    check("{ -span.http.code ^ 2 = -250000 }", &[1]);
    check("{ -2 ^ 2 = -4 && 2 ^ -1 = 0.5 && 2 ^ -2 ^ 2 = 0.0625 && -2 * 2 = -4 && .odd = nil }", &[1, 2, 5, 3, 4, 6]);
    check("{ span.http.code / 0 = 0 || span.http.code % 0 = 0 }", &[]);
    check("{ duration / 7 = 1 }", &[]);
}

#[test]
fn what_structures_and_stages_want() {
    let trace = shop();
    let check = |text: &str, expected: &[u64]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
    };
    check(r#"{ name = "Charge" } >> { status = error }"#, &[6]);
    check(r#"{ resource.service.name = "web" } > { resource.service.name = "cart" }"#, &[5]);
    check("{ nestedSetParent < 0 } >> { kind = server }", &[5, 6]);
    check("{ nestedSetParent < 0 } > { kind = server }", &[]);
    check("{ nestedSetParent < 0 } !> { kind = server }", &[1, 5, 6]);
    check(r#"{ name = "charge" } << { kind = client }"#, &[4]);
    check(r#"{ name = "charge" } << { }"#, &[1, 4]);
    check(r#"{ name = "charge" } < { }"#, &[4]);
    check(r#"{ name = "Charge" } ~ { }"#, &[2, 3]);
    check(r#"{ name = "GET cart" } ~ { name = "GET cart" }"#, &[2, 3]);
    check(r#"{ name = "Charge" } &>> { name = "charge" }"#, &[4, 6]);
    check(r#"{ name = "Charge" } && { name = "GET /cart" }"#, &[5, 4]);
    check(r#"{ name = "Charge" } && { name = "nowhere" }"#, &[]);
    check(r#"{ name = "nowhere" } || { name = "charge" }"#, &[6]);
    check(r#"({ name = "nowhere" } || { name = "Charge" }) > { }"#, &[6]);
    // Aggregates.
    check("{ status = error } | count() > 1", &[4, 6]);
    check("{ status = error } | count() > 2", &[]);
    check("{ kind = client } | avg(duration) > 150ms | max(span.http.code) = 200", &[2, 3, 4]);
    check("{ kind = client } | min(duration) < 30ms", &[]);
    check("{ } | sum(span.amount) >= 1299.5 | select(name, resource.host.name)", &[1, 2, 5, 3, 4, 6]);
    check("{ } | avg(span.nowhere) > 0", &[]);
    check("{ kind = client } | max(duration) - min(duration) > 10 * 30ms", &[2, 3, 4]);
    check("{ kind = client } | 3 <= count() | max(span.http.code * 2) = min(span.http.code) + 200", &[2, 3, 4]);
    check("{ kind = client } | (count() + 1) * 2 < 8", &[]);
    check("count() > 5 | { status = error }", &[4, 6]);
    check("{ kind = client } | { status = error } | select(name)", &[4]);
    // Groups.
    check("{ } | by(resource.service.name) | count() > 1", &[1, 2, 3, 4]);
    check("{ } | by(name) | count() = 2 | coalesce() | count() = 2", &[2, 3]);
    check("by(duration / 1h + 1) | count() > 1", &[]);
    // Parentheses, negation, literals.
    check("{ (span.http.code + 100) * 2 > 1000 }", &[1]);
    check("{ ((span.http.code)) = 500 && ((status = error) = false) }", &[1]);
    check("{ (kind = client) != true && -span.http.code < -400 }", &[1]);
    check("{ !(1 + 1 = 3) && `a` =~ \"a|b\" && span.amount > -(1 - 2) }", &[4]);
    // Patterns are Go's, and a dot is any character.
    check(r#"{ "a\nb" =~ "a.b" && "é" !~ `\w` && "[" =~ `[[]` && kind = server }"#, &[1, 5, 6]);
    check("{ 1 > 2 || true = false }", &[]);
    check("{ nil = nil || nil != nil }", &[]);
    check("{ span.http.code > minInt && span.http.code < maxInt }", &[1, 2, 3]);
    // From left to right, whichever sign it is; a negation is of what stands right behind it.
    check("{ status = error || kind = client && span.http.code = 200 }", &[2, 3]);
    check("{ status = error || (kind = client && span.http.code = 200) }", &[2, 3, 4, 6]);
    check("{ span.http.code = 200 && false || status = error && kind = client }", &[4]);
    check(r#"{ status = error } || { kind = client } && { name = "nowhere" }"#, &[]);
    check(r#"{ status = error } || ({ kind = client } && { name = "nowhere" })"#, &[4, 6]);
    check("{ !span.\"odd key\" = false }", &[2]);
    check("{ .items = 3 = true != false }", &[5]);
    check("{ !(span.\"odd key\" = false) && !!(kind = client) }", &[2, 3, 4]);
    // Numbers of the tree.
    check("{ span:childCount = 3 }", &[1]);
    check("{ childCount = 3 }", &[1]);
    check("{ nestedSetLeft = 1 || nestedSetParent = nestedSetLeft - 1 }", &[1, 2, 5, 6]);
    check("{ nestedSetRight = 12 }", &[1]);
    check("{ nestedSetParent = -1 }", &[1]);
    check("{ nestedSetParent < -1 }", &[]);
    check("{ status = error } | with (most_recent=true)", &[4, 6]);
    check("{ status = error } with (most_recent=true)", &[4, 6]);
}

#[test]
fn conditions_that_are_known_are_booleans() {
    let trace = shop();
    let check = |text: &str, expected: &[u64]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
    };
    check("{ span.\"odd key\" = !false }", &[2]);
    check("{ !!true = span.\"odd key\" }", &[2]);
    check("{ span.\"odd key\" != (1 = 2) }", &[2]);
    check("{ (1 = 1) = !false && !(2 > 1) = false && status = error }", &[4, 6]);
    check("{ span.amount + span.http.code || status = error }", &[4, 6]);
}

/// Breaks if a point is taken for an attribute, or arithmetic with durations cuts what is behind the point.
#[test]
fn numbers_may_begin_with_a_point_and_durations_are_no_whole_numbers() {
    let trace = shop();
    let check = |text: &str, expected: &[u64]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
    };
    check("{ span.amount < 13000 * .1 }", &[4]);
    check("{ span.amount > -.5 && .5 < .75 }", &[4]);
    check("{ duration < 1y && kind = server && status = error }", &[6]);
    check("{ duration = 1198000000 * .5 }", &[1]);
    check("{ duration > 1197999999ns / 2 && duration < 1198000001ns / 2 }", &[1]);
    check("{ span.http.code / 200 = 2 }", &[1]);
    check("{ span.http.code = 2 ^ 2 * 125 }", &[1]);
    check("{} | max(duration) > .5s", &[1, 2, 5, 3, 4, 6]);
    // There may be blanks between a sign and its number.
    check("{} | max(duration) > - .5s", &[1, 2, 5, 3, 4, 6]);
    check("{} | 0 - count() = -(2 + 4)", &[1, 2, 5, 3, 4, 6]);
    check("{} | count() < -(1)", &[]);
}

#[test]
fn functions_of_metrics() {
    for text in [
        "{} | rate() by (resource.service.name, .http.code) with(sample=true)",
        "{} | quantile_over_time(duration, .5, 0.99) by (name)",
        "{ kind = server } | histogram_over_time(span.items)",
        "{} | avg_over_time(duration) by(status) | topk(3)",
        "{} | min_over_time(.a) | bottomk( 1 )",
        "{} | { status = error } | select(name) | rate() with (exemplars=5)",
        "{} | rate() by (name) > 0.5 | topk(3)",
        "{} | count_over_time() != -1e3 with (exemplars=false)",
        "{} | rate() by (name) | topk(5) | bottomk(2) with (sample=true)",
        "{} | rate() > 1 < 9 | topk(2) >= 0.5 != 3 | bottomk(1)",
        "{} | rate() > 3 / 2 + (1 - 4) | topk(2)",
        "{} | max_over_time(duration) by (name) > 10s | topk(2) < 1.5h",
        "{} | max_over_time(trace:duration) by (name)",
        "{} | avg_over_time(event:timeSinceStart)",
        "{} | histogram_over_time(span:childCount)",
    ] {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(query.is_metric() && query.exact_filter().is_some(), "{text}");
    }
}

/// Holds what is said of a query that nobody can read against this.
fn check(text: &str, expected: &str) {
    let error = Query::parse(text).err().unwrap_or_else(|| panic!("{text} is read"));
    assert_eq!(error.to_string(), format!("parse error at line {expected}"), "{text}");
}

#[test]
fn errors_name_what_is_wrong() {
    check("{ broken", "1, col 3: unknown identifier: broken");
    check("{", "1, col 2: syntax error: unexpected $end");
    check("{ name = }", "1, col 10: syntax error: unexpected }");
    check("{ name = \"x }", "1, col 10: a text that does not end");
    check("{\n  status > \"x\" }", "2, col 12: binary operations must operate on the same type: status > \"x\"");
    check("{ name > 5 }", "1, col 10: binary operations must operate on the same type: name > 5");
    check("{ duration = \"x\" }", "1, col 14: binary operations must operate on the same type: duration = \"x\"");
    check("{ status = 2 }", "1, col 12: binary operations must operate on the same type: status = 2");
    check("{ kind = x }", "1, col 10: unknown identifier: x");
    check("{ rootName != 3.2 }", "1, col 15: binary operations must operate on the same type: rootName != 3.2");
    check("{ 1 = name }", "1, col 3: binary operations must operate on the same type: 1 = name");
    check("{ name > 1h }", "1, col 10: binary operations must operate on the same type: name > 1h");
    check("{ kind = \"server\" }", "1, col 10: binary operations must operate on the same type: kind = \"server\"");
    check("{ kind > client }", "1, col 10: illegal operation for the given types: kind > client");
    check("{ .a > true }", "1, col 8: illegal operation for the given types: .a > true");
    check("{ span:status = nil }", "1, col 17: status=nil is not valid because intrinsics cannot be nil");
    check("{ nil = name }", "1, col 3: name=nil is not valid because intrinsics cannot be nil");
    check(
        "{ resource.service.name = nil }",
        "1, col 27: resource.service.name=nil is not valid because resource.service.name cannot be nil",
    );
    check("coalesce() | { true }", "1, col 1: syntax error: unexpected coalesce");
    check("{ .a = 9223372036854775808 }", "1, col 8: `9223372036854775808` is neither a number nor a duration");
    check("{ .a =~ 5 }", "1, col 9: illegal operation for the given types: .a =~ 5");
    check("{ 1 }", "1, col 3: span filter field expressions must resolve to a boolean: { 1 }");
    check("{ name }", "1, col 3: span filter field expressions must resolve to a boolean: { name }");
    check(
        "{ event:name && true }",
        "1, col 3: span filter field expressions must resolve to a boolean: { event:name }",
    );
    check("{ duration =~ \"1.*\" }", "1, col 15: binary operations must operate on the same type: duration =~ \"1.*\"");
    check("{ status + 1 = 2 }", "1, col 12: arithmetic needs numbers");
    check("{ 1 ^ name = 1 }", "1, col 7: arithmetic needs numbers");
    check("{ name = \"a\"", "1, col 13: syntax error: unexpected $end");
    check("{ .a + \"x\" > 2 }", "1, col 8: arithmetic needs numbers");
    check("{ .a + nil > 2 }", "1, col 8: arithmetic needs numbers");
    check("{ .a + 1 }", "1, col 3: span filter field expressions must resolve to a boolean: { .a + 1 }");
    check("{ .a > 1 / 0 }", "1, col 12: a number without bounds");
    check("{ .a =~ .b }", "1, col 9: invalid type for =~ or !~: .b");
    check("{ parent.a = 1 }", "1, col 3: `parent.` is not supported");
    check("{ 1 = \"1\" }", "1, col 7: binary operations must operate on the same type: 1 = \"1\"");
    check("{ (.a = 1) > true }", "1, col 14: a condition has no order");
    check("{ (.a = 1) = 2 }", "1, col 14: a condition compares with `true` and `false` only");
    check("{ (.a = 1) + 2 = 3 }", "1, col 14: arithmetic needs numbers");
    check("{ span. = 1 }", "1, col 3: syntax error: unexpected END_ATTRIBUTE, expecting IDENTIFIER");
    check("{ duration > 5x }", "1, col 14: `5x` is neither a number nor a duration");
    check("{ name =~ \"(\" }", "1, col 11: invalid regex: `(`");
    check("{ name =~ 5 }", "1, col 11: binary operations must operate on the same type: name =~ 5");
    check("{} | by(1)", "1, col 9: expected a field");
    check("{} | nothing(1)", "1, col 6: syntax error: unexpected IDENTIFIER");
    check("{} | 1 < 2", "1, col 6: a comparison of numbers needs an aggregate");
    check("({} | rate()) && {}", "1, col 7: a function of metrics inside of parentheses is not supported");
    check("({} | count() > 1", "1, col 18: syntax error: unexpected $end, expecting ) or |");
    check("{} | compare()", "1, col 14: syntax error: unexpected ), expecting {");
    check("{} | compare({}, 10, 5)", "1, col 16: `compare` takes a number of values, then a start and an end");
    check("{} | compare({}, 10, 5, 5)", "1, col 16: the end of the selection is not after its start");
    check("{} | compare({}, 0)", "1, col 16: `compare` gives 1 to 1000 values of an attribute");
    check("{} | rate() with (exemplars=many)", "1, col 19: `exemplars` is a number, or `true` or `false`");
    check("{} | quantile_over_time(duration)", "1, col 33: syntax error: unexpected ), expecting ,");
    check("{} | quantile_over_time(duration, 9)", "1, col 35: a quantile is a number from 0 to 1");
    check("{} | max_over_time(name)", "1, col 20: `name` is no number of a span");
    check("{} | rate() =~ 5", "1, col 13: numbers are compared by order");
    check("{} | avg_over_time(duration) > 5s * 2", "1, col 35: syntax error: unexpected *, expecting with");
    check("{} | compare({ true }) > 2", "1, col 24: `compare()` cannot be used with second stage functions");
    check("{} | compare({ true }) | topk(2)", "1, col 26: `compare()` cannot be used with second stage functions");
    check("{ !name = \"a\" }", "1, col 4: span filter field expressions must resolve to a boolean: { name }");
    check("{ !1 = 1 }", "1, col 4: span filter field expressions must resolve to a boolean: { 1 }");
    check("{} | rate() | topk(0)", "1, col 20: expected a whole number from 1 to 10000");
    check("{} | count()", "1, col 13: syntax error: unexpected $end");
    check("{} {}", "1, col 4: syntax error: unexpected {, expecting with");
    check("{} | rate() | count() > 1", "1, col 15: syntax error: unexpected count, expecting topk or bottomk");
}

/// The words of Tempo, as its own tests have them.
#[test]
fn errors_of_syntax_are_worded_as_by_tempo() {
    check("{ .a } | { .b", "1, col 14: syntax error: unexpected $end");
    check("{ .a | .b }", "1, col 6: syntax error: unexpected |");
    check("({ .a } | { .b }) + ({ .a } | { .b })", "1, col 19: syntax error: unexpected +, expecting with");
    check("{ true } &&", "1, col 12: syntax error: unexpected $end, expecting { or (");
    check("{} > 10", "1, col 6: syntax error: unexpected INTEGER, expecting { or (");
    check("count(", "1, col 7: syntax error: unexpected $end, expecting )");
    check("count(.thing)", "1, col 7: syntax error: unexpected ., expecting )");
    check("wharblgarbl", "1, col 1: syntax error: unexpected IDENTIFIER");
    check("{ 2 <> 3}", "1, col 6: syntax error: unexpected >");
    check("{ 2 = .b ", "1, col 10: syntax error: unexpected $end");
    check("{ + }", "1, col 3: syntax error: unexpected +");
    check("{ . foo }", "1, col 3: syntax error: unexpected END_ATTRIBUTE, expecting IDENTIFIER");
    check("{ .foo .bar }", "1, col 8: syntax error: unexpected .");
    check("select()", "1, col 8: syntax error: unexpected )");
    check("{} | topk(10)", "1, col 6: syntax error: unexpected topk");
    check("{} | rate() | topk(-1)", "1, col 20: syntax error: unexpected -, expecting INTEGER");
}

#[test]
fn queries_are_bounded() {
    let many = format!("{{}}{}", " | count() > 1".repeat(33));
    assert!(Query::parse(&many).unwrap_err().reason.contains("more than 32 stages"));
    let many = format!("{{}}{}", " | by(name)".repeat(4));
    assert!(Query::parse(&many).unwrap_err().reason.contains("or 3 `by` among them"));
    let deep = format!("{{ {}true{} }}", "(".repeat(100), ")".repeat(100));
    assert!(Query::parse(&deep).unwrap_err().reason.contains("nested deeper than 64"));
    assert!(Query::parse(&"(".repeat(60_000)).is_err());
    assert!(Query::parse(&format!("{{ {}true }}", "!".repeat(60_000))).is_err());
    let many = format!("{{ .a = 1{} }}", " != true".repeat(10_000));
    assert!(Query::parse(&many).unwrap_err().reason.contains("more than 256 conditions"));
    let many = vec!["name = \"x\""; 300].join(" || ");
    assert!(Query::parse(&format!("{{ {many} }}")).unwrap_err().reason.contains("more than 256 conditions"));
}

#[test]
fn pipelines_stand_in_relations() {
    let trace = shop();
    let check = |text: &str, expected: &[u64]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
        assert!(query.exact_filter().is_none(), "{text}");
    };
    check(r#"({ name = "GET cart" } | count() > 1) && { status = error }"#, &[2, 3, 4, 6]);
    check(r#"({ name = "GET cart" } | count() > 2) && { status = error }"#, &[]);
    check(r#"({ name = "GET cart" } | count() > 2) || { status = error }"#, &[4, 6]);
    check("({ false } | count() < 5) || { status = error }", &[4, 6]);
    check(r#"({ name = "GET cart" } | count() = 2) > { kind = server }"#, &[5]);
    check("{ kind = client } > ({ } | by(resource.service.name) | count() = 1)", &[5, 6]);
    check("(({ } | { status = error } | select(span.amount)) && { kind = server }) | count() > 1", &[1, 5, 4, 6]);
    // Behind a pipe they are of the spans so far.
    check(r#"{} | { name = "Charge" } >> { status = error }"#, &[6]);
    check(r#"{ kind = client } | { name = "Charge" } >> { status = error }"#, &[]);
    check(r#"{ status = error } | ({ name = "Charge" } || { kind = server }) | count() = 2"#, &[4, 6]);
    check("({} | { kind = client } > { kind = server }) << {}", &[1, 2, 4]);
    check("{} | by(resource.service.name) | { kind = server } && { kind = client }", &[1, 2, 3, 4]);
    let many = format!("({{}}{}) && ({{}} | by(name))", " | by(name)".repeat(3));
    assert!(Query::parse(&many).unwrap_err().reason.contains("or 3 `by` among them"));
    let query = Query::parse("({} | select(span.amount)) && {}").unwrap();
    let charge = trace.spans.iter().position(|s| s.name == "Charge").unwrap();
    assert_eq!(query.shown(&evaluation::TraceView::at(&trace), charge)[0].0, "amount");
}

#[test]
fn of_a_list_one_item_is_enough() {
    let list = r#"{"arrayValue":{"values":[{"stringValue":"q1"},{"stringValue":"q2"}]}}"#;
    let numbers = r#"{"arrayValue":{"values":[{"intValue":"1"},{"intValue":"9"}]}}"#;
    let mut one = span(1, 0, "", 2, 1, 5);
    one.attributes =
        Attributes::of([("arr", Value::Json(list)), ("n", Value::Json(numbers)), ("own", Value::Text("q2"))]);
    let trace = assemble([1; 16], vec![one]);
    let check = |text: &str, expected: bool| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(query.find(&trace).is_some(), expected, "{text}");
    };
    check(r#"{ .arr = "q1" }"#, true);
    check(r#"{ span.arr = "q2" && .arr != nil }"#, true);
    check(r#"{ .arr = "q3" }"#, false);
    check(r#"{ .arr != "q1" }"#, false);
    check(r#"{ .arr != "q3" }"#, true);
    check(r#"{ .arr =~ "q[23]" }"#, true);
    check(r#"{ .arr !~ "q[3]" }"#, true);
    check(r#"{ .arr !~ "q[2]" }"#, false);
    check("{ .n > 8 && .n < 2 }", true);
    check("{ .n > 9 }", false);
    check(r#"{ .arr > "q1" }"#, true);
    check(r#"{ .arr > "q2" }"#, false);
    check("{ .own = .arr && .arr = .own }", true);
    check("{ .arr != .own }", false);
}

#[test]
fn the_scan_gets_what_it_can_tell() {
    let check = |text: &str, filter: &str, exact: bool| {
        let query = Query::parse(text).unwrap();
        assert_eq!(query.filter().to_string(), filter, "{text}");
        assert_eq!(query.exact_filter().is_some(), exact, "{text}");
    };
    check("{}", "all", true);
    check(r#"{ resource.service.name = "a" && status = error }"#, r#"(service = "a" and status = 2)"#, true);
    check(r#"{ resource.service.name != "a" }"#, r#"not service = "a""#, true);
    check(r#"{ resource.service.name != "a" && resource.service.name != "b" }"#, "not service in 2 texts", true);
    check(r#"{ name != "a" && statusMessage != "b" }"#, r#"(not name = "a" and not status message = "b")"#, true);
    check("{ instrumentation:name != nil && status != nil && kind != nil }", "all", true);
    check(r#"{ event:name != "a" }"#, "all", false);
    let either = r#"(span.service.name = "a" or (not span.service.name exists and service = "a"))"#;
    check(r#"{ .service.name = "a" }"#, either, true);
    // As Grafana asks for the rates of all services.
    check("{ nestedSetParent < 0 && true && resource.service.name != nil }", "root", true);
    check("{ duration > 1us && kind = server }", &format!("(duration in [1001, {}] and kind in [2])", i64::MAX), true);
    check(r#"{ name = "a" && rootName = "b" }"#, r#"name = "a""#, false);
    check("{ span.a = 1 || traceDuration > 1s }", r#"(span.a = "1" or all)"#, false);
    check(r#"{ name = "a" } >> { name = "b" }"#, r#"name = "b""#, false);
    check("{ nestedSetParent < 0 }", "root", true);
    let id = "0af7651916cd43dd8448eb211c80319c";
    check(
        &format!("{{ trace:id = `{id}` }} >> {{ trace:id = `{id}` && kind = server }}"),
        &format!("(trace = {id} and kind in [2])"),
        false,
    );
    check(&format!("{{ trace:id = `{}` }}", id.to_uppercase()), "none", false);
    // Leading zeros may be left out.
    check("{ trace:id = `1a` }", &format!("trace = {:032x}", 0x1a), false);
    check("{ trace:id = `1A` }", "none", false);
    check(&format!("{{ trace:id = `0{id}` }}"), "none", false);
    check(&format!("{{ trace:id != `{id}` }}"), "all", false);
    check("{ name = `a` } | count() > 3", r#"name = "a""#, false);
    check(r#"({ name = "a" } | count() > 1) && { name = "b" }"#, r#"name = "a""#, false);
    check("{ span.a != 1 }", r#"(span.a exists and not span.a = "1")"#, true);
}

/// Breaks if each of many conditions on one field looks at its values anew.
#[test]
fn conditions_on_one_field_are_one_test() {
    let check = |text: &str, filter: &str| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(query.exact_filter().map(|filter| filter.to_string()).as_deref(), Some(filter), "{text}");
    };
    check(r#"{ span.a = "x" || span.a = "y" }"#, "span.a in 2 values");
    check(r#"{ span.a = "x" || name = "n" || span.a = 1 || name = "m" }"#, "(span.a in 2 values or name in 2 texts)");
    let greater = format!("in [{}, {}]", 1f64.next_up(), f64::INFINITY);
    let all = format!(r#"(span.a ({greater} or = "1") or resource.a = "1")"#);
    check("{ span.a > 1 || resource.a = 1 || span.a = 1 }", &all);
    check("{ span.a != 1 && span.a != 2 }", "(span.a exists and not span.a in 2 values)");
    check("{ .a = 1 || .a = 2 }", "(span.a in 2 values or (not span.a exists and resource.a in 2 values))");
    check("{ span.a = 1 } || { span.a = 2 || name = `n` } || { span.a = 3 }", r#"(span.a in 3 values or name = "n")"#);
    check(r#"{ resource.service.name = "a" || resource.service.name = "b" }"#, "service in 2 texts");
    let many = |count: usize, sign: &str, by: &str| {
        let conditions: Vec<String> = (0..count).map(|n| format!("span.a {sign} `x{n}`")).collect();
        format!("{{ {} }}", conditions.join(by))
    };
    check(&many(250, "=", " || "), "span.a in 250 values");
    check(&many(250, "!=", " && "), "(span.a exists and not span.a in 250 values)");
    let filter = Query::parse(&many(20, "=~", " || ")).expect("a query").filter();
    let quiver_types::spans::SpanFilter::Or(groups) = &filter else { panic!("{filter}") };
    assert_eq!(groups.len(), 2, "a query can end between them");
}

#[test]
fn sets_have_what_they_share() {
    let trace = shop();
    let query = Query::parse("{ } | by(resource.service.name) | count() > 1 | avg(duration) > 1ms").unwrap();
    let found = query.find(&trace).unwrap();
    let [web] = found.sets.as_slice() else { panic!("{found:?}") };
    let shared: Vec<(&str, &FieldValue)> = web.attributes.iter().map(|(key, value)| (&**key, value)).collect();
    assert_eq!(
        shared,
        [
            ("by(resource.service.name)", &FieldValue::text("web")),
            ("count()", &FieldValue::Int(4)),
            ("avg(duration)", &FieldValue::Nanos(269_250_000)),
        ]
    );
}

#[test]
fn aggregates_have_the_type_of_what_they_are_of() {
    let trace = shop();
    let shown = |text: &str| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        query.find(&trace).map(|found| found.sets[0].attributes[0].1.clone())
    };
    assert_eq!(shown("{} | max(duration) > 1ms"), Some(FieldValue::Nanos(599_000_000)));
    assert_eq!(shown("{} | sum(span.http.code) > 1"), Some(FieldValue::Int(900)));
    assert_eq!(shown("{} | avg(span.http.code) > 1"), Some(FieldValue::Double(300.0)));
    assert_eq!(shown("{} | min(span.amount) > 1"), Some(FieldValue::Double(1299.5)));
    assert_eq!(shown("{} | by(duration) | count() > 0"), Some(FieldValue::Nanos(30_000_000)));
}

#[test]
fn fields_that_are_asked_for_are_shown() {
    let trace = shop();
    let query =
        Query::parse("{ span.amount > 1 && status = error && duration > 1s } | select(resource.host.name, span.none)")
            .unwrap();
    let charge = trace.spans.iter().position(|s| s.name == "Charge").unwrap();
    let looked = evaluation::TraceView::at(&trace);
    assert_eq!(
        query.shown(&looked, charge),
        [
            ("host.name".to_owned(), FieldValue::text("h1")),
            ("none".to_owned(), FieldValue::Nil),
            ("amount".to_owned(), FieldValue::Double(1299.5)),
            ("status".to_owned(), FieldValue::text("error")),
        ]
    );
    let query = Query::parse("{} | select(nestedSetParent, nestedSetLeft, nestedSetRight)").unwrap();
    let shown: Vec<FieldValue> = query.shown(&looked, charge).into_iter().map(|(_, value)| value).collect();
    assert_eq!(shown, [1, 8, 11].map(FieldValue::Int));
    let shows_name = |text: &str| Query::parse(text).unwrap().shows_name(&looked, charge);
    assert!(!shows_name("{}") && !shows_name(r#"{ name = "a" || status = error }"#));
    assert!(shows_name(r#"{ name = "Charge" }"#) && shows_name("{} | by(name)") && shows_name("{} | select(name)"));
}

/// Breaks if an answer lacks what a stage is about, or has what no condition holds of.
#[test]
fn fields_are_shown_where_conditions_hold_or_stages_use_them() {
    let trace = shop();
    let looked = evaluation::TraceView::at(&trace);
    let charge = trace.spans.iter().position(|s| s.name == "Charge").unwrap();
    let check = |text: &str, expected: &[&str]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let shown: Vec<String> = query.shown(&looked, charge).into_iter().map(|(key, _)| key).collect();
        assert_eq!(shown, expected, "{text}");
    };
    check("{} | by(span.amount)", &["amount"]);
    check(
        "{} | by(resource.host.name) | avg(span.amount + 1) > 0 | { status != ok }",
        &["host.name", "amount", "status"],
    );
    check("{} | by(span.none)", &[]);
    check("{ status = ok || span.amount > 1 }", &["amount"]);
    check("{ status = ok } || { span.amount > 1 }", &["amount"]);
    check("{ !(status = ok) }", &["status"]);
    check("{ span.none = nil && .amount != nil }", &["none", "amount"]);
    check("{ nestedSetParent < 0 || status = error }", &["status"]);
    // Where places are looked at anyway, they are told.
    check("{ nestedSetParent < 0 } >> { status = error }", &["status", "nestedSetParent"]);
    check("{ nestedSetParent > 0 && duration > 0 }", &["nestedSetParent"]);
}
