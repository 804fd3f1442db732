//! The table of attribute keys and values. It works on the columns as they are in a part (for text, the dictionary and
//! how often each code occurs), without assembling spans.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int32DictionaryArray, RecordBatch, StringArray, UInt8Array, UInt64Array,
};
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, UInt32Type};
use async_trait::async_trait;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::scan::{PlannedScan, ScanBatches, ScanMemory, ScanShape, ScanSource, ScanTask, ScanText};
use quiver_types::spans::{
    Attributes, Place, SpanRequest, TAG_BYTES, TAG_CARDINALITY_MAX, TAG_HASH_BYTES, TAG_VALUES_MAX, TagRequest, Value,
    events, links, tag_kind, tag_schema, tag_value_kind,
};
use quiver_types::{Access, SpansBatch};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::duplicates::Repeats;
use super::planned_scan::{BatchTrimmer, projected, run_of, write_end};
use super::stream::{ScanRun, ScanShared, open};
use crate::error::{Context, Result, leave_out};
use crate::part::spans::{AttributeColumn, SpanRows};
use crate::snapshot::{Snapshot, SnapshotForm};

/// Number of partitions that share the work.
const PARTITIONS: usize = 4;

/// What is known about a key.
#[derive(Debug, Default)]
struct Tag {
    kinds: u8,
    spans: u64,
    last_row: u64,
    values: HashSet<u64, FixedState>,
}

/// Counts keys, or the values of one key.
struct Tally {
    request: TagRequest,
    /// What is known about each key, by place.
    tags: [HashMap<String, Tag, FixedState>; Place::ALL.len()],
    /// For each value, the number of spans and its types.
    values: HashMap<String, (u64, u8), FixedState>,
    /// Approximate memory of all this.
    bytes: usize,
    /// Number of the current row; a key that occurs in several events of a span counts once.
    row: u64,
}

impl Tally {
    fn new(request: TagRequest) -> Self {
        Self { request, tags: Default::default(), values: HashMap::default(), bytes: 0, row: 0 }
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let request = self.request.clone();
        Place::ALL.into_iter().filter(move |place| request.asks(*place))
    }

    /// Records an attribute of a number of spans. With `row`, it is from this single span, which may have the key
    /// again.
    fn tag(&mut self, place: Place, key: &str, value: Value<'_>, spans: u64, row: Option<u64>) {
        let tags = &mut self.tags[place as usize];
        if !tags.contains_key(key) {
            tags.insert(key.to_owned(), Tag::default());
            self.bytes += key.len() + TAG_BYTES;
        }
        let Some(tag) = tags.get_mut(key) else { return };
        tag.kinds |= tag_kind(value);
        match row {
            Some(row) if tag.last_row == row => {}
            _ => tag.spans += spans,
        }
        tag.last_row = row.unwrap_or(tag.last_row);
        if tag.values.len() < TAG_CARDINALITY_MAX && tag.values.insert(xxh3_64(value.text().as_bytes())) {
            self.bytes += TAG_HASH_BYTES;
        }
    }

    fn value(&mut self, value: &str, spans: u64, kind: u8) {
        if let Some(known) = self.values.get_mut(value) {
            known.0 += spans;
            known.1 |= kind;
        } else if self.values.len() < TAG_VALUES_MAX {
            self.values.insert(value.to_owned(), (spans, kind));
            self.bytes += value.len() + TAG_BYTES;
        }
    }

    /// Records an attribute that each span has at most once.
    fn note(&mut self, place: Place, key: &str, value: Value<'_>, spans: u64) {
        match &self.request.key {
            None => self.tag(place, key, value, spans, None),
            Some(wanted) if wanted == key => self.value(&value.text(), spans, tag_value_kind(value)),
            Some(_) => {}
        }
    }

    /// Counts the values that one span has for the key, each once.
    fn of_span(&mut self, mut found: Vec<(String, u8)>) {
        found.sort_unstable();
        found.dedup();
        let mut last = None;
        for (value, kind) in &found {
            // A value that occurs with two types counts as one value of the span.
            let is_new = last.replace(value) != Some(value);
            self.value(value, u64::from(is_new), *kind);
        }
    }

