//! Makes silences from configuration bodies.

use quiver_alerting::matchers::Matchers;
use quiver_alerting::silences::Silence;
use quiver_config::families::SILENCES;
use quiver_config::{FieldError, Problem, ReadOnlyPolicy, Result};
use quiver_types::matcher::Patterns;
use serde_json::{Map, Value, json};

use super::request::Ask;
use super::silence_entity::{entity, time};
use crate::alerting::alerts::matcher_form::read_matcher;
use crate::alerting::alerts::read_matchers;
use crate::alerting::policy::time_of;

/// Most matchers per silence.
const MATCHERS_MAX: usize = 100;
/// Longest `createdBy`, in characters.
const NAME_MAX: usize = 200;

/// Reads the matchers of a body: strings as in routes, or objects. The patterns of a request are bounded together.
pub(super) fn matchers(body: &Map<String, Value>, patterns: &mut Patterns) -> Result<Matchers> {
    let list = body.get("matchers").and_then(Value::as_array);
    let list = list.ok_or_else(|| Problem::field("/matchers", "REQUIRED", "a list of matchers is wanted"))?;
    let too_many = || Problem::field("/matchers", "LIMIT_EXCEEDED", format!("at most {MATCHERS_MAX} matchers"));
    if list.len() > MATCHERS_MAX {
        return Err(too_many());
    }
    let mut all = Vec::new();
    for (n, item) in list.iter().enumerate() {
        let bad = |text: String| Problem::field(format!("/matchers/{n}"), "INVALID_MATCHER", text);
        match item {
            Value::String(text) => {
                let read = read_matchers([text.as_str()].into_iter(), patterns).map_err(|e| bad(e.message))?;
                all.extend(read.iter().cloned());
            }
            item => {
                let mut item = item.clone();
                // Matchers of routes have these names.
                if let Some(map) = item.as_object_mut() {
                    map.entry("isRegex").or_insert(Value::Bool(false));
                }
                all.push(read_matcher(&item, patterns).map_err(|e| bad(e.message))?);
            }
        }
        // One string may contain several matchers.
        if all.len() > MATCHERS_MAX {
            return Err(too_many());
        }
    }
    Ok(Matchers::in_order(all))
}

fn name_of(body: &mut Map<String, Value>, default: &str) -> Result<String> {
    match body.remove("createdBy") {
        None | Some(Value::Null) => Ok(default.to_owned()),
        Some(Value::String(text)) if text.chars().count() <= NAME_MAX => Ok(text),
        Some(Value::String(_)) => {
            Err(Problem::field("/createdBy", "TOO_LONG", format!("must have at most {NAME_MAX} characters")))
        }
        Some(_) => Err(Problem::field("/createdBy", "INVALID_TYPE", "must be a text")),
    }
}

/// Reads a time of a body. If it equals the present time as shown, which is rounded, the exact present time is kept.
fn moment(body: &Map<String, Value>, name: &str, present: Option<i64>, default: i64) -> Result<i64> {
    let text = body.get(name).and_then(Value::as_str);
    match present {
        Some(ns) if text.is_none_or(|text| text == time(ns)) => Ok(ns),
        _ => time_of(text.map(Value::from).as_ref(), &format!("/{name}"), default),
    }
}

/// Makes a silence from a body, replacing the present one if there is any.
pub(super) fn silence(
    ask: &Ask,
    present: Option<&Silence>,
    mut body: Map<String, Value>,
    reading: ReadOnlyPolicy,
) -> Result<Silence> {
    let now = ask.alerts_now();
    let created_by = name_of(&mut body, present.map_or(ask.caller.name.as_str(), |s| &s.created_by))?;
    for name in ["startsAt", "endsAt"] {
        // Unix seconds are accepted as well.
        if let Some(number @ Value::Number(_)) = body.get(name) {
            let ns = time_of(Some(number), &format!("/{name}"), now)?;
            body.insert(name.to_owned(), json!(time(ns)));
        }
    }
    let before = present.map(|silence| entity(silence, now));
    let body = ask.config.read_outside(&SILENCES, before.as_ref(), body, reading)?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let labels = body.get("labels").and_then(Value::as_object).into_iter().flatten();
    let made = Silence {
        id: present.map(|s| s.id.clone()).unwrap_or_default(),
        matchers: matchers(&body, &mut ask.patterns.lock())?,
        starts_at: moment(&body, "startsAt", present.map(|s| s.starts_at), now)?,
        ends_at: moment(&body, "endsAt", present.map(|s| s.ends_at), now)?,
        created_by,
        comment: text("comment"),
        description: text("description"),
        labels: labels.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect(),
        ..present.cloned().unwrap_or_default()
    };
    if present == Some(&made) {
        return Ok(made);
    }
    let errors = wrong(&made, now);
    if errors.is_empty() { Ok(made) } else { Err(Problem::invalid(errors)) }
}

