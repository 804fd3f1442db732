//! Random queries over random models, whose results are compared with an independent evaluation (`olap-api.md` 13.3). The
//! rows of the models are log records: in memory, in parts, and in merged parts.

// Its clocks are those of `chrono_tz`.
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of the compiler")]
#[path = "../../../engine/olap/src/tests/oracle/by_hand.rs"]
mod by_hand;

use by_hand::answer::{answers, differs};
use by_hand::evaluate::Refusal;
use by_hand::question::{Asker, Question};
use by_hand::time::written;
use by_hand::value::Val;
use by_hand::world::{COLUMNS, TEXTS, World};
use quiver_tests::load::{seed, soak};
use quiver_tests::server::{Options, Server};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Questions in each state.
const QUESTIONS: usize = 60;
const QUESTIONS_LONG: usize = 1_000;

/// The rows of a model out of its records, typed as the world has them.
fn source(model: &str) -> Value {
    let column = |(name, ty): &(&str, &str)| {
        let kind = match *ty {
            "int8" => "Int64",
            "float8" => "Float64",
            "numeric(8,2)" => "Decimal128(8, 2)",
            "bool" => "Boolean",
            "timestamptz" => "Timestamp(Nanosecond, Some(\"UTC\"))",
            _ => "Utf8",
        };
        format!("arrow_cast(\"w.{name}\", '{kind}') AS {name}")
    };
    let columns = COLUMNS.iter().map(column).collect::<Vec<_>>().join(", ");
    json!({"sql": format!("SELECT {columns} FROM quiver.logs WHERE \"w.model\" = '{model}'"),
        "row_right": {"domain": "logs", "reads": "visible"}})
}

/// Records of the rows of all models from some place to another, in thirds of each.
async fn fill(server: &Server, world: &World, third: usize) {
    let mut lines = String::new();
    for (name, model) in world.names.iter().zip(&world.models) {
        for row in model.rows.iter().skip(third).step_by(3) {
            let mut record = json!({"_time": "2026-03-01T00:00:00Z", "_msg": "row", "w.model": name});
            for ((column, _), value) in COLUMNS.iter().zip(row) {
                let text = match value {
                    Val::Null => continue,
                    Val::Bool(is) => is.to_string(),
                    Val::Int(n) => n.to_string(),
                    Val::Num(n) => n.to_string(),
                    Val::Text(text) => text.clone(),
                    Val::Time(ms) | Val::Wall(ms) => written(*ms) + "Z",
                };
                record[format!("w.{column}")] = text.into();
            }
            let _ = writeln!(lines, "{record}");
        }
    }
    let answer = server.post("/insert/jsonline", &[], lines.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// The world as far as its rows are there.
fn so_far(world: &World, third: usize) -> World {
    let mut part = world.clone();
    for model in &mut part.models {
        let rows = std::mem::take(&mut model.rows);
        model.rows = rows.into_iter().enumerate().filter(|(i, _)| i % 3 <= third).map(|(_, row)| row).collect();
    }
    part
}

/// How an answer differs from the one by hand; none, too, where there is none by hand.
async fn compare(server: &Server, world: &World, question: &Question) -> Option<String> {
    let expected = answers(world, question);
    if matches!(expected, Err(Refusal::Unclear)) {
        return None;
    }
    let body = json!({"query": question.json(world), "queryType": "multi"}).to_string();
    let headers = [("content-type", "application/json"), ("x-wait", "60")];
    let answer = server.post("/olap-api/v1/load", &headers, body.into_bytes()).await;
    let got = answer.json();
    let reason = |reason: &str| {
        (answer.status != 400 || got["reason"] != reason).then(|| format!("not refused with {reason}: {got}"))
    };
    match expected {
        Err(Refusal::NoPath) => reason("NO_JOIN_PATH"),
        Err(Refusal::RangeRequired) => reason("RANGE_REQUIRED"),
        Err(Refusal::Unclear) => None,
        Ok(_) if answer.status != 200 => Some(answer.text()),
        Ok(all) => all.iter().enumerate().find_map(|(i, one)| differs(question, one, &got["results"][i])),
    }
}

async fn step(server: &Server, path: &str) {
    let answer = server.post(path, &[], vec![]).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_counted_as_by_hand() {
    let seed = seed("records_are_counted_as_by_hand");
    let mut random = StdRng::seed_from_u64(seed);
    // An empty text is none in these tables.
    let texts: Vec<&str> = TEXTS.into_iter().filter(|text| !text.is_empty()).collect();
    let world = World::random(&mut random, &texts);
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("own");
    std::fs::create_dir_all(&own).expect("a folder");
    let models = world.yaml(&|at| source(&world.names[at]));
    std::fs::write(own.join("world.yml"), models).expect("written");
    let own = own.display().to_string();
    let options = Options::default().args(&["--retention", "none", "--olap-models", &own, "--olap-builtin", "off"]);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for (third, state) in ["live", "half flushed", "compacted"].into_iter().enumerate() {
        if third == 1 {
            step(&server, "/admin/flush").await;
        }
        fill(&server, &world, third).await;
        if third == 2 {
            step(&server, "/admin/flush").await;
            step(&server, "/admin/compact").await;
        }
        let world = so_far(&world, third);
        for _ in 0..if soak() { QUESTIONS_LONG } else { QUESTIONS } {
            let mut asker = Asker { world: &world, random: &mut random, with_phrases: false };
            let question = Question { services: None, ..asker.question() };
            asked += 1;
            if let Some(difference) = compare(&server, &world, &question).await {
                wrong.push(format!("{state} {}\n  {difference}", question.json(&world)));
            }
        }
    }
    let shown = wrong.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "seed {seed}: {} of {asked} differ\n{shown}", wrong.len());
}
