//! Generates PromQL expressions that are well typed and mostly have a result. Every function, aggregation, operator,
//! matching and modifier of Prometheus 2.42 is used in turn; their operands are random.
//!
//! Expressions are written for 3.14. `rules.rs` says which ones to avoid, and how to rewrite them for 2.42.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::fmt::Write as _;

use super::data::{LENGTH_MS, START_MS};

/// Which data is asked: see `data.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No sample meets the edge of a window.
    OffGrid,
    /// Every sample, evaluation and edge stands on whole multiples of 15 s.
    OnGrid,
}

/// Functions of an instant vector alone.
const ELEMENTWISE: &[&str] = &[
    "abs", "ceil", "floor", "round", "exp", "ln", "log2", "log10", "sqrt", "sgn", "acos", "acosh", "asin", "asinh",
    "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh", "deg", "rad",
];
/// Those whose answer hangs on the last digit of a large argument.
const PERIODIC: &[&str] = &["cos", "sin", "tan"];
/// Functions of time.
const DATES: &[&str] =
    &["day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month", "year"];
/// Functions of a range vector that are for counters.
const COUNTERS: &[&str] = &["rate", "irate", "increase", "resets"];
/// Functions of a range vector that look beyond the samples of their window: its edges are part of the answer.
const EXTRAPOLATING: &[&str] = &["rate", "increase", "delta"];
/// Functions of a range vector alone.
const OVER_TIME: &[&str] = &[
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "last_over_time",
    "present_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "changes",
    "resets",
    "idelta",
    "deriv",
    "irate",
    "delta",
];
/// Aggregations without a parameter.
const AGGREGATIONS: &[&str] = &["sum", "avg", "count", "min", "max", "group", "stddev", "stdvar"];

/// Draws expressions of one kind.
pub(crate) struct Grammar<'a> {
    random: &'a mut StdRng,
    kind: Kind,
    /// How many subqueries stand around.
    within: usize,
}

impl<'a> Grammar<'a> {
    pub(crate) fn new(random: &'a mut StdRng, kind: Kind) -> Self {
        Self { random, kind, within: 0 }
    }

