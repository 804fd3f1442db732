//! Sizes of results before they are made: none may be less than what is made.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Int64Builder, IntervalMonthDayNanoArray, ListBuilder, StringArray, StringBuilder,
    StructArray, TimestampNanosecondArray,
};

use super::*;

fn texts_of(texts: &[Option<&str>]) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(StringViewArray::from(texts.to_vec())))
}

fn numbers_of(numbers: &[Option<i64>]) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(Int64Array::from(numbers.to_vec())))
}

fn text(text: &str) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::from(text))
}

fn bytes(growth: Growth, args: &[ColumnarValue], rows: usize) -> i128 {
    growth.bytes(args, rows).unwrap_or_else(|e| panic!("{growth:?}: {e}"))
}

/// Numbers that are the same in each run.
fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |end| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    }
}

#[test]
fn texts_that_are_repeated_or_filled_up() {
    let (words, counts) = (texts_of(&[Some("ab"), Some(""), None, Some("ä")]), [Some(3), Some(5), Some(7), Some(-2)]);
    assert_eq!(bytes(Growth::Times, &[words.clone(), numbers_of(&counts)], 4), 6);
    assert_eq!(bytes(Growth::Times, &[words.clone(), numbers_of(&[None; 4])], 4), 0);
    assert_eq!(bytes(Growth::Times, &[text("äb"), numbers_of(&[Some(2), Some(3)])], 2), 15);
    assert_eq!(bytes(Growth::Length, &[words.clone(), numbers_of(&counts)], 4), 15);
    // Far beyond 64 bits there is no number that wraps around.
    let most = numbers_of(&[Some(i64::MAX), Some(i64::MAX)]);
    assert_eq!(bytes(Growth::Times, &[text("xy"), most.clone()], 2), 4 * i128::from(i64::MAX));
    assert_eq!(bytes(Growth::Length, &[text("xy"), most], 2), 2 * i128::from(i64::MAX));
    // Numbers that are none say nothing.
    assert_eq!(bytes(Growth::Times, &[words.clone(), text("3")], 4), 0);
    assert_eq!(bytes(Growth::Length, &[words], 4), 0);
}

#[test]
fn series_of_numbers() {
    let series = |from: &[Option<i64>], to: &[Option<i64>], step: Option<&[Option<i64>]>| {
        let mut args = vec![numbers_of(from), numbers_of(to)];
        args.extend(step.map(numbers_of));
        bytes(Growth::Series, &args, from.len())
    };
    assert_eq!(series(&[Some(1), Some(5), None], &[Some(11), Some(1), Some(9)], None), 80);
    assert_eq!(series(&[Some(10)], &[Some(1)], Some(&[Some(-3)])), 24);
    assert_eq!(series(&[Some(1)], &[Some(10)], Some(&[Some(-3)])), 0);
    assert_eq!(series(&[Some(1)], &[Some(10)], Some(&[Some(0)])), 0);
    assert_eq!(series(&[Some(1)], &[Some(10)], Some(&[None])), 0);
    assert_eq!(series(&[Some(i64::MIN)], &[Some(i64::MAX)], None), 8 * i128::from(u64::MAX));
    assert_eq!(series(&[Some(i64::MIN)], &[Some(i64::MAX)], Some(&[Some(i64::MAX)])), 16);
    assert_eq!(bytes(Growth::Series, &[numbers_of(&[Some(7), Some(-7), None])], 3), 56);
    assert_eq!(bytes(Growth::Series, &[text("x"), text("y")], 1), 0);
}

