//! Pruning: nothing is ruled out unless it certainly does not match.

use std::sync::Arc;

use quiver_types::LabelSet;
use quiver_types::logs::{
    FieldPattern, LogFilter, MSG, OBSERVED_TIME, SEVERITY_NUMBER, STREAM, STREAM_ID, StreamSelector, TIME, ValueMatcher,
};
use quiver_types::tables::logs::SERVICE;
use quiver_types::{MatchOp, Matcher};

use super::model::{Any, Contains, Equals, Number, Word};
use crate::logs::evaluation::number_of;
use crate::logs::pruning::{fields_with_words, part_may_match, stream_may_match};
use crate::memtable::log_streams::LiveStream;
use crate::part::logs::ColumnKind;
use crate::part::testing::part_meta;
use crate::part::{NameFilter, PartMeta};

fn part(names: &[&str]) -> PartMeta {
    PartMeta { names: NameFilter::of(names), ..part_meta(1, "logs") }
}

fn value(name: &str, matcher: impl ValueMatcher + 'static) -> LogFilter {
    LogFilter::Value { field: FieldPattern::Name(name.to_owned()), matcher: Arc::new(matcher) }
}

fn prefix(prefix: &str, matcher: impl ValueMatcher + 'static) -> LogFilter {
    LogFilter::Value { field: FieldPattern::Prefix(prefix.to_owned()), matcher: Arc::new(matcher) }
}

fn equals(text: &str) -> Equals {
    Equals(text.to_owned())
}

fn not(filter: LogFilter) -> LogFilter {
    LogFilter::Not(Box::new(filter))
}

const RANGE: (i64, i64) = (100, 200);

#[test]
fn parts_are_ruled_out_by_time_and_names() {
    let of_few = part(&[MSG, "level", "trace.id"]);
    for (filter, may) in [
        (LogFilter::All, true),
        (LogFilter::None, false),
        (not(LogFilter::All), true),
        (LogFilter::And(vec![]), true),
        (LogFilter::Or(vec![]), false),
        (LogFilter::Time(vec![]), false),
        (LogFilter::Time(vec![(0, 99), (201, 300)]), false),
        (LogFilter::Time(vec![(0, 100)]), true),
        (LogFilter::Time(vec![(0, 1), (200, 300)]), true),
        (LogFilter::Time(vec![(150, 150)]), true),
        (LogFilter::Time(vec![(i64::MIN, i64::MAX)]), true),
        (value("level", equals("x")), true),
        (value("levels", equals("x")), false),
        // A field that no row has is the empty text in all of them.
        (value("levels", equals("")), true),
        (value("levels", Any), false),
        (prefix("trace", Any), true),
        (prefix("trace.id", Any), true),
        (prefix("trace.id2", Any), false),
        // No field that is missing is asked.
        (prefix("x", equals("")), false),
        (prefix("", Any), true),
        (LogFilter::And(vec![value("level", Any), value("x", Any)]), false),
        (LogFilter::Or(vec![value("level", Any), value("x", Any)]), true),
        (LogFilter::Or(vec![value("y", Any), value("x", Any)]), false),
        (LogFilter::And(vec![LogFilter::Time(vec![(0, 1)]), value("level", Any)]), false),
        // What is denied says nothing of its names.
        (not(value("x", Any)), true),
        (LogFilter::Stream(StreamSelector::default()), true),
        (LogFilter::StreamIds(vec![]), true),
    ] {
        assert_eq!(part_may_match(&filter, &of_few, RANGE), may, "{filter}");
    }
    // Every row has these, and no list of fields names them.
    for name in [TIME, STREAM, STREAM_ID, SEVERITY_NUMBER, OBSERVED_TIME, SERVICE] {
        assert!(part_may_match(&value(name, equals("x")), &of_few, RANGE), "{name}");
    }
}

