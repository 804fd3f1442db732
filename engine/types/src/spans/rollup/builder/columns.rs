//! The columns of a batch of spans that roll-ups are made of, and one row of them.

use arrow::array::{AsArray, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow::datatypes::{Int64Type, UInt8Type};

use crate::spans::{SHARED, STATUS_ERROR, SpanColumn, bucket, first_received};
use crate::{Error, Result};

/// Gives the columns that [`RollupBuilder::push`](super::RollupBuilder::push) reads; the last two may be left out, then
/// there are no operations and instances.
pub fn rollup_columns() -> Vec<SpanColumn> {
    let ids = ["trace_id", "span_id", "parent_span_id"];
    let own = ["kind", "start", "end", "received", "status", "marks", "attributes"];
    let columns = ids.into_iter().chain(own).map(SpanColumn::Own).chain([SpanColumn::Context("service")]);
    columns.chain([SpanColumn::Own("name"), SpanColumn::Context("resource")]).collect()
}

/// One row of a batch.
pub(super) struct Row<'b> {
    pub(super) trace: &'b [u8],
    pub(super) id: &'b [u8],
    pub(super) parent: &'b [u8],
    pub(super) service: u32,
    pub(super) kind: u8,
    pub(super) shared: bool,
    pub(super) attributes: &'b [u8],
    pub(super) start: i64,
    pub(super) received: i64,
    pub(super) error: bool,
    pub(super) bucket: u16,
}

pub(super) fn missing(name: &str) -> Error {
    Error::internal(format!("a roll-up of spans lacks `{name}`"))
}

/// The columns of a batch that are looked at row by row.
pub(super) struct Columns<'b> {
    ids: [&'b FixedSizeBinaryArray; 3],
    small: [&'b UInt8Array; 3],
    times: [&'b Int64Array; 3],
    names: Option<&'b StringArray>,
}

impl<'b> Columns<'b> {
    pub(super) fn of(batch: &'b RecordBatch) -> Result<Self> {
        let column = |name: &str| batch.column_by_name(name).ok_or_else(|| missing(name));
        let fixed = |name: &str| column(name)?.as_fixed_size_binary_opt().ok_or_else(|| missing(name));
        let times = |name: &str| column(name)?.as_primitive_opt::<Int64Type>().ok_or_else(|| missing(name));
        let small = |name: &str| column(name)?.as_primitive_opt::<UInt8Type>().ok_or_else(|| missing(name));
        Ok(Self {
            ids: [fixed("trace_id")?, fixed("span_id")?, fixed("parent_span_id")?],
            small: [small("kind")?, small("status")?, small("marks")?],
            times: [times("start")?, times("end")?, times("received")?],
            names: batch.column_by_name("name").and_then(|c| c.as_string_opt::<i32>()),
        })
    }

    #[inline]
    pub(super) fn row(&self, i: usize, service: u32, attributes: &'b [u8]) -> Row<'b> {
        let [traces, ids, parents] = self.ids;
        let [kinds, statuses, marks] = self.small;
        let [start, end, received] = self.times.map(|times| times.value(i));
        Row {
            trace: traces.value(i),
            id: ids.value(i),
            parent: parents.value(i),
            service,
            kind: kinds.value(i),
            shared: marks.value(i) & SHARED != 0,
            attributes,
            start,
            received: first_received(received, marks.value(i)),
            error: statuses.value(i) == STATUS_ERROR,
            bucket: bucket(end.saturating_sub(start)),
        }
    }

    #[inline]
    pub(super) fn name(&self, i: usize) -> Option<&'b str> {
        self.names.map(|names| names.value(i))
    }
}
