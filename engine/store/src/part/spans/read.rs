//! Reading: where a trace is, which columns a request needs, and rows back into the columns of a scan.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewBuilder, BooleanArray, FixedSizeBinaryArray, Int64Array, MapArray,
    RecordBatch, RecordBatchOptions, StringArray, StringViewArray, StringViewBuilder, StructArray, UInt32Array,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, Schema, SchemaRef, TimestampNanosecondType, UInt8Type, UInt32Type,
};
use quiver_types::spans::{
    AttributeTest, AttributeWriter, EventRef, LinkRef, Place, SpanColumn, SpanFilter, TextTest, Value, push_event,
    push_link, push_typed, schema_of,
};
use quiver_types::tables::spans::{
    ATTRIBUTE_PREFIX, ATTRIBUTES_REST, RESOURCE_PREFIX, RESOURCE_REST, SCOPE_REST, minute_of, trace_hash,
};
use quiver_types::{ReadStats, stats};

use super::keys::{KEYS, SpanKeys};
use super::{MINUTES, column_name};
use crate::error::{Context, Error, Result};
use crate::part::fetch::Purpose;
use crate::part::footer::damaged;
use crate::part::reader::Part;
use crate::spans::eval::{SpanSet, TextColumn};

/// Where the traces of a part are, and where its minutes begin.
#[derive(Debug, Default)]
pub(crate) struct SpanIndex {
    hashes: Vec<u32>,
    first: Vec<u32>,
    rows: Vec<u32>,
    /// Minute and first row, ascending.
    pub(crate) minutes: Vec<(i64, u64)>,
    /// Number of rows.
    pub(crate) total: u64,
    /// Keys in maps and lists.
    pub(crate) keys: SpanKeys,
}

impl SpanIndex {
    /// Gives ascending ranges of rows that may hold one of some traces.
    pub(crate) fn traces<'t>(&self, ids: impl Iterator<Item = &'t [u8; 16]>) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        for id in ids {
            let hash = trace_hash(id);
            let start = self.hashes.partition_point(|&h| h < hash);
            for i in start..self.hashes.len() {
                if self.hashes[i] != hash {
                    break;
                }
                let first = u64::from(self.first[i]);
                out.push(first..first + u64::from(self.rows[i]));
            }
        }
        out.sort_unstable_by_key(|r| r.start);
        out.dedup();
        out
    }

    /// Gives the rows whose starts may lie in a closed range.
    pub(crate) fn starts(&self, (min, max): (i64, i64)) -> Range<u64> {
        let (min, max) = (minute_of(min), minute_of(max));
        let from = self.minutes.partition_point(|m| m.0 < min);
        let to = self.minutes.partition_point(|m| m.0 <= max);
        let row = |at: usize| self.minutes.get(at).map_or(self.total, |m| m.1);
        row(from)..row(to).max(row(from))
    }

    /// Gives the first and the last minute of a range of rows.
    pub(crate) fn minutes_of(&self, rows: Range<u64>) -> (i64, i64) {
        let at = |row: u64| {
            let n = self.minutes.partition_point(|m| m.1 <= row);
            self.minutes.get(n.saturating_sub(1)).map_or((i64::MIN, i64::MAX), |m| (m.0, m.0))
        };
        (at(rows.start).0, at(rows.end.saturating_sub(1)).1)
    }

    fn memory_bytes(&self) -> u64 {
        (self.hashes.len() * 12 + self.minutes.len() * 16 + 128) as u64
    }
}

