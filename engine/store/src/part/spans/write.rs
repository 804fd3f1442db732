//! Writing: sorts spans, and writes row groups with their index.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, FixedSizeBinaryArray, Float64Builder, Int64Array, Int64Builder,
    ListArray, MapArray, RecordBatch, StringArray, StringBuilder, StructArray, TimestampNanosecondArray, UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, UInt32Type};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parquet::basic::Compression;
use parquet::file::properties::EnabledStatistics;
use quiver_types::SpansBatch;
use quiver_types::spans::{Attributes, Place, RollupBuilder, Value, events, links, push_typed_text};
use quiver_types::tables::spans::{self as table, minute_of, trace_hash};

use super::keys::{KEYS, SpanKeys};
use super::own::OwnColumn;
use super::{MINUTES, OwnType, rollup};
use crate::error::{Context, Error, Result};
use crate::part::file::{Choices, PartFile, Unfinished, codec, column, properties};
use crate::part::{NameFilter, PartCompression, PartMeta, PartSpec, SERVICES_MAX};

/// Rows of a page.
const PAGE_ROWS: usize = 2048;
/// Rows that are made into columns at once.
const CHUNK_ROWS: usize = 32 * 1024;
/// Rows of a row group.
const GROUP_ROWS: usize = 128 * 1024;

/// Gives the rows of batches in the order of the table, as pairs of batch and row; of rows that differ in nothing but
/// the time of receipt only the first received stays.
pub(crate) fn sorted(batches: &[SpansBatch], keep: impl Fn(i64) -> bool) -> Vec<(u32, u32)> {
    struct Keys<'b> {
        ids: &'b FixedSizeBinaryArray,
        span_ids: &'b FixedSizeBinaryArray,
        starts: &'b [i64],
        received: &'b [i64],
    }
    let keys: Vec<Keys<'_>> = (batches.iter())
        .map(|b| Keys {
            ids: b.spans["trace_id"].as_fixed_size_binary(),
            span_ids: b.spans["span_id"].as_fixed_size_binary(),
            starts: b.spans["start"].as_primitive::<Int64Type>().values(),
            received: b.spans["received"].as_primitive::<Int64Type>().values(),
        })
        .collect();
    let mut rows: Vec<(i64, [u8; 16], i64, u32, u32)> = Vec::new();
    for (b, k) in keys.iter().enumerate() {
        for (i, &start) in k.starts.iter().enumerate().filter(|(_, s)| keep(**s)) {
            let id = k.ids.value(i).try_into().unwrap_or_default();
            rows.push((minute_of(start), id, start, b as u32, i as u32));
        }
    }
    let of = |r: &(i64, [u8; 16], i64, u32, u32)| (&keys[r.3 as usize], r.4 as usize);
    rows.sort_by(|a, b| {
        (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)).then_with(|| {
            let ((ka, ia), (kb, ib)) = (of(a), of(b));
            (ka.span_ids.value(ia), ka.received[ia]).cmp(&(kb.span_ids.value(ib), kb.received[ib]))
        })
    });
    let mut out: Vec<(u32, u32)> = Vec::with_capacity(rows.len());
    let mut group_start = 0;
    for (n, row) in rows.iter().enumerate() {
        let (k, i) = of(row);
        let same_span = |other: &(u32, u32)| {
            let (o, j) = (&keys[other.0 as usize], other.1 as usize);
            o.starts[j] == row.2 && o.ids.value(j) == row.1 && o.span_ids.value(j) == k.span_ids.value(i)
        };
        if n == 0 || !out.last().is_some_and(same_span) {
            group_start = out.len();
        }
        let here = (row.3, row.4);
        if !out[group_start..].iter().any(|other| equal_but_received(batches, *other, here)) {
            out.push(here);
        }
    }
    out
}

