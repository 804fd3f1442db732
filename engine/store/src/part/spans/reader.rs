//! Reads parts of spans: locates traces, and determines which columns a request needs.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use quiver_types::spans::{AttributeTest, Place, SpanColumn, SpanFilter};
use quiver_types::tables::spans::{
    ATTRIBUTE_PREFIX, ATTRIBUTES_REST, RESOURCE_PREFIX, RESOURCE_REST, SCOPE_REST, trace_hash,
};
use quiver_types::{ReadStats, SpansBatch, read_stats};

use super::column_name;
use super::filters::{FILTERS, SpanFilters};
use super::index::SpanIndex;
use super::keys::SpanKeys;
use super::longest_durations::{SLOWEST, Slowest};
use super::rows::SpanRows;
use crate::error::{Error, Result};
use crate::part::FileMeta;
use crate::part::byte_ranges::{Purpose, Selection};
use crate::part::footer::{Footer, damaged};
use crate::part::reader::Part;

/// Rows per batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of a value beside what is stored of it: a place in a dictionary, or where it ends.
const CODE_BYTES: i64 = 4;
/// An index up to this size is read completely, in one request; reading single pages takes two.
const INDEX_BYTES_WHOLE: u64 = 256 << 10;

fn other_types(file: &FileMeta) -> Error {
    damaged(&file.key, "its columns are of another type")
}

/// Rows of the index in pages that may contain any of the hashes, which must be ascending.
fn pages_of(footer: &Footer, hashes: &[u32]) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for (group, bounds) in footer.group_starts().windows(2).enumerate() {
        let index = footer.metadata().column_index().and_then(|i| i.get(group)).and_then(|g| g.first());
        let pages = footer.page_locations(group, 0);
        for (page, location) in pages.iter().enumerate() {
            let may = match index {
                Some(ColumnIndexMetaData::INT32(index)) => match (index.min_value(page), index.max_value(page)) {
                    (Some(&min), Some(&max)) => {
                        let at = hashes.partition_point(|&hash| hash < min as u32);
                        hashes.get(at).is_some_and(|&hash| hash <= max as u32)
                    }
                    _ => true,
                },
                _ => true,
            };
            let end = pages.get(page + 1).map_or(bounds[1], |next| bounds[0] + next.first_row_index as u64);
            match out.last_mut() {
                _ if !may => {}
                Some(last) if last.end == bounds[0] + location.first_row_index as u64 => last.end = end,
                _ => out.push(bounds[0] + location.first_row_index as u64..end),
            }
        }
    }
    out
}

impl Part {
    /// The index of a part of the table `spans`, from the cache or the file.
    pub(crate) async fn span_index(&self, stats: &ReadStats) -> Result<Arc<SpanIndex>> {
        if let Some(index) = self.cache().span_indexes.get(&self.meta.id) {
            read_stats::add(&stats.cache_hits, 1);
            return Ok(index);
        }
        read_stats::add(&stats.cache_misses, 1);
        let (Some(rows), Some(file)) = (self.meta.file("rows"), self.meta.file("index")) else {
            return Err(Error::internal(format!("part `{}` lacks a file", self.meta.id)));
        };
        // As in `span_rows_made`: yield before files are read.
        tokio::task::yield_now().await;
        // Read together with the footer, so that looking up an uncached trace takes only three reads.
        let (footer, (index_footer, batches)) =
            futures::try_join!(self.footer(rows, stats), self.read_whole(file, stats))?;
        let mut index = SpanIndex::of_footer(rows, &footer)?;
        index.filters = index_footer.value(FILTERS).and_then(SpanFilters::parse).unwrap_or_default();
        index.slowest = index_footer.value(SLOWEST).and_then(Slowest::parse).unwrap_or_default();
        for batch in &batches {
            index.push(batch, |_| true).ok_or_else(|| other_types(file))?;
        }
        let index = Arc::new(index);
        self.cache().span_indexes.insert(self.meta.id, Arc::clone(&index), index.memory_bytes());
        Ok(index)
    }

