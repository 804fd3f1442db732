//! Roll-ups of spans: counts for lists of services and the service graph, which then need not read spans.
//!
//! Each row has a time, an hour for the middle of a long range and a minute for its ends. A span whose parent is not
//! among the rolled-up spans is kept as an *open* row with its ids: whoever merges roll-ups looks for its parent in the
//! others (`traces-api` 7: pairs are resolved at flush and again at compaction).

mod builder;
mod counts;
mod merge;
mod remote_service;
mod request;
mod sketch;

use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, AsArray, BinaryBuilder, FixedSizeBinaryBuilder, RecordBatch, StringBuilder, UInt8Builder, UInt64Builder,
};
use arrow::array::{BinaryArray, FixedSizeBinaryArray, Int64Array, Int64Builder, StringArray, UInt8Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt8Type, UInt64Type};

use super::{SpanId, TraceId};
use crate::{Error, Result};

pub use builder::{RollupBuilder, rollup_columns};
pub use counts::Counts;
pub use merge::RollupSum;
pub use remote_service::{EdgeKind, PROTOCOLS, remote_of};
pub use request::{HIDDEN, RollupRequest};
pub use sketch::{Durations, RATIO, bucket, middle};

pub(super) const HOUR_MINUTES: i64 = 60;

/// What a row of a roll-up is about; in the order in which rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RollupKind {
    /// Spans of a service in an hour.
    NodeHour,
    /// Calls in an hour.
    EdgeHour,
    /// Spans of a service in a minute.
    NodeMinute,
    /// Calls in a minute.
    EdgeMinute,
    /// A span whose parent was not there.
    Open,
    /// Spans of an operation in an hour: `peer` is its name, `sort` its kind.
    Operation,
    /// Spans of an instance in an hour: `peer` is [`instance_name`].
    Instance,
}

impl RollupKind {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::NodeHour,
        Self::EdgeHour,
        Self::NodeMinute,
        Self::EdgeMinute,
        Self::Open,
        Self::Operation,
        Self::Instance,
    ];
}

/// Added to the kind of an open span that is Zipkin's other half of a shared id.
pub const OPEN_SHARED: u8 = 128;

/// The `sort` of a row that says: there are too many operations or instances in this hour to be counted.
pub const UNLISTED: u8 = 255;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name: &str, kind| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![
        field("what", DataType::UInt8),
        field("minute", DataType::Int64),
        field("service", DataType::Utf8),
        field("peer", DataType::Utf8),
        field("sort", DataType::UInt8),
        field("protocol", DataType::UInt8),
        field("spans", DataType::UInt64),
        field("errors", DataType::UInt64),
        field("first", DataType::Int64),
        field("last", DataType::Int64),
        field("durations", DataType::Binary),
        Field::new("trace_id", DataType::FixedSizeBinary(16), true),
        Field::new("span_id", DataType::FixedSizeBinary(8), true),
        Field::new("parent_span_id", DataType::FixedSizeBinary(8), true),
    ]))
});

/// Gives the columns of a roll-up. `minute` is that since the epoch in which hour or minute begin; `first` and `last`
/// are starts in Unix nanoseconds; ids are there on open rows only.
pub fn rollup_schema() -> SchemaRef {
    Arc::clone(&SCHEMA)
}

/// One row of a roll-up.
#[derive(Debug, Clone, PartialEq)]
pub struct RollupRow {
    /// What it is about.
    pub kind: RollupKind,
    /// Minutes since the epoch at which the hour or minute begins.
    pub minute: i64,
    /// Service; of an edge the caller. Empty for none.
    pub service: String,
    /// The called, the operation, the instance.
    pub peer: String,
    /// Of an edge its [`EdgeKind`], else the kind of the spans.
    pub sort: u8,
    /// How many spans or calls there were, how they ended and how long they took.
    pub counts: Counts,
    /// Trace, span and parent of an open row.
    pub ids: Option<(TraceId, SpanId, SpanId)>,
}

impl RollupRow {
    /// Says of an hour that there are too many operations or instances to be counted.
    pub(super) fn unlisted(kind: RollupKind, hour: i64) -> Self {
        let (service, peer) = (String::new(), String::new());
        Self { kind, minute: hour, service, peer, sort: UNLISTED, counts: Counts::default(), ids: None }
    }
}

/// Joins instance, version, host and pod to one name.
pub fn instance_name(parts: [&str; 4]) -> String {
    parts.join("\u{1}")
}

