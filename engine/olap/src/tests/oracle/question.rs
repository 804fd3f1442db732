//! Random queries over a world: in the form that clients send, and in the form that `evaluate` takes.

use chrono_tz::Tz;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::measures::{Agg, Body};
use super::time::{GRAINS, PHRASES};
use super::world::{SERVICES, TEXTS, World};

/// A member: model and name.
pub(crate) type Member = (usize, String);

#[derive(Debug, Clone)]
pub(crate) enum Cond {
    All(Vec<Cond>),
    Any(Vec<Cond>),
    Leaf { of: Member, is_measure: bool, op: &'static str, values: Vec<Value> },
}

/// A time dimension of a query; all of them are called `at`.
#[derive(Debug, Clone)]
pub(crate) struct TimeAsk {
    pub(crate) model: usize,
    pub(crate) grain: Option<&'static str>,
    pub(crate) range: Option<Value>,
    pub(crate) compare: Vec<Value>,
}

/// A query as JSON says it, before it is checked.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) measures: Vec<Member>,
    pub(crate) dims: Vec<Member>,
    pub(crate) times: Vec<TimeAsk>,
    pub(crate) segments: Vec<Member>,
    pub(crate) filters: Vec<Cond>,
    pub(crate) order: Option<Vec<(String, bool)>>,
    pub(crate) limit: Option<u64>,
    pub(crate) offset: u64,
    pub(crate) total: bool,
    pub(crate) tz: Tz,
    pub(crate) ungrouped: bool,
    pub(crate) format: Option<&'static str>,
    /// The services that the caller sees; none: all.
    pub(crate) services: Option<Vec<&'static str>>,
}

const ZONES: [Tz; 4] = [Tz::UTC, Tz::Europe__Berlin, Tz::America__New_York, Tz::Australia__Lord_Howe];
/// Ends of ranges: days, and times of which some come twice or never in one of the zones.
const DAYS: [&str; 11] = [
    "2025-12-31",
    "2026-01-01",
    "2026-02-28",
    "2026-03-08",
    "2026-03-20",
    "2026-03-24",
    "2026-03-29",
    "2026-03-31",
    "2026-04-01",
    "2026-10-24",
    "2026-10-25",
];
const TIMES: [&str; 8] = [
    "2026-03-28T22:00:00.000",
    "2026-03-29T02:30:00.000",
    "2026-03-29T03:00:00",
    "2026-03-08T02:15:00.000",
    "2026-10-25T02:00:00.000",
    "2026-10-25T02:30:00.000",
    "2026-10-25T03:00:00.000",
    "2026-04-01T00:00:00.000",
];

/// Draws questions about one world.
pub(crate) struct Asker<'w> {
    pub(crate) world: &'w World,
    pub(crate) random: &'w mut StdRng,
    /// Whether phrases may stand for ranges: who answers takes the time of the clock from the asker.
    pub(crate) with_phrases: bool,
}

