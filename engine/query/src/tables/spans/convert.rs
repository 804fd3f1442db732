//! Makes rows of `spans`, `span_events` and `span_links` from stored spans.

mod cells;
mod dictionary;
mod encoding;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::error::Result as DataFusionResult;
use quiver_types::query_configuration::QueryConfiguration;
use quiver_types::spans::{AttributeKind, Place, SpanColumn};
use quiver_types::{Error, Pins, Result};

use self::cells::{Cell, First, NestedItems, column};
use self::dictionary::{bytes_field, coded_column, coded_field};
use super::column_access::bytes;
use super::columns::{Kinds, SpanRowKind, attribute_of};
use super::config_values::Places;
use super::conventions::{self, Form, Step};
use crate::encoding::context::At;
use crate::tables::cells::CellKind;
use crate::tables::config_columns::{self, is_configured};
use crate::tables::convert::{Convert, ConvertedBatches, batch, pieces, pieces_by_bytes};
use crate::tables::encoding::{WrittenConvert, WrittenSpans};

/// Converts stored spans.
#[derive(Debug)]
pub(in crate::tables) struct SpanRows {
    row_kind: SpanRowKind,
    schema: SchemaRef,
    stored: Vec<SpanColumn>,
    cells: Vec<Cell>,
    /// The index of the stored column of events or links, for the tables of these.
    nested: Option<usize>,
    /// Whether texts are returned as dictionary codes and ids as bytes.
    is_coded: bool,
    /// What it was planned from, to serialize it.
    of: Arc<ConversionSpec>,
    /// Columns of ids that are returned as bytes.
    as_bytes: Vec<usize>,
}

/// What a conversion is planned from.
#[derive(Debug)]
struct ConversionSpec {
    /// The requested columns, before the form of any is changed.
    schema: SchemaRef,
    kinds: Kinds,
}

impl ConversionSpec {
    /// Keeps the kinds of the requested columns only.
    fn new(schema: &SchemaRef, kinds: &Kinds) -> Self {
        let kinds = kinds.iter().filter(|(name, _)| schema.column_with_name(name).is_some()).cloned().collect();
        Self { schema: Arc::clone(schema), kinds }
    }
}

impl SpanRows {
    /// Plans the requested columns of a table.
    pub(super) fn new(
        row_kind: SpanRowKind,
        schema: &SchemaRef,
        projection: &[usize],
        kinds: &Kinds,
        configured: &Arc<QueryConfiguration>,
    ) -> Result<Self> {
        let mut stored = Vec::new();
        let cells =
            projection.iter().map(|&at| cell(row_kind, schema.field(at).name(), (kinds, configured), &mut stored));
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let nested = match row_kind {
            SpanRowKind::Span => None,
            SpanRowKind::Event => Some(place(&mut stored, SpanColumn::Own("events"))),
            SpanRowKind::Link => Some(place(&mut stored, SpanColumn::Own("links"))),
        };
        let schema = schema.project(projection).map_err(|e| Error::internal("no such column").with_source(e))?;
        let schema = Arc::new(schema);
        let of = Arc::new(ConversionSpec::new(&schema, kinds));
        Ok(Self { row_kind, schema, stored, cells, nested, is_coded: false, of, as_bytes: Vec::new() })
    }

    /// The stored columns that must be read.
    pub(super) fn stored(&self) -> &[SpanColumn] {
        &self.stored
    }
}

fn place(stored: &mut Vec<SpanColumn>, column: SpanColumn) -> usize {
    stored.iter().position(|known| *known == column).unwrap_or_else(|| {
        stored.push(column);
        stored.len() - 1
    })
}

/// A stored text column, as dictionary codes.
fn text(column: SpanColumn) -> SpanColumn {
    SpanColumn::Coded(Box::new(column))
}