/// Splits what [`instance_name`] joined.
pub fn instance_parts(name: &str) -> [&str; 4] {
    let mut parts = name.split('\u{1}');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Makes a batch of rows.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn rollup_batch<'r>(rows: impl Iterator<Item = &'r RollupRow>) -> Result<RecordBatch> {
    let (mut what, mut sort, mut protocol) = (UInt8Builder::new(), UInt8Builder::new(), UInt8Builder::new());
    let (mut minute, mut first, mut last) = (Int64Builder::new(), Int64Builder::new(), Int64Builder::new());
    let (mut service, mut peer) = (StringBuilder::new(), StringBuilder::new());
    let (mut spans, mut errors) = (UInt64Builder::new(), UInt64Builder::new());
    let mut durations = BinaryBuilder::new();
    let mut ids = [16, 8, 8].map(FixedSizeBinaryBuilder::new);
    let failed = |e| Error::internal("cannot build a roll-up").with_source(e);
    let mut bytes = Vec::new();
    for row in rows {
        what.append_value(row.kind as u8);
        minute.append_value(row.minute);
        service.append_value(&row.service);
        peer.append_value(&row.peer);
        sort.append_value(row.sort);
        protocol.append_value(row.counts.protocol);
        spans.append_value(row.counts.spans);
        errors.append_value(row.counts.errors);
        first.append_value(row.counts.seen.0);
        last.append_value(row.counts.seen.1);
        bytes.clear();
        row.counts.durations.encode(&mut bytes);
        durations.append_value(&bytes);
        match &row.ids {
            Some((trace, span, parent)) => {
                for (builder, id) in ids.iter_mut().zip([&trace[..], span, parent]) {
                    builder.append_value(id).map_err(failed)?;
                }
            }
            None => ids.iter_mut().for_each(FixedSizeBinaryBuilder::append_null),
        }
    }
    let [mut trace, mut span, mut parent] = ids;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(what.finish()),
        Arc::new(minute.finish()),
        Arc::new(service.finish()),
        Arc::new(peer.finish()),
        Arc::new(sort.finish()),
        Arc::new(protocol.finish()),
        Arc::new(spans.finish()),
        Arc::new(errors.finish()),
        Arc::new(first.finish()),
        Arc::new(last.finish()),
        Arc::new(durations.finish()),
        Arc::new(trace.finish()),
        Arc::new(span.finish()),
        Arc::new(parent.finish()),
    ];
    RecordBatch::try_new(rollup_schema(), columns).map_err(failed)
}

/// The columns of a batch of rows.
#[derive(Debug)]
pub struct RollupRows<'b> {
    what: &'b UInt8Array,
    minute: &'b Int64Array,
    service: &'b StringArray,
    peer: &'b StringArray,
    sort: &'b UInt8Array,
    protocol: &'b UInt8Array,
    spans: &'b UInt64Array,
    errors: &'b UInt64Array,
    first: &'b Int64Array,
    last: &'b Int64Array,
    durations: &'b BinaryArray,
    ids: [&'b FixedSizeBinaryArray; 3],
}

impl<'b> RollupRows<'b> {
    /// Finds the columns.
    ///
    /// # Errors
    /// Internal: the batch has others.
    pub fn of(batch: &'b RecordBatch) -> Result<Self> {
        if batch.schema().fields().len() != SCHEMA.fields().len()
            || batch.schema().fields().iter().zip(SCHEMA.fields()).any(|(a, b)| a.data_type() != b.data_type())
        {
            return Err(Error::internal("a roll-up of spans has other columns"));
        }
        let small = |i: usize| batch.column(i).as_primitive::<UInt8Type>();
        let signed = |i: usize| batch.column(i).as_primitive::<Int64Type>();
        let count = |i: usize| batch.column(i).as_primitive::<UInt64Type>();
        let text = |i: usize| batch.column(i).as_string::<i32>();
        Ok(Self {
            what: small(0),
            minute: signed(1),
            service: text(2),
            peer: text(3),
            sort: small(4),
            protocol: small(5),
            spans: count(6),
            errors: count(7),
            first: signed(8),
            last: signed(9),
            durations: batch.column(10).as_binary::<i32>(),
            ids: [11, 12, 13].map(|i| batch.column(i).as_fixed_size_binary()),
        })
    }

    /// Gives what a row is about, and its minute; `None` for a kind that is not known.
    pub fn place(&self, row: usize) -> Option<(RollupKind, i64)> {
        let kind = RollupKind::ALL.get(usize::from(self.what.value(row)))?;
        Some((*kind, self.minute.value(row)))
    }

    /// Gives the sort of a row.
    pub fn sort(&self, row: usize) -> u8 {
        self.sort.value(row)
    }

    /// Gives service and peer of a row.
    pub fn names(&self, row: usize) -> (&'b str, &'b str) {
        (self.service.value(row), self.peer.value(row))
    }

    /// Reads a row.
    pub fn row(&self, row: usize) -> Option<RollupRow> {
        use arrow::array::Array;
        let (kind, minute) = self.place(row)?;
        let mut durations = Durations::default();
        durations.merge_bytes(self.durations.value(row));
        let [trace, span, parent] = self.ids;
        let ids = trace.is_valid(row).then(|| {
            let id8 = |ids: &FixedSizeBinaryArray| ids.value(row).try_into().unwrap_or_default();
            (trace.value(row).try_into().unwrap_or_default(), id8(span), id8(parent))
        });
        Some(RollupRow {
            kind,
            minute,
            service: self.service.value(row).to_owned(),
            peer: self.peer.value(row).to_owned(),
            sort: self.sort.value(row),
            counts: Counts {
                protocol: self.protocol.value(row),
                spans: self.spans.value(row),
                errors: self.errors.value(row),
                seen: (self.first.value(row), self.last.value(row)),
                durations,
            },
            ids,
        })
    }
}
