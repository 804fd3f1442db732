use quiver_sql::Session;

use super::*;

fn check(text: &str, expected: Command) {
    assert_eq!(read(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}")), expected, "{text}");
}

fn declare(name: &str, query: &str, is_held: bool) -> Command {
    Command::Declare(Declare { name: name.to_owned(), query: query.to_owned(), is_held })
}

fn set(name: &str, value: &str) -> Command {
    Command::Set(name.to_owned(), Some(value.to_owned()))
}

#[test]
fn commands() {
    check(" -- nothing\n ;", Command::Empty);
    check("select 1", Command::Query);
    check("(select 1)", Command::Query);
    check("insert into x values (1)", Command::Query);
    check("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", Command::Begin);
    check("start transaction read only", Command::Begin);
    check("commit work;", Command::Commit);
    check("ROLLBACK TO SAVEPOINT a", Command::Mark("ROLLBACK"));
    check("SET statement_timeout = '5s'", set("statement_timeout", "5s"));
    check("set local time zone 'Europe/Berlin'", set("timezone", "Europe/Berlin"));
    check("SET TIME ZONE -5", set("timezone", "-5"));
    check("set search_path to quiver, \"public\"", set("search_path", "quiver, public"));
    check("set names 'utf8'", set("client_encoding", "utf8"));
    check("set datestyle to default", Command::Set("datestyle".into(), None));
    check("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Command::Mark("SET"));
    check("show transaction isolation level", Command::Show(Some("transaction_isolation".into())));
    check("show tables", Command::Query);
    check("discard all", Command::Discard(Forget::All));
    check("deallocate prepare \"S_1\"", Command::Deallocate(Some("S_1".into())));
    check("FETCH FORWARD 100 FROM c", Command::Fetch("c".into(), Some(100)));
    check("fetch all in c", Command::Fetch("c".into(), None));
    check(
        "declare \"my for\" no scroll cursor without hold for select 1 for x",
        declare("my for", " select 1 for x", false),
    );
    check("declare \"SQL_CUR1\" cursor with hold for select 1", declare("SQL_CUR1", " select 1", true));
    check("move forward 10 in c", Command::Move("c".into(), Some(10)));
    check("MOVE ALL FROM c", Command::Move("c".into(), None));
    for (bad, code) in [
        ("begin read write", "25006"),
        ("set x", "42601"),
        ("declare c scroll cursor for select 1", "0A000"),
        ("declare c cursor with for select 1", "42601"),
        ("fetch prior from c", "55000"),
        ("move -1 from c", "55000"),
        ("fetch first from c", "55000"),
        ("fetch 1 from", "42601"),
        ("commit now", "42601"),
        ("select 'x", "42601"),
    ] {
        assert_eq!(read(bad).unwrap_err().code, code, "{bad}");
    }
}

#[test]
fn statements_are_prepared() {
    let prepare = |name: &str, types: &[u32], query: &str| {
        Command::Prepare(Prepare { name: name.to_owned(), types: types.to_vec(), query: query.to_owned() })
    };
    check("prepare q as select 1", prepare("q", &[], "             select 1"));
    let head = "PREPARE \"Q\"(int, pg_catalog.int8, text[], numeric(10, 2), timestamp(3) with time zone, unknown)";
    let query = format!("{}\n   select $1", " ".repeat(head.len()));
    check(&format!("{head}\nAS select $1"), prepare("Q", &[23, 20, 1009, 1700, 1184, 705], &query));
    check("execute q;", Command::Execute("q".into(), None));
    check("execute Q (1, f(2))", Command::Execute("q".into(), Some("VALUES    (1, f(2))".into())));
    check("/* a */ EXECUTE\n\"q\"('x;')", Command::Execute("q".into(), Some("        VALUES \n   ('x;')".into())));
    // However deep: who reads each of them has none of the stack left.
    let nested = format!("{}select 1", "prepare q as ".repeat(5_000));
    for (bad, code) in [
        (nested.as_str(), "42601"),
        ("prepare q", "42601"),
        ("prepare q as", "42601"),
        ("prepare \"\" as select 1", "42601"),
        ("prepare q as commit", "42601"),
        ("prepare q(nothing) as select 1", "42704"),
        ("execute", "42601"),
        ("execute q()", "42601"),
        ("execute q(1), (2)", "42601"),
        ("execute q(1) from logs", "42601"),
    ] {
        assert_eq!(read(bad).unwrap_err().code, code, "{bad}");
    }
}

/// Breaks where a part of the cursor's name, or of a remark, is taken for the word that the query stands behind.
#[test]
fn cursors_are_called_as_one_likes() {
    for name in ["cursor_for", "my_cursor_for_x", "for_cursor", "forecast", "cürsor_for"] {
        check(&format!("declare {name} cursor for select 1"), declare(name, " select 1", false));
        check(
            &format!("DECLARE {} CURSOR WITH HOLD FOR\nselect 1", name.to_uppercase()),
            declare(name, "\nselect 1", true),
        );
    }
    check("declare \"a cursor for b\" cursor for select 1", declare("a cursor for b", " select 1", false));
    check("declare c /* cursor for x */ cursor -- for\n for select 1", declare("c", " select 1", false));
    check("declare c cursor for select 'for' for update", declare("c", " select 'for' for update", false));
    check("declare c cursor for(select 1)", declare("c", "(select 1)", false));
    check("declare c no scroll insensitive cursor for select 1", declare("c", " select 1", false));
    for (bad, code) in [
        ("declare c cursor", "42601"),
        ("declare c cursor forselect 1", "42601"),
        ("declare c for select 1", "42601"),
        ("declare cursor for select 1", "42601"),
        ("declare c cursor \"for\" select 1", "42601"),
        ("declare c no cursor for select 1", "42601"),
        ("declare c binary cursor for select 1", "0A000"),
    ] {
        assert_eq!(read(bad).unwrap_err().code, code, "{bad}");
    }
}

#[test]
fn statements_are_taken_apart() {
    let parts = split("select ';' ; -- a;b\n set a.b = 1;;\n select \"x;\" ").unwrap();
    let trimmed: Vec<&str> = parts.iter().map(|part| part.trim()).collect();
    assert_eq!(trimmed, ["select ';'", "-- a;b\n set a.b = 1", "select \"x;\""]);
    assert_eq!(split(" ; ").unwrap().len(), 0);
    assert!(split(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
}

#[test]
fn settings_of_a_connection() {
    let mut settings = Settings::new(Session::of("ann"), true, 100);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    settings
        .begin(&[
            pair("user", "ann"),
            pair("options", "-c statement_timeout=250 --search_path=quiver"),
            pair("TimeZone", "Europe/Berlin"),
        ])
        .unwrap();
    assert_eq!(settings.statement_timeout(), Some(Duration::from_millis(250)));
    assert_eq!(settings.time_zone().as_deref(), Some("Europe/Berlin"));
    settings.set("timezone", Some("2")).unwrap();
    assert_eq!(settings.show("TimeZone").unwrap(), "+02:00");
    settings.set("timezone", None).unwrap();
    assert_eq!(settings.show("timezone").unwrap(), "Europe/Berlin");
    for encoding in ["utf-8", "'utf-8'", "UTF8", "unicode"] {
        settings.set("client_encoding", Some(encoding)).unwrap();
        assert_eq!(settings.show("client_encoding").unwrap(), "UTF8", "{encoding}");
    }
    for (name, value, code) in [
        ("client_encoding", "latin1", "22023"),
        ("timezone", "Nowhere", "22023"),
        ("search_path", "secret", "22023"),
        ("transaction_read_only", "off", "25006"),
        ("server_version", "1", "55P02"),
        ("nothing", "1", "42704"),
        ("statement_timeout", "soon", "22023"),
    ] {
        assert_eq!(settings.set(name, Some(value)).unwrap_err().code, code, "{name}");
    }
    assert_eq!((settings.show("ssl").unwrap(), settings.show("max_connections").unwrap()), ("on".into(), "100".into()));
    for (name, value) in [("array_nulls", "true"), ("lc_collate", "c"), ("max_connections", "100")] {
        settings.set(name, Some(value)).unwrap();
    }
    assert_eq!(settings.set("array_nulls", Some("off")).unwrap_err().code, "55P02");
    settings.set("my.own", Some("x")).unwrap();
    settings.reset();
    assert!(settings.show("my.own").is_err());
    assert_eq!(
        (duration("5s"), duration("1min"), duration("x")),
        (Some(Duration::from_secs(5)), Some(Duration::from_mins(1)), None)
    );
}