    /// The part of the index that locates some traces: the whole index, or, if it is large, only entries from the pages
    /// that may hold the traces, without attribute filters and longest durations.
    pub(crate) async fn trace_index(&self, ids: &[[u8; 16]], stats: &ReadStats) -> Result<Arc<SpanIndex>> {
        let (Some(rows), Some(file)) = (self.meta.file("rows"), self.meta.file("index")) else {
            return Err(Error::internal(format!("part `{}` lacks a file", self.meta.id)));
        };
        let small = self.meta.file("traces").is_none() || file.bytes <= INDEX_BYTES_WHOLE;
        if small || self.cache().span_indexes.get(&self.meta.id).is_some() {
            return self.span_index(stats).await;
        }
        let (footer, index_footer) = futures::try_join!(self.footer(rows, stats), self.footer(file, stats))?;
        let mut index = SpanIndex::of_footer(rows, &footer)?;
        let mut hashes: Vec<u32> = ids.iter().map(|id| trace_hash(id)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let wanted = pages_of(&index_footer, &hashes);
        for batch in &self.index_entries(file, &index_footer, &wanted, stats).await? {
            index.push(batch, |hash| hashes.binary_search(&hash).is_ok()).ok_or_else(|| other_types(file))?;
        }
        Ok(Arc::new(index))
    }

    /// Reads some rows of the index. A few that follow each other are cached from their second use on: a trace that was
    /// requested once is often requested again, and nobody else may need the index.
    async fn index_entries(
        &self,
        file: &FileMeta,
        footer: &Footer,
        wanted: &[Range<u64>],
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        let (cache, part) = (self.decoded(), self.meta.id);
        let few = match wanted {
            [few] if few.end - few.start <= BATCH_ROWS as u64 => Some(few),
            _ => None,
        };
        if let Some(known) = few.and_then(|few| cache.entries(part, few)) {
            read_stats::add(&stats.cache_hits, 1);
            return Ok(vec![known.as_ref().clone()]);
        }
        let few = few.filter(|few| cache.wants_entries(part, few));
        // As in `span_rows_made`: yield before files are read.
        tokio::task::yield_now().await;
        let selection = Selection::of(wanted, BATCH_ROWS);
        let read = self.read_batches(file, footer, selection, Purpose::Query, stats).await?;
        if let (Some(few), [found]) = (few, read.as_slice()) {
            cache.insert_entries(part, few, found);
        }
        Ok(read)
    }

    /// The columns of `.rows`.
    pub(crate) async fn span_columns(&self, stats: &ReadStats) -> Result<SchemaRef> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        Ok(Arc::clone(footer.arrow(file)?.schema()))
    }

    /// About the decoded bytes of some columns of a row, by the sizes of these columns in the row group around it.
    pub(crate) async fn span_row_bytes(&self, row: u64, columns: &[&str], stats: &ReadStats) -> Result<u64> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        let group = footer.group_starts().partition_point(|start| *start <= row).saturating_sub(1);
        let Some(group) = footer.metadata().row_groups().get(group) else { return Ok(0) };
        let is_read = |name: &String| columns.contains(&name.as_str());
        let read = group.columns().iter().filter(|chunk| chunk.column_path().parts().first().is_some_and(is_read));
        let rows = group.num_rows().max(1);
        let bytes: i64 = read.map(|chunk| chunk.uncompressed_size() / rows + CODE_BYTES).sum();
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Reads some columns of rows; `rows` must be ascending and disjoint.
    pub(crate) async fn span_rows(
        &self,
        rows: &[Range<u64>],
        columns: &[&str],
        stats: &ReadStats,
    ) -> Result<Vec<SpanRows>> {
        self.span_rows_as(rows, columns, SpanRead::of_query(Texts::Plain), stats).await
    }