#[test]
fn series_of_times() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let times = |hours: &[Option<i64>]| {
        let ns: Vec<Option<i64>> = hours.iter().map(|hours| hours.map(|hours| hours * HOUR_NS)).collect();
        ColumnarValue::Array(Arc::new(TimestampNanosecondArray::from(ns)))
    };
    let steps = |steps: &[Option<(i32, i32, i64)>]| {
        let of = |(months, days, ns)| IntervalMonthDayNano::new(months, days, ns);
        let steps: Vec<Option<IntervalMonthDayNano>> = steps.iter().map(|step| step.map(of)).collect();
        ColumnarValue::Array(Arc::new(IntervalMonthDayNanoArray::from(steps)))
    };
    let series = |from, to, step| bytes(Growth::Series, &[times(&[from]), times(&[to]), steps(&[step])], 1);
    assert_eq!(series(Some(0), Some(24), Some((0, 0, HOUR_NS))), 24 * 8);
    assert_eq!(series(Some(24), Some(0), Some((0, 0, -HOUR_NS))), 24 * 8);
    assert_eq!(series(Some(0), Some(48), Some((0, 1, 0))), 2 * 8);
    // A month is counted as the shortest, so that there are not fewer than said.
    assert_eq!(series(Some(0), Some(24 * 365), Some((1, 0, 0))), 13 * 8);
    // No step leads nowhere, as in PostgreSQL; one of less than a microsecond does not divide by nothing.
    let still = Growth::Series.bytes(&[times(&[Some(0)]), times(&[Some(1)]), steps(&[Some((0, 0, 0))])], 1);
    assert!(still.unwrap_err().to_string().contains("step size cannot equal zero"));
    assert_eq!(series(Some(0), Some(1), Some((0, 0, 5))), 8 * 3_600_000_000);
    assert_eq!(series(None, Some(1), Some((0, 1, 0))), 0);
    assert_eq!(series(Some(0), None, Some((0, 1, 0))), 0);
    assert_eq!(series(Some(0), Some(1), None), 0);
    // Days are times, too; without a step nobody knows.
    let day = |day| ColumnarValue::Array(Arc::new(Date32Array::from(vec![day])));
    assert_eq!(bytes(Growth::Series, &[day(0), day(10), steps(&[Some((0, 1, 0))])], 1), 80);
    assert_eq!(bytes(Growth::Series, &[times(&[Some(0)]), times(&[Some(1)])], 1), 0);
}

#[test]
fn what_is_put_for_another_text() {
    let replaced = |within: &[Option<&str>], from: &str, to: &str| {
        bytes(Growth::Replaced, &[texts_of(within), text(from), text(to)], within.len())
    };
    assert_eq!(replaced(&[Some("aaaa"), None], "bb", "b"), 0, "it becomes no longer");
    // An estimate will do while it is small, and it is never too small.
    let mut draw = draws(1);
    for _ in 0..500 {
        let mut word = |most: usize| (0..draw(most)).map(|_| ["a", "b", "ä"][draw(3)]).collect::<String>();
        let (within, from, to) = (word(12), word(4), word(8));
        let more = within.replace(&from, &to).len() as i128 - within.len() as i128;
        let said = replaced(&[Some(within.as_str())], &from, &to);
        assert!(said >= more, "{within} {from} {to}: {said} of {more}");
    }
    // Where it is not, the places are counted.
    let (long, many) = ("ab".repeat(1 << 20), "x".repeat(1001));
    let exactly = |from: &str| replaced(&[Some(long.as_str())], from, &many);
    assert_eq!(exactly("a"), (1 << 20) * 1000);
    assert_eq!(exactly("ab"), (1 << 20) * 999);
    assert_eq!(exactly("c"), 0);
    assert_eq!(bytes(Growth::Replaced, &[text("a"), text("b")], 1), 0, "without all of its arguments it fails anyway");
    let numbers = numbers_of(&[Some(1)]);
    assert_eq!(bytes(Growth::Replaced, &[numbers, text("a"), text("b")], 1), 0);
}

#[test]
fn what_patterns_find() {
    let matched = |within: &str, to: &str, options: Option<&str>| {
        let mut args = vec![texts_of(&[Some(within)]), text("a"), text(to)];
        args.extend(options.map(text));
        bytes(Growth::Matched, &args, 1)
    };
    assert_eq!(matched("aaaa", "xyz", None), 3);
    assert_eq!(matched("aaaa", "xyz", Some("i")), 3);
    assert_eq!(matched("aaaa", "xyz", Some("gi")), 15);
    assert!(matched("aaaa", "\\1\\1", Some("g")) >= 8, "each group may be all of the text");
    assert_eq!(bytes(Growth::Matched, &[texts_of(&[None]), text("a"), text("b")], 1), 0);
}

