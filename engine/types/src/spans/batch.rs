//! A batch of spans as Arrow columns: the output of decoders, the content of WAL records, and the live form until the
//! flush.
//!
//! Spans refer to a *context* (service, resource, scope) by number, so what thousands of spans share is stored once.
//! There are no nulls and no dictionaries: an absent text is empty, an absent parent is zero, so columns can be written
//! as they are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Int64Type, UInt32Type};

use super::columns::{SpanColumn, all_columns, schema_of};
use super::schema::{context_schema, span_schema};

/// What a decoder gives and `Store::write_spans` takes.
#[derive(Debug, Clone)]
pub struct SpansBatch {
    /// Spans; `context` is a row of `contexts`.
    pub spans: RecordBatch,
    /// What spans share (service, resource, scope), each once; columns: [`context_schema`].
    pub contexts: RecordBatch,
}

impl Default for SpansBatch {
    fn default() -> Self {
        Self { spans: RecordBatch::new_empty(span_schema()), contexts: RecordBatch::new_empty(context_schema()) }
    }
}

impl SpansBatch {
    /// Checks that both parts have their columns and that every span refers to a context.
    pub fn is_sound(&self) -> bool {
        let contexts = self.contexts.num_rows() as u32;
        self.spans.schema().fields() == span_schema().fields()
            && self.contexts.schema().fields() == context_schema().fields()
            && self.spans["context"].as_primitive::<UInt32Type>().values().iter().all(|&c| c < contexts)
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.spans.num_rows()
    }

    /// Says whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives all spans as rows of [`all_columns`].
    pub fn flat(&self) -> RecordBatch {
        let columns = all_columns();
        let schema = schema_of(&columns);
        let arrays = columns.iter().map(|column| match column {
            SpanColumn::Own(name) => Arc::clone(&self.spans[*name]),
            SpanColumn::Context(name) => context_column(&self.contexts, name, &self.spans["context"]),
            _ => unreachable!("not among all columns"),
        });
        RecordBatch::try_new(schema, arrays.collect()).expect("columns of the schema's types")
    }

    /// Calls a function with service, start and end of each span.
    pub fn each(&self, mut f: impl FnMut(&str, i64, i64)) {
        let services = self.contexts["service"].as_string::<i32>();
        let contexts = self.spans["context"].as_primitive::<UInt32Type>().values();
        let times = |name: &str| self.spans[name].as_primitive::<Int64Type>().values();
        for ((&context, &start), &end) in contexts.iter().zip(times("start")).zip(times("end")) {
            f(services.value(context as usize), start, end);
        }
    }

    /// Bytes of what each span says, service, resource and scope with it. No other span of the batch changes them.
    pub fn span_bytes(&self) -> Vec<u64> {
        let contexts = row_bytes(&self.contexts);
        let references = self.spans["context"].as_primitive::<UInt32Type>().values();
        row_bytes(&self.spans).iter().zip(references).map(|(own, &context)| own + contexts[context as usize]).collect()
    }

    /// About how many bytes it takes.
    pub fn memory_bytes(&self) -> usize {
        // What comes out of the WAL is slices of a whole segment, so buffers are not counted as they were allocated.
        let slice = |c: &ArrayRef| c.to_data().get_slice_memory_size().unwrap_or(0);
        let of = |batch: &RecordBatch| batch.columns().iter().map(slice).sum::<usize>();
        of(&self.spans) + of(&self.contexts)
    }
}

/// Bytes of the values of each row.
fn row_bytes(rows: &RecordBatch) -> Vec<u64> {
    let width = |kind: &DataType| match kind {
        DataType::FixedSizeBinary(bytes) => u64::from(bytes.unsigned_abs()),
        other => other.primitive_width().unwrap_or(0) as u64,
    };
    let fixed: u64 = rows.columns().iter().map(|column| width(column.data_type())).sum();
    let mut all = vec![fixed; rows.num_rows()];
    for column in rows.columns() {
        let offsets = match column.data_type() {
            DataType::Utf8 => column.as_string::<i32>().offsets(),
            DataType::Binary => column.as_binary::<i32>().offsets(),
            _ => continue,
        };
        for (bytes, length) in all.iter_mut().zip(offsets.lengths()) {
            *bytes += length as u64;
        }
    }
    all
}

