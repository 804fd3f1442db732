//! Statements that run: each expression is asked for as a text, over an engine with one small table, and is what PostgreSQL
//! says.

use std::sync::OnceLock;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use quiver_query::tables::PUBLIC_SCHEMA;
use quiver_query::{EngineSettings, Limits};
use quiver_types::Access;
use tokio::runtime::Runtime;

use super::*;
use crate::testing::{EMPTY, Product};

mod clients;
mod descriptions;
mod groups;
mod json;
mod lists;
mod numbers;
mod queries;
mod results;
mod table_functions;
mod tables;
mod texts;
mod times;
mod types;

/// A product with one table, and without models and languages: most statements bring rows of their own.
const LITTLE: Product = Product {
    tables: |_| vec![TableEntry { schema: PUBLIC_SCHEMA, name: "hosts".to_owned(), columns: tables::columns() }],
    table: |request| {
        let is_hosts = request.name == "hosts" && request.schema.is_none_or(|schema| schema == PUBLIC_SCHEMA);
        is_hosts.then(tables::hosts)
    },
    ..EMPTY
};

/// The language, and a runtime for those who ask it.
fn language() -> &'static (Runtime, SqlEngine) {
    static LANGUAGE: OnceLock<(Runtime, SqlEngine)> = OnceLock::new();
    LANGUAGE.get_or_init(|| {
        let settings = EngineSettings { threads: 2, concurrent_max: 8, ..EngineSettings::small(64 << 20) };
        let engine = QueryEngine::new(&settings).expect("an engine");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        (runtime, SqlEngine::new(engine, Arc::new(LITTLE), Arc::new(LITTLE), Arc::new(LITTLE)))
    })
}

/// Names of columns, and rows as texts.
type Rows = (Vec<String>, Vec<Vec<Option<String>>>);

/// All rows of an answer.
fn rows(request: Request) -> Result<Rows> {
    rows_of(&language().1, request, &DomainAccess::full())
}

/// The same of another product, for somebody.
fn rows_of(sql: &SqlEngine, request: Request, access: &DomainAccess) -> Result<Rows> {
    let (runtime, _) = language();
    let ctx = QueryContext::new(Access::full(), Limits::default());
    runtime.block_on(async {
        let answer = Box::pin(sql.query(request, access, &ctx)).await?;
        let Answer::Rows(mut rows) = answer else { panic!("a plan in place of rows") };
        let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut out = Vec::new();
        while let Some(batch) = rows.next().await? {
            let texts = |column: &ArrayRef| cast(column, &DataType::Utf8).expect("a type that has texts");
            let columns: Vec<ArrayRef> = batch.columns().iter().map(texts).collect();
            let text = |column: &ArrayRef, row: usize| {
                let column = column.as_string::<i32>();
                column.is_valid(row).then(|| column.value(row).to_owned())
            };
            let found = |row| columns.iter().map(|column| text(column, row)).collect::<Vec<_>>();
            out.extend((0..batch.num_rows()).map(found));
        }
        Ok((names, out))
    })
}

fn asked(text: impl Into<String>) -> Request {
    Request { text: text.into(), ..Request::default() }
}

/// Names of the columns, and rows whose values are joined by `|`; `-` stands for NULL.
fn shown(request: Request) -> (String, Vec<String>) {
    let text = request.text.clone();
    let (names, rows) = rows(request).unwrap_or_else(|e| panic!("{text}: {e}"));
    let row = |row: Vec<Option<String>>| {
        row.into_iter().map(|value| value.unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join("|")
    };
    (names.join("|"), rows.into_iter().map(row).collect())
}

/// Checks the names and the rows of a statement.
fn check(text: &str, names: &str, expected: &[&str]) {
    let (found_names, found) = shown(asked(text));
    assert_eq!(found_names, names, "{text}");
    assert_eq!(found, expected, "{text}");
}

/// Statements with their rows.
fn answers_are(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        assert_eq!(shown(asked(*text)).1, *expected, "{text}");
    }
}

/// A statement that is refused, with a part of what is said.
fn is_refused(text: &str, part: &str) {
    match rows(asked(text)) {
        Ok(found) => panic!("{text} gives {found:?}"),
        Err(error) => assert!(error.message.contains(part), "{text}: {error}"),
    }
}

/// Expressions with their values as texts; `NULL` stands for none.
fn gives(cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        let found = rows(asked(format!("select ({expression})::text"))).unwrap_or_else(|e| panic!("{expression}: {e}"));
        let expected = (*expected != "NULL").then(|| (*expected).to_owned());
        assert_eq!(found.1, [[expected]], "{expression}");
    }
}

/// Expressions that are refused, each with a part of what is said.
fn refuses(cases: &[(&str, &str)]) {
    for (expression, part) in cases {
        is_refused(&format!("select ({expression})::text"), part);
    }
}

#[test]
fn tables_have_places() {
    let ReadStatement::Query(query) = parse("select 1\nfrom a.b, c", &Params::default()).unwrap().statement else {
        panic!("no query")
    };
    let error = with_place(Error::invalid("there is no table `c`; did you mean `d`?"), "c", &places_of(&query));
    assert_eq!(error.message, "there is no table `c` at line 2, column 11; did you mean `d`?");
    assert_eq!(places_of(&query)["a.b"], Location { line: 2, column: 6 });
}

#[test]
fn zones() {
    assert!(zone_of("Europe/Berlin").is_ok() && zone_of("+02:00").is_ok());
    assert!(zone_of("Nowhere/None").unwrap_err().message.contains("`Nowhere/None`"));
    let in_zone_of = |zone: &str| {
        let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Second, Some(zone.into()));
        zones_of(&DataType::List(Arc::new(Field::new("item", time, true))))
    };
    assert!(in_zone_of("Europe/Berlin").is_ok());
    assert!(in_zone_of("day").unwrap_err().message.contains("`day`"));
    let utc = DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, Some("UTC".into()));
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("t", utc, true)]));
    let other = in_zone(&schema, Some(&Arc::from("+02:00")));
    assert_ne!(other, schema);
    assert_eq!(in_zone(&schema, None), schema);
}
