use datafusion::logical_expr::{LogicalPlanBuilder, lit};
use futures::StreamExt as _;
use quiver_types::Access;

use super::*;
use crate::{Explain, Limits, QueryInfo, Rules};

fn engine(concurrent_max: usize) -> Arc<QueryEngine> {
    let settings = EngineSettings { threads: 2, concurrent_max, ..EngineSettings::small(1 << 20) };
    QueryEngine::new(&settings).unwrap()
}

fn context(timeout_ms: u64) -> QueryContext {
    let limits = Limits { timeout: Duration::from_millis(timeout_ms), ..Limits::default() };
    QueryContext::new(Access::full(), limits)
}

#[tokio::test]
async fn exchanges_put_few_rows_together_in_little_memory() {
    assert_eq!(engine(1).state.config().batch_size(), 1024);
    let much = QueryEngine::new(&EngineSettings::small(1 << 30)).unwrap();
    assert_eq!(much.state.config().batch_size(), 8192);
}

#[tokio::test]
async fn runs_and_explains() {
    let engine = engine(2);
    let plan = LogicalPlanBuilder::values(vec![vec![lit(1)], vec![lit(2)]]).unwrap().build().unwrap();
    let ctx = context(5_000);
    let (e, p, c) = (Arc::clone(&engine), plan.clone(), ctx.clone());
    let rows = engine
        .run(&ctx, async move {
            let mut stream = e.execute(&p, &c, Rules::Direct).await?;
            let mut rows = 0;
            while let Some(batch) = stream.next().await {
                rows += batch.map_err(from_datafusion)?.num_rows();
            }
            Ok(rows)
        })
        .await
        .unwrap();
    assert_eq!(rows, 2);
    let shown = engine.explain(&plan, &context(5_000), Rules::Direct, Explain::Analyze).await.unwrap();
    assert!(shown["logical"].as_str().unwrap().contains("Values"), "{shown}");
    assert!(shown["nodes"][0]["name"].is_string(), "{shown}");
}

#[tokio::test]
async fn look_ups_go_on_as_long_as_any_run_does() {
    let engine = engine(2);
    let call = context(5_000);
    let run = || {
        let mut ctx = call.clone();
        ctx.cancel = call.cancel.child_token();
        let (engine, stats) = (Arc::clone(&engine), Arc::clone(&ctx.stats));
        async move {
            let looked_up = async move { stats.take(10).and_then(|()| stats.check()) };
            engine.run(&ctx, looked_up).await
        }
    };
    run().await.expect("the first run");
    assert_eq!(call.stats.check().unwrap_err().kind, ErrorKind::Cancelled, "it is over");
    run().await.expect("the second run of the same call");
    assert_eq!(engine.memory_reserved(), 20, "what both took is given back with the call");
    drop(call);
    assert_eq!(engine.memory_reserved(), 0);
}

/// Work that takes all the turns that it gets.
async fn busy<T>() -> T {
    loop {
        tokio::task::coop::consume_budget().await;
    }
}

