//! Rebuilds matchers from their serialized form ([`MatcherForm`]). Patterns are compiled again, within the same limits.

use std::sync::Arc;

use quiver_types::logs::{MatcherForm, MatcherReaders, RowMatcher, ValueMatcher};
use quiver_types::{Error, Result};

use super::any_case_phrase::AnyCasePhrase;
use super::any_case_prefix::AnyCasePrefix;
use super::common_case::{ContainsCommonCase, EqualsCommonCase, check_common_cases};
use super::contains_all::ContainsAll;
use super::contains_any::ContainsAny;
use super::exact::Exact;
use super::exact_prefix::ExactPrefix;
use super::field_compare::{FieldCompare, FieldOp};
use super::in_list::InList;
use super::ipv4_range::Ipv4Range;
use super::ipv6_range::Ipv6Range;
use super::json_array_contains_any::JsonArrayContainsAny;
use super::len_range::LenRange;
use super::matcher_form::OF;
use super::pattern_match::{PatternMatch, PatternPlace};
use super::phrase::Phrase;
use super::prefix::Prefix;
use super::range::Range;
use super::regexp::Regexp;
use super::sequence::Sequence;
use super::string_range::StringRange;
use super::substring::Substring;
use super::text_compare::{TextCompare, TextOp};
use super::value_type::ValueType;

/// How all of them are read.
pub(crate) const MATCHERS: MatcherReaders = MatcherReaders { of: OF, value, row };

fn value(form: &MatcherForm) -> Result<Option<Arc<dyn ValueMatcher>>> {
    let found = match (form.texts.as_slice(), form.numbers.as_slice()) {
        ([text], []) => of_text(&form.kind, text)?,
        _ => None,
    };
    Ok(found.or_else(|| of_numbers(form)).or_else(|| of_list(form)))
}

/// Makes the matchers that are made of one text.
fn of_text(kind: &str, text: &str) -> Result<Option<Arc<dyn ValueMatcher>>> {
    Ok(Some(match kind {
        "phrase" => Arc::new(Phrase::new(text)),
        "prefix" => Arc::new(Prefix::new(text)),
        "substring" => Arc::new(Substring::new(text)),
        "any_case_phrase" => Arc::new(AnyCasePhrase::new(text)),
        "any_case_prefix" => Arc::new(AnyCasePrefix::new(text)),
        "exact" => Arc::new(Exact::new(text)),
        "exact_prefix" => Arc::new(ExactPrefix::new(text)),
        "regexp" => Arc::new(Regexp::new(text).map_err(Error::invalid)?),
        "value_type" => Arc::new(ValueType::new(text)),
        _ => return Ok(None),
    }))
}

/// Makes the matchers that are made of numbers, or of one word among a few.
fn of_numbers(form: &MatcherForm) -> Option<Arc<dyn ValueMatcher>> {
    Some(match (form.kind.as_str(), form.texts.as_slice(), form.numbers.as_slice()) {
        ("range", [], [min, max]) => Arc::new(Range::new(f64::from_bits(*min), f64::from_bits(*max))),
        ("ipv4_range", [], [min, max]) => {
            Arc::new(Ipv4Range::new(u32::try_from(*min).ok()?, u32::try_from(*max).ok()?))
        }
        ("ipv6_range", [], [min_high, min_low, max_high, max_low]) => {
            let whole = |high: u64, low: u64| (u128::from(high) << 64) | u128::from(low);
            Arc::new(Ipv6Range::new(whole(*min_high, *min_low), whole(*max_high, *max_low)))
        }
        ("len_range", [], [min, max]) => Arc::new(LenRange::new(*min, *max)),
        ("text_compare", [text], [op]) => {
            let op = one_of(&[TextOp::Gt, TextOp::Ge, TextOp::Lt, TextOp::Le], *op)?;
            Arc::new(TextCompare::new(op, text))
        }
        ("pattern_match", [text], [place]) => {
            let all = [PatternPlace::Any, PatternPlace::Full, PatternPlace::Prefix, PatternPlace::Suffix];
            Arc::new(PatternMatch::new(one_of(&all, *place)?, text))
        }
        _ => return None,
    })
}

/// Makes the matchers that are made of a list of texts.
fn of_list(form: &MatcherForm) -> Option<Arc<dyn ValueMatcher>> {
    if !form.numbers.is_empty() {
        return None;
    }
    let texts = || form.texts.clone();
    Some(match form.kind.as_str() {
        "in" => Arc::new(InList::new(texts())),
        "contains_all" => Arc::new(ContainsAll::new(texts())),
        "contains_any" => Arc::new(ContainsAny::new(texts())),
        "equals_common_case" | "contains_common_case" if check_common_cases(&form.texts).is_err() => return None,
        "equals_common_case" => Arc::new(EqualsCommonCase::new(texts())),
        "contains_common_case" => Arc::new(ContainsCommonCase::new(texts())),
        "seq" => Arc::new(Sequence::new(texts())),
        "json_array_contains_any" => Arc::new(JsonArrayContainsAny::new(texts())),
        "string_range" => match form.texts.as_slice() {
            [min, max] => Arc::new(StringRange::new(min, max)),
            _ => return None,
        },
        _ => return None,
    })
}