impl Part {
    /// Gives the index of a part of the table `spans`; the cache's or the file's.
    pub(crate) async fn span_index(&self, stats: &ReadStats) -> Result<Arc<SpanIndex>> {
        if let Some(index) = self.cache().span_indexes.get(&self.meta.id) {
            stats::add(&stats.cache_hits, 1);
            return Ok(index);
        }
        stats::add(&stats.cache_misses, 1);
        let (Some(rows), Some(file)) = (self.meta.file("rows"), self.meta.file("index")) else {
            return Err(Error::internal(format!("part `{}` lacks a file", self.meta.id)));
        };
        let footer = self.footer(rows, stats).await?;
        let minutes = footer.value(MINUTES).and_then(|text| serde_json::from_str(text).ok());
        let minutes = minutes.ok_or_else(|| damaged(&rows.key, "its minutes cannot be read"))?;
        let index_footer = self.footer(file, stats).await?;
        let all = 0..index_footer.rows();
        let batches = self
            .read_batches(file, &index_footer, std::slice::from_ref(&all), None, 1 << 16, Purpose::Query, stats)
            .await?;
        let keys = footer.value(KEYS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let mut index = SpanIndex { minutes, total: footer.rows(), keys, ..SpanIndex::default() };
        for batch in &batches {
            let column = |i: usize| batch.column(i).as_primitive_opt::<UInt32Type>();
            let (Some(hashes), Some(first), Some(rows)) = (column(0), column(1), column(2)) else {
                return Err(damaged(&file.key, "its columns are of another type"));
            };
            index.hashes.extend_from_slice(hashes.values());
            index.first.extend_from_slice(first.values());
            index.rows.extend_from_slice(rows.values());
        }
        let index = Arc::new(index);
        self.cache().span_indexes.insert(self.meta.id, Arc::clone(&index), index.memory_bytes());
        Ok(index)
    }

    /// Gives the names of the columns of `.rows`.
    pub(crate) async fn span_columns(&self, stats: &ReadStats) -> Result<SchemaRef> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        Ok(Arc::clone(footer.arrow(file)?.schema()))
    }

    /// Reads rows with some columns of the file; `rows` ascending and disjoint.
    pub(crate) async fn span_rows(
        &self,
        rows: &[Range<u64>],
        columns: &[&str],
        job: bool,
        stats: &ReadStats,
    ) -> Result<Vec<SpanRows>> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        stats::add(&stats.pages_total, footer.pages());
        let purpose = if job { Purpose::Job } else { Purpose::Query };
        let read = self.read_batches(file, &footer, rows, Some(columns), 8192, purpose, stats).await?;
        Ok(read.into_iter().map(SpanRows).collect())
    }
}

/// Rows of a part, with the columns of its file that were asked for.
#[derive(Debug, Clone)]
pub(crate) struct SpanRows(RecordBatch);

/// Gives the column in which attributes of a place stand that have none of their own.
fn map_of(place: Place) -> &'static str {
    match place {
        Place::Span => ATTRIBUTES_REST,
        Place::Resource => RESOURCE_REST,
        Place::Scope => SCOPE_REST,
        Place::Event => "events",
        Place::Link => "links",
    }
}

/// Gives the columns of a file that a filter looks at.
fn of_filter(filter: &SpanFilter, schema: &SchemaRef, keys: &SpanKeys, out: &mut Vec<String>) {
    let mut add = |names: &[&str]| out.extend(names.iter().map(|n| (*n).to_owned()));
    match filter {
        SpanFilter::All | SpanFilter::None => {}
        SpanFilter::And(list) | SpanFilter::Or(list) => list.iter().for_each(|f| of_filter(f, schema, keys, out)),
        SpanFilter::Not(one) => of_filter(one, schema, keys, out),
        SpanFilter::Traces(_) => add(&["trace_id"]),
        SpanFilter::Starts(..) => add(&["start_time"]),
        SpanFilter::Overlaps(..) => add(&["start_time", "duration"]),
        SpanFilter::Duration(..) => add(&["duration"]),
        SpanFilter::Service(_) => add(&["service_name"]),
        SpanFilter::Name(_) => add(&["name"]),
        SpanFilter::Kinds(_) => add(&["kind"]),
        SpanFilter::Status(_) => add(&["status_code"]),
        SpanFilter::Root => add(&["parent_span_id"]),
        SpanFilter::Received(_) => add(&["__q_received"]),
        SpanFilter::Message(_) => add(&["status_message"]),
        SpanFilter::EventName(_) if !keys.events => {}
        SpanFilter::EventName(_) => add(&["events"]),
        SpanFilter::ScopeName(_) => add(&["scope_name"]),
        SpanFilter::ScopeVersion(_) => add(&["scope_version"]),
        SpanFilter::Attribute { place, key, .. } => {
            let places = place.map_or_else(|| Place::ALL.to_vec(), |p| vec![p]);
            for place in places {
                match place {
                    Place::Resource if key == "service.name" => add(&["service_name"]),
                    Place::Span | Place::Resource => add(&[&column_name(place, key)]),
                    Place::Event | Place::Link | Place::Scope => {}
                }
                if keys.may_have(place, key) {
                    add(&[map_of(place)]);
                }
            }
        }
    }
    out.retain(|name| schema.column_with_name(name).is_some());
}

