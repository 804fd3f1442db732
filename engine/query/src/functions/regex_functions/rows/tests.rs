use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow::array::StringViewArray;
use arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::functions::regex::{regexp_count, regexp_instr, regexp_like, regexp_match, regexp_replace};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use quiver_types::cancellation::Watch;
use quiver_types::read_stats::Gate;
use quiver_types::{Error, ErrorKind};

use super::super::super::result_memory::Room;
use super::super::{invoke, may_lack};
use super::*;

fn text(value: Option<&str>) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(StringViewArray::from_iter([value])))
}

fn number(value: Option<i64>) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(Int64Array::from_iter([value])))
}

fn arguments(function: &ScalarUDF, args: &[ColumnarValue]) -> ScalarFunctionArgs {
    let kinds: Vec<DataType> = args.iter().map(ColumnarValue::data_type).collect();
    let field = |kind: &DataType| Arc::new(Field::new("a", kind.clone(), true));
    ScalarFunctionArgs {
        args: args.to_vec(),
        arg_fields: kinds.iter().map(field).collect(),
        number_rows: 1,
        return_field: field(&function.inner().return_type(&kinds).expect("a type")),
        config_options: Arc::new(ConfigOptions::default()),
    }
}

/// Holds the answer for one row against DataFusion's, but for groups that take no part, which that one leaves out.
fn check(function: &ScalarUDF, args: &[ColumnarValue]) {
    let pattern = args[1].to_array(1).expect("a pattern");
    let pattern = pattern.as_string_view();
    if pattern.is_valid(0) && may_lack(function.name(), pattern.value(0)) {
        return;
    }
    let own = call(function.name(), args, 1);
    let theirs = function.inner().invoke_with_args(arguments(function, args));
    match (own, theirs.and_then(|value| value.into_array(1))) {
        (Ok(own), Ok(theirs)) => assert_eq!(&own, &theirs, "{} {args:?}", function.name()),
        (Err(_), Err(_)) => {}
        (own, theirs) => {
            // Which of NULL and what is no pattern is seen first is nobody's promise.
            let has_null = args.iter().any(|arg| arg.to_array(1).is_ok_and(|arg| arg.is_null(0)));
            assert!(has_null, "{} {args:?}: {own:?} against {theirs:?}", function.name());
        }
    }
}

const FLAGS: [Option<&str>; 10] =
    [None, Some(""), Some("i"), Some("g"), Some("gi"), Some("gg"), Some("s"), Some("mg"), Some("x"), Some("y")];

#[test]
fn answers_are_those_of_datafusion() {
    let texts = [None, Some(""), Some("abcABC abc"), Some("äöa\nAb ß"), Some("a1b22c333")];
    let patterns = [
        None,
        Some(""),
        Some("a"),
        Some("(a)(b)?"),
        Some("x*"),
        Some("^a|b$"),
        Some(r"([a-z])(\d+)"),
        Some(". b"),
        Some(r"\bab"),
        Some("(?P<name>b)c"),
        Some("("),
        Some(r"\1"),
    ];
    for (within, pattern) in texts.iter().flat_map(|text| patterns.iter().map(move |pattern| (*text, *pattern))) {
        let both = [text(within), text(pattern)];
        let with = |others: &[ColumnarValue]| [&both[..], others].concat();
        for function in [regexp_like(), regexp_match(), regexp_count(), regexp_instr()] {
            check(&function, &both);
        }
        for to in [None, Some(""), Some(r"<\1>"), Some(r"\0\0"), Some("$2-${name}$$"), Some(r"\\2")] {
            check(&regexp_replace(), &with(&[text(to)]));
            check(&regexp_replace(), &with(&[text(to), text(Some("g"))]));
        }
        // DataFusion's see nothing before the third letter.
        let looks_back = pattern.is_some_and(|pattern| pattern.starts_with('^'));
        for from in [None, Some(0), Some(1), Some(3), Some(100)] {
            if looks_back && from == Some(3) {
                continue;
            }
            check(&regexp_count(), &with(&[number(from)]));
            for which in [None, Some(0), Some(2)] {
                check(&regexp_instr(), &with(&[number(from), number(which)]));
            }
        }
        for flags in FLAGS.map(text) {
            check(&regexp_like(), &with(std::slice::from_ref(&flags)));
            check(&regexp_match(), &with(std::slice::from_ref(&flags)));
            check(&regexp_replace(), &with(&[text(Some("-")), flags.clone()]));
            check(&regexp_count(), &with(&[number(Some(1)), flags.clone()]));
            for group in [None, Some(-1), Some(1), Some(9)] {
                check(&regexp_instr(), &with(&[number(Some(2)), number(Some(2)), flags.clone(), number(group)]));
            }
        }
    }
}

