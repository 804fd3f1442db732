//! Generates PromQL: well typed, so that the parser must accept it; and mutates it.
//!
//! Operands that are operations themselves are in parentheses, since regrouping by precedence could change their types.

use quiver_promql::ast::ValueType;
use quiver_promql::functions::{FUNCTIONS, FunctionDef};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::fmt::Write as _;

/// What texts are broken with.
const PARTS: &[&str] = &[
    "foo",
    "sum",
    "by",
    "without",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "5m",
    "1",
    "0x1f",
    "+",
    "-",
    "*",
    "^",
    "==",
    "!=",
    "=~",
    "</",
    ">/",
    "bool",
    "on(x)",
    "ignoring",
    "group_left",
    "fill(1)",
    "and",
    "or",
    "unless",
    "offset",
    "@",
    "start()",
    "end",
    "step()",
    "range()",
    "min_of(",
    "anchored",
    "smoothed",
    ",",
    ":",
    "rate(",
    "topk(2,",
    "\"x\"",
    "'\\xff'",
    "`",
    "#",
    "\n",
    "NaN",
    "Inf",
    "[1h:1m]",
    "{}",
    "\u{fffd}",
    "\u{1f600}",
    "\\",
    "\"",
    "1e999",
    "99999999999999999999y",
    "é",
];

fn pick<'a>(random: &mut StdRng, texts: &[&'a str]) -> &'a str {
    texts.choose(random).expect("there are some")
}

fn number(random: &mut StdRng) -> String {
    let texts = ["0", "1", "2", "0.5", ".5", "1e3", "1e-3", "0x1F", "Inf", "NaN", "5m", "1h30m", "100", "3.14159"];
    pick(random, &texts).to_owned()
}

/// A duration in brackets or after `offset`: literal or expression, above zero.
fn duration(random: &mut StdRng, depth: usize) -> String {
    if depth == 0 || random.random_bool(0.7) {
        return pick(random, &["5m", "1m", "300", "1h30m", "2d", "15s", "90.5", "1h"]).to_owned();
    }
    let (a, b) = (duration(random, depth - 1), duration(random, depth - 1));
    match random.random_range(0..6) {
        0 => "step()".to_owned(),
        1 => format!("({a})"),
        2 => format!("({a} + {b})"),
        3 => format!("({a} * 2)"),
        4 => format!("max_of({a}, {b})"),
        _ => format!("min_of({a}, {b})"),
    }
}

fn label(random: &mut StdRng) -> &'static str {
    pick(random, &["job", "instance", "le", "a", "\"x.y\"", "path"])
}

fn matchers(random: &mut StdRng) -> String {
    let one = |random: &mut StdRng| {
        let (name, op) = (label(random), pick(random, &["=", "!=", "=~", "!~"]));
        format!(
            "{name}{op}{}",
            pick(random, &["\"a\"", "'b.*'", "`a|b`", "\"\"", "\".+\"", "\"\\u00fc\"", "\"x\\\"y\""])
        )
    };
    (0..random.random_range(0..3)).map(|_| one(random)).collect::<Vec<_>>().join(",")
}

fn selector(random: &mut StdRng) -> String {
    let matchers = matchers(random);
    match random.random_range(0..5) {
        0 => pick(random, &["foo", "up", "job:rate:sum", "sum", "offset_x", "e"]).to_owned(),
        1 | 2 => format!("foo{{{matchers}}}"),
        3 if matchers.is_empty() => "{\"x.y\"}".to_owned(),
        3 => format!("{{\"x.y\",{matchers}}}"),
        _ => format!("{{__name__=~\"foo|bar.*\"{}{matchers}}}", if matchers.is_empty() { "" } else { "," }),
    }
}

fn modifiers(random: &mut StdRng) -> String {
    let mut text = String::new();
    if random.random_bool(0.15) {
        let duration = duration(random, 1);
        // What begins with a parenthesis goes on with the operators after it.
        let sign = if duration.starts_with('(') || random.random_bool(0.3) { "-" } else { "" };
        let _ = write!(text, " offset {sign}{duration}");
    }
    if random.random_bool(0.15) {
        let _ = write!(text, " @ {}", pick(random, &["1700000000", "start()", "end()", "1.5", "-5"]));
    }
    text
}