    /// Like `span_rows`, with texts as views into the decoded pages.
    pub(crate) async fn span_rows_viewed(
        &self,
        rows: &[Range<u64>],
        columns: &[&str],
        stats: &ReadStats,
    ) -> Result<Vec<SpanRows>> {
        self.span_rows_as(rows, columns, SpanRead::of_query(Texts::Viewed), stats).await
    }

    /// Like `span_rows`, with all texts dictionary-encoded, nullable ones too.
    pub(crate) async fn span_rows_all_coded(
        &self,
        rows: &[Range<u64>],
        columns: &[&str],
        stats: &ReadStats,
    ) -> Result<Vec<SpanRows>> {
        self.span_rows_as(rows, columns, SpanRead::of_query(Texts::AllCoded(BATCH_ROWS)), stats).await
    }

    /// Reads rows with all columns, as batches of spans, for comparing or merging. Rows in the file repeat data that
    /// spans share, so each batch is converted before the next is decoded.
    pub(crate) async fn span_batches(&self, rows: &[Range<u64>], stats: &ReadStats) -> Result<Vec<SpansBatch>> {
        let schema = self.span_columns(stats).await?;
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let make = |rows: SpanRows| rows.to_batch();
        let read = SpanRead { purpose: Purpose::Job, texts: Texts::Plain };
        self.span_rows_made(rows, &names, read, stats, make).await
    }

    pub(super) async fn span_rows_as(
        &self,
        rows: &[Range<u64>],
        columns: &[&str],
        read: SpanRead,
        stats: &ReadStats,
    ) -> Result<Vec<SpanRows>> {
        self.span_rows_made(rows, columns, read, stats, Ok).await
    }

    async fn span_rows_made<T>(
        &self,
        rows: &[Range<u64>],
        columns: &[&str],
        SpanRead { purpose, texts }: SpanRead,
        stats: &ReadStats,
        make: impl Fn(SpanRows) -> Result<T> + Send,
    ) -> Result<Vec<T>> {
        if columns.is_empty() {
            return rows.iter().map(|range| SpanRows::counted(range.end - range.start).and_then(&make)).collect();
        }
        // Requests that are served from memory stay on the caller's thread; yield before files are read and decoded.
        tokio::task::yield_now().await;
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        read_stats::add(&stats.pages_total, footer.pages());
        let arrow = match texts {
            Texts::Plain => footer.arrow(file)?,
            Texts::AllCoded(_) => footer.all_coded(file)?,
            Texts::Viewed => footer.viewed(file)?,
        };
        let batch_rows = if let Texts::AllCoded(rows) = texts { rows } else { BATCH_ROWS };
        let selection = Selection { arrow: Some(arrow), ..Selection::of(rows, batch_rows).only(columns) };
        let batches = self.decode(file, &footer, selection, purpose, stats).await?;
        batches.map(|batch| make(SpanRows(batch?))).collect()
    }
}

/// How rows are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanRead {
    pub(super) purpose: Purpose,
    pub(super) texts: Texts,
}

impl SpanRead {
    pub(super) fn of_query(texts: Texts) -> Self {
        Self { purpose: Purpose::Query, texts }
    }
}

/// How text columns are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Texts {
    Plain,
    /// All dictionary-encoded, in batches of this many rows.
    AllCoded(usize),
    /// All as string views.
    Viewed,
}

/// The map column with the attributes of a place that have no column of their own.
fn map_of(place: Place) -> &'static str {
    match place {
        Place::Span => ATTRIBUTES_REST,
        Place::Resource => RESOURCE_REST,
        Place::Scope => SCOPE_REST,
        Place::Event => "events",
        Place::Link => "links",
    }
}