    /// Counts the kept spans of live rows.
    fn live(&mut self, batch: &SpansBatch, keep: &[bool]) {
        let contexts = batch.spans["context"].as_primitive::<UInt32Type>().values();
        let of_span = |name: &str| batch.spans[name].as_binary::<i32>();
        let of_context = |name: &str| batch.contexts[name].as_binary::<i32>();
        let services = batch.contexts["service"].as_string::<i32>();
        let service = |context: usize| Some(services.value(context)).filter(|service| !service.is_empty());
        let (attributes, event_runs, link_runs) = (of_span("attributes"), of_span("events"), of_span("links"));
        let (resources, scopes) = (of_context("resource"), of_context("scope_attributes"));
        let places: Vec<Place> = self.places().collect();
        let kept = || (0..keep.len()).filter(|&i| keep[i]);
        if let Some(wanted) = self.request.key.clone() {
            for i in kept() {
                let context = contexts[i] as usize;
                let mut found = Vec::new();
                let mut look = |bytes: &[u8]| {
                    let values = Attributes::read(bytes).filter(|(key, _)| *key == wanted);
                    found.extend(values.map(|(_, value)| (value.text().into_owned(), tag_value_kind(value))));
                };
                for place in &places {
                    match place {
                        Place::Span => look(attributes.value(i)),
                        Place::Resource => look(resources.value(context)),
                        Place::Event => events(event_runs.value(i)).for_each(|e| look(e.attributes)),
                        Place::Link => links(link_runs.value(i)).for_each(|l| look(l.attributes)),
                        Place::Scope => look(scopes.value(context)),
                    }
                }
                if wanted == "service.name" && places.contains(&Place::Resource) {
                    found.extend(service(context).map(|name| (name.to_owned(), tag_value_kind(Value::Text(name)))));
                }
                self.of_span(found);
            }
            return;
        }
        // Resource and scope are counted below, once per context for all spans that share it.
        let mut uses = vec![0u64; batch.contexts.num_rows()];
        for i in kept() {
            self.row += 1;
            uses[contexts[i] as usize] += 1;
            let row = Some(self.row);
            let mut list = |place: Place, bytes: &[u8]| {
                Attributes::read(bytes).for_each(|(key, value)| self.tag(place, key, value, 1, row));
            };
            for place in &places {
                match place {
                    Place::Span => list(*place, attributes.value(i)),
                    Place::Event => events(event_runs.value(i)).for_each(|e| list(*place, e.attributes)),
                    Place::Link => links(link_runs.value(i)).for_each(|l| list(*place, l.attributes)),
                    Place::Resource | Place::Scope => {}
                }
            }
        }
        for (context, spans) in uses.into_iter().enumerate().filter(|(_, spans)| *spans > 0) {
            let mut list = |place: Place, bytes: &[u8]| {
                Attributes::read(bytes).for_each(|(key, value)| self.tag(place, key, value, spans, None));
            };
            if places.contains(&Place::Scope) {
                list(Place::Scope, scopes.value(context));
            }
            if places.contains(&Place::Resource) {
                list(Place::Resource, resources.value(context));
                if let Some(service) = service(context) {
                    self.tag(Place::Resource, "service.name", Value::Text(service), spans, None);
                }
            }
        }
    }