/// A range vector.
fn matrix(random: &mut StdRng, depth: usize, extended: bool) -> String {
    let (range, modifiers) = (duration(random, 2), modifiers(random));
    if extended && random.random_bool(0.2) {
        return format!("{}[{range}] {}{modifiers}", selector(random), pick(random, &["anchored", "smoothed"]));
    }
    if depth == 0 || random.random_bool(0.7) {
        return format!("{}[{range}]{modifiers}", selector(random));
    }
    let step = if random.random_bool(0.5) { duration(random, 1) } else { String::new() };
    // The grammar requires a number before the colon.
    let range = if range.contains(|c: char| c.is_ascii_digit()) { range } else { format!("5m + {range}") };
    format!("({})[{range}:{step}]{modifiers}", vector(random, depth - 1))
}

fn grouping(random: &mut StdRng) -> String {
    let labels = (0..random.random_range(0..3)).map(|_| label(random)).collect::<Vec<_>>().join(", ");
    format!("{} ({labels})", pick(random, &["by", "without"]))
}

fn aggregation(random: &mut StdRng, depth: usize) -> String {
    let op = pick(
        random,
        &[
            "sum",
            "avg",
            "count",
            "min",
            "max",
            "group",
            "stddev",
            "stdvar",
            "topk",
            "bottomk",
            "quantile",
            "count_values",
            "limitk",
            "limit_ratio",
        ],
    );
    let inner = vector(random, depth - 1);
    let param = match op {
        "topk" | "bottomk" | "quantile" | "limitk" | "limit_ratio" => format!("{}, ", scalar(random, depth - 1)),
        "count_values" => "\"value\", ".to_owned(),
        _ => String::new(),
    };
    match random.random_range(0..3) {
        0 => format!("{op}({param}{inner})"),
        1 => format!("{op} {} ({param}{inner})", grouping(random)),
        _ => format!("{op}({param}{inner}) {}", grouping(random)),
    }
}

fn argument(random: &mut StdRng, depth: usize, function: &FunctionDef, at: usize, of: ValueType) -> String {
    match of {
        ValueType::Scalar => scalar(random, depth),
        ValueType::Matrix => matrix(random, depth, matches!(function.name, "rate" | "increase" | "delta")),
        ValueType::Vector if function.name == "info" && at > 0 => "{job=\"a\"}".to_owned(),
        ValueType::Vector => vector(random, depth),
        ValueType::String => pick(random, &["\"dst\"", "'src'", "`job`"]).to_owned(),
    }
}

fn call(random: &mut StdRng, depth: usize, returns: ValueType) -> String {
    let functions: Vec<&FunctionDef> = FUNCTIONS.iter().filter(|f| f.returns == returns).collect();
    let function = functions.choose(random).expect("there are some");
    let mut args: Vec<ValueType> = function.args.to_vec();
    if function.variadic != 0 && random.random_bool(0.5) {
        args.pop();
    } else if function.variadic != 0 {
        let last = *args.last().expect("what varies is the last argument");
        let most = if function.variadic < 0 { 3 } else { function.variadic as usize };
        args.extend(std::iter::repeat_n(last, random.random_range(0..most)));
    }
    let args = args.iter().enumerate().map(|(at, of)| argument(random, depth - 1, function, at, *of));
    let args = args.collect::<Vec<_>>().join(", ");
    format!("{}({args})", function.name)
}

fn matching(random: &mut StdRng, set: bool) -> String {
    if random.random_bool(0.5) {
        return String::new();
    }
    let mut text = format!("{}({}) ", pick(random, &["on", "ignoring"]), label(random));
    if !set && random.random_bool(0.4) {
        let _ = write!(text, "{}({}) ", pick(random, &["group_left", "group_right"]), pick(random, &["", "zone"]));
    }
    if !set && random.random_bool(0.1) {
        let (how, value) = (pick(random, &["fill", "fill_left", "fill_right"]), pick(random, &["0", "-1", "NaN"]));
        let _ = write!(text, "{how}({value}) ");
    }
    text
}