/// Adds the columns of a file that a filter examines.
fn of_filter(filter: &SpanFilter, schema: &SchemaRef, keys: &SpanKeys, out: &mut Vec<String>) {
    let mut add = |names: &[&str]| out.extend(names.iter().map(|n| (*n).to_owned()));
    match filter {
        SpanFilter::All | SpanFilter::None | SpanFilter::WithoutRepeats => {}
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

/// Adds the columns of a file that a column of the result is made from.
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
        SpanColumn::Duration => out.push("duration".into()),
        SpanColumn::Own("end") => out.extend(["start_time".into(), "duration".into()]),
        SpanColumn::Own("status") => out.push("status_code".into()),
        SpanColumn::Own("received") => out.push("__q_received".into()),
        SpanColumn::Own("marks") => out.push("__q_marks".into()),
        SpanColumn::Context("service") => out.push("service_name".into()),
        SpanColumn::Context("scope_attributes") if !keys.may_have_any(Place::Scope) => {}
        SpanColumn::Context("scope_attributes") => out.push(SCOPE_REST.into()),
        SpanColumn::Own("events") if !keys.events => {}
        SpanColumn::Own("links") if !keys.links => {}
        SpanColumn::Own(same) | SpanColumn::Text(same) | SpanColumn::Context(same) => out.push((*same).to_owned()),
        SpanColumn::Coded(of) => of_column(of, schema, keys, out),
        SpanColumn::Passes(one) => of_filter(&one.filter, schema, keys, out),
        SpanColumn::Attribute(place, key, _) => {
            let filter = SpanFilter::Attribute { place: Some(*place), key: key.clone(), test: AttributeTest::Exists };
            of_filter(&filter, schema, keys, out);
        }
    }
}

