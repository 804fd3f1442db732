//! Names and values of tags, for the search form and for completion.

mod listed_values;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use quiver_traces::lists::tags::{EVENT_NAME, KeyOf};
use quiver_traces::traceql::{INTRINSIC_NAMES, Query, TagName, scope_name};
use quiver_traces::{JsonWriter, ListOptions, ParamError, TraceError};
use quiver_types::spans::{Place, SpanFilter};
use serde_json::{Value, json};

use listed_values::{TypedValue, texts, typed_values_of};

use super::answered;
use super::messages::{self, AnswerForm};
use super::params::{text_error, window};
use super::search::range;
use crate::state::AppState;
use crate::traces_api::Call;

/// The scope of fields that every span has.
const INTRINSIC: &str = "intrinsic";

/// A scope that has intrinsics alone, which are listed as such.
const TRACE: &str = "trace";

const SCOPES: [&str; 9] = ["all", "none", INTRINSIC, TRACE, "resource", "span", "event", "link", "instrumentation"];

/// The spans to search: those in the time range, or all; and of these the ones that match a query, which may be
/// incomplete while it is being typed.
fn spans(call: &Call) -> Result<SpanFilter, ParamError> {
    let asked = call.params.one("q")?.map_or(SpanFilter::All, Query::hint);
    let (start, end) = window(call)?;
    if start.is_none() && end.is_none() {
        return Ok(asked);
    }
    let (start, end) = range(call)?;
    Ok(SpanFilter::Starts(start, end).and(asked))
}

fn place_of(scope: &str) -> Option<Place> {
    Place::ALL.into_iter().find(|place| scope_name(*place) == scope)
}

fn scope(call: &Call) -> Result<&'static str, ParamError> {
    let asked = call.params.one("scope")?.unwrap_or("all");
    let known = SCOPES.into_iter().find(|scope| *scope == asked);
    known.ok_or_else(|| text_error(format!("invalid scope: {asked}")))
}

/// Parses `limit`; 0 or none: unlimited.
fn limit(call: &Call) -> Result<Option<usize>, ParamError> {
    Ok(call.params.number("limit", 0..=1_000_000)?.filter(|n| *n > 0).map(|n| n as usize))
}

/// Answers with a list, which may be written while it is read, and without figures.
fn answer<T: Into<Value> + Send + 'static>(
    call: &Call,
    name: &'static str,
    list: Vec<T>,
) -> Result<Response, TraceError> {
    call.written(list.len(), move |w| write_list(w, name, list))
}

fn write_list<T: Into<Value>>(w: &mut JsonWriter<'_>, name: &str, list: Vec<T>) {
    w.object(|w| {
        w.key("metrics").raw("{}");
        w.key(name).array(|w| {
            for one in list {
                if w.is_closed() {
                    return;
                }
                let one: Value = one.into();
                w.raw(one);
            }
        });
    });
}

pub(super) async fn names_over_http(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(state, request, names).await
}

/// Lists names of tags.
pub(super) async fn names(call: Call, form: AnswerForm) -> Result<Response, TraceError> {
    let (wanted, limit) = (scope(&call)?, limit(&call)?);
    let names: Vec<String> = match wanted {
        // Only this scope lists them, as in Tempo.
        INTRINSIC => INTRINSIC_NAMES.into_iter().take(limit.unwrap_or(usize::MAX)).map(str::to_owned).collect(),
        TRACE => Vec::new(),
        _ => call.state.engines.traces.tag_names(&call.ctx, spans(&call)?, place_of(wanted), limit).await?,
    };
    if form != AnswerForm::Json {
        return messages::of_texts(&call, form, &names);
    }
    answer(&call, "tagNames", names)
}

pub(super) async fn names_by_scope_over_http(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(state, request, names_by_scope).await
}

/// Lists names of tags by scope.
pub(super) async fn names_by_scope(call: Call, form: AnswerForm) -> Result<Response, TraceError> {
    let (wanted, limit) = (scope(&call)?, limit(&call)?);
    let names = if matches!(wanted, INTRINSIC | TRACE) {
        Vec::new()
    } else {
        call.state.engines.traces.tag_names_by_scope(&call.ctx, spans(&call)?, place_of(wanted)).await?
    };
    let most = limit.unwrap_or(usize::MAX);
    let scopes = by_scope(&names, matches!(wanted, "all" | "none" | INTRINSIC)).into_iter();
    let scopes: Vec<Value> = scopes
        .map(|(scope, mut tags)| {
            tags.truncate(most);
            json!({"name": scope, "tags": tags})
        })
        .collect();
    if form != AnswerForm::Json {
        return messages::of_values(&call, form, &messages::SCOPE, scopes);
    }
    answer(&call, "scopes", scopes)
}

