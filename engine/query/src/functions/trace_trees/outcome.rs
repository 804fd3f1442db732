//! The results of `span_tree` and `trace_shape` as columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Int64Builder, LargeBinaryArray, ListArray, ListBuilder, StringViewBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::error::Result;

use super::fields::{filled, hex, number, text, truth};
use super::path;
use super::rows::{Span, Tree};

/// Spans one by one, the trace as a whole, the spans that its end waits for, or the bytes that these are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Tree,
    Shape,
    Path,
    Packed,
}

/// What is said of a span. `self_time` in ns, `parent_end` in ns since 1970; `is_origin`: none of its children is in error;
/// `repeats`: spans with its parent and its mark, itself counted.
fn node_fields() -> Fields {
    Fields::from(vec![
        text("span_id"),
        text("kind"),
        truth("parent_present"),
        text("parent_service"),
        text("parent_kind"),
        number("parent_end"),
        truth("parent_error"),
        truth("is_origin"),
        number("self_time"),
        text("entry_id"),
        text("entry_kind"),
        text("entry_name"),
        number("repeats"),
    ])
}

/// What is said of a trace. `duration` in ns: of the root, else from the first start to the last end; times of databases and
/// of other calls are sums in ns; `orphans` are spans whose parent is not stored.
fn shape_fields() -> Fields {
    let services = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true)));
    Fields::from(vec![
        number("spans"),
        number("errors"),
        number("depth"),
        number("orphans"),
        truth("has_root"),
        text("root_service"),
        text("root_name"),
        text("root_kind"),
        number("duration"),
        number("database_time"),
        number("external_time"),
        Field::new("services", services, true),
    ])
}

impl Outcome {
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Tree => DataType::List(Arc::new(Field::new_list_field(DataType::Struct(node_fields()), true))),
            Self::Shape => DataType::Struct(shape_fields()),
            Self::Path => path::data_type(),
            Self::Packed => DataType::LargeBinary,
        }
    }

    /// Computes it for some groups of spans.
    pub(super) fn of<B: AsRef<[u8]>>(self, groups: &[B]) -> Result<ArrayRef> {
        match self {
            Self::Tree => trees(groups),
            Self::Shape => shapes(groups),
            Self::Path => path::paths(groups),
            Self::Packed => Ok(Arc::new(LargeBinaryArray::from_iter_values(groups.iter()))),
        }
    }
}

fn trees<B: AsRef<[u8]>>(groups: &[B]) -> Result<ArrayRef> {
    let mut texts: [StringViewBuilder; 7] = std::array::from_fn(|_| StringViewBuilder::new());
    let mut truths: [BooleanBuilder; 3] = std::array::from_fn(|_| BooleanBuilder::new());
    let mut numbers: [Int64Builder; 3] = std::array::from_fn(|_| Int64Builder::new());
    let mut lengths = Vec::with_capacity(groups.len());
    for bytes in groups {
        let tree = Tree::of(bytes.as_ref())?;
        let children = tree.children();
        let mut marks: HashMap<(Option<usize>, u64, &str), i64> = HashMap::new();
        let mark = |at: usize| (tree.parents[at], tree.spans[at].parent, tree.spans[at].mark);
        for at in (0..tree.spans.len()).filter(|at| !tree.spans[*at].mark.is_empty()) {
            *marks.entry(mark(at)).or_default() += 1;
        }
        lengths.push(tree.spans.len());
        for (at, span) in tree.spans.iter().enumerate() {
            let parent: Option<&Span<'_>> = tree.parents[at].map(|p| &tree.spans[p]);
            let entry = tree.entries[at].map(|e| &tree.spans[e]);
            texts[0].append_value(hex(span.id));
            texts[1].append_value(span.kind);
            texts[2].append_option(parent.and_then(|p| filled(p.service)));
            texts[3].append_option(parent.map(|p| p.kind));
            texts[4].append_option(entry.map(|e| hex(e.id)));
            texts[5].append_option(entry.map(|e| e.kind));
            texts[6].append_option(entry.and_then(|e| filled(e.name)));
            truths[0].append_value(parent.is_some());
            truths[1].append_option(parent.map(|p| p.is_error));
            truths[2].append_value(!children[at].iter().any(|c| tree.spans[*c].is_error));
            numbers[0].append_option(parent.map(|p| p.end));
            numbers[1].append_value(tree.self_time(at, &children[at]));
            numbers[2].append_option(marks.get(&mark(at)).copied());
        }
    }
    let [id, kind, parent_service, parent_kind, entry_id, entry_kind, entry_name] =
        texts.map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let [parent_present, parent_error, is_origin] = truths.map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let [parent_end, self_time, repeats] = numbers.map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let columns = vec![
        id,
        kind,
        parent_present,
        parent_service,
        parent_kind,
        parent_end,
        parent_error,
        is_origin,
        self_time,
        entry_id,
        entry_kind,
        entry_name,
        repeats,
    ];
    let nodes = StructArray::try_new(node_fields(), columns, None)?;
    let item = Arc::new(Field::new_list_field(DataType::Struct(node_fields()), true));
    Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(nodes), None)?))
}

