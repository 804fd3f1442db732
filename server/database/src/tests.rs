use futures::StreamExt as _;
use futures::stream::BoxStream;

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

/// A statement runs when it is awaited, not when it is made: who gives up before has changed nothing.
#[tokio::test]
async fn what_nobody_awaits_does_nothing() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        writing.apply("CREATE TABLE l (n INTEGER NOT NULL PRIMARY KEY) STRICT;").await.unwrap();
        drop(statement("INSERT INTO l (n) VALUES (1)").execute(&mut writing));
        drop(writing.apply("DROP TABLE l;"));
        writing.commit().await.unwrap();
        drop(base.begin());
        // Nobody holds the lock of writers.
        statement("INSERT INTO l (n) VALUES (2)").execute(&mut base.begin().await.unwrap()).await.unwrap();
        let left = statement("SELECT count(*) FROM l").fetch_one(&base).await.unwrap();
        assert_eq!(left.try_get::<i64>(0).unwrap(), 0, "the last one was not committed");
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

/// Breaks if changes are acknowledged that the next start cannot find.
#[tokio::test]
async fn a_file_that_was_taken_away_takes_no_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (path, aside) = (dir.path().join("a.db"), dir.path().join("aside.db"));
    let base = Database::sqlite(&path).await.unwrap();
    let mut held = base.acquire().await.unwrap();
    statement("CREATE TABLE t (n INTEGER)").execute(&mut held).await.unwrap();
    let refused = async |what: &str| {
        let error = base.begin().await.unwrap_err();
        assert!(is_passing(&error) && error.to_string().contains(what), "{error}");
    };
    std::fs::rename(&path, &aside).unwrap();
    refused("a.db` is gone").await;
    // A connection that is opened now makes no file.
    let error = base.acquire().await.unwrap_err();
    assert!(is_passing(&error) && !path.exists(), "{error}");
    std::fs::write(&path, "").unwrap();
    refused("is another file").await;
    std::fs::rename(&aside, &path).unwrap();
    let mut writing = base.begin().await.unwrap();
    statement("INSERT INTO t VALUES (1)").execute(&mut writing).await.unwrap();
    writing.commit().await.unwrap();
    assert_eq!(numbers(statement("SELECT n FROM t").fetch(&base)).await, [1]);
}

async fn numbers(rows: BoxStream<'_, Result<Row, Error>>) -> Vec<i64> {
    rows.map(|row| row.unwrap().try_get::<i64>(0).unwrap()).collect().await
}

/// A snapshot shows what was there when it began, whatever others write meanwhile.
#[tokio::test]
async fn a_snapshot_stays_as_it_was() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        writing
            .apply("CREATE TABLE s (n INTEGER NOT NULL PRIMARY KEY) STRICT; INSERT INTO s VALUES (1);")
            .await
            .unwrap();
        writing.commit().await.unwrap();
        let mut snapshot = base.snapshot().await.unwrap();
        let mut writing = base.begin().await.unwrap();
        statement("INSERT INTO s (n) VALUES (?)").bind(2_i64).execute(&mut writing).await.unwrap();
        writing.commit().await.unwrap();
        let all = || statement("SELECT n FROM s ORDER BY n");
        assert_eq!(numbers(all().fetch_on(&mut snapshot)).await, [1]);
        drop(snapshot);
        assert_eq!(numbers(all().fetch(&base)).await, [1, 2]);
    })
    .await;
}

#[tokio::test]
async fn pages_come_as_one() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        writing.apply("CREATE TABLE p (n INTEGER NOT NULL PRIMARY KEY, s TEXT) STRICT;").await.unwrap();
        for (n, s) in [(1_i64, Some("a\"b")), (1 << 53, None), (3, Some("ä\n"))] {
            let text = s.map_or(Argument::Null(Holds::Text), Argument::from);
            let insert = statement("INSERT INTO p (n, s) VALUES (?, ?)").bind(n).bind(text);
            insert.execute(&mut writing).await.unwrap();
        }
        writing.commit().await.unwrap();
        let page = |from: i64| statement("SELECT n, s FROM p WHERE n >= ? ORDER BY n").bind(from);
        let rows = page(1).fetch_packed("n, s", &base).await.unwrap();
        let read = |row: &Row| (row.try_get::<i64>(0).unwrap(), row.try_get::<Option<String>>(1).unwrap());
        let found: Vec<(i64, Option<String>)> = rows.iter().map(read).collect();
        assert_eq!(found, [(1, Some("a\"b".to_owned())), (3, Some("ä\n".to_owned())), (1 << 53, None)]);
        assert_eq!((rows[0].len(), rows[0].is_empty()), (2, false));
        // A text is no number, and there is no third column.
        assert!(rows[0].try_get::<i64>(1).is_err() && rows[0].try_get::<i64>(2).is_err());
        assert!(page(i64::MAX).fetch_packed("n, s", &base).await.unwrap().is_empty());
    })
    .await;
}

const TABLE: Table = Table {
    name: "k",
    columns: &[("id", Holds::Text), ("n", Holds::Number), ("b", Holds::Bytes)],
    key: "id, n",
    sealed: false,
};