fn equal_but_received(batches: &[SpansBatch], a: (u32, u32), b: (u32, u32)) -> bool {
    let (x, y) = (&batches[a.0 as usize], &batches[b.0 as usize]);
    let same = |name: &str, left: &RecordBatch, right: &RecordBatch, i: usize, j: usize| {
        left[name].slice(i, 1).to_data() == right[name].slice(j, 1).to_data()
    };
    let (i, j) = (a.1 as usize, b.1 as usize);
    let own = quiver_types::spans::SPAN_COLUMNS.iter().filter(|c| !matches!(**c, "received" | "context"));
    let contexts =
        |batch: &SpansBatch, row: usize| batch.spans["context"].as_primitive::<UInt32Type>().value(row) as usize;
    let (ci, cj) = (contexts(x, i), contexts(y, j));
    own.into_iter().all(|c| same(c, &x.spans, &y.spans, i, j))
        && quiver_types::spans::CONTEXT_COLUMNS.iter().all(|c| same(c, &x.contexts, &y.contexts, ci, cj))
}

/// Text to text, row by row.
#[derive(Default)]
struct MapColumn {
    keys: StringBuilder,
    values: StringBuilder,
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
        self.offsets.push(self.entries);
    }

    fn finish(mut self) -> Result<MapArray> {
        let DataType::Map(field, ordered) = table::map() else { return Err(Error::internal("a map is a map")) };
        let DataType::Struct(fields) = field.data_type() else { return Err(Error::internal("entries are a struct")) };
        let columns: Vec<ArrayRef> = vec![Arc::new(self.keys.finish()), Arc::new(self.values.finish())];
        let entries = StructArray::try_new(fields.clone(), columns, None).internal("cannot build a map")?;
        MapArray::try_new(Arc::clone(&field), offsets(self.offsets), entries, None, ordered)
            .internal("cannot build a map")
    }
}

fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(std::iter::once(0).chain(ends).collect::<Vec<_>>().into())
}

/// A column of an attribute.
enum OwnBuilder {
    Text(StringBuilder),
    Int(Int64Builder),
    Double(Float64Builder),
    Bool(BooleanBuilder),
}

impl OwnBuilder {
    fn new(kind: OwnType) -> Self {
        match kind {
            OwnType::Text => Self::Text(StringBuilder::new()),
            OwnType::Int => Self::Int(Int64Builder::new()),
            OwnType::Double => Self::Double(Float64Builder::new()),
            OwnType::Bool => Self::Bool(BooleanBuilder::new()),
        }
    }

    fn len(&self) -> usize {
        use arrow::array::ArrayBuilder;
        match self {
            Self::Text(b) => b.len(),
            Self::Int(b) => b.len(),
            Self::Double(b) => b.len(),
            Self::Bool(b) => b.len(),
        }
    }

    /// Fills with nulls up to a length.
    fn pad(&mut self, len: usize) {
        let missing = len - self.len();
        match self {
            Self::Text(b) => (0..missing).for_each(|_| b.append_null()),
            Self::Int(b) => b.append_nulls(missing),
            Self::Double(b) => b.append_nulls(missing),
            Self::Bool(b) => b.append_nulls(missing),
        }
    }

    /// Takes a value for a row; `false`: it is of another type.
    fn push(&mut self, row: usize, value: Value<'_>) -> bool {
        let fits = matches!(
            (&*self, value),
            (Self::Text(_), Value::Text(_))
                | (Self::Int(_), Value::Int(_))
                | (Self::Double(_), Value::Double(_))
                | (Self::Bool(_), Value::Bool(_))
        );
        if fits {
            self.pad(row);
            match (self, value) {
                (Self::Text(b), Value::Text(v)) => b.append_value(v),
                (Self::Int(b), Value::Int(v)) => b.append_value(v),
                (Self::Double(b), Value::Double(v)) => b.append_value(v),
                (Self::Bool(b), Value::Bool(v)) => b.append_value(v),
                _ => {}
            }
        }
        fits
    }

    fn finish(mut self, rows: usize) -> ArrayRef {
        self.pad(rows);
        match self {
            Self::Text(mut b) => Arc::new(b.finish()),
            Self::Int(mut b) => Arc::new(b.finish()),
            Self::Double(mut b) => Arc::new(b.finish()),
            Self::Bool(mut b) => Arc::new(b.finish()),
        }
    }
}

/// Rows on their way into columns of a part.
struct Builder<'o> {
    own: &'o [OwnColumn],
    of: HashMap<(Place, &'o str), usize, FixedState>,
}

