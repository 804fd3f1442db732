use quiver_sql::Session;

use super::*;

fn check(text: &str, expected: Command) {
    assert_eq!(read(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}")), expected, "{text}");
}

fn declare(name: &str, query: &str, is_held: bool) -> Command {
    Command::Declare(Declare { name: name.to_owned(), query: query.to_owned(), is_held, scrolls: false })
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
    check("commit work;", Command::Commit { chains: false });
    check("ROLLBACK TO SAVEPOINT a", Command::RollbackTo("a".into()));
    check("SET statement_timeout = '5s'", set("statement_timeout", "5s"));
    check("set local time zone 'Europe/Berlin'", Command::SetLocal("timezone".into(), Some("Europe/Berlin".into())));
    check("SET TIME ZONE -5", set("timezone", "-5"));
    // As Sequelize begins.
    check("SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE;", set("timezone", "<+00>-00"));
    check("set time zone interval '-03:30' hour to minute", set("timezone", "<-03:30>+03:30"));
    check("set time zone interval '05:30'", set("timezone", "<+05:30>-05:30"));
    check("set session time zone interval '2' hour", set("timezone", "<+02>-02"));
    let local = Command::SetLocal("timezone".into(), Some("<-08>+08".into()));
    check("set local time zone interval '-8:00' hour to minute", local);
    check("set search_path to quiver, \"public\"", set("search_path", "quiver, public"));
    check("set names 'utf8'", set("client_encoding", "utf8"));
    check("set datestyle to default", Command::Set("datestyle".into(), None));
    check("SET ROLE NONE", set("role", "none"));
    check("set role to 'ann'", set("role", "ann"));
    check("set local role none", Command::SetLocal("role".into(), Some("none".into())));
    check("SET SESSION AUTHORIZATION DEFAULT", Command::Set("session_authorization".into(), None));
    check("set session authorization ann", set("session_authorization", "ann"));
    check("reset session authorization", Command::Reset(Some("session_authorization".into())));
    check("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Command::Mark("SET"));
    check("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", Command::Mark("SET"));
    check("show transaction isolation level", Command::Show(Some("transaction_isolation".into())));
    check("show tables", Command::Query);
    check("discard all", Command::Discard(DiscardTarget::All));
    check("deallocate prepare \"S_1\"", Command::Deallocate(Some("S_1".into())));
    check("FETCH FORWARD 100 FROM c", Command::Fetch("c".into(), Motion::Forward(Some(100))));
    check("fetch all in c", Command::Fetch("c".into(), Motion::Forward(None)));
    check(
        "declare \"my for\" no scroll cursor without hold for select 1 for x",
        declare("my for", " select 1 for x", false),
    );
    check("declare \"SQL_CUR1\" cursor with hold for select 1", declare("SQL_CUR1", " select 1", true));
    check("move forward 10 in c", Command::Move("c".into(), Motion::Forward(Some(10))));
    check("MOVE ALL FROM c", Command::Move("c".into(), Motion::Forward(None)));
    for (bad, code) in [
        ("begin read write", "25006"),
        ("set x", "42601"),
        ("set role", "42601"),
        ("set local authorization default", "42601"),
        ("declare c cursor with for select 1", "42601"),
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
    // However deep: reading each level by recursion would exhaust the stack.
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

/// Breaks if a part of the cursor's name, or of a remark, is taken for the word that the query stands behind.
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
    settings.set("timezone", Some("2"), SettingScope::Connection).unwrap();
    assert_eq!(settings.show("TimeZone").unwrap(), "<+02>-02");
    settings.set("timezone", None, SettingScope::Connection).unwrap();
    assert_eq!(settings.show("timezone").unwrap(), "Europe/Berlin");
    for encoding in ["utf-8", "'utf-8'", "UTF8", "unicode"] {
        settings.set("client_encoding", Some(encoding), SettingScope::Connection).unwrap();
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
        assert_eq!(settings.set(name, Some(value), SettingScope::Connection).unwrap_err().code, code, "{name}");
    }
    assert_eq!((settings.show("ssl").unwrap(), settings.show("max_connections").unwrap()), ("on".into(), "100".into()));
    for (name, value) in [("array_nulls", "true"), ("lc_collate", "c"), ("max_connections", "100")] {
        settings.set(name, Some(value), SettingScope::Connection).unwrap();
    }
    assert_eq!(settings.set("array_nulls", Some("off"), SettingScope::Connection).unwrap_err().code, "55P02");
    settings.set("my.own", Some("x"), SettingScope::Connection).unwrap();
    settings.reset();
    assert!(settings.show("my.own").is_err());
    assert_eq!(
        (duration("5s"), duration("1min"), duration("x")),
        (Some(Duration::from_secs(5)), Some(Duration::from_mins(1)), None)
    );
}

#[test]
fn transactions_in_all_their_words() {
    for text in [
        "begin",
        "BEGIN WORK",
        "begin transaction isolation level serializable",
        "begin isolation level read uncommitted",
        "start transaction isolation level repeatable read, read only, deferrable",
        "begin not deferrable read only",
    ] {
        check(text, Command::Begin);
    }
    for text in ["commit", "end", "END TRANSACTION", "commit and no chain"] {
        check(text, Command::Commit { chains: false });
    }
    for text in ["rollback", "abort", "ABORT WORK", "rollback transaction", "abort and no chain"] {
        check(text, Command::Rollback { chains: false });
    }
    check("commit work and chain;", Command::Commit { chains: true });
    check("ROLLBACK AND CHAIN", Command::Rollback { chains: true });
    for (text, tag) in [("unlisten *", "UNLISTEN"), ("set transaction isolation level read committed", "SET")] {
        check(text, Command::Mark(tag));
    }
    check("savepoint a", Command::Savepoint("a".into()));
    check("release A", Command::Release("a".into()));
    check("release savepoint \"A b\"", Command::Release("A b".into()));
    check("rollback to a", Command::RollbackTo("a".into()));
    check("rollback work to savepoint a", Command::RollbackTo("a".into()));
    for (bad, code) in [
        ("savepoint a b", "42601"),
        ("release a b", "42601"),
        ("begin now", "42601"),
        ("begin isolation level", "42601"),
        ("begin isolation level repeatable", "42601"),
        ("begin not", "42601"),
        ("begin read", "42601"),
        ("begin read only read write", "25006"),
        ("set transaction read write", "25006"),
        ("set session characteristics as read only", "42601"),
        ("set transaction snapshot 'x'", "42601"),
        ("rollback to", "42601"),
        ("commit and", "42601"),
        ("commit chain", "42601"),
        ("rollback and no", "42601"),
        ("rollback and chain to a", "42601"),
        ("savepoint", "42601"),
        ("savepoint 1", "42601"),
        ("release", "42601"),
    ] {
        assert_eq!(read(bad).map_err(|fault| fault.code), Err(code), "{bad}");
    }
}

#[test]
fn settings_are_named_and_valued_in_many_ways() {
    let plain = |name: &str| Command::Set(name.to_owned(), None);
    check("SET a = b", set("a", "b"));
    check("set A.B.c to 'x'", set("a.b.c", "x"));
    check("set \"A\" = \"B\"", set("A", "B"));
    check("set session a = 1.5", set("a", "1.5"));
    check("set local a to -1", Command::SetLocal("a".into(), Some("-1".into())));
    check("set a = 'it''s', b, \"C d\", -5", set("a", "it's, b, C d, -5"));
    check("set a to ''", set("a", ""));
    check("set a = default;", plain("a"));
    check("set local transaction_isolation to default", Command::SetLocal("transaction_isolation".into(), None));
    check("set time zone local", plain("timezone"));
    check("set time zone default", plain("timezone"));
    check("set timezone to utc", set("timezone", "utc"));
    check("set names default", plain("client_encoding"));
    check("set names utf8", set("client_encoding", "utf8"));
    check("reset all", Command::Reset(None));
    check("RESET TIME ZONE", Command::Reset(Some("timezone".into())));
    check("reset my.\"Own\"", Command::Reset(Some("my.Own".into())));
    check("reset transaction isolation level", Command::Reset(Some("transaction_isolation".into())));
    check("show all", Command::Show(None));
    check("show time zone", Command::Show(Some("timezone".into())));
    check("SHOW Search_Path", Command::Show(Some("search_path".into())));
    for text in ["show tables", "show columns from t", "show full tables", "show extended columns from t"] {
        check(text, Command::Query);
    }
    for bad in [
        "set",
        "set a",
        "set a b",
        "set a =",
        "set a = b c",
        "set a = 'x' 'y'",
        "set a = b,",
        "set a = (b)",
        "set a = default now",
        "set time",
        "set time zone",
        "set time zone interval",
        "set time zone interval 2",
        "set time zone interval '2'",
        "set time zone interval '2' hour to minute",
        "set time zone interval '+02:00' hour to second",
        "set time zone interval '+02:00' minute",
        "set time zone interval '+02:60' hour to minute",
        "set time zone interval '+15:00' hour to minute",
        "set local",
        "reset",
        "reset a b",
        "reset time",
        "show",
        "show a b",
        "show 1",
        "show transaction isolation",
    ] {
        assert_eq!(read(bad).map_err(|fault| fault.code), Err("42601"), "{bad}");
    }
}

#[test]
fn cursors_and_what_is_forgotten() {
    let fetch = |name: &str, rows: Option<u32>| Command::Fetch(name.to_owned(), Motion::Forward(rows));
    check("fetch c", fetch("c", Some(1)));
    check("fetch from c", fetch("c", Some(1)));
    check("FETCH NEXT IN \"C d\"", fetch("C d", Some(1)));
    check("fetch 0 from c", fetch("c", Some(0)));
    check("fetch 4294967295 c", fetch("c", Some(u32::MAX)));
    check("fetch forward c", fetch("c", Some(1)));
    check("fetch forward all from c", fetch("c", None));
    check("move c", Command::Move("c".into(), Motion::Forward(Some(1))));
    check("move 0 in c;", Command::Move("c".into(), Motion::Forward(Some(0))));
    check("close all", Command::Close(None));
    check("close \"All\"", Command::Close(Some("All".into())));
    check("deallocate all", Command::Deallocate(None));
    check("deallocate prepare all", Command::Deallocate(None));
    check("deallocate Q", Command::Deallocate(Some("q".into())));
    for word in ["plans", "SEQUENCES", "temp", "temporary"] {
        check(&format!("discard {word}"), Command::Discard(DiscardTarget::Nothing));
    }
    for (bad, code) in [
        ("fetch", "42601"),
        ("fetch 4294967296 from c", "42601"),
        ("fetch 1.5 from c", "42601"),
        ("fetch c d", "42601"),
        ("close", "42601"),
        ("close c d", "42601"),
        ("deallocate", "42601"),
        ("deallocate all of them", "42601"),
        ("discard", "42601"),
        ("discard everything", "42601"),
    ] {
        assert_eq!(read(bad).map_err(|fault| fault.code), Err(code), "{bad}");
    }
}

/// What begins with a word in quotes, or with a longer one, is no command.
#[test]
fn the_engine_judges_all_else() {
    for text in [
        "\"begin\"",
        "beginning",
        "'commit'",
        "values (1)",
        "with x as (select 1) select * from x",
        "explain select 1",
        "drop table t",
        "listen c",
        "lock table t",
        "?",
    ] {
        check(text, Command::Query);
    }
    for text in ["", ";", " ;; ", "-- a", "/* a */", "/* a /* b */ c */ ;", "\n\t"] {
        check(text, Command::Empty);
    }
}

#[test]
fn times_of_settings_have_units() {
    let ms = |ms: u64| Some(Duration::from_millis(ms));
    for (text, expected) in [
        ("0", ms(0)),
        (" 250 ", ms(250)),
        ("250ms", ms(250)),
        ("5 s", ms(5_000)),
        ("2min", ms(120_000)),
        ("3h", ms(10_800_000)),
        ("1d", ms(86_400_000)),
        ("1.5s", ms(1_500)),
        (".5 s", ms(500)),
        ("1500us", ms(2)),
        ("400us", ms(0)),
        ("2147483647", ms(2_147_483_647)),
        ("2147483648", None),
        ("18446744073709551615s", None),
        (".", None),
        ("1.2.3", None),
        ("", None),
        ("s", None),
        ("-1", None),
        ("+1", None),
        ("5S", None),
        ("5 minutes", None),
        ("5m", None),
        ("5s 3", None),
        ("5 s s", None),
    ] {
        assert_eq!(duration(text), expected, "{text:?}");
    }
}

#[test]
fn types_of_parameters_are_named_as_in_sql() {
    for (types, expected) in [
        ("int", &[23][..]),
        ("integer, \"INT4\", bigint", &[23, 23, 20]),
        ("double precision, float, real", &[701, 701, 700]),
        ("character varying(10)", &[1043]),
        ("character varying(10)[], int[3], text[][]", &[1015, 1007, 1009]),
        ("pg_catalog.text, pg_catalog.int4[]", &[25, 1007]),
        ("timestamp without time zone, timestamp with time zone, time without time zone", &[1114, 1184, 1083]),
        ("numeric(10, 2)[], decimal", &[1231, 1700]),
        ("bool, bytea, uuid, jsonb, json", &[16, 17, 2950, 3802, 114]),
    ] {
        match read(&format!("prepare q({types}) as select 1")) {
            Ok(Command::Prepare(prepare)) => assert_eq!(prepare.types, expected, "{types}"),
            other => panic!("{types}: {other:?}"),
        }
    }
    for bad in ["", "int,", ", int", "int int", "unknown[]", "no_type", "int = 1", "'int'", "1"] {
        let found = read(&format!("prepare q({bad}) as select 1")).map_err(|fault| fault.code);
        assert_eq!(found, Err("42704"), "{bad}");
    }
}

/// Breaks if a semicolon within a value, a name or a remark ends a statement, or one statement takes of another.
#[test]
fn statements_of_all_kinds_are_taken_apart() {
    let whole = [
        "select ';'",
        "select E'\\';'",
        "select \"a;b\"",
        "select $$ ; $$",
        "select $tag$ ; $$ ; $tag$",
        "/* ; */ select 1",
        "select 1 -- ;\n + 1",
        "select 'ü;\né'",
        "\r\nselect\r\n1",
        "set a.b = ';'",
    ];
    let mut seed = 7_u64;
    for _ in 0..200 {
        let mut picked = Vec::new();
        for _ in 0..4 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            picked.push(whole[(seed >> 33) as usize % whole.len()]);
        }
        let text = picked.join(";");
        assert_eq!(split(&text).unwrap(), picked, "{text}");
        let text = format!(";{};\n;", picked.join(" ; "));
        let found = split(&text).unwrap();
        let trimmed: Vec<&str> = found.iter().map(|part| part.trim()).collect();
        let expected: Vec<&str> = picked.iter().map(|part| part.trim()).collect();
        assert_eq!(trimmed, expected, "{text}");
    }
    for bad in ["select 'a", "select 1; select \"a", "/* a", "select $$a"] {
        assert_eq!(split(bad).map_err(|fault| fault.code), Err("42601"), "{bad}");
    }
    assert_eq!(split(&"x".repeat(TEXT_BYTES_MAX)).map(|parts| parts.len()), Ok(1));
    assert_eq!(split(&";".repeat(1000)).map(|parts| parts.len()), Ok(0));
}
