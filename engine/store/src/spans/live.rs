//! Live batches as rows of a scan. Data that spans share is tested once per context.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, FixedSizeBinaryArray, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::{filter, filter_record_batch};
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type};
use quiver_types::spans::{
    AttributeKind, AttributeTest, AttributeValues, Attributes, Place, RawAttribute, SpanColumn, TextTest, Value,
    code_each, context_column, events, links, schema_of,
};
use quiver_types::{ReadStats, SpansBatch};

use super::evaluation::{SpanSet, TextColumn, mask, passing};
use crate::error::{Context, Error, Result};

/// A batch with its columns resolved.
#[derive(Debug)]
pub(crate) struct LiveRows<'b> {
    batch: &'b SpansBatch,
    starts: &'b [i64],
    ends: &'b [i64],
    received: &'b [i64],
    kinds: &'b [u8],
    statuses: &'b [u8],
    contexts: &'b [u32],
}

impl<'b> LiveRows<'b> {
    pub(crate) fn new(batch: &'b SpansBatch) -> Self {
        let times = |name: &str| &**batch.spans[name].as_primitive::<Int64Type>().values();
        let contexts = batch.spans["context"].as_primitive::<UInt32Type>().values();
        let codes = |name: &str| &**batch.spans[name].as_primitive::<UInt8Type>().values();
        let (starts, ends, received) = (times("start"), times("end"), times("received"));
        Self { batch, starts, ends, received, kinds: codes("kind"), statuses: codes("status"), contexts }
    }

    /// Builds the result columns for the rows that are kept.
    pub(crate) fn project(&self, keep: &[bool], columns: &[SpanColumn], stats: &ReadStats) -> Result<RecordBatch> {
        let mask = mask(keep);
        let failed = "cannot filter live spans";
        let references = filter(&self.batch.spans["context"], &mask).internal(failed)?;
        let arrays = columns.iter().map(|column| -> Result<ArrayRef> {
            let (column, is_coded) = match column {
                SpanColumn::Coded(of) => (&**of, true),
                other => (other, false),
            };
            let array = match column {
                SpanColumn::Own(name) => filter(&self.batch.spans[*name], &mask).internal(failed)?,
                SpanColumn::Text(name) => {
                    let kept = filter(&self.batch.spans[*name], &mask).internal(failed)?;
                    Arc::new(StringViewArray::from(kept.as_string::<i32>()))
                }
                SpanColumn::Duration => {
                    let kept = (0..keep.len()).filter(|&i| keep[i]);
                    Arc::new(Int64Array::from_iter_values(kept.map(|i| self.ends[i].saturating_sub(self.starts[i]))))
                }
                SpanColumn::Context(name) => context_column(&self.batch.contexts, name, &references),
                SpanColumn::Attribute(place, key, kind) => self.attributes(column, *place, key, *kind, keep)?,
                SpanColumn::Passes(one) => filter(&passing(self, &one.filter, stats)?, &mask).internal(failed)?,
                SpanColumn::Coded(_) => return Err(Error::internal("texts by codes of texts by codes")),
            };
            // Rows in memory are not dictionary-encoded; encode them here, for consumers that group by equal texts.
            Ok(match array.as_string_view_opt() {
                Some(texts) if is_coded => Arc::new(code_each(texts)),
                _ => array,
            })
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        if columns.is_empty() {
            return filter_record_batch(&self.batch.spans.project(&[]).internal(failed)?, &mask).internal(failed);
        }
        RecordBatch::try_new(schema_of(columns), arrays).internal(failed)
    }

    fn attributes(
        &self,
        column: &SpanColumn,
        place: Place,
        key: &str,
        kind: AttributeKind,
        keep: &[bool],
    ) -> Result<ArrayRef> {
        let name = column.name();
        let mut out = AttributeValues::new(&name, kind);
        for i in (0..keep.len()).filter(|&i| keep[i]) {
            let bytes = match place {
                Place::Resource => self.context_bytes("resource", self.contexts[i] as usize),
                _ => self.batch.spans["attributes"].as_binary::<i32>().value(i),
            };
            out.push(Attributes::raw(bytes).find(|a| a.key == key.as_bytes()).and_then(RawAttribute::value))?;
        }
        Ok(out.finish())
    }

    fn context_bytes(&self, name: &str, context: usize) -> &'b [u8] {
        self.batch.contexts[name].as_binary::<i32>().value(context)
    }

    /// Clears `keep` for rows whose context fails the test.
    fn by_context(&self, keep: &mut [bool], test: impl Fn(usize) -> bool) {
        let verdicts: Vec<bool> = (0..self.batch.contexts.num_rows()).map(test).collect();
        for (i, keep) in keep.iter_mut().enumerate() {
            *keep &= verdicts[self.contexts[i] as usize];
        }
    }
}

fn any_match(bytes: &[u8], key: &str, test: &AttributeTest) -> bool {
    Attributes::read(bytes).any(|(k, value)| k == key && test.matches(value))
}

impl SpanSet for LiveRows<'_> {
    fn len(&self) -> usize {
        self.starts.len()
    }

