//! Converts rows of span batches to the columns of a part. Data shared by spans is converted once per context and then
//! repeated.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array, ListArray,
    MapArray, RecordBatch, StringArray, StringBuilder, StructArray, TimestampNanosecondArray, UInt32Array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::{interleave_record_batch, take};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, UInt32Type};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::SpansBatch;
use quiver_types::spans::{Attributes, Place, RawAttribute, RollupBuilder, Value, events, links, push_typed_text};
use quiver_types::tables::{columns, spans as table};

use super::OwnType;
use super::dedicated_columns::OwnColumn;
use super::keys::SpanKeys;
use super::longest_durations::SlowestWriter;
use crate::error::{Context, Error, Result};

/// Builds a column of maps from text to text.
#[derive(Default)]
struct MapColumn {
    keys: StringBuilder,
    values: StringBuilder,
    /// Starts with a zero, before the first row.
    offsets: Vec<i32>,
    entries: i32,
    typed: String,
}

impl MapColumn {
    fn push(&mut self, key: &str, value: Value<'_>) {
        self.typed.clear();
        push_typed_text(value, &mut self.typed);
        self.keys.append_value(key);
        self.values.append_value(&self.typed);
        self.entries += 1;
    }

    fn end(&mut self) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.offsets.push(self.entries);
    }

    /// Appends a row with all attributes.
    fn push_row(&mut self, attributes: &[u8], place: Place, keys: &mut SpanKeys) {
        for (key, value) in Attributes::read(attributes) {
            keys.add(place, key);
            self.push(key, value);
        }
        self.end();
    }

    fn finish(mut self) -> Result<MapArray> {
        let DataType::Map(field, ordered) = columns::map() else { return Err(Error::internal("a map is a map")) };
        let DataType::Struct(fields) = field.data_type() else { return Err(Error::internal("entries are a struct")) };
        let columns: Vec<ArrayRef> = vec![Arc::new(self.keys.finish()), Arc::new(self.values.finish())];
        let entries = StructArray::try_new(fields.clone(), columns, None).internal("cannot build a map")?;
        MapArray::try_new(Arc::clone(&field), offsets(self.offsets), entries, None, ordered)
            .internal("cannot build a map")
    }
}

/// Builds Arrow offsets. If there are rows, `ends` has a leading zero.
fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    if ends.is_empty() { OffsetBuffer::new_empty() } else { OffsetBuffer::new(ends.into()) }
}

/// Values of an attribute's own column; rows without the attribute are null.
enum Values {
    /// Text bytes, and the end of each row after a leading zero.
    Text(Vec<u8>, Vec<i32>),
    Int(Vec<i64>),
    Double(Vec<f64>),
    Bool(Vec<bool>),
}

/// Typical length of a text, to reserve memory.
const TEXT_BYTES: usize = 8;

/// Pads to a length; mostly there is nothing to do.
#[inline]
fn fill<T: Copy>(values: &mut Vec<T>, len: usize, with: T) {
    if values.len() < len {
        values.resize(len, with);
    }
}

struct OwnBuilder {
    values: Values,
    present: Vec<bool>,
}

impl OwnBuilder {
    fn new(kind: OwnType, rows: usize) -> Self {
        let values = match kind {
            OwnType::Text => {
                let mut ends = Vec::with_capacity(rows + 1);
                ends.push(0);
                Values::Text(Vec::with_capacity(rows * TEXT_BYTES), ends)
            }
            OwnType::Int => Values::Int(Vec::with_capacity(rows)),
            OwnType::Double => Values::Double(Vec::with_capacity(rows)),
            OwnType::Bool => Values::Bool(Vec::with_capacity(rows)),
        };
        Self { values, present: Vec::with_capacity(rows) }
    }

    /// Pads with nulls to a length.
    fn pad(&mut self, len: usize) {
        self.present.resize(len, false);
        match &mut self.values {
            Values::Text(bytes, ends) => ends.resize(len + 1, bytes.len() as i32),
            Values::Int(values) => values.resize(len, 0),
            Values::Double(values) => values.resize(len, 0.0),
            Values::Bool(values) => values.resize(len, false),
        }
    }

    /// Sets the value of a row; `false` if it has another type than the column.
    fn push(&mut self, row: usize, raw: RawAttribute<'_>) -> bool {
        let eight = || raw.bytes().try_into().ok();
        match &mut self.values {
            Values::Text(bytes, ends) if raw.letter == b's' => {
                fill(ends, row + 1, bytes.len() as i32);
                bytes.extend_from_slice(raw.bytes());
                ends.push(bytes.len() as i32);
            }
            Values::Int(values) if raw.letter == b'i' => {
                let Some(eight) = eight() else { return false };
                fill(values, row, 0);
                values.push(i64::from_le_bytes(eight));
            }
            Values::Double(values) if raw.letter == b'd' => {
                let Some(eight) = eight() else { return false };
                fill(values, row, 0.0);
                values.push(f64::from_le_bytes(eight));
            }
            Values::Bool(values) if raw.letter == b'b' => {
                fill(values, row, false);
                values.push(raw.bytes() != [0]);
            }
            _ => return false,
        }
        fill(&mut self.present, row, false);
        self.present.push(true);
        true
    }