/// Scopes with their names. The names come ordered by scope; `with_intrinsic` adds those that every span has.
fn by_scope<'a>(names: &'a [(&'static str, String)], with_intrinsic: bool) -> Vec<(&'static str, Vec<&'a str>)> {
    let mut scopes: Vec<(&'static str, Vec<&str>)> = names
        .chunk_by(|a, b| a.0 == b.0)
        .map(|of_scope| (of_scope[0].0, of_scope.iter().map(|(_, name)| name.as_str()).collect()))
        .collect();
    if with_intrinsic {
        let at = scopes.partition_point(|(scope, _)| *scope < INTRINSIC);
        scopes.insert(at, (INTRINSIC, INTRINSIC_NAMES.to_vec()));
    }
    scopes
}

/// What a tag refers to.
enum Tag {
    Key(KeyOf),
    /// A key without a scope.
    Bare(String),
    /// An enumeration.
    Word(&'static str),
    /// Names of root spans, or their services.
    Root(KeyOf),
    /// A field whose values are not listed.
    Nothing,
}

fn tag_of(text: &str) -> Tag {
    let intrinsic = |name: &str| KeyOf::Intrinsic(name.to_owned());
    match TagName::parse(text) {
        Some(TagName::Attribute(place, key)) => Tag::Key(KeyOf::Attribute(place, key)),
        Some(TagName::Intrinsic(name)) => match name {
            "status" | "kind" => Tag::Word(name),
            "rootName" => Tag::Root(intrinsic("name")),
            "rootServiceName" => Tag::Root(intrinsic("service")),
            "name" | "statusMessage" | "instrumentation:name" | "instrumentation:version" | EVENT_NAME => {
                Tag::Key(intrinsic(name))
            }
            _ => Tag::Nothing,
        },
        None => Tag::Bare(text.replace('"', "")),
    }
}

/// The words of an enumeration.
fn words(which: &str) -> &'static [&'static str] {
    if which == "status" {
        &["error", "unset", "ok"]
    } else {
        &["client", "server", "internal", "producer", "consumer", "unspecified"]
    }
}

/// The words of a name by which searches by tags find the status (`GetVirtualTagValues`).
fn status_words(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "error" => Some(&["true"]),
        "status.code" => Some(words("status")),
        _ => None,
    }
}

/// The values to list.
enum TagValueSource {
    /// Those of a key, on some spans.
    Key(KeyOf, SpanFilter),
    /// Those of an enumeration.
    Words(&'static [&'static str]),
    Nothing,
}

/// By which names tags may be asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagNames {
    Any,
    /// Those that TraceQL has.
    OfTraceql,
}

/// Parses which values to list.
fn asked(call: &Call, tag: &str, names: TagNames) -> Result<TagValueSource, TraceError> {
    let named = tag_of(tag);
    if names == TagNames::OfTraceql && matches!(named, Tag::Bare(_)) {
        let text = "please provide a valid tagName: tag name is not valid intrinsic or scoped attribute";
        return Err(ParamError::new("", format!("{text}: {tag}")).into());
    }
    let filter = spans(call)?;
    Ok(match named {
        Tag::Key(key) => TagValueSource::Key(key, filter),
        Tag::Bare(key) => match status_words(&key) {
            Some(words) => TagValueSource::Words(words),
            None => TagValueSource::Key(KeyOf::Attribute(None, key), filter),
        },
        Tag::Root(key) => TagValueSource::Key(key, filter.and(SpanFilter::Root)),
        Tag::Word(which) => TagValueSource::Words(words(which)),
        Tag::Nothing => TagValueSource::Nothing,
    })
}

pub(super) async fn values_over_http(
    State(state): State<Arc<AppState>>,
    Path(tag): Path<String>,
    request: Request,
) -> Response {
    answered(state, request, |call, form| values(call, tag, form)).await
}

/// Lists values of a tag.
pub(super) async fn values(call: Call, tag: String, form: AnswerForm) -> Result<Response, TraceError> {
    let limit = limit(&call)?;
    let list: Vec<String> = match asked(&call, &tag, TagNames::Any)? {
        TagValueSource::Key(key, filter) => {
            let listing = ListOptions { limit, by_name: true, ..ListOptions::default() };
            let rows = call.state.engines.traces.typed_values(&call.ctx, filter, key, listing).await?;
            let memory = call.state.engines.query.collected("values", &call.ctx);
            let list = texts(rows, limit, &memory)?;
            call.ctx.keep(memory);
            list
        }
        TagValueSource::Words(words) => {
            let mut words = words[..limit.unwrap_or(usize::MAX).min(words.len())].to_vec();
            words.sort_unstable();
            words.into_iter().map(str::to_owned).collect()
        }
        TagValueSource::Nothing => Vec::new(),
    };
    if form != AnswerForm::Json {
        return messages::of_texts(&call, form, &list);
    }
    answer(&call, "tagValues", list)
}

pub(super) async fn typed_values_over_http(
    State(state): State<Arc<AppState>>,
    Path(tag): Path<String>,
    request: Request,
) -> Response {
    answered(state, request, |call, form| typed_values(call, tag, form)).await
}