/// The columns of a file that a filter needs, and the additional ones that the result needs.
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
    for c in columns {
        of_column(c, schema, keys, &mut rest);
    }
    for list in [&mut first, &mut rest] {
        list.sort_unstable();
        list.dedup();
    }
    rest.retain(|name| first.binary_search(name).is_err());
    (first, rest)
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{AttributeKind, NumberedFilter, TextTest};

    use super::super::super::tests::{block_on, open, small, write};
    use super::super::OwnType;
    use super::super::columns::Builder;
    use super::super::dedicated_columns::OwnColumn;
    use super::*;

    /// Breaks if each request of one trace reads the index anew.
    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]
    fn rows_of_an_index_are_kept_from_their_second_use_on() {
        let dir = tempfile::tempdir().unwrap();
        let part = open(dir.path(), &write(dir.path(), 0, &small()));
        // Any file has rows.
        let file = part.meta.file("series").unwrap();
        let footer = block_on(part.footer(file, &ReadStats::default())).unwrap();
        let read = |rows: &[Range<u64>]| {
            let stats = ReadStats::default();
            let found = block_on(part.index_entries(file, &footer, rows, &stats)).unwrap();
            (found.iter().map(RecordBatch::num_rows).sum::<usize>(), read_stats::get(&stats.objects_read) > 0)
        };
        assert_eq!([(); 3].map(|()| read(&[1..3])), [(2, true), (2, true), (2, false)]);
        assert_eq!([(); 2].map(|()| read(&[1..4])), [(3, true), (3, false)], "from the same row on, but more");
        assert_eq!([(); 3].map(|()| read(&[0..1, 2..4])), [(3, true); 3], "of many traces");
    }

    /// The columns that are needed with two attributes and one of the resource that have columns of their own.
    fn check(filter: SpanFilter, columns: &[SpanColumn], keys: &SpanKeys, first: &[&str], rest: &[&str]) {
        let own = |place: Place, key: &str| OwnColumn { place, key: key.to_owned(), kind: OwnType::Text };
        let own = [own(Place::Span, "user"), own(Place::Span, "url"), own(Place::Resource, "host")];
        let schema = Builder::new(&own).schema();
        let found = needed(&filter, columns, false, &schema, keys);
        assert_eq!(found, (owned(first), owned(rest)), "{filter}");
        let (restricted, _) = needed(&filter, columns, true, &schema, keys);
        assert!(restricted.contains(&"service_name".to_owned()));
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn has(place: Option<Place>, key: &str) -> SpanFilter {
        SpanFilter::Attribute { place, key: key.to_owned(), test: AttributeTest::Exists }
    }

    #[test]
    fn filters_need_the_columns_that_they_look_at() {
        let none = SpanKeys::none();
        let is = |text: &str| TextTest::Is(text.to_owned());
        check(SpanFilter::All, &[], &none, &[], &[]);
        check(SpanFilter::Service(is("a")), &[], &none, &["service_name"], &[]);
        check(SpanFilter::Overlaps(0, 9), &[SpanColumn::Own("end")], &none, &["duration", "start_time"], &[]);
        check(SpanFilter::Starts(0, 9), &[SpanColumn::Own("end")], &none, &["start_time"], &["duration"]);
        let several = SpanFilter::Or(vec![SpanFilter::Root, SpanFilter::Not(Box::new(SpanFilter::Status(2)))]);
        check(several, &[SpanColumn::Own("status")], &none, &["parent_span_id", "status_code"], &[]);
        check(SpanFilter::EventName(is("e")), &[SpanColumn::Own("events")], &none, &[], &[]);
        let mut keys = SpanKeys::none();
        keys.events = true;
        check(SpanFilter::EventName(is("e")), &[SpanColumn::Own("links")], &keys, &["events"], &[]);
    }

    #[test]
    fn attributes_need_their_column_and_the_map_where_it_may_have_them() {
        let none = SpanKeys::none();
        let mut keys = SpanKeys::none();
        keys.add(Place::Span, "user");
        keys.add(Place::Scope, "lib");
        keys.add(Place::Event, "lib");
        check(has(Some(Place::Span), "user"), &[], &none, &["attributes.user"], &[]);
        check(has(Some(Place::Span), "user"), &[], &keys, &["__q_attributes", "attributes.user"], &[]);
        check(has(Some(Place::Span), "other"), &[], &keys, &[], &[]);
        check(has(None, "host"), &[], &keys, &["resource.host"], &[]);
        check(has(None, "lib"), &[], &keys, &["__q_scope", "events"], &[]);
        check(has(Some(Place::Resource), "service.name"), &[], &none, &["service_name"], &[]);
        // Where nothing is known, all that may have it.
        let any = ["__q_attributes", "__q_resource", "__q_scope", "attributes.url", "events", "links"];
        check(has(None, "url"), &[], &SpanKeys::default(), &any, &[]);
    }

    #[test]
    fn answers_need_what_they_are_made_of() {
        let none = SpanKeys::none();
        let all = SpanKeys::default();
        let (attributes, resource) = (SpanColumn::Own("attributes"), SpanColumn::Context("resource"));
        check(SpanFilter::All, std::slice::from_ref(&attributes), &none, &[], &["attributes.url", "attributes.user"]);
        let first = ["__q_resource", "resource.host"];
        check(has(Some(Place::Resource), "host"), &[resource], &all, &first, &[]);
        let with_map = ["__q_attributes", "attributes.url", "attributes.user"];
        check(SpanFilter::All, &[attributes], &all, &[], &with_map);
        let user = SpanColumn::Attribute(Place::Span, "user".to_owned(), AttributeKind::Text);
        check(SpanFilter::All, &[SpanColumn::Coded(Box::new(user))], &none, &[], &["attributes.user"]);
        let root = NumberedFilter { number: 0, filter: Arc::new(SpanFilter::Root.and(has(None, "host"))) };
        check(SpanFilter::Root, &[SpanColumn::Passes(root)], &none, &["parent_span_id"], &["resource.host"]);
        let shared = [SpanColumn::Context("scope_attributes"), SpanColumn::Context("scope_name")];
        check(SpanFilter::All, &shared, &none, &[], &["scope_name"]);
        check(SpanFilter::All, &shared, &all, &[], &["__q_scope", "scope_name"]);
        let times = [SpanColumn::Duration, SpanColumn::Own("start"), SpanColumn::Own("received")];
        check(SpanFilter::All, &times, &none, &[], &["__q_received", "duration", "start_time"]);
    }
}
