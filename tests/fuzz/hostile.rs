//! Hostile query texts: deep, long, or expensive. Each gets its exact error, within a memory limit and on a small stack.

use quiver_alerting::template::{MESSAGE_FUNCTIONS, MapKind, Options, Value, expand};
use quiver_promql::parser::parse;
use quiver_tests::time_limits::within_here;

use crate::drive::allocated_by;

/// Memory that refusing a text may take, besides copies of the text itself.
const REFUSAL_BYTES_MAX: u64 = 64 << 20;

/// How long it may take (H11).
const REFUSAL_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(1);

const TOO_DEEP: &str = "expression is nested too deeply, at most 200 levels are allowed";
const TOO_LARGE: &str = "expression is too large, at most 50000 operands are allowed";

fn refused(text: &str, expected: &str) {
    let shown: String = text.chars().take(40).collect();
    let mut got = String::new();
    let mut bytes = 0;
    within_here(&shown, REFUSAL_TIME_MAX, || {
        let began = std::time::Instant::now();
        bytes = allocated_by(|| got = parse(text).expect_err(&shown).to_string());
        began.elapsed()
    });
    assert_eq!(got, expected, "{shown}");
    let allowed = REFUSAL_BYTES_MAX + 4 * text.len() as u64;
    assert!(bytes <= allowed, "{shown}: {bytes} bytes allocated to refuse {} bytes", text.len());
}

fn at(column: usize, message: &str) -> String {
    format!("1:{column}: parse error: {message}")
}

#[test]
fn a_million_deep() {
    let million = 1_000_000;
    let balanced = format!("{}1{}", "(".repeat(million), ")".repeat(million));
    let length = format!("expression of {} bytes is too long, at most 1048576 are allowed", balanced.len());
    refused(&balanced, &at(1, &length));
    refused(&"(".repeat(million), &at(201, TOO_DEEP));
    refused(&format!("{}1", "-".repeat(million)), &at(201, TOO_DEEP));
    refused(&format!("{}1", "+-".repeat(million / 2)), &at(201, TOO_DEEP));
    refused(&"1^".repeat(million / 2), &at(401, TOO_DEEP));
    refused(&"abs(".repeat(million / 4), &at(801, TOO_DEEP));
    refused(&"sum(".repeat(million / 4), &at(801, TOO_DEEP));
    refused(&"(-".repeat(million / 2), &at(201, TOO_DEEP));
}

#[test]
fn a_million_wide() {
    refused(&format!("1{}", "+1".repeat(500_000)), &at(100_001, TOO_LARGE));
    refused(&format!("a{}", " or a".repeat(200_000)), &at(250_001, TOO_LARGE));
    refused(&format!("absent({}1)", "1,".repeat(500_000)), &at(100_006, TOO_LARGE));
    // As wide as allowed: taken, written and dropped without recursion along the chain.
    let chain = format!("1{}", "+1".repeat(49_999));
    assert!(parse(&chain).is_ok());
    let brackets = format!("a{}", "[5m:1m]".repeat(100_000));
    refused(&brackets, &at(1, "subquery is only allowed on instant vector, got matrix instead"));
}

#[test]
fn deep_durations() {
    const TOO_LONG: &str = "duration expression is too long, at most 200 operators are allowed";
    let check = |text: &str, expected: &str| {
        let error = parse(text).expect_err("too deep").to_string();
        assert!(error.ends_with(expected), "{error}");
    };
    check(&format!("a[{}5m{}]", "(".repeat(400_000), ")".repeat(400_000)), TOO_DEEP);
    check(&format!("a[{}5m]", "-".repeat(1_000_000)), TOO_DEEP);
    check(&format!("a offset {}5m", "-".repeat(1_000_000)), TOO_DEEP);
    check(&format!("a[{}", "min_of(".repeat(140_000)), TOO_DEEP);
    check(&format!("a[{}", "5m^".repeat(300_000)), TOO_LONG);
    check(&format!("a[{}", "5m+".repeat(300_000)), TOO_LONG);
}

