//! Row rights against an oracle (`identity-and-access` 4.3): a caller who may see some services only gets the same as an
//! unrestricted caller gets from a server that has only these services' data. Whatever the query, the language, and the
//! state of the data.
//!
//! Statuses and error texts are part of a response: they, too, must disclose nothing about other rows.

mod comparison;
mod fill;
mod questions;
mod statements;

/// Begin and length of the data: the grammar of `PromQL` draws times from it.
mod data {
    /// 2026-03-01 22:00 UTC.
    pub(crate) const START_MS: i64 = 1_772_402_400_000;
    /// How long the data is.
    pub(crate) const LENGTH_MS: i64 = 100 * 60_000;
}

#[allow(dead_code, reason = "shared with the comparison with Prometheus")]
#[path = "../clients/differential/grammar.rs"]
mod grammar;
#[allow(dead_code, reason = "shared with the fuzzers")]
#[path = "../fuzz/logsql_query.rs"]
mod logsql_query;

use std::sync::Arc;

use futures::StreamExt;
use quiver_tests::load::{seed, soak};
use quiver_tests::server::{Options, Server};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;

use crate::identity::{PASSWORD, bearer, login, user, with_password};
use questions::{Case, Maker};

/// Services of the data.
pub(crate) const SERVICES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// What callers may see.
const SEEN: [&[&str]; 2] = [&["a"], &["b", "d", "e"]];
/// Cases of each state of the data.
const CASES: usize = 260;
const CASES_LONG: usize = 3_400;
/// Questions at once.
const AT_ONCE: usize = 6;

/// A caller, and a server on which nothing is but what it may see.
struct Pair {
    who: String,
    only: Server,
    _dir: tempfile::TempDir,
}

async fn pair(server: &Server, admin: &str, services: &[&str], options: &Options) -> Pair {
    let name = format!("viewer-{}", services.concat());
    user(server, admin, &name, "viewer", json!(services)).await;
    let who = bearer(&login(server, &name, PASSWORD).await);
    let dir = tempfile::tempdir().expect("a folder");
    let only = Server::start(dir.path(), options).await;
    Pair { who, only, _dir: dir }
}

/// Asks both; what differs.
async fn differs(server: &Server, pair: &Pair, case: &Case) -> Option<String> {
    let (seen, expected) = futures::future::join(case.ask(server, Some(&pair.who)), case.ask(&pair.only, None)).await;
    comparison::differs(case, &seen, &expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_sees_what_there_would_be() {
    let seed = seed("a_caller_sees_what_there_would_be");
    let (dir, retention) = (tempfile::tempdir().expect("a folder"), ["--retention", "none"]);
    let server = Server::start(dir.path(), &with_password().args(&retention)).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let mut pairs = Vec::new();
    for services in SEEN {
        pairs.push(pair(&server, &admin, services, &Options::default().args(&retention)).await);
    }
    let cases = if soak() { CASES_LONG } else { CASES };
    let mut maker = Maker::new(StdRng::seed_from_u64(seed));
    let mut found = Vec::new();
    for (round, state) in ["live", "flushed", "compacted"].into_iter().enumerate() {
        // Each state has what the one before had, and more that is live.
        fill::fill(&server, Some(&admin), &SERVICES, seed, round).await;
        for (pair, services) in pairs.iter().zip(SEEN) {
            fill::fill(&pair.only, None, services, seed, round).await;
        }
        if state != "live" {
            let path = if state == "flushed" { "/admin/flush" } else { "/admin/compact" };
            let servers = pairs.iter().map(|p| (&p.only, "")).chain([(&server, admin.as_str())]);
            for (server, who) in servers {
                let answer = server.post("/admin/flush", &[("authorization", who)], vec![]).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let answer = server.post(path, &[("authorization", who)], vec![]).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        }
        let mut all = statements::twice();
        all.extend(if round == 0 { questions::fixed() } else { Vec::new() });
        all.extend((0..cases).map(|n| maker.case(n)));
        let (server, pairs) = (&server, Arc::new(&pairs));
        let asked = futures::stream::iter(all.into_iter().enumerate()).map(|(n, case)| {
            let pairs = Arc::clone(&pairs);
            async move {
                let difference = differs(server, &pairs[n % pairs.len()], &case).await?;
                Some(format!("{state} {case}\n  {difference}"))
            }
        });
        found.extend(asked.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect::<Vec<_>>().await);
        if round == 0 {
            maker.must_have_asked_well(&pairs[0].only).await;
        }
    }
    let shown: Vec<&String> = found.iter().take(10).collect();
    assert!(found.is_empty(), "seed {seed}: {} of {} differ\n{shown:#?}", found.len(), 3 * cases);
}
