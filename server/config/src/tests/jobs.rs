//! Jobs: who carries out which.

use quiver_database::statement;

use super::*;

/// Breaks if servers over one database carry out each other's jobs: the telemetry that these are about is not shared, and
/// who ends first ends the job for the other one.
#[tokio::test]
async fn jobs_are_of_the_server_that_was_asked() {
    let fx = fixture().await;
    let queue = async |server: &str| {
        fx.clock.0.fetch_add(1, SeqCst);
        let job = NewJob { kind: "k", domain: "transactions", server: server.to_owned(), params: json!({}) };
        fx.config.queue_job(job, &Caller::system(), ChangeMode::Apply).await
    };
    let (a, b) = (queue("a").await.unwrap(), queue("b").await.unwrap());
    // Of one alone are all: it may have been restored elsewhere.
    let expected = if fx.config.is_shared() { [Some(&a), Some(&b), None] } else { [Some(&a); 3] };
    for (server, expected) in ["a", "b", "c"].into_iter().zip(expected) {
        // What runs goes on before what waits.
        for _ in 0..2 {
            let next = fx.config.next_job(server).await.unwrap();
            assert_eq!(next.as_ref().map(|job| &job.id), expected.map(|job| &job.id), "{server}");
        }
    }
    let running = fx.config.next_job("a").await.unwrap().unwrap();
    fx.config.end_job(&running, None).await.unwrap();
    assert_eq!(fx.config.next_job("b").await.unwrap().unwrap().id, b.id);
    // An earlier build named none.
    statement("UPDATE job SET server = ''").execute(&fx.config.pool).await.unwrap();
    assert_eq!(fx.config.next_job("c").await.unwrap().unwrap().id, b.id);
}

/// Nobody else has what the job of a server is about: it waited for ever where that server was gone.
#[tokio::test]
async fn jobs_of_a_server_that_is_gone_end() {
    let fx = fixture().await;
    let queue = async |server: &str| {
        let job = NewJob { kind: "k", domain: "transactions", server: server.to_owned(), params: json!({}) };
        fx.config.queue_job(job, &Caller::system(), ChangeMode::Apply).await.unwrap()
    };
    let (own, gone, of_anybody) = (queue("a").await, queue("b").await, queue("").await);
    let mut held = fx.config.next_job("b").await.unwrap().unwrap();
    fx.clock.0.fetch_add(3_600_000, SeqCst);
    assert_eq!(fx.config.end_jobs_of_others("a").await.unwrap(), 0, "b may come back");
    fx.config.hold_jobs("b").await.unwrap();
    fx.clock.0.fetch_add(3_600_000, SeqCst);
    assert_eq!(fx.config.end_jobs_of_others("a").await.unwrap(), 0, "b was back");
    fx.clock.0.fetch_add(1, SeqCst);
    let state = async |job: &Job| fx.config.job(&job.id).await.unwrap().unwrap().state;
    if !fx.config.is_shared() {
        // What a copy of a database brings along is carried out.
        assert_eq!(fx.config.end_jobs_of_others("a").await.unwrap(), 0);
        assert_eq!(state(&gone).await, "queued");
        return;
    }
    assert_eq!(fx.config.end_jobs_of_others("a").await.unwrap(), 1);
    assert_eq!([state(&own).await, state(&gone).await, state(&of_anybody).await], ["queued", "failed", "queued"]);
    let shown = fx.config.job(&gone.id).await.unwrap().unwrap().shown();
    assert!(shown["error"].as_str().unwrap().contains("away for an hour"), "{shown}");
    assert!(shown["finishedAt"].is_string(), "{shown}");
    // It comes back, and finds that its job is over.
    held.checkpoint = json!({"day": 1});
    assert!(!fx.config.advance_job(&held).await.unwrap());
    fx.config.end_job(&held, None).await.unwrap();
    assert_eq!(state(&gone).await, "failed");
}

/// As many as may wait do so at each server.
#[tokio::test]
async fn so_many_jobs_wait() {
    let fx = fixture().await;
    let queue = async |server: &str| {
        let job = NewJob { kind: "k", domain: "transactions", server: server.to_owned(), params: json!({}) };
        fx.config.queue_job(job, &Caller::system(), ChangeMode::Apply).await.map_err(|problem| problem.errors[0].code)
    };
    for _ in 0..100 {
        queue("a").await.unwrap();
    }
    assert_eq!(queue("a").await.unwrap_err(), "LIMIT_EXCEEDED");
    queue("b").await.unwrap();
}
