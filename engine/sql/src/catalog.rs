//! What a statement can name: the tables of the snapshot, and `information_schema` about them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::sql::sqlparser::ast::Expr;
use quiver_query::tables::models::OLAP_SCHEMA;
use quiver_query::tables::{DomainAccess, PUBLIC_SCHEMA, QUIVER_SCHEMA, TableEntry, TableSnapshot};
use quiver_types::suggestions::nearest;
use quiver_types::{Error, Result};

use crate::error::{NO_COLUMN, NO_TABLE};
use crate::names::{TableName, normal};
use crate::session::Session;

pub(crate) mod functions;
mod information_schema;
mod postgres;
mod rows;
pub(crate) mod schemas;
pub(crate) mod types;

use rows::Shape;
use schemas::{INFORMATION_SCHEMA, PG_CATALOG, number};

/// The tables of one moment, as a caller may see them.
#[derive(Clone, Copy)]
pub(crate) struct VisibleTables<'s> {
    pub(crate) snapshot: &'s Arc<dyn TableSnapshot>,
    /// Lists them.
    pub(crate) catalog: &'s Arc<Catalog>,
    pub(crate) access: &'s DomainAccess,
}

/// What a caller may name.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) entries: Vec<TableEntry>,
    /// Where a name without a schema is looked up.
    path: Vec<String>,
}

/// A relation as the catalog lists it.
pub(crate) struct Relation {
    pub(crate) oid: i64,
    pub(crate) schema: &'static str,
    pub(crate) name: String,
}

/// A table about tables, with its schema.
fn shape_of((schema, name): &TableName) -> Option<(&'static str, Shape)> {
    let of = |shapes: &'static [Shape]| shapes.iter().find(|shape| shape.name == *name).copied();
    let postgres = || of(&postgres::FILLED).or_else(|| of(&postgres::EMPTY)).map(|shape| (PG_CATALOG, shape));
    match schema.as_deref() {
        Some(INFORMATION_SCHEMA) => of(&information_schema::ALL).map(|shape| (INFORMATION_SCHEMA, shape)),
        // Its schema is looked in first, as PostgreSQL does.
        Some(PG_CATALOG) | None => postgres(),
        Some(_) => None,
    }
}

impl Catalog {
    /// Whether an expression is a column that has a matching type in every table that has it.
    pub(crate) fn is_column_of(&self, value: &Expr, is_kind: fn(&DataType) -> bool) -> bool {
        let name = match value {
            Expr::Identifier(column) => normal(column),
            Expr::CompoundIdentifier(parts) => parts.last().map(normal).unwrap_or_default(),
            _ => return false,
        };
        let fields = self.entries.iter().filter_map(|entry| entry.columns.field_with_name(&name).ok());
        let mut kinds = fields.map(|field| is_kind(field.data_type())).peekable();
        kinds.peek().is_some() && kinds.all(|is_kind| is_kind)
    }

    /// The tables that a session may name.
    pub(crate) fn new(entries: Vec<TableEntry>, session: &Session) -> Self {
        let path = session.settings.get("search_path").map_or("public, quiver", String::as_str);
        Self { entries, path: path.split(',').map(|schema| schema.trim().to_owned()).collect() }
    }

    /// The schemas in which a name without one is looked up, in their order.
    pub(crate) fn path(&self) -> impl Iterator<Item = &str> {
        self.path.iter().map(String::as_str).filter(|schema| !schema.is_empty())
    }

    /// The schema that the tables of a bare name are listed in: the first of the path, but `public` only where it has tables
    /// of its own, or stands alone.
    pub(crate) fn current_schema(&self) -> Option<&str> {
        let has_public = self.entries.iter().any(|entry| entry.schema == PUBLIC_SCHEMA);
        self.path().find(|schema| has_public || *schema != PUBLIC_SCHEMA).or_else(|| self.path().next())
    }

