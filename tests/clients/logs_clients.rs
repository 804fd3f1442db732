//! Real senders of logs: a search engine's bulk helper, OpenTelemetry's SDK over HTTP and gRPC, the client of the SaaS
//! intake, a Loki logging handler, rsyslog, curl.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use quiver_tests::server::{Options, Server, run, tools};
use serde_json::Value;

use crate::tools::{Program, python, until};

/// Asks LogsQL.
async fn ask(server: &Server, query: &str) -> Vec<Value> {
    let answer = server.get_with("/logs-api/select/logsql/query", &[("query", query)]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
}

async fn rows(server: &Server, endpoint: &str) -> u64 {
    let text = server.get("/metrics").await.text();
    let line =
        text.lines().find_map(|l| l.strip_prefix(&format!("quiver_logs_rows_total{{endpoint=\"{endpoint}\"}} ")));
    line.and_then(|v| v.parse::<f64>().ok()).expect("the counter") as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn libraries() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    python("logs_send.py", &[&server.http, &server.otlp_http, &server.otlp_grpc]);
    let counts =
        [("searchengine", 19), ("opentelemetry", 20), ("opentelemetry_grpc", 10), ("saas", 30), ("aggregator", 10)];
    for (endpoint, count) in counts {
        assert_eq!(rows(&server, endpoint).await, count, "{endpoint}");
    }
    let found = ask(&server, "{service.name=\"shop-grpc\"}").await;
    assert_eq!(found.len(), 10, "{found:?}");
    let third = found.iter().find(|r| r["_msg"] == "grpc record 3").unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!((&third["n"], &third["nested.a"], &third["severity"]), (&"3".into(), &"true".into(), &"WARN".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn curl() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let lines = dir.path().join("lines.json");
    let body = "{\"_time\":\"2025-03-10T09:46:40Z\",\"_msg\":\"from curl\",\"app\":\"a\"}\n".repeat(50_000);
    std::fs::write(&lines, body).expect("a file");
    // As people type it: a form by its content type, and a body in chunks.
    for extra in [&["--data-binary"][..], &["-H", "Transfer-Encoding: chunked", "--data-binary"], &["-T"]] {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "-X", "POST"]).args(extra);
        let file = if extra == ["-T"] { lines.display().to_string() } else { format!("@{}", lines.display()) };
        let (code, _, errors) = run(command.arg(file).arg(server.url("/insert/jsonline?_stream_fields=app")));
        assert_eq!(code, Some(0), "{errors}");
    }
    assert_eq!(rows(&server, "jsonline").await, 150_000);
}

/// rsyslog follows a file and sends each line as a document.
#[tokio::test(flavor = "multi_thread")]
async fn rsyslog() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("data"), &Options::default()).await;
    let usr = tools().join("usr");
    let libraries = std::fs::read_dir(usr.join("lib")).expect("libraries").flatten().map(|e| e.path());
    let library = libraries.into_iter().find(|p| p.join("rsyslog").is_dir()).expect("the modules of rsyslog");
    let (conf, file, work) = (dir.path().join("rsyslog.conf"), dir.path().join("app.log"), dir.path().display());
    let text = format!(
        "global(workDirectory=\"{work}\")\nmodule(load=\"imfile\")\nmodule(load=\"omelasticsearch\")\n\
         template(name=\"doc\" type=\"list\" option.jsonf=\"on\") {{\n\
         property(outname=\"@timestamp\" name=\"timereported\" dateFormat=\"rfc3339\" format=\"jsonf\")\n\
         property(outname=\"host\" name=\"hostname\" format=\"jsonf\")\nproperty(outname=\"message\" name=\"msg\" format=\"jsonf\")\n}}\n\
         input(type=\"imfile\" File=\"{}\" Tag=\"app\")\n\
         action(type=\"omelasticsearch\" server=\"http://{}/insert/searchengine\" serverport=\"{}\" searchType=\"\" bulkmode=\"on\"\n\
         template=\"doc\" action.resumeRetryCount=\"-1\" queue.type=\"linkedlist\" errorfile=\"{work}/errors\")\n",
        file.display(),
        server.http,
        server.http.rsplit(':').next().expect("a port"),
    );
    std::fs::write(&conf, text).expect("a file");
    let mut lines = String::new();
    (0..500).for_each(|i| writeln!(lines, "line {i} with \"quotes\" and \\ in it").expect("memory"));
    std::fs::write(&file, lines).expect("a file");
    let mut command = Command::new(usr.join("sbin/rsyslogd"));
    command.env("LD_LIBRARY_PATH", &library).arg("-n").arg("-f").arg(&conf).arg("-i").arg(dir.path().join("pid"));
    command.arg("-M").arg(library.join("rsyslog"));
    let log = dir.path().join("rsyslog.log");
    let program = Program::start(&mut command, &log);
    let mut seen = 0;
    until("rsyslog sends 500 lines", Duration::from_mins(5), async || {
        seen = rows(&server, "searchengine").await;
        seen >= 500
    })
    .await;
    drop(program);
    let errors = std::fs::read_to_string(dir.path().join("errors")).unwrap_or_default();
    assert_eq!((seen, errors.as_str()), (500, ""), "{}", std::fs::read_to_string(&log).unwrap_or_default());
}
