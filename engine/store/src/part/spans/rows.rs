//! Converts rows of a part back into the columns of a scan, and evaluates filters on them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewBuilder, BooleanArray, FixedSizeBinaryArray, Int32DictionaryArray,
    Int64Array, MapArray, RecordBatch, RecordBatchOptions, StructArray, UInt32Array, new_null_array,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Int64Type, Schema, TimestampNanosecondType, UInt8Type, UInt32Type};
use quiver_types::ReadStats;
use quiver_types::spans::{
    AttributeKind, AttributeTest, AttributeValues, AttributeWriter, Attributes, EventRef, LinkRef, Place, SpanColumn,
    TextTest, Value, push_event, push_link, push_typed, schema_of,
};
use quiver_types::tables::spans::{ATTRIBUTE_PREFIX, ATTRIBUTES_REST, RESOURCE_PREFIX, RESOURCE_REST, SCOPE_REST};

use super::column_name;
use super::text_columns::{OwnValues, coded, is_text, narrow, narrow_coded, own_value, plain, views};
use crate::error::{Context, Error, Result};
use crate::spans::evaluation::{SpanSet, TextColumn, mask, passing};

/// Rows of a part, with the requested columns of its file.
#[derive(Debug, Clone)]
pub(crate) struct SpanRows(pub(super) RecordBatch);

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::internal(format!("a part of spans lacks `{name}`")))
}