    /// Finds a table: of a schema, or of the first of the path; the operator's come before the product's by default.
    pub(crate) fn find(&self, (schema, name): &TableName) -> Option<&TableEntry> {
        let of = |wanted: &str| self.entries.iter().find(|entry| entry.schema == wanted && entry.name == *name);
        // The product's tables stand in `public`, too, where the operator has none of their name.
        let within = |schema: &str| match schema {
            PUBLIC_SCHEMA => of(schema).or_else(|| of(QUIVER_SCHEMA)),
            other => of(other),
        };
        match schema {
            Some(schema) => within(schema),
            None => self.path.iter().find_map(|schema| within(schema)),
        }
    }

    /// Fixed columns of a table.
    pub(crate) fn fixed(&self, named: &TableName) -> Option<Vec<String>> {
        if let Some((_, shape)) = shape_of(named) {
            return Some(shape.names());
        }
        let entry = self.find(named)?;
        Some(entry.columns.fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Says that there is no such table, and which may have been meant.
    pub(crate) fn unknown(&self, name: &str) -> Error {
        let (schema, bare) = name.rsplit_once('.').map_or(("", name), |(schema, bare)| (schema, bare));
        let of_schema = self.entries.iter().any(|entry| entry.schema == schema);
        // Tables before models, whose names are theirs in another case.
        let near = |is_model: bool| {
            let near = self.entries.iter().filter(|entry| !of_schema || entry.schema == schema);
            let near = near.filter(|entry| (entry.schema == OLAP_SCHEMA) == is_model);
            nearest(bare, near.map(|entry| entry.name.as_str()))
        };
        let meant = near(false).or_else(|| near(true));
        let meant =
            meant.map_or_else(String::new, |meant| format!("; did you mean `{}`?", self.written(meant, schema)));
        Error::invalid(format!("{NO_TABLE} `{name}`{meant}"))
    }

    /// The name of a table as a statement writes it: models stand in their schema, and in capitals.
    fn written(&self, name: &str, schema: &str) -> String {
        let is_model = |entry: &&TableEntry| entry.name == name && (schema.is_empty() || entry.schema == schema);
        match self.entries.iter().find(is_model) {
            Some(entry) if entry.schema == OLAP_SCHEMA => format!("{OLAP_SCHEMA}.\"{name}\""),
            _ => name.to_owned(),
        }
    }

    /// An error about a column that is not there, with the member of a model that may have been meant: only those that a
    /// statement speaks of are columns of its plan.
    pub(crate) fn with_member(&self, error: Error) -> Error {
        if !error.message.starts_with(NO_COLUMN) || error.message.contains("did you mean") {
            return error;
        }
        let named = error.message.split('`').nth(1).unwrap_or_default();
        let bare = named.rsplit('.').next().unwrap_or(named);
        let models = self.entries.iter().filter(|entry| entry.schema == OLAP_SCHEMA);
        let members = models.flat_map(|entry| entry.columns.fields().iter().map(|f| f.name().as_str()));
        let Some(meant) = nearest(bare, members) else { return error };
        Error::invalid(format!("{}; did you mean `\"{meant}\"`?", error.message))
    }

    /// All relations that a statement may name; those of the system last.
    pub(crate) fn relations(&self) -> Vec<Relation> {
        let of =
            |schema: &'static str, name: &str| Relation { oid: number(&[schema, name]), schema, name: name.to_owned() };
        let own = self.entries.iter().map(|entry| of(entry.schema, &entry.name));
        let system = postgres::FILLED.iter().chain(&postgres::EMPTY).map(|shape| of(PG_CATALOG, shape.name));
        let about = information_schema::ALL.iter().map(|shape| of(INFORMATION_SCHEMA, shape.name));
        own.chain(system).chain(about).collect()
    }

    /// Makes a table about tables; none: it is no such table.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub(crate) fn about(&self, named: &TableName, session: &Session) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some((schema, shape)) = shape_of(named) else { return Ok(None) };
        let rows = match schema {
            PG_CATALOG => self.postgres_rows(shape.name, session),
            _ => self.about_rows(shape.name, session),
        };
        shape.table(&rows).map(Some)
    }

    /// Whether a table is one of those about tables.
    pub(crate) fn is_about(named: &TableName) -> bool {
        shape_of(named).is_some()
    }

    /// Whether a table never has a row, because it is about objects that Quiver does not have.
    pub(crate) fn is_empty(named: &TableName) -> bool {
        match shape_of(named) {
            Some((PG_CATALOG, shape)) => {
                postgres::EMPTY.iter().any(|empty| empty.name == shape.name) || shape.name == "pg_am"
            }
            Some((_, shape)) => information_schema::is_empty(shape.name),
            None => false,
        }
    }

    /// Says whether a table tells of others: it has the columns that it has, whatever the data has.
    pub(crate) fn has(named: &TableName) -> bool {
        shape_of(named).is_some()
    }
}

/// The name of a type as SQL writes it.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint".to_owned(),
        DataType::Int32 | DataType::UInt16 => "integer".to_owned(),
        DataType::Int64 | DataType::UInt32 => "bigint".to_owned(),
        DataType::UInt64 => "numeric(20,0)".to_owned(),
        DataType::Float16 | DataType::Float32 => "real".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea".to_owned()
        }
        DataType::Date32 | DataType::Date64 => "date".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".to_owned(),
        DataType::Timestamp(_, None) => "timestamp".to_owned(),
        DataType::Interval(_) | DataType::Duration(_) => "interval".to_owned(),
        DataType::Dictionary(_, values) => type_name(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("{}[]", type_name(item.data_type()))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                format!("map({}, {})", type_name(pair[0].data_type()), type_name(pair[1].data_type()))
            }
            _ => "map".to_owned(),
        },
        DataType::Struct(fields) => {
            let members: Vec<String> =
                fields.iter().map(|field| format!("{} {}", field.name(), type_name(field.data_type()))).collect();
            format!("struct({})", members.join(", "))
        }
        DataType::Null => "unknown".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::datatypes::{Field, Schema, TimeUnit};

    use super::*;

    fn catalog() -> Catalog {
        let columns = Arc::new(Schema::new(vec![Field::new("time", DataType::Int64, false)]));
        let entry = |schema, name: &str| TableEntry { schema, name: name.to_owned(), columns: Arc::clone(&columns) };
        let entries = vec![entry(QUIVER_SCHEMA, "logs"), entry(PUBLIC_SCHEMA, "hosts"), entry(QUIVER_SCHEMA, "hosts")];
        Catalog::new(entries, &Session::default())
    }

    #[test]
    fn public_comes_first() {
        let schema = |named: &TableName| catalog().find(named).map(|entry| entry.schema);
        assert_eq!(schema(&(None, "hosts".to_owned())), Some(PUBLIC_SCHEMA));
        assert_eq!(schema(&(Some("quiver".to_owned()), "hosts".to_owned())), Some(QUIVER_SCHEMA));
        assert_eq!(schema(&(Some("public".to_owned()), "hosts".to_owned())), Some(PUBLIC_SCHEMA));
        assert_eq!(schema(&(Some("public".to_owned()), "logs".to_owned())), Some(QUIVER_SCHEMA));
        assert_eq!(schema(&(None, "log".to_owned())), None);
        // Clients set the path to `public` alone.
        let mut session = Session::default();
        session.settings.insert("search_path".to_owned(), "public".to_owned());
        let catalog = || Catalog::new(catalog().entries, &session);
        let schema = |name: &str| catalog().find(&(None, name.to_owned())).map(|entry| entry.schema);
        assert_eq!((schema("logs"), schema("hosts")), (Some(QUIVER_SCHEMA), Some(PUBLIC_SCHEMA)));
        assert!(catalog().unknown("log").message.contains("did you mean `logs`"));
    }

    #[test]
    fn the_schema_of_a_session_follows_its_path() {
        let current = |path: &str, is_public: bool| {
            let mut session = Session::default();
            session.settings.insert("search_path".to_owned(), path.to_owned());
            let mut entries = catalog().entries;
            entries.retain(|entry| is_public || entry.schema != PUBLIC_SCHEMA);
            Catalog::new(entries, &session).current_schema().map(str::to_owned)
        };
        for (path, is_public, expected) in [
            ("public, quiver", true, Some("public")),
            ("public, quiver", false, Some("quiver")),
            ("quiver, public", true, Some("quiver")),
            ("olap", true, Some("olap")),
            ("public", false, Some("public")),
            ("", true, None),
        ] {
            assert_eq!(current(path, is_public).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn tables_about_tables_have_their_columns() {
        let shapes = [
            (INFORMATION_SCHEMA, &information_schema::ALL[..]),
            (PG_CATALOG, &postgres::FILLED),
            (PG_CATALOG, &postgres::EMPTY),
        ];
        for (schema, shape) in shapes.into_iter().flat_map(|(schema, all)| all.iter().map(move |shape| (schema, shape)))
        {
            let named = (Some(schema.to_owned()), shape.name.to_owned());
            let table = catalog().about(&named, &Session::default()).unwrap().expect("one of them");
            let names: Vec<String> = table.schema().fields().iter().map(|f| f.name().clone()).collect();
            assert_eq!(names, shape.names());
            let mut once = names.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), names.len(), "{}", shape.name);
        }
        assert!(
            catalog()
                .about(&(Some(PG_CATALOG.to_owned()), "nothing".to_owned()), &Session::default())
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn relations_have_numbers_of_their_own() {
        let mut oids: Vec<i64> = catalog().relations().iter().map(|relation| relation.oid).collect();
        oids.extend(functions::known().iter().map(|function| function.oid));
        let count = oids.len();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), count);
    }

    #[test]
    fn names_of_types() {
        let item = |item| Arc::new(Field::new("item", item, true));
        let member = |name: &str, of| Field::new(name, of, true);
        let pair = vec![member("a", DataType::UInt16), member("B", DataType::Date64)];
        for (data_type, expected) in [
            (quiver_types::tables::columns::map(), "map(text, text)"),
            (DataType::Decimal32(5, 2), "numeric(5,2)"),
            (DataType::Decimal64(12, 0), "numeric(12,0)"),
            (DataType::Decimal128(38, -1), "numeric(38,-1)"),
            (DataType::Decimal256(40, 3), "numeric(40,3)"),
            // No type of SQL is without a sign: each is the next that holds it.
            (DataType::UInt8, "smallint"),
            (DataType::UInt16, "integer"),
            (DataType::UInt32, "bigint"),
            (DataType::UInt64, "numeric(20,0)"),
            (DataType::Float16, "real"),
            (DataType::Time64(TimeUnit::Nanosecond), "time"),
            (DataType::Timestamp(TimeUnit::Second, None), "timestamp"),
            (DataType::Timestamp(TimeUnit::Second, Some("+02:00".into())), "timestamp with time zone"),
            (DataType::Duration(TimeUnit::Second), "interval"),
            (DataType::FixedSizeBinary(16), "bytea"),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8View)), "text"),
            (DataType::LargeList(item(DataType::Float64)), "double precision[]"),
            (DataType::List(item(DataType::FixedSizeList(item(DataType::Int64), 3))), "bigint[][]"),
            (DataType::Struct(pair.into()), "struct(a integer, B date)"),
            (DataType::Null, "unknown"),
        ] {
            assert_eq!(type_name(&data_type), expected, "{data_type}");
        }
    }

    /// Tables, and a model.
    fn with_model() -> Catalog {
        let members = ["service", "errorCount"].map(|name| Field::new(name, DataType::Utf8, true));
        let model = TableEntry {
            schema: OLAP_SCHEMA,
            name: "Spans".to_owned(),
            columns: Arc::new(Schema::new(members.to_vec())),
        };
        let mut catalog = catalog();
        catalog.entries.push(model);
        catalog
    }

    #[test]
    fn tables_that_may_have_been_meant() {
        let catalog = with_model();
        for (name, expected) in [
            ("hots", "; did you mean `hosts`?"),
            ("quiver.hots", "; did you mean `hosts`?"),
            // Models stand in their schema, in the case that they have.
            ("spans", "; did you mean `olap.\"Spans\"`?"),
            ("olap.Span", "; did you mean `olap.\"Spans\"`?"),
            // Within a schema none of another one is meant; beside an unknown one any is.
            ("olap.logs", ""),
            ("public.logz", ""),
            ("nosuch.logs", "; did you mean `logs`?"),
            ("zzz", ""),
            ("", ""),
        ] {
            let error = catalog.unknown(name);
            assert_eq!(error.message, format!("there is no table `{name}`{expected}"));
        }
    }

    #[test]
    fn members_that_may_have_been_meant() {
        let catalog = with_model();
        let said = |text: &str| catalog.with_member(Error::invalid(text)).message;
        for (text, member) in [
            ("there is no column `servce` at line 1, column 8", "service"),
            ("there is no column `s.servce`", "service"),
            ("there is no column `errorcount`", "errorCount"),
        ] {
            assert_eq!(said(text), format!("{text}; did you mean `\"{member}\"`?"));
        }
        for same in [
            "there is no column `servce`; did you mean `severity`?",
            "there is no column `nothing_like_it`",
            "there is no column",
            "Invalid function `servce`",
        ] {
            assert_eq!(said(same), same);
        }
    }

    #[test]
    fn tables_about_tables_come_before_others() {
        let catalog = with_model();
        let named = |schema: Option<&str>, name: &str| (schema.map(str::to_owned), name.to_owned());
        let columns = |schema, name| catalog.fixed(&named(schema, name));
        assert_eq!(columns(None, "pg_am"), Some(["oid", "amname", "amhandler", "amtype"].map(str::to_owned).to_vec()));
        assert_eq!(columns(Some("olap"), "Spans"), Some(vec!["service".to_owned(), "errorCount".to_owned()]));
        assert_eq!(columns(Some(INFORMATION_SCHEMA), "schemata").map(|columns| columns.len()), Some(3));
        // A model is found in its schema alone, and a table of the standard in that of the standard.
        for (schema, name) in [(None, "Spans"), (Some("olap"), "spans"), (None, "schemata"), (Some("public"), "pg_am")]
        {
            assert_eq!(columns(schema, name), None, "{name}");
        }
        assert!(Catalog::is_about(&named(None, "pg_class")) && !Catalog::is_about(&named(Some("quiver"), "pg_class")));
        assert!(!Catalog::is_empty(&named(None, "logs")));
    }

    #[test]
    fn rows_have_values_of_the_kinds_of_their_columns() {
        let (catalog, session) = (with_model(), Session::of("ann"));
        let of = |schema: &'static str, shapes: &'static [Shape]| shapes.iter().map(move |shape| (schema, shape));
        let all = of(INFORMATION_SCHEMA, &information_schema::ALL).chain(of(PG_CATALOG, &postgres::FILLED));
        for (schema, shape) in all.chain(of(PG_CATALOG, &postgres::EMPTY)) {
            let mut kinds = BTreeMap::new();
            for column in shape.columns.split_whitespace() {
                let (name, kind) = column.split_once(':').expect("a kind");
                let (kind, default) = kind.split_once('=').map_or((kind, None), |(kind, text)| (kind, Some(text)));
                let is_known = match (kind, default) {
                    ("l" | "i" | "h" | "f", Some(text)) => text.parse::<i64>().is_ok(),
                    ("b", Some(text)) => ["true", "false"].contains(&text),
                    ("t", _) | ("l" | "i" | "h" | "f" | "b" | "T" | "H" | "z", None) => true,
                    _ => false,
                };
                assert!(is_known, "{}: {column}", shape.name);
                kinds.insert(name, kind);
            }
            let rows = match schema {
                PG_CATALOG => catalog.postgres_rows(shape.name, &session),
                _ => catalog.about_rows(shape.name, &session),
            };
            let named = (Some(schema.to_owned()), shape.name.to_owned());
            assert_eq!(Catalog::is_empty(&named), rows.is_empty(), "{}", shape.name);
            for (name, cell) in rows.iter().flatten() {
                let expected: &[&str] = match cell {
                    rows::Cell::Int(_) => &["l", "i", "h", "f"],
                    rows::Cell::Bool(_) => &["b"],
                    rows::Cell::Text(_) => &["t"],
                    rows::Cell::Texts(_) => &["T"],
                };
                let kind = kinds.get(name).copied();
                assert!(kind.is_some_and(|kind| expected.contains(&kind)), "{}: {name} is {cell:?}", shape.name);
            }
        }
    }
}
