//! Spans of groups: kept apart, given on as states, and looked at span by span.

use arrow::array::{AsArray as _, Int64Array, StringViewArray};
use arrow::datatypes::Int64Type;
use datafusion::logical_expr::ColumnarValue;

use super::super::testing::{call, draws};
use super::*;

/// Id, parent, kind, start, end; no id and no parent are empty.
type Row<'r> = (&'r str, &'r str, &'r str, i64, i64);

fn columns(rows: &[Row<'_>]) -> Vec<ArrayRef> {
    let texts = |of: &dyn Fn(&Row<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringViewArray>())
    };
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    vec![
        texts(&|row| some(row.0)),
        texts(&|row| some(row.1)),
        texts(&|row| some(row.2)),
        texts(&|_| Some("web".to_owned())),
        texts(&|row| some(row.0)),
        Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.4).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|_| Some(false)).collect::<BooleanArray>()),
        texts(&|_| None),
    ]
}

fn groups(outcome: Outcome) -> Groups {
    Groups { outcome, spans: Vec::new(), bytes: 0 }
}

/// How many spans each trace has, and how long it is.
fn shapes(array: &ArrayRef) -> Vec<(i64, i64)> {
    let part = |name: &str| array.as_struct().column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    part("spans").values().iter().copied().zip(part("duration").iter().map(Option::unwrap_or_default)).collect()
}

const ROWS: [Row<'static>; 5] = [
    ("01", "", "SERVER", 0, 10),
    ("11", "", "SERVER", 0, 7),
    ("02", "01", "CLIENT", 2, 5),
    ("21", "", "SERVER", 0, 3),
    ("12", "11", "CLIENT", 1, 2),
];
const OF: [usize; 5] = [0, 1, 0, 2, 1];

#[test]
fn groups_are_apart() {
    let rows = columns(&ROWS);
    let mut all = groups(Outcome::Shape);
    all.update_batch(&rows, &OF, None, 3).unwrap();
    let size = all.size();
    assert_eq!(shapes(&all.evaluate(EmitTo::First(1)).unwrap()), [(2, 10)]);
    assert!(all.size() < size, "what was given is no longer held");
    // What was the second group is the first one now.
    all.update_batch(&columns(&[("13", "11", "CLIENT", 3, 4)]), &[0], None, 2).unwrap();
    assert_eq!(shapes(&all.evaluate(EmitTo::All).unwrap()), [(3, 7), (1, 3)]);
    assert_eq!(all.bytes, 0);
    let some = BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(true)]);
    let mut kept = groups(Outcome::Shape);
    kept.update_batch(&rows, &OF, Some(&some), 4).unwrap();
    assert_eq!(shapes(&kept.evaluate(EmitTo::All).unwrap()), [(1, 10), (1, 1), (1, 3), (0, 0)]);
}

#[test]
fn states_give_what_all_rows_give() {
    let rows = columns(&ROWS);
    let expected = [(2, 10), (2, 7), (1, 3)];
    // As a state of each group, in two parts.
    let mut first = groups(Outcome::Shape);
    first.update_batch(&rows, &OF, None, 3).unwrap();
    let mut merged = groups(Outcome::Shape);
    for of in [vec![0], vec![1, 2]] {
        let states = first.state(EmitTo::First(of.len())).unwrap();
        merged.merge_batch(&states, &of, 3).unwrap();
    }
    assert_eq!(shapes(&merged.evaluate(EmitTo::All).unwrap()), expected);
    // As a state of each row, of which one is NULL.
    let each = groups(Outcome::Shape).convert_to_state(&rows, None).unwrap();
    merged.merge_batch(&each, &OF, 3).unwrap();
    let none: ArrayRef = Arc::new(LargeBinaryArray::from(vec![None::<&[u8]>]));
    merged.merge_batch(&[none], &[0], 3).unwrap();
    assert_eq!(shapes(&merged.evaluate(EmitTo::All).unwrap()), expected);
    let some = BooleanArray::from(vec![true, false, false, true, true]);
    let each = groups(Outcome::Shape).convert_to_state(&rows, Some(&some)).unwrap();
    assert_eq!((each[0].len(), each[0].null_count()), (5, 0));
    merged.merge_batch(&each, &OF, 3).unwrap();
    assert_eq!(shapes(&merged.evaluate(EmitTo::All).unwrap()), [(1, 10), (1, 1), (1, 3)]);
}

