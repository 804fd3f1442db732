//! Exports of a family as texts, part by part: all of it at once takes ten times as much memory as what is sent.

use serde_json::{Map, Value, json};

use super::yaml;

/// The format that an export states.
pub(super) const FORMAT: &str = "quiver/1";
/// Entities that are read at first, when nobody knows how long they are.
pub(super) const FIRST: usize = 500;
/// Fewest and most that are read at once.
const AT_ONCE: (usize, usize) = (50, 10_000);
/// About as many bytes as are written at once.
const PART_BYTES: usize = 4 << 20;

/// How many are read next, after so many have taken so many bytes.
pub(super) fn next(count: usize, bytes: usize) -> usize {
    let each = (bytes / count.max(1)).max(1);
    (PART_BYTES / each).clamp(AT_ONCE.0, AT_ONCE.1)
}

/// An export that is being written.
pub(super) struct Exported {
    family: &'static str,
    is_yaml: bool,
    /// Whether any of its items has been written.
    has_begun: bool,
}

impl Exported {
    /// Begins with nothing.
    pub(super) fn new(family: &'static str, is_yaml: bool) -> Self {
        Self { family, is_yaml, has_begun: false }
    }

    /// What comes before its items.
    pub(super) fn head(&self) -> String {
        let head = json!({"family": self.family, "format": FORMAT});
        if self.is_yaml {
            return yaml::write(&head);
        }
        let mut text = head.to_string();
        text.pop();
        text.push_str(",\"items\":[");
        text
    }

    /// The next items.
    pub(super) fn items(&mut self, items: Vec<Map<String, Value>>) -> String {
        if items.is_empty() {
            return String::new();
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let items: Vec<Value> = items.into_iter().map(Value::Object).collect();
        if self.is_yaml {
            let text = yaml::write(&json!({ "items": items }));
            return if is_first { text } else { text.strip_prefix("items:\n").unwrap_or(&text).to_owned() };
        }
        let mut text = String::new();
        for (n, item) in items.iter().enumerate() {
            if n > 0 || !is_first {
                text.push(',');
            }
            text.push_str(&item.to_string());
        }
        text
    }

    /// What comes behind them.
    pub(super) fn end(&self) -> String {
        match (self.is_yaml, self.has_begun) {
            (false, _) => "]}".to_owned(),
            (true, false) => yaml::write(&json!({"items": []})),
            (true, true) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_config::families::SEGMENTS;

    use super::*;

    /// In parts it is the same text as at once.
    #[test]
    fn parts_are_those_of_the_whole() {
        let item =
            |n: usize| json!({"name": format!("n{n}"), "labels": {"a": "1"}, "list": [[], {"x": [n]}], "null": null});
        let map = |n: usize| item(n).as_object().expect("an object").clone();
        for parts in [&[][..], &[0], &[1], &[3], &[0, 2, 0, 1, 0]] {
            let total: usize = parts.iter().sum();
            let whole =
                json!({"format": "quiver/1", "family": "segments", "items": (0..total).map(item).collect::<Vec<_>>()});
            for is_yaml in [false, true] {
                let mut exported = Exported::new("segments", is_yaml);
                let (mut text, mut at) = (exported.head(), 0);
                for part in parts {
                    text.push_str(&exported.items((at..at + part).map(map).collect()));
                    at += part;
                }
                text.push_str(&exported.end());
                let expected = if is_yaml { yaml::write(&whole) } else { whole.to_string() };
                assert_eq!(text, expected, "{parts:?}");
                if is_yaml {
                    assert_eq!(yaml::read(text.as_bytes(), &SEGMENTS).expect("YAML"), whole, "{parts:?}");
                }
            }
        }
    }

    #[test]
    fn parts_are_about_as_long() {
        assert_eq!(next(500, 500 * 450), 9320);
        assert_eq!(next(500, 500 * 65_536), 64);
        assert_eq!(next(500, 500 << 20), 50);
        assert_eq!((next(0, 0), next(3, 3)), (10_000, 10_000));
    }
}
