//! Silences over Alertmanager's API. A caller without scope `*` sees and sets only silences with an `=` matcher on
//! its service.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use chrono::Datelike as _;
use http::StatusCode;
use quiver_alertd::router::{SilenceError, SilenceOp, date_time, nanoseconds};
use quiver_alerting::matchers::Matchers;
use quiver_alerting::silences::Silence;
use quiver_alerting::text::quote;
use quiver_types::matcher::Patterns;
use quiver_types::{Access, ChangeMode, Domain, Error, ErrorKind, Result, Right};
use serde_json::{Value, json};

use super::matcher_form::{matchers_shown, read_matcher};
use super::{answer, body_of, misfitting, refusal, time};
use crate::config_api::silence_entity::note;
use crate::identity::{RequestOrigin, caller};
use crate::request_context::RequestInfo;
use crate::state::AppState;

/// Most matchers per silence.
const MATCHERS_MAX: usize = 100;
/// Longest comment or name, in bytes.
const TEXT_MAX: usize = 4000;
/// Most bytes of the names and values of annotations.
const ANNOTATIONS_BYTES_MAX: usize = 16 << 10;

/// Whether a silence is limited to services within an access.
pub(crate) fn is_within(state: &AppState, access: &Access, silence: &Silence) -> bool {
    access.is_full() || silence.services(state.alertd.router.service_labels()).any(|service| access.allows(service))
}

pub(crate) fn shown(silence: &Silence, now: i64) -> Value {
    let matchers = matchers_shown(silence);
    let mut out = json!({
        "id": silence.id, "status": {"state": silence.state(now).as_str()}, "updatedAt": time(silence.updated_at),
        "matchers": matchers, "startsAt": time(silence.starts_at), "endsAt": time(silence.ends_at),
        "createdBy": silence.created_by, "comment": silence.comment,
    });
    // Only if there are any, as in Alertmanager.
    if !silence.annotations.is_empty() {
        out["annotations"] = json!(silence.annotations);
    }
    out
}

/// Says whether a silence has each matcher of a filter: name, operator and value are equal, as in Alertmanager.
pub(super) fn matches_filter(silence: &Silence, filter: &Matchers) -> bool {
    filter.iter().all(|wanted| silence.matchers.iter().any(|matcher| matcher == wanted))
}

fn not_found(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("silence {id} not found"))
}

fn find(state: &AppState, access: &Access, id: &str) -> Result<Silence> {
    let found = state.alertd.router.silence(id).filter(|s| is_within(state, access, s));
    found.ok_or_else(|| not_found(id))
}

/// Refuses ids that no silence can have.
fn must_be_uuid(id: &str) -> Result<()> {
    let lengths: Vec<usize> = id.split('-').map(str::len).collect();
    let sane =
        matches!(lengths.as_slice(), [32] | [8, 4, 4, 4, 12]) && id.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
    if sane { Ok(()) } else { Err(misfitting(format!("silenceID in path must be of type uuid: {}", quote(id)))) }
}

pub(super) async fn show(State(state): State<Arc<AppState>>, Path(id): Path<String>) -> Response {
    let now = state.alertd.router.now();
    let found = must_be_uuid(&id).and_then(|()| find(&state, &state.access(Domain::Alerts), &id));
    answer(found.map(|s| shown(&s, now)))
}

fn read_time(value: &Value, name: &str) -> Result<i64> {
    let text = value[name].as_str().ok_or_else(|| Error::invalid(format!("{name} in body is required")))?;
    // As Alertmanager reads it, nothing is 1970; the year 1 stands for no time. A start before now is now.
    if text.is_empty() {
        return Ok(0);
    }
    let time =
        date_time(text).ok_or_else(|| Error::invalid(format!("{name} in body must be of type date-time: {text:?}")))?;
    if time.year() <= 1 {
        return Ok(0);
    }
    nanoseconds(time).ok_or_else(|| Error::invalid(format!("{name} in body is out of range")))
}

fn read_annotations(value: &Value) -> Result<BTreeMap<String, String>> {
    let Some(map) = value.as_object() else {
        let none = value.is_null().then(BTreeMap::new);
        return none.ok_or_else(|| Error::invalid("annotations in body must be an object"));
    };
    let bytes: usize = map.iter().map(|(name, text)| name.len() + text.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        return Err(Error::invalid(format!("annotations in body have more than {ANNOTATIONS_BYTES_MAX} bytes")));
    }
    let pair = |(name, value): (&String, &Value)| {
        let text =
            value.as_str().ok_or_else(|| Error::invalid(format!("annotations.{name} in body must be a text")))?;
        Ok::<_, Error>((name.clone(), text.to_owned()))
    };
    map.iter().map(pair).collect()
}

