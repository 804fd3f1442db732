//! Silences: changed each by itself, and stored before they hold.

use super::*;

/// Those that cannot be changed cost no more than those that can, and leave the others alone.
#[tokio::test]
async fn silences_are_changed_each_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    let silence = |ends_s: i64| Silence {
        matchers: Matchers::new(read("alertname=C").unwrap().matchers),
        ends_at: ends_s * 1000 * MS,
        ..Silence::default()
    };
    let new = |n: usize| SilenceOp::Set {
        silence: Box::new(silence(if n.is_multiple_of(3) { 3000 } else { 10 })),
        id: Some(format!("{n}")),
        expected: None,
    };
    for mode in [ChangeMode::DryRun, ChangeMode::Apply] {
        let made = router.change_each((0..250).map(new).collect(), "me", mode).await.unwrap();
        assert!(made.iter().enumerate().all(|(n, one)| one.is_ok() == n.is_multiple_of(3)), "{made:?}");
        assert_eq!(router.silences().len(), if mode.is_dry_run() { 0 } else { 84 });
    }
    let gone = vec![
        SilenceOp::Expire { id: "none".into(), expected: None },
        SilenceOp::Expire { id: "3".into(), expected: None },
    ];
    let made = router.change_each(gone, "me", ChangeMode::Apply).await.unwrap();
    assert!(matches!(made.as_slice(), [Err(SilenceError::NotFound), Ok(_)]));
    let again = open(dir.path(), POLICY, &clock).await;
    assert_eq!(again.silences().len(), 84, "they are kept");
}

/// A silence that was refused and mutes all the same hides alerts from who relies on them.
#[tokio::test]
async fn silences_that_cannot_be_stored_are_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    let file = SqliteConnectOptions::new().filename(dir.path().join("alerts.db"));
    let database = SqlitePool::connect_with(file).await.unwrap();
    let new = |comment: &str| SilenceOp::Set {
        silence: Box::new(Silence {
            matchers: Matchers::new(read("alertname=C").unwrap().matchers),
            ends_at: 3_000_000 * MS,
            comment: comment.to_owned(),
            ..Silence::default()
        }),
        id: None,
        expected: None,
    };
    let mut done = router.change_silences(vec![new("kept")], "me", ChangeMode::Apply).await.unwrap();
    let kept = done.remove(0).after;
    let full = "CREATE TRIGGER full BEFORE INSERT ON kept BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    sqlx::query(full).execute(&database).await.unwrap();
    let expire = || SilenceOp::Expire { id: kept.id.clone(), expected: None };
    let changed = || {
        let silence = Silence { comment: "changed".to_owned(), ..kept.clone() };
        SilenceOp::Set { silence: Box::new(silence), id: None, expected: None }
    };
    let refused = router.change_silences(vec![changed(), expire(), new("all")], "me", ChangeMode::Apply).await;
    assert!(matches!(&refused, Err((0, SilenceError::Failed(e))) if e.kind == ErrorKind::Unavailable), "{refused:?}");
    let refused = router.change_each(vec![expire(), new("each")], "me", ChangeMode::Apply).await;
    assert!(matches!(refused, Err(SilenceError::Failed(_))), "{refused:?}");
    assert_eq!(router.silences(), [Arc::new(kept.clone())], "all is as it was");
    sqlx::query("DROP TRIGGER full").execute(&database).await.unwrap();
    router.change_silences(vec![changed()], "me", ChangeMode::Apply).await.unwrap();
    let now = router.silences();
    assert_eq!((now.len(), now[0].comment.as_str(), now[0].version), (1, "changed", kept.version + 1));
    let large = router.change_silences(vec![new(&"x".repeat(1 << 20))], "me", ChangeMode::Apply).await;
    assert!(matches!(&large, Err((0, SilenceError::Invalid(why))) if why.contains("1048576 bytes")), "{large:?}");
}