/// Checks a silence; each error names its field.
fn wrong(silence: &Silence, now: i64) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut put = |field: &str, code: &'static str, text: &str| errors.push(FieldError::new(field, code, text));
    if silence.matchers.is_empty() {
        put("/matchers", "REQUIRED", "at least one matcher is wanted");
    } else if silence.names_nothing() {
        put("/matchers", "INVALID_MATCHER", "at least one must not match the empty text");
    }
    if silence.matchers.iter().any(|m| m.name.is_empty()) {
        put("/matchers", "INVALID_MATCHER", "a label has a name");
    }
    if silence.ends_at <= silence.starts_at {
        put("/endsAt", "INVALID_VALUE", "must come after the start");
    } else if silence.ends_at <= now {
        put("/endsAt", "INVALID_VALUE", "must not be past");
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matchers_of(text: &str) -> Matchers {
        matchers(json!({"matchers": [text]}).as_object().unwrap(), &mut Patterns::default()).unwrap()
    }

    #[test]
    fn what_is_wrong_lies_at_its_field() {
        let check = |matchers: &str, ends_at: i64, expected: &[&str]| {
            let silence = Silence { matchers: matchers_of(matchers), starts_at: 5, ends_at, ..Silence::default() };
            let found: Vec<String> =
                wrong(&silence, 10).into_iter().map(|e| format!("{} {}", e.field, e.code)).collect();
            assert_eq!(found, expected, "{matchers}");
        };
        check("a=b", 20, &[]);
        check("a=~\".*\"", 20, &["/matchers INVALID_MATCHER"]);
        check("a=b", 5, &["/endsAt INVALID_VALUE"]);
        check("a=b", 9, &["/endsAt INVALID_VALUE"]);
    }

    #[test]
    fn entities_show_what_silences_say() {
        let silence = Silence {
            id: "i".to_owned(),
            matchers: matchers_of("a=b"),
            starts_at: 1_000_000,
            ends_at: 2_000_000_000,
            created_by: "me".to_owned(),
            version: 3,
            labels: [("team".to_owned(), "x".to_owned())].into(),
            ..Silence::default()
        };
        let shown = entity(&silence, 0).shown();
        assert_eq!(
            (&shown["state"], &shown["version"], &shown["createdBy"]),
            (&json!("pending"), &json!(3), &json!("me"))
        );
        assert_eq!(shown["matchers"], json!([{"name": "a", "value": "b", "isRegex": false, "isEqual": true}]));
        assert_eq!(moment(&shown, "endsAt", Some(2_000_000_123), 0).unwrap(), 2_000_000_123, "digits stay");
        assert_eq!(moment(&shown, "endsAt", None, 0).unwrap(), 2_000_000_000);
    }

    /// The matchers of a body; or the field of the first error and its code.
    fn read(list: Value) -> std::result::Result<String, (String, &'static str)> {
        let body = json!({ "matchers": list });
        let told = |problem: Problem| (problem.errors[0].field.clone(), problem.errors[0].code);
        matchers(body.as_object().expect("an object"), &mut Patterns::default())
            .map(|all| all.to_string())
            .map_err(told)
    }

    #[test]
    fn matchers_are_texts_or_objects() {
        let fine = |list: Value, expected: &str| assert_eq!(read(list), Ok(expected.to_owned()));
        fine(json!(["a=b"]), "{a=\"b\"}");
        fine(json!(["{z=\"1\", a!=\"2\"}"]), "{z=\"1\",a!=\"2\"}");
        fine(json!(["z=1", "a=~x|y"]), "{z=\"1\",a=~\"x|y\"}");
        fine(json!([{"name": "a", "value": "b"}]), "{a=\"b\"}");
        fine(json!([{"name": "a", "value": "b", "isEqual": false}]), "{a!=\"b\"}");
        fine(json!([{"name": "a", "value": "b", "isRegex": true}]), "{a=~\"b\"}");
        fine(json!([{"name": "a", "value": "b", "isRegex": true, "isEqual": false}]), "{a!~\"b\"}");
        fine(json!([{"name": "a", "value": ""}, "c!=d"]), "{a=\"\",c!=\"d\"}");
        let wrong = |list: Value, field: &str, code: &'static str| {
            assert_eq!(read(list.clone()), Err((field.to_owned(), code)), "{list}");
        };
        wrong(json!(null), "/matchers", "REQUIRED");
        wrong(json!("a=b"), "/matchers", "REQUIRED");
        wrong(json!({"a": "b"}), "/matchers", "REQUIRED");
        wrong(json!(["a=b", "=b"]), "/matchers/1", "INVALID_MATCHER");
        wrong(json!(["a=~("]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([5]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([null]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([["a=b"]]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([{"name": "a"}]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([{"value": "a"}]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([{"name": "a", "value": 1}]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([{"name": "a", "value": "b", "isEqual": "no"}]), "/matchers/0", "INVALID_MATCHER");
        wrong(json!([{"name": "a", "value": "(", "isRegex": true}]), "/matchers/0", "INVALID_MATCHER");
    }

    #[test]
    fn as_many_matchers_as_there_may_be() {
        let of = |count: usize, text: &str| read(json!(vec![text; count])).err().map(|(_, code)| code);
        assert_eq!((of(100, "a=b"), of(101, "a=b")), (None, Some("LIMIT_EXCEEDED")));
        // A string with several matchers counts as that many.
        assert_eq!((of(50, "{a=\"b\",c=\"d\"}"), of(51, "{a=\"b\",c=\"d\"}")), (None, Some("LIMIT_EXCEEDED")));
    }

    #[test]
    fn who_wants_a_silence() {
        let check = |body: Value, expected: std::result::Result<&str, &str>| {
            let mut map = body.as_object().expect("an object").clone();
            let name = name_of(&mut map, "me").map_err(|problem| problem.errors[0].code);
            assert_eq!(name.as_deref().map_err(|code| *code), expected, "{body}");
            assert_eq!(map.get("createdBy"), None, "it is taken out");
        };
        check(json!({}), Ok("me"));
        check(json!({"createdBy": null}), Ok("me"));
        check(json!({"createdBy": ""}), Ok(""));
        check(json!({"createdBy": "Ann"}), Ok("Ann"));
        let (longest, longer) = ("ä".repeat(NAME_MAX), "ä".repeat(NAME_MAX + 1));
        check(json!({ "createdBy": longest }), Ok(&longest));
        check(json!({ "createdBy": longer }), Err("TOO_LONG"));
        check(json!({"createdBy": 5}), Err("INVALID_TYPE"));
        check(json!({"createdBy": ["Ann"]}), Err("INVALID_TYPE"));
    }

    #[test]
    fn times_of_silences() {
        let check = |body: Value, present: Option<i64>, expected: std::result::Result<i64, &str>| {
            let told = moment(body.as_object().expect("an object"), "endsAt", present, 7);
            assert_eq!(told.map_err(|problem| problem.errors[0].code), expected, "{body} {present:?}");
        };
        check(json!({}), None, Ok(7));
        check(json!({}), Some(5), Ok(5));
        check(json!({"endsAt": null}), Some(5), Ok(5));
        check(json!({"endsAt": "1970-01-01T00:00:01Z"}), None, Ok(1_000_000_000));
        check(json!({"endsAt": "1970-01-01T01:00:01+01:00"}), None, Ok(1_000_000_000));
        check(json!({"endsAt": "1970-01-01T00:00:01.000Z"}), Some(1_000_000_999), Ok(1_000_000_999));
        check(json!({"endsAt": "1970-01-01T00:00:01.001Z"}), Some(1_000_000_999), Ok(1_001_000_000));
        check(json!({"endsAt": "tomorrow"}), None, Err("INVALID_VALUE"));
        check(json!({"endsAt": "9999-01-01T00:00:00Z"}), None, Err("INVALID_VALUE"));
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let found = |silence: &Silence| -> Vec<String> {
            wrong(silence, 10).into_iter().map(|e| format!("{} {}", e.field, e.code)).collect()
        };
        let none = Silence { starts_at: 20, ends_at: 20, ..Silence::default() };
        assert_eq!(found(&none), ["/matchers REQUIRED", "/endsAt INVALID_VALUE"]);
        // A silence that ends when it begins never takes effect; one that ends now is over.
        let at =
            |starts_at, ends_at| Silence { matchers: matchers_of("a=b"), starts_at, ends_at, ..Silence::default() };
        assert_eq!((found(&at(1, 10)).len(), found(&at(1, 11)).len(), found(&at(30, 31)).len()), (1, 0, 0));
        let of = |text: &str| {
            found(&Silence { matchers: matchers_of(text), starts_at: 1, ends_at: 20, ..Silence::default() })
        };
        assert_eq!(of("a=~\"b?\""), ["/matchers INVALID_MATCHER"]);
        // With exclusions it names something: everything else may be silenced.
        assert_eq!((of("a!=b").len(), of("a!~\"b.*\"").len()), (0, 0));
    }
}