#[test]
fn packed_spans_say_the_same() {
    let given = |outcome: Outcome| {
        let mut all = groups(outcome);
        all.update_batch(&columns(&ROWS), &OF, None, 4).unwrap();
        all.evaluate(EmitTo::All).unwrap()
    };
    let packed = given(Outcome::Packed);
    for (aggregate, outcome) in [("span_tree", Outcome::Tree), ("critical_path", Outcome::Path)] {
        let function = unpacking(aggregate).unwrap();
        assert!(is_unpacking(function.name()) && !is_unpacking(aggregate));
        let found = call(&function, &[ColumnarValue::Array(Arc::clone(&packed))], 4).unwrap();
        assert_eq!(&found, &given(outcome), "{aggregate}");
        // Few at a time, and none of them.
        let few = call(&function, &[ColumnarValue::Array(packed.slice(1, 2))], 2).unwrap();
        assert_eq!(&few, &found.slice(1, 2), "{aggregate}");
        let none = call(&function, &[ColumnarValue::Scalar(ScalarValue::LargeBinary(None))], 1).unwrap();
        assert_eq!(none.as_list::<i32>().value_length(0), 0, "{aggregate}");
        let damaged = ColumnarValue::Scalar(ScalarValue::LargeBinary(Some(b"no spans".to_vec())));
        let refused = call(&function, &[damaged], 1).unwrap_err().to_string();
        assert!(refused.contains("a state of spans is cut off"), "{refused}");
    }
    assert!(unpacking("trace_shape").is_none());
}

/// Breaks if each span takes the room of its longest form, or groups take twice what they need.
#[test]
fn spans_take_little_more_than_their_texts() {
    let ids: Vec<String> = (1..=700).map(|n| format!("{n:016x}")).collect();
    let rows: Vec<Row<'_>> =
        ids.iter().map(|id| (id.as_str(), ids[0].as_str(), "SERVER", 1 << 60, (1 << 60) + 5_000_000)).collect();
    let mut all = groups(Outcome::Packed);
    all.update_batch(&columns(&rows), &[0; 700], None, 1).unwrap();
    // Of a span: ids, start, duration, kind and error, lengths, a service of 3 and a name of 16 bytes.
    let bytes = 700 * (8 + 8 + 8 + 4 + 1 + 3 + 3 + 16);
    assert_eq!(all.spans[0].len(), bytes);
    assert!(all.size() < bytes + bytes / 4 + 100, "{} for {bytes}", all.size());
    // Merged states take no more memory than the inputs.
    let states = all.state(EmitTo::All).unwrap();
    let mut merged = groups(Outcome::Packed);
    merged.merge_batch(&states, &[0], 1).unwrap();
    assert_eq!(merged.bytes, bytes);
}

#[test]
fn one_group_is_as_a_group_of_many() {
    let one = || TreeAccumulator(Groups { outcome: Outcome::Shape, spans: vec![Vec::new()], bytes: 0 });
    let of = |one: &mut TreeAccumulator| shapes(&one.evaluate().unwrap().to_array().unwrap());
    let mut whole = one();
    assert_eq!(of(&mut whole), [(0, 0)]);
    Accumulator::update_batch(&mut whole, &columns(&ROWS[..1])).unwrap();
    let mut rest = one();
    Accumulator::update_batch(&mut rest, &columns(&[ROWS[2], ("03", "02", "SERVER", 3, 4)])).unwrap();
    assert!(Accumulator::size(&rest) > Accumulator::size(&one()));
    let states: Vec<ArrayRef> =
        Accumulator::state(&mut rest).unwrap().iter().map(|state| state.to_array().unwrap()).collect();
    Accumulator::merge_batch(&mut whole, &states).unwrap();
    assert_eq!(of(&mut whole), [(3, 10)]);
    assert_eq!(of(&mut whole), [(3, 10)], "it stays");
    assert_eq!(of(&mut rest), [(0, 0)], "what was handed on is gone");
}

