//! PostgreSQL's wire protocol: rights, portals, cancelling, errors; through its Rust client and byte by byte.

mod cursors;
mod disconnects;

use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use crate::identity::{PASSWORD, bearer, login, made, user, with_password};

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;
/// Within which a right that was taken away acts.
const ACTS_WITHIN: Duration = Duration::from_secs(5);
/// Statements that run for very long.
const LONG: &str = "select count(*) from generate_series(1, 100000) a cross join generate_series(1, 10000000) b";

fn open() -> Options {
    Options::default().args(&["--postgres", "127.0.0.1:0"])
}

async fn try_connect(server: &Server, password: &str) -> Result<Client, Error> {
    Ok(connect_with(server, password).await?.0)
}

/// The client, and the task that holds its socket.
async fn connect_with(server: &Server, password: &str) -> Result<(Client, JoinHandle<Result<(), Error>>), Error> {
    let (host, port) = server.postgres.rsplit_once(':').expect("a port");
    let mut config = Config::new();
    config.host(host).port(port.parse().expect("a number")).user("whoever").dbname("quiver").password(password);
    let (client, connection) = config.connect(NoTls).await?;
    Ok((client, tokio::spawn(connection)))
}

async fn connect(server: &Server) -> Client {
    try_connect(server, "").await.expect("connected")
}

fn code(error: &Error) -> &str {
    error.code().map_or("none", |code| code.code())
}

