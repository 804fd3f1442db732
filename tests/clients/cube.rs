//! Analytics through clients of Cube's format: its published JavaScript client (`olap-api.md` 13.2), and a Python script
//! that passes a result as Arrow to DuckDB.

use std::path::Path;
use std::process::Command;

use quiver_tests::server::{Options, Server, run, tools};
use serde_json::json;

use crate::tools::python;

const MODELS: &str = r#"
cubes:
  - name: Orders
    sql_table: public.orders
    dimensions:
      - {name: id, sql: id, type: string, primary_key: true, public: true}
      - {name: kind, sql: kind, type: string}
      - {name: day, sql: made_at, type: time}
    measures:
      - {name: count, type: count, drill_members: [id, kind]}
      - {name: amount, type: sum, sql: amount}
      - {name: share, type: number, sql: "1.0 * count(*) FILTER (WHERE {CUBE}.kind = 'pen') / count(*)", format: percent}
      - {name: price, type: avg, sql: amount, format: currency, currency: usd}
  - name: Pairs
    sql: SELECT a.id FROM public.orders a CROSS JOIN public.numbers b CROSS JOIN public.numbers c CROSS JOIN public.numbers d
    dimensions:
      - {name: id, sql: id, type: string, primary_key: true}
    measures:
      - {name: different, type: count_distinct, sql: id}
"#;
const ORDERS: &str = "id,kind,made_at,amount\n\
    o1,book,2026-03-01T08:00:00Z,10.5\n\
    o2,book,2026-03-01T09:00:00Z,20\n\
    o3,pen,2026-03-01T10:00:00Z,2\n\
    o4,book,2026-03-03T08:00:00Z,12.25\n\
    o5,pen,2026-03-03T09:00:00Z,2.5\n\
    o6,pen,2026-03-03T10:00:00Z,2.5\n";

async fn server(dir: &Path) -> Server {
    let (models, tables) = (dir.join("models"), dir.join("tables"));
    std::fs::create_dir_all(&models).expect("a folder");
    std::fs::create_dir_all(&tables).expect("a folder");
    std::fs::write(models.join("orders.yml"), MODELS).expect("writable");
    std::fs::write(tables.join("orders.csv"), ORDERS).expect("writable");
    std::fs::write(tables.join("orders.types.json"), r#"{"made_at":"timestamptz","amount":"float8"}"#)
        .expect("writable");
    let numbers: String = (0..120).map(|n| format!("{n}\n")).collect();
    std::fs::write(tables.join("numbers.csv"), format!("n\n{numbers}")).expect("writable");
    let (models, tables) = (models.display().to_string(), tables.display().to_string());
    let options = Options::default().args(&["--olap-models", &models, "--olap-tables", &tables]);
    Server::start(&dir.join("data"), &options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_client_works_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path()).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/cube_client.mjs");
    let mut command = Command::new("node");
    command.arg(&script).arg(tools().join("node")).arg(server.url("/olap-api/v1"));
    let (code, output, errors) = run(&mut command);
    assert_eq!(code, Some(0), "after {output:?}: {errors}");
    assert_eq!(output.lines().count(), 16, "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn duckdb_reads_answers_as_arrow() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path()).await;
    let query = json!({
        "measures": ["Orders.count", "Orders.amount"], "dimensions": ["Orders.kind"],
        "timeDimensions": [{"dimension": "Orders.day", "granularity": "day"}],
    });
    let output = python("olap_arrow.py", &[&server.url(""), &query.to_string()]);
    let expected = "['quiver.annotation', 'quiver.query', 'quiver.timezone']\n\
        ['dictionary<values=string, indices=int32, ordered=0>', 'timestamp[ms]', 'int64', 'double']\n\
        [('book', 3, 42.75), ('pen', 3, 7.0)]\n";
    assert_eq!(output, expected);
}
