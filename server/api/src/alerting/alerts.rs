//! Alerts: their intake in two formats, and Alertmanager's v2 API for `amtool`, Grafana and other clients.
//!
//! Source: `config-api` 2.8; responses as in Alertmanager 0.34 `api/v2`. Errors with 400 and 404 are a JSON string,
//! those with 422 are `{code, message}`. Unknown parameters are ignored.

mod fields;
pub(crate) mod list_routes;
pub(crate) mod matcher_form;
mod rows;
pub(crate) mod silences;

pub(crate) use fields::AlertRecord;
use list_routes::Rows;
pub(crate) use rows::Sight;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use chrono::DateTime;
use http::{HeaderMap, StatusCode, header};
use quiver_alertd::router::{AlertForm, AlertStateFilter, PostedAlerts, posted};
use quiver_alerting::config::Config;
use quiver_alerting::matchers::{self, Matchers};
use quiver_types::matcher::{Patterns, compile};
use quiver_types::{Access, Domain, Error, ErrorKind, LabelSet, Matcher, Result};
use regex::Regex;
use serde_json::{Value, json};

use crate::body_memory::read_unpacked;
use crate::error::{log, public_text, status_of, with_retry_after};
use crate::handlers::boxed;
use crate::params::Params;
use crate::parsed_bodies;
use crate::state::AppState;

/// The Alertmanager version whose behaviour is implemented; clients check it.
const ALERTMANAGER_VERSION: &str = "0.34.0";
/// Largest body in bytes of alerts or of a silence.
const BODY_MAX: usize = 4 << 20;

/// Most filters of a list: every alert is matched with all of them, and nothing can be routed meanwhile.
const FILTERS_MAX: usize = 100;

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v2/status", get(boxed(status)))
        .route("/api/v2/receivers", get(boxed(receivers)))
        .route("/api/v2/alerts", get(boxed(alerts)).post(boxed(post_alerts)))
        .route("/api/v2/alertprocess", post(boxed(post_envelope)))
        .route("/api/v2/alerts/groups", get(boxed(groups)))
        .route("/api/v2/silences", get(boxed(list_routes::silences)).post(boxed(silences::set)))
        .route("/api/v2/silence/{id}", get(boxed(silences::show)).delete(boxed(silences::expire)))
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response()
}

fn refusal(error: &Error) -> Response {
    log(error, "/api/v2");
    if error.kind == ErrorKind::Forbidden {
        return crate::forbidden_records::alertmanager_problem(error);
    }
    if error.kind == ErrorKind::Execution {
        let body = json!({"code": code_of(public_text(error)), "message": public_text(error)});
        return json_answer(status_of(error.kind), &body);
    }
    with_retry_after(json_answer(status_of(error.kind), &public_text(error).into()))
}

/// Alertmanager's error code for a value that does not fit: it is missing, has too few items, or is of the wrong type.
fn code_of(text: &str) -> u16 {
    if text.ends_with(" in body is required") {
        602
    } else if text.contains(" in body should have at least ") {
        612
    } else {
        601
    }
}

/// An error for a value that can be parsed but is not of the form that Alertmanager's description gives.
fn misfitting(text: String) -> Error {
    Error::new(ErrorKind::Execution, text)
}

fn answer(outcome: Result<Value>) -> Response {
    match outcome {
        Ok(value) => json_answer(StatusCode::OK, &value),
        Err(e) => refusal(&e),
    }
}

/// Formats a time as Alertmanager does: milliseconds, UTC.
fn time(ns: i64) -> String {
    DateTime::from_timestamp_nanos(ns).format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Whether the caller may see an alert with these labels.
pub(crate) fn allows(state: &AppState, access: &Access, labels: &LabelSet) -> bool {
    access.is_full() || access.allows(labels.service(state.alertd.router.service_labels()))
}

/// Adds a missing service label, if the caller's access leaves only one possibility.
fn with_service(names: &[String], access: &Access, labels: LabelSet) -> LabelSet {
    let Some((only, name)) = access.only_service().zip(names.first()) else { return labels };
    if !labels.service(names).is_empty() {
        return labels;
    }
    let others = labels.iter().filter(|(label, _)| *label != name.as_str());
    LabelSet::from_pairs(others.chain([(name.as_str(), only)]))
}

/// Parameters of a list of alerts.
struct Filter {
    shown: AlertStateFilter,
    matchers: Matchers,
    receiver: Option<Regex>,
    receiver_matchers: Option<Matchers>,
}

fn truth(params: &Params, name: &str) -> bool {
    // As in Alertmanager, the last value counts; these words mean true, and so does a missing parameter; all others
    // mean false.
    let last = params.all(name).last().map(str::to_lowercase);
    last.is_none_or(|word| {
        matches!(&*word, "" | "true" | "1" | "t" | "yes" | "y" | "ok" | "on" | "selected" | "checked" | "enabled")
    })
}

pub(crate) fn read_matchers<'a>(texts: impl Iterator<Item = &'a str>, patterns: &mut Patterns) -> Result<Matchers> {
    let mut out: Vec<Matcher> = Vec::new();
    for text in texts {
        let read = matchers::read_among(text, patterns)
            .map_err(|e| Error::invalid(format!("bad matcher format: {text}: {e}")))?;
        out.extend(read.matchers);
    }
    Ok(Matchers::in_order(out))
}