impl Asker<'_> {
    fn chance(&mut self, p: f64) -> bool {
        self.random.random_bool(p)
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list.choose(self.random).unwrap().clone()
    }

    /// Models that hang together with one.
    fn connected(&self, from: usize) -> Vec<usize> {
        let mut found = vec![from];
        let mut at = 0;
        while at < found.len() {
            for (other, model) in self.world.models.iter().enumerate() {
                let near = model.joins.iter().any(|j| j.to == found[at])
                    || self.world.models[found[at]].joins.iter().any(|j| j.to == other);
                if near && !found.contains(&other) {
                    found.push(other);
                }
            }
            at += 1;
        }
        found
    }

    /// A range from one point to a later one.
    fn range(&mut self) -> Value {
        match self.random.random_range(0..10) {
            0 if self.with_phrases => self.pick(&PHRASES).into(),
            1 => self.pick(&DAYS).into(),
            2..5 => {
                let mut ends = [self.pick(&TIMES), self.pick(&TIMES)];
                ends.sort_unstable();
                json!(ends)
            }
            _ => {
                let mut ends = [self.pick(&DAYS), self.pick(&DAYS)];
                ends.sort_unstable();
                json!(ends)
            }
        }
    }

    fn dim(&mut self, models: &[usize]) -> Member {
        let model = self.pick(models);
        let names: Vec<String> = self.world.models[model].dims.iter().map(|d| d.name.clone()).collect();
        (model, self.pick(&names))
    }

    fn measure(&mut self, models: &[usize], plain: bool) -> Member {
        let model = self.pick(models);
        let is_plain = |body: &Body| matches!(body, Body::Rows { agg, arg, own: false, window: None, .. } if *agg != Agg::Distinct && (*agg != Agg::Count || arg.is_none()));
        let all = self.world.models[model].measures.iter();
        let names: Vec<String> = all.filter(|m| !plain || is_plain(&m.body)).map(|m| m.name.clone()).collect();
        (model, self.pick(&names))
    }

    fn leaf(&mut self, models: &[usize]) -> Cond {
        if self.chance(0.06) {
            let of = self.measure(models, true);
            return Cond::Leaf { of, is_measure: true, op: "measureFilter", values: Vec::new() };
        }
        let of = self.dim(models);
        let ty = self.world.dim(of.0, &of.1).ty;
        if self.chance(0.12) {
            let op = self.pick(&["set", "notSet"]);
            return Cond::Leaf { of, is_measure: false, op, values: Vec::new() };
        }
        let (op, values) = match ty {
            "string" => {
                let ops = [
                    "equals",
                    "notEquals",
                    "in",
                    "notIn",
                    "contains",
                    "notContains",
                    "startsWith",
                    "notStartsWith",
                    "endsWith",
                    "notEndsWith",
                ];
                let op = self.pick(&ops);
                let mut values: Vec<Value> = (0..self.random.random_range(1..4))
                    .map(|_| match of.1.as_str() {
                        "svc" => self.pick(&SERVICES).into(),
                        "class" => self.pick(&["low", "mid", "none"]).into(),
                        "k2" => self.pick(&["k", "K"]).into(),
                        _ => self.pick(&TEXTS).into(),
                    })
                    .collect();
                if self.chance(0.2) {
                    values.push(Value::Null);
                }
                (op, values)
            }
            "number" => {
                let op = self.pick(&["equals", "notEquals", "gt", "gte", "lt", "lte", "in", "notIn"]);
                (op, self.numbers(op))
            }
            "boolean" => {
                let op = self.pick(&["equals", "notEquals"]);
                let value = self.pick(&[json!(true), json!("false"), json!("true"), json!(false), Value::Null]);
                (op, vec![value])
            }
            _ => {
                let ops = [
                    "inDateRange",
                    "notInDateRange",
                    "onTheDate",
                    "beforeDate",
                    "afterOrOnDate",
                    "beforeOrOnDate",
                    "afterDate",
                ];
                let op = self.pick(&ops);
                let values = match (op, self.range()) {
                    ("inDateRange" | "notInDateRange", Value::Array(ends)) => ends,
                    ("inDateRange" | "notInDateRange", one) => vec![one],
                    ("onTheDate", _) => vec![self.pick(&DAYS).into()],
                    _ if self.chance(0.4) => vec![self.pick(&TIMES).into()],
                    _ => vec![self.pick(&DAYS).into()],
                };
                (op, values)
            }
        };
        Cond::Leaf { of, is_measure: false, op, values }
    }

    fn numbers(&mut self, op: &str) -> Vec<Value> {
        let count =
            if matches!(op, "in" | "notIn" | "equals" | "notEquals") { self.random.random_range(1..4) } else { 1 };
        let mut values: Vec<Value> = (0..count)
            .map(|_| {
                let n: i32 = self.random.random_range(-3..12);
                match self.random.random_range(0..4) {
                    0 => json!(f64::from(n) / 4.0),
                    1 => n.to_string().into(),
                    2 => format!("{}.5", n.abs()).into(),
                    _ => json!(n),
                }
            })
            .collect();
        if count > 1 && self.chance(0.2) {
            values.push(Value::Null);
        }
        values
    }

    fn tree(&mut self, models: &[usize], depth: u32) -> Cond {
        if depth == 0 || self.chance(0.65) {
            return self.leaf(models);
        }
        let inner = (0..self.random.random_range(1..4)).map(|_| self.tree(models, depth - 1)).collect();
        if self.chance(0.5) { Cond::All(inner) } else { Cond::Any(inner) }
    }

    fn having(&mut self, measures: &[Member], models: &[usize], depth: u32) -> Cond {
        if depth > 0 && self.chance(0.2) {
            let inner = (0..2).map(|_| self.having(measures, models, depth - 1)).collect();
            return if self.chance(0.5) { Cond::All(inner) } else { Cond::Any(inner) };
        }
        let of = if self.chance(0.8) { self.pick(measures) } else { self.measure(models, false) };
        let (op, values) = match of.1.as_str() {
            "latest" => {
                let op = self.pick(&["inDateRange", "beforeDate", "afterOrOnDate", "set"]);
                (op, if op == "set" { Vec::new() } else { vec![self.pick(&DAYS).into()] })
            }
            "firstTxt" => (self.pick(&["set", "notSet"]), Vec::new()),
            _ if self.chance(0.15) => (self.pick(&["set", "notSet"]), Vec::new()),
            _ => {
                let op = self.pick(&["equals", "notEquals", "gt", "gte", "lt", "lte"]);
                (op, self.numbers(op))
            }
        };
        Cond::Leaf { of, is_measure: true, op, values }
    }

    /// Draws a question.
    pub(crate) fn question(&mut self) -> Question {
        let main = self.random.random_range(0..self.world.models.len());
        let near = self.connected(main);
        let ungrouped = self.chance(0.06);
        let of_measures: Vec<usize> = if self.chance(0.75) { vec![main] } else { near.clone() };
        let unique = |list: Vec<Member>| {
            let mut out: Vec<Member> = Vec::new();
            for m in list {
                if !out.contains(&m) {
                    out.push(m);
                }
            }
            out
        };
        let count = [0, 1, 1, 1, 2, 2, 3][self.random.random_range(0..7)];
        let measures = unique((0..count).map(|_| self.measure(&of_measures, ungrouped)).collect());
        let count = [0, 0, 1, 1, 1, 2, 3][self.random.random_range(0..7)];
        let of_dims = if self.chance(0.5) { vec![main] } else { near.clone() };
        let dims = unique((0..count).map(|_| self.dim(&of_dims)).collect());
        let mut times = Vec::new();
        if self.chance(0.5) || (measures.is_empty() && dims.is_empty()) {
            let model = if self.chance(0.8) { main } else { self.pick(&near) };
            let grained = self.chance(0.7) || (measures.is_empty() && dims.is_empty());
            let grain = grained.then(|| self.pick(&GRAINS[2..]));
            let range = (self.chance(0.75)).then(|| self.range());
            times.push(TimeAsk { model, grain, range, compare: Vec::new() });
            if self.chance(0.15) {
                let model = self.pick(&near);
                let (grain, range) = (self.pick(&[None, Some("day"), Some("month")]), Some(self.range()));
                times.push(TimeAsk { model, grain, range, compare: Vec::new() });
            } else if self.chance(0.08) {
                let compare = (0..self.random.random_range(1..4)).map(|_| self.range()).collect();
                times[0] = TimeAsk { range: None, compare, ..times[0].clone() };
                if self.chance(0.3) {
                    let model = self.pick(&near);
                    times.insert(0, TimeAsk { model, grain: None, range: Some(self.range()), compare: Vec::new() });
                }
            }
        }
        let of_filters = if self.chance(0.6) { vec![main] } else { near.clone() };
        // Most questions have none: filters leave nothing often enough.
        let mut filters: Vec<Cond> =
            (0..[0, 0, 0, 1, 2][self.random.random_range(0..5)]).map(|_| self.tree(&of_filters, 3)).collect();
        if !measures.is_empty() && !ungrouped && self.chance(0.2) {
            filters.push(self.having(&measures, &of_measures, 1));
        }
        let segments = if self.chance(0.12) {
            let (model, names) = (main, &self.world.models[main].segments);
            vec![(model, names.choose(self.random).unwrap().0.clone())]
        } else {
            Vec::new()
        };
        let mut question = Question {
            measures,
            dims,
            times,
            segments,
            filters,
            order: None,
            limit: None,
            offset: 0,
            total: self.chance(0.15),
            tz: self.pick(&ZONES),
            ungrouped,
            format: self.pick(&[None, None, Some("default"), Some("compact"), Some("columnar")]),
            services: self.chance(0.2).then(|| SERVICES[..self.random.random_range(1..3)].to_vec()),
        };
        self.ordered(&mut question);
        question
    }

    fn ordered(&mut self, question: &mut Question) {
        if question.ungrouped {
            return;
        }
        if self.chance(0.4) {
            let mut names: Vec<String> =
                question.measures.iter().chain(&question.dims).map(|(m, name)| self.world.full(*m, name)).collect();
            for time in question.times.iter().filter(|t| t.grain.is_some()) {
                let plain = self.world.full(time.model, "at");
                names.push(if self.chance(0.5) { plain } else { format!("{plain}.{}", time.grain.unwrap()) });
            }
            if let Some((model, _)) = question.measures.first().filter(|_| self.random.random_bool(0.1)) {
                names.push(self.world.full(*model, "count"));
            }
            let mut order: Vec<(String, bool)> = Vec::new();
            for _ in 0..self.random.random_range(0..3) {
                let name = self.pick(&names);
                if !order.iter().any(|(n, _)| *n == name) {
                    order.push((name, self.chance(0.5)));
                }
            }
            question.order = Some(order);
        }
        let is_ordered = question.order.as_ref().is_none_or(|order| !order.is_empty());
        if is_ordered && self.chance(0.2) {
            question.limit = Some(self.random.random_range(0..6));
            question.offset = if self.chance(0.5) { self.random.random_range(0..4) } else { 0 };
        }
    }
}