/// Gives the columns of a file that an answer is made of.
fn of_column(column: &SpanColumn, schema: &SchemaRef, keys: &SpanKeys, out: &mut Vec<String>) {
    let prefixed = |prefix: &str, place: Place, out: &mut Vec<String>| {
        let own = schema.fields().iter().map(|f| f.name()).filter(|n| n.starts_with(prefix));
        out.extend(own.cloned());
        out.extend(keys.may_have_any(place).then(|| map_of(place).to_owned()));
    };
    match column {
        SpanColumn::Own("attributes") => prefixed(ATTRIBUTE_PREFIX, Place::Span, out),
        SpanColumn::Context("resource") => prefixed(RESOURCE_PREFIX, Place::Resource, out),
        SpanColumn::Own("start") => out.push("start_time".into()),
        SpanColumn::Own("end") => out.extend(["start_time".into(), "duration".into()]),
        SpanColumn::Own("status") => out.push("status_code".into()),
        SpanColumn::Own("received") => out.push("__q_received".into()),
        SpanColumn::Own("marks") => out.push("__q_marks".into()),
        SpanColumn::Context("service") => out.push("service_name".into()),
        SpanColumn::Context("scope_attributes") if !keys.may_have_any(Place::Scope) => {}
        SpanColumn::Context("scope_attributes") => out.push(SCOPE_REST.into()),
        SpanColumn::Own("events") if !keys.events => {}
        SpanColumn::Own("links") if !keys.links => {}
        SpanColumn::Own(same) | SpanColumn::Context(same) => out.push((*same).to_owned()),
        SpanColumn::Attribute(place, key) => {
            let filter = SpanFilter::Attribute { place: Some(*place), key: key.clone(), test: AttributeTest::Exists };
            of_filter(&filter, schema, keys, out);
        }
    }
}

/// Gives the columns of a file that a filter needs, and those that an answer needs beside them; together at least one.
pub(crate) fn needed(
    filter: &SpanFilter,
    columns: &[SpanColumn],
    restricted: bool,
    schema: &SchemaRef,
    keys: &SpanKeys,
) -> (Vec<String>, Vec<String>) {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    of_filter(filter, schema, keys, &mut first);
    if restricted {
        first.push("service_name".to_owned());
    }
    columns.iter().for_each(|c| of_column(c, schema, keys, &mut rest));
    for list in [&mut first, &mut rest] {
        list.sort_unstable();
        list.dedup();
    }
    rest.retain(|name| first.binary_search(name).is_err());
    if first.is_empty() && rest.is_empty() {
        rest.push("kind".to_owned());
    }
    (first, rest)
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::internal(format!("a part of spans lacks `{name}`")))
}

/// Gives the value of a row of an own column.
fn own_value(column: &dyn Array, row: usize) -> Option<Value<'_>> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => Some(Value::Text(column.as_string::<i32>().value(row))),
        DataType::Int64 => Some(Value::Int(column.as_primitive::<Int64Type>().value(row))),
        DataType::Float64 => Some(Value::Double(column.as_primitive::<Float64Type>().value(row))),
        DataType::Boolean => Some(Value::Bool(column.as_boolean().value(row))),
        _ => None,
    }
}