impl<'o> Builder<'o> {
    fn new(own: &'o [OwnColumn]) -> Self {
        Self { own, of: own.iter().enumerate().map(|(i, c)| ((c.place, c.key.as_str()), i)).collect() }
    }

    fn schema(&self) -> SchemaRef {
        let mut fields: Vec<FieldRef> = table::rows().fields().iter().map(Arc::clone).collect();
        fields.extend(self.own.iter().map(|c| Arc::new(c.field())));
        Arc::new(Schema::new(fields))
    }

    /// Makes columns of rows with [`quiver_types::spans::all_columns`].
    fn build(&self, flat: &RecordBatch, keys: &mut SpanKeys) -> Result<RecordBatch> {
        let rows = flat.num_rows();
        let mut own: Vec<OwnBuilder> = self.own.iter().map(|c| OwnBuilder::new(c.kind)).collect();
        let mut rest = [MapColumn::default(), MapColumn::default(), MapColumn::default()];
        let attributes = flat["attributes"].as_binary::<i32>();
        let resources = flat["resource"].as_binary_view();
        let scopes = flat["scope_attributes"].as_binary_view();
        let blobs = |i: usize| [(Place::Span, attributes.value(i)), (Place::Resource, resources.value(i))];
        for i in 0..rows {
            for (n, (place, bytes)) in blobs(i).into_iter().enumerate() {
                for (key, value) in Attributes::read(bytes) {
                    let column = self.of.get(&(place, key));
                    if !column.is_some_and(|&c| own[c].push(i, value)) {
                        keys.add(place, key);
                        rest[n].push(key, value);
                    }
                }
                rest[n].end();
            }
            for (key, value) in Attributes::read(scopes.value(i)) {
                keys.add(Place::Scope, key);
                rest[2].push(key, value);
            }
            rest[2].end();
        }
        let time = |name: &str| -> ArrayRef {
            let times = flat[name].as_primitive::<Int64Type>().values().clone();
            Arc::new(TimestampNanosecondArray::new(times, None).with_timezone("UTC"))
        };
        let starts = flat["start"].as_primitive::<Int64Type>();
        let ends = flat["end"].as_primitive::<Int64Type>();
        let durations = Int64Array::from_iter_values(ends.values().iter().zip(starts.values()).map(|(e, s)| e - s));
        let text = |name: &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(flat[name].as_string_view().iter().map(Option::unwrap_or_default)))
        };
        let same = |name: &str| Arc::clone(&flat[name]);
        let [attributes_rest, resource_rest, scope_rest] = rest;
        let mut columns: Vec<ArrayRef> = vec![
            same("trace_id"),
            same("span_id"),
            parents(flat["parent_span_id"].as_fixed_size_binary())?,
            text("service"),
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
            text("scope_name"),
            text("scope_version"),
            time("received"),
            same("marks"),
            Arc::new(attributes_rest.finish()?),
            Arc::new(resource_rest.finish()?),
            Arc::new(scope_rest.finish()?),
            event_column(flat, keys)?,
            link_column(flat, keys)?,
        ];
        columns.extend(own.into_iter().map(|b| b.finish(rows)));
        RecordBatch::try_new(self.schema(), columns).internal("cannot build a batch of spans")
    }
}

/// Gives rows of batches as one batch with [`quiver_types::spans::all_columns`].
fn gather(batches: &[SpansBatch], rows: &[(u32, u32)]) -> Result<RecordBatch> {
    let mut used: Vec<u32> = rows.iter().map(|r| r.0).collect();
    used.sort_unstable();
    used.dedup();
    let place = |b: u32| used.binary_search(&b).unwrap_or(0);
    let flat: Vec<RecordBatch> = used.iter().map(|&b| batches[b as usize].flat()).collect();
    let views: Vec<&RecordBatch> = flat.iter().collect();
    let indices: Vec<(usize, usize)> = rows.iter().map(|r| (place(r.0), r.1 as usize)).collect();
    arrow::compute::interleave_record_batch(&views, &indices).internal("cannot sort spans")
}

