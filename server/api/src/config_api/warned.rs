//! What is said of an entity that is taken as it is and may not mean what its writer thinks (header `Warning`).

use quiver_alerting::matchers;
use quiver_config::families::{INHIBIT_RULES, ROUTES, RULES};
use serde_json::{Map, Value};

use super::{Ask, rules};

/// Longest text of a header.
const CHARS_MAX: usize = 1000;

/// What is to be said of an entity that was written.
pub(super) async fn of(ask: &Ask, shown: &Map<String, Value>) -> Option<String> {
    match ask.place.family.name {
        name if name == RULES.name => rules::stands_twice(ask, shown).await,
        name if name == ROUTES.name => read_two_ways(shown, &["matchers"]),
        name if name == INHIBIT_RULES.name => read_two_ways(shown, &["source_matchers", "target_matchers"]),
        _ => None,
    }
}

/// Warns of matchers that Alertmanager's two syntaxes do not read alike.
fn read_two_ways(shown: &Map<String, Value>, fields: &[&str]) -> Option<String> {
    let lists = fields.iter().filter_map(|field| shown.get(*field)?.as_array());
    let texts = lists.flatten().filter_map(Value::as_str);
    let warnings: Vec<String> = texts.filter_map(|text| matchers::read(text).ok()?.warning).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

/// A warning as the header has it: between quotes, in one line.
pub(super) fn header_text(warning: &str) -> String {
    let mut text = String::from("199 - \"");
    for c in warning.chars().take(CHARS_MAX) {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn matchers_of_two_meanings() {
        let Value::Object(rule) = json!({"source_matchers": ["a=b"], "target_matchers": ["a=\"x\\ty\""]}) else {
            return;
        };
        let warning = read_two_ways(&rule, &["source_matchers", "target_matchers"]).expect("a warning");
        assert!(warning.contains("a=\"x\\ty\""), "{warning}");
        assert_eq!(read_two_ways(&rule, &["source_matchers"]), None);
        assert_eq!(header_text("a=\"x\\ty\"\n"), "199 - \"a=\\\"x\\\\ty\\\" \"");
    }

    #[test]
    fn warnings_stand_in_one_line_between_quotes() {
        let check = |warning: &str, expected: &str| assert_eq!(header_text(warning), expected, "{warning:?}");
        check("", "199 - \"\"");
        check("fine", "199 - \"fine\"");
        check("a\r\nX-Evil: 1", "199 - \"a  X-Evil: 1\"");
        check("a\u{0}\u{7f}b", "199 - \"a  b\"");
        check("\"", "199 - \"\\\"\"");
        check("\\\"", "199 - \"\\\\\\\"\"");
        check("é", "199 - \"é\"");
        // The length is that of the text, not of what escapes make of it.
        let frame = "199 - \"\"".len();
        assert_eq!(header_text(&"x".repeat(CHARS_MAX)).len(), CHARS_MAX + frame);
        assert_eq!(header_text(&"x".repeat(CHARS_MAX + 1)).len(), CHARS_MAX + frame);
        assert_eq!(header_text(&"\"".repeat(CHARS_MAX + 1)).len(), 2 * CHARS_MAX + frame);
    }

    #[test]
    fn fields_that_hold_no_matchers_say_nothing() {
        for body in [
            json!({}),
            json!({"matchers": null}),
            json!({"matchers": "a=b"}),
            json!({"matchers": []}),
            json!({"matchers": [5, null]}),
            json!({"matchers": ["=", "a=~("]}),
            json!({"matchers": ["a=b", "c=\"d\""]}),
        ] {
            assert_eq!(read_two_ways(body.as_object().expect("an object"), &["matchers"]), None, "{body}");
        }
    }
}
