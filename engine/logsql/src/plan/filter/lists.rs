//! Very many alternatives of one field become a list: a list is looked up once for a value, whatever its length.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::ast::{FieldPattern, Filter, Test, Values};

/// Fewer alternatives than this stay as they are.
const MANY: usize = 16;

/// How the alternatives of a field are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ListComparison {
    Equal,
    Contains,
}

/// The same alternatives, or fewer: `a:=1 or a:=2` as `a:in(1, 2)`, `a:x or a:"y z"` as `a:contains_any(x, "y z")`.
pub(super) fn any_of(any: &[Filter]) -> Cow<'_, [Filter]> {
    if any.len() < MANY {
        return Cow::Borrowed(any);
    }
    let (mut lists, mut others) = (HashMap::<(&str, ListComparison), Vec<String>>::new(), Vec::new());
    for filter in any {
        match alternative(filter) {
            Some((field, compared, values)) => lists.entry((field, compared)).or_default().extend_from_slice(values),
            None => others.push(filter.clone()),
        }
    }
    others.extend(lists.into_iter().map(|((field, compared), values)| {
        let test = match compared {
            ListComparison::Equal => Test::In(Values::List(values)),
            ListComparison::Contains => Test::ContainsAny(Values::List(values)),
        };
        Filter::Field { field: FieldPattern::Name(field.to_owned()), test }
    }));
    Cow::Owned(others)
}

/// The same conditions, or fewer: `!a !b` as `!(a or b)`.
pub(super) fn all_of(all: &[Filter]) -> Cow<'_, [Filter]> {
    let denied = |filter: &&Filter| matches!(filter, Filter::Not(_));
    if all.iter().filter(denied).count() < MANY {
        return Cow::Borrowed(all);
    }
    let inner = all.iter().filter_map(|filter| match filter {
        Filter::Not(inner) => Some((**inner).clone()),
        _ => None,
    });
    let none = Filter::Not(Box::new(Filter::Or(inner.collect())));
    Cow::Owned(all.iter().filter(|filter| !denied(filter)).cloned().chain([none]).collect())
}

/// The field of an alternative and what it is compared with. The empty phrase is left alone: it means the empty value.
fn alternative(filter: &Filter) -> Option<(&str, ListComparison, &[String])> {
    let Filter::Field { field: FieldPattern::Name(name), test } = filter else { return None };
    let (compared, values) = match test {
        Test::Exact(value) => (ListComparison::Equal, std::slice::from_ref(value)),
        Test::In(Values::List(values)) => (ListComparison::Equal, values.as_slice()),
        Test::Phrase(value) if !value.is_empty() => (ListComparison::Contains, std::slice::from_ref(value)),
        Test::ContainsAny(Values::List(values)) => (ListComparison::Contains, values.as_slice()),
        _ => return None,
    };
    Some((name, compared, values))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quiver_types::logs::{FieldPattern as ScanField, LogFilter, ValueMatcher};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::plan::filter::lower;
    use crate::query_text::parse_filter;
    use crate::reference_time::TimeScope;

    fn check(text: &str, expected: &str) {
        let text = text.replace("..", &(0..MANY).map(|i| format!("a:=v{i}")).collect::<Vec<_>>().join(" or "));
        let mut found: Vec<String> = match parse_filter(&text).expect("valid").expect("a filter") {
            Filter::Or(any) => any_of(&any).iter().map(ToString::to_string).collect(),
            Filter::And(all) => all_of(&all).iter().map(ToString::to_string).collect(),
            other => panic!("{other}"),
        };
        found.sort();
        assert_eq!(found.join("; "), expected, "{text}");
    }

    #[test]
    fn alternatives_of_a_field_are_a_list() {
        let values = (0..MANY).map(|i| format!("v{i}")).collect::<Vec<_>>().join(",");
        check("..", &format!("a:in({values})"));
        check(
            ".. or b:x or b:\"y z\" or b:\"\" or c:>5 or a:in(w)",
            &format!("a:in({values},w); b:\"\"; b:contains_any(x,\"y z\"); c:>5"),
        );
        check("a:=1 or a:=2", "a:=1; a:=2");
        let denied = (0..MANY).map(|i| format!("!w{i}")).collect::<Vec<_>>().join(" ");
        let words = (0..MANY).map(|i| format!("w{i}")).collect::<Vec<_>>().join(" or ");
        check(&format!("b:x {denied}"), &format!("!({words}); b:x"));
    }

    #[test]
    fn what_is_no_alternative_of_one_field_stays() {
        let values = (0..MANY).map(|i| format!("v{i}")).collect::<Vec<_>>().join(",");
        check(
            ".. or a*:=w or !a:=w or a:=w* or a:in(x, y) or (a:=z b:=z)",
            &format!("!a:=w; a*:=w; a:=w*; a:=z b:=z; a:in({values},x,y)"),
        );
        // One less is left as it is.
        let few = (1..MANY).map(|i| format!("a:=v{i}")).collect::<Vec<_>>();
        let mut sorted = few.clone();
        sorted.sort();
        check(&few.join(" or "), &sorted.join("; "));
        let denied = (1..MANY).map(|i| format!("!w{i}")).collect::<Vec<_>>();
        let mut sorted = denied.clone();
        sorted.sort();
        check(&denied.join(" "), &sorted.join("; "));
    }

    /// The fields and matchers of some filters.
    fn matchers(filters: &[Filter]) -> Vec<(String, Arc<dyn ValueMatcher>)> {
        let one = |filter: &Filter| match lower(filter, TimeScope { now_ns: 0, offset_ns: 0 }).expect("it is lowered") {
            LogFilter::Value { field: ScanField::Name(name), matcher } => (name, matcher),
            other => panic!("{other}"),
        };
        filters.iter().map(one).collect()
    }

    /// Breaks if a list takes other values than its alternatives.
    #[test]
    fn lists_take_the_values_of_their_alternatives() {
        let mut random = SmallRng::seed_from_u64(7);
        for round in 0..5 {
            let mut value = || match random.random_range(0..60) {
                0 => String::new(),
                n @ 1..50 => format!("w{n}"),
                n => format!("w{n} w{}", n - 50),
            };
            let alternatives: Vec<Filter> = (0..MANY + 8)
                .map(|at| {
                    let test = match at % 5 {
                        0 => Test::Exact(value()),
                        1 => Test::Phrase(value()),
                        2 => Test::In(Values::List(vec![value(), value()])),
                        3 => Test::ContainsAny(Values::List(vec![value(), value()])),
                        _ => Test::Prefix("longer".to_owned()),
                    };
                    Filter::Field { field: FieldPattern::Name(["a", "b"][at % 2].to_owned()), test }
                })
                .collect();
            let (before, after) = (matchers(&alternatives), matchers(&any_of(&alternatives)));
            assert!(after.len() < before.len(), "round {round}");
            let takes = |all: &[(String, Arc<dyn ValueMatcher>)], name: &str, value: &str| {
                all.iter().any(|(own, matcher)| own == name && matcher.matches(value))
            };
            let words = (0..60).map(|n| format!("w{n}"));
            let two = (0..60).flat_map(|n| [format!("w{n} w{}", n % 10), format!("xw{n}, w{n}y")]);
            for value in words.chain(two).chain([String::new(), "longer".to_owned(), " ".to_owned()]) {
                for name in ["a", "b"] {
                    let (expected, found) = (takes(&before, name, &value), takes(&after, name, &value));
                    assert_eq!(found, expected, "round {round}, {name}: {value:?}");
                }
            }
        }
    }
}
