use quiver_sql::Session;

use super::*;

fn check(text: &str, expected: Command) {
    assert_eq!(read(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}")), expected, "{text}");
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
        Command::Declare("my for".into(), " select 1 for x".into()),
    );
    for (bad, code) in [
        ("begin read write", "25006"),
        ("set x", "42601"),
        ("declare c scroll cursor for select 1", "0A000"),
        ("declare c cursor with hold for select 1", "0A000"),
        ("commit now", "42601"),
        ("select 'x", "42601"),
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
    let mut settings = Settings::new(Session::of("ann"));
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
    settings.set("my.own", Some("x")).unwrap();
    settings.reset();
    assert!(settings.show("my.own").is_err());
    assert_eq!(
        (duration("5s"), duration("1min"), duration("x")),
        (Some(Duration::from_secs(5)), Some(Duration::from_mins(1)), None)
    );
}
