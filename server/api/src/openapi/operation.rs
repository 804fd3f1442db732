//! Parts of operations: parameters, bodies, responses, security.

use serde_json::json;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{
    ContentBuilder, HttpMethod, Info, InfoBuilder, Paths, Ref, RefOr, Required, Response, ResponseBuilder,
    SecurityRequirement,
};

use super::schemas::{any, named, string};
use crate::rights::{RequiredRight, need};

/// The media type of plain text.
const PLAIN: &str = "text/plain; charset=utf-8";

/// The format of error responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errors {
    /// `application/problem+json` (RFC 9457).
    Problem,
    /// Prometheus' envelope: `status`, `errorType`, `error`.
    Prometheus,
    /// `{error}` and similar objects.
    Json,
    /// Plain text.
    Plain,
    /// In the format of the protocol, or plain text before it is known.
    Mixed,
    /// `google.rpc.Status` in the format of the request, JSON or protobuf, or plain text before that is known.
    Otlp,
    /// gRPC trailers.
    Grpc,
    /// What is wrong with a query, and where in it; like RFC 9457, except that `type` is a word.
    Query,
    /// Like [`Self::Problem`], or plain text if the path is invalid.
    ProblemOrPlain,
    /// `error` and `error_description` (RFC 6749).
    Token,
}

impl Errors {
    pub(super) const ALL: [Self; 10] = [
        Self::Problem,
        Self::Prometheus,
        Self::Json,
        Self::Plain,
        Self::Mixed,
        Self::Otlp,
        Self::Grpc,
        Self::Query,
        Self::ProblemOrPlain,
        Self::Token,
    ];

    pub(super) fn name(self) -> String {
        format!("{self:?}Error")
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Problem => "what is wrong, as RFC 9457 has it; `code` is stable",
            Self::Prometheus => "what is wrong, in Prometheus' envelope",
            Self::Json => "what is wrong, in the form of this API",
            Self::Plain => "what is wrong, in a line",
            Self::Mixed => "what is wrong, in the form of this API or in a line",
            Self::Otlp => "what is wrong, as OTLP has it, or in a line",
            Self::Grpc => "what is wrong, in the trailers",
            Self::Query => "what is wrong with the query, and where",
            Self::ProblemOrPlain => "what is wrong, as RFC 9457 has it, or in a line where the path is none",
            Self::Token => "what is wrong, as RFC 6749 has it",
        }
    }

    /// Media types and their schemas.
    pub(super) fn forms(self) -> Vec<(&'static str, RefOr<Schema>)> {
        let texts = |names: &[&str]| {
            let made = names.iter().fold(ObjectBuilder::new(), |made, name| made.property(*name, string()));
            RefOr::T(made.into())
        };
        match self {
            Self::Problem => vec![("application/problem+json", named("Problem"))],
            Self::Prometheus => vec![("application/json", texts(&["status", "errorType", "error", "code"]))],
            Self::Json => vec![("application/json", RefOr::T(any()))],
            Self::Plain => vec![(PLAIN, RefOr::T(string().into()))],
            Self::Mixed => vec![("application/json", RefOr::T(any())), (PLAIN, RefOr::T(string().into()))],
            Self::Otlp => vec![
                ("application/json", RefOr::T(any())),
                ("application/x-protobuf", RefOr::T(any())),
                (PLAIN, RefOr::T(string().into())),
            ],
            Self::Grpc => vec![("application/grpc", RefOr::T(any()))],
            Self::Query => vec![("application/problem+json", RefOr::T(any())), ("application/json", RefOr::T(any()))],
            Self::ProblemOrPlain => {
                vec![("application/problem+json", named("Problem")), (PLAIN, RefOr::T(string().into()))]
            }
            Self::Token => vec![("application/json", texts(&["error", "error_description", "code"]))],
        }
    }
}

/// Title and description of the document.
pub(super) fn info() -> Info {
    let about = "Metrics, logs, traces, alerts and their configuration. While access control is off no operation asks who \
                 calls; a caller sees what its rights show.";
    InfoBuilder::new().title("Quiver").version(env!("CARGO_PKG_VERSION")).description(Some(about)).build()
}

/// How callers authenticate.
pub(super) fn security() -> [SecurityRequirement; 1] {
    [SecurityRequirement::new("bearer", [""; 0])]
}

/// A path in OpenAPI's syntax; a wildcard becomes a normal parameter.
pub(super) fn template(path: &str) -> String {
    path.replace("{*", "{")
}

fn method_name(method: &HttpMethod) -> http::Method {
    match method {
        HttpMethod::Get => http::Method::GET,
        HttpMethod::Post => http::Method::POST,
        HttpMethod::Put => http::Method::PUT,
        HttpMethod::Delete => http::Method::DELETE,
        HttpMethod::Patch => http::Method::PATCH,
        HttpMethod::Head => http::Method::HEAD,
        HttpMethod::Options => http::Method::OPTIONS,
        HttpMethod::Trace => http::Method::TRACE,
    }
}