#[tokio::test]
async fn busy_work_sees_its_deadline() {
    for _ in 0..20 {
        let engine = engine(1);
        let error = engine.run(&context(30), busy::<Result<()>>()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        // Else its caller left it behind, as happens where this thread has no turn for long.
        if engine.used().failed.load(Relaxed) > 0 {
            return;
        }
    }
    panic!("it never ended by itself");
}

#[tokio::test]
async fn deadline_cancel_panic_and_queue() {
    let engine = engine(1);
    let forever = || async {
        std::future::pending::<()>().await;
        Ok(())
    };
    let error = engine.run(&context(30), forever()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    let ctx = context(60_000);
    let cancel = ctx.cancel.clone();
    tokio::spawn(async move { cancel.cancel() });
    assert_eq!(engine.run(&ctx, forever()).await.unwrap_err().kind, ErrorKind::Cancelled);
    let error = engine.run(&context(60_000), async { panic!("boom") as Result<()> }).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    let (long, long_ctx) = (Arc::clone(&engine), context(60_000));
    let first = tokio::spawn(async move { long.run(&long_ctx, forever()).await });
    while engine.used().running.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let error = engine.run(&context(30), async { Ok(()) }).await.unwrap_err();
    assert!(error.message.contains("queue"), "{error}");
    first.abort();
    assert!(engine.run(&context(60_000), async { Ok(()) }).await.is_ok(), "the place is free again");
    while engine.used().cancelled.load(Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    let used = engine.used();
    let counted = (used.started.load(Relaxed), used.failed.load(Relaxed), used.cancelled.load(Relaxed));
    assert_eq!(counted, (6, 3, 2), "two time-outs and a panic failed, one was told to stop, one lost its caller");
}

#[tokio::test]
async fn who_comes_to_a_long_line_is_refused_at_once() {
    let settings = EngineSettings { threads: 2, waiting_max: 1, ..EngineSettings::small(1 << 20) };
    let engine = QueryEngine::new(&settings).unwrap();
    let forever = || {
        let (engine, ctx) = (Arc::clone(&engine), context(60_000));
        tokio::spawn(async move { engine.run(&ctx, std::future::pending::<Result<()>>()).await })
    };
    let until = async |gauge: fn(&QueryUse) -> u64, wanted: u64| {
        while gauge(engine.used()) != wanted {
            tokio::task::yield_now().await;
        }
    };
    let first = forever();
    until(|used| used.running.load(Relaxed), 1).await;
    let second = forever();
    until(|used| used.waiting.load(Relaxed), 1).await;
    let error = engine.run(&context(60_000), async { Ok(()) }).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    second.abort();
    until(|used| used.waiting.load(Relaxed), 0).await;
    first.abort();
    assert!(engine.run(&context(60_000), async { Ok(()) }).await.is_ok(), "the line is empty again");
}

/// It would be refused what the other one holds, after it has begun.
#[tokio::test]
async fn a_query_waits_for_what_it_took_before() {
    let settings = EngineSettings { threads: 2, concurrent_max: 4, ..EngineSettings::small(1 << 20) };
    let engine = QueryEngine::new(&settings).unwrap();
    let run = |lasts: bool| {
        let limits = Limits { timeout: Duration::from_mins(1), ..Limits::default() };
        let asked = QueryInfo::default().with_text("large");
        let (engine, ctx) = (Arc::clone(&engine), QueryContext::asked(Access::full(), limits, asked));
        let rows = engine.collected("rows", &ctx);
        let work = async move {
            rows.add(500 << 10)?;
            if lasts {
                std::future::pending::<()>().await;
            }
            Ok(())
        };
        tokio::spawn(async move { engine.run(&ctx, work).await })
    };
    run(false).await.unwrap().unwrap();
    let first = run(true);
    while engine.used().running.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let second = run(false);
    while engine.used().waiting.load(Relaxed) == 0 && !second.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(!second.is_finished(), "it began beside the other one");
    first.abort();
    second.await.unwrap().unwrap();
}

/// The query that comes first after one that filled the process finds the memory of it.
#[tokio::test]
async fn a_query_that_begins_waits_for_what_an_ended_one_held() {
    let settings = EngineSettings { threads: 2, ..EngineSettings::small(1 << 20) };
    let engine = QueryEngine::new(&settings).unwrap();
    let mut begun_short = true;
    // A machine that stands still for a second while it waits makes it begin all the same.
    for _ in 0..4 {
        settings.pressure.tell(true);
        let pressure = Arc::clone(&settings.pressure);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            pressure.tell(false);
        });
        let seen = Arc::clone(&settings.pressure);
        begun_short = engine.run(&context(60_000), async move { Ok(seen.is_short()) }).await.unwrap();
        if !begun_short {
            break;
        }
    }
    assert!(!begun_short, "it began while memory was short");
    settings.pressure.tell(true);
    let error = engine.run(&context(30), async { Ok(()) }).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert!(engine.run(&context(60_000), async { Ok(()) }).await.is_ok(), "what is no query's may last");
}
