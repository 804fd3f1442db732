//! Rows of `spans`, `span_events` and `span_links` out of stored spans.

mod coded;
mod written;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StringBuilder,
    StringViewArray, StringViewBuilder, StructArray, TimestampNanosecondArray, UInt8Array, UInt32Array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema, SchemaRef, UInt8Type};
use datafusion::error::Result as DataFusionResult;
use quiver_types::configured::Configured;
use quiver_types::spans::{AttributeKind, Attributes, EventRef, LinkRef, Place, SpanColumn, events, hex, links};
use quiver_types::{Error, Result};

use super::conventions::{self, Form, Step};
use super::says::{self, Places};
use super::{Each, Kinds, attribute_of, event_fields, link_fields};
use crate::forms::At;
use crate::tables::cells::{Kind, TextMaps, hex_ids, named, none_empty, uncoded};
use crate::tables::configured::{self, Says, is_configured};
use crate::tables::convert::{Convert, Converted, batch, pieces};
use crate::tables::written::WrittenConvert;
use coded::{bytes_field, coded_column, coded_field, id_bytes};
use written::Planned;

/// Names of kinds, by number; the first stands for unknown numbers, too.
pub(super) const KINDS: [&str; 6] = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
/// Names of states, by number.
pub(super) const STATUSES: [&str; 3] = ["UNSET", "OK", "ERROR"];

/// How a column is made of stored ones, which are named by their places in the request.
#[derive(Debug, Clone)]
enum Cell {
    Hex(usize),
    /// An id that may be absent.
    HexOrNone(usize),
    /// An id as bytes, and whether it may be absent.
    Bytes(usize, bool),
    Text(usize),
    Kind(usize),
    Status(usize),
    Time(usize),
    /// A column as it is.
    Same(usize),
    Map(usize),
    /// Attributes of the resource, and the service that is one of them.
    Resource {
        attributes: usize,
        service: usize,
    },
    Events(usize),
    Links(usize),
    /// The first of several attributes.
    First {
        steps: Vec<First>,
        /// Where kinds stand, if a step asks for one.
        kinds: Option<usize>,
        kind: Kind,
    },
    /// A column of the event or link itself.
    Own(&'static str),
    /// What follows from configuration.
    Says(Says, Places),
}

/// One of several attributes that a column may be.
#[derive(Debug, Clone)]
struct First {
    column: usize,
    /// The attribute that it stands behind.
    before: Option<usize>,
    form: Form,
    kinds: &'static [u8],
}

/// Converts stored spans.
#[derive(Debug)]
pub(in crate::tables) struct SpanRows {
    each: Each,
    schema: SchemaRef,
    stored: Vec<SpanColumn>,
    cells: Vec<Cell>,
    /// Where events or links stand, for tables of them.
    nested: Option<usize>,
    /// Whether texts are given by codes and ids as bytes.
    is_coded: bool,
    /// What it was planned of.
    of: Arc<Planned>,
    /// Columns of ids that are given as bytes.
    as_bytes: Vec<usize>,
}

impl SpanRows {
    /// Plans the columns of a table that are asked for.
    pub(super) fn new(
        each: Each,
        schema: &SchemaRef,
        projection: &[usize],
        kinds: &Kinds,
        configured: &Arc<Configured>,
    ) -> Result<Self> {
        let mut stored = Vec::new();
        let cells = projection.iter().map(|&at| cell(each, schema.field(at).name(), (kinds, configured), &mut stored));
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let nested = match each {
            Each::Span => None,
            Each::Event => Some(place(&mut stored, SpanColumn::Own("events"))),
            Each::Link => Some(place(&mut stored, SpanColumn::Own("links"))),
        };
        let schema = schema.project(projection).map_err(|e| Error::internal("no such column").with_source(e))?;
        let schema = Arc::new(schema);
        let of = Arc::new(Planned::new(&schema, kinds));
        Ok(Self { each, schema, stored, cells, nested, is_coded: false, of, as_bytes: Vec::new() })
    }

    /// The stored columns that are needed.
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

/// A stored column of texts, by codes.
fn text(column: SpanColumn) -> SpanColumn {
    SpanColumn::Coded(Box::new(column))
}

fn cell(
    each: Each,
    name: &str,
    (kinds, configured): (&Kinds, &Arc<Configured>),
    stored: &mut Vec<SpanColumn>,
) -> Result<Cell> {
    use SpanColumn::{Context, Own};
    let mut at = |column| place(stored, column);
    if each != Each::Span {
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
        found if is_configured(found) => Cell::Says(configured::read(found, configured)?, Places::new(&mut at)),
        found if conventions::kind_of(found).is_some() => first(found, &mut at)?,
        found => {
            let unknown = || Error::internal(format!("spans have no column `{found}`"));
            let (place, key) = attribute_of(found).ok_or_else(unknown)?;
            let kind = kinds.iter().find(|(name, _)| name == found).ok_or_else(unknown)?.1;
            if (place, key) == (Place::Resource, "service.name") {
                return Ok(Cell::Text(at(text(Context("service")))));
            }
            if kind == Kind::Text {
                return Ok(Cell::Text(at(text(SpanColumn::Attribute(place, key.to_owned(), kind.stored())))));
            }
            Cell::Same(at(SpanColumn::Attribute(place, key.to_owned(), kind.stored())))
        }
    })
}

/// A column by the conventions.
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

