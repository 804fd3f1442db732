//! Matchers of routes, inhibition and silences, in both syntaxes.
//!
//! Alertmanager has a younger parser that takes any UTF-8 text as a name (`utf8`) and an older one (`classic`). Both are
//! run: what one accepts is taken, and where both accept and differ the classic result counts, with a warning.

mod classic;
pub(crate) mod equal_index;
mod syntax;
mod utf8;

use std::fmt;

use quiver_types::matcher::Patterns;
use quiver_types::{LabelSet, MatchOp, Matcher};

use crate::text::quote;
use syntax::is_reserved;

pub use classic::parse as parse_classic;
pub use syntax::{MatcherError, matcher, matcher_among};
pub use utf8::parse as parse_utf8;

/// Matchers that must all match: of routes sorted by name, value and operator, as group keys show them, of silences in the
/// order in which they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matchers(Vec<Matcher>);

/// What was read, and what should be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The matchers, in the order of the text.
    pub matchers: Vec<Matcher>,
    /// That the parsers differ, or that only the older one accepts.
    pub warning: Option<String>,
}

/// Reads any number of matchers, with or without braces.
///
/// # Errors
/// Neither syntax accepts the text; the error is that of the older parser, as Alertmanager's is.
pub fn read(text: &str) -> Result<Read, MatcherError> {
    read_among(text, &mut Patterns::default())
}

/// Reads some of several whose patterns are bounded together.
///
/// # Errors
/// As [`read`]; also where all patterns are too large together.
pub fn read_among(text: &str, patterns: &mut Patterns) -> Result<Read, MatcherError> {
    settled(text, utf8::among(text, patterns), classic::among(text, patterns))
}

/// Reads one matcher without braces, as parameters of Alertmanager's API hold it: the older syntax takes what stands
/// behind a comma for a part of the value.
///
/// # Errors
/// As [`read_among`]; also where braces begin or end the text, or the younger syntax finds another number of matchers and the
/// older one none.
pub fn read_one(text: &str, patterns: &mut Patterns) -> Result<Read, MatcherError> {
    if text.starts_with('{') || text.ends_with('}') {
        return Err(MatcherError::new(0, format!("unexpected open or close brace: {text}")));
    }
    let young = utf8::among(text, patterns).and_then(|found| match found.len() {
        1 => Ok(found),
        count => Err(MatcherError::new(0, format!("expected 1 matcher, found {count}"))),
    });
    settled(text, young, classic::matcher(text, patterns).map(|matcher| vec![matcher]))
}

/// Decides what a text means by what the two syntaxes make of it.
fn settled(
    text: &str,
    young: Result<Vec<Matcher>, MatcherError>,
    old: Result<Vec<Matcher>, MatcherError>,
) -> Result<Read, MatcherError> {
    match (young, old) {
        (Ok(young), Ok(old)) if young == old => Ok(Read { matchers: young, warning: None }),
        (Ok(_), Ok(old)) => {
            let warning = format!("matchers `{text}` are read differently by the two syntaxes; the classic one counts");
            Ok(Read { matchers: old, warning: Some(warning) })
        }
        (Ok(young), Err(_)) => Ok(Read { matchers: young, warning: None }),
        (Err(e), Ok(old)) => {
            let suggestion = Matchers::new(old.clone());
            let warning =
                format!("matchers `{text}` are valid in the classic syntax only ({e}); better: `{suggestion}`");
            Ok(Read { matchers: old, warning: Some(warning) })
        }
        (Err(young), Err(old)) => Err(MatcherError { column: young.column, message: old.message }),
    }
}

fn order(op: MatchOp) -> u8 {
    match op {
        MatchOp::Equal => 0,
        MatchOp::NotEqual => 1,
        MatchOp::Regex => 2,
        MatchOp::NotRegex => 3,
    }
}

impl Matchers {
    /// Sorts matchers by name, value and operator, so that the same set is written in one way.
    pub fn new(mut matchers: Vec<Matcher>) -> Self {
        matchers.sort_by(|a, b| (&a.name, &a.value, order(a.op)).cmp(&(&b.name, &b.value, order(b.op))));
        Self(matchers)
    }

    /// Keeps matchers in their order.
    pub fn in_order(matchers: Vec<Matcher>) -> Self {
        Self(matchers)
    }