/// Gives a column of contexts, row by row of the spans that refer to them, as a view that shares its bytes.
///
/// # Panics
/// When `references` are none of `contexts`; whoever takes a batch checks it first.
pub fn context_column(contexts: &RecordBatch, name: &str, references: &ArrayRef) -> ArrayRef {
    let column = &contexts[name];
    let view: ArrayRef = match column.data_type() {
        DataType::Utf8 => Arc::new(StringViewArray::from(column.as_string::<i32>())),
        _ => Arc::new(BinaryViewArray::from(column.as_binary::<i32>())),
    };
    arrow::compute::take(&view, references, None).expect("references are checked when a batch is made")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::{ContextFields, SpanFields, SpansBuilder};

    /// Services and names of spans, each with a resource of its service's name.
    fn sizes(spans: &[(&str, &str)]) -> Vec<u64> {
        let mut builder = SpansBuilder::default();
        for &(service, name) in spans {
            let resource = service.as_bytes();
            let context = builder.context(&ContextFields { service, resource, ..Default::default() });
            builder.span(&SpanFields { context, name, ..Default::default() });
        }
        builder.finish().span_bytes()
    }

    #[test]
    fn spans_hold_what_is_their_own() {
        let own = sizes(&[("cart", "op")]);
        assert_eq!(sizes(&[("cart", "longer")])[0], own[0] + 4);
        assert_eq!(sizes(&[("carts", "op")])[0], own[0] + 2, "service and resource");
        let mixed = sizes(&[("a-long-one", "another"), ("cart", "op"), ("a-long-one", "op"), ("cart", "op")]);
        assert_eq!([mixed[1], mixed[3]], [own[0], own[0]]);
    }

    #[test]
    fn batches_that_are_not_sound() {
        let mut builder = SpansBuilder::default();
        let context = builder.context(&ContextFields { service: "cart", ..Default::default() });
        builder.span(&SpanFields { context, start: 3, end: 5, ..Default::default() });
        builder.span(&SpanFields { context, start: 4, end: 4, ..Default::default() });
        let batch = builder.finish();
        assert!(batch.is_sound() && SpansBatch::default().is_sound() && SpansBatch::default().is_empty());
        assert_eq!((batch.len(), batch.flat().num_rows(), batch.flat().num_columns()), (2, 2, 24));
        let empty = SpansBatch::default();
        // Spans of a context that is not there, other columns, the columns of one in the place of the other.
        assert!(!SpansBatch { spans: batch.spans.clone(), contexts: empty.contexts.clone() }.is_sound());
        let fewer = batch.spans.project(&[0, 1, 2, 3]).expect("columns");
        assert!(!SpansBatch { spans: fewer, contexts: batch.contexts.clone() }.is_sound());
        assert!(!SpansBatch { spans: batch.contexts.clone(), contexts: batch.spans.clone() }.is_sound());
        let mut seen = Vec::new();
        batch.each(|service, start, end| seen.push((service.to_owned(), start, end)));
        assert_eq!(seen, [("cart".to_owned(), 3, 5), ("cart".to_owned(), 4, 4)]);
    }

    #[test]
    fn slices_take_as_much_as_they_show() {
        let of = |names: &[&str]| {
            let mut builder = SpansBuilder::default();
            for &name in names {
                builder.span(&SpanFields { name, ..Default::default() });
            }
            builder.finish()
        };
        let whole = of(&["a", "b", "c", "d"]);
        let half = SpansBatch { spans: whole.spans.slice(0, 2), contexts: whole.contexts.clone() };
        assert!(half.memory_bytes() < whole.memory_bytes());
        assert_eq!(half.memory_bytes(), of(&["a", "b"]).memory_bytes());
    }
}
