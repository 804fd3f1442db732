//! Makes rows of `logs` from stored rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, MapArray, RecordBatch, StringViewBuilder};
use arrow::datatypes::{SchemaRef, UInt8Type};
use datafusion::error::Result as DataFusionResult;
use quiver_types::logs::{LogColumn, OBSERVED_TIME, REST, SEVERITY_NUMBER, STREAM, STREAM_ID, TIME};
use quiver_types::tables::logs::SERVICE;
use quiver_types::{Error, Result};

use super::columns::{FIELDS, field_of};
use super::config_values::LogWhen;
use crate::encoding::context::At;
use crate::error::to_datafusion;
use crate::tables::cells::{CellKind, TextMaps, texts, typed, typed_stored};
use crate::tables::config_columns::{self, Says, is_configured};
use crate::tables::convert::{Convert, ConvertedBatches, ROW_ID, batch, pieces};
use crate::tables::encoding::{WrittenConvert, WrittenLogs};

/// How a column is computed. Numbers are indexes of stored columns.
#[derive(Debug, Clone)]
enum Cell {
    /// The stored column, unchanged.
    Same(usize),
    /// The stored column as text; a missing or empty field is NULL.
    Text(usize),
    /// The severity number; 0 becomes NULL.
    Severity(usize),
    /// A field with a stored column of its own.
    Stored { column: usize, name: String, kind: CellKind },
    /// A field read from the map of all fields.
    OfMap { field: String, name: String, kind: CellKind },
    /// The map of all fields that have no fixed column.
    Fields,
    /// The number of the row, which the node above fills in.
    RowId,
    /// Whether a condition holds.
    When(LogWhen),
}

/// Converts stored rows.
#[derive(Debug)]
pub(in crate::tables) struct LogRows {
    schema: SchemaRef,
    stored: Vec<LogColumn>,
    cells: Vec<Cell>,
    rest: bool,
    /// The kinds of columns that were found by name.
    kinds: Vec<(String, CellKind)>,
}

impl LogRows {
    /// Plans the requested columns. If the map of fields is requested, single fields are read from it: a scan returns
    /// a field either as a column or in the map.
    pub(super) fn new(schema: &SchemaRef, projection: &[usize], kinds: &[(String, CellKind)]) -> Result<Self> {
        let rest = projection.iter().any(|&at| schema.field(at).name() == "fields");
        let mut stored: Vec<LogColumn> = Vec::new();
        let mut place = |column: LogColumn| {
            stored.iter().position(|known| *known == column).unwrap_or_else(|| {
                stored.push(column);
                stored.len() - 1
            })
        };
        let mut cell = |name: &str| -> Result<Cell> {
            if is_configured(name) {
                let Says::When(condition) = config_columns::read(name, &Arc::default())? else {
                    return Err(Error::invalid("only conditions are columns of logs"));
                };
                let mut column = |field: &str| (!rest || field == SERVICE).then(|| place(LogColumn::text(field)));
                return Ok(Cell::When(LogWhen::new(condition, &mut column)));
            }
            Ok(match (name, field_of(name)) {
                ("time", _) => Cell::Same(place(LogColumn::text(TIME))),
                ("observed_time", _) => Cell::Same(place(LogColumn::text(OBSERVED_TIME))),
                ("service_name", _) => Cell::Text(place(LogColumn::text(SERVICE))),
                ("severity_number", _) => Cell::Severity(place(LogColumn::text(SEVERITY_NUMBER))),
                ("stream", _) => Cell::Text(place(LogColumn::text(STREAM))),
                ("stream_id", _) => Cell::Text(place(LogColumn::text(STREAM_ID))),
                ("fields", _) => Cell::Fields,
                (ROW_ID, _) => Cell::RowId,
                (name, field) => {
                    let field = field.unwrap_or(name);
                    let kind = kinds.iter().find(|(known, _)| known == name).map_or(CellKind::Text, |(_, kind)| *kind);
                    if rest {
                        Cell::OfMap { field: field.to_owned(), name: name.to_owned(), kind }
                    } else if kind == CellKind::Text {
                        Cell::Text(place(LogColumn::text(field)))
                    } else {
                        Cell::Stored { column: place(LogColumn::stored(field)), name: name.to_owned(), kind }
                    }
                }
            })
        };
        let cells = projection.iter().map(|&at| cell(schema.field(at).name())).collect::<Result<Vec<_>>>()?;
        if stored.is_empty() && !rest {
            // To count rows, their times are read, which each row has.
            stored.push(LogColumn::text(TIME));
        }
        let schema = schema.project(projection).map_err(|e| Error::internal("no such column").with_source(e))?;
        let kinds = kinds.iter().filter(|(name, _)| schema.column_with_name(name).is_some()).cloned().collect();
        Ok(Self { schema: Arc::new(schema), stored, cells, rest, kinds })
    }

