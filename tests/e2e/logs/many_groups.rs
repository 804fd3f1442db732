//! Grouping over scans that several threads read: many groups are merged in parallel, few in one place, with the same
//! results.

use quiver_tests::server::{Options, Server};

use super::query::{ask, rows, send};

const ROWS: usize = 140_000;
const USERS: usize = 50_000;

/// Row `n`, of one of many users and of one of three levels.
fn line(n: usize) -> String {
    let (user, level) = (n * 7 % USERS, ["info", "warn", "error"][n % 3]);
    // Half of the users have names that do not lie in their views.
    let name = if user % 2 == 0 { format!("u{user}") } else { format!("somebody with a long name: {user}") };
    format!(
        "{{\"_time\":{},\"_msg\":\"m\",\"app\":\"a\",\"user\":\"{name}\",\"level\":\"{level}\",\"n\":{n}}}\n",
        1_741_564_800 + n / 100
    )
}

async fn plan(server: &Server, query: &str) -> String {
    ask(server, "query", &[("query", query), ("explain", "true")]).await.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_groups_are_merged_side_by_side() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_QUERY__THREADS", "4")).await;
    for part in 0..2 {
        for piece in 0..7 {
            let of_part = (0..ROWS).filter(|n| n % 2 == part && n / 2 % 7 == piece);
            send(&server, "app", of_part.map(line).collect()).await;
        }
        server.flush().await;
    }
    let many = "* | stats by (user) count() c, sum(n) s";
    let sums = "stats count() users, sum(c) rows, sum(s) s, max(c) most, min(c) least";
    let answer = rows(&ask(&server, "query", &[("query", &format!("{many} | {sums}"))]).await);
    let whole = (ROWS - 1) * ROWS / 2;
    let figures = |name: &str| answer[0][name].as_str().map(str::to_owned);
    let expected = [("users", USERS), ("rows", ROWS), ("s", whole), ("most", 3), ("least", 2)];
    for (name, value) in expected {
        assert_eq!(figures(name), Some(value.to_string()), "{name}: {answer:?}");
    }
    let one = "* | stats by (user) count() c | filter user:in(u0, \"somebody with a long name: 7\") | sort by (user)";
    let found = rows(&ask(&server, "query", &[("query", one)]).await);
    let counts: Vec<_> = found.iter().map(|row| (row["user"].as_str(), row["c"].as_str())).collect();
    assert_eq!(counts, [(Some("somebody with a long name: 7"), Some("3")), (Some("u0"), Some("3"))]);
    let spread = plan(&server, many).await;
    assert!(spread.contains("FinalPartitioned") && spread.contains("RepartitionExec"), "{spread}");
    // What is known of the parts by now tells that there are few levels.
    let few = "* | stats by (level) count() c";
    let levels = rows(&ask(&server, "query", &[("query", &format!("{few} | sort by (level)"))]).await);
    let counts: Vec<_> = levels.iter().map(|row| row["c"].as_str().unwrap_or_default()).collect();
    assert_eq!(counts, ["46666", "46667", "46667"], "{levels:?}");
    let gathered = plan(&server, few).await;
    assert!(gathered.contains("CoalescePartitionsExec") && !gathered.contains("RepartitionExec"), "{gathered}");
}