/// What must be there of a silence and of each of its matchers, in the order in which Alertmanager looks.
const REQUIRED: [&str; 5] = ["comment", "createdBy", "endsAt", "matchers", "startsAt"];
const REQUIRED_OF_MATCHERS: [&str; 3] = ["isRegex", "name", "value"];

/// Refuses what lacks a member.
fn must_have(value: &Value, names: &[&str], before: &str) -> Result<()> {
    match names.iter().find(|name| value[**name].is_null()) {
        Some(name) => Err(misfitting(format!("{before}{name} in body is required"))),
        None => Ok(()),
    }
}

fn read(body: &[u8]) -> Result<Silence> {
    if body.is_empty() {
        return Err(misfitting("silence in body is required".to_owned()));
    }
    let value: Value = serde_json::from_slice(body).map_err(|e| Error::invalid(format!("parsing body failed: {e}")))?;
    if !value.is_object() && !value.is_null() {
        return Err(Error::invalid("parsing body failed: an object is wanted"));
    }
    must_have(&value, &REQUIRED, "")?;
    let text = |name: &str, required: bool| match &value[name] {
        Value::String(text) if text.len() <= TEXT_MAX => Ok(text.clone()),
        Value::String(_) => Err(Error::invalid(format!("{name} in body is longer than {TEXT_MAX} bytes"))),
        Value::Null if !required => Ok(String::new()),
        _ => Err(Error::invalid(format!("{name} in body is required"))),
    };
    let matchers = value["matchers"].as_array().ok_or_else(|| Error::invalid("matchers in body must be a list"))?;
    if matchers.is_empty() {
        return Err(misfitting("matchers in body should have at least 1 items".to_owned()));
    }
    if matchers.len() > MATCHERS_MAX {
        return Err(Error::invalid(format!("more than {MATCHERS_MAX} matchers")));
    }
    for (place, matcher) in matchers.iter().enumerate().filter(|(_, matcher)| matcher.is_object()) {
        must_have(matcher, &REQUIRED_OF_MATCHERS, &format!("matchers.{place}."))?;
    }
    let mut patterns = Patterns::default();
    let matchers = matchers.iter().map(|matcher| read_matcher(matcher, &mut patterns)).collect::<Result<_>>()?;
    Ok(Silence {
        id: text("id", false)?,
        matchers: Matchers::in_order(matchers),
        starts_at: read_time(&value, "startsAt")?,
        ends_at: read_time(&value, "endsAt")?,
        updated_at: 0,
        created_by: text("createdBy", true)?,
        comment: text("comment", true)?,
        annotations: read_annotations(&value["annotations"])?,
        ..Silence::default()
    })
}

fn told(error: SilenceError, id: &str) -> Error {
    match error {
        SilenceError::NotFound => not_found(id),
        SilenceError::Invalid(text) => Error::invalid(text),
        // These do not occur here.
        SilenceError::Exists | SilenceError::Stale(_) => Error::new(ErrorKind::Conflict, "the silence has changed"),
        SilenceError::Failed(e) => e,
    }
}

/// Makes a change for the caller of the current request, and notes it. Returns the id of the resulting silence.
async fn change(state: &AppState, op: SilenceOp) -> std::result::Result<String, SilenceError> {
    let caller = caller(&state.identity(), RequestInfo::current().as_ref().map(RequestOrigin::of).unwrap_or_default());
    let made = state
        .alertd
        .router
        .change_silences(vec![op], &caller.name, ChangeMode::Apply)
        .await
        .map_err(|(_, error)| error)?;
    note(state, &caller, &made).await;
    made.into_iter().next().map(|done| done.after.id).ok_or(SilenceError::NotFound)
}