/// Entries of one row of a map: key and typed text.
fn entries(map: &MapArray, row: usize) -> impl Iterator<Item = (&str, &str)> {
    let (keys, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
    let offsets = map.offsets();
    (offsets[row] as usize..offsets[row + 1] as usize).map(|i| (keys.value(i), values.value(i)))
}

/// Says whether an entry of a row's map has a key and passes a test.
fn map_matches(map: &MapArray, row: usize, key: &str, test: &AttributeTest) -> bool {
    entries(map, row).filter(|(k, _)| *k == key).any(|(k, typed)| {
        let mut one = AttributeWriter::default();
        push_typed(k, typed, &mut one);
        one.finish().get(k).is_some_and(|value| test.matches(value))
    })
}

impl SpanRows {
    /// Puts rows below each other; none give none.
    pub(crate) fn concat(all: &[Self]) -> Result<Self> {
        let Some(first) = all.first() else { return Ok(Self(RecordBatch::new_empty(Schema::empty().into()))) };
        let batches: Vec<&RecordBatch> = all.iter().map(|rows| &rows.0).collect();
        arrow::compute::concat_batches(&first.0.schema(), batches).map(Self).internal("cannot join spans")
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.0.num_rows()
    }

    /// Says whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.num_rows() == 0
    }

    /// Puts other columns of the same rows beside.
    pub(crate) fn beside(&self, other: &Self) -> Result<Self> {
        let fields = [&self.0, &other.0].map(|b| b.schema().fields().to_vec()).concat();
        let columns = [&self.0, &other.0].map(RecordBatch::columns).concat();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map(Self).internal("cannot join columns of spans")
    }

    fn get(&self, name: &str) -> Option<&ArrayRef> {
        self.0.column_by_name(name)
    }

    /// Keeps some rows.
    pub(crate) fn filter(&self, keep: &[bool]) -> Result<Self> {
        filter_record_batch(&self.0, &BooleanArray::from(keep.to_vec())).map(Self).internal("cannot filter spans")
    }

    /// Makes the columns of an answer.
    pub(crate) fn project(&self, columns: &[SpanColumn]) -> Result<RecordBatch> {
        let arrays = columns.iter().map(|c| self.column(c)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.0.num_rows()));
        RecordBatch::try_new_with_options(schema_of(columns), arrays, &options)
            .internal("cannot build a batch of spans")
    }

    fn times(&self, name: &str) -> Result<&[i64]> {
        let times = column(&self.0, name)?.as_primitive_opt::<TimestampNanosecondType>();
        Ok(times.ok_or_else(|| Error::internal(format!("`{name}` of a part is no time")))?.values())
    }

    fn column(&self, wanted: &SpanColumn) -> Result<ArrayRef> {
        let rows = self.0.num_rows();
        let times = |name: &str| Ok::<_, Error>(self.times(name)?.to_vec());
        Ok(match wanted {
            SpanColumn::Own("parent_span_id") => {
                let ids = column(&self.0, "parent_span_id")?.as_fixed_size_binary();
                let mut bytes = Vec::with_capacity(rows * 8);
                (0..rows).for_each(|i| bytes.extend_from_slice(if ids.is_null(i) { &[0; 8] } else { ids.value(i) }));
                Arc::new(FixedSizeBinaryArray::try_new(8, bytes.into(), None).internal("cannot build ids")?)
            }
            SpanColumn::Own("start") => Arc::new(Int64Array::from(times("start_time")?)),
            SpanColumn::Own("received") => Arc::new(Int64Array::from(times("__q_received")?)),
            SpanColumn::Own("end") => {
                let durations = column(&self.0, "duration")?.as_primitive::<Int64Type>().values();
                let starts = self.times("start_time")?;
                Arc::new(Int64Array::from_iter_values(starts.iter().zip(durations).map(|(s, d)| s + d)))
            }
            SpanColumn::Own("status") => Arc::clone(column(&self.0, "status_code")?),
            SpanColumn::Own("marks") => Arc::clone(column(&self.0, "__q_marks")?),
            SpanColumn::Own("attributes") => Arc::new(self.blobs(ATTRIBUTE_PREFIX, ATTRIBUTES_REST)?),
            SpanColumn::Own("events") => Arc::new(self.events()?),
            SpanColumn::Own("links") => Arc::new(self.links()?),
            SpanColumn::Own(same) => Arc::clone(column(&self.0, same)?),
            SpanColumn::Context("resource") => view(&self.blobs(RESOURCE_PREFIX, RESOURCE_REST)?),
            SpanColumn::Context("scope_attributes") => view(&self.blobs("\0", SCOPE_REST)?),
            SpanColumn::Context(name) => {
                let name = if *name == "service" { "service_name" } else { name };
                Arc::new(StringViewArray::from(column(&self.0, name)?.as_string::<i32>()))
            }
            SpanColumn::Attribute(place, key) => self.attribute(*place, key),
        })
    }

    fn attribute(&self, place: Place, key: &str) -> ArrayRef {
        let own = self.get(&column_name(place, key));
        let rest = self.get(if place == Place::Resource { RESOURCE_REST } else { ATTRIBUTES_REST });
        let mut out = StringViewBuilder::new();
        for i in 0..self.0.num_rows() {
            let of_rest = || {
                let (_, typed) = entries(rest?.as_map(), i).find(|(k, _)| *k == key)?;
                let mut one = AttributeWriter::default();
                push_typed(key, typed, &mut one);
                one.finish().get(key).map(|v| v.text().into_owned())
            };
            let text = own.and_then(|c| own_value(&**c, i)).map(|v| v.text().into_owned()).or_else(of_rest);
            out.append_option(text);
        }
        Arc::new(out.finish())
    }

    /// Makes attributes of own columns and the rest, keys in order.
    fn blobs(&self, prefix: &str, rest: &str) -> Result<BinaryArray> {
        let schema = self.0.schema();
        let mut own: Vec<(&str, &ArrayRef)> = schema
            .fields()
            .iter()
            .zip(self.0.columns())
            .filter_map(|(f, c)| Some((f.name().strip_prefix(prefix)?, c)))
            .collect();
        own.sort_unstable_by_key(|(key, _)| *key);
        let rest = self.get(rest).and_then(|c| c.as_map_opt());
        let mut bytes: Vec<u8> = Vec::new();
        let mut ends = Vec::with_capacity(self.0.num_rows() + 1);
        ends.push(0i32);
        let mut writer = AttributeWriter::default();
        for i in 0..self.0.num_rows() {
            writer.clear();
            let mut others = rest.into_iter().flat_map(|map| entries(map, i)).peekable();
            for (key, column) in &own {
                let Some(value) = own_value(&***column, i) else { continue };
                while let Some((k, typed)) = others.next_if(|(k, _)| k < key) {
                    push_typed(k, typed, &mut writer);
                }
                writer.push(key, value);
            }
            others.for_each(|(k, typed)| push_typed(k, typed, &mut writer));
            bytes.extend_from_slice(writer.bytes());
            ends.push(i32::try_from(bytes.len()).internal("attributes of a batch are larger than 2 GiB")?);
        }
        Ok(BinaryArray::new(arrow::buffer::OffsetBuffer::new(ends.into()), bytes.into(), None))
    }

    /// A run of bytes that is empty, for each row.
    fn nothing(&self) -> BinaryArray {
        BinaryArray::from_iter_values(std::iter::repeat_n(&[][..], self.0.num_rows()))
    }

    fn events(&self) -> Result<BinaryArray> {
        let Some(list) = self.get("events").and_then(|c| c.as_list_opt::<i32>()) else { return Ok(self.nothing()) };
        let items = list.values().as_struct();
        let times = member(items, "time")?.as_primitive::<TimestampNanosecondType>();
        let names = member(items, "name")?.as_string::<i32>();
        let dropped = member(items, "dropped")?.as_primitive::<UInt32Type>();
        let maps = member(items, "attributes")?.as_map();
        nested(list.offsets(), |n, out| {
            let attributes = map_blob(maps, n);
            let event = EventRef {
                time: times.value(n),
                name: names.value(n),
                dropped: dropped.value(n),
                attributes: attributes.bytes(),
            };
            push_event(out, &event);
        })
    }

    fn links(&self) -> Result<BinaryArray> {
        let Some(list) = self.get("links").and_then(|c| c.as_list_opt::<i32>()) else { return Ok(self.nothing()) };
        let items = list.values().as_struct();
        let trace_ids = member(items, "trace_id")?.as_fixed_size_binary();
        let span_ids = member(items, "span_id")?.as_fixed_size_binary();
        let states = member(items, "trace_state")?.as_string::<i32>();
        let flags = member(items, "flags")?.as_primitive::<UInt32Type>();
        let dropped = member(items, "dropped")?.as_primitive::<UInt32Type>();
        let maps = member(items, "attributes")?.as_map();
        nested(list.offsets(), |n, out| {
            let attributes = map_blob(maps, n);
            let link = LinkRef {
                trace_id: trace_ids.value(n).try_into().unwrap_or_default(),
                span_id: span_ids.value(n).try_into().unwrap_or_default(),
                trace_state: states.value(n),
                flags: flags.value(n),
                dropped: dropped.value(n),
                attributes: attributes.bytes(),
            };
            push_link(out, &link);
        })
    }
}

