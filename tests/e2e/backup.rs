//! `quiver backup` and `quiver restore` on the command line: of a running and of a stopped server, between local stores
//! and S3.

use std::path::Path;
use std::process::Command;

use quiver_tests::bodies::remote_write;
use quiver_tests::s3::S3Server;
use quiver_tests::server::{Options, Server, binary, run};

const T0_MS: i64 = 1_700_000_000_000;

/// Runs a command of the binary; gives what it printed.
fn quiver(words: &[&str], data: &Path, options: &Options) -> Result<String, String> {
    let mut command = Command::new(binary());
    command.args(words).arg("--data").arg(data).args(&options.args);
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    match run(&mut command) {
        (Some(0), out, _) => Ok(out),
        (_, out, errors) => Err(format!("{out}{errors}")),
    }
}

/// Brings the master key of a server to where its backup is restored, as an operator does.
fn bring_key(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    std::fs::copy(from.join("master-key"), to.join("master-key")).expect("a key");
}

async fn write(server: &Server, i: i64) {
    server.write(remote_write(&[(vec![("__name__", "m")], vec![(T0_MS + i * 1000, i as f64)])])).await;
    let row = format!("{{\"_time\":\"{}\",\"_msg\":\"row {i}\"}}", T0_MS + i * 1000).into_bytes();
    assert_eq!(server.post("/insert/jsonline", &[], row).await.status, 200);
}

async fn holds(data: &Path, options: &Options, expected: usize) {
    let server = Server::start(data, options).await;
    let samples = server.query("m[1h]", (T0_MS / 1000 + 600) as f64).await;
    assert_eq!(samples["result"][0]["values"].as_array().map_or(0, Vec::len), expected);
    let rows = server.get_with("/logs-api/select/logsql/query", &[("query", "*"), ("start", "0")]).await.text();
    assert_eq!(rows.lines().count(), expected, "{rows}");
    assert_eq!(server.stop(), Some(0));
    quiver(&["store", "check"], data, options).expect("store and catalog agree");
}