    fn finish(mut self, rows: usize) -> Result<ArrayRef> {
        self.pad(rows);
        let nulls = Some(NullBuffer::from(self.present)).filter(|n| n.null_count() > 0);
        Ok(match self.values {
            Values::Text(bytes, ends) => {
                let texts = StringArray::try_new(offsets(ends), Buffer::from_vec(bytes), nulls);
                Arc::new(texts.internal("an attribute is no text")?)
            }
            Values::Int(values) => Arc::new(Int64Array::new(values.into(), nulls)),
            Values::Double(values) => Arc::new(Float64Array::new(values.into(), nulls)),
            Values::Bool(values) => Arc::new(BooleanArray::new(values.into(), nulls)),
        })
    }
}

/// Finds the column of an attribute key. Keys come in much the same order in each span, so the key seen last at this
/// position is tried first.
struct Finder<'o> {
    of: HashMap<&'o [u8], Option<usize>, FixedState>,
    /// For each position in a span: the key seen there last, and its column.
    last: Vec<(&'o [u8], Option<usize>)>,
}

impl<'o> Finder<'o> {
    fn new(own: &'o [OwnColumn], place: Place) -> Self {
        let columns = own.iter().enumerate().filter(|(_, c)| c.place == place);
        Self { of: columns.map(|(i, c)| (c.key.as_bytes(), Some(i))).collect(), last: Vec::new() }
    }

    fn column(&mut self, after: usize, key: &[u8]) -> Option<usize> {
        if let Some((known, column)) = self.last.get(after)
            && *known == key
        {
            return *column;
        }
        let (known, column) = self.of.get_key_value(key)?;
        if self.last.len() <= after {
            self.last.resize(after + 1, (&[], None));
        }
        self.last[after] = (known, *column);
        *column
    }
}

/// Builds the columns of attributes from encoded attributes, row by row.
struct AttributeColumns<'o> {
    place: Place,
    own: Vec<Option<OwnBuilder>>,
    finder: Finder<'o>,
    rest: MapColumn,
    rows: usize,
}

impl<'o> AttributeColumns<'o> {
    fn new(own: &'o [OwnColumn], place: Place, rows: usize) -> Self {
        let builder = |c: &OwnColumn| (c.place == place).then(|| OwnBuilder::new(c.kind, rows));
        let own_columns = own.iter().map(builder).collect();
        Self { place, own: own_columns, finder: Finder::new(own, place), rest: MapColumn::default(), rows: 0 }
    }

    fn push(&mut self, bytes: &[u8], keys: &mut SpanKeys) {
        // The previous attribute's column number plus one: the next one is mostly the same as last time.
        let mut after = 0;
        for raw in Attributes::raw(bytes) {
            let column = self.finder.column(after, raw.key);
            if let Some(column) = column {
                after = column + 1;
                if let Some(own) = &mut self.own[column]
                    && own.push(self.rows, raw)
                {
                    continue;
                }
            }
            if let Some(value) = raw.value()
                && let Ok(key) = std::str::from_utf8(raw.key)
            {
                keys.add(self.place, key);
                self.rest.push(key, value);
            }
        }
        self.rest.end();
        self.rows += 1;
    }
}

/// Rows of several batches, gathered in table order.
pub(super) struct GatheredRows<'b> {
    /// The columns of [`quiver_types::spans::SPAN_COLUMNS`] except [`BLOBS`]; its column `context` must not be used.
    spans: RecordBatch,
    blobs: [Blobs<'b>; 3],
    /// The contexts of all batches involved, concatenated.
    contexts: RecordBatch,
    /// For each row the index of its context in `contexts`.
    of: UInt32Array,
}

/// The columns with most of a span's bytes; they are read in place and not copied in encoded form.
pub(super) const BLOBS: [&str; 3] = ["attributes", "events", "links"];

/// One of these columns in row order.
struct Blobs<'b> {
    arrays: Vec<&'b BinaryArray>,
    /// For each row, the array and the index within it.
    rows: Arc<[(usize, usize)]>,
}

impl<'b> Blobs<'b> {
    fn iter(&self) -> impl Iterator<Item = &'b [u8]> {
        self.rows.iter().map(|&(array, at)| self.arrays[array].value(at))
    }
}

