//! Tables of the catalog: their columns are described by a line of text, their rows by values with column names.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Int16Array, Int32Array, Int64Array, ListBuilder, RecordBatch,
    StringViewArray, StringViewBuilder, TimestampNanosecondArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{MemTable, TableProvider};
use quiver_types::{Error, Result};

/// The time zone of timestamps.
const ZONE: &str = "UTC";

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Int(i64),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// A row: values with column names. A missing value is the column's default, or NULL.
pub(super) type Row = Vec<(&'static str, Cell)>;

/// A table: its columns as `name:type` or `name:type=default`, separated by spaces. Types: `l` bigint, `i` integer,
/// `h` smallint, `b` boolean, `f` real, `t` text, `T` `text[]`, `H` `smallint[]` (always NULL), `z` timestamp (always NULL).
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) columns: &'static str,
}

/// A column of a shape.
struct Column {
    name: &'static str,
    kind: char,
    default: Option<&'static str>,
}

impl Shape {
    fn each(self) -> impl Iterator<Item = Column> {
        self.columns.split_whitespace().map(|column| {
            let (name, rest) = column.split_once(':').unwrap_or((column, "t"));
            let (kind, default) = rest.split_once('=').map_or((rest, None), |(kind, default)| (kind, Some(default)));
            Column { name, kind: kind.chars().next().unwrap_or('t'), default }
        })
    }

    /// Names of its columns.
    pub(super) fn names(self) -> Vec<String> {
        self.each().map(|column| column.name.to_owned()).collect()
    }

    /// The Arrow schema of its columns.
    pub(super) fn schema(self) -> SchemaRef {
        let fields = self.each().map(|column| {
            let data_type = match column.kind {
                'l' => DataType::Int64,
                'i' => DataType::Int32,
                'h' => DataType::Int16,
                'b' => DataType::Boolean,
                'f' => DataType::Float32,
                'H' => small_numbers(),
                'T' => DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true))),
                'z' => DataType::Timestamp(TimeUnit::Nanosecond, Some(ZONE.into())),
                _ => DataType::Utf8View,
            };
            Field::new(column.name, data_type, true)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Makes the table.
    ///
    /// # Errors
    ///
    /// Internal only.
    pub(super) fn table(self, rows: &[Row]) -> Result<Arc<dyn TableProvider>> {
        debug_assert!(rows.iter().flatten().all(|(name, _)| self.each().any(|column| column.name == *name)));
        let columns: Vec<ArrayRef> = self.each().map(|column| array(&column, rows)).collect();
        let schema = self.schema();
        let failed = |e| Error::internal("cannot list tables").with_source(e);
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(failed)?;
        let table = MemTable::try_new(schema, vec![vec![batch]]).map_err(quiver_query::from_datafusion)?;
        Ok(Arc::new(table))
    }
}

/// The type of lists of small numbers.
fn small_numbers() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Int16, true)))
}

