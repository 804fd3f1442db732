//! Keeps stored secrets with their recipients. Users who may edit receivers may not read the secrets in them, so they
//! must not be able to have a secret sent to a host of their own.

use std::collections::BTreeSet;

use quiver_alerting::config::{Config, borrowed_secrets, moved_secrets, receiver_secrets};
use quiver_config::families::FAMILIES;
use quiver_config::{ComponentEntity, FieldError, Problem};
use quiver_yaml::problem::{Code, Place, Problems};
use serde_json::Value;

use crate::alerting::stored_policy::{ComposedPolicy, secrets};

/// Why a secret is refused that is kept.
const WHY: &str = "must be given again, since it would be sent elsewhere than before: an address has changed, or what \
                   protects the way to it";

/// The texts at some places of a body.
fn texts_at(body: &Value, places: &[String]) -> BTreeSet<String> {
    places.iter().filter_map(|at| body.pointer(at)?.as_str().map(str::to_owned)).collect()
}

/// Refuses a change that has secrets sent to others than before, but those that are `given` with it.
pub(crate) fn check(
    before: &[ComponentEntity],
    after: &[ComponentEntity],
    changed: &[String],
    given: &BTreeSet<String>,
) -> Result<(), Problem> {
    let mut kept = BTreeSet::new();
    for part in after {
        let Some(family) = FAMILIES.iter().find(|family| family.name == part.family) else { continue };
        let places = secrets(family, &part.body);
        if !places.is_empty() {
            kept.extend(texts_at(&Value::Object(part.body.clone()), &places));
        }
    }
    kept.retain(|secret| !given.contains(secret));
    if kept.is_empty() {
        return Ok(());
    }
    let composed = ComposedPolicy::of(after);
    let mut problems = Problems::default();
    for path in moved_secrets(&ComposedPolicy::of(before).value, &composed.value, &kept) {
        let (place, code) = (Place::default(), Code::Required);
        problems.push(quiver_yaml::problem::Problem { place, path, code, message: WHY.to_owned() });
    }
    if problems.is_empty() { Ok(()) } else { Err(Problem::invalid(composed.errors(&problems, changed))) }
}

/// Refuses to try a receiver that would send secrets of the live globals elsewhere than these are sent to.
pub(crate) fn check_tried(receiver: &Value, tried: &Config, live: &Config) -> Result<(), Problem> {
    let given = texts_at(receiver, &receiver_secrets(receiver));
    let error = |path: String| {
        let rest = path.strip_prefix("/receivers/0").unwrap_or(&path);
        FieldError::new(format!("/receiver{rest}"), "REQUIRED", WHY)
    };
    let errors: Vec<FieldError> = borrowed_secrets(live, tried, &given).into_iter().map(error).collect();
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

#[cfg(test)]
mod tests {
    use quiver_config::Family;
    use quiver_config::families::{POLICY_GLOBAL, RECEIVERS};
    use serde_json::json;

    use super::*;

    fn part(family: &'static Family, id: &str, body: Value) -> ComponentEntity {
        let Value::Object(body) = body else { panic!("an object") };
        ComponentEntity { family: family.name, id: id.to_owned(), body }
    }

    /// Globals with an address, and a receiver with a secret for it.
    fn parts(host: &str, to: &str) -> [ComponentEntity; 2] {
        let options = json!({"smtp_smarthost": host, "smtp_auth_password": "s3c1", "opsgenie_api_url": to});
        let own = json!({"name": "r", "opsgenie_configs": [{"api_key": "s3c2"}], "email_configs": [{"to": "a", "from": "b"}]});
        [part(&POLICY_GLOBAL, "g", json!({"options": options})), part(&RECEIVERS, "r", own)]
    }

    #[test]
    fn errors_name_the_secret() {
        let told = |after: &[ComponentEntity], changed: &str, given: &[&str]| {
            let given = given.iter().map(|text| (*text).to_owned()).collect();
            let found = check(&parts("h:25", "http://h/"), after, &[changed.to_owned()], &given);
            let errors = found.err().map(|problem| problem.errors).unwrap_or_default();
            errors.into_iter().map(|e| format!("{} {}", e.field, e.code)).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(told(&parts("h:25", "http://h/x"), "g", &[]), none);
        assert_eq!(told(&parts("g:25", "http://h/"), "g", &[]), ["/smtp_auth_password REQUIRED"]);
        assert_eq!(told(&parts("g:25", "http://h/"), "g", &["s3c1"]), none);
        // That of another entity is named in the text.
        assert_eq!(told(&parts("h:25", "http://g/"), "g", &[]), [" REQUIRED"]);
        assert_eq!(told(&parts("h:25", "http://g/"), "r", &[]), ["/opsgenie_configs/0/api_key REQUIRED"]);
        let [global, mut own] = parts("h:25", "http://h/");
        own.body.insert("email_configs".to_owned(), json!([{"to": "a", "from": "b", "smarthost": "g:25"}]));
        assert_eq!(told(&[global, own], "r", &[]), ["/email_configs/0/auth_password REQUIRED"]);
    }
}