impl<'b> GatheredRows<'b> {
    /// Gathers rows, given as pairs of batch and row.
    pub(super) fn of(batches: &'b [SpansBatch], rows: &[(u32, u32)]) -> Result<Self> {
        let mut used: Vec<u32> = rows.iter().map(|r| r.0).collect();
        used.sort_unstable();
        used.dedup();
        let mut places = vec![0usize; batches.len()];
        used.iter().enumerate().for_each(|(place, &b)| places[b as usize] = place);
        let failed = "cannot sort spans";
        let spans: Vec<&RecordBatch> = used.iter().map(|&b| &batches[b as usize].spans).collect();
        let indices: Arc<[(usize, usize)]> = rows.iter().map(|r| (places[r.0 as usize], r.1 as usize)).collect();
        let blobs = BLOBS.map(|name| Blobs {
            arrays: spans.iter().map(|b| b[name].as_binary::<i32>()).collect(),
            rows: Arc::clone(&indices),
        });
        let schema = quiver_types::spans::span_schema();
        let narrow = schema.fields().iter().zip(0..).filter(|(field, _)| !BLOBS.contains(&field.name().as_str()));
        let narrow: Vec<usize> = narrow.map(|(_, at)| at).collect();
        let narrow: Vec<RecordBatch> =
            spans.iter().map(|b| b.project(&narrow)).collect::<Result<_, _>>().internal(failed)?;
        let gathered = interleave_record_batch(&narrow.iter().collect::<Vec<_>>(), &indices).internal(failed)?;
        let contexts: Vec<&RecordBatch> = used.iter().map(|&b| &batches[b as usize].contexts).collect();
        let mut base = Vec::with_capacity(used.len());
        let mut total = 0;
        for batch in &contexts {
            base.push(total);
            total += batch.num_rows() as u32;
        }
        let references: Vec<&[u32]> =
            spans.iter().map(|b| &**b["context"].as_primitive::<UInt32Type>().values()).collect();
        let of = indices.iter().map(|&(batch, row)| base[batch] + references[batch][row]);
        let of = UInt32Array::from_iter_values(of);
        let schema = quiver_types::spans::context_schema();
        let contexts = arrow::compute::concat_batches(&schema, contexts).internal(failed)?;
        Ok(Self { spans: gathered, blobs, contexts, of })
    }

    /// Records the longest durations of the rows; `first` is the first row's number in the file.
    pub(super) fn slowest(&self, durations: &[i64], slowest: &mut SlowestWriter, first: u64) {
        slowest.note(self.contexts["service"].as_string::<i32>(), self.of.values(), durations, first);
    }

    /// Adds the rows to a roll-up.
    pub(super) fn roll_up(&self, rollup: &mut RollupBuilder) -> Result<()> {
        let [Blobs { arrays, rows }, ..] = &self.blobs;
        let attributes = |i: usize| {
            let (array, at) = rows[i];
            arrays[array].value(at)
        };
        rollup.push_spans(&self.spans, &self.contexts, self.of.values(), attributes, true)
    }
}

/// Converts gathered rows to the columns of a part.
pub(super) struct Builder<'o> {
    own: &'o [OwnColumn],
}

impl<'o> Builder<'o> {
    pub(super) fn new(own: &'o [OwnColumn]) -> Self {
        Self { own }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        let mut fields: Vec<FieldRef> = table::rows().fields().iter().map(Arc::clone).collect();
        fields.extend(self.own.iter().map(|c| Arc::new(c.field())));
        Arc::new(Schema::new(fields))
    }