#[test]
fn a_part_of_very_many_names_is_asked_by_its_filter() {
    let names: Vec<String> = (0..2000).map(|n| format!("field_{n:04}")).collect();
    let of_many = part(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(of_many.names.list().is_none(), "it is no list any more");
    assert!(names.iter().all(|name| part_may_match(&value(name, Any), &of_many, RANGE)));
    let unknown = (0..1000).filter(|n| part_may_match(&value(&format!("other_{n}"), Any), &of_many, RANGE)).count();
    assert!(unknown < 100, "{unknown} of 1,000");
    assert!(part_may_match(&prefix("other", Any), &of_many, RANGE), "prefixes cannot be looked up in it");
}

#[test]
fn streams_are_ruled_out_by_labels_and_identifiers() {
    let labels = LabelSet::from_pairs([("app", "x"), ("pod", "1")]);
    let stream = LiveStream { id: labels.id(), labels, service: "web".into() };
    let other = LabelSet::from_pairs([("app", "y")]).id();
    let select = |groups: Vec<Vec<Matcher>>| LogFilter::Stream(StreamSelector { groups });
    let app = |value: &str| Matcher::equal("app", value);
    let missing = Matcher::new("zone", MatchOp::Equal, "").unwrap();
    for (filter, may) in [
        (LogFilter::All, true),
        (LogFilter::None, false),
        (select(vec![]), true),
        (select(vec![vec![]]), true),
        (select(vec![vec![app("x"), missing.clone()]]), true),
        (select(vec![vec![app("y"), missing]]), false),
        (select(vec![vec![app("y")], vec![app("x")]]), true),
        (LogFilter::StreamIds(vec![]), false),
        (LogFilter::StreamIds(vec![other]), false),
        (LogFilter::StreamIds(vec![other, stream.id]), true),
        (LogFilter::Time(vec![(0, 99)]), false),
        (LogFilter::Time(vec![(0, 100)]), true),
        (LogFilter::And(vec![select(vec![vec![app("x")]]), LogFilter::StreamIds(vec![other])]), false),
        (LogFilter::Or(vec![select(vec![vec![app("y")]]), LogFilter::StreamIds(vec![stream.id])]), true),
        (LogFilter::Or(vec![select(vec![vec![app("y")]]), value("app", equals("z"))]), true),
        // A denial of one that passes is not looked into.
        (not(select(vec![vec![app("x")]])), true),
    ] {
        assert_eq!(stream_may_match(&filter, &stream, RANGE), may, "{filter}");
    }
}

#[test]
fn fields_are_looked_up_by_words_where_each_alternative_has_one() {
    let word = |name: &str| value(name, Word("w".to_owned()));
    let check = |filter: LogFilter, expected: &[&str]| {
        assert_eq!(fields_with_words(&filter).into_iter().collect::<Vec<_>>(), expected, "{filter}");
    };
    check(LogFilter::All, &[]);
    check(word("a"), &["a"]);
    check(value("a", equals("two words")), &["a"]);
    // Nothing is known of these: no words at all, or a text without one.
    check(value("a", equals("")), &[]);
    check(value("a", equals("--")), &[]);
    check(value("a", Contains("w".to_owned())), &[]);
    check(value("a", Number(1.0, 2.0)), &[]);
    check(prefix("a", Word("w".to_owned())), &[]);
    check(not(word("a")), &[]);
    check(LogFilter::And(vec![word("b"), word("a"), LogFilter::Or(vec![word("c"), word("a")])]), &["a", "b", "c"]);
    check(LogFilter::Or(vec![not(word("b")), word("a")]), &["a"]);
}

#[test]
fn texts_have_the_numbers_of_their_kind() {
    for (kind, text, expected) in [
        (ColumnKind::Int, "-12", Some(-12.0)),
        (ColumnKind::Int, "012", None),
        (ColumnKind::Int, "1.0", None),
        (ColumnKind::Float, "1.5", Some(1.5)),
        (ColumnKind::Float, "1.50", None),
        (ColumnKind::Float, "1e3", None),
        (ColumnKind::Ipv4, "0.0.1.2", Some(258.0)),
        (ColumnKind::Ipv4, "258", None),
        (ColumnKind::Time(3), "1970-01-01T00:00:01.000Z", Some(1e9)),
        (ColumnKind::Time(3), "1970-01-01T00:00:01", None),
        (ColumnKind::Text, "7", None),
        (ColumnKind::Coded, "7", None),
        (ColumnKind::Hex(1), "07", None),
    ] {
        assert_eq!(number_of(kind, text), expected, "{kind:?} {text}");
    }
}
