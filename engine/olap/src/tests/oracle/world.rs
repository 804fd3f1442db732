//! A random graph of models with random rows: as YAML and CSV, and in the form that `evaluate` takes.
//!
//! Every column `rN` refers to a row of model `N` by its `id`, or to none; so all declared relationships are true.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::measures::{Measure, measures};
use super::time::{OWN_GRAINS, of_naive, written};
use super::value::{Ex, Val};

const MODELS_MAX: usize = 6;
/// Most rows of a model.
const ROWS_MAX: usize = 14;

/// Services that rows belong to.
pub(crate) const SERVICES: [&str; 3] = ["s1", "s2", "s3"];
/// Texts that operators could read wrongly.
pub(crate) const TEXTS: [&str; 8] = ["a", "b", "B", "", "x%", "y_z", "Äh", "it's"];

/// How rows of two models meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    OneToOne,
    OneToMany,
    ManyToOne,
}

/// A declared join.
#[derive(Debug, Clone)]
pub(crate) struct Join {
    pub(crate) to: usize,
    pub(crate) kind: Kind,
    /// Columns that are equal.
    pub(crate) left: String,
    pub(crate) right: String,
}

/// A measure of another query as a dimension.
#[derive(Debug, Clone)]
pub(crate) struct Sub {
    pub(crate) measure: (usize, String),
    pub(crate) with_filters: bool,
    pub(crate) with_range: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Dim {
    pub(crate) name: String,
    pub(crate) ty: &'static str,
    pub(crate) ex: Ex,
    pub(crate) sub: Option<Sub>,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) rows: Vec<Vec<Val>>,
    pub(crate) joins: Vec<Join>,
    pub(crate) dims: Vec<Dim>,
    pub(crate) measures: Vec<Measure>,
    pub(crate) segments: Vec<(String, Ex)>,
    /// Dimensions that make the key.
    pub(crate) key: Vec<&'static str>,
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) names: Vec<String>,
    pub(crate) models: Vec<Model>,
}

/// Columns of all tables with their types.
pub(crate) const COLUMNS: [(&str, &str); 15] = [
    ("id", "int8"),
    ("k2", "text"),
    ("svc", "text"),
    ("txt", "text"),
    ("num", "int8"),
    ("dbl", "float8"),
    ("dec", "numeric(8,2)"),
    ("flag", "bool"),
    ("at", "timestamptz"),
    ("r0", "int8"),
    ("r1", "int8"),
    ("r2", "int8"),
    ("r3", "int8"),
    ("r4", "int8"),
    ("r5", "int8"),
];

/// Moments about which rows lie: both changes of the clock in Berlin, borders of months and years, and plain days.
const MOMENTS: [&str; 9] = [
    "2026-03-29T00:00:00",
    "2026-03-29T01:00:00",
    "2026-10-25T00:00:00",
    "2026-10-25T01:00:00",
    "2026-03-31T22:00:00",
    "2026-01-01T00:00:00",
    "2026-02-28T23:30:00",
    "2026-03-24T12:00:00",
    "2026-03-08T07:00:00",
];

fn time(random: &mut StdRng) -> i64 {
    let moment = of_naive(MOMENTS.choose(random).unwrap().parse().unwrap());
    moment
        + match random.random_range(0..4) {
            0 => 0,
            1 => random.random_range(-90..90) * 60_000,
            2 => random.random_range(-4..4) * 1_800_000,
            _ => random.random_range(-4_000_000..4_000_000) * 100,
        }
}

fn row(random: &mut StdRng, id: i64, texts: &[&str]) -> Vec<Val> {
    let maybe = |often: f64, random: &mut StdRng, make: &mut dyn FnMut(&mut StdRng) -> Val| {
        if random.random_bool(often) { make(random) } else { Val::Null }
    };
    let mut row = vec![Val::Int(id), Val::Text(["k", "l"][random.random_range(0..2)].to_owned())];
    row.push(maybe(0.9, random, &mut |r| Val::Text((*SERVICES.choose(r).unwrap()).to_owned())));
    row.push(maybe(0.85, random, &mut |r| Val::Text((*texts.choose(r).unwrap()).to_owned())));
    row.push(maybe(0.85, random, &mut |r| Val::Int(r.random_range(-3..10))));
    row.push(maybe(0.85, random, &mut |r| Val::Num(f64::from(r.random_range(-20..40)) / 4.0)));
    row.push(maybe(0.85, random, &mut |r| Val::Num(f64::from(r.random_range(-20..40)) / 4.0)));
    row.push(maybe(0.8, random, &mut |r| Val::Bool(r.random_bool(0.6))));
    row.push(maybe(0.9, random, &mut |r| Val::Time(time(r))));
    for _ in 0..MODELS_MAX {
        row.push(maybe(0.8, random, &mut |r| Val::Int(r.random_range(1..=ROWS_MAX as i64))));
    }
    row
}

fn rows(random: &mut StdRng, texts: &[&str]) -> Vec<Vec<Val>> {
    let count = if random.random_bool(0.07) { 0 } else { random.random_range(1..=ROWS_MAX) };
    let mut ids: Vec<i64> = (1..=ROWS_MAX as i64).collect();
    (0..count)
        .map(|_| {
            let id = ids.swap_remove(random.random_range(0..ids.len()));
            row(random, id, texts)
        })
        .collect()
}

