//! Operations outside of families as data: groups of paths with a common format of errors.

use std::collections::HashMap;

use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{HttpMethod, Paths, RefOr};

use super::families::{guarded, managed, with_idempotency_key};
use super::operation::{Errors, answer, body, flag, put, query, with_errors};
use super::schemas::{any, string};

mod queries;
mod server;
mod settings;
mod telemetry;

const ERRORS: [&str; 13] = ["400", "401", "403", "404", "405", "409", "412", "413", "415", "422", "429", "500", "503"];

/// The methods of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationMethods {
    Get,
    Post,
    /// GET, and POST with the parameters as a form.
    Form,
    /// GET, and POST with the parameters as a JSON object.
    Json,
    Put,
    Patch,
    Delete,
    /// All methods that a client of another product may use.
    Any,
}

/// Operations below some paths.
struct Group {
    tag: &'static str,
    /// Each row applies below each of these paths.
    at: &'static [&'static str],
    errors: Errors,
    rows: &'static [Row],
}

/// An operation with its method and path.
struct Row {
    by: OperationMethods,
    path: &'static str,
    summary: &'static str,
    /// Query parameters, separated by spaces; required ones end in `!`.
    parameters: &'static str,
    /// Media types of the body.
    takes: &'static [&'static str],
    /// The status of success, and media types of the response separated by `, `; empty: it has no body.
    gives: (&'static str, &'static str),
    /// Another status of success, with the same response; 304 has none.
    also: Option<&'static str>,
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";
const FORM: &str = "application/x-www-form-urlencoded";
const PROTOBUF: &str = "application/x-protobuf";
const LINES: &str = "application/x-ndjson";

/// An operation that responds 200 with JSON.
const fn row(by: OperationMethods, path: &'static str, summary: &'static str, parameters: &'static str) -> Row {
    Row { by, path, summary, parameters, takes: &[], gives: ("200", JSON), also: None }
}

impl Row {
    const fn takes(mut self, kinds: &'static [&'static str]) -> Self {
        self.takes = kinds;
        self
    }

    const fn gives(mut self, status: &'static str, kind: &'static str) -> Self {
        self.gives = (status, kind);
        self
    }

    const fn also(mut self, status: &'static str) -> Self {
        self.also = Some(status);
        self
    }

    fn methods(&self) -> Vec<HttpMethod> {
        match self.by {
            OperationMethods::Get => vec![HttpMethod::Get],
            OperationMethods::Post => vec![HttpMethod::Post],
            OperationMethods::Form | OperationMethods::Json => vec![HttpMethod::Get, HttpMethod::Post],
            OperationMethods::Put => vec![HttpMethod::Put],
            OperationMethods::Patch => vec![HttpMethod::Patch],
            OperationMethods::Delete => vec![HttpMethod::Delete],
            OperationMethods::Any => vec![HttpMethod::Get, HttpMethod::Post, HttpMethod::Put, HttpMethod::Delete],
        }
    }

    fn parameters(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.parameters.split_whitespace().map(|name| (name.trim_end_matches('!'), name.ends_with('!')))
    }
}

/// Adds all operations.
pub(super) fn describe(paths: &mut Paths) {
    for group in telemetry::GROUPS.iter().chain(queries::GROUPS).chain(settings::GROUPS).chain(server::GROUPS) {
        for base in group.at {
            for row in group.rows {
                for method in row.methods() {
                    let path = format!("{base}{}", row.path);
                    let made = operation(group, row, &method);
                    put(paths, &path, method, made);
                }
            }
        }
    }
}

/// The parameter names of each route that queries telemetry or is about the server itself.
pub(crate) fn parameters() -> HashMap<String, Vec<&'static str>> {
    let mut routes: HashMap<String, Vec<&'static str>> = HashMap::new();
    for group in queries::GROUPS.iter().chain(server::GROUPS) {
        for (base, row) in group.at.iter().flat_map(|base| group.rows.iter().map(move |row| (base, row))) {
            let known = routes.entry(format!("{base}{}", row.path)).or_default();
            known.extend(row.parameters().map(|(name, _)| name));
        }
    }
    routes
}

fn operation(group: &Group, row: &Row, method: &HttpMethod) -> OperationBuilder {
    let mut made = OperationBuilder::new().tag(group.tag).summary(Some(row.summary));
    let sends = !matches!(method, HttpMethod::Get | HttpMethod::Delete);
    let in_body = sends && matches!(row.by, OperationMethods::Form | OperationMethods::Json);
    if in_body {
        // Parameters may be in the body or in the query, so none is required in the body.
        let (kind, value): (_, fn() -> RefOr<Schema>) = if row.by == OperationMethods::Json {
            (JSON, || RefOr::T(any()))
        } else {
            (FORM, || RefOr::T(string().into()))
        };
        let whole = ObjectBuilder::new().schema_type(Type::Object);
        let whole = row.parameters().fold(whole, |whole, (name, _)| whole.property(name, value()));
        let mut whole = body(&[kind], &RefOr::T(whole.into()));
        whole.required = None;
        made = made.request_body(Some(whole));
    }
    for (name, required) in row.parameters() {
        let schema = if name == "dryRun" { flag() } else { string() };
        let mut parameter = query(name, schema, "");
        if required && !in_body {
            parameter.required = utoipa::openapi::Required::True;
        }
        made = made.parameter(parameter);
    }
    // Changes of configuration have dry runs and the headers of the contract.
    if group.errors == Errors::Problem && row.parameters().any(|(name, _)| name == "dryRun") {
        made = match method {
            HttpMethod::Post => with_idempotency_key(managed(made)),
            _ => guarded(managed(made)),
        };
    }
    if !row.takes.is_empty() && sends {
        made = made.request_body(Some(body(row.takes, &RefOr::T(any()))));
    }
    let (status, kinds) = row.gives;
    let kinds: Vec<&str> = kinds.split(", ").collect();
    let done = |made: OperationBuilder, status: &'static str| {
        // 304: the client's copy is still valid, and no body is sent.
        let kinds: &[&str] = if status == "304" { &[] } else { &kinds };
        made.response(status, answer("done", kinds, &RefOr::T(any())))
    };
    let made = row.also.into_iter().fold(done(made, status), done);
    with_errors(made, group.errors, &ERRORS)
}
