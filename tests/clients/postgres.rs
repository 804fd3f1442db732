//! PostgreSQL clients on the PostgreSQL port: psql's listings, psycopg's parameters and cursors, the first queries of
//! SQLAlchemy and Grafana.

use std::path::{Path, PathBuf};
use std::process::Command;

use quiver_tests::server::{Options, Server, run, tools};
use serde_json::{Value, json};

use crate::tools::python;

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;

/// psql as it is installed beside the tests.
fn psql() -> Command {
    let folder = tools().join("usr/lib/postgresql");
    let releases = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let release = releases.filter_map(Result::ok).map(|entry| entry.path()).max().expect("a release of psql");
    let mut command = Command::new(release.join("bin/psql"));
    let libraries: Vec<PathBuf> =
        ["x86_64-linux-gnu", "aarch64-linux-gnu"].map(|m| tools().join("usr/lib").join(m)).into();
    let libraries: Vec<String> = libraries.iter().map(|path| path.display().to_string()).collect();
    command.env("LD_LIBRARY_PATH", libraries.join(":")).env("PGCONNECT_TIMEOUT", "20");
    command
}

/// Where a server's port is, as psql takes it.
fn at(server: &Server, more: &str) -> String {
    let (host, port) = server.postgres.rsplit_once(':').expect("a port");
    format!("host={host} port={port} user=ann dbname=quiver {more}")
}

/// What psql prints of statements or commands of its own.
fn asked(place: &str, statements: &[&str]) -> (Option<i32>, String, String) {
    let mut command = psql();
    command.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", place]);
    for statement in statements {
        command.args(["-c", statement]);
    }
    run(&mut command)
}

fn lines(place: &str, statement: &str) -> Vec<String> {
    let (code, output, errors) = asked(place, &[statement]);
    assert_eq!(code, Some(0), "{statement}: {errors}");
    // What a list of nothing says is no error.
    let is_empty_list = errors.lines().all(|line| line.starts_with("Did not find any "));
    assert!(is_empty_list, "{statement}: {errors}");
    output.lines().map(str::to_owned).collect()
}

