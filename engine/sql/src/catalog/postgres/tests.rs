//! Rows of the catalog: what names what.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use quiver_query::tables::{PUBLIC_SCHEMA, TableEntry};

use super::*;

fn catalog() -> Catalog {
    let list = DataType::List(Arc::new(Field::new("item", DataType::Float64, true)));
    let columns = Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("cores", DataType::Int64, true),
        Field::new("load", list, true),
    ]);
    let hosts = TableEntry { schema: PUBLIC_SCHEMA, name: "hosts".to_owned(), columns: Arc::new(columns) };
    Catalog::new(vec![hosts], &Session::default())
}

fn cell<'r>(row: &'r Row, column: &str) -> Option<&'r Cell> {
    row.iter().find(|(name, _)| *name == column).map(|(_, cell)| cell)
}

fn int(row: &Row, column: &str) -> i64 {
    match cell(row, column) {
        Some(Cell::Int(number)) => *number,
        other => panic!("{column}: {other:?}"),
    }
}

fn text<'r>(row: &'r Row, column: &str) -> &'r str {
    match cell(row, column) {
        Some(Cell::Text(text)) => text,
        other => panic!("{column}: {other:?}"),
    }
}

#[test]
fn arrays_and_their_items_name_each_other() {
    let rows = types();
    let arrays: Vec<&Row> = rows.iter().filter(|row| cell(row, "typelem").is_some()).collect();
    assert_eq!(rows.len() - arrays.len(), PG_TYPES.len());
    for array in arrays {
        let item = rows.iter().find(|row| int(row, "oid") == int(array, "typelem")).expect("items have a type");
        assert_eq!(int(item, "typarray"), int(array, "oid"));
        assert_eq!(text(array, "typname"), format!("_{}", text(item, "typname")));
        assert_eq!((text(array, "typcategory"), int(array, "typlen")), ("A", -1));
    }
    let pseudo: Vec<&str> = rows
        .iter()
        .filter(|row| matches!(cell(row, "typtype"), Some(Cell::Text(kind)) if kind == "p"))
        .map(|row| text(row, "typname"))
        .collect();
    assert_eq!(pseudo, ["record"]);
}

#[test]
fn relations_have_their_columns() {
    let catalog = catalog();
    let classes = catalog.postgres_rows("pg_class", &Session::default());
    let class = |name: &str| classes.iter().find(|row| text(row, "relname") == name).expect("a relation");
    for (name, kind, columns, schema) in [("hosts", "r", 3, 2_200), ("pg_am", "v", 4, 11), ("schemata", "v", 3, 13_000)]
    {
        let row = class(name);
        let found = (text(row, "relkind"), int(row, "relnatts"), int(row, "relnamespace"));
        assert_eq!(found, (kind, columns, schema), "{name}");
    }
    let columns = catalog.postgres_rows("pg_attribute", &Session::default());
    let found: Vec<_> = columns
        .iter()
        .map(|row| {
            (text(row, "attname"), int(row, "attnum"), int(row, "atttypid"), int(row, "attlen"), int(row, "attndims"))
        })
        .collect();
    assert_eq!(found, [("name", 1, 25, -1, 0), ("cores", 2, 20, 8, 0), ("load", 3, 1022, -1, 1)]);
    assert!(columns.iter().all(|row| int(row, "attrelid") == int(class("hosts"), "oid")));
    assert_eq!(
        columns.iter().map(|row| cell(row, "attnotnull")).collect::<Vec<_>>(),
        [Some(&Cell::Bool(true)), Some(&Cell::Bool(false)), Some(&Cell::Bool(false))]
    );
}

#[test]
fn functions_have_as_many_arguments_as_names() {
    let rows = Catalog::procedures();
    let numbers: BTreeSet<i64> = rows.iter().map(|row| int(row, "oid")).collect();
    assert_eq!(numbers.len(), rows.len());
    let own: Vec<&Row> = rows.iter().filter(|row| cell(row, "pronargs").is_some()).collect();
    for row in &own {
        let Some(Cell::Texts(names)) = cell(row, "proargnames") else { panic!("{row:?}") };
        assert_eq!(int(row, "pronargs"), names.len() as i64, "{row:?}");
        assert_eq!(text(row, "proargtypes").split_whitespace().count(), names.len(), "{row:?}");
        // Tables are rows of any columns, others are texts.
        let is_table = cell(row, "proretset") == Some(&Cell::Bool(true));
        assert_eq!(int(row, "prorettype"), if is_table { 2249 } else { 25 });
    }
    let tables = own.iter().filter(|row| cell(row, "proretset") == Some(&Cell::Bool(true)));
    let names: Vec<&str> = tables.map(|row| text(row, "proname")).collect();
    assert_eq!(names, crate::table_functions::CALLS.map(|(name, _)| name));
    // Drivers look up what reads values in binary form.
    let reads = |name: &str| rows.iter().any(|row| text(row, "proname") == name && int(row, "pronamespace") == 11);
    assert!(reads("int8recv") && reads("json_recv") && reads("array_recv") && !reads("attr"));
}

#[test]
fn what_is_known_of_a_session() {
    let mut session = Session { backend: 7, ..Session::of("ann") };
    let one = |table: &str, session: &Session| {
        let rows = catalog().postgres_rows(table, session);
        assert_eq!(rows.len(), 1, "{table}");
        rows.into_iter().next().expect("a row")
    };
    for (table, column) in [("pg_roles", "rolname"), ("pg_authid", "rolname"), ("pg_user", "usename")] {
        assert_eq!(text(&one(table, &session), column), "ann");
    }
    for table in ["pg_stat_activity", "pg_stat_ssl", "pg_stat_gssapi"] {
        assert_eq!(int(&one(table, &session), "pid"), 7, "{table}");
    }
    for (setting, expected) in [(None, false), (Some("off"), false), (Some("on"), true)] {
        session.settings.extend(setting.map(|value| ("ssl".to_owned(), value.to_owned())));
        assert_eq!(cell(&one("pg_stat_ssl", &session), "ssl"), Some(&Cell::Bool(expected)), "{setting:?}");
    }
    session.settings = [("timezone".to_owned(), "UTC".to_owned())].into();
    assert_eq!(text(&one("pg_settings", &session), "name"), "TimeZone");
    session.settings = [("my.own".to_owned(), "x y".to_owned())].into();
    let row = one("pg_settings", &session);
    assert_eq!(
        ["name", "setting", "boot_val", "reset_val"].map(|column| text(&row, column)),
        ["my.own", "x y", "x y", "x y"]
    );
}