/// Entries of a map in one row: key and typed text.
fn entries(map: &MapArray, row: usize) -> impl Iterator<Item = (&str, &str)> {
    let (keys, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
    let offsets = map.offsets();
    (offsets[row] as usize..offsets[row + 1] as usize).map(|i| (keys.value(i), values.value(i)))
}

/// Tells whether the map of a row has an entry with this key that passes a test.
fn map_matches(map: &MapArray, row: usize, key: &str, test: &AttributeTest) -> bool {
    entries(map, row).filter(|(k, _)| *k == key).any(|(k, typed)| {
        let mut one = AttributeWriter::default();
        push_typed(k, typed, &mut one);
        one.finish().get(k).is_some_and(|value| test.matches(value))
    })
}

impl SpanRows {
    /// Puts the rows of several reads into one, in order.
    pub(crate) fn concat(all: &[Self]) -> Result<Self> {
        if let [one] = all {
            return Ok(one.clone());
        }
        let Some(first) = all.first() else { return Ok(Self(RecordBatch::new_empty(Schema::empty().into()))) };
        let batches: Vec<&RecordBatch> = all.iter().map(|rows| &rows.0).collect();
        arrow::compute::concat_batches(&first.0.schema(), batches).map(Self).internal("cannot join spans")
    }

    /// Rows without any columns.
    pub(super) fn counted(rows: u64) -> Result<Self> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
        batch.map(Self).internal("cannot count spans")
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.0.num_rows()
    }

    /// Says whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.num_rows() == 0
    }

    /// Adds other columns of the same rows.
    pub(crate) fn beside(&self, other: &Self) -> Result<Self> {
        let fields = [&self.0, &other.0].map(|b| b.schema().fields().to_vec()).concat();
        let columns = [&self.0, &other.0].map(RecordBatch::columns).concat();
        let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
        let both = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options);
        both.map(Self).internal("cannot join columns of spans")
    }

    fn get(&self, name: &str) -> Option<&ArrayRef> {
        self.0.column_by_name(name)
    }

    /// Keeps the rows with `true`.
    pub(crate) fn filter(&self, keep: &[bool]) -> Result<Self> {
        if keep.contains(&false) { self.filter_by(&mask(keep)) } else { Ok(self.clone()) }
    }

    /// Keeps the rows that are set.
    pub(crate) fn filter_by(&self, keep: &BooleanArray) -> Result<Self> {
        filter_record_batch(&self.0, keep).map(Self).internal("cannot filter spans")
    }

    /// Builds the columns of the result.
    pub(crate) fn project(&self, columns: &[SpanColumn], stats: &ReadStats) -> Result<RecordBatch> {
        let array = |column: &SpanColumn| match column {
            SpanColumn::Passes(one) => {
                passing(&PartRows::new(self), &one.filter, stats).map(|passed| Arc::new(passed) as ArrayRef)
            }
            other => self.column(other),
        };
        let arrays = columns.iter().map(array).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.0.num_rows()));
        RecordBatch::try_new_with_options(schema_of(columns), arrays, &options)
            .internal("cannot build a batch of spans")
    }

    /// A column of identifiers; `None` if it was not read.
    pub(crate) fn ids(&self, name: &str) -> Option<&FixedSizeBinaryArray> {
        self.get(name)?.as_fixed_size_binary_opt()
    }

    /// Start times in Unix nanoseconds.
    pub(crate) fn starts(&self) -> Result<&[i64]> {
        self.times("start_time")
    }

    fn times(&self, name: &str) -> Result<&[i64]> {
        let times = column(&self.0, name)?.as_primitive_opt::<TimestampNanosecondType>();
        Ok(times.ok_or_else(|| Error::internal(format!("`{name}` of a part is no time")))?.values())
    }

    fn column(&self, wanted: &SpanColumn) -> Result<ArrayRef> {
        let rows = self.0.num_rows();
        let times = |name: &str| -> Result<ArrayRef> {
            let times = column(&self.0, name)?.as_primitive_opt::<TimestampNanosecondType>();
            let times = times.ok_or_else(|| Error::internal(format!("`{name}` of a part is no time")))?;
            Ok(Arc::new(Int64Array::new(times.values().clone(), None)))
        };
        Ok(match wanted {
            SpanColumn::Own("parent_span_id") => {
                let ids = column(&self.0, "parent_span_id")?.as_fixed_size_binary();
                let mut bytes = Vec::with_capacity(rows * 8);
                (0..rows).for_each(|i| bytes.extend_from_slice(if ids.is_null(i) { &[0; 8] } else { ids.value(i) }));
                Arc::new(FixedSizeBinaryArray::try_new(8, bytes.into(), None).internal("cannot build ids")?)
            }
            SpanColumn::Own("start") => times("start_time")?,
            SpanColumn::Own("received") => times("__q_received")?,
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
            SpanColumn::Own(same) => plain(column(&self.0, same)?),
            SpanColumn::Context("resource") => view(&self.blobs(RESOURCE_PREFIX, RESOURCE_REST)?),
            SpanColumn::Context("scope_attributes") => view(&self.blobs("\0", SCOPE_REST)?),
            SpanColumn::Context(name) => {
                let name = if *name == "service" { "service_name" } else { name };
                views(column(&self.0, name)?)?
            }
            SpanColumn::Text(name) => views(column(&self.0, name)?)?,
            SpanColumn::Coded(of) => self.texts(of)?,
            SpanColumn::Duration => Arc::clone(column(&self.0, "duration")?),
            SpanColumn::Passes(_) => return Err(Error::internal("a filter is not a column of the file")),
            SpanColumn::Attribute(place, key, kind) => self.attribute(&wanted.name(), *place, key, *kind)?,
        })
    }

    /// A column as dictionary-encoded views; passed on unchanged if the file has it in this form.
    fn texts(&self, wanted: &SpanColumn) -> Result<ArrayRef> {
        let own = match wanted {
            SpanColumn::Context("service") => self.get("service_name"),
            SpanColumn::Context(name) | SpanColumn::Text(name) => self.get(name),
            SpanColumn::Attribute(place, key, AttributeKind::Text) => {
                let rest = if *place == Place::Resource { RESOURCE_REST } else { ATTRIBUTES_REST };
                self.get(&column_name(*place, key)).filter(|own| is_text(own) && self.get(rest).is_none())
            }
            _ => None,
        };
        match own {
            Some(own) => coded(own),
            None => coded(&self.column(wanted)?),
        }
    }

    fn attribute(&self, name: &str, place: Place, key: &str, kind: AttributeKind) -> Result<ArrayRef> {
        let own = self.get(&column_name(place, key));
        let rest = self.get(if place == Place::Resource { RESOURCE_REST } else { ATTRIBUTES_REST });
        let rest = rest.and_then(|map| map.as_map_opt());
        if rest.is_none() {
            match own {
                None => return Ok(new_null_array(&kind.data_type(), self.0.num_rows())),
                // Unchanged, as it is in the file.
                Some(own) if kind == AttributeKind::Text && is_text(own) => return views(own),
                Some(own) if *own.data_type() == kind.data_type() => return Ok(Arc::clone(own)),
                Some(_) => {}
            }
        }
        let mut out = AttributeValues::new(name, kind);
        let mut one = AttributeWriter::default();
        for i in 0..self.0.num_rows() {
            if let Some(value) = own.and_then(|c| own_value(&**c, i)) {
                out.push(Some(value))?;
                continue;
            }
            one.clear();
            let found = rest.and_then(|map| entries(map, i).find(|(k, _)| *k == key));
            if let Some((_, typed)) = found {
                push_typed(key, typed, &mut one);
            }
            out.push(Attributes::read(one.bytes()).next().map(|(_, value)| value))?;
        }
        Ok(out.finish())
    }

    /// Encodes attributes from their own columns and the map of the rest, with keys in order.
    fn blobs(&self, prefix: &str, rest: &str) -> Result<BinaryArray> {
        let schema = self.0.schema();
        // Every column is visited for every row, so drop columns without values.
        let own = schema.fields().iter().zip(self.0.columns()).filter(|(_, c)| c.null_count() < c.len());
        let mut own: Vec<(&str, OwnValues<'_>)> =
            own.filter_map(|(f, c)| Some((f.name().strip_prefix(prefix)?, OwnValues::of(&**c)?))).collect();
        own.sort_unstable_by_key(|(key, _)| *key);
        let rest = self.get(rest).and_then(|c| c.as_map_opt());
        let mut ends = Vec::with_capacity(self.0.num_rows() + 1);
        ends.push(0i32);
        // Merges two sorted runs.
        let mut writer = AttributeWriter::default();
        for i in 0..self.0.num_rows() {
            let mut others = rest.into_iter().flat_map(|map| entries(map, i)).peekable();
            for (key, column) in &own {
                let Some(value) = column.get(i) else { continue };
                while let Some((k, typed)) = others.next_if(|(k, _)| k < key) {
                    push_typed(k, typed, &mut writer);
                }
                writer.push(key, value);
            }
            others.for_each(|(k, typed)| push_typed(k, typed, &mut writer));
            let end = i32::try_from(writer.bytes().len());
            ends.push(end.internal("attributes of a batch are larger than 2 GiB")?);
        }
        let bytes = writer.into_bytes().into();
        Ok(BinaryArray::new(arrow::buffer::OffsetBuffer::new(ends.into()), bytes, None))
    }

    /// An empty byte string for each row.
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

/// A column that holds attributes of a place.
#[derive(Debug)]
pub(crate) enum AttributeColumn<'b> {
    /// The values of one key; a row has at most one.
    Own(&'b str, &'b ArrayRef),
    /// The service, as the attribute `service.name`; absent if empty.
    Service(&'b ArrayRef),
    /// Attributes without a column of their own.
    Map(&'b MapArray),
    /// Attributes of the items of a list; a row may have a key more than once.
    Items(&'b [i32], &'b MapArray),
}

impl AttributeColumn<'_> {
    /// Calls a function for each attribute of a row.
    pub(crate) fn each(&self, row: usize, f: &mut dyn FnMut(&str, Value<'_>)) {
        let mut map = |maps: &MapArray, n: usize| {
            let attributes = map_blob(maps, n);
            Attributes::read(attributes.bytes()).for_each(|(key, value)| f(key, value));
        };
        match self {
            Self::Map(maps) => map(maps, row),
            Self::Items(offsets, maps) => (offsets[row]..offsets[row + 1]).for_each(|n| map(maps, n as usize)),
            Self::Own(key, values) => {
                if let Some(value) = own_value(&***values, row) {
                    f(key, value);
                }
            }
            Self::Service(values) => {
                if let Some(value) = own_value(&***values, row).filter(|value| *value != Value::Text("")) {
                    f("service.name", value);
                }
            }
        }
    }
}

impl SpanRows {
    /// The columns read that hold attributes of a place.
    pub(crate) fn attribute_columns(&self, place: Place) -> Vec<AttributeColumn<'_>> {
        let (prefix, rest) = match place {
            Place::Span => (ATTRIBUTE_PREFIX, ATTRIBUTES_REST),
            Place::Resource => (RESOURCE_PREFIX, RESOURCE_REST),
            Place::Scope => return self.map(SCOPE_REST).into_iter().collect(),
            Place::Event => return self.items("events").into_iter().collect(),
            Place::Link => return self.items("links").into_iter().collect(),
        };
        let own = self.0.schema_ref().fields().iter().zip(self.0.columns());
        let own = own.filter_map(|(field, values)| Some((field.name().strip_prefix(prefix)?, values)));
        let service = self.get("service_name").filter(|_| place == Place::Resource).map(AttributeColumn::Service);
        own.map(|(key, values)| AttributeColumn::Own(key, values)).chain(self.map(rest)).chain(service).collect()
    }

    fn map(&self, name: &str) -> Option<AttributeColumn<'_>> {
        self.get(name)?.as_map_opt().map(AttributeColumn::Map)
    }

    fn items(&self, name: &str) -> Option<AttributeColumn<'_>> {
        let list = self.get(name)?.as_list_opt::<i32>()?;
        let maps = list.values().as_struct_opt()?.column_by_name("attributes")?.as_map_opt()?;
        Some(AttributeColumn::Items(list.offsets(), maps))
    }
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