    /// Reads the form that [`Convert::written`] returns, and how many stored columns are needed.
    pub(in crate::tables) fn read(rows: WrittenLogs, at: &At<'_>) -> DataFusionResult<(Arc<dyn Convert>, usize)> {
        let schema = at.forms.read_schema(&rows.schema)?;
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let read = Self::new(&schema, &all, &rows.kinds).map_err(to_datafusion)?;
        let columns = read.stored.len();
        Ok((Arc::new(read), columns))
    }

    /// The stored columns that must be read.
    pub(super) fn stored(&self) -> &[LogColumn] {
        &self.stored
    }

    /// Whether the map of all fields must be read.
    pub(super) fn rest(&self) -> bool {
        self.rest
    }

    fn piece(&self, stored: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.cells.iter().map(|cell| column(cell, stored)).collect::<Result<Vec<_>>>()?;
        batch(&self.schema, columns, stored.num_rows())
    }
}

impl Convert for LogRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn convert(self: Arc<Self>, batch: RecordBatch) -> ConvertedBatches {
        Box::new(pieces(batch).map(move |piece| self.piece(&piece)))
    }

    fn detail(&self) -> String {
        String::new()
    }

    fn written(&self, at: &At<'_>) -> DataFusionResult<Option<WrittenConvert>> {
        let (schema, kinds) = (at.write_schema(&self.schema)?, self.kinds.clone());
        Ok(Some(WrittenConvert::Logs(WrittenLogs { schema, kinds })))
    }
}

fn column(cell: &Cell, stored: &RecordBatch) -> Result<ArrayRef> {
    let other = |what: &str| Error::internal(format!("{what} of a scan of logs is of another type"));
    Ok(match cell {
        Cell::Same(at) => Arc::clone(stored.column(*at)),
        Cell::Text(at) => Arc::new(texts(stored.column(*at)).ok_or_else(|| other("a text"))?),
        Cell::Severity(at) => {
            let numbers = stored.column(*at).as_primitive_opt::<UInt8Type>().ok_or_else(|| other("a severity"))?;
            Arc::new(numbers.iter().map(|n| n.filter(|n| *n > 0).map(i32::from)).collect::<Int32Array>())
        }
        Cell::Stored { column, name, kind } => typed_stored(name, stored.column(*column), *kind)?,
        Cell::OfMap { field, name, kind } => {
            let map = map_of(stored)?;
            let mut values = StringViewBuilder::with_capacity(stored.num_rows());
            walk(map, |row| values.append_option(row.filter(|(key, _)| key == field).map(|(_, value)| value).next()))?;
            typed(name, &values.finish(), *kind)?
        }
        Cell::When(when) => when.column(stored)?,
        Cell::RowId => Arc::new(Int64Array::from_value(0, stored.num_rows())),
        Cell::Fields => {
            let mut maps = TextMaps::default();
            walk(map_of(stored)?, |row| {
                let own = |key: &str| FIELDS.iter().any(|(_, field)| *field == key);
                row.filter(|(key, _)| !own(key)).for_each(|(key, value)| maps.push(key, value));
                maps.end();
            })?;
            Arc::new(maps.finish()?)
        }
    })
}

fn map_of(stored: &RecordBatch) -> Result<&MapArray> {
    let map = stored.column_by_name(REST).and_then(|column| column.as_map_opt());
    map.ok_or_else(|| Error::internal("a scan of logs lacks the map of fields"))
}