fn array(column: &Column, rows: &[Row]) -> ArrayRef {
    let value = |row: &Row| row.iter().find(|(name, _)| *name == column.name).map(|(_, cell)| cell.clone());
    let default = column.default;
    let int = |row: &Row| match value(row) {
        Some(Cell::Int(n)) => Some(n),
        _ => default.and_then(|text| text.parse::<i64>().ok()),
    };
    match column.kind {
        'l' => Arc::new(rows.iter().map(int).collect::<Int64Array>()),
        'i' => Arc::new(rows.iter().map(|row| int(row).map(|n| n as i32)).collect::<Int32Array>()),
        'h' => Arc::new(rows.iter().map(|row| int(row).map(|n| n as i16)).collect::<Int16Array>()),
        'f' => Arc::new(rows.iter().map(|row| int(row).map(|n| n as f32)).collect::<Float32Array>()),
        'b' => {
            let bool = |row: &Row| match value(row) {
                Some(Cell::Bool(b)) => Some(b),
                _ => default.map(|text| text == "true"),
            };
            Arc::new(rows.iter().map(bool).collect::<BooleanArray>())
        }
        'z' => Arc::new(TimestampNanosecondArray::new_null(rows.len()).with_timezone(ZONE)),
        'H' => new_null_array(&small_numbers(), rows.len()),
        'T' => {
            let mut lists = ListBuilder::new(StringViewBuilder::new());
            for row in rows {
                let texts = match value(row) {
                    Some(Cell::Texts(texts)) => Some(texts),
                    _ => None,
                };
                lists.append_option(texts.map(|texts| texts.into_iter().map(Some).collect::<Vec<_>>()));
            }
            Arc::new(lists.finish())
        }
        _ => {
            let text = |row: &Row| match value(row) {
                Some(Cell::Text(text)) => Some(text),
                _ => default.map(str::to_owned),
            };
            Arc::new(rows.iter().map(text).collect::<StringViewArray>())
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray as _;

    use super::*;

    /// A column of the rows, from its description.
    fn column(written: &'static str, rows: &[Row]) -> ArrayRef {
        let column = Shape { name: "x", columns: written }.each().next().expect("a column");
        array(&column, rows)
    }

    #[test]
    fn columns_are_of_the_kinds_that_their_letters_say() {
        let shape = Shape { name: "x", columns: "a:l b:i c:h d:b\n e:f f:t g:T=  h:z i j:t=x k:H" };
        let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true)));
        let moment = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let text = DataType::Utf8View;
        let expected = [
            ("a", DataType::Int64),
            ("b", DataType::Int32),
            ("c", DataType::Int16),
            ("d", DataType::Boolean),
            ("e", DataType::Float32),
            ("f", text.clone()),
            ("g", list),
            ("h", moment),
            ("i", text.clone()),
            ("j", text),
            ("k", DataType::List(Arc::new(Field::new("item", DataType::Int16, true)))),
        ];
        let expected = expected.map(|(name, kind)| Field::new(name, kind, true));
        assert_eq!(*shape.schema(), Schema::new(expected.to_vec()));
        // An empty table has its columns as well.
        let table = shape.table(&[]).unwrap();
        assert_eq!(table.schema(), shape.schema());
    }

    #[test]
    fn what_a_row_does_not_say_is_the_default_or_null() {
        let rows: Vec<Row> = vec![
            vec![("a", 7_i64.into()), ("a", 8_i64.into()), ("b", "other".into())],
            Vec::new(),
            vec![("a", "seven".into())],
        ];
        let same = |written, expected: ArrayRef| assert_eq!(&column(written, &rows), &expected, "{written}");
        same("a:l", Arc::new(Int64Array::from(vec![Some(7), None, None])));
        same("a:l=-1", Arc::new(Int64Array::from(vec![7, -1, -1])));
        same("a:l=x", Arc::new(Int64Array::from(vec![Some(7), None, None])));
        same("a:i=5", Arc::new(Int32Array::from(vec![7, 5, 5])));
        same("a:h", Arc::new(Int16Array::from(vec![Some(7), None, None])));
        same("a:f=-1", Arc::new(Float32Array::from(vec![7.0, -1.0, -1.0])));
        same("a:b", Arc::new(BooleanArray::from(vec![None::<bool>; 3])));
        same("a:b=false", Arc::new(BooleanArray::from(vec![false; 3])));
        same("a:t", Arc::new(StringViewArray::from(vec![None, None, Some("seven")])));
        // A default may be an empty text, or contain a `=`.
        same("a:t=", Arc::new(StringViewArray::from(vec!["", "", "seven"])));
        same("a:t=b=c", Arc::new(StringViewArray::from(vec!["b=c", "b=c", "seven"])));
        let moments = column("a:z", &rows);
        assert_eq!((moments.len(), moments.null_count()), (3, 3));
    }

    #[test]
    fn lists_of_texts() {
        let texts = |texts: &[&str]| Cell::Texts(texts.iter().map(|text| (*text).to_owned()).collect());
        let rows: Vec<Row> = vec![vec![("a", texts(&["x", ""]))], vec![("a", texts(&[]))], Vec::new()];
        let found = column("a:T", &rows);
        assert_eq!((found.len(), found.is_null(0), found.is_null(1), found.is_null(2)), (3, false, false, true));
        let lists = found.as_list::<i32>();
        assert_eq!(lists.value(0).as_string_view(), &StringViewArray::from(vec!["x", ""]));
        assert_eq!(lists.value(1).len(), 0);
    }

    #[test]
    fn defaults_and_values() {
        let shape = Shape { name: "x", columns: "oid:l a:b=true b:t c:T d:h=-1 e:z" };
        let rows: Vec<Row> = vec![vec![("oid", 5_i64.into()), ("b", "y".into())], vec![("a", false.into())]];
        assert_eq!(shape.names(), ["oid", "a", "b", "c", "d", "e"]);
        assert!(shape.table(&rows).is_ok());
        let a = array(&Column { name: "a", kind: 'b', default: Some("true") }, &rows);
        assert_eq!(a.as_any().downcast_ref::<BooleanArray>(), Some(&BooleanArray::from(vec![true, false])));
    }
}