    fn traces(&self) -> Option<&FixedSizeBinaryArray> {
        self.batch.spans["trace_id"].as_fixed_size_binary_opt()
    }

    fn times(&self, row: usize) -> (i64, i64) {
        (self.starts[row], self.ends[row])
    }

    fn duration(&self, row: usize) -> i64 {
        self.ends[row] - self.starts[row]
    }

    fn received(&self, row: usize) -> i64 {
        self.received[row]
    }

    fn kind(&self, row: usize) -> u8 {
        self.kinds[row]
    }

    fn status(&self, row: usize) -> u8 {
        self.statuses[row]
    }

    fn is_root(&self, row: usize) -> bool {
        self.batch.spans["parent_span_id"].as_fixed_size_binary().value(row) == [0; 8]
    }

    fn event_name(&self, row: usize, test: &TextTest) -> bool {
        events(self.batch.spans["events"].as_binary::<i32>().value(row)).any(|e| test.matches(e.name))
    }

    fn text(&self, which: TextColumn, keep: &mut [bool], test: &dyn Fn(&str) -> bool) {
        let of_context = |name: &str, keep: &mut [bool]| {
            let texts = self.batch.contexts[name].as_string::<i32>();
            self.by_context(keep, |c| test(texts.value(c)));
        };
        match which {
            TextColumn::Service => of_context("service", keep),
            TextColumn::ScopeName => of_context("scope_name", keep),
            TextColumn::ScopeVersion => of_context("scope_version", keep),
            TextColumn::Name | TextColumn::Message => {
                let name = if which == TextColumn::Name { "name" } else { "status_message" };
                let texts = self.batch.spans[name].as_string::<i32>();
                for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
                    *keep = test(texts.value(i));
                }
            }
        }
    }

    fn attribute(&self, place: Place, key: &str, test: &AttributeTest, keep: &mut [bool]) {
        let column = match place {
            Place::Resource if key == "service.name" => {
                let is = |text: &str| !text.is_empty() && test.matches(Value::Text(text));
                return self.text(TextColumn::Service, keep, &is);
            }
            Place::Resource => {
                return self.by_context(keep, |c| any_match(self.context_bytes("resource", c), key, test));
            }
            Place::Scope => {
                return self.by_context(keep, |c| any_match(self.context_bytes("scope_attributes", c), key, test));
            }
            Place::Span => "attributes",
            Place::Event => "events",
            Place::Link => "links",
        };
        let bytes = self.batch.spans[column].as_binary::<i32>();
        for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
            let bytes = bytes.value(i);
            *keep = match place {
                Place::Event => events(bytes).any(|e| any_match(e.attributes, key, test)),
                Place::Link => links(bytes).any(|l| any_match(l.attributes, key, test)),
                _ => any_match(bytes, key, test),
            };
        }
    }
}