/// Calls `see` with the entries of each row's map, sorted by name.
fn walk<'m>(map: &'m MapArray, mut see: impl FnMut(&mut dyn Iterator<Item = (&'m str, &'m str)>)) -> Result<()> {
    let (Some(keys), Some(values)) = (map.keys().as_string_opt::<i32>(), map.values().as_string_opt::<i32>()) else {
        return Err(Error::internal("fields of a scan of logs are of another type"));
    };
    let ends = map.value_offsets();
    for row in 0..map.len() {
        let entries = ends[row] as usize..ends[row + 1] as usize;
        see(&mut entries.map(|at| (keys.value(at), values.value(at))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{StringViewArray, TimestampNanosecondArray, UInt8Array};
    use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Int64Type, Schema};
    use quiver_types::ErrorKind;
    use quiver_types::logs::StoredField;
    use serde_json::json;

    use super::*;
    use crate::tables::logs::LogTable;
    use crate::tables::named_table::NamedTable as _;

    #[test]
    fn fields_are_read_out_of_the_map() {
        let schema = LogTable.columns();
        let at = |name: &str| schema.index_of(name).unwrap();
        let rows = LogRows::new(&schema, &[at("fields"), at("message"), at("time")], &[]).unwrap();
        assert!(rows.rest());
        assert_eq!(rows.stored(), [LogColumn::text(TIME)]);
        let mut maps = TextMaps::default();
        maps.push("_msg", "hello");
        maps.push("level", "info");
        maps.end();
        maps.end();
        let times = TimestampNanosecondArray::from(vec![1, 2]).with_timezone("UTC");
        let stored = RecordBatch::try_from_iter([
            (TIME, Arc::new(times) as ArrayRef),
            (REST, Arc::new(maps.finish().unwrap()) as ArrayRef),
        ]);
        let out: Vec<_> = Arc::new(rows).convert(stored.unwrap()).map(Result::unwrap).collect();
        assert_eq!(out[0].column(1).as_string_view().iter().collect::<Vec<_>>(), [Some("hello"), None]);
        assert_eq!((out[0].column(0).as_map().value_length(0), out[0].column(0).as_map().value_length(1)), (1, 0));
    }

    #[test]
    fn counting_reads_times_only() {
        let rows = LogRows::new(&LogTable.columns(), &[], &[]).unwrap();
        assert_eq!((rows.stored(), rows.rest()), (&[LogColumn::text(TIME)][..], false));
    }

    fn planned(names: &[&str], kinds: &[(&str, CellKind)]) -> LogRows {
        let fixed = LogTable.columns();
        let field = |name: &&str| {
            let kind = kinds.iter().find(|(known, _)| known == name).map_or(CellKind::Text, |(_, kind)| *kind);
            fixed.field_with_name(name).cloned().unwrap_or_else(|_| Field::new(*name, kind.data_type(), true))
        };
        let schema: SchemaRef = Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()));
        let kinds: Vec<(String, CellKind)> = kinds.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        let all: Vec<usize> = (0..names.len()).collect();
        LogRows::new(&schema, &all, &kinds).unwrap()
    }

    fn views(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringViewArray::from(values.to_vec()))
    }

    fn converted(rows: LogRows, stored: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
        let stored =
            RecordBatch::try_from_iter_with_nullable(stored.into_iter().map(|(name, column)| (name, column, true)));
        Arc::new(rows).convert(stored.unwrap()).next().unwrap()
    }

    #[test]
    fn each_column_is_made_of_its_stored_one() {
        let names = ["message", "severity_number", "service_name", "bytes", "level", "bytes"];
        let rows = planned(&names, &[("bytes", CellKind::Int)]);
        let stored = ["_msg", SEVERITY_NUMBER, SERVICE].map(LogColumn::text).into_iter();
        let stored: Vec<LogColumn> = stored.chain([LogColumn::stored("bytes"), LogColumn::text("level")]).collect();
        assert_eq!((rows.stored(), rows.rest()), (stored.as_slice(), false), "a column is read once");
        let out = converted(
            rows,
            vec![
                ("message", views(&[Some("a"), Some("")])),
                ("severity", Arc::new(UInt8Array::from(vec![Some(0), Some(24)]))),
                ("service", views(&[None, Some("cart")])),
                ("bytes", StoredField::Int(Int64Array::from(vec![Some(7), None])).into_array(2)),
                ("level", views(&[Some(""), Some("info")])),
            ],
        );
        let out = out.unwrap();
        let texts = |at: usize| out.column(at).as_string_view().iter().collect::<Vec<_>>();
        assert_eq!(
            (texts(0), texts(2), texts(4)),
            (vec![Some("a"), None], vec![None, Some("cart")], vec![None, Some("info")])
        );
        let severity: Vec<Option<i32>> = out.column(1).as_primitive::<Int32Type>().iter().collect();
        assert_eq!(severity, [None, Some(24)], "0 is no severity");
        for at in [3, 5] {
            assert_eq!(out.column(at).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(7), None]);
        }
    }

    #[test]
    fn fields_out_of_the_map_have_their_kinds() {
        let kinds = [("bytes", CellKind::Int), ("load", CellKind::Float), (ROW_ID, CellKind::Int)];
        let map = |value: &str| {
            let mut maps = TextMaps::default();
            maps.push("bytes", value);
            maps.push("load", "0.5");
            maps.push("trace_id", "ab");
            maps.end();
            maps.end();
            Arc::new(maps.finish().unwrap()) as ArrayRef
        };
        let plan = || planned(&["fields", "bytes", "load", "trace_id", "none", ROW_ID], &kinds);
        assert!(plan().rest() && plan().stored().is_empty(), "all is in the map");
        let out = converted(plan(), vec![(REST, map("12"))]).unwrap();
        assert_eq!(out.column(1).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(12), None]);
        assert_eq!(out.column(2).as_primitive::<Float64Type>().iter().collect::<Vec<_>>(), [Some(0.5), None]);
        assert_eq!(out.column(3).as_string_view().iter().collect::<Vec<_>>(), [Some("ab"), None]);
        assert_eq!(out.column(4).null_count(), 2, "no record has it");
        let maps = out.column(0).as_map();
        assert_eq!((maps.value_length(0), maps.value_length(1)), (2, 0), "what has a column is not among them");
        let error = converted(plan(), vec![(REST, map("many"))]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Execution);
        assert!(error.message.contains("`bytes`") && error.message.contains("`many`"), "{error}");
        let error = converted(plan(), vec![("other", views(&[None]))]).unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::Internal, "a scan of logs lacks the map of fields")
        );
    }

    #[test]
    fn conditions_are_columns() {
        let condition = |value: serde_json::Value| config_columns::when(&value);
        let severe = condition(json!({"field": "severity", "op": "eq", "value": "error"}));
        let of_cart = condition(json!({"field": "service.name", "op": "eq", "value": "cart"}));
        let names = [severe.as_str(), of_cart.as_str()];
        let kinds = names.map(|name| (name, CellKind::Int));
        let rows = planned(&names, &kinds);
        let expected = ["level", "severity", "severity_text", SERVICE].map(LogColumn::text);
        assert_eq!(rows.stored(), expected, "severity goes by several names");
        let out = converted(
            rows,
            vec![
                ("level", views(&[Some("error"), Some("error"), Some("error"), None])),
                ("severity", views(&[None, Some("info"), Some(""), None])),
                ("severity_text", views(&[None, None, None, Some("error")])),
                ("service", views(&[Some("cart"), Some("Cart"), None, Some("cart")])),
            ],
        );
        let out = out.unwrap();
        let holds = |at: usize| out.column(at).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(holds(0), [1, 0, 1, 1], "the first that is there decides");
        assert_eq!(holds(1)[0], 1);
        assert_eq!(holds(1)[2], 0, "no service is none");
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("config@apdex_t", DataType::Float64, true)]));
        assert_eq!(LogRows::new(&schema, &[0], &[]).unwrap_err().kind, ErrorKind::Invalid, "logs have no threshold");
    }
}