#[test]
fn pieces_of_texts() {
    let pieces = |within: &str, between: Option<&str>| {
        bytes(Growth::Pieces, &[texts_of(&[Some(within)]), texts_of(&[between])], 1)
    };
    let mut draw = draws(2);
    for _ in 0..300 {
        let within: String = (0..draw(20)).map(|_| ["a", ",", "ö"][draw(3)]).collect();
        let made = within.split(',').map(|piece| piece.len() as i128 + VIEW_BYTES).sum::<i128>();
        // An empty text is no list of pieces that takes any room worth a word.
        assert!(within.is_empty() || pieces(&within, Some(",")) + VIEW_BYTES >= made, "{within}");
    }
    let long = "x,".repeat(4 << 20);
    let (whole, each) = (i128::from(8 << 20), i128::from(4 << 20));
    assert_eq!(pieces(&long, Some(",")), whole + (each + 1) * VIEW_BYTES);
    assert_eq!(pieces(&long, Some("y")), whole + VIEW_BYTES);
    assert_eq!(pieces(&long, Some("")), whole + VIEW_BYTES);
    assert_eq!(pieces(&long, None), whole + whole * VIEW_BYTES, "letter by letter");
}

#[test]
fn texts_that_are_put_together() {
    let columns = [texts_of(&[Some("ab"), None]), text("äx"), texts_of(&[Some("c"), Some("")])];
    assert_eq!(bytes(Growth::Joined, &columns, 2), 2 + 2 * 3 + 1);
    assert_eq!(bytes(Growth::Separated, &columns, 2), (6 + 1) + 2 * 2);
    assert_eq!(bytes(Growth::Wider(3), &columns, 2), 6);
    assert_eq!(bytes(Growth::Formatted, &columns, 2), 6 * TIME_LETTERS);
    // What the longest of the columns has is there already.
    assert_eq!(Growth::Joined.input_bytes(&columns, 2).expect("bytes"), 2);
    assert_eq!(Growth::Times.input_bytes(&columns, 2).expect("bytes"), 0);
    let patterns = texts_of(&[Some("(a)(b)"), Some("c")]);
    let within = texts_of(&[Some("abcd"), Some("ab")]);
    assert_eq!(bytes(Growth::Groups, &[within.clone(), patterns], 2), 12);
    assert_eq!(bytes(Growth::Groups, &[within.clone(), text("c")], 2), 6);
    let compared = bytes(Growth::Compared, &[within.clone(), texts_of(&[Some("abcdefgh"), None])], 2);
    assert_eq!(compared, 32 / COMPARED_PER_BYTE + 8 * COMPARED_BYTES);
    assert_eq!(bytes(Growth::Alike, &[within], 2), 0);
}