/// Declares how two models meet, in one direction or both.
fn meet(random: &mut StdRng, joins: &mut [Vec<Join>], a: usize, b: usize) {
    // Which of the two is the one, whose rows the other names.
    let relation = random.random_range(0..5);
    let make = |from: usize, to: usize| {
        let (one, many) = if relation < 2 { (a, b) } else { (b, a) };
        if relation == 4 {
            return Join { to, kind: Kind::OneToOne, left: "id".to_owned(), right: "id".to_owned() };
        }
        let names = format!("r{one}");
        if from == many {
            Join { to, kind: Kind::ManyToOne, left: names, right: "id".to_owned() }
        } else {
            Join { to, kind: Kind::OneToMany, left: "id".to_owned(), right: names }
        }
    };
    let (there, back) = match random.random_range(0..10) {
        0..5 => (true, false),
        5..8 => (false, true),
        _ => (true, true),
    };
    if there && !joins[a].iter().any(|j| j.to == b) {
        joins[a].push(make(a, b));
    }
    if back && !joins[b].iter().any(|j| j.to == a) {
        joins[b].push(make(b, a));
    }
}

/// The models that each row of a model has at most one row of, over declared joins.
fn determined(joins: &[Vec<Join>], from: usize) -> Vec<usize> {
    let mut found = vec![from];
    let mut at = 0;
    while at < found.len() {
        for join in &joins[found[at]] {
            if join.kind != Kind::OneToMany && !found.contains(&join.to) {
                found.push(join.to);
            }
        }
        at += 1;
    }
    found.remove(0);
    found
}

fn dim(name: &str, ty: &'static str, ex: Ex) -> Dim {
    Dim { name: name.to_owned(), ty, ex, sub: None }
}

fn dims(random: &mut StdRng, own: usize, joins: &[Vec<Join>]) -> Vec<Dim> {
    let column = |name: &str| Box::new(Ex::column(own, name));
    let mut dims: Vec<Dim> = COLUMNS
        .iter()
        .take(9)
        .map(|(name, ty)| {
            let ty = match *ty {
                "text" => "string",
                "bool" => "boolean",
                "timestamptz" => "time",
                _ => "number",
            };
            dim(name, ty, Ex::column(own, name))
        })
        .collect();
    let class = Ex::Case(
        vec![
            (Ex::Less(column("num"), Box::new(Ex::Int(1))), Ex::Text("low".to_owned())),
            (Ex::Less(column("num"), Box::new(Ex::Int(6))), Ex::Text("mid".to_owned())),
        ],
        random.random_bool(0.5).then(|| Box::new(Ex::Text("none".to_owned()))),
    );
    dims.push(dim("class", "string", class));
    dims.push(dim("plus", "number", Ex::Add(Box::new(Ex::Member(own, "num".to_owned())), column("id"))));
    if let Some(far) = determined(joins, own).choose(random) {
        dims.push(dim("far", "string", Ex::Member(*far, "txt".to_owned())));
    }
    let near: Vec<usize> = (0..joins.len())
        .filter(|other| *other != own)
        .filter(|other| joins[own].iter().any(|j| j.to == *other) || joins[*other].iter().any(|j| j.to == own))
        .collect();
    if let Some(other) = near.choose(random).filter(|_| random.random_bool(0.8)) {
        let measure = ["count", "total", "high", "txts", "flagged"][random.random_range(0..5)].to_owned();
        let sub = Sub {
            measure: (*other, measure),
            with_filters: random.random_bool(0.25),
            with_range: random.random_bool(0.25),
        };
        dims.push(Dim { sub: Some(sub), ..dim("sub", "number", Ex::Int(0)) });
    }
    dims
}

impl World {
    /// Draws one whose rows have some of `texts`.
    pub(crate) fn random(random: &mut StdRng, texts: &[&str]) -> Self {
        let count = random.random_range(1..=MODELS_MAX);
        let names: Vec<String> = ["A", "B", "C", "D", "E", "F"][..count].iter().map(|n| (*n).to_owned()).collect();
        let mut joins: Vec<Vec<Join>> = vec![Vec::new(); count];
        for b in 1..count {
            let a = random.random_range(0..b);
            meet(random, &mut joins, a, b);
            for a in 0..b {
                if random.random_bool(0.12) {
                    meet(random, &mut joins, a, b);
                }
            }
        }
        let models = (0..count)
            .map(|own| {
                let dims = dims(random, own, &joins);
                let far = determined(&joins, own).choose(random).copied();
                let column = |name: &str| Box::new(Ex::column(own, name));
                let mut segments =
                    vec![("odd".to_owned(), Ex::Or(column("flag"), Box::new(Ex::Less(column("num"), column("id")))))];
                let unnamed = Box::new(Ex::IsNull(column("txt")));
                segments.push(("unnamedFlag".to_owned(), Ex::And(column("flag"), unnamed)));
                if let Some(far) = far {
                    let text = Ex::Equal(Box::new(Ex::column(far, "txt")), Box::new(Ex::Text("a".to_owned())));
                    segments.push(("near".to_owned(), Ex::Not(Box::new(text))));
                }
                Model {
                    rows: rows(random, texts),
                    joins: joins[own].clone(),
                    measures: measures(own, far, dims.iter().any(|d| d.sub.is_some())),
                    dims,
                    segments,
                    key: if random.random_bool(0.25) { vec!["id", "k2"] } else { vec!["id"] },
                }
            })
            .collect();
        Self { names, models }
    }

