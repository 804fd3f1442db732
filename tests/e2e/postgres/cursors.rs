//! Cursors: `FETCH`, `MOVE`, `WITH HOLD` and scrolling return the same rows as PostgreSQL 15; invalid uses are refused.

use quiver_tests::server::Server;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{code, connect, open, texts};

/// The number of rows that a command says that it moved over.
async fn moved(client: &Client, command: &str) -> u64 {
    let said = client.simple_query(command).await.expect(command);
    let count = said.iter().find_map(|said| match said {
        SimpleQueryMessage::CommandComplete(count) => Some(*count),
        _ => None,
    });
    count.expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_are_moved_and_held() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    let client = connect(&server).await;
    let moved = "begin; declare c cursor for select value from generate_series(1, 5000) t(value) order by 1; \
        move 1500 from c; fetch 2 from c; move all in c; fetch c; commit";
    assert_eq!(texts(&client, moved).await.expect("rows"), ["1501", "1502"]);
    // As ODBC drivers read: held beyond the transaction, and until it is closed.
    let held = "begin; declare \"SQL_CUR1\" cursor with hold for select value from generate_series(1, 5) t(value) order by 1; \
        fetch 2 in \"SQL_CUR1\"; commit";
    assert_eq!(texts(&client, held).await.expect("rows"), ["1", "2"]);
    assert_eq!(texts(&client, "fetch 2 in \"SQL_CUR1\"").await.expect("rows"), ["3", "4"]);
    let failing = "begin; select 1 / (value - 1) from generate_series(1, 1) t(value)";
    assert_eq!(code(&client.batch_execute(failing).await.expect_err("no number")), "22012");
    client.batch_execute("rollback").await.expect("ended");
    assert_eq!(texts(&client, "fetch all in \"SQL_CUR1\"; close \"SQL_CUR1\"").await.expect("rows"), ["5"]);
    // Columns are told beyond the last row, too.
    let beyond = "begin; declare c cursor for select 1; fetch all in c; fetch c; move c; fetch c; commit";
    let told = client.simple_query(beyond).await.expect("rows").into_iter();
    assert_eq!(told.filter(|said| matches!(said, SimpleQueryMessage::RowDescription(_))).count(), 3);
    // What is taken back is not kept, and one that failed goes on nowhere: rows would be missing.
    client.batch_execute("begin; declare d cursor with hold for select 1; rollback").await.expect("all");
    let e = "declare e cursor with hold for select 1 / (value - 9000) from generate_series(1, 20000) t(value)";
    client.batch_execute(e).await.expect("declared");
    let gone = [("fetch d", "34000"), ("fetch \"SQL_CUR1\"", "34000"), ("move backward 1 from d", "34000")];
    for (statement, expected) in gone.into_iter().chain([("fetch all in e", "22012"), ("fetch e", "34000")]) {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(code(&error), expected, "{statement}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_scroll() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open()).await;
    let client = connect(&server).await;
    let declare = "begin; declare c scroll cursor for select value from generate_series(1, 5) t(value) order by 1";
    client.batch_execute(declare).await.expect("declared");
    for (fetch, expected) in [
        ("fetch prior from c", vec![]),
        ("fetch last from c", vec!["5"]),
        ("fetch backward 2 from c", vec!["4", "3"]),
        ("fetch 0 from c", vec!["3"]),
        ("fetch relative -2 from c", vec!["1"]),
        ("fetch -1 from c", vec![]),
        ("fetch all from c", vec!["1", "2", "3", "4", "5"]),
        ("fetch next from c", vec![]),
        ("fetch 0 from c", vec![]),
        ("fetch prior from c", vec!["5"]),
        ("fetch first from c", vec!["1"]),
        ("fetch absolute 3 from c", vec!["3"]),
        ("fetch absolute -4 from c", vec!["2"]),
        ("fetch forward 2 from c", vec!["3", "4"]),
        ("fetch backward all from c", vec!["3", "2", "1"]),
        ("fetch absolute 9 from c", vec![]),
        ("fetch backward all from c", vec!["5", "4", "3", "2", "1"]),
    ] {
        assert_eq!(texts(&client, fetch).await.expect(fetch), expected, "{fetch}");
    }
    for (command, count) in [
        ("move 3 from c", 3),
        ("move 0 from c", 1),
        ("move absolute 2 from c", 1),
        ("move absolute 9 from c", 0),
        ("move backward all from c", 5),
        ("move prior from c", 0),
        ("move forward all from c", 5),
        ("move relative -2 from c", 1),
    ] {
        assert_eq!(moved(&client, command).await, count, "{command}");
    }
    assert_eq!(texts(&client, "fetch next from c; commit").await.expect("a row"), ["5"]);
    // In several batches, and beyond the transaction.
    let held = "declare d scroll cursor with hold for select value from generate_series(1, 20000) t(value) order by 1; \
        move 15000 from d; fetch backward 2 from d; fetch absolute 19999 from d; fetch last from d; fetch first from d";
    assert_eq!(texts(&client, held).await.expect("rows"), ["14999", "14998", "19999", "20000", "1"]);
    let turned = texts(&client, "move last from d; fetch backward all from d").await.expect("rows");
    let expected: Vec<String> = (1..20_000).rev().map(|n: i32| n.to_string()).collect();
    assert!(turned == expected, "{} rows", turned.len());
    // Others go forward alone, and stay where they are if they are told otherwise.
    client.batch_execute("declare e cursor with hold for select 1").await.expect("declared");
    for back in ["fetch prior from e", "move backward all from e", "fetch absolute 1 from e", "fetch relative 1 from e"]
    {
        assert_eq!(code(&client.batch_execute(back).await.expect_err(back)), "55000", "{back}");
    }
    assert_eq!(texts(&client, "fetch e").await.expect("a row"), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open().env("QUIVER_MEMORY__LIMIT", "512MiB")).await;
    let client = connect(&server).await;
    let declare = "begin; declare c scroll cursor for select repeat('x', 1000) || value from generate_series(1, 10000000) t(value)";
    client.batch_execute(declare).await.expect("declared");
    let error = client.batch_execute("move all from c").await.expect_err("some 10 GB");
    // Whichever of both comes first: the rows that are held, or those that the query makes meanwhile.
    assert!(["53200", "54000"].contains(&code(&error)), "{error:?}");
    let after = texts(&client, "rollback; select 1").await.expect("the connection goes on");
    assert_eq!(after, ["1"]);
}
