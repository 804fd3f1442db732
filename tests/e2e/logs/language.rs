//! LogsQL of 2026 where versions or interpretations differ: queries with their complete results, over rows that are
//! merged, flushed and live.

use quiver_tests::server::{Options, Server};
use serde_json::Value;

use crate::logs::query::{ask, rows, send};

const ROWS: [&str; 6] = [
    r#"{"_time":"2025-03-10T00:00:03Z","app":"a","n":"1","path":"/v10","u":"1.5","lvl":"x","_msg":"{\"n\":7,\"o\":{\"k\":[1, 2]}}"}"#,
    r#"{"_time":"2025-03-10T00:00:01Z","app":"b","n":"2","path":"/v9","u":"-1.3","_msg":"c=1 c='q r' d"}"#,
    r#"{"_time":"2025-03-10T00:00:02Z","app":"a","n":"3","path":"/v10","lvl":"y","_msg":"<134>2023-06-03T17:42:32.5+02:00 h app[7]: hi"}"#,
    r#"{"_time":"2025-03-10T00:00:05Z","app":"b","n":"4","path":"/v9","list":" [1,\"z\"] ","_msg":"'x y' end"}"#,
    r#"{"_time":"2025-03-10T00:00:04Z","app":"b","n":"5s","path":"/v2","_msg":"h CEF:0"}"#,
    r#"{"_time":"2025-03-10T00:00:06Z","app":"a","n":"6"}"#,
];

