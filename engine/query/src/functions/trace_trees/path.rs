//! The critical path of a trace: spans whose own time delays the end of its root.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Builder, ListArray, StringViewBuilder, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::error::Result;
use quiver_types::spans::critical_path;

use super::fields::{filled, hex, number, text};
use super::rows::{Span, Tree};

/// What is said of a span on the path: `start_time` in ns since 1970, `critical_time` and `root_duration` in ns.
fn fields() -> Fields {
    Fields::from(vec![
        text("span_id"),
        text("kind"),
        text("service_name"),
        text("name"),
        text("mark"),
        text("root_service"),
        text("root_name"),
        number("start_time"),
        number("critical_time"),
        number("root_duration"),
    ])
}

pub(super) fn data_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields()), true)))
}

/// Computes the paths of some groups of spans; a group without a root has none.
pub(super) fn paths<B: AsRef<[u8]>>(groups: &[B]) -> Result<ArrayRef> {
    let mut texts: [StringViewBuilder; 7] = std::array::from_fn(|_| StringViewBuilder::new());
    let mut numbers: [Int64Builder; 3] = std::array::from_fn(|_| Int64Builder::new());
    let mut lengths = Vec::with_capacity(groups.len());
    for bytes in groups {
        let tree = Tree::of(bytes.as_ref())?;
        let spans: &[Span<'_>] = &tree.spans;
        let Some(root) = (0..spans.len()).find(|at| spans[*at].parent == 0 && tree.parents[*at].is_none()) else {
            lengths.push(0);
            continue;
        };
        let whole = spans[root].end.saturating_sub(spans[root].start);
        let mut times = vec![0_i64; spans.len()];
        for part in critical_path(root, |at| (spans[at].start, spans[at].end), &tree.children()) {
            times[part.span] = times[part.span].saturating_add(part.to.saturating_sub(part.from));
        }
        let on_path = spans.iter().zip(&times).filter(|(_, time)| **time > 0);
        lengths.push(on_path.clone().count());
        for (span, time) in on_path {
            texts[0].append_value(hex(span.id));
            texts[1].append_value(span.kind);
            texts[2].append_option(filled(span.service));
            texts[3].append_option(filled(span.name));
            texts[4].append_option(filled(span.mark));
            texts[5].append_option(filled(spans[root].service));
            texts[6].append_option(filled(spans[root].name));
            numbers[0].append_value(span.start);
            numbers[1].append_value(*time);
            numbers[2].append_value(whole);
        }
    }
    let texts = texts.map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let numbers = numbers.map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let nodes = StructArray::try_new(fields(), texts.into_iter().chain(numbers).collect(), None)?;
    let item = Arc::new(Field::new_list_field(DataType::Struct(fields()), true));
    Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(nodes), None)?))
}
