//! Random queries over random models, answered by the engine and by hand (`olap-api.md` 13.3).
//!
//! What answers by hand stands in `oracle/by_hand`; the end-to-end tests ask the same over the product's tables.

#[path = "oracle/by_hand.rs"]
mod by_hand;

use std::sync::Arc;

use arc_swap::ArcSwap;
use quiver_query::tables::DomainAccess;
use quiver_query::{EngineSettings, QueryContext, QueryEngine};
use quiver_types::Access;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::open_cases::limits;
use crate::model::load::{SourceFile, load};
use crate::query::request::Request;
use crate::response::Frame;
use crate::tables::{FolderTables, LayeredTables};
use crate::{OlapEngine, OlapError, Reason, ResultCaching};
use by_hand::answer::{answers, differs};
use by_hand::evaluate::Refusal;
use by_hand::question::{Asker, Question};
use by_hand::time::NOW_MS;
use by_hand::world::{TEXTS, World};

/// Questions about each world.
const QUESTIONS: usize = 40;
/// Worlds: of the ordinary run, and of the long one.
const WORLDS: u64 = 25;
const WORLDS_LONG: u64 = 250;

fn engine() -> Arc<QueryEngine> {
    let settings =
        EngineSettings { spill_bytes: 1 << 30, threads: 2, concurrent_max: 8, ..EngineSettings::small(256 << 20) };
    QueryEngine::with_functions(&settings, crate::session_functions()).unwrap()
}

fn olap(world: &World, engine: &Arc<QueryEngine>, seed: u64) -> Arc<OlapEngine> {
    let scratch = std::env::temp_dir().join(format!("quiver-olap-oracle-{}-{seed}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    for (own, name) in world.names.iter().enumerate() {
        let name = name.to_lowercase();
        std::fs::write(scratch.join(format!("{name}.csv")), world.csv(own)).unwrap();
        std::fs::write(scratch.join(format!("{name}.types.json")), World::types()).unwrap();
    }
    let folders = FolderTables::read(std::slice::from_ref(&scratch)).unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    let text = world.yaml(&|own| json!({"sql_table": format!("public.{}", world.names[own].to_lowercase())}));
    let file = SourceFile { name: "world.yml".to_owned(), text: text.clone(), builtin: false };
    let catalog = load(&[file]).unwrap_or_else(|problems| panic!("{problems:?}\n{text}")).0;
    let tables = LayeredTables { folders: Arc::new(ArcSwap::from_pointee(folders)), product: None };
    OlapEngine::new(Arc::clone(engine), Arc::new(tables), catalog, ResultCaching::On)
}

async fn ask(olap: &Arc<OlapEngine>, world: &World, question: &Question) -> Result<Vec<Value>, OlapError> {
    let catalog = olap.catalog();
    let request = Request::parse(&question.json(world), &catalog, NOW_MS * 1_000_000)?;
    let access = match &question.services {
        None => DomainAccess::full(),
        Some(services) => DomainAccess::of(|_| Access::services(services.iter().copied())),
    };
    let ctx = QueryContext::new(Access::full(), limits());
    let sets = olap.load(&catalog, &request, &access, &ctx).await?;
    let frame = Frame { catalog: &catalog, refreshed: String::new(), request_id: String::new(), slow: false };
    Ok(frame.load(&request, &sets, true)?["results"].as_array().unwrap().clone())
}

/// How an answer differs from the one by hand; whether there is one by hand; whether ours came from a rollup.
async fn compare(olap: &Arc<OlapEngine>, world: &World, question: &Question) -> (Option<String>, bool, bool) {
    let expected = answers(world, question);
    let got = ask(olap, world, question).await;
    let used = got.iter().flatten().any(|one| !one["usedPreAggregations"].is_null());
    let refused = |reason: Reason| matches!(&got, Err(OlapError::Query(e)) if e.reason == reason);
    let wrong = match expected {
        Err(Refusal::Unclear) => return (None, false, used),
        Err(Refusal::NoPath) => (!refused(Reason::NoJoinPath)).then(|| format!("no path, but {got:?}")),
        Err(Refusal::RangeRequired) => (!refused(Reason::RangeRequired)).then(|| format!("no range, but {got:?}")),
        Ok(expected) => match got {
            Err(e) => Some(format!("{e:?}")),
            Ok(got) => expected.iter().zip(&got).find_map(|(expected, got)| differs(question, expected, got)),
        },
    };
    (wrong, true, used)
}

/// Unoptimized, DataFusion's planner wants more stack than a thread of tests has.
#[test]
#[allow(clippy::print_stdout, reason = "a seed is of use only when it is seen")]
fn random_queries_are_answered_as_by_hand() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let soak = std::env::var("QUIVER_SOAK").is_ok_and(|v| v == "1");
    let seed = number("QUIVER_SEED").unwrap_or_else(|| if soak { rand::random() } else { 1 });
    println!("random_queries_are_answered_as_by_hand: QUIVER_SEED={seed}");
    let count = number("QUIVER_WORLDS").unwrap_or(if soak { WORLDS_LONG } else { WORLDS });
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(worlds(seed, count));
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(run).unwrap().join().unwrap();
}

async fn worlds(seed: u64, count: u64) {
    let engine = engine();
    let (mut wrong, mut asked, mut compared, mut rows, mut rolled) = (Vec::new(), 0, 0, 0, 0);
    for n in 0..count {
        let seed = seed.wrapping_add(n);
        let mut random = StdRng::seed_from_u64(seed);
        let world = World::random(&mut random, &TEXTS);
        let olap = olap(&world, &engine, seed);
        for _ in 0..QUESTIONS {
            let mut asker = Asker { world: &world, random: &mut random, with_phrases: true };
            let question = asker.question();
            let (difference, is_compared, is_rolled) = compare(&olap, &world, &question).await;
            asked += 1;
            compared += usize::from(is_compared);
            rolled += usize::from(is_compared && is_rolled);
            rows += answers(&world, &question).map_or(0, |all| all.iter().filter(|e| e.count > 0).count());
            if let Some(difference) = difference {
                wrong.push(format!("QUIVER_SEED={seed} {}\n  {difference}", question.json(&world)));
            }
        }
    }
    let shown = wrong.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {compared} differ\n{shown}", wrong.len());
    // Questions that nobody can answer, or whose answers are empty, show nothing.
    assert!(rolled > 0 || asked < 500, "none of {asked} answers came from a rollup");
    assert!(compared * 10 > asked * 8 && rows * 10 > asked * 5, "{compared} of {asked} compared, {rows} with rows");
}