/// Lists, also such as begin in the middle of their items.
#[test]
fn lists_count_by_their_own_items() {
    let mut builder = ListBuilder::new(StringBuilder::new());
    let all: [Option<&[&str]>; 4] = [Some(&["abc", "d"]), None, Some(&[]), Some(&["ef"])];
    for list in all {
        for item in list.unwrap_or_default() {
            builder.values().append_value(item);
        }
        builder.append(list.is_some());
    }
    let lists = builder.finish();
    assert_eq!(widths_of(&lists).expect("widths"), [ITEM_BYTES + 4, ITEM_BYTES, ITEM_BYTES, ITEM_BYTES + 2]);
    assert_eq!(widths_of(&lists.slice(2, 2)).expect("widths"), [ITEM_BYTES, ITEM_BYTES + 2]);
    assert_eq!((items(&lists), items(&lists.slice(3, 1)), items(&lists.slice(1, 2))), (3, 1, 0));
    let (all, last) = (bytes_of(&lists).expect("bytes"), bytes_of(&lists.slice(3, 1)).expect("bytes"));
    assert!(last < all && last >= 2, "{last} of {all}");
    let mut numbers = ListBuilder::new(Int64Builder::new());
    numbers.values().append_slice(&[1, 2, 3]);
    numbers.append(true);
    assert_eq!(bytes_of(&numbers.finish()).expect("bytes"), 24);
    // Items that are put in, as often as they may be found.
    let list = ColumnarValue::Array(Arc::new(lists));
    let said = |growth: Growth, args: &[ColumnarValue]| bytes(growth, args, 4);
    let own = 3 * all;
    assert_eq!(said(Growth::Spelled, &[list.clone(), text(", ")]), own + 3 * 2);
    assert_eq!(said(Growth::Spelled, &[list.clone(), text(","), text("NULL")]), own + 3 * 5);
    assert_eq!(
        said(Growth::Exchanged, &[list.clone(), text("d"), texts_of(&[Some("xyz"), None, None, None])]),
        own + 3 * 3
    );
    assert_eq!(said(Growth::Items, &[list, numbers_of(&[Some(2), Some(2), Some(-1), None])]), 2 * (12 + 8));
}

/// Breaks if the sets that items are looked up in are made without memory: they take ten times what the items do.
#[test]
fn items_that_are_looked_up_count_while_they_are() {
    let lists = |lists: &[&[i64]]| {
        let mut builder = ListBuilder::new(Int64Builder::new());
        for list in lists {
            builder.values().append_slice(list);
            builder.append(true);
        }
        ColumnarValue::Array(Arc::new(builder.finish()))
    };
    let each = ITEM_BYTES + ROW_BYTES;
    let two = lists(&[&[1, 2, 3], &[4]]);
    assert_eq!(bytes(Growth::Sets, std::slice::from_ref(&two), 2), 4 * each + 3 * SEEN_BYTES);
    let both = [two, lists(&[&[], &[5, 6]])];
    assert_eq!(bytes(Growth::Sets, &both, 2), 6 * each + (3 + 2) * SEEN_BYTES);
    // It is no result, of which a batch may have so much.
    assert_eq!(Growth::Sets.input_bytes(&both, 2).expect("bytes"), bytes(Growth::Sets, &both, 2));
    // A constant is written out for each row.
    let ColumnarValue::Array(one) = lists(&[&[1, 2]]) else { panic!("lists") };
    let constant = ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0).expect("a list"));
    assert_eq!(bytes(Growth::Sets, &[constant], 100), 200 * each + 2 * SEEN_BYTES);
}

#[test]
fn values_count_by_their_bytes() {
    let views = StringViewArray::from(vec![Some("short"), None, Some("a text that is longer than a view")]);
    assert_eq!(bytes_of(&views).expect("bytes"), 5 + 33);
    assert_eq!(bytes_of(&views.slice(0, 2)).expect("bytes"), 5);
    assert_eq!(widths_of(&views.slice(1, 2)).expect("widths"), [0, 33]);
    let numbers = Int64Array::from(vec![1, 2, 3]);
    assert_eq!(bytes_of(&numbers.slice(1, 2)).expect("bytes"), 16);
    assert_eq!(widths_of(&numbers).expect("widths"), [8, 8, 8]);
    assert_eq!(widths_of(&Date32Array::from(vec![1, 2])).expect("widths"), [8, 8], "none is less than an item");
    let a: ArrayRef = Arc::new(views);
    let b: ArrayRef = Arc::new(numbers);
    let parts = StructArray::try_from(vec![("a", a), ("b", b)]).expect("a struct");
    assert_eq!(bytes_of(&parts).expect("bytes"), 38 + 24);
    let plain = StringArray::from(vec![Some("ab"), Some("cde")]);
    assert_eq!(widths_of(&plain).expect("widths"), [2, 3]);
    assert_eq!(widths_of(&plain.slice(0, 0)).expect("widths"), Vec::<i128>::new());
}
