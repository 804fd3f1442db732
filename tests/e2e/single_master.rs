//! One store, one server, with real processes over a local store and S3: two first starts in the same millisecond, an old
//! copy of the database, a cloned data directory that runs at the same time.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quiver_tests::bodies::remote_write;
use quiver_tests::held_server::Hold;
use quiver_tests::s3::S3Server;
use quiver_tests::server::{Options, Server, binary, command, run};

const T0_MS: i64 = 1_700_000_000_000;

/// A place for objects: a folder, or a bucket with its server.
struct Place {
    options: Options,
    _folder: tempfile::TempDir,
    _s3: Option<S3Server>,
}

async fn places() -> [Place; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let local = Options::default().args(&["--store", &format!("file://{}", folder.path().display())]);
    let s3 = S3Server::start().await;
    [
        Place { options: local, _folder: folder, _s3: None },
        Place { options: s3.options(), _folder: tempfile::tempdir().expect("a folder"), _s3: Some(s3) },
    ]
}

async fn write(server: &Server, name: &str, i: i64) {
    server.write(remote_write(&[(vec![("__name__", name)], vec![(T0_MS + i * 1000, i as f64)])])).await;
}

async fn samples(server: &Server, name: &str) -> usize {
    let data = server.query(&format!("{name}[1h]"), (T0_MS / 1000 + 600) as f64).await;
    data["result"][0]["values"].as_array().map_or(0, Vec::len)
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("a copy");
        }
    }
}

/// Waits for one of two processes to end; gives its error output, and which one it was.
fn first_end(children: &mut [Child; 2]) -> (usize, String) {
    let began = Instant::now();
    loop {
        for (i, child) in children.iter_mut().enumerate() {
            if child.try_wait().expect("ours").is_some() {
                let mut text = String::new();
                let errors = child.stderr.as_mut().expect("piped");
                std::io::Read::read_to_string(errors, &mut text).expect("text");
                return (i, text);
            }
        }
        assert!(began.elapsed() < Duration::from_mins(5), "both run");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_first_starts_at_once_one_serves() {
    for place in places().await {
        // Where both wait for one another: before the identity, and before the epoch.
        for point in ["open.after-installation", "open.before-epoch"] {
            let dirs = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
            let (_, prefix) = point.split_once('.').expect("a name");
            let mut options = place.options.clone().env("QUIVER_LOG__FILTER", "off");
            options.args[1] = format!("{}/{prefix}", options.args[1]);
            let holds = [Hold::default(), Hold::default()];
            let mut children = [0, 1].map(|i| {
                let mut command = command(dirs[i].path(), &options.clone().env("QUIVER_FAILPOINT", holds[i].at(point)));
                command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs")
            });
            // One may have lost already on the way to the later point.
            let began = Instant::now();
            while !holds.iter().all(Hold::is_reached) && children.iter_mut().all(|c| matches!(c.try_wait(), Ok(None))) {
                assert!(began.elapsed() < Duration::from_mins(5), "{point}: they do not come there");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            holds.iter().for_each(Hold::release);
            let (loser, errors) = tokio::task::block_in_place(|| first_end(&mut children));
            assert!(errors.contains("quiver: ") && errors.contains("one server"), "{point}: {errors}");
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let winner = &mut children[1 - loser];
            assert!(winner.try_wait().expect("ours").is_none(), "{point}: the other one serves");
            winner.kill().expect("ours");
            let _ = winner.wait();
            let server = Server::start(dirs[1 - loser].path(), &options).await;
            write(&server, "m", 1).await;
            server.flush().await;
            let (code, _, errors) = run(&mut command(dirs[loser].path(), &options));
            assert_eq!(code, Some(1), "{point}: {errors}");
            assert_eq!(samples(&server, "m").await, 1);
            assert_eq!(server.stop(), Some(0));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_database_is_refused_and_can_be_rebuilt() {
    for place in places().await {
        let dir = tempfile::tempdir().expect("a folder");
        let options = place.options.clone();
        let server = Server::start(dir.path(), &options).await;
        write(&server, "m", 1).await;
        server.flush().await;
        assert_eq!(server.stop(), Some(0));
        let database = dir.path().join("quiver.db");
        let old = std::fs::read(&database).expect("a database");
        let server = Server::start(dir.path(), &options).await;
        write(&server, "m", 2).await;
        server.compact().await;
        assert_eq!(server.stop(), Some(0));
        std::fs::write(&database, old).expect("writable");
        let (code, _, errors) = run(&mut command(dir.path(), &options));
        assert_eq!(code, Some(1));
        assert!(errors.contains("quiver catalog rebuild"), "{errors}");
        let mut rebuild = Command::new(binary());
        rebuild.args(["catalog", "rebuild", "--data"]).arg(dir.path()).args(&options.args);
        rebuild.envs(options.env.iter().map(|(k, v)| (k, v)));
        let (code, out, errors) = run(&mut rebuild);
        assert_eq!(code, Some(0), "{out}{errors}");
        let server = Server::start(dir.path(), &options).await;
        assert_eq!(samples(&server, "m").await, 2);
        assert_eq!(server.stop(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloned_directory_ends_the_first_server() {
    for place in places().await {
        let (dir, clone) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let mut server = Server::start(dir.path(), &place.options).await;
        for i in 0..3 {
            write(&server, "m", i).await;
            server.flush().await;
        }
        copy_dir(dir.path(), clone.path());
        let later = Server::start(clone.path(), &place.options).await;
        write(&server, "n", 1).await;
        // Its next commit tells it.
        let answer = server.post("/admin/compact?force=true", &[], vec![]).await;
        assert_ne!(answer.status, 200, "{}", answer.text());
        assert_eq!(server.wait(), Some(1), "it ends, and not as if all were well");
        later.compact().await;
        assert_eq!(samples(&later, "m").await, 3, "nothing of it was deleted");
        write(&later, "m", 9).await;
        later.flush().await;
        let (code, _, errors) = run(&mut command(dir.path(), &place.options));
        assert_eq!(code, Some(1));
        assert!(errors.contains("quiver catalog rebuild"), "{errors}");
        assert_eq!(samples(&later, "m").await, 4);
        assert_eq!(later.stop(), Some(0));
    }
}