    fn part(&mut self, rows: &SpanRows, keep: &[bool]) {
        let columns =
            self.places().flat_map(|place| rows.attribute_columns(place).into_iter().map(move |c| (place, c)));
        let wanted = self.request.key.clone();
        let may_have = |column: &AttributeColumn<'_>| match (column, &wanted) {
            (AttributeColumn::Own(key, _), Some(wanted)) => key == wanted,
            (AttributeColumn::Service(_), Some(wanted)) => wanted == "service.name",
            _ => true,
        };
        let columns: Vec<(Place, AttributeColumn<'_>)> = columns.filter(|(_, column)| may_have(column)).collect();
        let kept = || (0..keep.len()).filter(|&i| keep[i]);
        // If a span may have the key in two columns, it is examined span by span.
        let once = matches!(&columns[..], [(_, AttributeColumn::Own(..) | AttributeColumn::Service(_))]);
        if let Some(wanted) = wanted.filter(|_| !once) {
            for i in kept() {
                let mut found = Vec::new();
                let mut look = |key: &str, value: Value<'_>| {
                    if key == wanted {
                        found.push((value.text().into_owned(), tag_value_kind(value)));
                    }
                };
                for (_, column) in &columns {
                    column.each(i, &mut look);
                }
                self.of_span(found);
            }
            return;
        }
        let first = self.row;
        self.row += keep.len() as u64;
        for (place, column) in &columns {
            match column {
                AttributeColumn::Own(key, values) => self.column(*place, key, values, keep),
                AttributeColumn::Service(values) => self.column(*place, "service.name", values, keep),
                AttributeColumn::Map(_) | AttributeColumn::Items(..) => {
                    for i in kept() {
                        let row = Some(first + i as u64 + 1);
                        column.each(i, &mut |key, value| self.tag(*place, key, value, 1, row));
                    }
                }
            }
        }
    }

    /// Counts the values of a column.
    fn column(&mut self, place: Place, key: &str, values: &ArrayRef, keep: &[bool]) {
        let there = || (0..keep.len()).filter(|&i| keep[i] && values.is_valid(i));
        let mut numbers: HashMap<u64, u64, FixedState> = HashMap::default();
        match values.data_type() {
            DataType::Dictionary(..) => {
                let Some(coded) = values.as_any().downcast_ref::<Int32DictionaryArray>() else { return };
                let Some(texts) = coded.values().as_string_opt::<i32>() else { return };
                let mut counts = vec![0u64; texts.len()];
                there().for_each(|i| counts[coded.keys().value(i) as usize] += 1);
                for (code, spans) in counts.into_iter().enumerate().filter(|(_, spans)| *spans > 0) {
                    let text = texts.value(code);
                    // An empty text means no value only for services.
                    if !text.is_empty() || key != "service.name" {
                        self.note(place, key, Value::Text(text), spans);
                    }
                }
            }
            DataType::Int64 => {
                let column = values.as_primitive::<Int64Type>();
                there().for_each(|i| *numbers.entry(column.value(i).cast_unsigned()).or_default() += 1);
                numbers.into_iter().for_each(|(n, spans)| self.note(place, key, Value::Int(n.cast_signed()), spans));
            }
            DataType::Float64 => {
                let column = values.as_primitive::<Float64Type>();
                there().for_each(|i| *numbers.entry(column.value(i).to_bits()).or_default() += 1);
                let note = |(n, spans): (u64, u64)| self.note(place, key, Value::Double(f64::from_bits(n)), spans);
                numbers.into_iter().for_each(note);
            }
            DataType::Boolean => {
                let column = values.as_boolean();
                there().for_each(|i| *numbers.entry(u64::from(column.value(i))).or_default() += 1);
                numbers.into_iter().for_each(|(n, spans)| self.note(place, key, Value::Bool(n != 0), spans));
            }
            _ => {}
        }
    }

    /// Returns the counts and resets them.
    fn take(&mut self) -> Result<RecordBatch> {
        let mut rows: Vec<(u8, String, u8, u64, Vec<u8>)> = Vec::new();
        for (place, tags) in self.tags.iter_mut().enumerate() {
            for (key, tag) in tags.drain() {
                let hashes = tag.values.iter().flat_map(|hash| hash.to_le_bytes()).collect();
                rows.push((place as u8, key, tag.kinds, tag.spans, hashes));
            }
        }
        self.bytes = 0;
        rows.extend(self.values.drain().map(|(value, (spans, kinds))| (0, value, kinds, spans, Vec::new())));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.0))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.1))),
            Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.2))),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|r| r.3))),
            Arc::new(BinaryArray::from_iter_values(rows.iter().map(|r| &r.4))),
        ];
        RecordBatch::try_new(tag_schema(), columns).internal("cannot list attributes")
    }
}

/// One partition of the scan.
struct TagCountPartition {
    scan: Arc<ScanRun>,
    /// The remaining units of its share.
    units: VecDeque<usize>,
    tally: Tally,
    memory: Arc<dyn ScanMemory>,
    cut: BatchTrimmer,
}

