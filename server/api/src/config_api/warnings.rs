//! Warnings about entities that are accepted but may not mean what their author thinks (header `Warning`).

use quiver_alerting::matchers;
use quiver_config::families::{INHIBIT_RULES, ROUTES, RULES};
use serde_json::{Map, Value};

use super::request::Ask;
use super::rules;

/// The warning for an entity that was written, if there is any.
pub(super) async fn of(ask: &Ask, shown: &Map<String, Value>) -> Option<String> {
    match ask.place.family.name {
        name if name == RULES.name => rules::stands_twice(ask, shown).await,
        name if name == ROUTES.name => read_two_ways(shown, &["matchers"]),
        name if name == INHIBIT_RULES.name => read_two_ways(shown, &["source_matchers", "target_matchers"]),
        _ => None,
    }
}

/// Warns of matchers that mean different things in Alertmanager's two syntaxes.
fn read_two_ways(shown: &Map<String, Value>, fields: &[&str]) -> Option<String> {
    let lists = fields.iter().filter_map(|field| shown.get(*field)?.as_array());
    let texts = lists.flatten().filter_map(Value::as_str);
    let warnings: Vec<String> = texts.filter_map(|text| matchers::read(text).ok()?.warning).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
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
