//! Analytics: each request of the set is sent to the real binary, which loads the set's models and tables from its
//! folders, with and without the built-in models. Cases with rights are sent as users who have them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Map, Value, json};

const PASSWORD: &str = "correct horse battery";
/// Types of columns, as the README of the set lists them.
const TYPES: [(&str, &str); 6] = [
    ("services", r#"{"tier":"int4","apdex_t_ms":"int4","created_at":"timestamptz"}"#),
    ("hosts", r#"{"cpu_count":"int4","memory_gib":"numeric(8,2)"}"#),
    (
        "spans",
        r#"{"start_time":"timestamptz","duration_ms":"float8","http_status":"int4","is_root":"bool","cost":"numeric(8,2)"}"#,
    ),
    ("span_events", r#"{"event_time":"timestamptz","attempt":"int4"}"#),
    ("deployments", r#"{"deployment_id":"int4","deployed_at":"timestamptz"}"#),
    ("alerts", r#"{"alert_id":"int4","starts_at":"timestamptz","ends_at":"timestamptz"}"#),
];
/// Models with the member that names the service of a row, as the README says.
const RIGHTS: [(&str, &str); 4] =
    [("Services", "name"), ("Spans", "serviceName"), ("Alerts", "serviceName"), ("Deployments", "serviceName")];
/// Cases that are known to fail, with the reason.
const EXPECTED_FAILURES: &str = include_str!("olap/expected_failures.txt");

/// Runs all cases; says whether all passed.
pub(crate) fn run(root: &Path, report: &mut Vec<Value>) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let known: BTreeMap<&str, &str> =
        EXPECTED_FAILURES.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once(": ")).collect();
    let (mut good, mut passed, mut failed, mut expected) = (true, 0, 0, 0);
    for builtin in ["on", "off"] {
        for (name, problem) in runtime.block_on(cases(root, builtin)) {
            report.push(json!({"suite": "olap", "case": format!("{name} ({builtin})"), "passed": problem.is_none()}));
            match (problem, known.contains_key(name.as_str())) {
                (None, false) => passed += 1,
                (None, true) => {
                    println!("PASSES NOW {name} ({builtin}): take it out of expected_failures.txt");
                    good = false;
                }
                (Some(_), true) => expected += 1,
                (Some(problem), false) => {
                    println!("FAILED {name} ({builtin}): {problem}");
                    (good, failed) = (false, failed + 1);
                }
            }
        }
    }
    println!("olap: {passed} passed, {failed} failed, {expected} known failures");
    good
}

fn read(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Puts models with rights and tables with types into folders.
fn prepare(root: &Path, into: &Path) {
    let (models, tables) = (into.join("models"), into.join("tables"));
    std::fs::create_dir_all(&models).expect("a folder");
    std::fs::create_dir_all(&tables).expect("a folder");
    for entry in std::fs::read_dir(root.join("model")).expect("models") {
        let path = entry.expect("an entry").path();
        let mut text = std::fs::read_to_string(&path).expect("a model");
        for (model, member) in RIGHTS.iter().filter(|_| text.contains("sql_table")).copied().collect::<Vec<_>>() {
            let head = format!("cubes:\n  - name: {model}\n");
            text = text.replace(&head, &format!("{head}    row_right: {{service: {member}, domain: traces}}\n"));
        }
        std::fs::write(models.join(path.file_name().expect("a name")), text).expect("written");
    }
    for (name, types) in TYPES {
        std::fs::copy(root.join(format!("data/{name}.csv")), tables.join(format!("{name}.csv"))).expect("copied");
        std::fs::write(tables.join(format!("{name}.types.json")), types).expect("written");
    }
}

async fn cases(root: &Path, builtin: &str) -> Vec<(String, Option<String>)> {
    let dir = tempfile::tempdir().expect("a folder");
    prepare(root, dir.path());
    let folder = |name: &str| dir.path().join(name).display().to_string();
    let (models, tables) = (folder("models"), folder("tables"));
    let args = ["--rbac", "on", "--olap-models", &models, "--olap-tables", &tables, "--olap-builtin", builtin];
    let options = Options::default().args(&args).env("QUIVER_ADMIN_PASSWORD", PASSWORD);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let mut callers = Callers { admin: login(&server, "admin").await, known: BTreeMap::new() };
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(root.join("golden")).expect("cases").map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("olap-")));
    paths.sort();
    let mut outcomes = Vec::new();
    for path in paths {
        let case = read(&path);
        let who = callers.of(&server, &case["request"]["services"]).await;
        let answer = send(&server, &who, &case["request"]).await;
        outcomes.push((case["id"].as_str().expect("an id").to_owned(), check(&case, &answer).err()));
    }
    let missing = server.get("/olap-api/v1/meta").await;
    let told = missing.status == 401 && missing.json()["code"] == "TOKEN_MISSING";
    outcomes.push(("token".to_owned(), (!told).then(|| format!("{} {}", missing.status, missing.text()))));
    outcomes
}

async fn login(server: &Server, name: &str) -> String {
    let form = format!("grant_type=password&client_id=ui&username={name}&password={}", PASSWORD.replace(' ', "+"));
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.post("/realms/platform/protocol/openid-connect/token", &headers, form.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    format!("Bearer {}", answer.json()["access_token"].as_str().expect("a token"))
}

/// Users by the services that they see.
struct Callers {
    admin: String,
    known: BTreeMap<String, String>,
}

impl Callers {
    async fn of(&mut self, server: &Server, services: &Value) -> String {
        if services.is_null() {
            return self.admin.clone();
        }
        if let Some(known) = self.known.get(&services.to_string()) {
            return known.clone();
        }
        let name = format!("reader{}", self.known.len());
        let user = self.made(server, "users", json!({"username": name, "password": PASSWORD})).await;
        if services.as_array().is_some_and(|list| !list.is_empty()) {
            let headers = [("authorization", self.admin.as_str())];
            let roles = server.send("GET", "/platform-api/rbac/roles?name=viewer", &headers, Vec::new()).await.json();
            let subject = json!({"type": "user", "id": user["id"]});
            let binding = json!({"subject": subject, "roleId": roles["items"][0]["id"], "services": services});
            self.made(server, "bindings", binding).await;
        }
        let token = login(server, &name).await;
        self.known.insert(services.to_string(), token.clone());
        token
    }

    async fn made(&self, server: &Server, path: &str, body: Value) -> Value {
        let headers = [("authorization", self.admin.as_str()), ("content-type", "application/json")];
        let path = format!("/platform-api/rbac/{path}");
        let answer = server.send("POST", &path, &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
        answer.json()
    }
}

async fn send(server: &Server, who: &str, request: &Value) -> Answer {
    let text = |key: &str| request[key].as_str().unwrap_or_default();
    let mut path = text("path").to_owned();
    let params = request["params"].as_object().into_iter().flatten();
    let escaped = |t: &str| {
        t.bytes()
            .map(|b| if b.is_ascii_alphanumeric() { (b as char).to_string() } else { format!("%{b:02X}") })
            .collect::<String>()
    };
    for (i, (name, value)) in params.enumerate() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(path, "{}{name}={}", if i == 0 { '?' } else { '&' }, escaped(&value));
    }
    let headers = [("authorization", who), ("content-type", "application/json"), ("x-wait", "60")];
    let body = match (request["raw_body"].as_str(), request.get("body")) {
        (Some(raw), _) => raw.as_bytes().to_vec(),
        (None, Some(body)) if !body.is_null() => body.to_string().into_bytes(),
        _ => Vec::new(),
    };
    server.send(text("method"), &path, &headers, body).await
}

fn check(case: &Value, answer: &Answer) -> Result<(), String> {
    let expected = &case["expect"];
    let status = u64::from(answer.status);
    let also =
        expected["also_accepted_status"].as_array().is_some_and(|l| l.iter().any(|s| s.as_u64() == Some(status)));
    if expected["status"].as_u64() != Some(status) && !also {
        return Err(format!("status {status}: {}", answer.text()));
    }
    let got = answer.json();
    if status >= 400 {
        let told = got["error"].as_str().is_some_and(|e| !e.is_empty());
        return if told { Ok(()) } else { Err(format!("no text `error` in {got}")) };
    }
    // The recording server put the caller's rights into the query as filters; here they are none of the query's.
    let narrow = case["request"]["services"].is_array();
    match expected["kind"].as_str().unwrap_or_default() {
        "data" => one(expected, &got, narrow),
        "multi" => {
            part(&expected["queryType"], &got["queryType"], "queryType")?;
            let results = expected["results"].as_array().ok_or("no results")?;
            results.iter().enumerate().try_for_each(|(i, e)| one(e, &got["results"][i], narrow))?;
            part(&expected["pivotQuery"], &got["pivotQuery"], "pivotQuery")
        }
        "dryrun" => ["queryType", "normalizedQueries", "queryOrder", "pivotQuery"]
            .iter()
            .try_for_each(|key| part(&expected[*key], &got[*key], key)),
        "meta" => cubes(&expected["body"], &got),
        "sql" => {
            let list = expected["list"] == true;
            let first = if list { &got[0] } else { &got };
            let is_pair = first["sql"]["sql"][0].is_string() && first["sql"]["sql"][1].is_array();
            if is_pair { Ok(()) } else { Err(format!("no `[text, parameters]` in {got}")) }
        }
        other => Err(format!("unknown kind `{other}`")),
    }
}

fn part(expected: &Value, got: &Value, what: &str) -> Result<(), String> {
    if expected.is_null() || within(expected, got) {
        Ok(())
    } else {
        Err(format!("{what}: got {got}, want {expected}"))
    }
}

fn one(expected: &Value, got: &Value, narrow: bool) -> Result<(), String> {
    let found = rows(&got["data"]);
    let also = expected["also_accepted"].as_array().into_iter().flatten().map(|a| &a["data"]);
    if !std::iter::once(&expected["data"]).chain(also).any(|data| same_rows(&rows(data), &found, expected)) {
        return Err(format!("rows: got {}, want {}", Value::from(found), expected["data"]));
    }
    // A rollup is made when it is first of use, so it is always built.
    if let Some(built) = expected["rollup_when_built"].as_array() {
        let used: Vec<&String> = got["usedPreAggregations"].as_object().into_iter().flat_map(|o| o.keys()).collect();
        if built.iter().filter_map(Value::as_str).ne(used) {
            return Err(format!("rollups: got {}, want {built:?}", got["usedPreAggregations"]));
        }
    }
    part(&expected["total"], &got["total"], "total")?;
    part(&expected["annotation"], &got["annotation"], "annotation")?;
    if narrow { Ok(()) } else { part(&expected["query"], &got["query"], "query") }
}

/// Every model and member is there with equal properties; equal numbers of components stand for equal groups.
fn cubes(expected: &Value, got: &Value) -> Result<(), String> {
    let mut groups: BTreeMap<u64, u64> = BTreeMap::new();
    for cube in expected["cubes"].as_array().ok_or("no cubes")? {
        let name = &cube["name"];
        let own = got["cubes"].as_array().into_iter().flatten().find(|c| c["name"] == *name);
        let own = own.ok_or_else(|| format!("there is no model {name}"))?;
        for (key, value) in cube.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("connectedComponent", _) => {
                    let pair = (value.as_u64().unwrap_or(0), own[key].as_u64().unwrap_or(0));
                    if *groups.entry(pair.0).or_insert(pair.1) != pair.1 {
                        return Err(format!("{name} is in another component"));
                    }
                }
                ("measures" | "dimensions" | "segments" | "hierarchies", Value::Array(members)) => {
                    for member in members {
                        let found = own[key].as_array().into_iter().flatten().find(|m| m["name"] == member["name"]);
                        part(member, found.unwrap_or(&Value::Null), &format!("{} of {name}", member["name"]))?;
                    }
                }
                _ => part(value, &own[key], &format!("{key} of {name}"))?,
            }
        }
    }
    Ok(())
}

/// Rows of any format as objects.
fn rows(data: &Value) -> Vec<Value> {
    let Some(members) = data["members"].as_array() else { return data.as_array().cloned().unwrap_or_default() };
    let object = |cells: Vec<Value>| -> Value {
        members.iter().filter_map(|m| m.as_str().map(str::to_owned)).zip(cells).collect::<Map<_, _>>().into()
    };
    if let Some(columns) = data["columns"].as_array() {
        let count = columns.first().and_then(Value::as_array).map_or(0, Vec::len);
        return (0..count).map(|i| object(columns.iter().map(|c| c[i].clone()).collect())).collect();
    }
    data["dataset"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|r| object(r.as_array().cloned().unwrap_or_default()))
        .collect()
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str().and_then(|t| t.parse().ok()))
}