impl TagCountPartition {
    /// Counts the next unit; live batches come first. `None` at the end.
    async fn count(&mut self) -> Result<Option<RecordBatch>> {
        let Self { scan, units, tally, memory, .. } = self;
        let scan: &ScanRun = scan;
        let mut live = false;
        while let Some(unit) = units.pop_front() {
            if let Some((generation, chunk)) = scan.live.get(unit) {
                live = true;
                let keep = scan.matching_live(*generation, chunk).await?;
                tally.live(&chunk.batch, &keep);
                memory.try_resize(tally.bytes)?;
                // Let the caller check its deadline between steps.
                tokio::task::yield_now().await;
                continue;
            }
            let Some(part) = scan.parts.get(unit - scan.live.len()) else { break };
            let mut part = match open(scan, Arc::clone(part)).await {
                Ok(part) => part,
                Err(e) => {
                    leave_out(&scan.stats, e)?;
                    continue;
                }
            };
            loop {
                let (step, _) = part.next_rows(part.size.rows());
                if step.is_empty() {
                    break;
                }
                match part.read_coded(scan, &step).await {
                    Ok(read) => read.iter().for_each(|(rows, keep)| tally.part(rows, keep)),
                    Err(e) => {
                        leave_out(&scan.stats, e)?;
                        break;
                    }
                }
                memory.try_resize(tally.bytes)?;
                tokio::task::yield_now().await;
            }
            return tally.take().map(Some);
        }
        if live { tally.take().map(Some) } else { Ok(None) }
    }
}

#[async_trait]
impl ScanBatches for TagCountPartition {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.cut.is_done() {
            return Ok(None);
        }
        let Some(batch) = self.count().await? else { return Ok(None) };
        self.cut.take(&batch).map(Some)
    }
}

/// The table of keys, or of the values of one key.
struct TagTable {
    scan: Arc<ScanShared>,
    request: TagRequest,
}

impl fmt::Debug for TagTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tags").field("request", &self.request).finish_non_exhaustive()
    }
}

impl ScanSource for TagTable {
    fn schema(&self) -> SchemaRef {
        tag_schema()
    }

    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>> {
        Ok(Arc::new(TagScan::try_new(Arc::clone(&self.scan), self.request.clone(), shape.clone())?))
    }
}

/// Counts the attributes of the spans that match a filter.
#[derive(Debug)]
pub(crate) struct TagScan {
    scan: Arc<ScanShared>,
    request: TagRequest,
    schema: SchemaRef,
    shape: ScanShape,
    /// The units of each partition.
    shares: Vec<VecDeque<usize>>,
}

/// The serialized form of such a scan.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TagForm {
    snapshot: SnapshotForm,
    access: Access,
    request: TagRequest,
    shape: ScanShape,
}

impl TagForm {
    /// Recreates the scan over the same snapshot.
    pub(crate) fn scan(self, repeats: &Arc<Repeats>) -> Result<TagScan> {
        let scan = shared(&self.snapshot.snapshot()?, repeats, self.access, &self.request);
        TagScan::try_new(scan, self.request, self.shape)
    }
}

impl TagScan {
    /// The serialized form of the scan.
    pub(crate) fn form(&self) -> TagForm {
        let (snapshot, access) = (self.scan.snapshot.form(), self.scan.access.clone());
        TagForm { snapshot, access, request: self.request.clone(), shape: self.shape.clone() }
    }

    fn try_new(scan: Arc<ScanShared>, request: TagRequest, shape: ScanShape) -> Result<Self> {
        let schema = projected(tag_schema(), &shape)?;
        // As in `SpansScan`: the number of partitions must not reveal hidden spans.
        let units = if scan.access.is_full() { scan.units() } else { PARTITIONS };
        let shares = scan.shares(units.clamp(1, PARTITIONS));
        Ok(Self { scan, request, schema, shape, shares })
    }
}

impl PlannedScan for TagScan {
    fn name(&self) -> &'static str {
        "SpanTagsExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn partitions(&self) -> usize {
        self.shares.len()
    }

    fn explain(&self, _: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpanTagsExec: ")?;
        write_end(&self.schema, self.shape.limit, f)
    }

    fn open(&self, partition: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>> {
        Ok(Box::new(TagCountPartition {
            scan: run_of(&self.scan, &task),
            units: self.shares[partition].clone(),
            tally: Tally::new(self.request.clone()),
            memory: task.memory,
            cut: BatchTrimmer::new(&self.shape),
        }))
    }
}

/// Prepares what is read for a request.
fn shared(snapshot: &Snapshot, repeats: &Arc<Repeats>, access: Access, request: &TagRequest) -> Arc<ScanShared> {
    let spans = SpanRequest { filter: request.filter.clone(), columns: request.columns() };
    Arc::new(ScanShared::new(snapshot, repeats, access, spans))
}

/// Creates the table for a request.
pub(super) fn table(
    snapshot: &Snapshot,
    repeats: &Arc<Repeats>,
    access: Access,
    request: TagRequest,
) -> Arc<dyn ScanSource> {
    Arc::new(TagTable { scan: shared(snapshot, repeats, access, &request), request })
}
