//! Columns of spans that depend on the configuration.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::array::{FixedSizeBinaryArray, StringViewBuilder, UInt8Array, UInt32Array};
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type};
use quiver_types::Result;
use quiver_types::detection::{BT_KIND, BT_NAME, Candidate, DetectionRule, PageRow};
use quiver_types::query_configuration::{PerformanceTargets, QueryConfiguration};
use quiver_types::spans::{SpanColumn, SpanRow, find_text, is_entry};

use super::column_access::{bytes, other_type};
use crate::tables::cells::texts;
use crate::tables::config_columns::Says;

/// The indexes of the stored columns that such a column reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    service: usize,
    name: usize,
    kind: usize,
    status: usize,
    duration: usize,
    attributes: usize,
    resource: usize,
    parent: usize,
    flags: usize,
}

impl Places {
    pub(super) fn new(at: &mut impl FnMut(SpanColumn) -> usize) -> Self {
        use SpanColumn::{Context, Own};
        Self {
            service: at(Context("service")),
            name: at(SpanColumn::Text("name")),
            kind: at(Own("kind")),
            status: at(Own("status")),
            duration: at(SpanColumn::Duration),
            attributes: at(Own("attributes")),
            resource: at(Context("resource")),
            parent: at(Own("parent_span_id")),
            flags: at(Own("flags")),
        }
    }
}

struct BatchColumns<'b> {
    services: StringViewArray,
    names: StringViewArray,
    kinds: &'b UInt8Array,
    statuses: &'b UInt8Array,
    durations: &'b Int64Array,
    attributes: Box<dyn Fn(usize) -> &'b [u8] + 'b>,
    resources: Box<dyn Fn(usize) -> &'b [u8] + 'b>,
    parents: &'b FixedSizeBinaryArray,
    flags: &'b UInt32Array,
}

impl<'b> BatchColumns<'b> {
    fn read(batch: &'b RecordBatch, at: &Places) -> Result<Self> {
        let small = |at: usize| batch.column(at).as_primitive_opt::<UInt8Type>().ok_or_else(|| other_type("a number"));
        let text = |at: usize| texts(batch.column(at)).ok_or_else(|| other_type("a text"));
        Ok(Self {
            services: text(at.service)?,
            names: text(at.name)?,
            kinds: small(at.kind)?,
            statuses: small(at.status)?,
            durations: batch.column(at.duration).as_primitive_opt::<Int64Type>().ok_or_else(|| other_type("a time"))?,
            attributes: bytes(batch.column(at.attributes))?,
            resources: bytes(batch.column(at.resource))?,
            parents: batch.column(at.parent).as_fixed_size_binary_opt().ok_or_else(|| other_type("an id"))?,
            flags: batch.column(at.flags).as_primitive_opt::<UInt32Type>().ok_or_else(|| other_type("a number"))?,
        })
    }

    fn row(&self, row: usize) -> SpanRow<'_> {
        let text = |texts: &'_ StringViewArray| texts.is_valid(row).then_some(row);
        SpanRow {
            service: text(&self.services).map_or("", |row| self.services.value(row)),
            name: text(&self.names).map_or("", |row| self.names.value(row)),
            kind: self.kinds.value(row),
            status: self.statuses.value(row),
            duration_ns: self.durations.value(row),
            attributes: (self.attributes)(row),
            resource: (self.resources)(row),
        }
    }

    fn is_entry(&self, row: usize) -> bool {
        let has_parent = self.parents.is_valid(row) && self.parents.value(row).iter().any(|b| *b != 0);
        is_entry(has_parent, self.kinds.value(row), self.flags.value(row))
    }

    /// The name that a rule gives a span; rules about pages apply to browser spans only.
    fn name_by(&self, rule: &DetectionRule, row: usize) -> Option<String> {
        let span = self.row(row);
        if rule.is_of_pages() {
            let page = PageRow::of(&span)?;
            return rule.name_of(&page.candidate(span.service));
        }
        rule.name_of(&Candidate { service: span.service, kind: "", is_entry: self.is_entry(row), fields: &span })
    }
}

/// The settings that judge a span: browser spans have their own.
fn judging<'c>(configured: &'c QueryConfiguration, span: &SpanRow<'_>) -> &'c PerformanceTargets {
    let of_page = find_text(span.attributes, BT_KIND).is_some() || PageRow::of(span).is_some();
    if of_page { &configured.pages } else { &configured.services }
}

/// Computes a column.
pub(super) fn column(says: &Says, at: &Places, batch: &RecordBatch) -> Result<ArrayRef> {
    let stored = BatchColumns::read(batch, at)?;
    let rows = 0..batch.num_rows();
    let threshold = |configured: &QueryConfiguration, row: usize| {
        let span = stored.row(row);
        let transaction = find_text(span.attributes, BT_NAME);
        let found = judging(configured, &span).threshold(span.service, Some(span.name), transaction.as_deref());
        (found.threshold_ms, i64::from(found.errors_frustrate))
    };
    Ok(match says {
        Says::ApdexT(configured) => {
            Arc::new(rows.map(|row| Some(threshold(configured, row).0)).collect::<Float64Array>())
        }
        Says::ErrorsFrustrate(configured) => {
            Arc::new(rows.map(|row| Some(threshold(configured, row).1)).collect::<Int64Array>())
        }
        Says::Key(configured) => {
            let mut out = StringViewBuilder::with_capacity(batch.num_rows());
            for row in rows {
                let span = stored.row(row);
                let transaction = find_text(span.attributes, BT_NAME);
                let key = transaction.and_then(|name| judging(configured, &span).key(span.service, &name));
                out.append_option(key.map(|key| key.id.as_str()));
            }
            Arc::new(out.finish())
        }
        Says::When(condition) => {
            let holds = |row: usize| {
                let span = stored.row(row);
                // Fields of pages have several names.
                let holds =
                    PageRow::of(&span).map_or_else(|| condition.matches(&span), |page| condition.matches(&page));
                Some(i64::from(holds))
            };
            Arc::new(rows.map(holds).collect::<Int64Array>())
        }
        Says::Name(rule) => {
            let mut out = StringViewBuilder::with_capacity(batch.num_rows());
            rows.for_each(|row| out.append_option(stored.name_by(rule, row)));
            Arc::new(out.finish())
        }
        Says::First(rules) => {
            let mut out = StringViewBuilder::with_capacity(batch.num_rows());
            for row in rows {
                let first = rules.iter().find(|rule| stored.name_by(rule, row).is_some());
                out.append_option(first.map(|rule| rule.id.as_str()));
            }
            Arc::new(out.finish())
        }
    })
}