#[tokio::test]
async fn tables_are_carried_as_data() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        let sql = "CREATE TABLE k (id TEXT NOT NULL, n INTEGER NOT NULL, b BLOB, PRIMARY KEY (id, n)) STRICT;";
        writing.apply(sql).await.unwrap();
        let rows = vec![
            vec![Argument::from("b"), Argument::from(1_i64), Argument::Null(Holds::Bytes)],
            vec![Argument::from("a"), Argument::from(2_i64), Argument::from(vec![0_u8, 1])],
        ];
        TABLE.insert(&mut writing, &["id", "n", "b"], rows.clone()).await.unwrap();
        TABLE.insert(&mut writing, &["id", "n"], Vec::new()).await.unwrap();
        let read = statement(TABLE.select()).fetch_all(&mut writing).await.unwrap();
        let read: Vec<Vec<Argument>> = read.iter().map(|row| TABLE.read(row).unwrap()).collect();
        assert_eq!(read, [rows[1].clone(), rows[0].clone()], "by its key");
        assert_eq!((TABLE.column("n"), TABLE.column("x")), (Some(&("n", Holds::Number)), None));
        // What a column holds is not taken for something else.
        let wrong = Table { columns: &[("n", Holds::Text)], ..TABLE };
        let row = statement(wrong.select()).fetch_one(&mut writing).await.unwrap();
        wrong.read(&row).unwrap_err();
        TABLE.clear(&mut writing).await.unwrap();
        writing.commit().await.unwrap();
        assert!(statement(TABLE.select()).fetch_all(&base).await.unwrap().is_empty());
    })
    .await;
}

/// What passes by itself is tried again by whoever asks, so what does not must not be taken for it.
#[tokio::test]
async fn faults_that_stay_are_told_apart() {
    both(async |base| {
        let mut writing = base.begin().await.unwrap();
        writing
            .apply("CREATE TABLE u (n INTEGER NOT NULL PRIMARY KEY) STRICT; INSERT INTO u VALUES (1);")
            .await
            .unwrap();
        writing.commit().await.unwrap();
        let insert = |n: i64| statement("INSERT INTO u (n) VALUES (?)").bind(n);
        let taken = insert(1).execute(&base).await.unwrap_err();
        let unread = statement("SELEC 1").execute(&base).await.unwrap_err();
        let none = statement("SELECT n FROM u WHERE n = ?").bind(7_i64).fetch_one(&base).await.unwrap_err();
        for error in [taken, unread, none] {
            assert!(!is_passing(&error), "{error}");
        }
        let mut writing = base.begin().await.unwrap();
        insert(2).execute(&mut writing).await.unwrap();
        writing.rollback().await.unwrap();
        assert_eq!(numbers(statement("SELECT n FROM u").fetch(&base)).await, [1]);
        base.close().await;
        let closed = statement("SELECT n FROM u").fetch_one(&base).await.unwrap_err();
        assert!(is_passing(&closed), "{closed}");
    })
    .await;
}

/// Would fail if connections kept as many pages in a small process as in a large one.
#[tokio::test]
async fn pages_are_kept_within_the_memory_of_the_process() {
    for (memory_bytes, kib) in
        [(0, 1024), (256 << 20, 1024), (512 << 20, 2048), (2 << 30, 8192), (64 << 30, 8192), (u64::MAX, 8192)]
    {
        let dir = tempfile::tempdir().unwrap();
        let base = Database::sqlite_within(&dir.path().join("a.db"), memory_bytes).await.unwrap();
        let row = statement("PRAGMA cache_size").fetch_one(&base).await.unwrap();
        assert_eq!(row.try_get::<i64>(0).unwrap(), -kib, "{memory_bytes}");
        base.close().await;
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    assert_eq!((damage(&path), is_empty(&path)), (None, false), "it is not there");
    let base = Database::sqlite(&path).await.unwrap();
    assert_eq!((damage(&path), is_empty(&path)), (None, false));
    let mut writing = base.begin().await.unwrap();
    writing.apply("CREATE TABLE t (b BLOB) STRICT;").await.unwrap();
    statement("INSERT INTO t VALUES (zeroblob(100000))").execute(&mut writing).await.unwrap();
    writing.commit().await.unwrap();
    base.close().await;
    assert_eq!(damage(&path), None);
    let whole = std::fs::read(&path).unwrap();
    let check = |bytes: &[u8], expected: Option<&str>| {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(damage(&path), expected.map(Damage::lost), "{} bytes", bytes.len());
    };
    let half = format!("is cut short: there are 50000 of its {} bytes", whole.len());
    check(&whole[..50_000], Some(&half));
    check(&whole[..50], Some("is cut short: there are 50 bytes of it"));
    check(&whole[..5], Some("is cut short: there are 5 bytes of it"));
    check(b"an everyday text of more than one hundred bytes", Some("is no SQLite database"));
    check(&[0; 5000], Some("is no SQLite database"));
    check(b"x", Some("is no SQLite database"));
    check(&whole, None);
    check(b"", None);
    assert!(is_empty(&path));
    std::fs::write(dir.path().join("a.db-wal"), b"a log").unwrap();
    assert!(!is_empty(&path), "the log may hold all of it");
    // SQLite would delete that log.
    assert_eq!(damage(&path), Some(Damage::lost("is empty, but its log is not")));
    let base = Database::sqlite(&path).await.unwrap();
    base.close().await;
    assert!(!dir.path().join("a.db-wal").exists());
    std::fs::write(dir.path().join("a.db-wal"), b"a log").unwrap();
    // What the log may hold is not missed.
    check(&whole[..50_000], None);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!((damage(&path), is_empty(&path)), (Some(Damage::lost("is a directory")), false));
}

#[tokio::test]
async fn errors_that_are_the_file_s() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    std::fs::write(&path, "an everyday text of more than one hundred bytes, in which no database is".repeat(10))
        .unwrap();
    let error = Database::sqlite(&path).await.unwrap_err();
    assert_eq!(fault_of_file(&error), Some(Damage::lost("is no SQLite database")), "{error}");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = Database::sqlite(&path).await.unwrap_err();
    let expected = Some(("cannot be opened".to_owned(), false));
    assert_eq!(fault_of_file(&error).map(|damage| (damage.what, damage.is_lost)), expected, "{error}");
    assert_eq!(fault_of_file(&Error::PoolTimedOut), None);
}
