use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::physical_plan::displayable;
use quiver_types::cancellation::{Until, Watch};

use super::*;
use crate::name_resolution::Names;
use crate::relational::tests::{count, engine};

/// A statement over a table `a` and another one `b`, of as many rows each.
fn over(statement: &str, rows: usize) -> &'static str {
    statement.replace("{t}", &format!("generate_series(1, {rows})")).leak()
}

#[tokio::test]
async fn conditions_ask_and_half_joins_without_one_do() {
    let engine = engine();
    for (statement, shown) in [
        (
            "select 1 from {t} a join {t} b on a.value = b.value and a.value + b.value > 3",
            Some("filter=goes_on() AND "),
        ),
        ("select 1 from {t} a full join {t} b on a.value = b.value and a.value < 3", Some("filter=goes_on() AND ")),
        ("select 1 from {t} a join {t} b on a.value < b.value", Some("filter=goes_on() AND ")),
        ("select 1 from {t} a where exists (select 1 from {t} b where a.value = b.value)", Some("filter=goes_on()")),
        ("select 1 from {t} a where exists (select 1 from {t} b)", Some("filter=goes_on()")),
        ("select 1 from {t} a join {t} b on a.value = b.value", None),
        ("select 1 from {t} a left join {t} b on a.value = b.value", None),
        ("select 1 from {t} a cross join {t} b", None),
    ] {
        let statement = over(statement, 3);
        let plan = Names::new(engine.relational()).plan(statement).unwrap();
        let (_, physical) = engine.plan_relational(&plan).await.unwrap();
        let text = displayable(physical.as_ref()).indent(false).to_string();
        assert_eq!(text.contains(shown.unwrap_or(NAME)), shown.is_some(), "{statement}\n{text}");
    }
}

#[tokio::test]
async fn joins_that_ask_give_what_others_would() {
    let engine = engine();
    for (statement, rows) in [
        ("select 1 from {t} a join {t} b on a.value % 2 = b.value % 2 and a.value < b.value", 4),
        ("select 1 from {t} a left join {t} b on a.value % 2 = b.value % 2 and a.value + b.value = 4", 5),
        ("select 1 from {t} a full join {t} b on a.value % 2 = b.value % 2 and a.value + b.value = -3", 10),
        ("select 1 from {t} a join {t} b on a.value + b.value < 4", 3),
        ("select 1 from {t} a where exists (select 1 from {t} b where a.value % 2 = b.value % 3)", 5),
        ("select 1 from {t} a where exists (select 1 from {t} b where a.value = b.value + 1)", 4),
        ("select 1 from {t} a where not exists (select 1 from {t} b where a.value = b.value + 1)", 1),
        ("select 1 from {t} a where a.value not in (select nullif(b.value, 2) from {t} b where b.value < 3)", 0),
        ("select 1 from {t} a where a.value = 1 or exists (select 1 from {t} b where a.value = b.value + 3)", 3),
        ("select 1 from {t} a where exists (select 1 from {t} b)", 5),
        ("select 1 from {t} a where not exists (select 1 from {t} b)", 0),
    ] {
        let statement = over(statement, 5);
        assert_eq!(count(&engine, statement, 20_000).await.unwrap(), rows, "{statement}");
    }
}

#[tokio::test]
async fn joins_that_give_nothing_end_with_their_query_and_let_others_run() {
    let engine = engine();
    for statement in [
        "select count(*) from {t} a join {t} b on a.value % 2 = b.value % 2 where a.value + b.value = -3",
        "select count(*) from {t} a full join {t} b on a.value % 2 = b.value % 2 and a.value + b.value = -3",
        "select count(*) from {t} a where exists (select 1 from {t} b where a.value % 2 = b.value % 2)",
        "select count(*) from {t} a where a.value = 3 or exists (select 1 from {t} b where a.value % 2 = b.value % 2)",
        "select count(*) from {t} a join {t} b on a.value + b.value = -3",
        "select count(*) from {t} a where exists (select 1 from {t} b)",
    ] {
        let statement = over(statement, 300_000);
        let long = count(&engine, statement, 120_000);
        let short = async {
            while engine.used.running.load(Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            count(&engine, "select 1", 60_000).await
        };
        // The engine has one thread.
        tokio::select! {
            ended = long => panic!("{statement}: {ended:?}"),
            short = short => assert_eq!(short.unwrap(), 1, "{statement}"),
        }
        // Nobody waits for the join any more.
        let gone = async {
            while engine.used.running.load(Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), gone).await.expect(statement);
    }
}

#[test]
fn a_condition_fails_once_its_query_has_ended() {
    let options = Arc::new(ConfigOptions::new());
    let filter = asking_condition(None, JoinType::LeftSemi, &options).unwrap();
    let rows = RecordBatchOptions::new().with_row_count(Some(1 << 16));
    let pairs = RecordBatch::try_new_with_options(Arc::clone(filter.schema()), Vec::new(), &rows).unwrap();
    let asked = || filter.expression().evaluate(&pairs).map(|value| value.into_array(3).unwrap().len());
    assert_eq!(asked().unwrap(), 3, "nobody watches");
    let watch = Watch::new(Until::new(Duration::ZERO) as _);
    let ended = watch.over(|| (0..1_000_000).find_map(|_| asked().err()));
    assert!(ended.unwrap().to_string().contains("query was canceled in a join") && watch.is_stopped());
}