    fn pick<'b>(&mut self, texts: &[&'b str]) -> &'b str {
        texts.choose(self.random).expect("there are some")
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn number(&mut self) -> &'static str {
        self.pick(&["0", "1", "2", "-1", "0.5", "3.75", "10", "100", "1e3", "-1e-3", "0x1F", "Inf", "NaN", "7"])
    }

    /// A range; a multiple of the grid.
    fn range(&mut self) -> &'static str {
        self.pick(&["1m", "2m", "5m", "7m30s", "10m", "45s", "30m", "90s"])
    }

    fn at(&mut self) -> String {
        let ms = START_MS + self.random.random_range(1..LENGTH_MS / 15_000) * 15_000;
        match self.kind {
            Kind::OffGrid => format!("{}.5", ms / 1000),
            Kind::OnGrid => format!("{}", ms / 1000),
        }
    }

    fn modifiers(&mut self) -> String {
        let mut text = String::new();
        if self.chance(0.12) {
            let _ = write!(text, " offset {}", self.pick(&["1m", "5m", "45s", "-1m", "20m", "-2m30s"]));
        }
        if self.chance(0.08) {
            let at = self.at();
            let _ = write!(text, " @ {}", self.pick(&["start()", "end()", at.as_str()]));
        }
        text
    }

    fn matchers(&mut self) -> &'static str {
        self.pick(&[
            "",
            "",
            "",
            "job=\"a\"",
            "job!=\"a\"",
            "instance=~\"i[0-2]\"",
            "instance!~\"i1|i2\"",
            "job=~\".+\",instance=\"i0\"",
            "nothing=\"\"",
            "job=\"none\"",
            "instance!=\"\"",
        ])
    }

    fn metric(&mut self, counters: bool) -> &'static str {
        match (self.kind, counters) {
            (Kind::OnGrid, true) => "grid_total",
            (Kind::OnGrid, false) => self.pick(&["grid_gauge", "grid_gauge", "grid_total"]),
            (Kind::OffGrid, true) => {
                self.pick(&["counter_total", "counter_total", "latency_count", "latency_bucket", "latency_sum"])
            }
            (Kind::OffGrid, false) => self.pick(&[
                "gauge",
                "gauge",
                "gauge",
                "counter_total",
                "sparse",
                "special",
                "quota",
                "build_info",
                "odd",
            ]),
        }
    }

    fn selector(&mut self, counters: bool) -> String {
        let (metric, matchers) = (self.metric(counters), self.matchers());
        match self.random.random_range(0..12) {
            0 if self.kind == Kind::OffGrid && !counters => {
                let names = self.pick(&["gauge|sparse", "ga.*", "sp.+", "quota|odd"]);
                format!("{{__name__=~\"{names}\"{}{matchers}}}", if matchers.is_empty() { "" } else { "," })
            }
            1 => format!("{{__name__=\"{metric}\"{}{matchers}}}", if matchers.is_empty() { "" } else { "," }),
            _ if matchers.is_empty() => metric.to_owned(),
            _ => format!("{metric}{{{matchers}}}"),
        }
    }

    fn matrix(&mut self, depth: usize, counters: bool) -> String {
        let (range, modifiers) = (self.range(), self.modifiers());
        if depth == 0 || self.chance(0.75) {
            return format!("{}[{range}]{modifiers}", self.selector(counters));
        }
        let step = self.pick(&["15s", "30s", "1m", "", "45s"]);
        // Within a subquery evaluations stand at whole seconds, as do the steps of subqueries: keep the edge off them.
        let (range, modifiers) = if self.kind == Kind::OffGrid && self.within > 0 {
            (self.pick(&["59s500ms", "4m59s500ms", "10m500ms"]), self.pick(&["", "", " offset 1m"]).to_owned())
        } else {
            (range, modifiers)
        };
        self.within += 1;
        let inner = if counters { self.selector(true) } else { self.vector(depth - 1) };
        self.within -= 1;
        let inner = if plain(&inner) { inner } else { format!("({inner})") };
        format!("{inner}[{range}:{step}]{modifiers}")
    }

    fn grouping(&mut self) -> String {
        let labels = self.pick(&["job", "instance", "job, instance", "mode", "", "device, job", "le", "none"]);
        format!("{} ({labels})", self.pick(&["by", "without", "by"]))
    }

    fn aggregation(&mut self, op: &str, depth: usize) -> String {
        let inner = if op == "quantile" { self.ordered(depth) } else { self.vector(depth.saturating_sub(1)) };
        let param = match op {
            "topk" | "bottomk" => format!("{}, ", self.pick(&["1", "2", "3", "0", "-1", "100", "2.9"])),
            "quantile" => format!("{}, ", self.pick(&["0.5", "0.9", "0", "1", "-1", "2", "0.25", "NaN"])),
            "count_values" => "\"value\", ".to_owned(),
            _ => String::new(),
        };
        match self.random.random_range(0..3) {
            0 => format!("{op}({param}{inner})"),
            1 => format!("{op} {} ({param}{inner})", self.grouping()),
            _ => format!("{op}({param}{inner}) {}", self.grouping()),
        }
    }

    /// A vector whose elements have an order that does not hang on the last digit.
    fn ordered(&mut self, depth: usize) -> String {
        match self.random.random_range(0..4) {
            0 if depth > 0 => format!("max_over_time({})", self.matrix(0, false)),
            1 if depth > 0 => self.over_time("rate", 0),
            _ => self.selector(false) + &self.modifiers(),
        }
    }

    /// A function of a range vector.
    fn over_time(&mut self, name: &str, depth: usize) -> String {
        let name = if self.kind == Kind::OnGrid && EXTRAPOLATING.contains(&name) { "idelta" } else { name };
        let matrix = self.matrix(depth, COUNTERS.contains(&name));
        match name {
            "quantile_over_time" => {
                format!("{name}({}, {matrix})", self.pick(&["0.5", "0.9", "0", "1", "-1", "1.5", "0.33"]))
            }
            "predict_linear" => format!("{name}({matrix}, {})", self.pick(&["60", "3600", "-60", "0"])),
            "double_exponential_smoothing" => {
                format!(
                    "{name}({matrix}, {}, {})",
                    self.pick(&["0.5", "0.1", "0.9"]),
                    self.pick(&["0.5", "0.1", "0.8"])
                )
            }
            _ => format!("{name}({matrix})"),
        }
    }

    fn scalar(&mut self, depth: usize) -> String {
        if depth == 0 || self.chance(0.4) {
            return self.number().to_owned();
        }
        match self.random.random_range(0..6) {
            0 => "time()".to_owned(),
            1 => "pi()".to_owned(),
            2 => format!("scalar({})", self.vector(depth - 1)),
            3 => format!(
                "({} {} {})",
                self.scalar(depth - 1),
                self.pick(&["+", "-", "*", "/", "%", "^", "atan2"]),
                self.scalar(0)
            ),
            4 => format!(
                "({} {} bool {})",
                self.scalar(depth - 1),
                self.pick(&["==", "!=", "<", "<=", ">", ">="]),
                self.scalar(0)
            ),
            _ => format!("-({})", self.scalar(depth - 1)),
        }
    }

    fn call(&mut self, depth: usize) -> String {
        match self.random.random_range(0..10) {
            0 => {
                let name = self.pick(ELEMENTWISE);
                self.named(name, depth)
            }
            1 => {
                let name = self.pick(DATES);
                self.named(name, depth)
            }
            2 => self.special_call(depth),
            3 => format!("vector({})", self.scalar(depth)),
            4 => {
                let name = self.pick(&["predict_linear", "quantile_over_time", "double_exponential_smoothing"]);
                self.over_time(name, depth)
            }
            5 => {
                let name = self.pick(COUNTERS);
                self.over_time(name, depth)
            }
            _ => {
                let name = self.pick(OVER_TIME);
                self.over_time(name, depth)
            }
        }
    }

    fn special_call(&mut self, depth: usize) -> String {
        let name = self.pick(&[
            "clamp",
            "clamp_min",
            "clamp_max",
            "label_replace",
            "label_join",
            "round",
            "timestamp",
            "histogram_quantile",
            "absent",
            "absent_over_time",
            "histogram_count",
        ]);
        self.named(name, depth)
    }

    /// A call of a function by its name.
    fn named(&mut self, name: &str, depth: usize) -> String {
        let below = depth.saturating_sub(1);
        match name {
            "clamp" => {
                format!("clamp({}, {}, {})", self.vector(below), self.scalar(below), self.pick(&["5", "100", "-2"]))
            }
            "clamp_min" | "clamp_max" => format!("{name}({}, {})", self.vector(below), self.scalar(below)),
            "label_replace" => {
                let rest = self.pick(&[
                    "\"new\", \"$1\", \"instance\", \"i(.*)\"",
                    "\"new\", \"x-$1-$2\", \"job\", \"(.)(.*)\"",
                    "\"instance\", \"\", \"job\", \"a\"",
                    "\"new\", \"same\", \"\", \"\"",
                    "\"job\", \"${n}\", \"instance\", \"(?P<n>i[01])\"",
                    "\"new\", \"$1\", \"missing\", \"(.*)\"",
                ]);
                format!("label_replace({}, {rest})", self.vector(below))
            }
            "label_join" => {
                let rest = self.pick(&[
                    "\"new\", \"-\", \"job\", \"instance\"",
                    "\"instance\", \"\", \"job\"",
                    "\"new\", \",\"",
                    "\"new\", \"/\", \"instance\", \"missing\", \"mode\"",
                ]);
                format!("label_join({}, {rest})", self.vector(below))
            }
            "round" => format!("round({}, {})", self.vector(below), self.pick(&["5", "0.1", "10", "-2", "0"])),
            "timestamp" => format!("timestamp({})", self.selector(false) + &self.modifiers()),
            "histogram_quantile" => {
                let q = self.pick(&["0.5", "0.9", "0.99", "0", "1", "-1", "2", "NaN"]);
                let of = match self.random.random_range(0..3) {
                    _ if self.kind == Kind::OnGrid => self.vector(below),
                    0 => "latency_bucket".to_owned(),
                    1 => format!("rate(latency_bucket[{}]{})", self.range(), self.modifiers()),
                    _ => format!("sum by (le, {}) (increase(latency_bucket[5m]))", self.pick(&["job", "none"])),
                };
                format!("histogram_quantile({q}, {of})")
            }
            "absent" => {
                let none = self.pick(&["nothing", "nothing{job=\"a\",x!=\"y\"}", "gauge", "sum(nothing)", "sparse"]);
                format!("absent({none})")
            }
            "absent_over_time" => {
                let none =
                    self.pick(&["nothing[5m]", "nothing{job=\"a\",instance=~\"x\"}[5m]", "sparse[1m]", "gauge[45s]"]);
                format!("absent_over_time({none})")
            }
            "vector" => format!("vector({})", self.scalar(depth)),
            "scalar" | "time" | "pi" => {
                let scalar = match name {
                    "scalar" => format!("scalar({})", self.vector(below)),
                    other => format!("{other}()"),
                };
                if self.chance(0.5) { scalar } else { format!("{} * {scalar}", self.operand(0)) }
            }
            _ if PERIODIC.contains(&name) => format!("{name}({})", self.ordered(depth)),
            _ if DATES.contains(&name) && self.chance(0.8) => format!("{name}({})", self.ordered(depth)),
            _ if ELEMENTWISE.contains(&name) => format!("{name}({})", self.vector(below)),
            _ if DATES.contains(&name) => format!("{name}()"),
            _ if name.starts_with("histogram_") => format!("{name}({})", self.selector(false)),
            _ => self.over_time(name, depth),
        }
    }

    fn binary(&mut self, op: &str, depth: usize) -> String {
        let set = matches!(op, "and" | "or" | "unless");
        let comparison = matches!(op, "==" | "!=" | "<" | "<=" | ">" | ">=");
        let bool_ = if comparison && self.chance(0.4) { "bool " } else { "" };
        let below = depth.saturating_sub(1);
        match self.random.random_range(0..9) {
            0 | 1 if !set => format!("{} {op} {bool_}{}", self.operand(below), self.scalar(below)),
            2 if !set => format!("{} {op} {bool_}{}", self.scalar(below), self.operand(below)),
            3 if !set => {
                let (many, one) = match self.kind {
                    Kind::OffGrid => {
                        (self.pick(&["gauge", "counter_total", "special"]), self.pick(&["build_info", "sparse"]))
                    }
                    Kind::OnGrid => ("grid_total", "grid_gauge"),
                };
                let group = self.pick(&["", "version", "device", "none"]);
                format!("{many} {op} {bool_}on (instance, job) group_left ({group}) {one}")
            }
            4 if !set => {
                let (one, many) = if self.kind == Kind::OnGrid {
                    ("sum by (job) (grid_gauge)", "grid_total")
                } else {
                    (self.pick(&["quota", "max by (job) (gauge)"]), "counter_total")
                };
                let matching = self.pick(&["on (job)", "ignoring (instance, mode)"]);
                format!("{one} {op} {bool_}{matching} group_right () {many}")
            }
            5 | 6 => {
                let labels = self.pick(&["instance", "instance, job", "job", "none", ""]);
                let (a, b) = (self.operand(below), self.operand(below));
                format!("{a} {op} {bool_}on ({labels}) {b}")
            }
            7 => {
                let labels = self.pick(&["mode", "device", "kind, device, mode, version", "none"]);
                let (a, b) = (self.operand(below), self.operand(below));
                format!("{a} {op} {bool_}ignoring ({labels}) {b}")
            }
            _ => {
                let a = self.operand(below);
                // Often of the same labels, so that something is left.
                let b = if self.chance(0.5) { a.clone() } else { self.operand(below) };
                format!("{a} {op} {bool_}{b}")
            }
        }
    }

    /// An instant vector that can stand beside an operator.
    fn operand(&mut self, depth: usize) -> String {
        match self.random.random_range(0..5) {
            0 if depth > 0 => format!("({})", self.vector(depth)),
            1 if depth > 0 => {
                let op = self.pick(AGGREGATIONS);
                self.aggregation(op, depth)
            }
            2 if depth > 0 => self.call(depth),
            _ => self.selector(false) + &self.modifiers(),
        }
    }

    /// An instant vector.
    fn vector(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.selector(false) + &self.modifiers();
        }
        match self.random.random_range(0..8) {
            0 | 1 => {
                let op =
                    self.pick(&["+", "-", "*", "/", "%", "^", "atan2", "==", "!=", "<", ">", "and", "or", "unless"]);
                self.binary(op, depth)
            }
            2 => {
                let op = self.pick(AGGREGATIONS);
                self.aggregation(op, depth)
            }
            3 => format!("-{}", self.operand(depth)),
            4 | 5 => self.call(depth),
            _ => self.operand(depth),
        }
    }

    /// Expression number `n`: what it is about comes in turn.
    pub(crate) fn expression(&mut self, n: usize) -> String {
        let depth = self.random.random_range(1..4);
        let topics = TOPICS.len() + ELEMENTWISE.len() + DATES.len() + OVER_TIME.len();
        let at = n % topics;
        if let Some(topic) = TOPICS.get(at) {
            return match *topic {
                "topk" | "bottomk" => {
                    let op = *topic;
                    let inner = self.aggregation_of_distinct(op);
                    if self.chance(0.3) { format!("sum({inner})") } else { inner }
                }
                "sort" | "sort_desc" => format!("{topic}({})", self.ordered(depth)),
                "count_values" | "quantile" => self.aggregation(topic, 1),
                "names" => {
                    let op = self.pick(AGGREGATIONS);
                    let by = self.pick(&["by (__name__)", "by (job, __name__)", "without (__name__)"]);
                    format!("{op} {by} ({}{})", self.selector(false), self.modifiers())
                }
                "selector" => self.selector(false) + &self.modifiers(),
                "matrix" => self.matrix(depth, false),
                "scalar" if self.chance(0.5) => self.scalar(depth),
                "unary" => format!("-{} ^ {}", self.operand(depth), self.pick(&["2", "-1", "0.5"])),
                "chain" => {
                    let ops = ["+", "-", "*", "/", "%", "^", "and", "or", "unless", "==", ">", "atan2"];
                    let mut text = self.operand(0);
                    for _ in 0..self.random.random_range(2..5) {
                        let _ = write!(text, " {} {}", self.pick(&ops), self.operand(0));
                    }
                    text
                }
                op if AGGREGATIONS.contains(&op) => self.aggregation(op, depth),
                op if op.chars().all(|c| !c.is_alphabetic()) || ["and", "or", "unless", "atan2"].contains(&op) => {
                    self.binary(op, depth)
                }
                name => self.named(name, depth),
            };
        }
        let mut rest = ELEMENTWISE.iter().chain(DATES).chain(OVER_TIME);
        let name = rest.nth(at - TOPICS.len()).expect("counted");
        self.named(name, depth)
    }

    fn aggregation_of_distinct(&mut self, op: &str) -> String {
        let k = self.pick(&["1", "2", "3", "0", "-1", "100", "2.9"]);
        let inner = self.ordered(1);
        match self.random.random_range(0..3) {
            0 => format!("{op}({k}, {inner})"),
            1 => format!("{op} {} ({k}, {inner})", self.grouping()),
            _ => format!("{op}({k}, {inner}) {}", self.grouping()),
        }
    }
}

/// What comes in turn beside the functions of the other lists.
const TOPICS: &[&str] = &[
    "names",
    "selector",
    "matrix",
    "unary",
    "chain",
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
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "atan2",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "unless",
    "sort",
    "sort_desc",
    "rate",
    "increase",
    "irate",
    "quantile_over_time",
    "predict_linear",
    "double_exponential_smoothing",
    "clamp",
    "clamp_min",
    "clamp_max",
    "label_replace",
    "label_join",
    "timestamp",
    "histogram_quantile",
    "absent",
    "absent_over_time",
    "vector",
    "scalar",
    "time",
    "pi",
    "histogram_count",
    "histogram_sum",
];

/// Says whether a text can stand before brackets as it is.
fn plain(text: &str) -> bool {
    text.ends_with(')')
        && text.find('(').is_some_and(|at| text[..at].chars().all(|c| c.is_alphanumeric() || c == '_'))
        && balanced(text)
        || text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Says whether the first parenthesis closes at the end.
fn balanced(text: &str) -> bool {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 && c == ')' {
            return at + 1 == text.len();
        }
    }
    false
}
