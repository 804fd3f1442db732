//! The serialized form of a matcher: name, operator and text. A pattern is compiled again when it is read, within the
//! usual limits.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{MatchOp, Matcher};

impl Serialize for Matcher {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.name, self.op, &self.value).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Matcher {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (name, op, value) = <(String, MatchOp, String)>::deserialize(deserializer)?;
        Self::new(name, op, value).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use crate::{MatchOp, Matcher, MillisRange, SeriesSelector};

    #[test]
    fn matchers_come_back() {
        let list = (0..20).map(|i| format!("v{i}")).collect::<Vec<_>>().join("|");
        let matchers = vec![
            Matcher::equal("a", ""),
            Matcher::new("b", MatchOp::NotEqual, "ä").expect("valid"),
            Matcher::new("c", MatchOp::Regex, "x.*|(?i)y").expect("valid"),
            Matcher::new("d", MatchOp::NotRegex, list).expect("valid"),
        ];
        let labels = Some(["a".to_owned(), "le".to_owned()].into());
        let selector = SeriesSelector { matchers, range: MillisRange { min: i64::MIN, max: -1 }, labels };
        let bytes = postcard::to_allocvec(&selector).expect("written");
        let back: SeriesSelector = postcard::from_bytes(&bytes).expect("read");
        assert_eq!(back, selector);
        assert!(back.matchers[2].matches("Y") && !back.matchers[3].matches("v19") && back.matchers[3].matches("v20"));
        assert_eq!(
            back.matchers.iter().map(Matcher::is_compiled).collect::<Vec<_>>(),
            selector.matchers.iter().map(Matcher::is_compiled).collect::<Vec<_>>()
        );
    }

    #[test]
    fn patterns_keep_their_limits() {
        let written = |pattern: &str| postcard::to_allocvec(&("a", MatchOp::Regex, pattern)).expect("written");
        let read = |pattern: &str| postcard::from_bytes::<Matcher>(&written(pattern)).is_ok();
        assert!(read("a+"));
        assert!(!read("("));
        assert!(!read("((x{100}){100}){100}"));
    }
}