fn member<'s>(items: &'s StructArray, name: &str) -> Result<&'s ArrayRef> {
    items.column_by_name(name).ok_or_else(|| Error::internal(format!("a part of spans lacks `{name}` of a list")))
}

fn map_blob(maps: &MapArray, row: usize) -> AttributeWriter {
    let mut writer = AttributeWriter::default();
    entries(maps, row).for_each(|(key, typed)| push_typed(key, typed, &mut writer));
    writer
}

fn nested(offsets: &[i32], mut push: impl FnMut(usize, &mut Vec<u8>)) -> Result<BinaryArray> {
    let mut bytes = Vec::new();
    let mut ends = vec![0i32];
    for pair in offsets.windows(2) {
        (pair[0]..pair[1]).for_each(|n| push(n as usize, &mut bytes));
        ends.push(i32::try_from(bytes.len()).internal("lists of a batch are larger than 2 GiB")?);
    }
    Ok(BinaryArray::new(arrow::buffer::OffsetBuffer::new(ends.into()), bytes.into(), None))
}

/// The same bytes as a view, equal neighbours once.
fn view(bytes: &BinaryArray) -> ArrayRef {
    let mut out = BinaryViewBuilder::new().with_deduplicate_strings();
    bytes.iter().for_each(|b| out.append_value(b.unwrap_or_default()));
    Arc::new(out.finish())
}

