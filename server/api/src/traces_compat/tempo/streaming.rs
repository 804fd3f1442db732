//! Tempo's `StreamingQuerier` over gRPC, which Grafana's data source calls where streaming is switched on: at the host of its
//! URL, without the path. Each method asks what a path asks over HTTP; its message is read as the parameters of that path.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use chrono::{DateTime, SecondsFormat};
use futures::future::BoxFuture;
use quiver_ingest::wire::{BYTES, Reader, VARINT, WireError};
use quiver_traces::{ParamError, TraceError};
use quiver_types::{Error, ErrorKind, Result};

use super::messages::{AnswerForm, StreamFigures};
use super::params::text_error;
use super::{search, status_and_text, tags};
use crate::grpc_call::{Method, answered, read_message};
use crate::handlers::boxed;
use crate::state::AppState;
use crate::traces_api::Call;
use crate::traces_params::TraceParams;

const SERVICE: &str = "tempopb.StreamingQuerier";
const ENCODINGS: &str = "identity,gzip,deflate,zstd";
/// The parameter that stands for the part of a path that names a tag.
const TAG_NAME: &str = "tagName";
/// Most bytes of the tags of a search, as a parameter may have.
const TAGS_BYTES_MAX: usize = 64 << 10;

/// How a field of a request becomes a parameter. What has the default value is absent.
#[derive(Debug, Clone, Copy)]
enum FieldForm {
    Text,
    /// Numbers, seconds, flags.
    Whole,
    /// A duration in milliseconds.
    Millis,
    /// A duration in nanoseconds.
    Nanos,
    /// A time in Unix nanoseconds.
    Time,
    /// Pairs of tags.
    Map,
}

/// A field: its number, its form, the parameter that it is.
#[derive(Debug)]
struct Field(u32, FieldForm, &'static str);

/// A method of the service.
struct StreamMethod {
    name: &'static str,
    /// Its name in logs.
    route: &'static str,
    fields: &'static [Field],
    figures: StreamFigures,
    answer: fn(Call, AnswerForm) -> BoxFuture<'static, Result<Response, TraceError>>,
}

static SEARCH: [Field; 8] = [
    Field(1, FieldForm::Map, "tags"),
    Field(2, FieldForm::Millis, "minDuration"),
    Field(3, FieldForm::Millis, "maxDuration"),
    Field(4, FieldForm::Whole, "limit"),
    Field(5, FieldForm::Whole, "start"),
    Field(6, FieldForm::Whole, "end"),
    Field(8, FieldForm::Text, "q"),
    Field(9, FieldForm::Whole, "spss"),
];
static TAGS: [Field; 5] = [
    Field(1, FieldForm::Text, "scope"),
    Field(2, FieldForm::Text, "q"),
    Field(3, FieldForm::Whole, "start"),
    Field(4, FieldForm::Whole, "end"),
    Field(5, FieldForm::Whole, "limit"),
];
static TAG_VALUES: [Field; 5] = [
    Field(1, FieldForm::Text, TAG_NAME),
    Field(2, FieldForm::Text, "q"),
    Field(4, FieldForm::Whole, "start"),
    Field(5, FieldForm::Whole, "end"),
    Field(6, FieldForm::Whole, "limit"),
];
static RANGE: [Field; 7] = [
    Field(1, FieldForm::Text, "q"),
    Field(2, FieldForm::Time, "start"),
    Field(3, FieldForm::Time, "end"),
    Field(4, FieldForm::Nanos, "step"),
    Field(16, FieldForm::Whole, "exemplars"),
    Field(17, FieldForm::Whole, "maxSeries"),
    Field(18, FieldForm::Whole, "instant"),
];
static AT_ONCE: [Field; 3] =
    [Field(1, FieldForm::Text, "q"), Field(2, FieldForm::Time, "start"), Field(3, FieldForm::Time, "end")];

static METHODS: [StreamMethod; 7] = [
    StreamMethod {
        name: "Search",
        route: "tempo/grpc/search",
        fields: &SEARCH,
        figures: StreamFigures::Search,
        answer: |call, form| Box::pin(search::traces(call, form)),
    },
    StreamMethod {
        name: "SearchTags",
        route: "tempo/grpc/tags",
        fields: &TAGS,
        figures: StreamFigures::Metadata,
        answer: |call, form| Box::pin(tags::names(call, form)),
    },
    StreamMethod {
        name: "SearchTagsV2",
        route: "tempo/grpc/tags_v2",
        fields: &TAGS,
        figures: StreamFigures::Metadata,
        answer: |call, form| Box::pin(tags::names_by_scope(call, form)),
    },
    StreamMethod {
        name: "SearchTagValues",
        route: "tempo/grpc/tag_values",
        fields: &TAG_VALUES,
        figures: StreamFigures::Metadata,
        answer: |call, form| {
            Box::pin(async move {
                let tag = tag_name(&call.params)?;
                tags::values(call, tag, form).await
            })
        },
    },
    StreamMethod {
        name: "SearchTagValuesV2",
        route: "tempo/grpc/tag_values_v2",
        fields: &TAG_VALUES,
        figures: StreamFigures::Metadata,
        answer: |call, form| {
            Box::pin(async move {
                let tag = tag_name(&call.params)?;
                tags::typed_values(call, tag, form).await
            })
        },
    },
    StreamMethod {
        name: "MetricsQueryRange",
        route: "tempo/grpc/metrics",
        fields: &RANGE,
        figures: StreamFigures::Search,
        answer: |call, form| Box::pin(search::metrics(call, form)),
    },
    StreamMethod {
        name: "MetricsQueryInstant",
        route: "tempo/grpc/metrics_instant",
        fields: &AT_ONCE,
        figures: StreamFigures::Search,
        answer: |call, form| Box::pin(search::metrics_at_once(call, form)),
    },
];

/// The methods of the service.
pub(in crate::traces_compat) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for method in &METHODS {
        let handler = move |State(state): State<Arc<AppState>>, request: Request| handle(method, state, request);
        router = router.route(&path_of(method), post(boxed(handler)));
    }
    router
}