#[test]
fn what_lies_before_the_first_letter_is_seen() {
    let asked = |function: Arc<ScalarUDF>, within: &str, pattern: &str, from: i64| {
        let pattern = ColumnarValue::Scalar(ScalarValue::Utf8View(Some(pattern.to_owned())));
        let args = arguments(&function, &[text(Some(within)), pattern, number(Some(from))]);
        let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
        let found = invoke(&function, args, &room).unwrap().into_array(1).unwrap();
        found.as_primitive::<Int64Type>().value(0)
    };
    for (within, pattern, from, count, place) in [
        ("aaa", "^a", 1, 1, 1),
        ("aaa", "^a", 2, 0, 0),
        ("a\naa", "(?m)^a", 2, 1, 3),
        ("äbab", r"\bb", 2, 0, 0),
        ("xäxä", "(?<=x)ä", 2, 2, 2),
        ("xäxä", "(?<!x)ä", 2, 0, 0),
        ("ababa", "a|$", 3, 3, 3),
        ("ab", "$", 3, 1, 3),
        ("ab", "$", 4, 0, 0),
        ("abab", "b", 1, 2, 2),
    ] {
        assert_eq!(asked(regexp_count(), within, pattern, from), count, "{within} {pattern} {from}");
        assert_eq!(asked(regexp_instr(), within, pattern, from), place, "{within} {pattern} {from}");
    }
}

#[test]
fn groups_that_take_no_part_are_null() {
    let column = |texts: [&str; 5]| ColumnarValue::Array(Arc::new(StringViewArray::from(texts.to_vec())));
    let args = [column(["ab", "xb", "b", "q", "b"]), column(["(b)", "(x)?(b)", "(x)?(b)", "(x)?b", "(?:(x)|(b)){1}"])];
    let args = ScalarFunctionArgs { number_rows: 5, ..arguments(&regexp_match(), &args) };
    let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
    let found = invoke(&regexp_match(), args, &room).unwrap().into_array(5).unwrap();
    let lists = found.as_list::<i32>();
    let groups = |row: usize| {
        let groups = cast(&lists.value(row), &DataType::Utf8).unwrap();
        groups.as_string::<i32>().iter().map(|group| group.unwrap_or("NULL").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!([groups(0), groups(1), groups(2)], [vec!["b"], vec!["x", "b"], vec!["NULL", "b"]]);
    assert!(lists.is_null(3));
    assert_eq!(groups(4), ["NULL", "b"]);
}

#[test]
fn long_texts_are_answered_as_short_ones() {
    let letters = format!("{}c", "ab".repeat(30_000));
    let both = [text(Some(&letters)), text(Some("(a)(b)c?"))];
    let with = |others: &[ColumnarValue]| [&both[..], others].concat();
    for function in [regexp_like(), regexp_match(), regexp_count(), regexp_instr()] {
        check(&function, &both);
    }
    check(&regexp_replace(), &with(&[text(Some(r"\2\1")), text(Some("g"))]));
    check(&regexp_instr(), &with(&[number(Some(7)), number(Some(100))]));
}

#[test]
fn what_is_added_is_counted_as_far_as_it_is_allowed() {
    let bytes = |pattern: &str, to: &str, flags: &str| {
        added(&[text(Some("abab")), text(Some(pattern)), text(Some(to)), text(Some(flags))], 1).unwrap()
    };
    assert_eq!(bytes("a", "xyz", "g"), 4);
    assert_eq!(bytes("a", "xyz", "i"), 2);
    assert_eq!(bytes("(a)(b)", r"\1\2\1", "g"), 2);
    assert_eq!(bytes("ab", "", "g"), 0);
    assert!(bytes("ab", &"x".repeat(BYTES_MAX as usize + 1), "i") > BYTES_MAX);
}

/// A query that ends at one of the questions whether it goes on.
#[derive(Debug)]
struct Ends(AtomicUsize);

impl Gate for Ends {
    fn take(&self, _: usize) -> quiver_types::Result<()> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}

    fn check(&self) -> quiver_types::Result<()> {
        let left = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map(|_| ()).map_err(|_| Error::new(ErrorKind::Cancelled, "it ended"))
    }
}

/// Thousands of states at each of a million letters, and a million places from each of which all is looked at.
#[test]
fn what_takes_long_ends_with_its_query() {
    let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
    let calls = |within: &str, pattern: &str| {
        let both = [text(Some(within)), ColumnarValue::Scalar(ScalarValue::Utf8View(Some(pattern.to_owned())))];
        let of = |function: Arc<ScalarUDF>, others: &[ColumnarValue]| {
            let args = arguments(&function, &[&both[..], others].concat());
            (function, args)
        };
        [
            of(regexp_like(), &[text(Some("s"))]),
            of(regexp_match(), &[]),
            of(regexp_count(), &[]),
            of(regexp_instr(), &[number(Some(1)), number(Some(1 << 30))]),
            of(regexp_replace(), &[text(Some("x")), text(Some("g"))]),
        ]
    };
    let many_states = calls(&"ab".repeat(1 << 19), "((a|b){0,50}.){0,50}c");
    let many_places = calls(&"a".repeat(1 << 20), "a.*b|a");
    // Of the second, the first place alone takes no time.
    for (function, args) in many_states.into_iter().chain(many_places.into_iter().skip(2)) {
        // A machine may stand still in one of the tries.
        let ends = (0..4).any(|_| {
            let began = Instant::now();
            let outcome =
                Watch::new(Arc::new(Ends(AtomicUsize::new(5)))).over(|| invoke(&function, args.clone(), &room));
            outcome.is_err() && began.elapsed() < Duration::from_secs(10)
        });
        assert!(ends, "{} goes on", function.name());
    }
}