/// Converts bytes to views, storing equal neighbours once.
fn view(bytes: &BinaryArray) -> ArrayRef {
    let mut out = BinaryViewBuilder::new().with_deduplicate_strings();
    bytes.iter().for_each(|b| out.append_value(b.unwrap_or_default()));
    Arc::new(out.finish())
}

/// Rows with the columns resolved that tests of single rows need.
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

    fn durations(&self) -> Option<&[i64]> {
        (self.durations.len() == self.len()).then_some(self.durations)
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
        let Some(column) = self.get(name) else { return keep.fill(false) };
        if let Some(texts) = column.as_any().downcast_ref::<Int32DictionaryArray>() {
            return narrow_coded(texts, keep, test);
        }
        match (column.as_string_opt::<i32>(), column.as_string_view_opt()) {
            (Some(texts), _) => narrow(|row| texts.value(row), keep, test),
            (_, Some(texts)) => narrow(|row| texts.value(row), keep, test),
            _ => keep.fill(false),
        }
    }

    fn event_name(&self, row: usize, test: &TextTest) -> bool {
        let Some(list) = self.get("events").and_then(|c| c.as_list_opt::<i32>()) else { return false };
        let Ok(names) = member(list.values().as_struct(), "name") else { return false };
        let offsets = list.offsets();
        (offsets[row] as usize..offsets[row + 1] as usize).any(|n| test.matches(names.as_string::<i32>().value(n)))
    }

    fn may_have(&self, place: Place, key: &str) -> bool {
        let has = |name: &str| self.get(name).is_some();
        match place {
            Place::Span => has(ATTRIBUTES_REST) || has(&column_name(place, key)),
            Place::Resource => key == "service.name" || has(RESOURCE_REST) || has(&column_name(place, key)),
            Place::Scope => has(SCOPE_REST),
            Place::Event => has("events"),
            Place::Link => has("links"),
        }
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
        if rest.is_none()
            && let Some(texts) = own.and_then(|c| c.as_any().downcast_ref::<Int32DictionaryArray>())
        {
            return narrow_coded(texts, keep, &|text| test.matches(Value::Text(text)));
        }
        let own = own.and_then(|column| OwnValues::of(&**column));
        for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
            *keep = match own.and_then(|values| values.get(i)) {
                Some(value) => test.matches(value),
                None => rest.is_some_and(|map| map_matches(map, i, key, test)),
            };
        }
    }
}

/// Conversion for compaction: rows as a batch that the writer accepts.
impl SpanRows {
    /// Converts all rows to spans with contexts.
    pub(crate) fn to_batch(&self) -> Result<quiver_types::SpansBatch> {
        let columns = quiver_types::spans::all_columns();
        let flat = self.project(&columns, &ReadStats::default())?;
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