fn path_of(method: &StreamMethod) -> String {
    format!("/{SERVICE}/{}", method.name)
}

async fn handle(method: &'static StreamMethod, state: Arc<AppState>, request: Request) -> Response {
    let told = Method { route: method.route, encodings: ENCODINGS };
    answered(&state, told, request, |request| run(method, &state, request)).await
}

async fn run(method: &StreamMethod, state: &Arc<AppState>, request: Request) -> Result<Response> {
    let message = read_message(state, request).await?;
    let params = read(&message, method.fields).map_err(|e| error_of(e.into()))?;
    drop(message);
    // The list of running queries shows it like the same request over HTTP.
    let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(params.pairs()).finish();
    let call = Call::named(Arc::clone(state), params, &format!("{}?{text}", path_of(method)));
    (method.answer)(call, AnswerForm::Stream(method.figures)).await.map_err(error_of)
}

/// An error with the kind that has the right code over gRPC.
fn error_of(error: TraceError) -> Error {
    let kind = match error {
        TraceError::Engine(error) => return error,
        TraceError::NotFound | TraceError::Forbidden => ErrorKind::NotFound,
        TraceError::TooLarge(_) => ErrorKind::TooLarge,
        TraceError::InvalidId | TraceError::Param(_) | TraceError::Traceql(_) | TraceError::CursorMismatch => {
            ErrorKind::Invalid
        }
    };
    Error::new(kind, status_and_text(&error).1)
}

/// The tag whose values are asked for.
fn tag_name(params: &TraceParams) -> Result<String, ParamError> {
    let name = params.one(TAG_NAME)?.ok_or_else(|| text_error("please provide a non-empty tagName"))?;
    Ok(name.to_owned())
}

