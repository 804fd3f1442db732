//! Functions over columns of all kinds: whole, in parts, merged from partial states, as one group and as several.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, LargeBinaryArray, MapBuilder, StringArray, StringBuilder,
    StringViewArray, UInt32Array,
};
use arrow::datatypes::UInt32Type;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::kernels::columns::NumberRule;

/// Rows as lists of fields.
type Rows<'a> = &'a [&'a [(&'a str, &'a str)]];

/// How columns are held.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    View,
    Dictionary,
    Rest,
}

fn arrays(rows: Rows<'_>, args: &[Arg], form: Form) -> Vec<ArrayRef> {
    let value = |row: &[(&str, &str)], name: &str| {
        row.iter().find(|f| f.0 == name).map(|f| f.1.to_owned()).filter(|v| !v.is_empty())
    };
    let named: Vec<&str> = args
        .iter()
        .filter_map(|a| if let Arg::Field(name) | Arg::Matched(name) = a { Some(name.as_str()) } else { None })
        .collect();
    args.iter()
        .map(|arg| -> ArrayRef {
            match arg {
                Arg::Field(name) | Arg::Matched(name) if form == Form::Dictionary => {
                    let values: Vec<Option<String>> = rows.iter().map(|row| value(row, name)).collect();
                    Arc::new(values.iter().map(Option::as_deref).collect::<DictionaryArray<UInt32Type>>())
                }
                Arg::Field(name) | Arg::Matched(name) => {
                    Arc::new(rows.iter().map(|row| value(row, name)).collect::<StringViewArray>())
                }
                Arg::Rest(_) => {
                    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
                    for row in rows {
                        let mut fields: Vec<_> =
                            row.iter().filter(|f| !named.contains(&f.0) && !f.1.is_empty()).collect();
                        fields.sort();
                        for (name, value) in fields {
                            map.keys().append_value(name);
                            map.values().append_value(value);
                        }
                        map.append(true).unwrap();
                    }
                    Arc::new(map.finish())
                }
            }
        })
        .collect()
}

fn texts(array: &ArrayRef) -> Vec<String> {
    array.as_string_view().iter().map(|v| v.unwrap_or("").to_owned()).collect()
}

/// Runs a function over rows in batches of a size, each batch in an accumulator of its own when `partial`.
fn run(
    function: &Function,
    args: &[Arg],
    rows: Rows<'_>,
    groups: &[usize],
    form: Form,
    size: usize,
    partial: bool,
) -> Vec<String> {
    let total = groups.iter().max().map_or(1, |g| g + 1);
    let begin = || StatsAccumulator::new(function.clone(), args.into());
    let mut last = begin();
    let mut own = begin();
    for (rows, groups) in rows.chunks(size).zip(groups.chunks(size)) {
        let mut columns = arrays(rows, args, form);
        if columns.is_empty() {
            columns.push(Arc::new(UInt32Array::from(vec![1; rows.len()])));
        }
        GroupsAccumulator::update_batch(&mut own, &columns, groups, None, total).unwrap();
        if partial {
            let states = GroupsAccumulator::state(&mut own, EmitTo::All).unwrap();
            let types: Vec<_> = states.iter().map(|s| s.data_type().clone()).collect();
            assert_eq!(types, function.state_types());
            let groups: Vec<usize> = (0..total).collect();
            GroupsAccumulator::merge_batch(&mut last, &states, &groups, total).unwrap();
            own = begin();
        }
    }
    let mut done = if partial { last } else { own };
    assert!(GroupsAccumulator::size(&done) > 0);
    // The first group goes out alone: those after it must keep their places.
    let mut all = texts(&GroupsAccumulator::evaluate(&mut done, EmitTo::First(1)).unwrap());
    all.extend(texts(&GroupsAccumulator::evaluate(&mut done, EmitTo::All).unwrap()));
    all
}

fn fields(names: &[&str]) -> Vec<Arg> {
    names.iter().map(|name| Arg::Field((*name).to_owned())).collect()
}