/// 300 log records of three services, 200 spans of two, a metric.
async fn fill(server: &Server) {
    let line = |n: i64| {
        json!({
            "_time": START_S + n, "_msg": format!("request {n} served"), "service.name": format!("app{}", n % 3),
            "n": n.to_string(), "ratio": (n as f64 / 4.0).to_string(), "trace_id": format!("{:032x}", n / 2 + 1),
            "level": if n % 10 == 0 { "error" } else { "info" },
        })
    };
    let rows: Vec<String> = (0..300).map(|n| line(n).to_string()).collect();
    let answer = server.post("/insert/jsonline?_stream_fields=service.name", &[], rows.join("\n").into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for (service, parity) in [("cart", 0), ("pay", 1)] {
        let span = |n: i64| {
            let start = (START_S + n) * 1_000_000_000;
            json!({
                "traceId": format!("{:032x}", n / 2 + 1), "spanId": format!("{:016x}", n + 1), "name": format!("op{}", n % 4),
                "parentSpanId": if parity == 0 { String::new() } else { format!("{n:016x}") },
                "kind": 2 + parity, "startTimeUnixNano": start.to_string(),
                "endTimeUnixNano": (start + n * 1_000_000).to_string(),
                "attributes": [{"key": "http.route", "value": {"stringValue": format!("/r{}", n % 5)}}],
            })
        };
        let spans: Vec<Value> = (0..200).filter(|n| n % 2 == parity).map(span).collect();
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
        let headers = [("content-type", "application/json")];
        let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let sample = |n: i64| format!("cpu{{service_name=\"cart\"}} {n} {}\n", (START_S + n * 15) * 1000);
    let text: String = (0..20).map(sample).collect();
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
}

async fn start(dir: &Path, more: &[&str]) -> Server {
    let args = [&["--postgres", "127.0.0.1:0"], more].concat();
    let server = Server::start(dir, &Options::default().args(&args)).await;
    fill(&server).await;
    server
}

/// All tables, in the order of their names.
const TABLES: [&str; 30] = [
    "alert_actions",
    "alert_episodes",
    "alert_events",
    "alert_rules",
    "audit_log",
    "exemplars",
    "funnel_steps",
    "ingest_usage_1m",
    "key_transactions",
    "logs",
    "metric_metadata",
    "metric_samples",
    "metric_series",
    "notifications",
    "operations",
    "process_instance_steps",
    "process_instances",
    "query_log",
    "receivers",
    "resource_health",
    "resource_relationships",
    "resources",
    "rule_evaluations",
    "service_edges",
    "silences",
    "span_events",
    "span_links",
    "spans",
    "storage_stats",
    "traces",
];

#[tokio::test(flavor = "multi_thread")]
async fn psql_lists_and_asks() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path(), &[]).await;
    let place = at(&server, "sslmode=disable");
    let tables: Vec<String> = TABLES.iter().map(|name| format!("quiver|{name}|table|ann")).collect();
    assert_eq!(lines(&place, "\\dt"), tables);
    assert_eq!(lines(&place, "\\d"), tables);
    assert_eq!(lines(&place, "\\dt s*"), tables.iter().filter(|t| t.contains("|s")).cloned().collect::<Vec<_>>());
    let spans = lines(&place, "\\d spans");
    assert!(spans[0].starts_with("trace_id|text|"), "{spans:?}");
    assert!(spans.iter().any(|line| line.starts_with("start_time|timestamp with time zone|")), "{spans:?}");
    assert!(spans.iter().any(|line| line.starts_with("attributes|json|")), "{spans:?}");
    assert!(lines(&place, "\\l").iter().any(|line| line.starts_with("quiver|ann|UTF8|")));
    assert_eq!(lines(&place, "\\dn"), ["olap|ann", "public|ann", "quiver|ann"]);
    let functions = lines(&place, "\\df");
    assert!(functions.iter().any(|line| line.starts_with("quiver|promql_range|SETOF record|")), "{functions:?}");
    for command in [
        "\\d+ logs",
        "\\d+ pg_class",
        "\\dconfig+",
        "\\dD+",
        "\\dfn",
        "\\dft",
        "\\dP+",
        "\\di",
        "\\dv",
        "\\dT",
        "\\du",
        "\\dp",
        "\\dx",
        "\\dS",
        "\\dm",
        "\\ds",
        "\\df+",
        "\\l+",
        "\\dn+",
        "\\conninfo",
        "\\db",
        "\\dc",
        "\\dconfig",
        "\\dd",
        "\\ddp",
        "\\deu",
        "\\dF",
        "\\dFd",
        "\\dL",
        "\\dl",
        "\\do",
        "\\drds",
        "\\dRs",
        "select pg_postmaster_start_time(), txid_current() from pg_timezone_names",
        "select * from pg_locks, pg_authid",
    ] {
        lines(&place, command);
    }
    assert!(lines(&place, "\\sf attr")[0].starts_with("CREATE FUNCTION quiver.attr(map, key)"));
    let active = "select datname, usename, pid = pg_backend_pid() from pg_stat_activity";
    assert_eq!(lines(&place, active), ["quiver|ann|t"]);
    assert_eq!(lines(&place, "select current_setting(name) from pg_settings where name = 'TimeZone'"), ["UTC"]);
    assert_eq!(lines(&place, "select count(*), sum(n) from logs"), ["300|44850"]);
    assert_eq!(lines(&place, "select current_user, current_database(), current_schema()"), ["ann|quiver|quiver"]);
    assert_eq!(lines(&place, "begin; select 1; commit"), ["BEGIN", "1", "COMMIT"]);
    let joined = "select count(*) from logs l join spans s on l.trace_id = s.trace_id \
        join promql_range('sum(cpu)', '2025-03-10T00:00:00Z', '2025-03-10T00:05:00Z', interval '1 minute') p \
        on date_trunc('minute', l.time) = p.time where l.level = 'error' and s.kind = 'SERVER'";
    assert_eq!(lines(&place, joined), ["20"]);
    let zoned = asked(&place, &["set time zone 'Europe/Berlin'", "select min(time) from logs"]);
    assert_eq!(zoned.1.lines().collect::<Vec<_>>(), ["SET", "2025-03-10 01:00:00+01"]);
    for (statement, said) in [
        ("select *\nfrom lgos", "ERROR:  there is no table `lgos` at line 2, column 6; did you mean `logs`?"),
        ("select nothing_there from spans", "LINE 1: select nothing_there from spans"),
        ("insert into logs values (1)", "ERROR:  `INSERT INTO` is not allowed: statements only read"),
        ("begin; set transaction read write", "ERROR:  cannot begin a transaction that writes"),
    ] {
        let (code, _, errors) = asked(&place, &[statement]);
        assert!(code == Some(1) && errors.contains(said), "{statement}: {errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_and_reflection() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path(), &[]).await;
    let output = python("postgres_read.py", &[&server.postgres, ""]);
    let found: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let value = |name: &str| found.iter().find(|line| line[0] == name).map_or(&Value::Null, |line| &line[1]);
    assert_eq!(*value("version"), 150_000);
    assert_eq!(*value("params"), json!([["app0", 30], ["app2", 30]]));
    assert_eq!(*value("types"), json!(["datetime", "float", "bool", "NoneType"]));
    assert_eq!(*value("time"), "2025-03-10T00:01:00+00:00");
    let row = value("binary").as_array().cloned().unwrap_or_default();
    assert_eq!(row[..4], [json!(START_S as f64), json!(0), json!(0.0), json!("request 0 served")]);
    assert!(row[4].as_array().is_some_and(|names| names.contains(&json!("level"))), "{row:?}");
    assert_eq!(*value("cursor"), 44_850);
    assert_eq!(*value("read only"), "25006");
    assert_eq!(*value("column"), json!(["42703", "8"]));
    assert_eq!(*value("pipeline"), json!([1, 2, 3]));
    assert_eq!(*value("schemas"), json!(["information_schema", "olap", "public", "quiver"]));
    assert_eq!(*value("tables"), json!(TABLES));
    assert_eq!(value("default"), value("tables"));
    assert_eq!(*value("columns"), json!(["TEXT", "TIMESTAMP", "BIGINT", "JSON"]));
    assert_eq!(*value("keys"), json!([[], [], []]));
    assert_eq!(*value("views"), json!([]));
    assert_eq!(*value("select"), json!([["cart", 100], ["pay", 100]]));
}

/// What Grafana's data source for PostgreSQL asks: at the beginning, for its lists, and for a panel.
#[tokio::test(flavor = "multi_thread")]
async fn what_grafana_asks() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path(), &[]).await;
    let place = at(&server, "sslmode=disable");
    let path = "quote_ident(table_schema) IN (
          SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END
          FROM generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )";
    assert_eq!(lines(&place, "SELECT 1"), ["1"]);
    assert_eq!(lines(&place, "SELECT current_setting('server_version_num')::int/100 as version"), ["1500"]);
    assert!(lines(&place, "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'").is_empty());
    let tables = format!(
        "select quote_ident(table_name) as \"table\" from information_schema.tables
         where quote_ident(table_schema) not in ('information_schema', 'pg_catalog', '_timescaledb_cache', \
         '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information', \
         'timescaledb_experimental') and {path}"
    );
    let mut tables = lines(&place, &tables);
    tables.sort_unstable();
    assert_eq!(tables, TABLES);
    // Later releases list all schemas, those of the path first and without their names.
    let newer = format!(
        "SELECT CASE WHEN {path} THEN quote_ident(table_name)
           ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS \"table\"
         FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog')
         ORDER BY CASE WHEN {path} THEN 0 ELSE 1 END, 1"
    );
    let newer = lines(&place, &newer);
    assert_eq!(newer[..TABLES.len()], TABLES);
    assert!(newer[TABLES.len()..].iter().all(|table| table.starts_with("olap.")), "{newer:?}");
    let columns = format!(
        "select quote_ident(column_name) as \"column\", data_type as \"type\" from information_schema.columns
         where CASE WHEN array_length(parse_ident('spans'),1) = 2
           THEN quote_ident(table_schema) = (parse_ident('spans'))[1] AND quote_ident(table_name) = (parse_ident('spans'))[2]
           ELSE quote_ident(table_name) = 'spans' AND {path} END"
    );
    let columns = lines(&place, &columns);
    assert!(columns.contains(&"start_time|timestamp with time zone".to_owned()), "{columns:?}");
    let panel = "SELECT floor(extract(epoch from start_time)/60)*60 AS \"time\", service_name AS metric, \
        avg(duration) AS value FROM quiver.spans \
        WHERE start_time BETWEEN '2025-03-10T00:00:00Z' AND '2025-03-10T00:03:20Z' GROUP BY 1, 2 ORDER BY 1, 2";
    assert_eq!(lines(&place, panel).len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_asked_for() {
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("certificates");
    let file = |name: &str| certificates.join(name);
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().args(&["--postgres", "127.0.0.1:0"]);
    let options = options.tls(&file("server.pem"), &file("server.key"), &file("ca.pem"));
    let server = Server::start(dir.path(), &options).await;
    let authority = file("ca.pem").display().to_string();
    let secure = at(&server, &format!("sslmode=verify-ca sslrootcert={authority}"));
    assert_eq!(lines(&secure, "select 1"), ["1"]);
    let (code, _, errors) = asked(&at(&server, "sslmode=disable"), &["select 1"]);
    assert!(code == Some(2) && errors.contains("this port speaks TLS"), "{errors}");
    let other = at(&server, &format!("sslmode=verify-ca sslrootcert={}", file("stranger.pem").display()));
    assert_eq!(asked(&other, &["select 1"]).0, Some(2));
}

/// The answers in the files of `make conformance SUITE=sql` are DuckDB's, over tables made of the same input.
#[test]
fn duckdb_answers_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/sql");
    let output = python("duckdb_sql.py", &[&folder.display().to_string()]);
    let said: Vec<&str> = output.lines().collect();
    let checked =
        said.last().and_then(|line| line.strip_prefix("checked ")).and_then(|count| count.parse::<u32>().ok());
    assert!(said.len() == 1 && checked.is_some_and(|count| count >= 200), "{output}");
}