/// Parses filters of receivers by their labels; an error names the parameter, as in Alertmanager.
fn read_receiver_matchers<'a>(texts: impl Iterator<Item = &'a str>, patterns: &mut Patterns) -> Result<Matchers> {
    let named = |e: Error| Error { message: format!("failed to parse receiver_matchers param: {}", e.message), ..e };
    read_filters(texts, patterns).map_err(named)
}

/// Parses filters: each is one matcher, without braces. The patterns of a request are bounded together.
fn read_filters<'a>(texts: impl Iterator<Item = &'a str>, patterns: &mut Patterns) -> Result<Matchers> {
    let mut out: Vec<Matcher> = Vec::new();
    for text in texts {
        let read = matchers::read_one(text, patterns).map_err(|e| Error::invalid(e.message))?;
        out.extend(read.matchers);
        if out.len() > FILTERS_MAX {
            return Err(Error::invalid(format!("more than {FILTERS_MAX} filters")));
        }
    }
    Ok(Matchers::in_order(out))
}

impl Filter {
    fn read(params: &Params) -> Result<Self> {
        let receiver = params.get("receiver").map(|text| {
            compile(text).map_err(|e| Error::invalid(format!("failed to parse receiver param: {}", e.message)))
        });
        let by_labels: Vec<&str> = params.all("receiver_matchers").collect();
        let mut patterns = Patterns::default();
        Ok(Self {
            shown: AlertStateFilter {
                active: truth(params, "active"),
                silenced: truth(params, "silenced"),
                inhibited: truth(params, "inhibited"),
                muted: truth(params, "muted"),
            },
            matchers: read_filters(params.all("filter"), &mut patterns)?,
            receiver: receiver.transpose()?,
            receiver_matchers: (!by_labels.is_empty())
                .then(|| read_receiver_matchers(by_labels.into_iter(), &mut patterns))
                .transpose()?,
        })
    }

    /// Says of each receiver of a policy whether its alerts are asked for: once, and not for each of these.
    fn receivers<'p>(&self, config: &'p Config) -> HashMap<&'p str, bool> {
        config.receivers.iter().map(|r| (r.name.as_str(), self.fits(&r.name, &r.labels))).collect()
    }

    fn fits(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let by_labels = |wanted: &Matchers| {
            wanted.matches(&LabelSet::from_pairs(labels.iter().map(|(n, v)| (n.as_str(), v.as_str()))))
        };
        self.receiver.as_ref().is_none_or(|r| r.is_match(name)) && self.receiver_matchers.as_ref().is_none_or(by_labels)
    }
}

async fn params_of(state: &AppState, request: Request) -> Result<Params> {
    no_empty_filter(request.uri().query().unwrap_or_default())?;
    Params::of(state, request).await
}

/// An empty matcher is an error, while other empty parameters count as missing.
fn no_empty_filter(query: &str) -> Result<()> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let is_empty = pairs.any(|(name, value)| name == "filter" && value.is_empty());
    if is_empty { read_filters(std::iter::once(""), &mut Patterns::default()).map(|_| ()) } else { Ok(()) }
}

async fn listed(state: &Arc<AppState>, request: Request, rows: Rows) -> Response {
    let made = async {
        let params = params_of(state, request).await?;
        list_routes::listed(state, state.access(Domain::Alerts), Filter::read(&params)?, rows).await
    };
    written(made.await)
}