fn rest() -> Vec<Arg> {
    vec![Arg::Rest(vec![NamePattern::Prefix(String::new())])]
}

/// Checks a function over all forms and ways of running it.
fn check(function: Function, args: Vec<Arg>, rows: Rows<'_>, groups: &[usize], want: &[&str]) {
    let has_rest = args.iter().any(|a| matches!(a, Arg::Rest(_)));
    for form in [Form::View, Form::Dictionary, Form::Rest] {
        if (form == Form::Rest) != has_rest {
            continue;
        }
        for size in [1, 2, 100] {
            for partial in [false, true] {
                let got = run(&function, &args, rows, groups, form, size, partial);
                assert_eq!(got, want, "{function:?} {args:?} in {size}, partial {partial}");
            }
        }
    }
}

const THREE: Rows<'_> =
    &[&[("_msg", "abc"), ("a", "2"), ("b", "3")], &[("_msg", "def"), ("a", "1")], &[("a", "3"), ("b", "54")]];

#[test]
fn counts() {
    let one = [0, 0, 0];
    check(Function::CountRows, vec![], THREE, &one, &["3"]);
    check(Function::CountRows, vec![], THREE, &[0, 1, 0], &["2", "1"]);
    check(Function::Count, fields(&["b"]), THREE, &one, &["2"]);
    check(Function::Count, fields(&["x", "_msg", "b"]), THREE, &one, &["3"]);
    check(Function::Count, rest(), THREE, &one, &["3"]);
    check(Function::CountEmpty, fields(&["b"]), THREE, &one, &["1"]);
    check(Function::CountEmpty, fields(&["x"]), THREE, &one, &["3"]);
    check(Function::rate(Some(10.0)), vec![], THREE, &one, &["0.3"]);
    check(Function::rate(None), vec![], THREE, &one, &["3"]);
    let rows: Rows<'_> = &[&[("a", "1")], &[("a", "1")], &[], &[("b", "1")], &[("a", "1"), ("b", "1")]];
    for limit in [None, Some(2), Some(1)] {
        let want = if limit.is_none() {
            "3"
        } else if limit == Some(2) {
            "2"
        } else {
            "1"
        };
        check(Function::CountUniq { limit }, fields(&["a", "b"]), rows, &[0; 5], &[want]);
        check(Function::CountUniqHash { limit }, fields(&["a", "b"]), rows, &[0; 5], &[want]);
    }
    check(Function::CountUniq { limit: None }, fields(&["a"]), rows, &[0; 5], &["1"]);
    check(Function::CountUniq { limit: None }, fields(&["x"]), rows, &[0; 5], &["0"]);
    check(Function::SumLen, fields(&["a", "b"]), THREE, &one, &["6"]);
    check(Function::SumLen, rest(), THREE, &one, &["12"]);
}

#[test]
fn numbers() {
    let one = [0, 0, 0];
    let units = NumberRule::Units;
    check(Function::Sum(units), fields(&["a", "b"]), THREE, &one, &["63"]);
    check(Function::Sum(units), fields(&["x"]), THREE, &one, &["NaN"]);
    check(Function::Sum(units), rest(), THREE, &[0, 1, 0], &["62", "1"]);
    check(Function::Avg(units), rest(), THREE, &one, &["12.6"]);
    check(Function::Avg(units), fields(&["b"]), THREE, &one, &["28.5"]);
    check(Function::Avg(units), fields(&["x"]), THREE, &one, &["NaN"]);
    check(Function::Stddev(units), fields(&["b"]), THREE, &one, &["25.5"]);
    check(Function::Stddev(units), fields(&["x"]), THREE, &one, &["NaN"]);
    check(Function::rate_sum(units, Some(10.0)), fields(&["b"]), THREE, &one, &["5.7"]);
    check(Function::rate_sum(units, None), fields(&["x"]), THREE, &one, &["NaN"]);
    let mixed: Rows<'_> = &[&[("a", "1ms")], &[("a", "2KB")], &[("a", "foo")]];
    check(Function::Sum(units), fields(&["a"]), mixed, &one, &["1002000"]);
    check(Function::Sum(NumberRule::Plain), fields(&["a"]), mixed, &one, &["NaN"]);
    let histogram = r#"[{"vmrange":"1.896e+00...2.154e+00","hits":2},{"vmrange":"2.783e+00...3.162e+00","hits":1}]"#;
    let rows: Rows<'_> = &[&[("a", "2")], &[("a", "1.9")], &[("a", "3.05")], &[("a", "-1")], &[("a", "x")]];
    check(Function::Histogram, fields(&["a"]), rows, &[0; 5], &[histogram]);
    check(Function::Histogram, fields(&["x"]), rows, &[0; 5], &["[]"]);
}