fn parents(ids: &FixedSizeBinaryArray) -> Result<ArrayRef> {
    let there: Vec<bool> = (0..ids.len()).map(|i| ids.value(i) != [0; 8]).collect();
    let nulls = NullBuffer::from(there);
    let array = FixedSizeBinaryArray::try_new(8, ids.value_data().to_vec().into(), Some(nulls));
    Ok(Arc::new(array.internal("cannot build ids")?))
}

fn event_column(flat: &RecordBatch, keys: &mut SpanKeys) -> Result<ArrayRef> {
    let bytes = flat["events"].as_binary::<i32>();
    let (mut times, mut names, mut dropped) = (Vec::new(), StringBuilder::new(), Vec::new());
    let (mut attributes, mut ends) = (MapColumn::default(), Vec::with_capacity(bytes.len()));
    for i in 0..bytes.len() {
        for event in events(bytes.value(i)) {
            times.push(event.time);
            names.append_value(event.name);
            dropped.push(event.dropped);
            keys.events = true;
            for (key, value) in Attributes::read(event.attributes) {
                keys.add(Place::Event, key);
                attributes.push(key, value);
            }
            attributes.end();
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

fn link_column(flat: &RecordBatch, keys: &mut SpanKeys) -> Result<ArrayRef> {
    let bytes = flat["links"].as_binary::<i32>();
    let (mut trace_ids, mut span_ids, mut states) = (Vec::new(), Vec::new(), StringBuilder::new());
    let (mut flags, mut dropped) = (Vec::new(), Vec::new());
    let (mut attributes, mut ends) = (MapColumn::default(), Vec::with_capacity(bytes.len()));
    for i in 0..bytes.len() {
        for link in links(bytes.value(i)) {
            trace_ids.extend_from_slice(&link.trace_id);
            span_ids.extend_from_slice(&link.span_id);
            states.append_value(link.trace_state);
            flags.push(link.flags);
            dropped.push(link.dropped);
            keys.links = true;
            for (key, value) in Attributes::read(link.attributes) {
                keys.add(Place::Link, key);
                attributes.push(key, value);
            }
            attributes.end();
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

/// Writes one part; rows must come in the order of the table.
pub(crate) struct SpanPartWriter {
    spec: PartSpec,
    root: std::path::PathBuf,
    own: Vec<OwnColumn>,
    file: PartFile,
    unfinished: Unfinished,
    group_rows: usize,
    starts: (i64, i64),
    services: BTreeSet<String>,
    traces: Vec<(u32, u32, u32)>,
    last_trace: [u8; 16],
    minutes: Vec<(i64, u64)>,
    rollup: RollupBuilder,
    keys: SpanKeys,
}

impl SpanPartWriter {
    /// Begins a part.
    pub(crate) fn create(root: &Path, spec: PartSpec, own: Vec<OwnColumn>) -> Result<Self> {
        let mut unfinished = Unfinished::default();
        let schema = Builder::new(&own).schema();
        let mut p = properties()
            // A look-up opens each column for a few rows, and zstd's contexts cost more than they save here.
            .set_compression(codec(PartCompression::Fresh))
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .delta(&["start_time"])
            .delta(&["duration"])
            .delta(&["__q_received"])
            .page_statistics(&["start_time"]);
        // What does not shrink is not packed.
        for plain in ["span_id", "start_time", "duration"] {
            p = p.set_column_compression(column(&[plain]), Compression::UNCOMPRESSED);
        }
        for id in ["trace_id", "span_id", "parent_span_id"] {
            p = p.set_column_dictionary_enabled(column(&[id]), id == "trace_id");
        }
        for list in ["events", "links"] {
            p = p.set_column_statistics_enabled(column(&[list]), EnabledStatistics::None);
        }
        let file = PartFile::create(root, &spec, "rows", schema, p.build(), &mut unfinished)?;
        Ok(Self {
            root: root.to_owned(),
            own,
            file,
            unfinished,
            group_rows: 0,
            starts: (i64::MAX, i64::MIN),
            services: BTreeSet::new(),
            traces: Vec::new(),
            last_trace: [0; 16],
            minutes: Vec::new(),
            rollup: RollupBuilder::in_order(),
            keys: SpanKeys::none(),
            spec,
        })
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.file.rows()
    }

    /// Appends rows of batches.
    pub(crate) fn push(&mut self, batches: &[SpansBatch], rows: &[(u32, u32)]) -> Result<()> {
        for chunk in rows.chunks(CHUNK_ROWS) {
            let flat = gather(batches, chunk)?;
            self.rollup.push(&flat)?;
            let batch = Builder::new(&self.own).build(&flat, &mut self.keys)?;
            self.note(&batch);
            self.file.write(&batch)?;
            self.group_rows += chunk.len();
            if self.group_rows >= GROUP_ROWS {
                self.file.end_group()?;
                self.group_rows = 0;
            }
        }
        Ok(())
    }

    fn note(&mut self, batch: &RecordBatch) {
        let first = self.file.rows();
        let ids = batch["trace_id"].as_fixed_size_binary();
        let starts = batch["start_time"].as_primitive::<arrow::datatypes::TimestampNanosecondType>().values();
        let services = batch["service_name"].as_string::<i32>();
        for (i, &start) in starts.iter().enumerate() {
            let row = first + i as u64;
            self.starts = (self.starts.0.min(start), self.starts.1.max(start));
            if self.minutes.last().is_none_or(|last| last.0 != minute_of(start)) {
                self.minutes.push((minute_of(start), row));
                self.last_trace = [0; 16];
            }
            if ids.value(i) == self.last_trace {
                if let Some(last) = self.traces.last_mut() {
                    last.2 += 1;
                }
            } else {
                self.last_trace = ids.value(i).try_into().unwrap_or_default();
                self.traces.push((trace_hash(&self.last_trace), row as u32, 1));
            }
            if self.services.len() <= SERVICES_MAX && !self.services.contains(services.value(i)) {
                self.services.insert(services.value(i).to_owned());
            }
        }
    }

    /// Ends the part. `Ok(None)`: there was no row, and there is no part.
    pub(crate) fn finish(mut self) -> Result<Option<PartMeta>> {
        if self.rows() == 0 {
            return Ok(None);
        }
        let range = (self.starts.0.div_euclid(1_000_000), self.starts.1.div_euclid(1_000_000));
        let index = self.write_index(range)?;
        let rollup = rollup::write(&self.root, &self.spec, &self.rollup.rows(|_| true), range, &mut self.unfinished)?;
        let services_all = self.services.len() > SERVICES_MAX;
        let services = if services_all { Vec::new() } else { self.services.into_iter().collect() };
        let mut meta = PartMeta {
            id: self.spec.id,
            table: self.spec.table.clone(),
            day: self.spec.day,
            level: self.spec.level,
            place: self.spec.place,
            min_ts: range.0,
            max_ts: range.1,
            rows: self.file.rows(),
            bytes: 0,
            series: 0,
            services,
            services_all,
            names: NameFilter::default(),
            has_histograms: false,
            window: self.spec.window,
            origin: self.spec.origin.clone(),
            files: vec![index, rollup],
        };
        let minutes = serde_json::to_string(&self.minutes).internal("cannot write the minutes of a part")?;
        self.file.put(MINUTES, minutes);
        self.file.put(KEYS, serde_json::to_string(&self.keys).internal("cannot write the keys of a part")?);
        self.file.put_meta(&meta)?;
        meta.files.insert(0, self.file.finish(&self.spec, range, table::TABLE.sort_key)?);
        meta.bytes = meta.files.iter().map(|f| f.bytes).sum();
        self.unfinished.keep();
        Ok(Some(meta))
    }

    fn write_index(&mut self, range: (i64, i64)) -> Result<crate::part::FileMeta> {
        self.traces.sort_unstable();
        let p = properties()
            .set_compression(codec(self.spec.compression))
            .delta(&["trace"])
            .delta(&["row"])
            .delta(&["rows"])
            .build();
        let mut file = PartFile::create(&self.root, &self.spec, "index", table::index(), p, &mut self.unfinished)?;
        let numbers = |get: fn(&(u32, u32, u32)) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(self.traces.iter().map(get)))
        };
        let columns = vec![numbers(|t| t.0), numbers(|t| t.1), numbers(|t| t.2)];
        file.write(&RecordBatch::try_new(table::index(), columns).internal("cannot build an index of traces")?)?;
        file.finish(&self.spec, range, &["trace", "row"])
    }
}
