//! Computes columns of spans from stored ones.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
    StringBuilder, StringViewArray, StringViewBuilder, StructArray, TimestampNanosecondArray, UInt8Array, UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, UInt8Type};
use quiver_types::spans::{Attributes, EventRef, LinkRef, events, hex, links};
use quiver_types::{Error, Result};

use super::super::column_access::{bytes, other_type};
use super::super::columns::{KINDS, STATUSES, SpanRowKind, event_fields, link_fields};
use super::super::config_values::{self, Places};
use super::super::conventions::Form;
use crate::tables::cells::{CellKind, TextMaps, hex_ids, hex_ids_or_null, named, none_empty, uncoded};
use crate::tables::config_columns::Says;

/// How a column is computed. Numbers are indexes of stored columns.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Hex(usize),
    /// An id that may be absent.
    HexOrNone(usize),
    /// An id as bytes, and whether it may be absent.
    Bytes(usize, bool),
    Text(usize),
    Kind(usize),
    Status(usize),
    Time(usize),
    /// The stored column, unchanged.
    Same(usize),
    Map(usize),
    /// Attributes of the resource with the service name, which is stored apart.
    Resource {
        attributes: usize,
        service: usize,
    },
    Events(usize),
    Links(usize),
    /// The first of several attributes that a row has.
    First {
        steps: Vec<First>,
        /// The column of span kinds, if a step depends on it.
        kinds: Option<usize>,
        kind: CellKind,
    },
    /// A column of the event or link itself.
    Own(&'static str),
    /// A column that depends on the configuration.
    Says(Says, Places),
}

/// One of the attributes that a column may have its value from.
#[derive(Debug, Clone)]
pub(super) struct First {
    pub(super) column: usize,
    /// The column of the attribute that it is appended to.
    pub(super) before: Option<usize>,
    pub(super) form: Form,
    pub(super) kinds: &'static [u8],
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

/// Ids as bytes; with `or_none`, ids of zeros become NULL.
fn id_bytes(ids: &FixedSizeBinaryArray, or_none: bool) -> Result<ArrayRef> {
    if !or_none {
        return Ok(Arc::new(ids.clone()));
    }
    let there: NullBuffer = (0..ids.len()).map(|row| ids.value(row).iter().any(|byte| *byte != 0)).collect();
    let made = FixedSizeBinaryArray::try_new(ids.value_length(), ids.value_data().to_vec().into(), Some(there));
    Ok(Arc::new(made.map_err(|e| Error::internal("cannot read ids").with_source(e))?))
}

/// Computes a column from stored ones.
pub(super) fn column(cell: &Cell, stored: &RecordBatch) -> Result<ArrayRef> {
    let ids = |at: usize| stored.column(at).as_fixed_size_binary_opt().ok_or_else(|| other_type("an id"));
    let times = |at: usize| stored.column(at).as_primitive_opt::<Int64Type>().ok_or_else(|| other_type("a time"));
    let small = |at: usize| stored.column(at).as_primitive_opt::<UInt8Type>().ok_or_else(|| other_type("a number"));
    Ok(match cell {
        Cell::Hex(at) => Arc::new(hex_ids(ids(*at)?)),
        Cell::HexOrNone(at) => Arc::new(hex_ids_or_null(ids(*at)?)),
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
            let row_kind = if matches!(cell, Cell::Events(_)) { SpanRowKind::Event } else { SpanRowKind::Link };
            NestedItems::read(row_kind, stored.column(*at))?.into_list(row_kind, stored.num_rows())?
        }
        Cell::First { steps, kinds, kind } => {
            let kinds = kinds.map(small).transpose()?;
            let texts = |at: usize| uncoded(stored.column(at)).ok_or_else(|| other_type("an attribute"));
            let columns = steps.iter().map(|step| Ok((step, texts(step.column)?, step.before.map(texts).transpose()?)));
            first_of(&columns.collect::<Result<Vec<_>>>()?, kinds, *kind, stored.num_rows())
        }
        Cell::Says(says, at) => config_values::column(says, at, stored)?,
        Cell::Own(name) => return Err(Error::internal(format!("a span has no `{name}`"))),
    })
}

type FirstColumn<'c> = (&'c First, StringViewArray, Option<StringViewArray>);

/// The first value that each row has, in the newest form; a value that should be a number and is not becomes NULL.
fn first_of(columns: &[FirstColumn<'_>], kinds: Option<&UInt8Array>, kind: CellKind, rows: usize) -> ArrayRef {
    let filled = |texts: &StringViewArray| texts.null_count() < rows && texts.views().iter().any(|v| *v as u32 != 0);
    // Most senders use only one of the names.
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
        CellKind::Text => {
            if let [(First { form: Form::Same, kinds: [], .. }, texts, _)] = columns.as_slice() {
                return Arc::new(none_empty(texts));
            }
            let mut out = StringViewBuilder::with_capacity(rows);
            (0..rows).for_each(|row| out.append_option(found(row)));
            Arc::new(out.finish())
        }
        CellKind::Int => Arc::new((0..rows).map(|row| found(row)?.parse::<i64>().ok()).collect::<Int64Array>()),
        CellKind::Float => {
            let number = |row| found(row)?.parse::<f64>().ok().filter(|n| n.is_finite());
            Arc::new((0..rows).map(number).collect::<Float64Array>())
        }
    }
}

/// Attributes of resources, including the service name.
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

/// Events or links of some spans, concatenated.
pub(super) struct NestedItems {
    /// For each, the row of its span.
    rows: UInt32Array,
    times: Vec<i64>,
    /// Names of events, trace states of links.
    texts: StringBuilder,
    ids: [StringBuilder; 2],
    maps: TextMaps,
}

impl NestedItems {
    /// Reads the events or links of a stored column.
    pub(super) fn read(row_kind: SpanRowKind, column: &ArrayRef) -> Result<NestedColumns> {
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
            match row_kind {
                SpanRowKind::Event => events(bytes(row)).for_each(|event| {
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

/// Events or links as columns.
pub(super) struct NestedColumns {
    /// For each, the row of its span.
    pub(super) rows: UInt32Array,
    times: ArrayRef,
    texts: StringArray,
    ids: [StringArray; 2],
    maps: ArrayRef,
}

impl NestedColumns {
    /// A column by name.
    pub(super) fn column(&self, name: &str) -> Result<ArrayRef> {
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

    /// A column with one list of events or links per span.
    fn into_list(self, row_kind: SpanRowKind, spans: usize) -> Result<ArrayRef> {
        let mut ends = vec![0i32; spans + 1];
        self.rows.values().iter().for_each(|row| ends[*row as usize + 1] += 1);
        (0..spans).for_each(|row| ends[row + 1] += ends[row]);
        let texts: ArrayRef = Arc::new(self.texts);
        let (fields, columns): (Fields, Vec<ArrayRef>) = if row_kind == SpanRowKind::Event {
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