#[test]
fn other_columns_and_bytes_are_refused() {
    let mut all = groups(Outcome::Tree);
    let rows = columns(&ROWS);
    let refused = all.update_batch(&rows[..8], &OF, None, 3).unwrap_err().to_string();
    assert!(refused.contains("spans have nine columns here, not 8"), "{refused}");
    for (at, said) in [(0, "a text of a span"), (5, "a time of a span is no number"), (7, "an error is a truth value")]
    {
        let mut wrong = rows.clone();
        wrong[at] = Arc::new(arrow::array::NullArray::new(ROWS.len()));
        let refused = all.update_batch(&wrong, &OF, None, 3).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let refused = all.merge_batch(&rows[..1], &OF, 3).unwrap_err().to_string();
    assert!(refused.contains("a state of spans is no bytes"), "{refused}");
    let damaged: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([b"no spans"]));
    all.merge_batch(&[damaged], &[0], 1).unwrap();
    for outcome in [Outcome::Tree, Outcome::Shape, Outcome::Path] {
        let refused = outcome.of(&all.spans).unwrap_err().to_string();
        assert!(refused.contains("a state of spans is cut off"), "{refused}");
    }
}

/// Spans of many traces with parents that are there, or are not: what is said of each is what is found one by one.
#[test]
fn spans_are_what_is_found_one_by_one() {
    let mut draw = draws(111);
    for _ in 0..100 {
        let count = 1 + draw(12);
        let ids: Vec<String> = (1..=count).map(|n| format!("{n:016x}")).collect();
        // A parent comes before its children; none, and one that is nowhere.
        let above: Vec<Option<usize>> = (0..count).map(|at| Some(draw(at + 2)).filter(|above| *above < at)).collect();
        let lost: Vec<bool> = (0..count).map(|_| draw(3) == 0).collect();
        let times: Vec<(i64, i64)> = (0..count).map(|_| (draw(30) as i64, draw(40) as i64)).collect();
        let kinds: Vec<&str> = (0..count).map(|_| ["SERVER", "INTERNAL", "CLIENT"][draw(3)]).collect();
        let parent = |at: usize| match (above[at], lost[at]) {
            (Some(above), _) => ids[above].as_str(),
            (None, true) => "ffff",
            (None, false) => "",
        };
        let rows: Vec<Row<'_>> =
            (0..count).map(|at| (ids[at].as_str(), parent(at), kinds[at], times[at].0, times[at].1)).collect();
        let mut tree = groups(Outcome::Tree);
        tree.update_batch(&columns(&rows), &vec![0; count], None, 1).unwrap();
        let given = tree.evaluate(EmitTo::All).unwrap();
        let list = given.as_list::<i32>().value(0);
        let nodes = list.as_struct();
        assert_eq!(nodes.len(), count);
        let found = nodes.column_by_name("span_id").unwrap().as_string_view();
        for row in 0..count {
            let at = ids.iter().position(|id| id == found.value(row)).unwrap();
            let (start, end) = times[at];
            let children = || (0..count).filter(|child| above[*child] == Some(at)).map(|child| times[child]);
            let is_own = |ns: &i64| !children().any(|(from, to)| from <= *ns && *ns < to);
            let own = (start..end).filter(is_own).count() as i64;
            let self_time = nodes.column_by_name("self_time").unwrap().as_primitive::<Int64Type>().value(row);
            assert_eq!(self_time, own, "{} of {rows:?}", ids[at]);
            let is_entry = |at: usize| kinds[at] == "SERVER" || (kinds[at] == "INTERNAL" && parent(at).is_empty());
            let entry = std::iter::successors(Some(at), |at| above[*at]).find(|at| is_entry(*at));
            let entries = nodes.column_by_name("entry_id").unwrap().as_string_view();
            let said = entries.is_valid(row).then(|| entries.value(row));
            assert_eq!(said, entry.map(|at| ids[at].as_str()), "{} of {rows:?}", ids[at]);
            let present = nodes.column_by_name("parent_present").unwrap().as_boolean().value(row);
            assert_eq!(present, above[at].is_some(), "{} of {rows:?}", ids[at]);
        }
        let depth = (0..count).map(|at| std::iter::successors(Some(at), |at| above[*at]).count()).max();
        let mut shape = groups(Outcome::Shape);
        shape.update_batch(&columns(&rows), &vec![0; count], None, 1).unwrap();
        let shape = shape.evaluate(EmitTo::All).unwrap();
        let number = |name: &str| shape.as_struct().column_by_name(name).unwrap().as_primitive::<Int64Type>().value(0);
        assert_eq!(Some(number("depth") as usize), depth, "{rows:?}");
        let orphans = (0..count).filter(|at| above[*at].is_none() && lost[*at]).count();
        assert_eq!(number("orphans") as usize, orphans, "{rows:?}");
    }
}