    /// Builds the columns.
    pub(super) fn build(&self, rows: &GatheredRows<'_>, keys: &mut SpanKeys) -> Result<RecordBatch> {
        let GatheredRows { spans, blobs: [attribute_runs, event_runs, link_runs], contexts, of } = rows;
        let count = spans.num_rows();
        let mut attributes = AttributeColumns::new(self.own, Place::Span, count);
        attribute_runs.iter().for_each(|bytes| attributes.push(bytes, keys));
        let mut resources = AttributeColumns::new(self.own, Place::Resource, contexts.num_rows());
        let mut scopes = AttributeColumns::new(&[], Place::Scope, contexts.num_rows());
        for (columns, name) in [(&mut resources, "resource"), (&mut scopes, "scope_attributes")] {
            contexts[name].as_binary::<i32>().iter().for_each(|bytes| columns.push(bytes.unwrap_or_default(), keys));
        }
        let repeated = |array: &dyn Array| take(array, of, None).internal("cannot repeat what spans share");
        let time = |name: &str| -> ArrayRef {
            let times = spans[name].as_primitive::<Int64Type>().values().clone();
            Arc::new(TimestampNanosecondArray::new(times, None).with_timezone("UTC"))
        };
        let starts = spans["start"].as_primitive::<Int64Type>();
        let ends = spans["end"].as_primitive::<Int64Type>();
        let durations = Int64Array::from_iter_values(ends.values().iter().zip(starts.values()).map(|(e, s)| e - s));
        let same = |name: &str| Arc::clone(&spans[name]);
        let mut columns: Vec<ArrayRef> = vec![
            same("trace_id"),
            same("span_id"),
            parents(spans["parent_span_id"].as_fixed_size_binary())?,
            repeated(&contexts["service"])?,
            same("name"),
            same("kind"),
            time("start"),
            Arc::new(durations),
            same("status"),
            same("status_message"),
            same("trace_state"),
            same("flags"),
            same("dropped_attributes"),
            same("dropped_events"),
            same("dropped_links"),
            repeated(&contexts["scope_name"])?,
            repeated(&contexts["scope_version"])?,
            time("received"),
            same("marks"),
            Arc::new(attributes.rest.finish()?),
            repeated(&resources.rest.finish()?)?,
            repeated(&scopes.rest.finish()?)?,
            event_column(event_runs, keys)?,
            link_column(link_runs, keys)?,
        ];
        for (of_span, of_resource) in attributes.own.into_iter().zip(resources.own) {
            if let Some(own) = of_span {
                columns.push(own.finish(count)?);
            } else if let Some(own) = of_resource {
                columns.push(repeated(&own.finish(contexts.num_rows())?)?);
            }
        }
        RecordBatch::try_new(self.schema(), columns).internal("cannot build a batch of spans")
    }
}

fn parents(ids: &FixedSizeBinaryArray) -> Result<ArrayRef> {
    let there: Vec<bool> = (0..ids.len()).map(|i| ids.value(i) != [0; 8]).collect();
    let nulls = NullBuffer::from(there);
    let array = FixedSizeBinaryArray::try_new(8, ids.value_data().to_vec().into(), Some(nulls));
    Ok(Arc::new(array.internal("cannot build ids")?))
}

fn event_column(runs: &Blobs<'_>, keys: &mut SpanKeys) -> Result<ArrayRef> {
    let (mut times, mut names, mut dropped) = (Vec::new(), StringBuilder::new(), Vec::new());
    let (mut attributes, mut ends) = (MapColumn::default(), Vec::with_capacity(runs.rows.len() + 1));
    ends.push(0);
    for run in runs.iter() {
        for event in events(run) {
            times.push(event.time);
            names.append_value(event.name);
            dropped.push(event.dropped);
            keys.events = true;
            attributes.push_row(event.attributes, Place::Event, keys);
        }
        ends.push(times.len() as i32);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampNanosecondArray::from(times).with_timezone("UTC")),
        Arc::new(names.finish()),
        Arc::new(UInt32Array::from(dropped)),
        Arc::new(attributes.finish()?),
    ];
    list(table::event_fields(), columns, ends)
}

fn link_column(runs: &Blobs<'_>, keys: &mut SpanKeys) -> Result<ArrayRef> {
    let (mut trace_ids, mut span_ids, mut states) = (Vec::new(), Vec::new(), StringBuilder::new());
    let (mut flags, mut dropped) = (Vec::new(), Vec::new());
    let (mut attributes, mut ends) = (MapColumn::default(), Vec::with_capacity(runs.rows.len() + 1));
    ends.push(0);
    for run in runs.iter() {
        for link in links(run) {
            trace_ids.extend_from_slice(&link.trace_id);
            span_ids.extend_from_slice(&link.span_id);
            states.append_value(link.trace_state);
            flags.push(link.flags);
            dropped.push(link.dropped);
            keys.links = true;
            attributes.push_row(link.attributes, Place::Link, keys);
        }
        ends.push(flags.len() as i32);
    }
    let fixed = |size: i32, bytes: Vec<u8>| FixedSizeBinaryArray::try_new(size, bytes.into(), None);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(fixed(16, trace_ids).internal("cannot build ids")?),
        Arc::new(fixed(8, span_ids).internal("cannot build ids")?),
        Arc::new(states.finish()),
        Arc::new(UInt32Array::from(flags)),
        Arc::new(UInt32Array::from(dropped)),
        Arc::new(attributes.finish()?),
    ];
    list(table::link_fields(), columns, ends)
}

fn list(fields: arrow::datatypes::Fields, columns: Vec<ArrayRef>, ends: Vec<i32>) -> Result<ArrayRef> {
    let item = Arc::new(Field::new("item", DataType::Struct(fields.clone()), false));
    let values = StructArray::try_new(fields, columns, None).internal("cannot build a list")?;
    let list = ListArray::try_new(item, offsets(ends), Arc::new(values), None).internal("cannot build a list")?;
    Ok(Arc::new(list))
}