    /// Says whether labels match all.
    pub fn matches(&self, labels: &LabelSet) -> bool {
        self.0.iter().all(|m| m.matches(labels.get(&m.name)))
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Walks them in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Matcher> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Matchers {
    type Item = &'a Matcher;
    type IntoIter = std::slice::Iter<'a, Matcher>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Writes a matcher as group keys show it.
pub fn show(matcher: &Matcher) -> String {
    let op = matcher.op.as_str();
    if matcher.name.contains(is_reserved) {
        return format!("{}{op}{}", quote(&matcher.name), quote(&matcher.value));
    }
    let value = matcher.value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
    format!("{}{op}\"{value}\"", matcher.name)
}

impl fmt::Display for Matchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().map(show).collect();
        write!(f, "{{{}}}", shown.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        read(text).map(|r| r.matchers.iter().map(show).collect::<Vec<_>>().join(",")).map_err(|e| e.message)
    }

    #[test]
    fn both_syntaxes() {
        let check = |text: &str, expected: &str| assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        check("{foo=bar}", "foo=\"bar\"");
        check("a=\"x\\ty\"", "a=\"x\\\\ty\"");
        check("{\"a b\"=~\"x.*\"}", "\"a b\"=~\"x.*\"");
        check("{foo=`}", "foo=\"`\"");
        check("job=", "job=\"\"");
        check("", "");
        assert!(read("a=\"x\\ty\"").expect("valid").warning.is_some());
        assert!(read("a=\"x\"").expect("valid").warning.is_none());
        assert_eq!(shown("job=\"value"), Err("matcher value contains unescaped double quote: \"value".to_owned()));
    }

    #[test]
    fn one_at_a_time() {
        let shown = |text: &str| {
            read_one(text, &mut Patterns::default()).map(|r| r.matchers.iter().map(show).collect::<String>())
        };
        assert_eq!(shown(" a = 1 ").as_deref(), Ok("a=\"1\""));
        assert_eq!(shown("a=1,b=2").as_deref(), Ok("a=\"1,b=2\""));
        assert_eq!(shown("\"a b\"=1").as_deref(), Ok("\"a b\"=\"1\""));
        for bad in ["", "a", "{a=1}", "a=}", "{a=1", "a=\"1\",b=\"2\"", "a=~\"(\""] {
            assert!(read_one(bad, &mut Patterns::default()).is_err(), "{bad}");
        }
    }

    /// Both syntaxes read a pattern, which is compiled once, and takes its room once.
    #[test]
    fn patterns_are_bounded_together() {
        let mut patterns = Patterns::within("a request", 2 << 20);
        let text = |i: usize| format!(r#"a=~"\w{{15}}{i:04}""#);
        for _ in 0..100 {
            read_among(&text(0), &mut patterns).expect("the same one");
        }
        let refused = (1..100).find_map(|i| read_among(&text(i), &mut patterns).err()).expect("all would be too large");
        assert!(refused.message.contains("the regular expressions of a request take more than"), "{refused}");
    }

    #[test]
    fn sorted_and_shown() {
        let matchers = Matchers::new(read("b!=\"2\",a=~\"1\",a=\"1\"").expect("valid").matchers);
        assert_eq!(matchers.to_string(), "{a=\"1\",a=~\"1\",b!=\"2\"}");
        let labels = LabelSet::from_pairs([("a", "1")]);
        assert!(matchers.matches(&labels));
        assert!(!matchers.matches(&LabelSet::from_pairs([("a", "1"), ("b", "2")])));
    }

    proptest::proptest! {
        #[test]
        fn written_and_read_back(name in "[^\u{0}]{1,12}", value in ".{0,20}", not in proptest::prelude::any::<bool>()) {
            let op = if not { MatchOp::NotEqual } else { MatchOp::Equal };
            let matcher = matcher(name, op, value).expect("no pattern");
            let got = parse_utf8(&show(&matcher));
            proptest::prop_assert_eq!(got, Ok(vec![matcher]));
        }
    }

    /// Where both syntaxes read a text and differ the older one counts, where only one reads it that one does.
    #[test]
    fn which_syntax_counts() {
        for (text, expected, is_warned) in [
            ("{a=b}", "a=\"b\"", false),
            ("{a=\"b\"}", "a=\"b\"", false),
            ("{a=\"b\\\\c\"}", "a=\"b\\\\c\"", false),
            ("{a=\"b\\nc\"}", "a=\"b\\nc\"", false),
            // Read by both, each in its way.
            ("{a=\"b\\u0041\"}", "a=\"b\\\\u0041\"", true),
            // Only the older one reads what stands without quotes.
            ("{a=b c}", "a=\"b c\"", true),
            ("{a=(x|y)!}", "a=\"(x|y)!\"", true),
            ("a==b", "a=\"=b\"", true),
            ("{a=b}}", "a=\"b}\"", true),
            // Only the younger one reads names of any letters.
            ("{ä=b}", "ä=\"b\"", false),
            ("{a.b=c}", "a.b=\"c\"", false),
            ("{\"a b\"=c}", "\"a b\"=\"c\"", false),
        ] {
            let got = read(text).expect(text);
            let shown = got.matchers.iter().map(show).collect::<Vec<_>>().join(",");
            assert_eq!((shown.as_str(), got.warning.is_some()), (expected, is_warned), "{text}");
        }
        let warned = read("{a=b c}").expect("valid").warning.expect("only one reads it");
        assert!(
            warned.contains("valid in the classic syntax only") && warned.contains("better: `{a=\"b c\"}`"),
            "{warned}"
        );
        let told = read("{a-b}").expect_err("neither");
        // The words are those of the older one, the column that of the younger one.
        assert_eq!((told.message.as_str(), told.column), ("bad matcher format: a-b", 5));
    }

    /// A label that is missing is the empty text, as in Prometheus.
    #[test]
    fn missing_labels() {
        let labels = LabelSet::from_pairs([("a", "1"), ("b", "x\ny")]);
        for (text, expected) in [
            ("", true),
            ("a=1", true),
            ("a=2", false),
            ("a=1,b=2", false),
            ("c=\"\"", true),
            ("a=\"\"", false),
            ("c!=\"\"", false),
            ("a!=\"\"", true),
            ("c!=1", true),
            ("c=~\".*\"", true),
            ("c=~\".+\"", false),
            ("c!~\".+\"", true),
            // Patterns match the whole value, lines and all.
            ("b=~x", false),
            ("b=~\"x.y\"", true),
            ("b!~x", true),
            ("a=~\"1|2\"", true),
            ("a=~\"10|2\"", false),
            ("A=1", false),
        ] {
            let matchers = Matchers::new(read(text).expect(text).matchers);
            assert_eq!(matchers.matches(&labels), expected, "{text}");
        }
        assert!(Matchers::default().is_empty() && Matchers::default().matches(&labels));
    }

    /// Group keys show them: what needs quotes has them, and values are escaped as Alertmanager does.
    #[test]
    fn shown_in_group_keys() {
        for (name, op, value, expected) in [
            ("a", MatchOp::Equal, "b", "a=\"b\""),
            ("a", MatchOp::NotEqual, "", "a!=\"\""),
            ("a", MatchOp::Regex, "b.*", "a=~\"b.*\""),
            ("a", MatchOp::NotRegex, "\\d", "a!~\"\\\\d\""),
            ("a", MatchOp::Equal, "\"", "a=\"\\\"\""),
            ("a", MatchOp::Equal, "x\ny", "a=\"x\\ny\""),
            ("a", MatchOp::Equal, "x\ty", "a=\"x\ty\""),
            ("ä.b", MatchOp::Equal, "c", "ä.b=\"c\""),
            ("a b", MatchOp::Equal, "x\ty", "\"a b\"=\"x\\ty\""),
            ("a,b", MatchOp::Equal, "c", "\"a,b\"=\"c\""),
            ("a{", MatchOp::Equal, "c", "\"a{\"=\"c\""),
            ("a'", MatchOp::Equal, "c", "\"a'\"=\"c\""),
        ] {
            assert_eq!(show(&matcher(name, op, value).expect(value)), expected);
        }
        let sorted = Matchers::new(read("b=1,a=~x,a=x,a!=x,a!~x,a=w").expect("valid").matchers);
        assert_eq!(sorted.to_string(), "{a=\"w\",a=\"x\",a!=\"x\",a=~\"x\",a!~\"x\",b=\"1\"}");
        assert_eq!(Matchers::default().to_string(), "{}");
    }
}