async fn write_logs(server: &Server, headers: &[(&str, &str)], rows: i64) {
    let line = |n: i64| {
        json!({
            "_time": START_S + n, "_msg": format!("row {n}"), "service.name": format!("app{}", n % 3), "n": n.to_string(),
            "ratio": (n as f64 / 4.0).to_string(),
        })
    };
    for piece in 0..=rows.div_euclid(50_000) {
        let lines: Vec<String> =
            (piece * 50_000..rows.min((piece + 1) * 50_000)).map(|n| line(n).to_string()).collect();
        let path = "/insert/jsonline?_stream_fields=service.name";
        let answer = server.post(path, headers, lines.join("\n").into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_copied_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    write_logs(&server, &[], 3_000).await;
    let client = connect(&server).await;
    let copied = async |statement: &str| -> Result<String, Error> {
        let pieces: Vec<_> = client.copy_out(statement).await?.try_collect().await?;
        Ok(String::from_utf8(pieces.concat()).expect("a text"))
    };
    let csv = "copy (select n, 'a,\"b' as q, null as z, count(*) as c from logs where n < 2 group by n order by n) \
               to stdout with (format csv, header)";
    assert_eq!(copied(csv).await.expect("lines"), "n,q,z,c\n0,\"a,\"\"b\",,1\n1,\"a,\"\"b\",,1\n");
    let text = "copy (select 'a\tb' as a, null as b, true as c, array[1, 2] as d) to stdout";
    assert_eq!(copied(text).await.expect("lines"), "a\\tb\t\\N\tt\t{1,2}\n");
    let all = copied("copy logs (message, n) to stdout").await.expect("lines");
    assert_eq!((all.lines().count(), all.contains("row 2999\t2999\n")), (3_000, true));
    let binary = "copy (select 7::int as i) to stdout with (format binary)";
    let pieces: Vec<_> = client.copy_out(binary).await.expect("rows").try_collect().await.expect("rows");
    let lengths: Vec<usize> = pieces.iter().map(bytes::Bytes::len).collect();
    assert_eq!(lengths, [19 + 2 + 4 + 4, 2], "the header with the first row, and the end");
    let error = copied("copy (select 10 / (n - 2000) from logs) to stdout").await.expect_err("no number");
    assert_eq!(code(&error), "22012");
    let error = copied("copy nothing to stdout").await.expect_err("no table");
    assert_eq!(code(&error), "42P01");
    assert_eq!(client.query_one("select 2::int", &[]).await.expect("a row").get::<_, i32>(0), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_with_parameters() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    write_logs(&server, &[], 300).await;
    let client = connect(&server).await;
    let prepared = client
        .prepare("select message, n, ratio, time from logs where n > $1 and service_name = $2 order by n limit $3");
    let prepared = prepared.await.expect("prepared");
    let names: Vec<&str> = prepared.params().iter().map(tokio_postgres::types::Type::name).collect();
    assert_eq!(names, ["int8", "text", "int8"]);
    let columns: Vec<&str> = prepared.columns().iter().map(|column| column.type_().name()).collect();
    assert_eq!(columns, ["text", "int8", "float8", "timestamptz"]);
    let rows = client.query(&prepared, &[&10_i64, &"app1", &2_i64]).await.expect("rows");
    let row = |at: usize| (rows[at].get::<_, String>(0), rows[at].get::<_, i64>(1), rows[at].get::<_, f64>(2));
    assert_eq!((rows.len(), row(0), row(1)), (2, ("row 13".into(), 13, 3.25), ("row 16".into(), 16, 4.0)));
    let time: std::time::SystemTime = rows[0].get(3);
    assert_eq!(time.duration_since(std::time::UNIX_EPOCH).expect("after").as_secs() as i64, START_S + 13);
    // Pages behind a row.
    let page = "select n from logs where (service_name, n) > ($1, $2) order by service_name, n limit 2";
    let rows = client.query(page, &[&"app1", &295_i64]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [298, 2]);
    // No rows, and a statement without any.
    assert!(client.query(&prepared, &[&1_000_i64, &"app1", &2_i64]).await.expect("rows").is_empty());
    // Outputs may have the same name, as in PostgreSQL.
    let twice = client.prepare("select n, count(*), n, count(ratio), 1, 'x', n as n_2 from logs group by n").await;
    let twice = twice.expect("prepared");
    let names: Vec<&str> = twice.columns().iter().map(tokio_postgres::Column::name).collect();
    assert_eq!(names, ["n", "count", "n", "count", "?column?", "?column?", "n_2"]);
    let many = ["app0".to_owned(), "app2".to_owned()];
    let counted =
        client.query_one("select count(*) from logs where service_name = any($1::text[])", &[&many.to_vec()]).await;
    assert_eq!(counted.map(|row| row.get::<_, i64>(0)).map_err(|e| e.to_string()), Ok(200));
    // A cursor has the values of its declaration, as those that drivers keep on the server do.
    let declared = "declare c cursor with hold for select n from logs where n > $1 order by n";
    assert_eq!(client.execute(declared, &[&10_i64]).await.map_err(|e| e.to_string()), Ok(0));
    let rows = client.query("fetch 2 from c", &[]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [11, 12]);
    for (statement, expected) in [
        ("select x from logs l, nothing", "42P01"),
        ("select (n from logs", "42601"),
        ("update logs set n = 1", "25006"),
        ("select no_such_function(1)", "42883"),
        ("copy logs from stdin", "25006"),
    ] {
        let error = client.prepare(statement).await.expect_err(statement);
        assert_eq!(code(&error), expected, "{statement}: {error:?}");
    }
    // A number that the data does not have divides by it.
    let error = client.query("select 1 / (n - n) from logs", &[]).await.expect_err("no number");
    assert_eq!(code(&error), "22012");
    let error = client.query("select message::int from logs", &[]).await.expect_err("no number");
    assert_eq!(code(&error), "22P02");
    // The connection goes on after each of them.
    assert_eq!(client.query_one("select 1::int", &[]).await.expect("a row").get::<_, i32>(0), 1);
}

/// Rows of statements by words of SQL alone, as texts.
async fn texts(client: &Client, statements: &str) -> Result<Vec<String>, Error> {
    let answers = client.simple_query(statements).await?;
    let row = |row: tokio_postgres::SimpleQueryRow| {
        let values: Vec<&str> = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL")).collect();
        values.join("|")
    };
    let rows = answers.into_iter().filter_map(|answer| match answer {
        SimpleQueryMessage::Row(found) => Some(row(found)),
        _ => None,
    });
    Ok(rows.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_prepared_by_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    write_logs(&server, &[], 300).await;
    let client = connect(&server).await;
    let prepare =
        "prepare q(int, text) as select n, $2 as t from logs where n >= $1 and service_name = $2 order by n limit 2";
    client.batch_execute(prepare).await.expect("prepared");
    assert_eq!(texts(&client, "execute q(10, 'app1')").await.expect("rows"), ["10|app1", "13|app1"]);
    // Values are expressions, and any text.
    let rows = texts(&client, "execute q(2 * length('abc') + 90, 'app' || 0); execute q(0, 'it''s'')')").await;
    assert_eq!(rows.expect("rows"), ["96|app0", "99|app0"]);
    // By the protocol, too.
    let rows = client.query("execute q(298, 'app1')", &[]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [298]);
    let since = format!(
        "prepare since as select count(*) from logs where time >= $1 and n = any($2); \
        execute since(to_timestamp({START_S}) + interval '290 seconds', array[1, 295, 299])"
    );
    assert_eq!(texts(&client, &since).await.expect("a count"), ["2"]);
    assert_eq!(texts(&client, "prepare plain as select 1; execute plain; deallocate plain").await.expect("one"), ["1"]);
    for (statement, expected) in [
        ("execute plain", "26000"),
        ("execute q", "42601"),
        ("execute q(1)", "42601"),
        ("execute q(1, 'a', 2)", "42601"),
        ("execute q('x', 'y')", "22P02"),
        ("prepare q as select 1", "42P05"),
        ("prepare w as delete from logs", "25006"),
        ("prepare w as select no_such_column_of(1)", "42883"),
        ("execute w", "26000"),
        ("execute q(1, 2) union select 3", "42601"),
    ] {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(code(&error), expected, "{statement}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_documents() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    write_logs(&server, &[], 30).await;
    let client = connect(&server).await;
    let statement = "explain (analyze, buffers, format json) select service_name, count(*) from logs group by 1";
    let prepared = client.prepare(statement).await.expect("prepared");
    assert_eq!(prepared.columns()[0].type_().name(), "json");
    let rows = texts(&client, statement).await.expect("a plan");
    let plan: serde_json::Value = serde_json::from_str(&rows.concat()).expect("a document");
    let root = &plan[0]["Plan"];
    assert_eq!((rows.len(), root["Actual Rows"].as_u64()), (1, Some(3)), "{plan}");
    assert!(root["Node Type"].is_string() && root["Plans"][0]["Node Type"].is_string(), "{plan}");
    assert!(plan[0]["Execution Time"].is_number(), "{plan}");
    let lines = texts(&client, "explain (costs off) select 1").await.expect("a plan");
    assert!(lines[0].starts_with("ProjectionExec: ") && lines[1].starts_with("  ->  "), "{lines:?}");
    let ran = texts(&client, "explain analyze select count(*) from logs").await.expect("a plan");
    let took = ran.iter().any(|line| line.starts_with("Execution Time: "));
    assert!(took && ran[0].contains(" (actual time=") && ran[0].ends_with(" rows=1)"), "{ran:?}");
    let error = client.batch_execute("explain (generic_plan) select 1").await.expect_err("no such option");
    assert_eq!(code(&error), "42601");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_set_by_queries() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    let client = connect(&server).await;
    let text = async |statement: &str| client.query_one(statement, &[]).await.expect(statement).get::<_, String>(0);
    assert_eq!(text("select set_config('jit', 'on', false) as new, current_setting('jit') as cur").await, "on");
    assert_eq!(text("show jit").await, "on");
    let set = client.query_one("select pg_catalog.set_config('TimeZone', $1, false)", &[&"Europe/Berlin"]).await;
    assert_eq!(set.expect("a row").get::<_, String>(0), "Europe/Berlin");
    assert_eq!(text("show timezone").await, "Europe/Berlin");
    let error = client.query("select set_config('datestyle', 'German', false)", &[]).await.expect_err("no style");
    assert_eq!(code(&error), "22023");
    // What pgJDBC asks for at the start.
    let words =
        "select string_agg(word, ',') from pg_catalog.pg_get_keywords() where word <> all ('{a,select}'::text[])";
    let words = text(words).await;
    assert!(words.contains("abort,") && !words.split(',').any(|word| word == "select"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_are_streamed() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open().args(&["--retention", "none"])).await;
    let mut client = connect(&server).await;
    let rows = 1_000_000_i64;
    let statement = format!("select value, repeat('x', 200) as text from generate_series(1, {rows})");
    // Once, so that what the server takes at first is not counted.
    client.batch_execute("select count(*) from generate_series(1, 1000)").await.expect("runs");
    let before = server.held_bytes();
    let (mut sum, mut count) = (0_i64, 0);
    {
        let transaction = client.transaction().await.expect("begun");
        let portal = transaction.bind(&statement, &[]).await.expect("bound");
        loop {
            let rows = transaction.query_portal(&portal, 20_000).await.expect("rows");
            if rows.is_empty() {
                break;
            }
            count += rows.len() as i64;
            sum += rows.iter().map(|row| row.get::<_, i64>(0)).sum::<i64>();
        }
        transaction.commit().await.expect("done");
    }
    assert_eq!((count, sum), (rows, rows * (rows + 1) / 2));
    // All at once: as they are found, whatever the reader's pace.
    let stream = client.query_raw(&statement, Vec::<String>::new()).await.expect("rows");
    futures::pin_mut!(stream);
    let (mut read, mut most) = (0, 0);
    while let Some(row) = stream.try_next().await.expect("a row") {
        read += 1;
        if row.get::<_, i64>(0) % 100_000 == 0 {
            most = most.max(server.held_bytes());
        }
    }
    assert_eq!(read, rows);
    // 200 MB went through.
    assert!(most < before + 100_000_000, "{before} bytes before, {most} at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_cancelled() {
    let dir = tempfile::tempdir().expect("a folder");
    // Nothing else ends them.
    let server = Server::start(dir.path(), &open().env("QUIVER_QUERY__TIMEOUT", "1h")).await;
    let client = connect(&server).await;
    let token = client.cancel_token();
    let running = tokio::spawn(async move {
        let error = client.query(LONG, &[]).await.map(|_| ()).expect_err("it is cancelled");
        (client, code(&error).to_owned())
    });
    until_queries(&server, 1).await;
    // As in PostgreSQL one that comes between the description of a statement and its run is lost.
    let began = Instant::now();
    while !running.is_finished() {
        // The time of a query has the same code, so it must not be waited for.
        assert!(began.elapsed() < Duration::from_mins(1), "it goes on");
        token.cancel_query(NoTls).await.expect("asked");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (client, code_of) = running.await.expect("ended");
    assert_eq!(code_of, "57014");
    until_queries(&server, 0).await;
    client.batch_execute("set statement_timeout = '300ms'").await.expect("set");
    let error = client.query(LONG, &[]).await.map(|_| ()).expect_err("too long");
    assert_eq!(code(&error), "57014");
    client.batch_execute("reset statement_timeout").await.expect("reset");
    assert_eq!(client.query_one("show statement_timeout", &[]).await.expect("a row").get::<_, String>(0), "0");
    // What is set for a transaction ends with it, and what one sets that is rolled back is taken back.
    for (text, expected) in [
        ("begin; set local statement_timeout = 7000", "7s"),
        ("commit", "0"),
        ("begin; set statement_timeout = '8s'", "8s"),
        ("rollback", "0"),
        ("begin; set local statement_timeout = '6s'; commit and chain", "0"),
        ("set local statement_timeout = '5s'", "5s"),
        ("rollback and chain; set local statement_timeout = '4s'", "4s"),
        ("commit", "0"),
        ("begin; select set_config('statement_timeout', '9s', true)", "9s"),
        ("commit; set local statement_timeout = '7s'; select set_config('statement_timeout', '9s', true)", "0"),
    ] {
        client.batch_execute(text).await.unwrap_or_else(|e| panic!("{text}: {e}"));
        let shown = client.query_one("show statement_timeout", &[]).await.expect("a row");
        assert_eq!(shown.get::<_, String>(0), expected, "{text}");
    }
    // Who goes away takes the statement along. The client alone would wait for the answer before it says that it goes.
    let (client, connection) = connect_with(&server, "").await.expect("connected");
    until_queries(&server, 0).await;
    let running = tokio::spawn(async move { client.query(LONG, &[]).await.map(|_| ()) });
    until_queries(&server, 1).await;
    connection.abort();
    until_queries(&server, 0).await;
    running.await.expect("ended").expect_err("the connection is gone");
}

async fn until_queries(server: &Server, wanted: usize) {
    let began = Instant::now();
    loop {
        let listed = server.get("/admin/queries").await.json();
        let running = listed["queries"].as_array().map_or(0, Vec::len);
        if running == wanted {
            return;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{listed}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_only_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    let client = connect(&server).await;
    client.batch_execute("begin; select 1; savepoint a; release a; commit").await.expect("all");
    client.batch_execute("begin").await.expect("begun");
    let error = client.batch_execute("delete from logs").await.expect_err("it writes");
    assert_eq!(code(&error), "25006");
    let error = client.batch_execute("select 1").await.expect_err("it failed");
    assert_eq!(code(&error), "25P02");
    client.batch_execute("rollback; begin; savepoint a").await.expect("a transaction");
    client.batch_execute("select 1 / 0").await.expect_err("it fails");
    let error = client.batch_execute("rollback to b").await.expect_err("no savepoint");
    assert_eq!(code(&error), "3B001");
    client.batch_execute("rollback to a; select 1; commit").await.expect("it goes on");
    let chained =
        "begin; commit and chain; declare c cursor for select 1; rollback and chain; declare c cursor for select 1";
    client.batch_execute(&format!("{chained}; commit")).await.expect("one after the other");
    let error = client.batch_execute("commit and chain").await.expect_err("there is no transaction");
    assert_eq!(code(&error), "25P01");
    client.batch_execute("set time zone 'Europe/Berlin'; set search_path = quiver; discard all").await.expect("all");
    for (statement, expected) in [
        ("set nothing = 1", "42704"),
        ("set client_encoding = 'latin1'", "22023"),
        ("start transaction read write", "25006"),
        ("listen x", "25006"),
        ("fetch 1 from nothing", "34000"),
        ("declare c cursor for select 1", "25P01"),
        ("savepoint a", "25P01"),
    ] {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(code(&error), expected, "{statement}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_sees_his_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--postgres", "127.0.0.1:0"])).await;
    let admin_token = login(&server, "admin", PASSWORD).await;
    let admin = bearer(&admin_token);
    write_logs(&server, &[("authorization", &admin)], 300).await;
    let bob = user(&server, &admin, "bob", "viewer", json!(["app1"])).await;
    for password in ["", "wrong", PASSWORD, "qvk_000000000000_secret"] {
        let error = try_connect(&server, password).await.map(|_| ()).expect_err(password);
        assert_eq!(code(&error), "28P01", "{password}: {error:?}");
    }
    let token = |json: &serde_json::Value| json["access_token"].as_str().expect("a token").to_owned();
    let count =
        async |client: &Client, statement: &str| client.query_one(statement, &[]).await.map(|row| row.get::<_, i64>(0));
    let all = try_connect(&server, &token(&admin_token)).await.expect("connected");
    assert_eq!(count(&all, "select count(*) from logs").await.expect("a count"), 300);
    let own = try_connect(&server, &token(&login(&server, "bob", PASSWORD).await)).await.expect("connected");
    assert_eq!(count(&own, "select count(*) from logs").await.expect("a count"), 100);
    assert_eq!(count(&own, "select count(*) from logsql('*')").await.expect("a count"), 100);
    assert_eq!(count(&own, "select count(*) from logs where service_name <> 'app1'").await.expect("a count"), 0);
    let name = own.query_one("select current_user", &[]).await.expect("a row").get::<_, String>(0);
    assert_eq!(name, "bob");
    // Who may view nothing is let in, and told so by whatever it asks.
    made(&server, &admin, "users", json!({"username": "eve", "password": PASSWORD})).await;
    let eve = try_connect(&server, &token(&login(&server, "eve", PASSWORD).await)).await.expect("connected");
    for statement in ["select 1::bigint", "select count(*) from logs"] {
        assert_eq!(code(&count(&eve, statement).await.expect_err(statement)), "42501", "{statement}");
    }
    assert_eq!(code(&count(&own, "select count(*) from olap.\"StorageUsage\"").await.expect_err("no right")), "42501");
    // What he did himself: he came in.
    assert_eq!(count(&own, "select count(*) from audit_log where action = 'LOGIN'").await.expect("a count"), 1);
    // A key, by the same way.
    let bob_token = bearer(&login(&server, "bob", PASSWORD).await);
    let path = format!("users/{}/keys", bob["id"].as_str().expect("an id"));
    let key = made(&server, &bob_token, &path, json!({"name": "tool"})).await;
    let key = key["key"].as_str().unwrap_or_else(|| panic!("no key: {key}"));
    let by_key = try_connect(&server, key).await.expect("connected");
    assert_eq!(count(&by_key, "select count(*) from logs").await.expect("a count"), 100);
    // An account that goes takes its connections along.
    let headers = [("authorization", &*admin)];
    let delete = async |user: &serde_json::Value| {
        let path = format!("/platform-api/rbac/users/{}", user["id"].as_str().expect("an id"));
        let gone = server.send("DELETE", &path, &headers, Vec::new()).await;
        assert!(gone.status < 300, "{}", gone.text());
    };
    let mut users = 0;
    within("a revocation acts", ACTS_WITHIN, async || {
        users += 1;
        let name = format!("ann{users}");
        let ann = user(&server, &admin, &name, "viewer", json!(["app1"])).await;
        let own = try_connect(&server, &token(&login(&server, &name, PASSWORD).await)).await.expect("connected");
        delete(&ann).await;
        let began = Instant::now();
        while count(&own, "select count(*) from logs").await.is_ok() {
            assert!(began.elapsed() < Duration::from_mins(5), "a revocation acts");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        began.elapsed()
    })
    .await;
    delete(&bob).await;
    let began = Instant::now();
    while count(&own, "select count(*) from logs").await.is_ok() {
        assert!(began.elapsed() < Duration::from_mins(5), "a revocation acts");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(try_connect(&server, key).await.is_err());
}

/// A caller who asks much with few bytes, and reads nothing of it, is waited for; what is said meanwhile is not kept.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_reads_is_not_written() {
    const CLIENTS: usize = 8;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    let begin = [&18_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes(), b"user\0ann\0\0"].concat();
    // Each tells all settings.
    let text = [&b"reset all;".repeat(25_000)[..], b"\0"].concat();
    let query = [&b"Q"[..], &(text.len() as u32 + 4).to_be_bytes(), &text].concat();
    let ask = async || {
        let mut stream = TcpStream::connect(&server.postgres).await.expect("connected");
        stream.write_all(&begin).await.expect("sent");
        let mut read = vec![0; 4096];
        let mut said = Vec::new();
        // Up to the first `ReadyForQuery`.
        while !said.ends_with(b"Z\0\0\0\x05I") {
            let bytes = stream.read(&mut read).await.expect("an answer");
            assert!(bytes > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&read[..bytes]);
        }
        stream.write_all(&query).await.expect("sent");
        stream.read_exact(&mut read[..1]).await.expect("the answer begins");
        stream
    };
    drop(ask().await);
    let before = server.held_bytes();
    let mut streams = Vec::new();
    for _ in 0..CLIENTS {
        streams.push(ask().await);
    }
    let bound = (CLIENTS as u64) * (4 << 20);
    let grown = server.grown_since(before, bound).await;
    assert!(grown <= bound, "{} MiB for {CLIENTS} answers", grown >> 20);
    // A client that goes on reading gets everything.
    let mut stream = streams.pop().expect("a client");
    let (mut read, mut last, mut bytes) = (vec![0; 64 << 10], Vec::new(), 0);
    while !last.ends_with(b"Z\0\0\0\x05I") {
        let more = stream.read(&mut read).await.expect("more of the answer");
        assert!(more > 0, "it ends after {bytes} bytes");
        bytes += more;
        last.extend_from_slice(&read[..more]);
        last.drain(..last.len().saturating_sub(6));
    }
    assert!(bytes > 25_000 * 100, "{bytes} bytes");
}

/// What a client that does not keep to the protocol gets, and that the server lives on.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open().env("QUIVER_HTTP__HEADER_TIMEOUT", "15s")).await;
    let startup = |parameters: &[u8]| {
        let mut message = ((parameters.len() + 8) as u32).to_be_bytes().to_vec();
        message.extend(196_608_u32.to_be_bytes());
        message.extend(parameters);
        message
    };
    let good = startup(b"user\0ann\0database\0quiver\0\0");
    let after = |more: &[u8]| [good.as_slice(), more].concat();
    let answer = async |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&server.postgres).await.expect("connected");
        stream.write_all(bytes).await.expect("sent");
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_mins(5), stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the connection ends: {bytes:?}");
        String::from_utf8_lossy(&answer).into_owned()
    };
    for (bytes, said) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ""),
        (vec![0, 0, 0, 0], ""),
        (vec![255; 64], ""),
        (startup(b"user\0ann"), "08P01"),
        (startup(b"user\0ann\0database\0other\0\0"), "3D000"),
        (startup(b"user\0ann\0client_encoding\0latin1\0\0"), "22023"),
        ([&8_u32.to_be_bytes()[..], &(2_u32 << 16).to_be_bytes()].concat(), "0A000"),
        (after(b"Q\x7f\xff\xff\xff"), "54000"),
        (after(b"Q\0\0\0\0"), "08P01"),
        (after(b"?\0\0\0\x04"), "08P01"),
        (after(b"B\0\0\0\x0a\0\0\xff\xff\xff\xff"), "08P01"),
        (after(b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"), "34000"),
        (after(b"F\0\0\0\x04"), "0A000"),
        (after(b"p\0\0\0\x05\0"), "08P01"),
    ] {
        let answer = answer(&bytes).await;
        assert!(answer.contains(said), "{bytes:?}: {answer:?}");
    }
    // One byte at a time is as good as all at once; a client that says nothing is sent away.
    let mut stream = TcpStream::connect(&server.postgres).await.expect("connected");
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_mins(5), stream.read_to_end(&mut answer)).await.expect("it ends");
    let mut slow = TcpStream::connect(&server.postgres).await.expect("connected");
    for byte in after(b"Q\0\0\0\x0dselect 1\0X\0\0\0\x04") {
        slow.write_all(&[byte]).await.expect("sent");
    }
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_mins(5), slow.read_to_end(&mut answer)).await.expect("in time").expect("read");
    assert!(String::from_utf8_lossy(&answer).contains("SELECT 1"));
    let client = connect(&server).await;
    assert_eq!(client.query_one("select 2::int", &[]).await.expect("a row").get::<_, i32>(0), 2);
}