    fn convert(self: Arc<Self>, batch: RecordBatch) -> Converted {
        if self.is_coded {
            return Box::new(std::iter::once_with(move || self.piece(&batch)));
        }
        // What a text becomes is found once for all of its rows.
        let is_flat =
            |cell: &Cell| !matches!(cell, Cell::Map(_) | Cell::Resource { .. } | Cell::Events(_) | Cell::Links(_));
        if self.nested.is_none() && self.cells.iter().all(is_flat) {
            return match self.piece(&batch) {
                Ok(batch) => Box::new(pieces(batch).map(Ok)),
                Err(error) => Box::new(std::iter::once(Err(error))),
            };
        }
        Box::new(pieces(batch).map(move |piece| self.piece(&piece)))
    }

    fn detail(&self) -> String {
        if self.is_coded { ", texts by codes".to_owned() } else { String::new() }
    }

    fn coded(&self) -> Option<Arc<dyn Convert>> {
        if self.each != Each::Span {
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
        self.each == Each::Span && matches!(self.cells.get(column), Some(Cell::Hex(_) | Cell::HexOrNone(_)))
    }

    fn with_bytes(&self, columns: &[usize]) -> Option<Arc<dyn Convert>> {
        columns.iter().all(|at| self.has_id(*at)).then(|| Arc::new(self.of_bytes(columns)) as Arc<dyn Convert>)
    }

    fn written(&self, at: &At<'_>) -> DataFusionResult<Option<WrittenConvert>> {
        self.form(at).map(|form| Some(WrittenConvert::Spans(form)))
    }
}

pub(super) fn other_type(what: &str) -> Error {
    Error::internal(format!("{what} of a scan of spans is of another type"))
}

/// The bytes of a row of a column of bytes.
pub(super) fn bytes<'c>(column: &'c ArrayRef) -> Result<Box<dyn Fn(usize) -> &'c [u8] + 'c>> {
    if let Some(bytes) = column.as_binary_opt::<i32>() {
        return Ok(Box::new(|row| bytes.value(row)));
    }
    let bytes = column.as_binary_view_opt().ok_or_else(|| other_type("a column of bytes"))?;
    Ok(Box::new(|row| bytes.value(row)))
}

fn push_map(maps: &mut TextMaps, attributes: &[u8]) {
    let mut buffer = String::new();
    for (key, value) in Attributes::read(attributes) {
        buffer.clear();
        value.push_text(&mut buffer);
        maps.push(key, &buffer);
    }
}

fn nanos(values: ScalarBuffer<i64>) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::new(values, None).with_timezone("UTC"))
}

impl SpanRows {
    /// The same with ids among some columns as bytes.
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
            each: self.each,
            schema,
            stored: self.stored.clone(),
            cells,
            nested: self.nested,
            is_coded: self.is_coded,
            of: Arc::clone(&self.of),
            as_bytes,
        }
    }

    fn piece(&self, stored: &RecordBatch) -> Result<RecordBatch> {
        let nested = match self.nested {
            None => None,
            Some(at) => Some(Nested::read(self.each, stored.column(at))?),
        };
        let rows = nested.as_ref().map_or(stored.num_rows(), |nested| nested.rows.len());
        let column = |cell: &Cell| -> Result<ArrayRef> {
            match (cell, &nested) {
                (Cell::Own(name), Some(nested)) => nested.column(name),
                (cell, None) if self.is_coded => coded_column(cell, stored),
                (cell, None) => column(cell, stored),
                // What is of the span is repeated for each of its events.
                (cell, Some(nested)) => take(&column(cell, stored)?, &nested.rows, None)
                    .map_err(|e| Error::internal("cannot repeat a column of a span").with_source(e)),
            }
        };
        let columns = self.cells.iter().map(column).collect::<Result<Vec<_>>>()?;
        batch(&self.schema, columns, rows)
    }
}