/// Rows with the columns at hand that tests of single rows look at.
#[derive(Debug)]
pub(crate) struct PartRows<'b> {
    rows: &'b SpanRows,
    starts: &'b [i64],
    durations: &'b [i64],
    received: &'b [i64],
    kinds: &'b [u8],
    statuses: &'b [u8],
}

impl<'b> PartRows<'b> {
    pub(crate) fn new(rows: &'b SpanRows) -> Self {
        let small = |name: &str| -> &'b [u8] {
            rows.get(name).and_then(|c| c.as_primitive_opt::<UInt8Type>()).map_or(&[], |c| c.values())
        };
        let durations = rows.get("duration").and_then(|c| c.as_primitive_opt::<Int64Type>());
        Self {
            rows,
            starts: rows.times("start_time").unwrap_or_default(),
            durations: durations.map_or(&[], |c| c.values()),
            received: rows.times("__q_received").unwrap_or_default(),
            kinds: small("kind"),
            statuses: small("status_code"),
        }
    }

    fn get(&self, name: &str) -> Option<&'b ArrayRef> {
        self.rows.get(name)
    }
}

impl SpanSet for PartRows<'_> {
    fn len(&self) -> usize {
        self.rows.0.num_rows()
    }

    fn traces(&self) -> Option<&FixedSizeBinaryArray> {
        self.get("trace_id")?.as_fixed_size_binary_opt()
    }

    fn times(&self, row: usize) -> (i64, i64) {
        let start = self.starts.get(row).copied().unwrap_or(0);
        (start, start.saturating_add(self.duration(row)))
    }

    fn duration(&self, row: usize) -> i64 {
        self.durations.get(row).copied().unwrap_or(0)
    }

    fn received(&self, row: usize) -> i64 {
        self.received.get(row).copied().unwrap_or(0)
    }

    fn kind(&self, row: usize) -> u8 {
        self.kinds.get(row).copied().unwrap_or(0)
    }

    fn status(&self, row: usize) -> u8 {
        self.statuses.get(row).copied().unwrap_or(0)
    }

    fn is_root(&self, row: usize) -> bool {
        self.get("parent_span_id").is_some_and(|c| c.is_null(row))
    }

    fn text(&self, which: TextColumn, keep: &mut [bool], test: &dyn Fn(&str) -> bool) {
        let name = match which {
            TextColumn::Service => "service_name",
            TextColumn::Name => "name",
            TextColumn::Message => "status_message",
            TextColumn::ScopeName => "scope_name",
            TextColumn::ScopeVersion => "scope_version",
        };
        let Some(texts) = self.get(name).and_then(|c| c.as_string_opt::<i32>()) else { return keep.fill(false) };
        narrow(texts, keep, test);
    }

    fn event_name(&self, row: usize, test: &TextTest) -> bool {
        let Some(list) = self.get("events").and_then(|c| c.as_list_opt::<i32>()) else { return false };
        let Ok(names) = member(list.values().as_struct(), "name") else { return false };
        let offsets = list.offsets();
        (offsets[row] as usize..offsets[row + 1] as usize).any(|n| test.matches(names.as_string::<i32>().value(n)))
    }

    fn attribute(&self, place: Place, key: &str, test: &AttributeTest, keep: &mut [bool]) {
        if place == Place::Resource && key == "service.name" {
            return self.text(TextColumn::Service, keep, &|text| !text.is_empty() && test.matches(Value::Text(text)));
        }
        let rest = match place {
            Place::Span => ATTRIBUTES_REST,
            Place::Resource => RESOURCE_REST,
            Place::Scope => SCOPE_REST,
            Place::Event | Place::Link => {
                let name = if place == Place::Event { "events" } else { "links" };
                let Some(list) = self.get(name).and_then(|c| c.as_list_opt::<i32>()) else { return keep.fill(false) };
                let Ok(maps) = member(list.values().as_struct(), "attributes") else { return keep.fill(false) };
                let (maps, offsets) = (maps.as_map(), list.offsets());
                for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
                    let mut items = offsets[i] as usize..offsets[i + 1] as usize;
                    *keep = items.any(|n| map_matches(maps, n, key, test));
                }
                return;
            }
        };
        let own = if place == Place::Scope { None } else { self.get(&column_name(place, key)) };
        let rest = self.get(rest).and_then(|c| c.as_map_opt());
        for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
            *keep = match own.and_then(|c| own_value(&**c, i)) {
                Some(value) => test.matches(value),
                None => rest.is_some_and(|map| map_matches(map, i, key, test)),
            };
        }
    }
}