pub(super) async fn set(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let done = async {
        let (_, body) = body_of(&state, request).await?;
        let mut silence = read(&body)?;
        if silence.ends_at <= silence.starts_at {
            return Err(Error::invalid("Failed to create silence: start time must be before end time"));
        }
        if silence.ends_at < state.alertd.router.now() {
            return Err(Error::invalid("Failed to create silence: end time can't be in the past"));
        }
        let access = state.identity().rights.access(Right::Operate, Domain::Alerts);
        let id = silence.id.clone();
        if !id.is_empty() {
            // Fields that this form of the API does not have are kept.
            let present = find(&state, &access, &id)?;
            (silence.description, silence.labels) = (present.description, present.labels);
        }
        if !is_within(&state, &access, &silence) {
            let names = state.alertd.router.service_labels().join("`, `");
            // The first non-empty service label names the service, so the labels before it must be required to be
            // empty.
            let text = format!(
                "a silence without an `=` matcher on a service of yours needs the right for all services: the first of \
                 `{names}`, or a later one beside `=\"\"` for those before it"
            );
            return Err(Error::new(ErrorKind::Forbidden, text));
        }
        let op = SilenceOp::Set { silence: Box::new(silence), id: None, expected: None };
        let id = change(&state, op).await.map_err(|e| told(e, &id))?;
        Ok(json!({"silenceID": id}))
    };
    answer(done.await)
}