/// Reads a request as parameters; fields that are unknown, or mean nothing here, are passed over.
fn read(message: &[u8], fields: &[Field]) -> Result<TraceParams, ParamError> {
    let (mut reader, mut tags, mut tags_bytes) = (Reader::new(message), BTreeMap::new(), 0);
    let mut params: Vec<(String, String)> = Vec::new();
    while !reader.is_empty() {
        let tag = reader.tag().map_err(malformed)?;
        let Some(Field(_, form, name)) = fields.iter().find(|field| field.0 == tag >> 3) else {
            reader.skip_value(tag & 7).map_err(malformed)?;
            continue;
        };
        let value = match (form, tag & 7) {
            (FieldForm::Map, BYTES) => {
                let entry = reader.bytes().map_err(malformed)?;
                tags_bytes += entry.len();
                if tags_bytes > TAGS_BYTES_MAX {
                    return Err(ParamError::new(name, "longer than 64 KiB"));
                }
                add_tag(entry, &mut tags)?;
                continue;
            }
            (FieldForm::Text, BYTES) => text(reader.bytes().map_err(malformed)?)?.to_owned(),
            (FieldForm::Text | FieldForm::Map, _) => return Err(malformed(WireError::WrongType)),
            (form, VARINT) => number(*form, name, reader.varint().map_err(malformed)?)?,
            _ => return Err(malformed(WireError::WrongType)),
        };
        // Of a field that comes again, the last value counts.
        params.retain(|(known, _)| known != name);
        params.push(((*name).to_owned(), value));
    }
    if !tags.is_empty() {
        params.push(("tags".to_owned(), logfmt(&tags)?));
    }
    TraceParams::new(params)
}

fn malformed(error: WireError) -> ParamError {
    text_error(format!("cannot read the message: {error}"))
}

fn text(bytes: &[u8]) -> Result<&str, ParamError> {
    std::str::from_utf8(bytes).map_err(|_| text_error("cannot read the message: a text is no UTF-8"))
}

/// Writes a number as the parameter has it; 0 stands for none.
fn number(form: FieldForm, name: &str, value: u64) -> Result<String, ParamError> {
    Ok(match form {
        _ if value == 0 => String::new(),
        FieldForm::Millis => format!("{value}ms"),
        FieldForm::Nanos => format!("{value}ns"),
        FieldForm::Time => {
            let nanos = i64::try_from(value).map_err(|_| ParamError::new(name, format!("`{value}` is no time")))?;
            // A bare number would be of the unit that its size suggests.
            DateTime::from_timestamp_nanos(nanos).to_rfc3339_opts(SecondsFormat::Nanos, true)
        }
        FieldForm::Whole | FieldForm::Text | FieldForm::Map => value.to_string(),
    })
}

/// Reads an entry of a map; of one key, the last value counts.
fn add_tag<'m>(entry: &'m [u8], tags: &mut BTreeMap<&'m str, &'m str>) -> Result<(), ParamError> {
    let (mut reader, mut key, mut value) = (Reader::new(entry), "", "");
    while !reader.is_empty() {
        let tag = reader.tag().map_err(malformed)?;
        match (tag >> 3, tag & 7) {
            (1, BYTES) => key = text(reader.bytes().map_err(malformed)?)?,
            (2, BYTES) => value = text(reader.bytes().map_err(malformed)?)?,
            _ => reader.skip(tag, &[1, 2]).map_err(malformed)?,
        }
    }
    tags.insert(key, value);
    Ok(())
}

