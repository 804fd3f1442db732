//! What is wrong with a query, and where, in the words of Tempo; and that no text does worse than that.

use super::*;
use crate::traceql::Figures;

fn check(text: &str, column: usize, reason: &str) {
    let error = Query::parse(text).err().unwrap_or_else(|| panic!("{text} is read"));
    assert_eq!((error.line, error.column, error.reason.as_str()), (1, column, reason), "{text}");
}

#[test]
fn conditions() {
    check("{ .a ==1 }", 7, "syntax error: unexpected =");
    check("{ .a = -  }", 11, "syntax error: unexpected }");
    check("{ ( .a = 1 }", 12, "syntax error: unexpected }");
    check("{ .a = 1 )}", 10, "syntax error: unexpected )");
    check("{ ! }", 5, "syntax error: unexpected }");
    check("{ && }", 3, "syntax error: unexpected &&");
    check("{ .a && || .b }", 9, "syntax error: unexpected ||");
    check("{ trace:duration > }", 20, "syntax error: unexpected }");
    check("{ span:nothing = 1 }", 3, "unknown identifier: span:nothing");
    check("{ duration > 1e400 }", 14, "`1e400` is neither a number nor a duration");
    check("{ duration > 1..2 }", 14, "`1..2` is neither a number nor a duration");
    check("{ 1 + .a }", 3, "span filter field expressions must resolve to a boolean: { 1 + .a }");
    check("{ .2xx = 1 }", 3, "`.2xx` is neither a number nor a duration");
    check("{ name = `a }", 10, "a text that does not end");
}

#[test]
fn regular_expressions_are_bounded_together() {
    let asked = |pattern: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..200).map(|n| format!(".a =~ `{}`", pattern(n))).collect();
        Query::parse(&format!("{{ {} }}", all.join(" || "))).map(|_| ()).map_err(|error| error.reason)
    };
    let reason = asked(&|n| format!(r"(?i)x{n}[\p{{L}}]{{1,20}}")).expect_err("too much");
    assert!(reason.contains("regular expressions of a query"), "{reason}");
    assert_eq!(asked(&|_| r"(?i)[\p{L}]{1,20}".to_owned()), Ok(()), "one and the same is compiled once");
    assert_eq!(asked(&|n| format!("x{n}.*")), Ok(()));
}

#[test]
fn sets_and_stages() {
    check("} {", 1, "syntax error: unexpected }");
    check(">> {}", 1, "syntax error: unexpected >>");
    check("{} >> ", 7, "syntax error: unexpected $end, expecting { or (");
    check("{ .a = 1 } && ", 15, "syntax error: unexpected $end, expecting { or (");
    check("{ .a = 1 } &", 12, "syntax error: unexpected IDENTIFIER, expecting with");
    check("{ .a = 1 } extra", 12, "syntax error: unexpected IDENTIFIER, expecting with");
    check("{ .a = 1 } | ", 14, "syntax error: unexpected $end");
    check("{ .a = 1 } | select()", 21, "syntax error: unexpected )");
    check("{ .a = 1 } | select(1)", 21, "expected a field");
    check("{ .a = 1 } | by()", 17, "syntax error: unexpected )");
    check("{ .a = 1 } | coalesce(1)", 23, "syntax error: unexpected INTEGER, expecting )");
    check("{} with (", 10, "syntax error: unexpected $end");
}

#[test]
fn aggregates() {
    check("{ .a = 1 } | count()", 21, "syntax error: unexpected $end");
    check("{ .a = 1 } | count() >", 23, "syntax error: unexpected $end");
    check("{ .a = 1 } | count(1) > 2", 20, "syntax error: unexpected INTEGER, expecting )");
    check("{ .a = 1 } | avg() > 2", 18, "syntax error: unexpected )");
    check("{ .a = 1 } | max(duration) > \"x\"", 30, "syntax error: unexpected STRING");
    // Of these there is no number, so that nothing would ever compare.
    for field in ["name", "status", "kind", "rootName", "statusMessage", "span:id", "trace:id", "event:name"] {
        let reason = Query::parse(&format!("{{}} | avg({field}) > 2")).unwrap_err().reason;
        assert!(reason.starts_with("aggregate field expressions must resolve to a number type: avg("), "{reason}");
    }
    check("{} | 2 < max(name)", 10, "aggregate field expressions must resolve to a number type: max(name)");
    for field in ["duration", "trace:duration", "span:childCount", "event:timeSinceStart", ".a", "span.b * 2"] {
        assert!(Query::parse(&format!("{{}} | avg({field}) > 2")).is_ok(), "{field}");
    }
}

#[test]
fn numbers_over_time() {
    check("{} | topk(3)", 6, "syntax error: unexpected topk");
    check("{} | rate() by ()", 17, "syntax error: unexpected )");
    check("{} | rate() by (a)", 17, "unknown identifier: a");
    check("{} | rate() | count() > 1", 15, "syntax error: unexpected count, expecting topk or bottomk");
    check("{} | -count() < 1", 6, "syntax error: unexpected -");
    check("{} | quantile_over_time(duration)", 33, "syntax error: unexpected ), expecting ,");
    check("{} | quantile_over_time(duration, 1.5)", 35, "a quantile is a number from 0 to 1");
    check("{} | histogram_over_time()", 26, "syntax error: unexpected )");
    check("{} | avg_over_time(name)", 20, "`name` is no number of a span");
    check("{} | rate() | topk(0)", 20, "expected a whole number from 1 to 10000");
    check("{} | rate() | topk(99999)", 20, "expected a whole number from 1 to 10000");
    check("{} | rate() | topk(1.5)", 20, "syntax error: unexpected FLOAT, expecting INTEGER");
    check("{} | rate() with (exemplars=x)", 19, "`exemplars` is a number, or `true` or `false`");
}

/// Breaks if a place within a letter of several bytes is cut at, or a part is read beyond the end.
#[test]
fn cut_and_odd_texts_are_errors_at_worst() {
    let queries = [
        r#"{ name =~ "größe|\"x" && span."ключ" > 1.5e3ms || .😀 = nil } | select(.ü) | by(span.é)"#,
        r"({ duration > 1h30m } >> { !(kind = server) }) | avg(span.x * 2 ^ 3) >= 10 with (exemplars=5)",
        "({} | rate() by (resource.service.name, .ß) > 0.5 | topk(3)) / ({ status = error } | count_over_time()) * 2",
    ];
    for query in queries {
        for (at, _) in query.char_indices() {
            for cut in [&query[..at], &query[at..]] {
                let found = [Query::parse(cut).err(), Figures::parse(cut).err()];
                for error in found.into_iter().flatten() {
                    assert!(error.line == 1 && error.column <= query.chars().count() + 1, "{cut}: {error}");
                }
                let _ = Query::hint(cut);
            }
        }
    }
}

/// Breaks if lines are counted by anything but their ends, or columns by bytes.
#[test]
fn places_are_lines_and_letters() {
    for (text, line, column) in
        [("{\n\n  .ü = }", 3, 8), ("{ .a = 1 }\r\n// größe\n| nothing()", 3, 3), ("{ name = \"ü\" & }", 1, 14)]
    {
        let error = Query::parse(text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
    }
}
