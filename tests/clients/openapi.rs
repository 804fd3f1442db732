//! schemathesis over the API description: it calls every operation with valid and invalid values. No response may be a
//! server error or undocumented.

use std::path::Path;
use std::process::Command;

use quiver_tests::server::{Options, Server, run, tools};

use crate::tools::soak;

/// What does not end by itself, what would stop or change the server that is asked, and what answers 501 as documented
/// (Jaeger's archive).
const LEFT_OUT: &str =
    "^/admin|/tail$|/subscribe$|/archive/|/keys/rotate|grpc|tempopb|\\.proto\\.|/api/v1/(read|write)$";

/// Seconds of a run.
fn seconds() -> &'static str {
    if soak() { "900" } else { "60" }
}

/// With which Python 3.11 now and then ends an operation inside of the tool, oftener the more threads it has: that run says
/// nothing of the server.
const BROKEN: &str = "AST constructor recursion depth mismatch";

/// Reads streams of JSON lines as such: by its name, the tool takes them for one document.
const HOOKS: &str = r#"
import json

import schemathesis


@schemathesis.deserializer("application/json")
def documents(_context, response):
    if any(kind.startswith("application/stream+json") for kind in response.headers.get("content-type", [])):
        return [json.loads(line) for line in response.content.splitlines() if line]
    return response.json()
"#;

fn schemathesis(folder: &Path, server: &Server, seed: &str) -> Command {
    std::fs::write(folder.join("openapi_hooks.py"), HOOKS).expect("written");
    let mut command = Command::new(tools().join("venv/bin/schemathesis"));
    command.current_dir(folder).env("PYTHONPATH", folder).env("SCHEMATHESIS_HOOKS", "openapi_hooks");
    command.args(["run", &server.url("/platform-api/openapi.json"), "--seed", seed, "--max-time", seconds()]);
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    command.args(["--checks", checks, "--phases", "coverage,fuzzing", "--continue-on-failure"]);
    command.args(["--exclude-path-regex", LEFT_OUT, "--request-timeout", "60", "--workers", "1"]);
    command.args(["--suppress-health-check", "all", "--warnings", "off", "--no-color"]);
    if !soak() {
        // As many of each operation as fit into the time.
        command.args(["--max-examples", "3"]);
    }
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_documented() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let seed = std::env::var("QUIVER_SEED").unwrap_or_else(|_| "1".to_owned());
    let mut runs = 0;
    let said = loop {
        let mut command = schemathesis(dir.path(), &server, &seed);
        let (code, said, errors) = tokio::task::spawn_blocking(move || run(&mut command)).await.expect("it runs");
        runs += 1;
        if code == Some(0) {
            break said;
        }
        assert!(said.contains(BROKEN) && runs < 4, "seed {seed}\n{said}{errors}");
    };
    // A run that asked nothing proves nothing.
    let generated = said.lines().find_map(|line| line.trim().split(" generated").next()?.trim().parse::<u64>().ok());
    assert!(generated.is_some_and(|n| n > 500), "{said}");
    assert_eq!(server.get("/health/ready").await.status, 200);
}