fn shapes<B: AsRef<[u8]>>(groups: &[B]) -> Result<ArrayRef> {
    let mut numbers: [Int64Builder; 7] = std::array::from_fn(|_| Int64Builder::new());
    let mut texts: [StringViewBuilder; 3] = std::array::from_fn(|_| StringViewBuilder::new());
    let mut has_root = BooleanBuilder::new();
    let mut services = ListBuilder::new(StringViewBuilder::new());
    for bytes in groups {
        let tree = Tree::of(bytes.as_ref())?;
        let spans = &tree.spans;
        let root = spans.iter().enumerate().find(|(at, s)| s.parent == 0 && tree.parents[*at].is_none());
        let root = root.map(|(_, span)| span);
        let length = |s: &Span<'_>| s.end.saturating_sub(s.start);
        let whole = || {
            let (start, end) = (spans.iter().map(|s| s.start).min()?, spans.iter().map(|s| s.end).max()?);
            Some(end.saturating_sub(start))
        };
        let of_mark = |mark| spans.iter().filter(|s| s.mark == mark).map(length).fold(0_i64, i64::saturating_add);
        let orphans = (0..spans.len()).filter(|at| spans[*at].parent != 0 && tree.parents[*at].is_none()).count();
        numbers[0].append_value(spans.len() as i64);
        numbers[1].append_value(spans.iter().filter(|s| s.is_error).count() as i64);
        numbers[2].append_value(tree.depths.iter().copied().max().unwrap_or(0) as i64);
        numbers[3].append_value(orphans as i64);
        numbers[4].append_option(root.map(length).or_else(whole));
        numbers[5].append_value(of_mark("database"));
        numbers[6].append_value(of_mark("external"));
        has_root.append_value(root.is_some());
        texts[0].append_option(root.and_then(|r| filled(r.service)));
        texts[1].append_option(root.and_then(|r| filled(r.name)));
        texts[2].append_option(root.map(|r| r.kind));
        tree.services().into_iter().for_each(|name| services.values().append_value(name));
        services.append(true);
    }
    let [spans, errors, depth, orphans, duration, database, external] =
        numbers.map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let [root_service, root_name, root_kind] = texts.map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let columns = vec![
        spans,
        errors,
        depth,
        orphans,
        Arc::new(has_root.finish()) as ArrayRef,
        root_service,
        root_name,
        root_kind,
        duration,
        database,
        external,
        Arc::new(services.finish()) as ArrayRef,
    ];
    Ok(Arc::new(StructArray::try_new(shape_fields(), columns, None)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, BooleanArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;

    use super::super::rows::Columns;
    use super::*;

    /// Id, parent, kind, service, start, end, whether it failed, mark.
    type Row = (&'static str, &'static str, &'static str, &'static str, i64, i64, bool, &'static str);

    fn written(rows: &[Row]) -> Vec<u8> {
        let texts = |of: fn(&Row) -> &'static str| -> ArrayRef {
            Arc::new(rows.iter().map(|r| filled(of(r))).collect::<StringViewArray>())
        };
        let numbers = |of: fn(&Row) -> i64| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<Int64Array>()) };
        let columns = [
            texts(|r| r.0),
            texts(|r| r.1),
            texts(|r| r.2),
            texts(|r| r.3),
            texts(|r| r.3),
            numbers(|r| r.4),
            numbers(|r| r.5),
            Arc::new(rows.iter().map(|r| Some(r.6)).collect::<BooleanArray>()) as ArrayRef,
            texts(|r| r.7),
        ];
        let columns = Columns::of(&columns).unwrap();
        let mut out = Vec::new();
        (0..rows.len()).for_each(|row| columns.write(row, &mut out));
        out
    }

    const SHOP: &[Row] = &[
        ("0b", "0a", "CLIENT", "front", 10, 90, true, "external"),
        ("0a", "", "SERVER", "front", 0, 100, true, ""),
        ("0c", "0b", "SERVER", "cart", 20, 80, false, ""),
        ("0d", "0c", "CLIENT", "cart", 30, 50, true, "database"),
        ("0e", "0c", "CLIENT", "cart", 40, 60, false, "database"),
        ("0f", "ff", "INTERNAL", "cart", 200, 210, false, ""),
    ];

    #[test]
    fn shape_of_a_trace() {
        let array = Outcome::Shape.of(&[written(SHOP), Vec::new()]).unwrap();
        let shape = array.as_struct();
        let number = |name: &str| shape.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(0);
        let names = ["spans", "errors", "depth", "orphans", "duration", "database_time", "external_time"];
        assert_eq!(names.map(number), [6, 3, 4, 1, 100, 40, 80]);
        let root = shape.column_by_name("root_service").unwrap().as_string_view();
        assert_eq!((root.value(0), root.is_null(1)), ("front", true));
        let services = shape.column_by_name("services").unwrap().as_list::<i32>().value(0);
        assert_eq!(services.as_string_view().iter().flatten().collect::<Vec<_>>(), ["cart", "front"]);
    }

    #[test]
    fn spans_know_their_callers() {
        let array = Outcome::Tree.of(&[written(SHOP)]).unwrap();
        let list = array.as_list::<i32>().value(0);
        let nodes = list.as_struct();
        let row = |id: &str| {
            let ids = nodes.column_by_name("span_id").unwrap().as_string_view();
            (0..nodes.len()).find(|at| ids.value(*at) == format!("{id:0>16}")).unwrap()
        };
        let text = |name: &str, id: &str| {
            let texts = nodes.column_by_name(name).unwrap().as_string_view();
            texts.is_valid(row(id)).then(|| texts.value(row(id)).to_owned())
        };
        let number =
            |name: &str, id: &str| nodes.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(row(id));
        let truth = |name: &str, id: &str| nodes.column_by_name(name).unwrap().as_boolean().value(row(id));
        assert_eq!(text("parent_service", "0c").as_deref(), Some("front"));
        assert_eq!(text("parent_service", "0a"), None);
        assert_eq!(text("entry_name", "0d").as_deref(), Some("cart"));
        assert_eq!(text("entry_name", "0b").as_deref(), Some("front"));
        assert_eq!(text("entry_name", "0f"), None);
        assert_eq!(number("self_time", "0c"), 30, "children that overlap count once");
        assert_eq!((number("repeats", "0d"), number("self_time", "0a")), (2, 20));
        assert_eq!((truth("is_origin", "0d"), truth("is_origin", "0b"), truth("is_origin", "0a")), (true, true, false));
        assert!(!truth("parent_present", "0f"));
    }

    #[test]
    fn the_end_of_a_root_waits_for_its_path() {
        let path = |rows: &[Row]| {
            let array = Outcome::Path.of(&[Vec::new(), written(rows)]).unwrap();
            let list = array.as_list::<i32>().value(1);
            let nodes = list.as_struct();
            let ids = nodes.column_by_name("span_id").unwrap().as_string_view();
            let times = nodes.column_by_name("critical_time").unwrap().as_primitive::<Int64Type>();
            let whole = nodes.column_by_name("root_duration").unwrap().as_primitive::<Int64Type>();
            assert!(whole.iter().all(|ns| ns == Some(100)));
            ids.iter().flatten().zip(times.values()).map(|(id, ns)| (id[14..].to_owned(), *ns)).collect::<Vec<_>>()
        };
        let of = |all: &[(&str, i64)]| all.iter().map(|(id, ns)| ((*id).to_owned(), *ns)).collect::<Vec<_>>();
        // `0d` ends while `0e` runs, and counts until that one began; `0f` hangs on nothing.
        assert_eq!(path(SHOP), of(&[("0a", 20), ("0b", 20), ("0c", 30), ("0d", 10), ("0e", 20)]));
        // What begins before its parent or outlasts it counts as long as that one runs; the root ends without `04`.
        let skewed = path(&[
            ("01", "", "SERVER", "a", 0, 100, false, ""),
            ("02", "01", "CLIENT", "a", -50, 40, false, ""),
            ("03", "01", "CLIENT", "a", 60, 150, false, ""),
            ("05", "03", "SERVER", "b", 70, 140, false, ""),
            ("04", "01", "INTERNAL", "a", 120, 130, false, ""),
        ]);
        assert_eq!(skewed, of(&[("02", 40), ("01", 20), ("03", 10), ("05", 30)]));
        assert_eq!(path(&SHOP[5..]), of(&[]), "without a root there is no path");
    }

    /// Breaks if the duration of a span, or the sum over its children, overflows.
    #[test]
    fn spans_may_last_for_ever() {
        let rows: &[Row] = &[
            ("01", "", "SERVER", "a", i64::MIN, i64::MAX, false, "database"),
            ("02", "01", "CLIENT", "a", i64::MIN, i64::MAX, false, "database"),
            ("03", "02", "SERVER", "b", i64::MAX, i64::MIN, false, ""),
        ];
        let array = Outcome::Tree.of(&[written(rows)]).unwrap();
        let list = array.as_list::<i32>().value(0);
        let times = list.as_struct().column_by_name("self_time").unwrap();
        assert_eq!(times.as_primitive::<Int64Type>().values(), &[0, i64::MAX, 0]);
        let array = Outcome::Shape.of(&[written(rows)]).unwrap();
        let number = |name: &str| array.as_struct().column_by_name(name).unwrap().as_primitive::<Int64Type>().value(0);
        assert_eq!(["duration", "database_time"].map(number), [i64::MAX, i64::MAX]);
    }

    #[test]
    fn halves_reports_and_circles() {
        let shared = written(&[
            ("01", "", "CLIENT", "a", 0, 10, false, ""),
            ("01", "", "SERVER", "b", 2, 8, false, ""),
            ("02", "01", "INTERNAL", "b", 3, 4, false, ""),
            ("02", "01", "INTERNAL", "b", 3, 5, true, ""),
        ]);
        let tree = Tree::of(&shared).unwrap();
        assert_eq!((tree.spans.len(), tree.depths.clone()), (3, vec![1, 2, 3]));
        assert_eq!((tree.spans[2].end, tree.spans[2].is_error), (5, true));
        let circle = written(&[
            ("01", "02", "INTERNAL", "a", 0, 1, false, ""),
            ("02", "01", "INTERNAL", "a", 0, 1, false, ""),
            ("03", "03", "SERVER", "a", 0, 1, false, ""),
        ]);
        let tree = Tree::of(&circle).unwrap();
        assert_eq!(tree.depths, [2, 1, 1]);
        assert!(Tree::of(&circle[..circle.len() - 1]).is_err());
    }
}
