//! What alerting did: `alert_events`, `alert_actions`, `rule_evaluations`, `notifications`.
//!
//! Their rows are there as a whole before the first is given, in the query's memory; only columns that a statement speaks of
//! are read, and only parts of its time.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, MapArray, RecordBatch, StringViewBuilder, TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::source::RowSnapshot;
use quiver_types::tables::TableDef;
use quiver_types::tables::history::{RULE_EVALUATIONS, SERVICE};
use quiver_types::{Access, Domain, Error, MillisRange, ReadStats, Result};

use super::cells::{text, text_map, texts, time};
use super::convert::batch;
use super::lower::{Condition, Lower, Lowered, lower_all, nanos_of, range_of, supported};
use super::named::{Ask, NamedTable};
use crate::error::to_datafusion;

/// What the service of a row is called.
const SERVICE_NAME: &str = "service_name";
/// Maps whose entries are columns by name: `labels.team`.
const MAPS: [&str; 2] = ["labels", "annotations"];

/// One of the tables.
#[derive(Debug)]
pub(super) struct HistoryTable(pub(super) &'static TableDef);

/// The map and the key behind a name of a column.
pub(super) fn entry_of(column: &str) -> Option<(&str, &str)> {
    column.split_once('.').filter(|(map, key)| MAPS.contains(map) && !key.is_empty())
}

/// Gives the stored column that a column is made of.
fn stored(column: &str) -> &str {
    match entry_of(column) {
        Some((map, _)) => map,
        None if column == SERVICE_NAME => SERVICE,
        None => column,
    }
}

fn shown(field: &Field) -> Field {
    let name = field.name().as_str();
    match field.data_type() {
        _ if name == SERVICE => text(SERVICE_NAME),
        DataType::Utf8 => text(name),
        DataType::Map(..) => text_map(name),
        DataType::Timestamp(..) => time(name, TimeUnit::Millisecond),
        other => Field::new(name, other.clone(), true),
    }
}

#[async_trait]
impl NamedTable for HistoryTable {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn domain(&self) -> Domain {
        if self.0.number == RULE_EVALUATIONS.number { Domain::Alerting } else { Domain::Alerts }
    }

    fn columns(&self) -> SchemaRef {
        let stored = (self.0.files[0].schema)();
        Arc::new(Schema::new(stored.fields().iter().map(|field| shown(field)).collect::<Vec<_>>()))
    }

    fn finds(&self, column: &str) -> bool {
        entry_of(column).is_some_and(|(map, _)| self.columns().column_with_name(map).is_some())
    }

    async fn open(&self, ask: &Ask<'_>) -> Result<Arc<dyn TableProvider>> {
        let mut fields: Vec<Field> = self.columns().fields().iter().map(|f| (**f).clone()).collect();
        fields.extend(ask.found.iter().map(text));
        Ok(Arc::new(HistoryProvider {
            table: self.0,
            schema: Arc::new(Schema::new(fields)),
            snapshot: Arc::clone(&ask.sources.rows),
            access: ask.access(self.domain()),
            stats: Arc::clone(&ask.ctx.stats),
        }))
    }
}

/// The table of one statement.
#[derive(Debug)]
struct HistoryProvider {
    table: &'static TableDef,
    schema: SchemaRef,
    snapshot: Arc<dyn RowSnapshot>,
    access: Access,
    stats: Arc<ReadStats>,
}

/// Lowers conditions on the time of rows; all else stays above.
struct ByTime;

impl Lower for ByTime {
    type Filter = MillisRange;

    fn condition(&self, column: &str, condition: &Condition<'_>) -> Option<Lowered<MillisRange>> {
        let Condition::Compare(op, value) = condition else { return None };
        let (nanos, _) = nanos_of(value).filter(|_| column == "time")?;
        let (min, max) = range_of(*op, nanos)?;
        Some(Lowered::wider(MillisRange::new(min.div_euclid(1_000_000), max.div_euclid(1_000_000))))
    }

    fn all_of(filters: Vec<MillisRange>) -> MillisRange {
        let both = |a: MillisRange, b: MillisRange| MillisRange::new(a.min.max(b.min), a.max.min(b.max));
        filters.into_iter().fold(MillisRange::ALL, both)
    }

    fn any_of([a, b]: [MillisRange; 2]) -> Option<MillisRange> {
        Some(a.union(&b))
    }
}

#[async_trait]
impl TableProvider for HistoryProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(supported(&ByTime, filters))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let schema = Arc::new(self.schema.project(projection.unwrap_or(&all))?);
        let range = ByTime::all_of(lower_all(&ByTime, filters));
        let mut columns: Vec<&str> = schema.fields().iter().map(|field| stored(field.name())).collect();
        // A statement that counts rows speaks of none.
        columns.push("time");
        columns.sort_unstable();
        columns.dedup();
        let rows = self.snapshot.rows(self.table, &columns, &self.access, range, &self.stats).await;
        let rows = rows.and_then(|rows| rows.iter().map(|one| cells(one, &schema)).collect::<Result<Vec<_>>>());
        MemTable::try_new(schema, vec![rows.map_err(to_datafusion)?])?.scan(state, None, &[], limit).await
    }
}

/// Makes the columns of a statement of stored ones.
fn cells(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &Arc<Field>| {
        let name = field.name().as_str();
        let stored = rows.column_by_name(stored(name)).ok_or_else(|| odd(name))?;
        match entry_of(name) {
            Some((_, key)) => Ok(entry(stored.as_map_opt().ok_or_else(|| odd(name))?, key)),
            None => cell(stored, field),
        }
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    batch(schema, columns, rows.num_rows())
}

fn odd(name: &str) -> Error {
    Error::internal(format!("the stored column of `{name}` is missing, or is of another type"))
}

fn cell(stored: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let name = field.name();
    Ok(match stored.data_type() {
        DataType::Utf8 => Arc::new(texts(stored).ok_or_else(|| odd(name))?),
        // The time 0 says that there is none, but for when a row was made.
        DataType::Timestamp(..) if name != "time" => {
            let times = stored.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(|| odd(name))?;
            let some = times.values().iter().map(|t| Some(*t).filter(|t| *t != 0));
            Arc::new(some.collect::<TimestampMillisecondArray>().with_timezone("UTC"))
        }
        DataType::Float64 => {
            let numbers = stored.as_primitive_opt::<Float64Type>().ok_or_else(|| odd(name))?;
            let some = numbers.values().iter().map(|n| Some(*n).filter(|n| !n.is_nan()));
            Arc::new(some.collect::<Float64Array>())
        }
        _ => Arc::clone(stored),
    })
}

/// Gives the value of a key in each map; NULL where it is not there.
fn entry(maps: &MapArray, key: &str) -> ArrayRef {
    let mut out = StringViewBuilder::new();
    for row in 0..maps.len() {
        let entries = maps.value(row);
        let (keys, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
        let found = (0..keys.len()).find(|&i| keys.value(i) == key).map(|i| values.value(i));
        out.append_option(found.filter(|text| !text.is_empty()));
    }
    Arc::new(out.finish())
}