#[expect(clippy::unnecessary_wraps, reason = "readers of matchers have one signature")]
fn row(form: &MatcherForm) -> Result<Option<Arc<dyn RowMatcher>>> {
    let found = match (form.kind.as_str(), form.texts.as_slice(), form.numbers.as_slice()) {
        ("field_compare", [left, right], [op]) => one_of(&[FieldOp::Eq, FieldOp::Le, FieldOp::Lt], *op)
            .map(|op| Arc::new(FieldCompare::new(op, left, right)) as Arc<dyn RowMatcher>),
        _ => None,
    };
    Ok(found)
}

/// One of some, by its place among them.
fn one_of<T: Copy>(all: &[T], place: u64) -> Option<T> {
    all.get(usize::try_from(place).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matcher of each kind, with what tells it from others of the kind.
    fn all() -> Vec<Arc<dyn ValueMatcher>> {
        let list = || vec!["b c".to_owned(), "a".to_owned(), "Ünï".to_owned(), String::new()];
        let long = || (0..20).map(|i| format!("v{i}")).collect::<Vec<_>>();
        let regexp = |text: &str| Regexp::new(text).expect("an expression");
        vec![
            Arc::new(Phrase::new("a b")),
            Arc::new(Phrase::new("")),
            Arc::new(Prefix::new("pre ")),
            Arc::new(Substring::new("ä\"")),
            Arc::new(AnyCasePhrase::new("ÄB İ")),
            Arc::new(AnyCasePrefix::new("PRE")),
            Arc::new(Exact::new("x\0y")),
            Arc::new(ExactPrefix::new("x")),
            Arc::new(regexp("(?i)^a.+b|c$")),
            Arc::new(regexp("")),
            Arc::new(ValueType::new("uint64")),
            Arc::new(InList::new(list())),
            Arc::new(InList::new(Vec::new())),
            Arc::new(InList::new(long())),
            Arc::new(ContainsAll::new(list())),
            Arc::new(ContainsAny::new(list())),
            Arc::new(ContainsAny::new(long())),
            Arc::new(EqualsCommonCase::new(list())),
            Arc::new(ContainsCommonCase::new(list())),
            Arc::new(Sequence::new(list())),
            Arc::new(JsonArrayContainsAny::new(list())),
            Arc::new(Range::new(f64::NEG_INFINITY, -0.0)),
            Arc::new(Range::new(0.1, f64::NAN)),
            Arc::new(TextCompare::new(TextOp::Le, "b")),
            Arc::new(Ipv4Range::new(1, u32::MAX)),
            Arc::new(Ipv6Range::new((1 << 64) | 2, u128::MAX)),
            Arc::new(StringRange::new("a", "b")),
            Arc::new(LenRange::new(3, u64::MAX)),
            Arc::new(PatternMatch::new(PatternPlace::Suffix, "<N> of <W>")),
        ]
    }

    #[test]
    fn each_matcher_comes_back() {
        for matcher in all() {
            let form = matcher.written().expect("it has a form");
            let read = value(&form).expect("it is read").unwrap_or_else(|| panic!("{form:?}"));
            assert_eq!(read.describe(), matcher.describe());
            assert_eq!(read.written(), Some(form), "{}", matcher.describe());
            // The hints of a range that ends at no number are not equal to themselves.
            assert_eq!(format!("{:?}", read.hints()), format!("{:?}", matcher.hints()), "{}", matcher.describe());
            for text in ["", "a", "b c", "ab", "Ünï", "5", "x\0y", "1.2.3.4", "pre fix", "[\"a\"]", "äb i", "1 of x"]
            {
                assert_eq!(read.matches(text), matcher.matches(text), "{} of {text:?}", matcher.describe());
            }
        }
        for op in [FieldOp::Eq, FieldOp::Le, FieldOp::Lt] {
            let matcher = FieldCompare::new(op, "a", "b");
            let form = matcher.written().expect("it has a form");
            let read = row(&form).expect("it is read").unwrap_or_else(|| panic!("{form:?}"));
            assert_eq!(read.describe(), matcher.describe());
        }
    }

    /// A file of a filter without a form has a line in `filters.rs` and none here.
    #[test]
    fn each_filter_has_a_form() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels/filters");
        let mut known = all().into_iter().map(|m| format!("{m:?}")).collect::<Vec<_>>();
        known.push(format!("{:?}", FieldCompare::new(FieldOp::Eq, "a", "b")));
        let mut seen = 0;
        for file in std::fs::read_dir(folder).expect("a folder") {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("sources");
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            let names = product.lines().filter_map(|line| {
                let rest = line.strip_prefix("impl ValueMatcher for ").or(line.strip_prefix("impl RowMatcher for "));
                rest?.strip_suffix(" {")
            });
            for name in names {
                assert!(known.iter().any(|debug| debug.starts_with(&format!("{name} "))), "{name} is not tried here");
                seen += 1;
            }
        }
        assert!(seen > 20, "only {seen} filters were found");
    }

    #[test]
    fn what_no_matcher_is_made_of_is_told() {
        let form = |kind: &str| MatcherForm::new(OF, kind);
        for unknown in [
            form("phrases").texts(["a"]),
            form("phrase"),
            form("phrase").texts(["a"]).numbers([1]),
            form("text_compare").texts(["a"]).numbers([4]),
            form("ipv4_range").numbers([0, u64::MAX]),
            form("string_range").texts(["a"]),
        ] {
            assert!(value(&unknown).expect("no error").is_none(), "{unknown:?}");
        }
        assert!(value(&form("regexp").texts(["("])).is_err());
        assert!(row(&form("field_compare").texts(["a", "b"]).numbers([3])).expect("no error").is_none());
    }
}
