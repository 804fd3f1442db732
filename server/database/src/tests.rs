use super::*;

async fn both(run: impl AsyncFn(Database)) {
    let dir = tempfile::tempdir().unwrap();
    Box::pin(run(Database::sqlite(&dir.path().join("a.db")).await.unwrap())).await;
    let server = quiver_testpg::Postgres::start();
    let base = Database::postgres(&server.create("one")).await.unwrap();
    Box::pin(run(base.clone())).await;
    base.close().await;
}

#[tokio::test]
async fn statements_mean_the_same_in_both() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        writing
            .apply("CREATE TABLE t (n INTEGER NOT NULL PRIMARY KEY, s TEXT NOT NULL, b BLOB) STRICT;\nCREATE INDEX i ON t (s);")
            .await
            .unwrap();
        let insert = "INSERT INTO t (n, s, b) VALUES (?, ?, ?)";
        for (n, s) in [(1_i64, "b"), (2, "B"), (3, "ä?"), (1 << 40, "a'b")] {
            statement(insert).bind(n).bind(s).bind(vec![0_u8, 255]).execute(&mut writing).await.unwrap();
        }
        writing.commit().await.unwrap();
        let rows = statement("SELECT s FROM t ORDER BY s").fetch_all(&base).await.unwrap();
        let texts: Vec<String> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
        assert_eq!(texts, ["B", "a'b", "b", "ä?"], "by code points");
        let row = statement("SELECT n, b FROM t WHERE s = ? AND n > ?").bind("a'b").bind(0).fetch_one(&base).await.unwrap();
        assert_eq!((row.try_get::<i64>(0).unwrap(), row.try_get::<Vec<u8>>(1).unwrap()), (1 << 40, vec![0, 255]));
        let count = statement("SELECT count(*), max(n) FROM t WHERE s = ?").bind("a\0b").fetch_one(&base).await.unwrap();
        assert_eq!((count.try_get::<i64>(0).unwrap(), count.try_get::<Option<i64>>(1).unwrap()), (0, None));
        let taken = statement("INSERT INTO t (n, s) VALUES (?, ?) ON CONFLICT DO NOTHING").bind(1).bind("x");
        assert_eq!(taken.execute(&base).await.unwrap(), 0);
        // What is not committed never was.
        let mut writing = base.begin().await.unwrap();
        statement("DELETE FROM t").execute(&mut writing).await.unwrap();
        drop(writing);
        let mut writing = base.begin().await.unwrap();
        let left = statement("SELECT count(*) FROM t").fetch_one(&mut writing).await.unwrap();
        assert_eq!(left.try_get::<i64>(0).unwrap(), 4);
    })
    .await;
}

/// What fails within a transaction is taken back alone, also where the database itself refused a statement.
#[tokio::test]
async fn a_part_is_taken_back_alone() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        writing.apply("CREATE TABLE m (n INTEGER NOT NULL PRIMARY KEY) STRICT;").await.unwrap();
        let insert = |n: i64| statement("INSERT INTO m (n) VALUES (?)").bind(n);
        insert(1).execute(&mut writing).await.unwrap();
        writing.mark().await.unwrap();
        insert(2).execute(&mut writing).await.unwrap();
        insert(1).execute(&mut writing).await.unwrap_err();
        writing.take_back().await.unwrap();
        writing.mark().await.unwrap();
        insert(3).execute(&mut writing).await.unwrap();
        writing.keep_marked().await.unwrap();
        writing.commit().await.unwrap();
        let rows = statement("SELECT n FROM m ORDER BY n").fetch_all(&base).await.unwrap();
        let left: Vec<i64> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
        assert_eq!(left, [1, 3]);
    })
    .await;
}

#[tokio::test]
async fn there_is_one_writer_at_a_time() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        writing.apply("CREATE TABLE c (n INTEGER NOT NULL) STRICT; INSERT INTO c VALUES (0);").await.unwrap();
        writing.commit().await.unwrap();
        let add = || async {
            for _ in 0..20 {
                let mut writing = base.begin().await.unwrap();
                let n: i64 = statement("SELECT n FROM c").fetch_one(&mut writing).await.unwrap().try_get(0).unwrap();
                statement("UPDATE c SET n = ?").bind(n + 1).execute(&mut writing).await.unwrap();
                writing.commit().await.unwrap();
            }
        };
        tokio::join!(add(), add(), add());
        let n = statement("SELECT n FROM c").fetch_one(&base).await.unwrap().try_get::<i64>(0).unwrap();
        assert_eq!(n, 60);
        // One that waits for too long is told so, and may try again.
        let held = base.begin().await.unwrap();
        let error = base.begin().await.unwrap_err();
        assert!(is_passing(&error), "{error}");
        drop(held);
        base.begin().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_again() {
    let mut server = quiver_testpg::Postgres::start();
    let base = Database::postgres(&server.url("postgres")).await.unwrap();
    let ask = || async { statement("SELECT 1::bigint").fetch_one(&base).await };
    ask().await.unwrap();
    server.kill();
    let error = ask().await.unwrap_err();
    assert!(is_passing(&error), "{error}");
    let error = base.begin().await.unwrap_err();
    assert!(is_passing(&error), "{error}");
    server.resume();
    for _ in 0..10 {
        if ask().await.is_ok() {
            return;
        }
    }
    ask().await.unwrap();
}

#[tokio::test]
async fn a_file_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let base = Database::sqlite(&dir.path().join("a.db")).await.unwrap();
    statement("CREATE TABLE t (n INTEGER)").execute(&base).await.unwrap();
    for name in ["a.db", "a.db-wal"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