/// Answers with JSON that is written already.
fn written(outcome: Result<Vec<u8>>) -> Response {
    match outcome {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(e) => refusal(&e),
    }
}

async fn alerts(State(state): State<Arc<AppState>>, request: Request) -> Response {
    listed(&state, request, Rows::Alerts).await
}

async fn groups(State(state): State<Arc<AppState>>, request: Request) -> Response {
    listed(&state, request, Rows::Groups).await
}

async fn status(State(state): State<Arc<AppState>>) -> Response {
    let router = &state.alertd.router;
    // The whole policy is only shown to callers with full access to alerting.
    let original = if state.access(Domain::Alerting).is_full() { router.policy().shown.clone() } else { String::new() };
    let uptime = DateTime::from_timestamp_millis(state.process.started_ms).unwrap_or_default();
    answer(Ok(json!({
        "cluster": {"status": "disabled", "peers": []},
        "versionInfo": {
            "version": ALERTMANAGER_VERSION, "revision": format!("quiver-{}", state.settings.version),
            "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
        },
        "config": {"original": original},
        "uptime": time(uptime.timestamp_nanos_opt().unwrap_or_default()),
    })))
}

async fn receivers(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let listed = async {
        let params = params_of(&state, request).await?;
        let wanted = read_receiver_matchers(params.all("receiver_matchers"), &mut Patterns::default())?;
        let policy = state.alertd.router.policy();
        let fits = |labels: &BTreeMap<String, String>| {
            wanted.matches(&LabelSet::from_pairs(labels.iter().map(|(n, v)| (n.as_str(), v.as_str()))))
        };
        let shown = policy.config.receivers.iter().filter(|r| fits(&r.labels));
        Ok(shown.map(|r| json!({"name": r.name, "labels": r.labels})).collect())
    };
    answer(listed.await)
}

