//! Jobs: who carries out which.

use quiver_database::statement;

use super::*;

/// Breaks where servers over one database carry out each other's jobs: the telemetry that these are about is not shared, and
/// who ends first ends the job for the other one.
#[tokio::test]
async fn jobs_are_of_the_server_that_was_asked() {
    let fx = fixture().await;
    let queue = async |server: &str| {
        fx.clock.0.fetch_add(1, SeqCst);
        let job = NewJob { kind: "k", domain: "transactions", server: server.to_owned(), params: json!({}) };
        fx.config.queue_job(job, &Caller::system(), false).await
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

/// As many as may wait do so at each server.
#[tokio::test]
async fn so_many_jobs_wait() {
    let fx = fixture().await;
    let queue = async |server: &str| {
        let job = NewJob { kind: "k", domain: "transactions", server: server.to_owned(), params: json!({}) };
        fx.config.queue_job(job, &Caller::system(), false).await.map_err(|problem| problem.errors[0].code)
    };
    for _ in 0..100 {
        queue("a").await.unwrap();
    }
    assert_eq!(queue("a").await.unwrap_err(), "LIMIT_EXCEEDED");
    queue("b").await.unwrap();
}