/// Keeps rows whose text passes; equal neighbours are tested once.
fn narrow(texts: &StringArray, keep: &mut [bool], test: &dyn Fn(&str) -> bool) {
    let mut last: Option<(&str, bool)> = None;
    for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
        let text = texts.value(i);
        *keep = match last {
            Some((known, verdict)) if known == text => verdict,
            _ => {
                let verdict = test(text);
                last = Some((text, verdict));
                verdict
            }
        };
    }
}

/// For the compaction: rows as a batch that the writer takes.
impl SpanRows {
    /// Gives all rows as spans with contexts.
    pub(crate) fn to_batch(&self) -> Result<quiver_types::SpansBatch> {
        let columns = quiver_types::spans::all_columns();
        let flat = self.project(&columns)?;
        let views: Vec<ArrayRef> = (quiver_types::spans::CONTEXT_COLUMNS.iter())
            .map(|name| arrow::compute::cast(&flat[*name], &DataType::Binary).internal("cannot read contexts"))
            .collect::<Result<_>>()?;
        let mut contexts: hashbrown::HashMap<Vec<&[u8]>, u32> = hashbrown::HashMap::new();
        let (mut first_rows, mut of_rows) = (Vec::new(), Vec::with_capacity(flat.num_rows()));
        for i in 0..flat.num_rows() {
            let key: Vec<&[u8]> = views.iter().map(|v| v.as_binary::<i32>().value(i)).collect();
            let next = contexts.len() as u32;
            let number = *contexts.entry(key).or_insert_with(|| {
                first_rows.push(i as u32);
                next
            });
            of_rows.push(number);
        }
        let picks = UInt32Array::from(first_rows);
        let schema = quiver_types::spans::context_schema();
        let context_columns = schema.fields().iter().map(|f| {
            let taken =
                arrow::compute::take(&flat[f.name().as_str()], &picks, None).internal("cannot read contexts")?;
            arrow::compute::cast(&taken, f.data_type()).internal("cannot read contexts")
        });
        let context_columns = context_columns.collect::<Result<Vec<_>>>()?;
        let contexts = RecordBatch::try_new(schema, context_columns).internal("cannot read contexts")?;
        let references: ArrayRef = Arc::new(UInt32Array::from(of_rows));
        let schema = quiver_types::spans::span_schema();
        let own = schema.fields().iter().map(|f| match f.name().as_str() {
            "context" => Arc::clone(&references),
            name => Arc::clone(&flat[name]),
        });
        let spans = RecordBatch::try_new(Arc::clone(&schema), own.collect()).internal("cannot read spans")?;
        Ok(quiver_types::SpansBatch { spans, contexts })
    }
}