pub(super) async fn expire(State(state): State<Arc<AppState>>, Path(id): Path<String>) -> Response {
    let done = async {
        must_be_uuid(&id)?;
        find(&state, &state.identity().rights.access(Right::Operate, Domain::Alerts), &id)?;
        let op = SilenceOp::Expire { id: id.clone(), expected: None };
        change(&state, op).await.map(drop).map_err(|e| told(e, &id))
    };
    match done.await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(e) => refusal(&e),
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_matchers;
    use super::*;

    const GOOD: &str = r#"{"matchers":[{"name":"a","value":"b","isRegex":false}],"startsAt":"2030-01-01T00:00:00Z",
        "endsAt":"2030-01-02T00:00:00Z","createdBy":"","comment":""}"#;

    #[test]
    fn bodies() {
        let silence = read(GOOD.as_bytes()).expect("valid");
        assert_eq!(silence.matchers.to_string(), "{a=\"b\"}");
        let answer = shown(&silence, 0);
        assert_eq!((&answer["status"]["state"], answer.get("annotations")), (&json!("pending"), None));
        let two = GOOD.replace("\"matchers\":[", "\"matchers\":[{\"name\":\"z\",\"value\":\"1\",\"isRegex\":false},");
        let names = shown(&read(two.as_bytes()).expect("valid"), 0)["matchers"].clone();
        assert_eq!((&names[0]["name"], &names[1]["name"]), (&json!("z"), &json!("a")), "in the order of the body");
        let noted = read(GOOD.replace("\"comment\"", "\"annotations\":{\"link\":\"x\"},\"comment\"").as_bytes());
        assert_eq!(shown(&noted.expect("valid"), 0)["annotations"], json!({"link": "x"}));
        let check = |from: &str, to: &str, part: &str| {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD);
            let told = read(text.as_bytes()).expect_err(to).message;
            assert!(told.contains(part), "{to}: {told}");
        };
        check("\"comment\"", "\"commend\"", "comment in body is required");
        check("2030-01-02T", "tomorrow", "endsAt");
        check("\"isRegex\":false", "\"isRegex\":1", "isRegex");
        check("\"b\",\"isRegex\":false", "\"(\",\"isRegex\":true", "");
        check("[{", "{", "");
        check("\"comment\"", "\"annotations\":[],\"comment\"", "annotations in body");
        check("\"comment\"", "\"annotations\":{\"a\":1},\"comment\"", "annotations.a in body");
    }

    #[test]
    fn ids() {
        for fine in ["0191d0a0-7c3e-7abc-8def-0123456789AB", "0191d0a07c3e7abc8def0123456789ab"] {
            assert!(must_be_uuid(fine).is_ok(), "{fine}");
        }
        for wrong in ["", "none", "0191d0a0-7c3e-7abc-8def-0123456789xy", "0191d0a0-7c3e7abc-8def-0123456789ab"] {
            assert_eq!(must_be_uuid(wrong).err().map(|e| e.kind), Some(ErrorKind::Execution), "{wrong}");
        }
    }

    #[test]
    fn filters() {
        let silence = read(GOOD.as_bytes()).expect("valid");
        let fits = |text: &str| {
            matches_filter(&silence, &read_matchers([text].into_iter(), &mut Patterns::default()).expect(text))
        };
        assert!(fits("a=b") && fits("{a=\"b\"}"));
        assert!(["a=c", "a=~b", "a=~b.*", "a!=c", "c!=x", "c=x", "c=\"\""].into_iter().all(|text| !fits(text)));
    }

    #[test]
    fn matchers_of_a_body() {
        let check = |value: Value, expected: &str| {
            let found = read_matcher(&value, &mut Patterns::default()).map(|m| Matchers::in_order(vec![m]).to_string());
            assert_eq!(found.map_err(|e| e.message).as_deref(), Ok(expected), "{value}");
        };
        check(json!({"name": "a", "value": "b", "isRegex": false}), "{a=\"b\"}");
        check(json!({"name": "a", "value": "b", "isRegex": false, "isEqual": null}), "{a=\"b\"}");
        check(json!({"name": "a", "value": "b", "isRegex": false, "isEqual": false}), "{a!=\"b\"}");
        check(json!({"name": "a", "value": "b", "isRegex": true}), "{a=~\"b\"}");
        check(json!({"name": "a", "value": "b", "isRegex": true, "isEqual": false}), "{a!~\"b\"}");
        check(json!({"name": "a", "value": "", "isRegex": false}), "{a=\"\"}");
        // Unknown members of a matcher are ignored.
        check(json!({"name": "a", "value": "(", "isRegex": false, "x": 1}), "{a=\"(\"}");
        let told = |value: Value| read_matcher(&value, &mut Patterns::default()).map(|m| m.name).unwrap_err().message;
        for (value, part) in [
            (json!({"name": "a", "value": "b"}), "matchers.isRegex in body"),
            (json!({"name": "a", "value": "b", "isRegex": "false"}), "matchers.isRegex in body"),
            (json!({"name": "a", "value": "b", "isRegex": false, "isEqual": 1}), "matchers.isEqual in body"),
            (json!({"name": "a", "isRegex": false}), "matchers.value in body"),
            (json!({"name": null, "value": "b", "isRegex": false}), "matchers.name in body"),
            (json!({"name": "a", "value": 5, "isRegex": false}), "matchers.value in body"),
            (json!({"name": "a", "value": "(", "isRegex": true}), ""),
            (json!("a=b"), "matchers.isRegex in body"),
            (json!(null), "matchers.isRegex in body"),
        ] {
            let text = told(value.clone());
            assert!(text.contains(part), "{value}: {text}");
        }
    }

    #[test]
    fn annotations_of_a_body() {
        let count = |value: Value| read_annotations(&value).map(|all| all.len()).map_err(|e| e.message);
        assert_eq!(count(json!(null)), Ok(0));
        assert_eq!(count(json!({})), Ok(0));
        assert_eq!(count(json!({"a": "", "b": "x"})), Ok(2));
        assert_eq!(count(json!({"a": "x".repeat(ANNOTATIONS_BYTES_MAX - 1)})), Ok(1));
        assert!(count(json!({"a": "x".repeat(ANNOTATIONS_BYTES_MAX)})).is_err_and(|text| text.contains("bytes")));
        for wrong in [json!([]), json!("a"), json!(false), json!({"a": null}), json!({"a": ["x"]})] {
            assert!(count(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_and_texts_of_a_body() {
        let with = |name: &str, value: Value| {
            let mut body: Value = serde_json::from_str(GOOD).expect("JSON");
            body[name] = value;
            read(body.to_string().as_bytes())
        };
        let starts = |text: &str| with("startsAt", json!(text)).map(|silence| silence.starts_at).map_err(|e| e.message);
        assert_eq!(starts("1970-01-01T00:00:01.5Z"), Ok(1_500_000_000));
        assert_eq!(starts("1970-01-01T01:00:00+01:00"), Ok(0));
        assert_eq!(starts("1970-01-01T00:00:01"), Ok(1_000_000_000), "without a zone, as in Alertmanager");
        assert_eq!((starts(""), starts("0001-01-01T00:00:00Z")), (Ok(0), Ok(0)), "from now on");
        assert_eq!(starts("9999-01-01T00:00:00Z"), Ok(9_214_646_400_000_000_000));
        for wrong in ["1970-01-01", "5", "2030-02-30T00:00:00Z", "1500-01-01T00:00:00Z"] {
            assert!(starts(wrong).is_err_and(|text| text.contains("startsAt in body")), "{wrong}");
        }
        for wrong in [json!(5), json!(null), json!({})] {
            let told = with("endsAt", wrong.clone()).err().map(|e| e.message).unwrap_or_default();
            assert_eq!(told, "endsAt in body is required", "{wrong}");
        }
        for name in ["comment", "createdBy"] {
            assert!(with(name, json!("x".repeat(TEXT_MAX))).is_ok(), "{name}");
            for wrong in [json!(null), json!(5), json!("x".repeat(TEXT_MAX + 1))] {
                let told = with(name, wrong).err().map(|e| e.message).unwrap_or_default();
                assert!(told.starts_with(&format!("{name} in body")), "{told}");
            }
        }
        // Without an id it is a new silence.
        assert_eq!(with("id", json!(null)).map(|s| s.id).ok().as_deref(), Some(""));
        assert_eq!(with("id", json!("x")).map(|s| s.id).ok().as_deref(), Some("x"));
        assert!(with("id", json!(5)).is_err());
    }

    #[test]
    fn as_many_matchers_as_a_silence_may_have() {
        let of = |count: usize| {
            let mut body: Value = serde_json::from_str(GOOD).expect("JSON");
            body["matchers"] = json!(vec![json!({"name": "a", "value": "b", "isRegex": false}); count]);
            read(body.to_string().as_bytes()).map(|silence| silence.matchers.iter().count()).map_err(|e| e.message)
        };
        assert_eq!(of(MATCHERS_MAX), Ok(MATCHERS_MAX));
        assert_eq!(of(MATCHERS_MAX + 1), Err(format!("more than {MATCHERS_MAX} matchers")));
        for body in ["[]", "5", "{", "\"x\"", &GOOD.replace("[{", "{").replace("}]", "}"), &GOOD.replace("[{", "[5,{")]
        {
            assert_eq!(read(body.as_bytes()).err().map(|e| e.kind), Some(ErrorKind::Invalid), "{body}");
        }
    }

    /// Breaks if a client is not told which member is missing, as Alertmanager tells it.
    #[test]
    fn members_that_must_be_there() {
        let without = |path: &str, name: &str| {
            let mut body: Value = serde_json::from_str(GOOD).expect("JSON");
            body.pointer_mut(path).and_then(Value::as_object_mut).expect("an object").remove(name);
            read(body.to_string().as_bytes()).map_err(|e| (e.kind, e.message)).err()
        };
        let required = |name: &str| Some((ErrorKind::Execution, format!("{name} in body is required")));
        for name in REQUIRED {
            assert_eq!(without("", name), required(name));
        }
        for name in REQUIRED_OF_MATCHERS {
            assert_eq!(without("/matchers/0", name), required(&format!("matchers.0.{name}")));
        }
        let told = |body: &str| read(body.as_bytes()).map_err(|e| (e.kind, e.message)).err();
        assert_eq!(told(""), required("silence"));
        assert_eq!((told("null"), told("{}")), (required("comment"), required("comment")));
        let none = "matchers in body should have at least 1 items".to_owned();
        let emptied = GOOD.replace("[{\"name\":\"a\",\"value\":\"b\",\"isRegex\":false}]", "[]");
        assert_eq!(told(&emptied), Some((ErrorKind::Execution, none)));
    }

    #[test]
    fn what_silences_are_shown_as() {
        let mut silence = read(GOOD.as_bytes()).expect("valid");
        (silence.id, silence.starts_at, silence.ends_at, silence.updated_at) =
            ("i".to_owned(), 1_000_000, 5_000_000, 1);
        let state = |now: i64| shown(&silence, now)["status"]["state"].clone();
        assert_eq!(
            (state(999_999), state(1_000_000), state(4_999_999)),
            (json!("pending"), json!("active"), json!("active"))
        );
        assert_eq!(state(5_000_001), json!("expired"));
        let all = shown(&silence, 0);
        assert_eq!(all["startsAt"], json!("1970-01-01T00:00:00.001Z"));
        assert_eq!(all["updatedAt"], json!("1970-01-01T00:00:00.000Z"));
        assert_eq!((&all["id"], &all["createdBy"], &all["comment"]), (&json!("i"), &json!(""), &json!("")));
    }

    #[test]
    fn what_a_change_is_told_as() {
        for (error, kind, text) in [
            (SilenceError::NotFound, ErrorKind::NotFound, "silence i not found"),
            (SilenceError::Invalid("wrong".to_owned()), ErrorKind::Invalid, "wrong"),
            (SilenceError::Exists, ErrorKind::Conflict, "the silence has changed"),
            (SilenceError::Failed(Error::new(ErrorKind::Unavailable, "busy")), ErrorKind::Unavailable, "busy"),
        ] {
            let told = told(error, "i");
            assert_eq!((told.kind, told.message.as_str()), (kind, text));
        }
    }
}