/// Lists values of a tag with their types.
pub(super) async fn typed_values(call: Call, tag: String, form: AnswerForm) -> Result<Response, TraceError> {
    let list: Vec<TypedValue> = match asked(&call, &tag, TagNames::OfTraceql)? {
        TagValueSource::Key(key, filter) => {
            let limit = limit(&call)?;
            let listing = ListOptions { limit, ..ListOptions::default() };
            let rows = call.state.engines.traces.typed_values(&call.ctx, filter, key, listing).await?;
            let memory = call.state.engines.query.collected("values", &call.ctx);
            let list = typed_values_of(rows, limit, &memory)?;
            call.ctx.keep(memory);
            list
        }
        TagValueSource::Words(words) => words.iter().map(|word| TypedValue("keyword", (*word).to_owned())).collect(),
        TagValueSource::Nothing => Vec::new(),
    };
    if form != AnswerForm::Json {
        return messages::of_values(&call, form, &messages::TYPED, list.into_iter().map(Value::from));
    }
    answer(&call, "tagValues", list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_one_by_one() {
        let written = |write: &dyn Fn(&mut JsonWriter<'_>)| {
            let mut w = JsonWriter::default();
            write(&mut w);
            String::from_utf8(w.finish().unwrap()).unwrap()
        };
        let texts = written(&|w| write_list(w, "tagNames", vec!["a\"".to_owned(), "b".to_owned()]));
        assert_eq!(texts, r#"{"metrics":{},"tagNames":["a\"","b"]}"#);
        let values = written(&|w| write_list(w, "tagValues", vec![json!({"type": "int", "value": "1"})]));
        assert_eq!(values, r#"{"metrics":{},"tagValues":[{"type":"int","value":"1"}]}"#);
        assert_eq!(written(&|w| write_list(w, "scopes", Vec::<Value>::new())), r#"{"metrics":{},"scopes":[]}"#);
    }

    #[test]
    fn scopes_in_the_order_of_their_names() {
        assert!(INTRINSIC_NAMES.is_sorted(), "they are given as they stand");
        let names = [("event", "a"), ("event", "b"), ("resource", "a"), ("span", "c")];
        let names = names.map(|(scope, name)| (scope, name.to_owned()));
        let alone = [("event", vec!["a", "b"]), ("resource", vec!["a"]), ("span", vec!["c"])];
        assert_eq!(by_scope(&names, false), alone);
        let all: Vec<&str> = by_scope(&names, true).into_iter().map(|(scope, _)| scope).collect();
        assert_eq!(all, ["event", "intrinsic", "resource", "span"]);
        assert_eq!(by_scope(&[], true), [("intrinsic", INTRINSIC_NAMES.to_vec())]);
        assert!(by_scope(&[], false).is_empty());
        assert_eq!(place_of("instrumentation"), Some(Place::Scope));
        assert_eq!(place_of("scope").or(place_of("all")), None);
    }

    /// The meaning of a tag, as text.
    fn named(text: &str) -> String {
        let key = |key: &KeyOf| match key {
            KeyOf::Attribute(place, key) => format!("{}.{key}", place.map_or("any", scope_name)),
            KeyOf::Intrinsic(name) => format!("intrinsic {name}"),
        };
        match tag_of(text) {
            Tag::Key(of) => key(&of),
            Tag::Root(of) => format!("root's {}", key(&of)),
            Tag::Bare(key) => format!("bare {key}"),
            Tag::Word(which) => format!("word {which}"),
            Tag::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn what_tags_name() {
        for (text, expected) in [
            ("name", "intrinsic name"),
            ("span:name", "intrinsic name"),
            ("status", "word status"),
            ("span:status", "word status"),
            ("kind", "word kind"),
            ("statusMessage", "intrinsic statusMessage"),
            ("instrumentation:version", "intrinsic instrumentation:version"),
            ("event:name", "intrinsic event:name"),
            ("rootName", "root's intrinsic name"),
            ("trace:rootService", "root's intrinsic service"),
            ("duration", "nothing"),
            (".http.status_code", "any.http.status_code"),
            ("resource.service.name", "resource.service.name"),
            ("span.a", "span.a"),
            ("span.resource.a", "span.resource.a"),
            ("instrumentation.a", "instrumentation.a"),
            ("event.a", "event.a"),
            ("link.a", "link.a"),
            // Names with special characters are quoted.
            (".\"a b\"", "any.a b"),
            ("span.\"a\"", "span.a"),
            (r#"span."a\"b\\c".d"#, r#"span.a"b\c.d"#),
            // There are no lists of these, but they are names.
            ("span:childCount", "nothing"),
            ("nestedSetParent", "nothing"),
            ("status.a", "bare status.a"),
            ("error", "bare error"),
            // Without a scope, as older clients send it.
            ("service.name", "bare service.name"),
            ("Name", "bare Name"),
            ("spans.a", "bare spans.a"),
            ("resource", "bare resource"),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
    }

    #[test]
    fn words_of_closed_sets() {
        assert_eq!(words("status"), ["error", "unset", "ok"]);
        assert_eq!(words("kind").len(), 6);
        assert!(words("kind").contains(&"unspecified"));
        for scope in SCOPES {
            let is_place = !matches!(scope, "all" | "none" | INTRINSIC | TRACE);
            assert_eq!(place_of(scope).is_some(), is_place, "{scope}");
        }
        assert_eq!(status_words("status.code"), Some(words("status")));
        assert_eq!((status_words("error"), status_words("status")), (Some(&["true"][..]), None));
    }
}