fn column(cell: &Cell, stored: &RecordBatch) -> Result<ArrayRef> {
    let ids = |at: usize| stored.column(at).as_fixed_size_binary_opt().ok_or_else(|| other_type("an id"));
    let times = |at: usize| stored.column(at).as_primitive_opt::<Int64Type>().ok_or_else(|| other_type("a time"));
    let small = |at: usize| stored.column(at).as_primitive_opt::<UInt8Type>().ok_or_else(|| other_type("a number"));
    Ok(match cell {
        Cell::Hex(at) => Arc::new(hex_ids(ids(*at)?, false)),
        Cell::HexOrNone(at) => Arc::new(hex_ids(ids(*at)?, true)),
        Cell::Bytes(at, or_none) => id_bytes(ids(*at)?, *or_none)?,
        Cell::Text(at) => Arc::new(uncoded(stored.column(*at)).ok_or_else(|| other_type("a text"))?),
        Cell::Kind(at) => {
            let known = |n: &u8| if usize::from(*n) < KINDS.len() { *n } else { 0 };
            Arc::new(named(small(*at)?.values().iter().map(known), &KINDS))
        }
        Cell::Status(at) => Arc::new(named(small(*at)?.values().iter().copied(), &STATUSES)),
        Cell::Time(at) => nanos(times(*at)?.values().clone()),
        Cell::Same(at) => Arc::clone(stored.column(*at)),
        Cell::Map(at) => {
            let (bytes, mut maps) = (bytes(stored.column(*at))?, TextMaps::default());
            for row in 0..stored.num_rows() {
                push_map(&mut maps, bytes(row));
                maps.end();
            }
            Arc::new(maps.finish()?)
        }
        Cell::Resource { attributes, service } => resource(stored, *attributes, *service)?,
        Cell::Events(at) | Cell::Links(at) => {
            let each = if matches!(cell, Cell::Events(_)) { Each::Event } else { Each::Link };
            Nested::read(each, stored.column(*at))?.into_list(each, stored.num_rows())?
        }
        Cell::First { steps, kinds, kind } => {
            let kinds = kinds.map(small).transpose()?;
            let texts = |at: usize| uncoded(stored.column(at)).ok_or_else(|| other_type("an attribute"));
            let columns = steps.iter().map(|step| Ok((step, texts(step.column)?, step.before.map(texts).transpose()?)));
            first_of(&columns.collect::<Result<Vec<_>>>()?, kinds, *kind, stored.num_rows())
        }
        Cell::Says(says, at) => says::column(says, at, stored)?,
        Cell::Own(name) => return Err(Error::internal(format!("a span has no `{name}`"))),
    })
}

type FirstColumn<'c> = (&'c First, StringViewArray, Option<StringViewArray>);

/// The first value that each row has, in the form of the newest name; what is no number where one is meant is NULL.
fn first_of(columns: &[FirstColumn<'_>], kinds: Option<&UInt8Array>, kind: Kind, rows: usize) -> ArrayRef {
    let filled = |texts: &StringViewArray| texts.null_count() < rows && texts.views().iter().any(|v| *v as u32 != 0);
    // Most senders know one of the names.
    let columns: Vec<_> = columns.iter().filter(|(_, texts, _)| filled(texts)).collect();
    let value_at = |texts: &'_ StringViewArray, row: usize| -> Option<usize> {
        (texts.is_valid(row) && !texts.value(row).is_empty()).then_some(row)
    };
    let found = |row: usize| {
        columns.iter().find_map(|(step, texts, before)| {
            let kind = kinds.map_or(0, |kinds| kinds.value(row));
            if !step.kinds.is_empty() && !step.kinds.contains(&kind) {
                return None;
            }
            let row = value_at(texts, row)?;
            let before = before.as_ref().and_then(|b| value_at(b, row).map(|row| b.value(row))).unwrap_or_default();
            Some(step.form.apply(texts.value(row), before)).filter(|text| !text.is_empty())
        })
    };
    match kind {
        Kind::Text => {
            if let [(First { form: Form::Same, kinds: [], .. }, texts, _)] = columns.as_slice() {
                return Arc::new(none_empty(texts));
            }
            let mut out = StringViewBuilder::with_capacity(rows);
            (0..rows).for_each(|row| out.append_option(found(row)));
            Arc::new(out.finish())
        }
        Kind::Int => Arc::new((0..rows).map(|row| found(row)?.parse::<i64>().ok()).collect::<Int64Array>()),
        Kind::Float => {
            let number = |row| found(row)?.parse::<f64>().ok().filter(|n| n.is_finite());
            Arc::new((0..rows).map(number).collect::<Float64Array>())
        }
    }
}