/// Adds an operation to its path, with the path parameters and the required rights.
pub(super) fn put(paths: &mut Paths, path: &str, method: HttpMethod, made: OperationBuilder) {
    let name = method_name(&method);
    // `/-/ready` is another path than `/ready`.
    let named = path.replace("/-/", "/dash/");
    let slug = named.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let mut id = name.as_str().to_lowercase();
    slug.for_each(|part| {
        id.push('_');
        id.push_str(part);
    });
    // A path with a slash at the end is a different one.
    if path.ends_with('/') {
        id.push('_');
    }
    let mut made = made.operation_id(Some(id));
    for part in
        template(path).split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}').map(str::to_owned))
    {
        let parameter = ParameterBuilder::new().name(part).parameter_in(ParameterIn::Path).required(Required::True);
        made = made.parameter(parameter.schema(Some(string())).build());
    }
    let needs = need(&name, path);
    let (text, made) = match needs {
        None | Some(RequiredRight::Public | RequiredRight::Docs) => {
            ("anybody".to_owned(), made.security(SecurityRequirement::default()))
        }
        Some(needs) => {
            let made = made.security(SecurityRequirement::new("bearer", [""; 0]));
            let basic = needs.asks_for_basic(path);
            let made = if basic { made.security(SecurityRequirement::new("basic", [""; 0])) } else { made };
            (of_need(needs), made)
        }
    };
    let about = ExtensionsBuilder::new().add("x-needs", json!(text)).build();
    let operation: Operation = made.description(Some(format!("For {text}."))).extensions(Some(about)).build();
    paths.add_path_operation(template(path), vec![method], operation);
}

fn of_need(need: RequiredRight) -> String {
    match need {
        RequiredRight::Public | RequiredRight::Docs => "anybody".to_owned(),
        RequiredRight::Anyone => "whoever is let in".to_owned(),
        RequiredRight::Has(right, domain) => {
            format!("who has `{}` in `{}`, for a service at least", right.name(), domain.name())
        }
        RequiredRight::Everywhere(right, domain) => {
            format!("who has `{}` in `{}`, for all services", right.name(), domain.name())
        }
        RequiredRight::Somewhere(right) => format!("who has `{}` in some domain", right.name()),
        RequiredRight::OwnMetrics => "who has `view` in `system` for all services, or is on this machine".to_owned(),
    }
}

/// A query parameter.
pub(super) fn query(name: &str, schema: impl Into<RefOr<Schema>>, about: &str) -> Parameter {
    let made = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).schema(Some(schema));
    made.description((!about.is_empty()).then(|| about.to_owned())).build()
}

/// A request header.
pub(super) fn header(name: &str, about: &str) -> Parameter {
    let made = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header).schema(Some(string()));
    made.description(Some(about)).build()
}

/// A boolean.
pub(super) fn flag() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Boolean)
}

/// A body of these media types.
pub(super) fn body(kinds: &[&str], schema: &RefOr<Schema>) -> RequestBody {
    let content = || ContentBuilder::new().schema(Some(schema.clone())).build();
    let made = kinds.iter().fold(RequestBodyBuilder::new(), |made, kind| made.content(*kind, content()));
    made.required(Some(Required::True)).build()
}

/// A response; without a media type it has no body.
pub(super) fn answer(about: &str, kinds: &[&str], schema: &RefOr<Schema>) -> Response {
    let content = || ContentBuilder::new().schema(Some(schema.clone())).build();
    let kinds = kinds.iter().filter(|kind| !kind.is_empty());
    kinds.fold(ResponseBuilder::new().description(about), |made, kind| made.content(*kind, content())).build()
}

/// Adds errors with these statuses.
pub(super) fn with_errors(made: OperationBuilder, errors: Errors, statuses: &[&str]) -> OperationBuilder {
    let form = || RefOr::<Response>::Ref(Ref::from_response_name(errors.name()));
    statuses.iter().fold(made, |made, status| made.response(*status, form()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quiver_types::{Domain, Right};

    use super::*;

    #[test]
    fn forms_of_errors_are_told_apart() {
        let names: BTreeSet<String> = Errors::ALL.into_iter().map(Errors::name).collect();
        let texts: BTreeSet<&str> = Errors::ALL.into_iter().map(Errors::about).collect();
        assert_eq!((names.len(), texts.len()), (Errors::ALL.len(), Errors::ALL.len()), "{names:?} {texts:?}");
        for errors in Errors::ALL {
            let forms = errors.forms();
            let kinds: BTreeSet<&str> = forms.iter().map(|(kind, _)| *kind).collect();
            assert!(!kinds.is_empty() && kinds.len() == forms.len(), "{errors:?}: {kinds:?}");
        }
    }

    #[test]
    fn operations_bear_the_names_of_their_paths() {
        let mut paths = Paths::new();
        put(&mut paths, "/no-such/{id}/{*rest}", HttpMethod::Get, OperationBuilder::new());
        put(&mut paths, "/no-such", HttpMethod::Post, OperationBuilder::new());
        put(&mut paths, "/no-such/", HttpMethod::Post, OperationBuilder::new());
        let shown = serde_json::to_value(&paths).unwrap();
        let get = &shown["/no-such/{id}/{rest}"]["get"];
        assert_eq!(get["operationId"], "get_no_such_id_rest");
        let parameters = get["parameters"].as_array().unwrap();
        let of = |key: &str| parameters.iter().map(|p| p[key].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((of("name"), of("in")), (vec!["id", "rest"], vec!["path", "path"]));
        // A path with a slash at the end is a different one, with an operation of its own.
        assert_eq!(shown["/no-such"]["post"]["operationId"], "post_no_such");
        assert_eq!(shown["/no-such/"]["post"]["operationId"], "post_no_such_");
    }

    #[test]
    fn needs_are_said_in_words() {
        let (view, logs) = (Right::View, Domain::Logs);
        for (need, expected) in [
            (RequiredRight::Public, "anybody"),
            (RequiredRight::Docs, "anybody"),
            (RequiredRight::Anyone, "whoever is let in"),
            (RequiredRight::Has(view, logs), "who has `view` in `logs`, for a service at least"),
            (RequiredRight::Everywhere(view, logs), "who has `view` in `logs`, for all services"),
            (RequiredRight::Somewhere(view), "who has `view` in some domain"),
        ] {
            assert_eq!(of_need(need), expected);
        }
    }
}