/// A name that is misspelt is no installation, and becomes none.
#[test]
fn where_no_server_has_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let (empty, nowhere, place) = (dir.path().join("empty"), dir.path().join("nowhere"), dir.path().join("backups"));
    std::fs::create_dir(&empty).expect("a folder");
    let to = place.display().to_string();
    let commands = [
        vec!["backup", "--to", to.as_str()],
        vec!["catalog", "rebuild"],
        vec!["store", "check"],
        vec!["store", "undrop"],
        vec!["sql", "select 1"],
    ];
    for words in commands {
        for data in [&empty, &nowhere] {
            let out = quiver(&words, data, &Options::default()).expect_err("no server has run");
            let told = format!("no server has run over the data directory `{}`", data.display());
            let is_served = matches!(words[0], "backup" | "sql");
            assert!(out.contains(&told) && out.contains("`--server`") == is_served, "{words:?}: {out}");
        }
    }
    assert!(!nowhere.exists() && !place.exists());
    assert_eq!(std::fs::read_dir(&empty).expect("it is there").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn between_local_stores_and_s3() {
    let (from, to, more) = (S3Server::start().await, S3Server::start().await, tempfile::tempdir().expect("a folder"));
    let dir = |name: &str| more.path().join(name);
    let local = Options::default();
    for (name, source) in [("local", &local), ("s3", &from.options())] {
        let data = dir(name);
        let place = dir(&format!("{name}-backups")).display().to_string();
        let server = Server::start(&data, source).await;
        write(&server, 1).await;
        let out = quiver(&["backup", "--to", &place], &data, source).expect_err("the server runs");
        assert!(out.contains("--server"), "{out}");
        let out = quiver(&["backup", "--to", &place, "--server", &server.http], &data, source).expect("a backup");
        assert!(out.contains("backup `"), "{out}");
        write(&server, 2).await;
        // What a kill leaves in the WAL is in a backup of the stopped server, too.
        server.kill();
        quiver(&["backup", "--to", &place, "--keep", "5"], &data, source).expect("a second one");
        let out = quiver(&["restore", "--from", &format!("{place}/none"), "--list"], &dir("none"), source);
        let out = out.expect_err("there is none");
        assert!(out.contains("there is no backup at"), "{out}");
        let names = quiver(&["restore", "--from", &place, "--list"], &dir("none"), source).expect("names");
        let names: Vec<&str> = names.lines().collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let first = dir(&format!("{name}-first"));
        bring_key(&data, &first);
        quiver(&["restore", "--from", &place, "--at", names[0]], &first, &local).expect("restored");
        holds(&first, &local, 1).await;
        let out = quiver(&["restore", "--from", &place], &first, &local).expect_err("it is not empty");
        assert!(out.contains("restore into an empty one"), "{out}");
        let mut elsewhere = to.options();
        elsewhere.args[1] = format!("{}/{name}", to.url());
        let second = dir(&format!("{name}-second"));
        bring_key(&data, &second);
        quiver(&["restore", "--from", &place], &second, &elsewhere).expect("restored into S3");
        holds(&second, &elsewhere, 2).await;
        holds(&data, source, 2).await;
    }
    // Into S3 and back: the same server holds store and backups, below other prefixes.
    let data = dir("s3");
    let place = from.url().replace("some/where", "backups");
    quiver(&["backup", "--to", &place], &data, &from.options()).expect("a backup in S3");
    let back = dir("back");
    bring_key(&data, &back);
    let mut aws = Options { args: Vec::new(), ..from.options() };
    aws.args = Vec::new();
    quiver(&["restore", "--from", &place], &back, &aws).expect("restored from S3");
    holds(&back, &local, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_server_that_asks_for_a_token() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("token");
    std::fs::write(&file, "s3cret-token\n").expect("writable");
    let (settings, none) =
        (Options::default().env("QUIVER_HTTP__ADMIN_TOKEN_FILE", file.display()), Options::default());
    let data = dir.path().join("data");
    let server = Server::start(&data, &settings).await;
    let place = dir.path().join("backups").display().to_string();
    let words = ["backup", "--to", &place, "--server", &server.http];
    let out = quiver(&words, &data, &none).expect_err("without the token");
    assert!(out.contains("401") && out.contains("`http.admin_token_file`"), "{out}");
    let out = quiver(&words, &data, &settings).expect("with the settings of the server");
    assert!(out.contains("backup `") && !out.contains("s3cret"), "{out}");
    std::fs::write(&file, "s3cret-token\nX-More: 1").expect("writable");
    let out = quiver(&words, &data, &settings).expect_err("no header can hold it");
    assert!(out.contains("more than one line") && !out.contains("s3cret"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("data"), &Options::default()).await;
    let json = [("content-type", "application/json")];
    for (headers, body, status, part) in [
        (&[][..], "{\"to\":\"x\"}", 415, "application/json"),
        (&json[..], "{}", 400, "missing field `to`"),
        (&json[..], "{\"to\":\"\"}", 400, "name a folder or URL"),
        (&json[..], "{\"to\":\"gs://x/y\"}", 400, "`gs` is not supported"),
        (&json[..], "{\"to\":\"/x\",\"keep\":0}", 400, "keep at least itself"),
        (&json[..], "{\"to\":\"backups\"}", 400, "`to` is `backups`; a folder of the server's machine"),
    ] {
        let answer = server.post("/admin/backup", headers, body.as_bytes().to_vec()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.text().contains(part), "{body}: {}", answer.text());
    }
    let nowhere = dir.path().join("nowhere").display().to_string();
    let out = quiver(&["restore", "--from", &nowhere], &dir.path().join("new"), &Options::default()).expect_err("none");
    assert!(out.contains("holds no backup"), "{out}");
}