    pub(crate) fn dim(&self, model: usize, name: &str) -> &Dim {
        self.models[model].dims.iter().find(|d| d.name == name).unwrap_or_else(|| panic!("no dimension {name}"))
    }

    pub(crate) fn measure(&self, (model, name): &(usize, String)) -> &Measure {
        self.models[*model].measures.iter().find(|m| m.name == *name).unwrap_or_else(|| panic!("no measure {name}"))
    }

    /// `Model.member`.
    pub(crate) fn full(&self, model: usize, member: &str) -> String {
        format!("{}.{member}", self.names[model])
    }

    /// Models as a file; JSON is YAML, too. `source` says what the rows of a model are.
    pub(crate) fn yaml(&self, source: &dyn Fn(usize) -> Value) -> String {
        let cubes = (0..self.models.len()).map(|own| self.cube(own, source(own)));
        let text = json!({"cubes": cubes.collect::<Vec<_>>()}).to_string();
        text.replace("\"OWN_GRAINS\"", OWN_GRAINS)
    }

    fn cube(&self, own: usize, source: Value) -> Value {
        let model = &self.models[own];
        let sql = |ex: &Ex| ex.sql(own, &self.names);
        let joins = model.joins.iter().map(|join| {
            let kind = match join.kind {
                Kind::OneToOne => "one_to_one",
                Kind::OneToMany => "one_to_many",
                Kind::ManyToOne => "many_to_one",
            };
            let to = &self.names[join.to];
            let sql = format!("{{CUBE}}.{} = {{{to}}}.{}", join.left, join.right);
            json!({"name": to, "relationship": kind, "sql": sql})
        });
        let dims = model.dims.iter().map(|dim| {
            let mut out = json!({"name": dim.name, "type": dim.ty, "sql": sql(&dim.ex)});
            if model.key.contains(&dim.name.as_str()) {
                out["primary_key"] = true.into();
                out["public"] = true.into();
            }
            if dim.ty == "time" {
                out["granularities"] = "OWN_GRAINS".into();
            }
            if let Some(sub) = &dim.sub {
                out["sub_query"] = true.into();
                out["sql"] = format!("{{{}}}", self.full(sub.measure.0, &sub.measure.1)).into();
                out["propagate_filters_to_sub_query"] = sub.with_filters.into();
                out["propagate_range_to_sub_query"] = sub.with_range.into();
            }
            out
        });
        let mut out = json!({
            "name": self.names[own],
            "joins": joins.collect::<Vec<_>>(),
            "dimensions": dims.collect::<Vec<_>>(),
            "measures": model.measures.iter().map(|m| m.yaml(own, &self.names)).collect::<Vec<_>>(),
            "segments": model.segments.iter().map(|(name, ex)| json!({"name": name, "sql": sql(ex)})).collect::<Vec<_>>(),
            "row_right": {"service": "svc", "domain": "traces"},
            "pre_aggregations": [
                Self::rollup("coarse", model, &["svc", "txt", "flag", "class"]),
                Self::rollup("fine", model, &["k2", "svc", "txt", "num", "dbl", "dec", "flag", "class", "plus"]),
            ],
        });
        for (key, value) in source.as_object().into_iter().flatten() {
            out[key] = value.clone();
        }
        out
    }

    /// A rollup of all that one can hold, and of what it cannot.
    fn rollup(name: &str, model: &Model, dims: &[&str]) -> Value {
        json!({
            "name": name,
            "measures": model.measures.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(),
            "dimensions": dims,
            "segments": model.segments.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            "time_dimension": "at",
            "granularity": (["minute", "hour", "day"][model.rows.len() % 3]),
        })
    }

    /// Rows of a model as CSV.
    pub(crate) fn csv(&self, own: usize) -> String {
        let mut out = COLUMNS.map(|(name, _)| name).join(",") + "\n";
        for row in &self.models[own].rows {
            let cells = row.iter().map(|cell| match cell {
                Val::Null => "\\N".to_owned(),
                Val::Text(text) => format!("\"{text}\""),
                Val::Bool(is) => is.to_string(),
                Val::Int(n) => n.to_string(),
                Val::Num(n) => n.to_string(),
                Val::Time(ms) | Val::Wall(ms) => written(*ms) + "Z",
            });
            out += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        out
    }

    /// Types of the columns beside it.
    pub(crate) fn types() -> String {
        let typed = COLUMNS.iter().filter(|(_, ty)| *ty != "text");
        Value::Object(typed.map(|(name, ty)| ((*name).to_owned(), (*ty).into())).collect()).to_string()
    }
}