/// Writes tags as the parameter of that name has them; values are quoted.
fn logfmt(tags: &BTreeMap<&str, &str>) -> Result<String, ParamError> {
    let is_plain = |key: &str| !key.is_empty() && key.bytes().all(|b| b > b' ' && !matches!(b, b'=' | b'"'));
    if let Some((key, _)) = tags.iter().find(|(key, _)| !is_plain(key)) {
        return Err(text_error(format!("invalid tags: {key:?} is no name of a tag")));
    }
    let pairs: Vec<String> =
        tags.iter().map(|(key, value)| format!("{key}={}", serde_json::Value::from(*value))).collect();
    Ok(pairs.join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quiver_ingest::wire::{put_bytes, put_varint, tag};
    use quiver_traces::traceql::Query;

    use super::*;
    use crate::encode::protobuf::{put_message, put_text, put_uint};

    /// The parameters of a message, or what is wrong with it.
    fn params(fields: &[Field], write: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<(String, String)>, String> {
        let mut message = Vec::new();
        write(&mut message);
        let read = read(&message, fields).map_err(|e| e.reason)?;
        Ok(read.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn check(fields: &[Field], write: impl FnOnce(&mut Vec<u8>), expected: &[(&str, &str)]) {
        let owned: Vec<(String, String)> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(params(fields, write), Ok(owned));
    }

    fn put_tag(out: &mut Vec<u8>, key: &str, value: &str) {
        put_message(out, 1, |out| {
            put_text(out, 1, key);
            put_text(out, 2, value);
        });
    }

    #[test]
    fn searches_are_read_as_parameters() {
        check(&SEARCH, |_| (), &[]);
        let whole = |out: &mut Vec<u8>| {
            for (field, value) in [(2, 5), (3, 1500), (4, 30), (5, 1_700_000_000), (6, 1_700_003_600), (9, 7)] {
                put_uint(out, field, value);
            }
            put_text(out, 8, "{ name = \"a\" }");
        };
        let expected = [
            ("minDuration", "5ms"),
            ("maxDuration", "1500ms"),
            ("limit", "30"),
            ("start", "1700000000"),
            ("end", "1700003600"),
            ("spss", "7"),
            ("q", "{ name = \"a\" }"),
        ];
        check(&SEARCH, whole, &expected);
        // Unknown fields are ignored. If a field occurs twice, its last value counts, even if that is the default.
        let odd = |out: &mut Vec<u8>| {
            put_text(out, 11, "x");
            put_uint(out, 4, 3);
            put_message(out, 10, |out| put_uint(out, 1, 1));
            put_text(out, 8, "{}");
            put_varint(out, u64::from(tag(4, VARINT)));
            put_varint(out, 0);
        };
        check(&SEARCH, odd, &[("q", "{}")]);
    }

    #[test]
    fn tags_are_read_as_pairs() {
        let some = |out: &mut Vec<u8>| {
            put_tag(out, "service.name", "x");
            put_tag(out, "a", "say \"hi\" b=c\n");
            put_tag(out, "service.name", "shop");
        };
        check(&SEARCH, some, &[("tags", r#"a="say \"hi\" b=c\n" service.name="shop""#)]);
        for key in ["", "a b", "a=b", "a\"b", "a\n"] {
            let told = params(&SEARCH, |out| put_tag(out, key, "x"));
            assert_eq!(told, Err(format!("invalid tags: {key:?} is no name of a tag")));
        }
    }

    /// Would fail if as many tags as a message holds were kept before anything counts them.
    #[test]
    fn tags_are_no_longer_than_a_parameter() {
        let many =
            |count: usize| move |out: &mut Vec<u8>| (0..count).for_each(|n| put_tag(out, &format!("key{n}"), "value"));
        assert_eq!(params(&SEARCH, many(10_000)), Err("longer than 64 KiB".to_owned()));
        assert!(params(&SEARCH, many(1000)).is_ok());
    }

    #[test]
    fn lists_of_tags_are_read_as_parameters() {
        let texts = |out: &mut Vec<u8>| {
            put_text(out, 1, "span");
            put_text(out, 2, "{}");
            put_uint(out, 3, 5);
            put_uint(out, 5, 9);
            put_uint(out, 6, 4);
        };
        check(&TAGS, texts, &[("scope", "span"), ("q", "{}"), ("start", "5"), ("limit", "9")]);
        check(&TAG_VALUES, texts, &[("tagName", "span"), ("q", "{}"), ("end", "9"), ("limit", "4")]);
        let none = TraceParams::default();
        assert_eq!(tag_name(&none).unwrap_err().reason, "please provide a non-empty tagName");
    }

    /// Would fail if a time were taken for one of another unit, as numbers of nanoseconds of the first years would be.
    #[test]
    fn metrics_are_read_as_parameters() {
        let whole = |out: &mut Vec<u8>| {
            put_text(out, 1, "{} | rate()");
            put_uint(out, 2, 1_500_000_001);
            put_uint(out, 3, 1_772_366_400_000_000_001);
            put_uint(out, 4, 15_000_000_000);
            put_uint(out, 16, 100);
            put_uint(out, 17, 2);
            put_uint(out, 18, 1);
        };
        let expected = [
            ("q", "{} | rate()"),
            ("start", "1970-01-01T00:00:01.500000001Z"),
            ("end", "2026-03-01T12:00:00.000000001Z"),
            ("step", "15000000000ns"),
            ("exemplars", "100"),
            ("maxSeries", "2"),
            ("instant", "1"),
        ];
        check(&RANGE, whole, &expected);
        check(&AT_ONCE, whole, &expected[..3]);
        let mut message = Vec::new();
        whole(&mut message);
        let times = ["start", "end"].map(|name| read(&message, &RANGE).and_then(|params| params.time(name, 0)));
        assert_eq!(times, [Ok(Some(1_500_000_001)), Ok(Some(1_772_366_400_000_000_001))]);
        assert_eq!(params(&RANGE, |out| put_uint(out, 2, u64::MAX)), Err(format!("`{}` is no time", u64::MAX)));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let told = |bytes: &[u8]| params(&SEARCH, |out| out.extend_from_slice(bytes)).unwrap_err();
        for (bytes, expected) in [
            (&[0x22, 1, 1][..], "cannot read the message: field has the wrong type"),
            (&[0x40, 1], "cannot read the message: field has the wrong type"),
            (&[0x42, 5, b'a'], "cannot read the message: message is cut short"),
            (&[0x42, 1, 0xff], "cannot read the message: a text is no UTF-8"),
            (&[0], "cannot read the message: bad field number"),
            (&[0x0a, 2, 0x08, 1], "cannot read the message: field has the wrong type"),
        ] {
            assert_eq!(told(bytes), expected, "{bytes:?}");
        }
        let long = "x".repeat(70_000);
        let told = params(&SEARCH, |out| put_bytes(out, 8, long.as_bytes()));
        assert_eq!(told, Err("longer than 64 KiB".to_owned()));
    }

    #[test]
    fn methods_have_names_of_their_own() {
        let names: BTreeSet<&str> = METHODS.iter().map(|method| method.name).collect();
        let routes: BTreeSet<&str> = METHODS.iter().map(|method| method.route).collect();
        assert_eq!((names.len(), routes.len()), (METHODS.len(), METHODS.len()));
        for method in &METHODS {
            let numbers: BTreeSet<u32> = method.fields.iter().map(|field| field.0).collect();
            assert_eq!(numbers.len(), method.fields.len(), "{}", method.name);
        }
    }

    #[test]
    fn errors_have_the_codes_of_their_kinds() {
        use crate::error::grpc_code_of;
        use tonic::Code;

        for (error, code, text) in [
            (TraceError::InvalidId, Code::InvalidArgument, "invalid trace id"),
            (TraceError::Param(text_error("why")), Code::InvalidArgument, "why"),
            (Query::parse("{").expect_err("no query").into(), Code::InvalidArgument, "invalid TraceQL query: "),
            (TraceError::NotFound, Code::NotFound, "trace not found"),
            (TraceError::TooLarge(5), Code::ResourceExhausted, "more than 5 spans"),
            (Error::new(ErrorKind::LimitExceeded, "much").into(), Code::ResourceExhausted, "much"),
            (Error::new(ErrorKind::Timeout, "late").into(), Code::DeadlineExceeded, "late"),
            (Error::new(ErrorKind::Cancelled, "ended").into(), Code::Cancelled, "ended"),
        ] {
            let error = error_of(error);
            assert!(grpc_code_of(error.kind) == code && error.message.starts_with(text), "{error:?}");
        }
    }
}