#[test]
fn unknown_and_wrong() {
    refused("no_such_function(1)", &at(1, "unknown function with name \"no_such_function\""));
    refused("sum(rate(a[5m]) / foo(b))", &at(19, "unknown function with name \"foo\""));
    let name = "f".repeat(1_000_000);
    refused(&format!("{name}(1)"), &at(1, &format!("unknown function with name \"{name}\"")));
    refused("rate(a)", &at(6, "expected type range vector in call to function \"rate\", got instant vector"));
    refused("a{b=\"c\"", &at(8, "unexpected end of input inside braces"));
    refused("\0", &at(1, "unexpected character: '\\x00'"));
    refused("a @ +Inf", &at(1, "timestamp out of bounds for @ modifier: +Inf"));
}

/// Patterns are compiled while they are parsed: each has a bound of its own, met before the memory is taken.
#[test]
fn heavy_patterns() {
    const PATTERN_BYTES_MAX: u64 = 16 << 20;
    let check = |pattern: &str, heavy: bool| {
        let text = format!("a{{b=~\"{pattern}\"}}");
        let mut error = None;
        let bytes = allocated_by(|| error = parse(&text).err());
        assert!(bytes <= PATTERN_BYTES_MAX, "{pattern}: {bytes} bytes");
        let refused = error.map(|e| e.to_string());
        assert_eq!(refused.as_ref().is_some_and(|e| e.contains("exceeds size limit")), heavy, "{pattern}: {refused:?}");
    };
    check("((x{1000}){1000}){1000}", true);
    check("(.{1000}){1000}", true);
    check("\\\\pL{1000}", true);
    check("api/.*/(get|put|post)-[0-9a-f]{32}", false);
}

/// A value that is given many times is kept once: what a function would make of it counts before it is there, and so does
/// the time that long texts take.
#[test]
fn templates_that_repeat() {
    const TOO_MUCH: &str = "the template makes too much";
    const TOO_LONG: &str = "exceeded 100000 steps";
    let names: Vec<String> = (0..400).map(|n| format!("l{n}")).collect();
    let data = Value::text_map(MapKind::Labels, names.iter().map(|name| (name.as_str(), "x")));
    // Builds a text of 1 MiB.
    let long = format!("{{{{$x := printf \"%8000s\" \"\"}}}}{}", "{{$x = print $x $x}}".repeat(7));
    let (many, empty, pattern) = ("$x ".repeat(400), "\"\" ".repeat(400), "b".repeat(640));
    for (name, call) in [
        ("print", format!("{{{{print {many}}}}}")),
        ("println", format!("{{{{println {many}}}}}")),
        ("html", format!("{{{{html {many}}}}}")),
        ("js", format!("{{{{js {many}}}}}")),
        ("urlquery", format!("{{{{urlquery {many}}}}}")),
        ("printf", format!("{{{{printf \"\" {many}}}}}")),
        ("join", format!("{{{{join $x (stringSlice {empty})}}}}")),
        ("Join", "{{.Names.Join $x}}".to_owned()),
        ("SortedPairs", "{{range 200}}{{len $.SortedPairs}}{{end}}".to_owned()),
        ("lt", "{{range 5000}}{{if lt $x $x}}{{end}}{{end}}".to_owned()),
        ("toDate", "{{range 20}}{{if toDate (slice $x 0 500000) \"x\"}}{{end}}{{end}}".to_owned()),
        ("match", format!("{{{{range 20}}}}{{{{if match \"{pattern}\" $x}}}}{{{{end}}}}{{{{end}}}}")),
    ] {
        let (text, mut told) = (format!("{long}{call}"), String::new());
        let bytes = allocated_by(|| {
            told = expand("test", &text, &data, MESSAGE_FUNCTIONS, &Options::default()).expect_err(name);
        });
        let end = &told[told.len().saturating_sub(200)..];
        let is_refused = [TOO_MUCH, TOO_LONG].iter().any(|why| end.ends_with(&format!("error calling {name}: {why}")));
        assert!(is_refused, "{name}: {end}");
        assert!(bytes <= REFUSAL_BYTES_MAX, "{name}: {bytes} bytes allocated");
    }
}