fn binary(random: &mut StdRng, depth: usize) -> String {
    let (a, b) = (operand(random, depth - 1), operand(random, depth - 1));
    let arithmetic = pick(random, &["+", "-", "*", "/", "%", "^", "atan2"]);
    let comparison = pick(random, &["==", "!=", "<", "<=", ">", ">="]);
    let bool_ = if random.random_bool(0.3) { "bool " } else { "" };
    match random.random_range(0..6) {
        0 => format!("{a} {arithmetic} {}{b}", matching(random, false)),
        1 => format!("{a} {comparison} {bool_}{}{b}", matching(random, false)),
        2 => format!("{a} {} {}{b}", pick(random, &["and", "or", "unless"]), matching(random, true)),
        3 => format!("{a} {comparison} {bool_}{}", number(random)),
        4 => format!("{} {arithmetic} {b}", number(random)),
        _ => format!("{a} {} {}", pick(random, &["</", ">/", "*"]), number(random)),
    }
}

/// An instant vector that can stand beside an operator.
fn operand(random: &mut StdRng, depth: usize) -> String {
    match random.random_range(0..4) {
        0 if depth > 0 => format!("({})", vector(random, depth)),
        1 if depth > 0 => aggregation(random, depth),
        2 if depth > 0 => call(random, depth, ValueType::Vector),
        _ => selector(random) + &modifiers(random),
    }
}

/// An instant vector.
pub(crate) fn vector(random: &mut StdRng, depth: usize) -> String {
    if depth == 0 {
        return selector(random) + &modifiers(random);
    }
    match random.random_range(0..8) {
        0 | 1 => binary(random, depth),
        2 => format!("{}{}", pick(random, &["-", "+"]), operand(random, depth)),
        3 => {
            // A chain without parentheses: precedence decides, and all of it are vectors.
            let ops = ["+", "-", "*", "/", "%", "^", "and", "or", "unless", "==", "!=", ">"];
            let rest =
                (0..random.random_range(1..6)).map(|_| format!(" {} {}", pick(random, &ops), operand(random, 0)));
            let rest: String = rest.collect();
            operand(random, 0) + &rest
        }
        _ => operand(random, depth),
    }
}

/// A scalar.
fn scalar(random: &mut StdRng, depth: usize) -> String {
    if depth == 0 || random.random_bool(0.6) {
        return number(random);
    }
    let (a, b) = (scalar(random, depth - 1), scalar(random, depth - 1));
    match random.random_range(0..4) {
        0 => call(random, depth, ValueType::Scalar),
        1 => format!("(({a}) {} ({b}))", pick(random, &["+", "-", "*", "/", "%", "^", "atan2"])),
        2 => format!("(({a}) {} bool ({b}))", pick(random, &["==", "!=", "<", ">="])),
        _ => format!("-({a})"),
    }
}

/// An expression of any type.
pub(crate) fn any(random: &mut StdRng) -> String {
    let depth = random.random_range(0..5);
    match random.random_range(0..10) {
        0 => scalar(random, depth),
        1 => matrix(random, depth, false),
        2 => pick(random, &["\"text\"", "'a\\nb'", "`raw\\`"]).to_owned(),
        _ => vector(random, depth),
    }
}

/// Breaks a text in a few places.
pub(crate) fn mutate(text: &str, random: &mut StdRng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(0..=chars.len());
        match random.random_range(0..8) {
            0..=2 => drop(chars.splice(at..at, pick(random, PARTS).chars())),
            3 => chars.truncate(at),
            4 if at < chars.len() => drop(chars.remove(at)),
            5 => {
                let copy: Vec<char> = chars[at..random.random_range(at..=chars.len())].to_vec();
                let to = random.random_range(0..=chars.len());
                drop(chars.splice(to..to, copy));
            }
            6 => {
                let part = pick(random, PARTS).repeat(random.random_range(1..400));
                drop(chars.splice(at..at, part.chars()));
            }
            _ if at < chars.len() => {
                chars[at] = char::from_u32(random.random_range(0..0x11_0000)).unwrap_or('\u{fffd}');
            }
            _ => {}
        }
    }
    chars.into_iter().collect()
}
