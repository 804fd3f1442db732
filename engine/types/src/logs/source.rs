//! The interface between LogsQL and the store: snapshots, streams, and scan requests.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::counts::{FIELD_NAME, ROW_COUNT, ValueCounts, ValueLimits};
use super::filter::{LogFilter, StreamSelector};
use super::stored_field::StoredField;
use super::stream::StreamId;
use super::{OBSERVED_TIME, REST, SEVERITY_NUMBER, TIME};
use crate::tables::columns::{map, nanos};
use crate::{Access, LabelSet, MillisRange, ReadStats, Result, Version};

/// A stream that a snapshot holds.
#[derive(Debug, Clone)]
pub struct StreamInfo {
    /// Hash of its labels.
    pub id: StreamId,
    /// Its labels, as shown in `_stream`.
    pub labels: LabelSet,
}

/// Provides snapshots of a store's log rows.
pub trait LogSource: Send + Sync + fmt::Debug {
    /// Takes a snapshot of what is visible now. All scans of a query must use the same snapshot.
    fn snapshot(&self) -> Arc<dyn LogSnapshot>;
}

/// The log rows visible at one moment. The scan itself is a [`crate::scan::ScanSource`] (`quiver_store::logs_table`), for which
/// the store gets its own snapshot back.
#[async_trait]
pub trait LogSnapshot: Any + Send + Sync + fmt::Debug {
    /// The streams that match a selector and may have rows within a range of Unix nanoseconds (inclusive).
    async fn streams(
        &self,
        access: &Access,
        selector: &StreamSelector,
        range: (i64, i64),
        stats: &Arc<ReadStats>,
    ) -> Result<Vec<StreamInfo>>;

    /// The version of the snapshot; `None` if the source has no versions.
    fn version(&self) -> Option<Version> {
        None
    }

    /// Tells whether a range still has the rows that an older snapshot saw in it.
    fn is_unchanged(&self, _since: Version, _range: MillisRange) -> bool {
        false
    }
}

/// A requested column.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogColumn {
    /// Name of the field; `_time`, `_stream` and `_stream_id` too, and for the analytical models `__q_service` and
    /// [`crate::logs::SEVERITY_NUMBER`] (`UInt8`) and [`crate::logs::OBSERVED_TIME`] (as `_time`, nullable).
    pub name: String,
    /// Whether to return it in stored form ([`StoredField`]), for grouping and sums; otherwise as `Utf8View`. Not for
    /// `_time`.
    pub stored: bool,
}

/// The order of a scan's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum LogOrder {
    /// In any order, in several partitions.
    #[default]
    Any,
    /// Newest first (equal times in any order), in one partition; reading stops when the reader does.
    NewestFirst,
    /// Oldest first (equal times in any order), in one partition; reading stops when the reader does.
    OldestFirst,
}

/// What the rows of a scan represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum LogForm {
    /// Rows of the table.
    #[default]
    Rows,
    /// Rows of the table, or one for many that have the same values in all columns asked for: a last column
    /// [`ROW_COUNT`] (`UInt64`) says how many each stands for, null: one. Of columns whose values follow from the stream
    /// nothing is read.
    Counted,
    /// Names of fields, and how many rows have each ([`LogRequest::field_counts`]).
    FieldCounts,
    /// How many rows have each value of each field ([`LogRequest::value_counts`]).
    ValueCounts(ValueLimits),
}

/// What a scan is asked for. Its schema: the columns in this order, all nullable but `_time`; `_time` is
/// `Timestamp(Nanosecond, UTC)`; a missing field is null, never empty. With `rest`, a last column
/// [`crate::logs::REST`] (`Map<Utf8, Utf8>`, entries in name order, never null) holds all other fields of the row, but
/// neither `_time` nor `_stream` nor `_stream_id`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogRequest {
    /// Which rows are given; those that the caller may not see are left out besides.
    pub filter: LogFilter,
    /// The columns that are given, in this order.
    pub columns: Vec<LogColumn>,
    /// Whether to return all other fields as a map.
    pub rest: bool,
    /// The order of the rows.
    pub order: LogOrder,
    /// What the rows represent.
    pub form: LogForm,
}