fn cell(
    row_kind: SpanRowKind,
    name: &str,
    (kinds, configured): (&Kinds, &Arc<QueryConfiguration>),
    stored: &mut Vec<SpanColumn>,
) -> Result<Cell> {
    use SpanColumn::{Context, Own};
    let mut at = |column| place(stored, column);
    if row_kind != SpanRowKind::Span {
        match name {
            "time" => return Ok(Cell::Own("time")),
            "name" => return Ok(Cell::Own("name")),
            "attributes" => return Ok(Cell::Own("attributes")),
            "linked_trace_id" => return Ok(Cell::Own("linked_trace_id")),
            "linked_span_id" => return Ok(Cell::Own("linked_span_id")),
            _ => {}
        }
    }
    Ok(match name {
        "trace_id" => Cell::Hex(at(Own("trace_id"))),
        "span_id" => Cell::Hex(at(Own("span_id"))),
        "parent_span_id" => Cell::HexOrNone(at(Own("parent_span_id"))),
        "service_name" => Cell::Text(at(text(Context("service")))),
        "name" | "span_name" => Cell::Text(at(text(SpanColumn::Text("name")))),
        "kind" => Cell::Kind(at(Own("kind"))),
        "start_time" | "span_start" => Cell::Time(at(Own("start"))),
        "end_time" => Cell::Time(at(Own("end"))),
        "duration" => Cell::Same(at(SpanColumn::Duration)),
        "status_code" => Cell::Status(at(Own("status"))),
        "status_message" => Cell::Text(at(text(SpanColumn::Text("status_message")))),
        "trace_state" => Cell::Text(at(text(SpanColumn::Text("trace_state")))),
        "scope_name" => Cell::Text(at(text(Context("scope_name")))),
        "scope_version" => Cell::Text(at(text(Context("scope_version")))),
        "attributes" => Cell::Map(at(Own("attributes"))),
        "resource" => Cell::Resource { attributes: at(Context("resource")), service: at(text(Context("service"))) },
        "scope" => Cell::Map(at(Context("scope_attributes"))),
        "events" => Cell::Events(at(Own("events"))),
        "links" => Cell::Links(at(Own("links"))),
        found if is_configured(found) => Cell::Says(config_columns::read(found, configured)?, Places::new(&mut at)),
        found if conventions::kind_of(found).is_some() => first(found, &mut at)?,
        found => {
            let unknown = || Error::internal(format!("spans have no column `{found}`"));
            let (place, key) = attribute_of(found).ok_or_else(unknown)?;
            let kind = kinds.iter().find(|(name, _)| name == found).ok_or_else(unknown)?.1;
            if (place, key) == (Place::Resource, "service.name") {
                return Ok(Cell::Text(at(text(Context("service")))));
            }
            if kind == CellKind::Text {
                return Ok(Cell::Text(at(text(SpanColumn::Attribute(place, key.to_owned(), kind.stored())))));
            }
            Cell::Same(at(SpanColumn::Attribute(place, key.to_owned(), kind.stored())))
        }
    })
}

/// A column by the conventions: the first attribute of several.
fn first(name: &str, at: &mut impl FnMut(SpanColumn) -> usize) -> Result<Cell> {
    if matches!(name, "@service.name" | "res@service.name") {
        return Ok(Cell::Text(at(text(SpanColumn::Context("service")))));
    }
    let unknown = || Error::internal(format!("`{name}` is no attribute of the conventions"));
    let (steps, kind) = conventions::steps(name).zip(conventions::kind_of(name)).ok_or_else(unknown)?;
    let kinds = steps.iter().any(|s| !s.kinds.is_empty()).then(|| at(SpanColumn::Own("kind")));
    let mut steps_at = Vec::with_capacity(steps.len());
    for Step { place, key, form, kinds } in steps {
        let before = match form {
            Form::Behind(other, _) => {
                Some(at(text(SpanColumn::Attribute(place, other.to_owned(), AttributeKind::Text))))
            }
            _ => None,
        };
        steps_at.push(First {
            column: at(text(SpanColumn::Attribute(place, key, AttributeKind::Text))),
            before,
            form,
            kinds,
        });
    }
    Ok(Cell::First { steps: steps_at, kinds, kind })
}