#[test]
fn ordered() {
    let one = [0, 0, 0];
    check(Function::Min, fields(&["a"]), THREE, &one, &["1"]);
    check(Function::Min, rest(), THREE, &one, &["1"]);
    check(Function::Max, rest(), THREE, &one, &["def"]);
    check(Function::Max, fields(&["a", "b"]), THREE, &[0, 1, 1], &["3", "54"]);
    check(Function::Max, fields(&["x"]), THREE, &one, &[""]);
    let median = || Function::quantile(0.5);
    check(median(), fields(&["a"]), THREE, &one, &["2"]);
    check(median(), fields(&["b"]), THREE, &one, &["3"]);
    check(median(), rest(), THREE, &one, &["3"]);
    check(Function::quantile(0.9), rest(), THREE, &one, &["def"]);
    check(Function::quantile(0.9), fields(&["x"]), THREE, &one, &[""]);
    check(Function::quantile(0.0), fields(&["a"]), THREE, &one, &["1"]);
    check(Function::quantile(1.0), fields(&["a"]), THREE, &one, &["3"]);
    check(Function::UniqValues { limit: None }, rest(), THREE, &one, &[r#"["1","2","3","54","abc","def"]"#]);
    check(Function::UniqValues { limit: None }, fields(&["b"]), THREE, &[0, 1, 0], &[r#"["3","54"]"#, "[]"]);
    check(Function::Values { limit: None }, fields(&["b"]), THREE, &one, &[r#"["3","","54"]"#]);
    check(Function::Values { limit: Some(2) }, fields(&["a"]), THREE, &one, &[r#"["2","1"]"#]);
}

#[test]
fn rows_of_groups() {
    let one = [0, 0, 0];
    let first_then_rest = |name: &str, sort: bool| {
        let mut args = rest();
        args.insert(usize::from(sort), Arg::Field(name.to_owned()));
        args
    };
    check(Function::RowAny, fields(&["b", "a"]), &THREE[..1], &[0], &[r#"{"a":"2","b":"3"}"#]);
    check(Function::RowAny, fields(&["x"]), &THREE[..1], &[0], &["{}"]);
    check(Function::RowMax, fields(&["b", "a"]), THREE, &one, &[r#"{"a":"3"}"#]);
    check(Function::RowMax, fields(&["b", "a", "x", "b"]), THREE, &one, &[r#"{"a":"3","b":"54"}"#]);
    check(Function::RowMin, fields(&["x", "a"]), THREE, &one, &["{}"]);
    let mut args = fields(&["a", "a"]);
    args.extend(rest());
    check(Function::RowMin, args, THREE, &one, &[r#"{"_msg":"def","a":"1"}"#]);
    check(Function::FieldMax, fields(&["b", "a"]), THREE, &one, &["3"]);
    check(Function::FieldMin, fields(&["b", "a"]), THREE, &[0, 0, 1], &["2", "3"]);
    check(Function::Any, fields(&["x", "b"]), &THREE[1..], &[0, 0], &["54"]);
    check(Function::Any, fields(&["x"]), THREE, &one, &[""]);
    let objects = r#"[{"_msg":"def","a":"1"},{"_msg":"abc","a":"2"},{"a":"3"}]"#;
    check(
        Function::JsonValues { sort: vec![false], limit: None },
        fields(&["a", "_msg", "a"]),
        THREE,
        &one,
        &[objects],
    );
    let last = r#"[{"a":"3"}]"#;
    check(Function::JsonValues { sort: vec![true], limit: Some(1) }, fields(&["a", "a"]), THREE, &one, &[last]);
    check(Function::JsonValues { sort: vec![], limit: None }, fields(&["a"]), &THREE[..1], &[0], &[r#"[{"a":"2"}]"#]);
    check(
        Function::JsonValues { sort: vec![false], limit: None },
        first_then_rest("b", true),
        &THREE[..1],
        &[0],
        &[r#"[{"_msg":"abc","a":"2"}]"#],
    );
}

#[test]
fn filters_and_conversion() {
    let args: Vec<Arg> = fields(&["a"]);
    let columns = arrays(THREE, &args, Form::View);
    let filter = BooleanArray::from(vec![Some(true), None, Some(false)]);
    let mut sum = StatsAccumulator::new(Function::Sum(NumberRule::Units), args.clone().into());
    GroupsAccumulator::update_batch(&mut sum, &columns, &[0, 1, 1], Some(&filter), 2).unwrap();
    assert_eq!(texts(&GroupsAccumulator::evaluate(&mut sum, EmitTo::All).unwrap()), ["2", "NaN"]);
    let states = sum.convert_to_state(&columns, None).unwrap();
    let mut last = StatsAccumulator::new(Function::Sum(NumberRule::Units), args.clone().into());
    GroupsAccumulator::merge_batch(&mut last, &states, &[0, 0, 0], 1).unwrap();
    assert_eq!(texts(&GroupsAccumulator::evaluate(&mut last, EmitTo::All).unwrap()), ["6"]);
    // As a plain accumulator, with and without rows.
    let mut plain = StatsAccumulator::new(Function::Max, args.clone().into());
    Accumulator::update_batch(&mut plain, &columns).unwrap();
    let state = Accumulator::state(&mut plain).unwrap();
    let state: Vec<ArrayRef> = state.iter().map(|s| s.to_array().unwrap()).collect();
    let mut last = StatsAccumulator::new(Function::Max, args.clone().into());
    Accumulator::merge_batch(&mut last, &state).unwrap();
    assert_eq!(Accumulator::evaluate(&mut last).unwrap().to_string(), "3");
    let mut none = StatsAccumulator::new(Function::CountRows, [].into());
    assert_eq!(Accumulator::evaluate(&mut none).unwrap().to_string(), "0");
    // A column that holds no texts is refused, not misread.
    let wrong: ArrayRef = Arc::new(UInt32Array::from(vec![1]));
    let mut sum = StatsAccumulator::new(Function::Max, args.into());
    assert!(Accumulator::update_batch(&mut sum, &[wrong]).is_err());
}

#[test]
fn samples_of_large_groups() {
    let args: Arc<[Arg]> = fields(&["a"]).into();
    let batch = |range: std::ops::Range<u32>| -> Vec<ArrayRef> {
        vec![Arc::new(StringArray::from(range.map(|i| i.to_string()).collect::<Vec<_>>()))]
    };
    let quantile = |phi: f64| StatsAccumulator::new(Function::quantile(phi), Arc::clone(&args));
    for (phi, least, most) in [(0.5, 23_000, 27_000), (0.0, 0, 0), (1.0, 49_999, 49_999)] {
        let (mut one, mut two, mut last) = (quantile(phi), quantile(phi), quantile(phi));
        Accumulator::update_batch(&mut one, &batch(0..40_000)).unwrap();
        Accumulator::update_batch(&mut two, &batch(40_000..50_000)).unwrap();
        for part in [&mut one, &mut two] {
            let state = Accumulator::state(part).unwrap();
            let state: Vec<ArrayRef> = state.iter().map(|s| s.to_array().unwrap()).collect();
            Accumulator::merge_batch(&mut last, &state).unwrap();
        }
        assert!(Accumulator::size(&last) < 2_000_000);
        let got: u32 = Accumulator::evaluate(&mut last).unwrap().to_string().parse().unwrap();
        assert!((least..=most).contains(&got), "{phi}: {got}");
    }
}

/// A state whose text becomes longer and shorter by turns, or that is cut again and again, takes what it keeps: without that
/// a group of very many rows is refused for its memory.
#[test]
fn memory_follows_what_is_kept_and_not_the_rows() {
    let args: Arc<[Arg]> = fields(&["a", "b"]).into();
    // Each row is the greatest so far, and every other one is long.
    let text = |i: usize| format!("k{i}{}", "x".repeat(if i.is_multiple_of(2) { 10 } else { 1000 }));
    let batch = |from: usize| -> Vec<ArrayRef> {
        let texts: Vec<String> = (from..from + 1000).map(text).collect();
        vec![Arc::new(StringArray::from(texts)), Arc::new(StringArray::from(vec!["0"; 1000]))]
    };
    let last = text(7999);
    for (function, result) in [
        (Function::Max, last.clone()),
        (Function::RowMax, r#"{"b":"0"}"#.to_owned()),
        (Function::FieldMax, "0".to_owned()),
        (Function::JsonValues { sort: vec![true], limit: Some(1) }, format!(r#"[{{"a":"{}"}}]"#, text(0))),
    ] {
        let mut whole = StatsAccumulator::new(function.clone(), Arc::clone(&args));
        for from in (0..8000).step_by(1000) {
            Accumulator::update_batch(&mut whole, &batch(from)).unwrap();
        }
        let bytes = Accumulator::size(&whole);
        assert!(bytes < 4_000_000, "{function:?} takes {bytes}");
        assert_eq!(Accumulator::evaluate(&mut whole).unwrap().to_string(), result, "{function:?}");
    }
}

#[test]
fn memory_of_joined_samples_is_that_of_one() {
    let args: Arc<[Arg]> = fields(&["a"]).into();
    let median = || StatsAccumulator::new(Function::quantile(0.5), Arc::clone(&args));
    let mut one = median();
    let values: Vec<String> = (0..10_000).map(|i| i.to_string()).collect();
    Accumulator::update_batch(&mut one, &[Arc::new(StringArray::from(values)) as ArrayRef]).unwrap();
    let state = Accumulator::state(&mut one).unwrap();
    let state: Vec<ArrayRef> = state.iter().map(|s| s.to_array().unwrap()).collect();
    let mut all = median();
    for _ in 0..4 {
        Accumulator::merge_batch(&mut all, &state).unwrap();
    }
    let bytes = Accumulator::size(&all);
    assert!(bytes < 2_000_000, "{bytes}");
}

#[test]
fn limits_and_places_at_their_ends() {
    let one = [0, 0, 0];
    // None is no limit.
    check(Function::CountUniq { limit: Some(0) }, fields(&["a"]), THREE, &one, &["3"]);
    check(Function::Values { limit: Some(0) }, fields(&["a"]), THREE, &one, &[r#"["2","1","3"]"#]);
    check(Function::UniqValues { limit: Some(9) }, fields(&["a"]), THREE, &one, &[r#"["1","2","3"]"#]);
    check(
        Function::JsonValues { sort: vec![], limit: Some(0) },
        fields(&["b"]),
        THREE,
        &one,
        &[r#"[{"b":"3"},{},{"b":"54"}]"#],
    );
    for (phi, want) in [(-1.0, "1"), (0.34, "2"), (0.67, "3"), (0.999, "3"), (2.0, "3")] {
        check(Function::quantile(phi), fields(&["a"]), THREE, &one, &[want]);
    }
    // A row without a field that is named has the least value of all.
    check(Function::quantile(0.34), fields(&["b"]), THREE, &one, &["3"]);
    check(Function::quantile(0.33), fields(&["b"]), THREE, &one, &[""]);
    check(Function::quantile(0.0), fields(&["b"]), THREE, &one, &[""]);
    check(Function::Min, fields(&["b"]), THREE, &one, &[""]);
    for seconds in [0.0, -1.0, f64::NAN] {
        check(Function::rate(Some(seconds)), vec![], THREE, &one, &["3"]);
    }
    let infinite: Rows<'_> = &[&[("a", "inf")], &[("a", "1")], &[("a", "-1e308")]];
    check(Function::Sum(NumberRule::Units), fields(&["a"]), infinite, &one, &["+Inf"]);
    check(Function::Avg(NumberRule::Units), fields(&["a"]), infinite, &one, &["+Inf"]);
    // Groups that no row belongs to.
    check(Function::CountRows, vec![], THREE, &[2, 2, 2], &["0", "0", "3"]);
    check(Function::RowAny, fields(&["a"]), &THREE[..1], &[1], &["{}", r#"{"a":"2"}"#]);
    check(Function::Values { limit: None }, fields(&["a"]), &THREE[..1], &[1], &["[]", r#"["2"]"#]);
    check(Function::Histogram, fields(&["_msg"]), THREE, &[1, 1, 1], &["[]", "[]"]);
}

#[test]
fn fields_of_the_map_that_are_meant() {
    let one = [0, 0, 0];
    let named = |name: &str| NamePattern::Name(name.to_owned());
    let prefix = |name: &str| NamePattern::Prefix(name.to_owned());
    for (wanted, bytes, count) in [
        (vec![named("b")], "3", "2"),
        (vec![named("b"), prefix("_")], "9", "3"),
        (vec![prefix("x")], "0", "0"),
        (vec![], "0", "0"),
        (vec![prefix("")], "12", "3"),
    ] {
        check(Function::SumLen, vec![Arg::Rest(wanted.clone())], THREE, &one, &[bytes]);
        check(Function::Count, vec![Arg::Rest(wanted)], THREE, &one, &[count]);
    }
    let wrong: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let mut count = StatsAccumulator::new(Function::Count, rest().into());
    let error = Accumulator::update_batch(&mut count, &[wrong]).expect_err("no map");
    assert!(error.to_string().contains("column of type Utf8 holds no map of texts"), "{error}");
}

#[test]
fn states_that_are_cut_off_or_of_another_type_are_errors() {
    let args: Arc<[Arg]> = fields(&["a"]).into();
    let column: ArrayRef = Arc::new(StringArray::from(vec!["3"]));
    let begin = |function: &Function| StatsAccumulator::new(function.clone(), Arc::clone(&args));
    let fails = |function: &Function, state: &[ArrayRef], part: &str| {
        let error = Accumulator::merge_batch(&mut begin(function), state).expect_err(function.name());
        assert!(error.to_string().contains(part), "{function:?}: {error}");
    };
    let ids: ArrayRef = Arc::new(UInt32Array::from(vec![1]));
    for function in [
        Function::CountUniq { limit: None },
        Function::CountUniqHash { limit: None },
        Function::Min,
        Function::quantile(0.5),
        Function::UniqValues { limit: None },
        Function::Values { limit: None },
        Function::JsonValues { sort: vec![], limit: None },
        Function::RowAny,
        Function::RowMax,
        Function::Any,
        Function::FieldMin,
        Function::Histogram,
    ] {
        let mut own = begin(&function);
        Accumulator::update_batch(&mut own, &[Arc::clone(&column)]).unwrap();
        let state = Accumulator::state(&mut own).unwrap().remove(0).to_array().unwrap();
        let bytes = state.as_binary::<i64>().value(0);
        let whole: ArrayRef = Arc::new(LargeBinaryArray::from_vec(vec![bytes]));
        Accumulator::merge_batch(&mut begin(&function), &[whole]).unwrap();
        let short: ArrayRef = Arc::new(LargeBinaryArray::from_vec(vec![&bytes[..bytes.len() - 1]]));
        fails(&function, &[short], "a state of `stats` is cut off");
        fails(&function, &[Arc::clone(&ids)], "a state of `stats` is of another type");
        fails(&function, &[], "a state of `stats` is of another type");
    }
    let rule = NumberRule::Plain;
    for function in
        [Function::CountRows, Function::SumLen, Function::Sum(rule), Function::Avg(rule), Function::Stddev(rule)]
    {
        fails(&function, &[Arc::clone(&ids)], "a state of `stats` is of another type");
    }
}

const POOL: [&str; 11] = [
    "",
    "1",
    "2.5",
    "-3",
    "1KB",
    "5ms",
    "abc",
    "2024-01-01T00:00:00Z",
    "10.0.0.1",
    "a text that is longer than a view",
    "00f3a9b4c1d2e3f4a5b6c7d8e9f0a1b2",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn parts_give_what_the_whole_gives(
        picked in vec((0..POOL.len(), 0..POOL.len(), 0..3_usize), 1..30), size in 1..7_usize,
    ) {
        let rows: Vec<[(&str, &str); 2]> = picked.iter().map(|row| [("a", POOL[row.0]), ("b", POOL[row.1])]).collect();
        let rows: Vec<&[(&str, &str)]> = rows.iter().map(|row| &row[..]).collect();
        let groups: Vec<usize> = picked.iter().map(|row| row.2).collect();
        for function in [
            Function::CountRows,
            Function::Count,
            Function::CountEmpty,
            Function::CountUniq { limit: None },
            Function::CountUniqHash { limit: None },
            Function::Sum(NumberRule::Units),
            Function::Avg(NumberRule::Plain),
            Function::Min,
            Function::Max,
            Function::quantile(0.3),
            Function::quantile(1.0),
            Function::UniqValues { limit: None },
            Function::Values { limit: Some(3) },
            Function::JsonValues { sort: vec![true], limit: Some(2) },
            Function::RowAny,
            Function::RowMin,
            Function::FieldMax,
            Function::Any,
            Function::SumLen,
            Function::Histogram,
        ] {
            for (args, form) in
                [(fields(&["a", "b"]), Form::View), (fields(&["a", "b"]), Form::Dictionary), (rest(), Form::Rest)]
            {
                let whole = run(&function, &args, &rows, &groups, form, 100, false);
                let parts = run(&function, &args, &rows, &groups, form, size, true);
                prop_assert_eq!(&whole, &parts, "{:?} over {:?} in {}", function, args, size);
            }
        }
    }

    #[test]
    fn functions_are_those_of_a_plain_list(picked in vec(0..POOL.len(), 1..30)) {
        use crate::kernels::values::{compare, float_text, number};
        let values: Vec<&str> = picked.iter().map(|at| POOL[*at]).collect();
        let rows: Vec<[(&str, &str); 1]> = values.iter().map(|value| [("a", *value)]).collect();
        let rows: Vec<&[(&str, &str)]> = rows.iter().map(|row| &row[..]).collect();
        let groups = vec![0; rows.len()];
        let mut sorted = values.clone();
        sorted.sort_by(|a, b| compare(a, b));
        let mut unique: Vec<&str> = sorted.iter().copied().filter(|value| !value.is_empty()).collect();
        unique.dedup();
        let numbers: Vec<f64> = values.iter().filter_map(|value| number(value)).collect();
        let sum = if numbers.is_empty() { "NaN".to_owned() } else { float_text(numbers.iter().sum()) };
        for (function, want) in [
            (Function::Count, values.iter().filter(|value| !value.is_empty()).count().to_string()),
            (Function::CountUniq { limit: None }, unique.len().to_string()),
            (Function::Sum(NumberRule::Units), sum),
            (Function::Min, sorted[0].to_owned()),
            (Function::Max, sorted[sorted.len() - 1].to_owned()),
            (Function::quantile(0.5), sorted[sorted.len() / 2].to_owned()),
            (Function::UniqValues { limit: None }, format!("[{}]", unique.iter().map(|v| format!("\"{v}\"")).collect::<Vec<_>>().join(","))),
            (Function::SumLen, values.iter().map(|value| value.len()).sum::<usize>().to_string()),
        ] {
            let found = run(&function, &fields(&["a"]), &rows, &groups, Form::View, 7, true);
            prop_assert_eq!(found, [want], "{:?} of {:?}", function, values);
        }
    }
}