impl LogColumn {
    /// Requests a field as text.
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), stored: false }
    }

    /// Requests a field in stored form.
    pub fn stored(name: impl Into<String>) -> Self {
        Self { name: name.into(), stored: true }
    }

    /// The column as the scan returns it.
    pub fn field(&self) -> Field {
        match self.name.as_str() {
            TIME => nanos(TIME),
            SEVERITY_NUMBER => Field::new(SEVERITY_NUMBER, DataType::UInt8, true),
            OBSERVED_TIME => nanos(OBSERVED_TIME).with_nullable(true),
            name if self.stored => Field::new(name, StoredField::data_type(), true),
            name => Field::new(name, DataType::Utf8View, true),
        }
    }
}

impl LogRequest {
    /// Asks how many rows have each field. Schema: [`FIELD_NAME`] (`Utf8`), [`ROW_COUNT`] (`UInt64`); a field comes as
    /// often as there are blocks with it. What footers tell is not read.
    pub fn field_counts(filter: LogFilter) -> Self {
        Self { filter, columns: Vec::new(), rest: false, order: LogOrder::Any, form: LogForm::FieldCounts }
    }

    /// Asks how many rows have each value of each field, `_time`, `_stream` and `_stream_id` too. Schema:
    /// [`ValueCounts::schema`]; a value comes as often as there are blocks with it. Fields beyond the limits are not
    /// read on.
    pub fn value_counts(filter: LogFilter, limits: ValueLimits) -> Self {
        let form = LogForm::ValueCounts(limits);
        Self { filter, columns: Vec::new(), rest: true, order: LogOrder::Any, form }
    }

    /// The schema of the scan.
    pub fn schema(&self) -> SchemaRef {
        let count = |nullable| Field::new(ROW_COUNT, DataType::UInt64, nullable);
        if let LogForm::ValueCounts(_) = self.form {
            return ValueCounts::schema();
        }
        if self.form == LogForm::FieldCounts {
            return Arc::new(Schema::new(vec![Field::new(FIELD_NAME, DataType::Utf8, false), count(false)]));
        }
        let mut fields: Vec<_> = self.columns.iter().map(LogColumn::field).collect();
        if self.rest {
            fields.push(Field::new(REST, map(), false));
        }
        if self.form == LogForm::Counted {
            fields.push(count(true));
        }
        Arc::new(Schema::new(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(request: &LogRequest) -> Vec<String> {
        let field = |field: &Arc<Field>| format!("{}{}", field.name(), if field.is_nullable() { "?" } else { "" });
        request.schema().fields().iter().map(field).collect()
    }

    #[test]
    fn schemas_of_scans() {
        let columns = vec![LogColumn::text("a"), LogColumn::stored("a"), LogColumn::stored(TIME)];
        let rows =
            LogRequest { filter: LogFilter::All, columns, rest: true, order: LogOrder::Any, form: LogForm::Rows };
        assert_eq!(shown(&rows), ["a?", "a?", "_time", "__q_rest"]);
        let kinds: Vec<DataType> = rows.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        let time = nanos(TIME).data_type().clone();
        assert_eq!(kinds, [DataType::Utf8View, StoredField::data_type(), time, map()]);
        let counted = LogRequest { form: LogForm::Counted, rest: false, ..rows.clone() };
        assert_eq!(shown(&counted), ["a?", "a?", "_time", "__q_rows?"]);
        assert_eq!(shown(&LogRequest { columns: Vec::new(), ..counted }), ["__q_rows?"]);
        // Of counted fields and values the columns are always the same.
        assert_eq!(shown(&LogRequest { form: LogForm::FieldCounts, ..rows.clone() }), ["__q_field", "__q_rows"]);
        assert_eq!(shown(&LogRequest::field_counts(LogFilter::All)), ["__q_field", "__q_rows"]);
        let limits = ValueLimits { values: 1, bytes: 1 };
        let values = LogRequest::value_counts(LogFilter::All, limits);
        assert_eq!(shown(&values), ["__q_field?", "__q_value?", "__q_rows?"]);
        assert_eq!(values.schema(), ValueCounts::schema());
    }

    #[test]
    fn columns_that_are_no_texts() {
        let kind = |name: &str| LogColumn::text(name).field().data_type().clone();
        assert_eq!(kind(SEVERITY_NUMBER), DataType::UInt8);
        assert_eq!((kind(OBSERVED_TIME), kind(TIME)), (nanos("x").data_type().clone(), kind(OBSERVED_TIME)));
        let nullable =
            [TIME, OBSERVED_TIME, SEVERITY_NUMBER, "b"].map(|name| LogColumn::text(name).field().is_nullable());
        assert_eq!(nullable, [false, true, true, true]);
    }
}