impl Convert for SpanRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn convert(self: Arc<Self>, batch: RecordBatch) -> ConvertedBatches {
        if self.is_coded {
            return Box::new(std::iter::once_with(move || self.piece(&batch)));
        }
        // With dictionary codes, the value for a text is computed once for all of its rows.
        let is_flat =
            |cell: &Cell| !matches!(cell, Cell::Map(_) | Cell::Resource { .. } | Cell::Events(_) | Cell::Links(_));
        if self.nested.is_none() && self.cells.iter().all(is_flat) {
            return match self.piece(&batch) {
                Ok(batch) => Box::new(pieces(batch).map(Ok)),
                Err(error) => Box::new(std::iter::once(Err(error))),
            };
        }
        match self.cut(batch) {
            Ok(pieces) => Box::new(pieces.into_iter().map(move |piece| self.piece(&piece))),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn detail(&self) -> String {
        if self.is_coded { ", texts by codes".to_owned() } else { String::new() }
    }

    fn coded(&self) -> Option<Arc<dyn Convert>> {
        if self.row_kind != SpanRowKind::Span {
            return None;
        }
        let all: Vec<usize> = (0..self.cells.len()).collect();
        let mut coded = self.of_bytes(&all);
        let fields = coded.schema.fields().iter().zip(&coded.cells).map(|(field, cell)| coded_field(field, cell));
        coded.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        coded.is_coded = true;
        Some(Arc::new(coded))
    }

    fn has_id(&self, column: usize) -> bool {
        self.row_kind == SpanRowKind::Span && matches!(self.cells.get(column), Some(Cell::Hex(_) | Cell::HexOrNone(_)))
    }

    fn with_bytes(&self, columns: &[usize]) -> Option<Arc<dyn Convert>> {
        columns.iter().all(|at| self.has_id(*at)).then(|| Arc::new(self.of_bytes(columns)) as Arc<dyn Convert>)
    }

    fn written(&self, at: &At<'_>) -> DataFusionResult<Option<WrittenConvert>> {
        let configured = self.cells.iter().find_map(|cell| match cell {
            Cell::Says(says, _) => says.configured(),
            _ => None,
        });
        Ok(Some(WrittenConvert::Spans(WrittenSpans {
            row_kind: self.row_kind,
            schema: at.write_schema(&self.of.schema)?,
            kinds: self.of.kinds.clone(),
            configured: configured.map(|configured| Pins::of_process().pin(configured)),
            as_bytes: self.as_bytes.clone(),
            is_coded: self.is_coded,
        })))
    }
}

impl SpanRows {
    /// The same conversion with the ids among these columns as bytes.
    fn of_bytes(&self, columns: &[usize]) -> Self {
        let mut fields: Vec<Field> = self.schema.fields().iter().map(|field| (**field).clone()).collect();
        let mut cells = self.cells.clone();
        let mut as_bytes = self.as_bytes.clone();
        for at in columns {
            let (place, or_none) = match cells[*at] {
                Cell::Hex(place) => (place, false),
                Cell::HexOrNone(place) => (place, true),
                _ => continue,
            };
            fields[*at] = bytes_field(&fields[*at]);
            cells[*at] = Cell::Bytes(place, or_none);
            as_bytes.push(*at);
        }
        let schema = Arc::new(Schema::new(fields));
        Self {
            row_kind: self.row_kind,
            schema,
            stored: self.stored.clone(),
            cells,
            nested: self.nested,
            is_coded: self.is_coded,
            of: Arc::clone(&self.of),
            as_bytes,
        }
    }

    /// Cuts spans, so that little is read out of their bytes at once: many may share what is stored of a resource, and
    /// each has a map of its own.
    fn cut(&self, stored: RecordBatch) -> Result<Vec<RecordBatch>> {
        let read = self.cells.iter().filter_map(|cell| match cell {
            Cell::Map(at) | Cell::Events(at) | Cell::Links(at) => Some(*at),
            Cell::Resource { attributes, .. } => Some(*attributes),
            _ => None,
        });
        let columns: Vec<ArrayRef> = read.chain(self.nested).map(|at| Arc::clone(stored.column(at))).collect();
        let columns = columns.iter().map(bytes).collect::<Result<Vec<_>>>()?;
        Ok(pieces_by_bytes(stored, &|row| columns.iter().map(|bytes| bytes(row).len()).sum()))
    }

    fn piece(&self, stored: &RecordBatch) -> Result<RecordBatch> {
        let nested = match self.nested {
            None => None,
            Some(at) => Some(NestedItems::read(self.row_kind, stored.column(at))?),
        };
        let rows = nested.as_ref().map_or(stored.num_rows(), |nested| nested.rows.len());
        let column = |cell: &Cell| -> Result<ArrayRef> {
            match (cell, &nested) {
                (Cell::Own(name), Some(nested)) => nested.column(name),
                (cell, None) if self.is_coded => coded_column(cell, stored),
                (cell, None) => column(cell, stored),
                // Values of the span are repeated for each of its events.
                (cell, Some(nested)) => take(&column(cell, stored)?, &nested.rows, None)
                    .map_err(|e| Error::internal("cannot repeat a column of a span").with_source(e)),
            }
        };
        let columns = self.cells.iter().map(column).collect::<Result<Vec<_>>>()?;
        batch(&self.schema, columns, rows)
    }
}

#[cfg(test)]
mod tests;