fn same(a: &Value, b: &Value) -> bool {
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        return x == y || (x - y).abs() <= 1e-9 * x.abs().max(y.abs());
    }
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(k, v)| y.get(k).is_some_and(|w| same(v, w)))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(v, w)| same(v, w)),
        _ => a == b,
    }
}

/// Whether all that is listed is there; texts (titles) without regard to case.
fn within(listed: &Value, whole: &Value) -> bool {
    match (listed, whole) {
        (Value::Object(x), Value::Object(y)) => x.iter().all(|(k, v)| y.get(k).is_some_and(|w| within(v, w))),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(v, w)| within(v, w)),
        (Value::String(x), Value::String(y)) => x.eq_ignore_ascii_case(y),
        _ => same(listed, whole),
    }
}

fn same_rows(wanted: &[Value], got: &[Value], expected: &Value) -> bool {
    let ordering = expected["ordering"].as_str().unwrap_or("total");
    if ordering == "total" {
        return same(&wanted.to_vec().into(), &got.to_vec().into());
    }
    let names: Vec<&str> =
        expected["order_keys"].as_array().into_iter().flatten().filter_map(|k| k[0].as_str()).collect();
    let keys = |list: &[Value]| -> Value {
        list.iter().map(|r| names.iter().map(|n| r[*n].clone()).collect::<Value>()).collect()
    };
    let mut left = got.to_vec();
    let all = wanted.iter().all(|w| left.iter().position(|g| same(w, g)).map(|i| left.remove(i)).is_some());
    all && left.is_empty() && (ordering != "by_keys" || same(&keys(wanted), &keys(got)))
}