async fn body_of(state: &AppState, request: Request) -> Result<(HeaderMap, Bytes)> {
    let (head, body) = request.into_parts();
    let json = head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    // What a body without a type is taken for.
    let json = json.filter(|json| !json.is_empty()).unwrap_or("application/octet-stream");
    if !json.split(';').next().is_some_and(|t| t.trim().eq_ignore_ascii_case("application/json")) {
        let text = format!("unsupported media type {json:?}, only [application/json] are allowed");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let body = read_unpacked(&state.capacity.bodies, &head.headers, body, BODY_MAX).await?;
    Ok((head.headers, body))
}

/// Ingests alerts; valid ones are accepted even if others are not.
async fn take(state: &AppState, request: Request, form: AlertForm) -> Result<()> {
    let (headers, body) = body_of(state, request).await?;
    let router = &state.alertd.router;
    let policy = router.policy();
    let resolve = policy.config.global.duration_ns("resolve_timeout").unwrap_or(300_000_000_000);
    let tree = parsed_bodies::hold(&state.capacity.bodies, &body)?;
    let PostedAlerts { alerts, refused, external_url, misfit } =
        posted(&body, form, resolve, router.now()).map_err(Error::invalid)?;
    drop(tree);
    if let Some(text) = misfit {
        return Err(misfitting(text));
    }
    let own = headers.get("x-quiver-instance").is_some_and(|id| id.as_bytes() == router.instance().as_bytes());
    if own || (form == AlertForm::Envelope && !external_url.is_empty() && external_url == router.external_url()) {
        tracing::debug!("alerts that this server sent came back and are not routed again");
        return Ok(());
    }
    let access = state.ingest_access(Domain::Alerts);
    let named = alerts.into_iter().map(|mut alert| {
        alert.labels = with_service(router.service_labels(), &access, alert.labels);
        alert
    });
    let (mine, others): (Vec<_>, Vec<_>) = named.partition(|a| allows(state, &access, &a.labels));
    state.alertd.metrics.invalid.fetch_add((refused.len() + others.len()) as u64, Relaxed);
    crate::forbidden_records::note(others.len() as u64);
    if let (Some(first), true, true) = (others.first(), mine.is_empty(), refused.is_empty()) {
        return Err(crate::forbidden_records::error(
            Domain::Alerts,
            Some(first.labels.service(router.service_labels())),
        ));
    }
    router.insert_posted(fields::extract(state, mine)).await?;
    if refused.is_empty() { Ok(()) } else { Err(Error::invalid(refused.join("; "))) }
}

fn taken(outcome: Result<()>) -> Response {
    match outcome {
        Ok(()) => StatusCode::OK.into_response(),
        Err(e) => refusal(&e),
    }
}

async fn post_alerts(State(state): State<Arc<AppState>>, request: Request) -> Response {
    taken(take(&state, request, AlertForm::Flat).await)
}

async fn post_envelope(State(state): State<Arc<AppState>>, request: Request) -> Response {
    taken(take(&state, request, AlertForm::Envelope).await)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn an_empty_filter_is_a_mistake() {
        for bad in ["filter=", "filter", "active=true&filter=a%3D1&filter="] {
            assert_eq!(no_empty_filter(bad).err().map(|e| e.kind), Some(ErrorKind::Invalid), "{bad}");
        }
        for fine in ["", "filter=a%3D1", "receiver=&active="] {
            assert!(no_empty_filter(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn receivers_are_asked_once() {
        let config = "route: {receiver: a}\nreceivers:\n- {name: a, labels: {team: x}}\n- {name: ab}\n- {name: b}\n";
        let config = Config::load(config).expect("a policy");
        let wanted = |query: &str| {
            let params = Params::read(&Method::GET, &HeaderMap::new(), Some(query), b"").expect("a query");
            let filter = Filter::read(&params).expect("valid");
            let mut wanted: Vec<_> = filter.receivers(&config).into_iter().filter(|(_, fits)| *fits).collect();
            wanted.sort_unstable();
            wanted.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(wanted(""), "a ab b");
        assert_eq!(wanted("receiver=a.*"), "a ab");
        assert_eq!(wanted("receiver_matchers=team%3Dx"), "a");
        assert_eq!(wanted("receiver=b&receiver_matchers=team%21%3Dx"), "b");
    }

    /// All filters of a request share one bound: each could be large by itself.
    #[test]
    fn patterns_of_filters_are_bounded_together() {
        let read = |query: &str| {
            Filter::read(&Params::read(&Method::GET, &HeaderMap::new(), Some(query), b"").expect("a query"))
        };
        let large = |name: &str| {
            let one = |i: usize| format!("{name}=a%3D~%22%5Cw%7B15%7D{i:04}{name}%22");
            (0..FILTERS_MAX).map(one).collect::<Vec<_>>().join("&")
        };
        let refused = read(&format!("{}&{}", large("filter"), large("receiver_matchers"))).err().expect("too many");
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.message.contains("the regular expressions of a query take more than"), "{refused}");
        let same = vec!["filter=a%3D~%22%5Cw%7B15%7D%22"; FILTERS_MAX].join("&");
        assert!(read(&same).is_ok(), "the same pattern takes no more");
    }

    #[test]
    fn parameters() {
        let read = |query: &str| {
            Filter::read(&Params::read(&Method::GET, &HeaderMap::new(), Some(query), b"").expect("a query"))
        };
        let filter = read("silenced=false&filter=a%3D%22b%22&filter=c%3D~d.*&receiver=team-.%2B").expect("valid");
        assert!(filter.shown.active && !filter.shown.silenced);
        let set = |pairs: &[(&str, &str)]| LabelSet::from_pairs(pairs.iter().copied());
        assert!(filter.matchers.matches(&set(&[("a", "b"), ("c", "dd")])));
        assert!(!filter.matchers.matches(&set(&[("a", "b"), ("c", "e")])));
        assert!(filter.receiver.as_ref().is_some_and(|r| r.is_match("team-x") && !r.is_match("a-team-x")));
        // As in Alertmanager, the older syntax takes the rest for the value.
        let comma = read("filter=a%3D1%2Cb%3D2").expect("valid");
        assert!(comma.matchers.matches(&set(&[("a", "1,b=2")])));
        let twice = read("active=true&active=false").expect("valid");
        assert!(!twice.shown.active);
        let words = read("active=maybe&silenced=ON&inhibited=off").expect("valid");
        assert!(!words.shown.active && words.shown.silenced && !words.shown.inhibited);
        assert!(read(&vec!["filter=a%21%3D1"; FILTERS_MAX].join("&")).is_ok());
        assert_eq!(
            read(&vec!["filter=a%21%3D1"; FILTERS_MAX + 1].join("&")).err().map(|e| e.kind),
            Some(ErrorKind::Invalid)
        );
        let filters = ["filter=%3D", "filter=%7Ba%3D%22b%22%7D", "filter=a%3D%22b%22%2Cc%3D%22d%22", "filter=a%3D%7D"];
        let others = ["receiver=(", "receiver_matchers=%3D"];
        for bad in filters.into_iter().chain(others) {
            assert_eq!(read(bad).err().map(|e| e.kind), Some(ErrorKind::Invalid), "{bad}");
        }
        let told = read("receiver_matchers=%3D").err().map(|e| e.message).unwrap_or_default();
        assert!(told.starts_with("failed to parse receiver_matchers param: "), "{told}");
    }

    #[test]
    fn times() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123Z");
    }

    fn params(query: &str) -> Params {
        Params::read(&Method::GET, &HeaderMap::new(), Some(query), b"").expect("a query")
    }

    #[test]
    fn words_that_are_true() {
        for (query, expected) in [
            ("", true),
            ("active", true),
            ("active=", true),
            ("active=true", true),
            ("active=TRUE", true),
            ("active=1", true),
            ("active=t", true),
            ("active=yes", true),
            ("active=Y", true),
            ("active=ok", true),
            ("active=on", true),
            ("active=selected", true),
            ("active=checked", true),
            ("active=enabled", true),
            ("active=false", false),
            ("active=0", false),
            ("active=2", false),
            ("active=no", false),
            ("active=off", false),
            ("active=%20true", false),
            ("Active=false", true),
            ("active=false&active=true", true),
            ("active=true&active=false", false),
        ] {
            assert_eq!(truth(&params(query), "active"), expected, "{query}");
        }
    }

    #[test]
    fn who_can_mean_one_service_only_need_not_name_it() {
        let names = ["service_name".to_owned(), "service".to_owned()];
        let check = |access: &Access, given: &[(&str, &str)], expected: &[(&str, &str)]| {
            let set = |pairs: &[(&str, &str)]| LabelSet::from_pairs(pairs.iter().copied());
            assert_eq!(with_service(&names, access, set(given)), set(expected), "{given:?}");
        };
        let (one, two, all) = (Access::services(["cart"]), Access::services(["cart", "pay"]), Access::full());
        check(&one, &[], &[("service_name", "cart")]);
        check(&one, &[("a", "1")], &[("a", "1"), ("service_name", "cart")]);
        // A service that is stated is not replaced, even if the caller may not write it; then the alert is refused.
        check(&one, &[("service_name", "pay")], &[("service_name", "pay")]);
        check(&one, &[("service", "pay")], &[("service", "pay")]);
        check(&one, &[("service_name", "cart")], &[("service_name", "cart")]);
        check(&two, &[("a", "1")], &[("a", "1")]);
        check(&all, &[("a", "1")], &[("a", "1")]);
        let none = LabelSet::from_pairs([("a", "1")]);
        assert_eq!(with_service(&[], &one, none.clone()), none, "no label names services");
    }

    #[test]
    fn refusals_have_the_forms_of_alertmanager() {
        for (kind, status) in [
            (ErrorKind::Invalid, 400),
            (ErrorKind::NotFound, 404),
            (ErrorKind::TooLarge, 413),
            (ErrorKind::Unsupported, 415),
            (ErrorKind::Execution, 422),
            (ErrorKind::Conflict, 409),
            (ErrorKind::Internal, 500),
            (ErrorKind::Unavailable, 503),
        ] {
            let response = refusal(&Error::new(kind, "x"));
            assert_eq!(response.status().as_u16(), status, "{kind:?}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json", "{kind:?}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 503, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn bodies_of_refusals() {
        use http_body_util::BodyExt as _;

        for (kind, expected) in [
            (ErrorKind::Invalid, json!("a \"b\"")),
            (ErrorKind::NotFound, json!("a \"b\"")),
            (ErrorKind::Execution, json!({"code": 601, "message": "a \"b\""})),
        ] {
            let bytes = refusal(&Error::new(kind, "a \"b\"")).into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(serde_json::from_slice::<Value>(&bytes).expect("JSON"), expected, "{kind:?}");
            assert!(bytes.ends_with(b"\n"), "{kind:?}");
        }
        for (text, code) in [
            ("comment in body is required", 602),
            ("matchers in body should have at least 1 items", 612),
            ("silenceID in path must be of type uuid: \"x\"", 601),
        ] {
            assert_eq!(code_of(text), code, "{text}");
        }
    }

    #[test]
    fn times_before_the_epoch() {
        assert_eq!(time(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(time(999_999), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_000_000), "1970-01-01T00:00:00.001Z");
    }
}