/// With access control psql shows a token, or a key, as its password; rows are those of whoever it was given to.
#[tokio::test(flavor = "multi_thread")]
async fn psql_shows_a_token() {
    const PASSWORD: &str = "correct horse battery";
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().args(&["--rbac", "on", "--postgres", "127.0.0.1:0"]);
    let server = Server::start(dir.path(), &options.env("QUIVER_ADMIN_PASSWORD", PASSWORD)).await;
    let token = async |name: &str| {
        let form = format!("grant_type=password&client_id=ui&username={name}&password={}", PASSWORD.replace(' ', "+"));
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        let answer = server.post("/realms/platform/protocol/openid-connect/token", &kind, form.into_bytes()).await;
        answer.json()["access_token"].as_str().expect("a token").to_owned()
    };
    let admin = token("admin").await;
    let bearer = format!("Bearer {admin}");
    let made = async |path: &str, body: Value| {
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let path = format!("/platform-api/rbac/{path}");
        let answer = server.post(&path, &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
        answer.json()
    };
    let roles = server.get_as("/platform-api/rbac/roles?name=viewer", &[("authorization", &bearer)]).await.json();
    let user = made("users", json!({"username": "ann", "password": PASSWORD})).await;
    let subject = json!({"type": "user", "id": user["id"]});
    made("bindings", json!({"subject": subject, "roleId": roles["items"][0]["id"], "services": ["cart"]})).await;
    let keys = format!("users/{}/keys", user["id"].as_str().expect("an id"));
    let key = made(&keys, json!({"name": "k"})).await;
    let rows = ["cart", "cart", "pay"].map(|s| json!({"_time": START_S, "_msg": "m", "service.name": s}).to_string());
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/stream+json")];
    let answer = server.post("/insert/jsonline", &headers, rows.join("\n").into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let with = |password: &str| at(&server, &format!("password={password}"));
    let statement = "select count(*) from logs";
    let (of_ann, key) = (token("ann").await, key["key"].as_str().expect("a key").to_owned());
    for (password, count) in [(admin, "3"), (of_ann, "2"), (key, "2")] {
        assert_eq!(lines(&with(&password), statement), [count]);
    }
    // Nor is the password of a person one here.
    for password in ["wrong".to_owned(), format!("'{PASSWORD}'")] {
        let (code, _, errors) = asked(&with(&password), &[statement]);
        assert!(code == Some(2) && errors.contains("FATAL"), "{errors}");
    }
}