/// Queries, each with its rows in order.
const ANSWERS: &[(&str, &[&str])] = &[
    // Rows of the query itself.
    (
        "n:=1 | fields n | union rows({n:10, \"a b\"=\"c,d\"}, {n:11}) | sort by (n)",
        &[r#"{"n":"1"}"#, r#"{"n":"10","a b":"c,d"}"#, r#"{"n":"11"}"#],
    ),
    (
        "* | fields app, n, lvl | join by (app) rows({app:b, owner:me, n:99, lvl:own}) inner | sort by (n)",
        &[
            r#"{"app":"b","n":"2","owner":"me","lvl":"own"}"#,
            r#"{"app":"b","n":"4","owner":"me","lvl":"own"}"#,
            r#"{"app":"b","n":"5s","owner":"me","lvl":"own"}"#,
        ],
    ),
    // One function for several conditions.
    (
        "* | stats count() switch(case (app:=a) as a, case (path:\"v10\") as v, default as rest), sum(n) s",
        &[r#"{"a":"3","v":"2","rest":"3","s":"5000000016"}"#],
    ),
    // Values with units in groups of whole streams, and plain numbers in others.
    ("* | stats by (app) sum(n) s | sort by (app)", &[r#"{"app":"a","s":"10"}"#, r#"{"app":"b","s":"5000000006"}"#]),
    ("n:=5s | stats by (path) sum(n) s", &[r#"{"path":"/v2","s":"NaN"}"#]),
    ("* | count() if (!(!app:a)), max(\"a.b\")", &[r#"{"count(*) if (app:a)":"3"}"#]),
    ("* | count(hits), sum(list)", &[r#"{"count(hits)":"0","sum(list)":"NaN"}"#]),
    // In the order of time, unless the query says another.
    (
        "app:=b | running_stats count() as c, sum(n) as s, last(n) offset 1 as before | fields n, c, s, before | sort by (c)",
        &[
            r#"{"n":"2","c":"1","s":"2"}"#,
            r#"{"n":"5s","c":"2","s":"2","before":"2"}"#,
            r#"{"n":"4","c":"3","s":"6","before":"5s"}"#,
        ],
    ),
    (
        "app:=a | sort by (n desc) | running_stats first(n) as f, min(lvl) as l | fields n, f, l",
        &[r#"{"n":"6","f":"6"}"#, r#"{"n":"3","f":"6"}"#, r#"{"n":"1","f":"6"}"#],
    ),
    ("app:=a | total_stats first(n) offset 1 as f | fields n, f | sort by (n) limit 1", &[r#"{"n":"1","f":"1"}"#]),
    // Ties as texts.
    (
        "path:* | top 3 by (path) rank",
        &[
            r#"{"path":"/v10","hits":"2","rank":"1"}"#,
            r#"{"path":"/v9","hits":"2","rank":"2"}"#,
            r#"{"path":"/v2","hits":"1","rank":"3"}"#,
        ],
    ),
    (
        "path:* | top 2 by (path, app)",
        &[r#"{"path":"/v9","app":"b","hits":"2"}"#, r#"{"path":"/v10","app":"a","hits":"2"}"#],
    ),
    // Texts into fields.
    ("n:=1 | unpack_json preserve_keys (o) | fields n, o, o.k", &[r#"{"n":"7","o":"{\"k\":[1,2]}"}"#]),
    ("n:in(1,2) | unpack_json fields (n, app) result_prefix \"\" | fields n, app", &[r#"{"n":"7"}"#]),
    ("n:=2 | unpack_logfmt | fields c", &[r#"{"c":"q r"}"#]),
    ("n:=2 | format \"old\" as d | unpack_logfmt keep_original_fields | fields c, d", &[r#"{"c":"q r","d":"old"}"#]),
    ("n:=4 | extract \"<a> <b>\" | fields a, b", &[r#"{"a":"x y","b":"end"}"#]),
    (
        "n:=3 | unpack_syslog | fields timestamp, hostname, app_name, proc_id, message",
        &[r#"{"timestamp":"2023-06-03T15:42:32.5Z","hostname":"h","app_name":"app","proc_id":"7","message":"hi"}"#],
    ),
    ("n:=4 | unroll (list) | fields list | sort by (list)", &[r#"{"list":"1"}"#, r#"{"list":"z"}"#]),
    ("n:=4 | json_array_len(list) as l | fields l", &[r#"{"l":"2"}"#]),
    // Rows that repeat others.
    (
        "* | sort by (n) | deduplicate by (app, lvl) | fields n",
        &[r#"{"n":"1"}"#, r#"{"n":"2"}"#, r#"{"n":"3"}"#, r#"{"n":"6"}"#],
    ),
    ("* | fields app | deduplicate | sort by (app)", &[r#"{"app":"a"}"#, r#"{"app":"b"}"#]),
    ("path:* | deduplicate path | count() c", &[r#"{"c":"3"}"#]),
    // Values.
    (
        "n:=4 | format \"9007199254740993\" as t | format \"<time:t>|<hexnumdecode:none>\" as t | fields t",
        &[r#"{"t":"2255-06-05T23:47:34.740993Z|0"}"#],
    ),
    ("n:=4 | math inf & 7 as a, -1 & 7 as b | fields a, b", &[r#"{"a":"0","b":"7"}"#]),
    ("u:* | stats by (u:0.5) count() c | sort by (u)", &[r#"{"u":"-1","c":"1"}"#, r#"{"u":"1.5","c":"1"}"#]),
    ("* | set_stream_fields lvl | filter lvl:=x | fields _stream, _stream_id", &[r#"{"_stream":"{lvl=\"x\"}"}"#]),
    // Which fields a filter means.
    ("*:>=2025 | count() c", &[r#"{"c":"1"}"#]),
    ("!_msg:* | count() c", &[r#"{"c":"0"}"#]),
    ("_msg:\"\" | count() c", &[r#"{"c":"1"}"#]),
    // A selector without conditions, alone and beside others.
    ("{} | count() c", &[r#"{"c":"0"}"#]),
    ("{} n:in(1,2) | count() c", &[r#"{"c":"2"}"#]),
    ("n:=1 or !{} | count() c", &[r#"{"c":"1"}"#]),
    ("n:=1 | filter {app=\"a\"} or {} | count() c", &[r#"{"c":"1"}"#]),
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_2026() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for (i, row) in ROWS.iter().enumerate() {
        send(&server, "app", format!("{row}\n")).await;
        match i {
            1 => server.compact().await,
            3 => server.flush().await,
            _ => {}
        }
    }
    for (query, want) in ANSWERS {
        let want: Vec<Value> = want.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect();
        assert_eq!(rows(&ask(&server, "query", &[("query", query)]).await), want, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_query() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for (query, said) in [
        ("* | stats count() x, sum(a) x", "two results have the name `x`"),
        ("* | stats by (x) count() x", "`x` is a field of `by`"),
        ("* | running_stats count() x, sum(a) x", "two results have the name `x`"),
        ("* | running_stats last(a) offset 100000 x", "an offset of at most 1000 rows"),
        ("* | stats count() switch()", "`switch` needs a `case` or a `default`"),
        ("* | stats count() switch(default a, default b)", "at most one `default`"),
        ("* | union rows({a})", "`:` or `=`"),
        ("* | generate_sequence 0", "a number greater than 0"),
        ("* | deduplicate by", "fields expected"),
        ("* | json_array_concat from", "a field name expected"),
    ] {
        let answer = ask(&server, "query", &[("query", query)]).await;
        assert!(answer.status == 400 && answer.text().contains(said), "{query}: {}", answer.text());
    }
}