impl Cond {
    fn json(&self, world: &World) -> Value {
        let all = |inner: &[Self]| inner.iter().map(|c| c.json(world)).collect::<Value>();
        match self {
            Self::All(inner) => json!({"and": all(inner)}),
            Self::Any(inner) => json!({"or": all(inner)}),
            Self::Leaf { of, op, values, .. } => {
                let mut out = json!({"member": world.full(of.0, &of.1), "operator": op});
                if !values.is_empty() {
                    out["values"] = values.clone().into();
                }
                out
            }
        }
    }

    /// All conditions on members.
    pub(crate) fn leaves(&self) -> Vec<&Self> {
        match self {
            Self::All(inner) | Self::Any(inner) => inner.iter().flat_map(Self::leaves).collect(),
            Self::Leaf { .. } => vec![self],
        }
    }

    /// Whether it is about values of measures.
    pub(crate) fn is_having(&self) -> bool {
        let of_value = |c: &&Self| matches!(c, Self::Leaf { is_measure: true, op, .. } if *op != "measureFilter");
        self.leaves().iter().any(of_value)
    }
}

impl Question {
    /// As a client sends it.
    pub(crate) fn json(&self, world: &World) -> Value {
        let names = |list: &[Member]| list.iter().map(|(m, name)| world.full(*m, name)).collect::<Vec<_>>();
        let mut out = json!({"timezone": self.tz.name()});
        for (key, list) in [("measures", &self.measures), ("dimensions", &self.dims), ("segments", &self.segments)] {
            if !list.is_empty() {
                out[key] = names(list).into();
            }
        }
        let times = self.times.iter().map(|time| {
            let mut out = json!({"dimension": world.full(time.model, "at")});
            if let Some(grain) = time.grain {
                out["granularity"] = grain.into();
            }
            if let Some(range) = &time.range {
                out["dateRange"] = range.clone();
            }
            if !time.compare.is_empty() {
                out["compareDateRange"] = time.compare.clone().into();
            }
            out
        });
        out["timeDimensions"] = times.collect();
        out["filters"] = self.filters.iter().map(|c| c.json(world)).collect();
        if let Some(order) = &self.order {
            out["order"] = order.iter().map(|(id, down)| json!([id, if *down { "desc" } else { "asc" }])).collect();
        }
        if let Some(limit) = self.limit {
            out["limit"] = limit.into();
        }
        if self.offset > 0 {
            out["offset"] = self.offset.into();
        }
        for (key, is) in [("total", self.total), ("ungrouped", self.ungrouped)] {
            if is {
                out[key] = true.into();
            }
        }
        if let Some(format) = self.format {
            out["responseFormat"] = format.into();
        }
        out
    }
}