/// Attributes of resources, the name of the service among them.
fn resource(stored: &RecordBatch, attributes: usize, service: usize) -> Result<ArrayRef> {
    const SERVICE: &str = "service.name";
    let services = uncoded(stored.column(service)).ok_or_else(|| other_type("a service"))?;
    let (bytes, mut maps, mut buffer) = (bytes(stored.column(attributes))?, TextMaps::default(), String::new());
    for row in 0..stored.num_rows() {
        let mut service = services.is_valid(row).then(|| services.value(row));
        for (key, value) in Attributes::read(bytes(row)) {
            if key > SERVICE
                && let Some(name) = service.take()
            {
                maps.push(SERVICE, name);
            }
            buffer.clear();
            value.push_text(&mut buffer);
            maps.push(key, &buffer);
        }
        if let Some(name) = service {
            maps.push(SERVICE, name);
        }
        maps.end();
    }
    Ok(Arc::new(maps.finish()?))
}

/// Events or links of some spans, one behind the other.
struct Nested {
    /// The span of each.
    rows: UInt32Array,
    times: Vec<i64>,
    /// Names of events, trace states of links.
    texts: StringBuilder,
    ids: [StringBuilder; 2],
    maps: TextMaps,
}

impl Nested {
    fn read(each: Each, column: &ArrayRef) -> Result<NestedColumns> {
        let bytes = bytes(column)?;
        let mut rows: Vec<u32> = Vec::new();
        let mut nested = Self {
            rows: UInt32Array::from(Vec::<u32>::new()),
            times: Vec::new(),
            texts: StringBuilder::new(),
            ids: [StringBuilder::new(), StringBuilder::new()],
            maps: TextMaps::default(),
        };
        for row in 0..column.len() {
            match each {
                Each::Event => events(bytes(row)).for_each(|event| {
                    rows.push(row as u32);
                    nested.event(&event);
                }),
                _ => links(bytes(row)).for_each(|link| {
                    rows.push(row as u32);
                    nested.link(&link);
                }),
            }
        }
        nested.rows = rows.into();
        nested.finish()
    }

    fn event(&mut self, event: &EventRef<'_>) {
        self.times.push(event.time);
        self.texts.append_option(Some(event.name).filter(|name| !name.is_empty()));
        push_map(&mut self.maps, event.attributes);
        self.maps.end();
    }

    fn link(&mut self, link: &LinkRef<'_>) {
        self.texts.append_option(Some(link.trace_state).filter(|state| !state.is_empty()));
        self.ids[0].append_value(hex(&link.trace_id));
        self.ids[1].append_value(hex(&link.span_id));
        push_map(&mut self.maps, link.attributes);
        self.maps.end();
    }

    fn finish(mut self) -> Result<NestedColumns> {
        Ok(NestedColumns {
            rows: self.rows,
            times: nanos(self.times.into()),
            texts: self.texts.finish(),
            ids: self.ids.map(|mut ids| ids.finish()),
            maps: Arc::new(self.maps.finish()?),
        })
    }
}

/// The same as columns.
struct NestedColumns {
    rows: UInt32Array,
    times: ArrayRef,
    texts: StringArray,
    ids: [StringArray; 2],
    maps: ArrayRef,
}

impl NestedColumns {
    fn column(&self, name: &str) -> Result<ArrayRef> {
        let view = |texts: &StringArray| -> ArrayRef {
            let mut views = StringViewBuilder::with_capacity(texts.len());
            texts.iter().for_each(|text| views.append_option(text));
            Arc::new(views.finish())
        };
        Ok(match name {
            "time" => Arc::clone(&self.times),
            "name" => view(&self.texts),
            "attributes" => Arc::clone(&self.maps),
            "linked_trace_id" => view(&self.ids[0]),
            "linked_span_id" => view(&self.ids[1]),
            other => return Err(Error::internal(format!("neither events nor links have `{other}`"))),
        })
    }

    /// As one list per span.
    fn into_list(self, each: Each, spans: usize) -> Result<ArrayRef> {
        let mut ends = vec![0i32; spans + 1];
        self.rows.values().iter().for_each(|row| ends[*row as usize + 1] += 1);
        (0..spans).for_each(|row| ends[row + 1] += ends[row]);
        let texts: ArrayRef = Arc::new(self.texts);
        let (fields, columns): (Fields, Vec<ArrayRef>) = if each == Each::Event {
            (event_fields().into(), vec![self.times, texts, self.maps])
        } else {
            let [traces, spans] = self.ids;
            (link_fields().into(), vec![Arc::new(traces), Arc::new(spans), texts, self.maps])
        };
        let failed = |e| Error::internal("cannot build a list of a span").with_source(e);
        let structs = StructArray::try_new(fields.clone(), columns, None).map_err(failed)?;
        let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(structs), None).map_err(failed)?))
    }
}

#[cfg(test)]
mod tests;
