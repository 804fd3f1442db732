//! What there is to be named: tables of the snapshot, and `information_schema` about them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use quiver_query::tables::{PUBLIC_SCHEMA, QUIVER_SCHEMA, TableEntry};
use quiver_types::{Error, Result};

use crate::error::nearest;
use crate::scope::Named;

/// The schema of tables about tables.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";
/// The one database.
const CATALOG: &str = "quiver";

/// Names of tables about tables, and their columns.
const ABOUT: [(&str, &[&str]); 3] = [
    ("schemata", &["catalog_name", "schema_name"]),
    ("tables", &["table_catalog", "table_schema", "table_name", "table_type"]),
    (
        "columns",
        &["table_catalog", "table_schema", "table_name", "column_name", "ordinal_position", "is_nullable", "data_type"],
    ),
];

/// What a caller may name.
#[derive(Debug)]
pub(crate) struct Catalog(pub(crate) Vec<TableEntry>);

impl Catalog {
    /// Finds a table: of a schema, or the operator's before the product's.
    pub(crate) fn find(&self, (schema, name): &Named) -> Option<&TableEntry> {
        let of = |wanted: &str| self.0.iter().find(|entry| entry.schema == wanted && entry.name == *name);
        match schema {
            Some(schema) => of(schema),
            None => of(PUBLIC_SCHEMA).or_else(|| of(QUIVER_SCHEMA)),
        }
    }

    /// Fixed columns of a table.
    pub(crate) fn fixed(&self, named: &Named) -> Option<Vec<String>> {
        if named.0.as_deref() == Some(INFORMATION_SCHEMA) {
            let (_, columns) = ABOUT.iter().find(|(name, _)| *name == named.1)?;
            return Some(columns.iter().map(|name| (*name).to_owned()).collect());
        }
        let entry = self.find(named)?;
        Some(entry.columns.fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Says that there is no such table, and which may have been meant.
    pub(crate) fn unknown(&self, name: &str) -> Error {
        let bare = name.rsplit('.').next().unwrap_or(name);
        let meant = nearest(bare, self.0.iter().map(|entry| entry.name.as_str()));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        Error::invalid(format!("there is no table `{name}`{meant}"))
    }

    /// Makes a table about tables.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub(crate) fn about(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some((_, names)) = ABOUT.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        let rows = match name {
            "schemata" => {
                [PUBLIC_SCHEMA, QUIVER_SCHEMA, INFORMATION_SCHEMA].map(|s| vec![CATALOG.into(), s.into()]).to_vec()
            }
            "tables" => {
                let own = ABOUT.iter().map(|(name, _)| (INFORMATION_SCHEMA, *name, "VIEW"));
                let all = self.0.iter().map(|entry| (entry.schema, entry.name.as_str(), "BASE TABLE")).chain(own);
                all.map(|(schema, name, kind)| [CATALOG, schema, name, kind].map(str::to_owned).to_vec()).collect()
            }
            _ => self.0.iter().flat_map(columns_of).collect::<Vec<Vec<String>>>(),
        };
        let column = |(at, name): (usize, &&str)| -> (Field, ArrayRef) {
            if *name == "ordinal_position" {
                let numbers: Int64Array = rows.iter().map(|row| row[at].parse::<i64>().ok()).collect();
                return (Field::new(*name, DataType::Int64, false), Arc::new(numbers));
            }
            let texts = StringViewArray::from_iter_values(rows.iter().map(|row| row[at].as_str()));
            (Field::new(*name, DataType::Utf8View, false), Arc::new(texts))
        };
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = names.iter().enumerate().map(column).unzip();
        let failed = |e| Error::internal("cannot list tables").with_source(e);
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(failed)?;
        let table = MemTable::try_new(schema, vec![vec![batch]]).map_err(quiver_query::from_datafusion)?;
        Ok(Some(Arc::new(table)))
    }
}

fn columns_of(entry: &TableEntry) -> impl Iterator<Item = Vec<String>> + '_ {
    entry.columns.fields().iter().enumerate().map(move |(at, field)| {
        vec![
            CATALOG.to_owned(),
            entry.schema.to_owned(),
            entry.name.clone(),
            field.name().clone(),
            (at + 1).to_string(),
            if field.is_nullable() { "YES" } else { "NO" }.to_owned(),
            type_name(field.data_type()),
        ]
    })
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
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            format!("numeric({precision},{scale})")
        }
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
    use super::*;

    fn catalog() -> Catalog {
        let columns = Arc::new(Schema::new(vec![Field::new("time", DataType::Int64, false)]));
        let entry = |schema, name: &str| TableEntry { schema, name: name.to_owned(), columns: Arc::clone(&columns) };
        Catalog(vec![entry(QUIVER_SCHEMA, "logs"), entry(PUBLIC_SCHEMA, "hosts"), entry(QUIVER_SCHEMA, "hosts")])
    }

    #[test]
    fn public_comes_first() {
        let schema = |named: &Named| catalog().find(named).map(|entry| entry.schema);
        assert_eq!(schema(&(None, "hosts".to_owned())), Some(PUBLIC_SCHEMA));
        assert_eq!(schema(&(Some("quiver".to_owned()), "hosts".to_owned())), Some(QUIVER_SCHEMA));
        assert_eq!(schema(&(None, "log".to_owned())), None);
        assert!(catalog().unknown("log").message.contains("did you mean `logs`"));
    }

    #[test]
    fn tables_about_tables_have_their_columns() {
        for (name, columns) in ABOUT {
            let table = catalog().about(name).unwrap().expect("one of them");
            let names: Vec<String> = table.schema().fields().iter().map(|f| f.name().clone()).collect();
            assert_eq!(names, columns);
        }
        assert!(catalog().about("nothing").unwrap().is_none());
        let map = quiver_types::tables::spans::map();
        assert_eq!(type_name(&map), "map(text, text)");
    }
}
