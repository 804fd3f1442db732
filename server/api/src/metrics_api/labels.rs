//! Series, label names, label values and metadata, all answered from the index alone.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`series`, `labelNames`, `labelValues`, `metricMetadata`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use percent_encoding::percent_decode_str;
use quiver_promql::parser::parse_selectors;
use quiver_promql::query::selector_bytes;
use quiver_query::index::{self, IndexSource};
use quiver_query::{Pace, QueryContext, QueryEngine, Rules, from_datafusion};
use quiver_types::text::push_json_text;
use quiver_types::{Error, ErrorKind, Matcher, MillisRange, Result};
use serde_json::{Value, json};

use crate::encode::list::TextList;
use crate::encode::prometheus::{Envelope, error_response, success};
use crate::explain_plans;
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::partial_responses::query_context;
use crate::state::AppState;

/// Bytes that the metadata of a metric take as JSON besides their texts, counted twice.
const METADATA_BYTES: usize = 768;

/// With a larger limit the whole list is sorted.
const FETCH_MAX: usize = 100_000;

/// The entry in `warnings` if `limit` cut the response.
pub(crate) const TRUNCATED: &str = "results truncated due to limit";

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v1/series", get(boxed(series)).post(boxed(series)))
        .route("/api/v1/labels", get(boxed(labels)).post(boxed(labels)))
        .route("/api/v1/label/{name}/values", get(boxed(values)))
        .route("/api/v1/label//values", get(boxed(|| async { no_name() })))
        .route("/api/v1/metadata", get(boxed(metadata)))
}

/// What tells `series`, `labels` and `values` apart.
#[derive(Debug, Clone, Copy)]
struct Listing {
    route: &'static str,
    /// It needs `match[]`, and names it in errors about selectors.
    needs_selector: bool,
    /// The texts are JSON already.
    is_json: bool,
}

const SERIES: Listing = Listing { route: "/api/v1/series", needs_selector: true, is_json: true };
const LABELS: Listing = Listing { route: "/api/v1/labels", needs_selector: false, is_json: false };
const VALUES: Listing = Listing { route: "/api/v1/label/values", needs_selector: false, is_json: false };

/// Parameters that they share.
#[derive(Debug)]
struct Ask {
    limit: usize,
    range: MillisRange,
    selectors: Vec<Vec<Matcher>>,
}

impl Ask {
    /// Reads all parameters but the selectors, which are parsed within the query.
    fn read(params: &Params, listing: Listing) -> Result<Self> {
        if listing.needs_selector && params.all("match[]").next().is_none() {
            return Err(Error::invalid("no match[] parameter provided"));
        }
        explain(params)?;
        let limit = params.limit()?;
        let range =
            MillisRange::new(params.time("start")?.unwrap_or(i64::MIN), params.time("end")?.unwrap_or(i64::MAX));
        Ok(Self { limit, range, selectors: Vec::new() })
    }

    fn read_selectors(
        &mut self,
        params: &Params,
        listing: Listing,
        engine: &QueryEngine,
        ctx: &QueryContext,
    ) -> Result<()> {
        self.selectors = selectors(params, engine, ctx).map_err(|e| match e.kind {
            ErrorKind::Invalid if listing.needs_selector => invalid("match[]", &e.message),
            _ => e,
        })?;
        Ok(())
    }
}

/// Turns on `explain` if a form asks for it.
///
/// # Errors
/// It has another value.
pub(crate) fn explain(params: &Params) -> Result<()> {
    if let Some(explain) = explain_plans::read(params.get("explain")).map_err(|why| invalid("explain", &why))? {
        explain_plans::ask(explain);
    }
    Ok(())
}

/// Parses all `match[]` while the query may go on, in its memory: call it within `QueryEngine::run`.
pub(super) fn read_all(params: &Params, engine: &QueryEngine, ctx: &QueryContext) -> Result<Vec<Vec<Matcher>>> {
    let memory = engine.collected("selectors", ctx);
    memory.add(selector_bytes(params.all("match[]")))?;
    ctx.keep(memory);
    Ok(parse_selectors(params.all("match[]"), Some(&Pace::new(ctx, "query preparation")))?)
}

/// Like [`read_all`], and each selects something.
pub(crate) fn selectors(params: &Params, engine: &QueryEngine, ctx: &QueryContext) -> Result<Vec<Vec<Matcher>>> {
    let selectors = read_all(params, engine, ctx)?;
    if selectors.iter().any(|matchers| matchers.iter().all(Matcher::matches_empty)) {
        return Err(Error::invalid("match[] must contain at least one non-empty matcher"));
    }
    Ok(selectors)
}

/// Plans a lookup, runs it and encodes the texts.
async fn answer(
    state: Arc<AppState>,
    request: Request,
    listing: Listing,
    plan: impl FnOnce(&IndexSource, Ask, Option<usize>) -> Result<LogicalPlan> + Send + 'static,
) -> Response {
    let looked_up = async {
        let params = Params::of(&state, request).await?;
        let mut ask = Ask::read(&params, listing)?;
        let limit = ask.limit;
        let ctx = query_context(&state, state.asked(Language::Series, ""), state.limits());
        let source = IndexSource::new(state.engines.series.snapshot(), &ctx);
        let mut list = TextList::new(&state.engines.query, &ctx, state.settings.answer_bytes_max);
        let (engine, inner) = (Arc::clone(&state.engines.query), ctx.clone());
        let work = async move {
            ask.read_selectors(&params, listing, &engine, &inner)?;
            // Fetches one more than the limit, to find out whether the response was cut.
            let fetch = (1..FETCH_MAX).contains(&limit).then(|| limit + 1);
            let plan = plan(&source, ask, fetch)?;
            let mut rows = engine.execute(&plan, &inner, Rules::Direct).await?;
            let pace = Pace::new(&inner, "series look-up");
            while let Some(batch) = rows.next().await {
                let batch = batch.map_err(from_datafusion)?;
                for text in batch.column(0).as_string::<i32>().iter().flatten() {
                    pace.did(1 + text.len())?;
                    list.take(text.len() + 2)?;
                    list.push(if listing.is_json { text.to_owned() } else { quoted(text) })?;
                }
            }
            Ok(list)
        };
        let texts = state.engines.query.run(&ctx, work).await?;
        Ok((texts, limit, ctx))
    };
    match looked_up.await {
        Err(e) => error_response(&e, listing.route),
        Ok((mut texts, limit, ctx)) => {
            let mut envelope = Envelope::lacking(&ctx);
            if limit > 0 && texts.len() > limit {
                texts.truncate(limit);
                envelope.warnings.push(TRUNCATED.to_owned());
            }
            texts.response(&envelope)
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_json_text(text, &mut out);
    out
}

async fn series(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let plan = |source: &IndexSource, ask: Ask, fetch| index::series(source, ask.selectors, ask.range, fetch);
    answer(state, request, SERIES, plan).await
}

async fn labels(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let plan = |source: &IndexSource, ask: Ask, fetch| index::label_names(source, ask.selectors, ask.range, fetch);
    answer(state, request, LABELS, plan).await
}

async fn values(
    State(state): State<Arc<AppState>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let Ok(Path(name)) = name else {
        let shown = unreadable_name(request.uri().path());
        return error_response(&Error::invalid(format!("invalid label name: \"{shown}\"")), "/api/v1/label/values");
    };
    let Some(name) = label_name(&name) else { return no_name() };
    let plan =
        |source: &IndexSource, ask: Ask, fetch| index::label_values(source, name, ask.selectors, ask.range, fetch);
    answer(state, request, VALUES, plan).await
}

/// Shows the bytes of a name that is not UTF-8.
fn unreadable_name(path: &str) -> String {
    let name: Vec<u8> = percent_decode_str(path.rsplit('/').nth(1).unwrap_or_default()).collect();
    name.escape_ascii().to_string()
}

/// The response for an empty label name, which no label has.
fn no_name() -> Response {
    error_response(&Error::invalid("invalid label name: \"\""), "/api/v1/label/values")
}

/// Decodes the label name in a path: `U__my_2e_label` is `my.label` (Prometheus `model.UnescapeName`, values
/// encoding). A name that cannot be decoded is taken literally. `None` if it is empty.
fn label_name(name: &str) -> Option<String> {
    let name = name.strip_prefix("U__").and_then(decoded).unwrap_or_else(|| name.to_owned());
    (!name.is_empty()).then_some(name)
}

fn decoded(escaped: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = escaped;
    while let Some((plain, after)) = rest.split_once('_') {
        let (code, after) = after.split_once('_')?;
        out.push_str(plain);
        if code.is_empty() {
            out.push('_');
        } else {
            let is_code = code.len() < 6 && code.bytes().all(|b| b.is_ascii_hexdigit());
            out.push(u32::from_str_radix(code, 16).ok().filter(|_| is_code).and_then(char::from_u32)?);
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

async fn metadata(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let route = "/api/v1/metadata";
    let looked_up = async {
        let params = Params::of(&state, request).await?;
        let number = |name: &str| match params.get(name).map(str::parse::<i64>) {
            None => Ok(None),
            Some(Ok(n)) => Ok(usize::try_from(n).ok()),
            Some(Err(_)) => Err(Error::invalid(format!("{name} must be a number"))),
        };
        let (limit, per_metric) = (number("limit")?, number("limit_per_metric")?);
        let metric = params.get("metric").map(str::to_owned);
        let ctx = query_context(&state, state.asked(Language::Series, ""), state.limits());
        let source = IndexSource::new(state.engines.series.snapshot(), &ctx);
        // As in Prometheus, a limit of none of a metric is no limit, but one of none at all is one.
        let plan = index::metadata(&source, metric, limit, per_metric.filter(|bound| *bound > 0))?;
        let (engine, inner) = (Arc::clone(&state.engines.query), ctx.clone());
        let memory = state.engines.query.collected("metadata", &ctx);
        let work = async move {
            let mut rows = engine.execute(&plan, &inner, Rules::Direct).await?;
            let mut by_metric: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            while let Some(batch) = rows.next().await {
                let batch = batch.map_err(from_datafusion)?;
                let [metric, kind, unit, help] = std::array::from_fn(|at| batch.column(at).as_string::<i32>());
                for row in 0..batch.num_rows() {
                    let (name, help, unit) = (metric.value(row), help.value(row), unit.value(row));
                    memory.add(METADATA_BYTES + 2 * (name.len() + help.len() + unit.len()))?;
                    let of_metric = json!({"type": kind.value(row), "help": help, "unit": unit});
                    by_metric.entry(name.to_owned()).or_default().push(of_metric);
                }
            }
            Ok((by_metric, memory))
        };
        let found = state.engines.query.run(&ctx, work).await?;
        Ok((found, ctx))
    };
    match looked_up.await {
        Err(e) => error_response(&e, route),
        Ok(((by_metric, _memory), ctx)) => {
            let data = serde_json::to_vec(&by_metric).unwrap_or_else(|_| b"{}".to_vec());
            success(&Envelope::lacking(&ctx), &data)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(label_name(name).as_deref(), expected, "{name}");
        check("job", Some("job"));
        check("U__my_2e_label", Some("my.label"));
        check("U__a__b", Some("a_b"));
        check("U___1F600_x_d_", Some("😀x\r"));
        for literal in ["U__a_zz_", "U__a_2e", "U__a_d800_", "U__a_00002e_", "U__a_+2e_", "U___", "U_a"] {
            check(literal, Some(literal));
        }
        check("", None);
        check("U__", None);
    }

    #[test]
    fn names_that_are_no_text() {
        assert_eq!(unreadable_name("/api/v1/label/a%FFb%20/values"), "a\\xffb ");
    }

    #[test]
    fn bytes_of_names_that_are_no_text() {
        for (path, expected) in [
            ("/api/v1/label/%ff/values", "\\xff"),
            ("/api/v1/label/a%0Ab/values", "a\\nb"),
            ("/api/v1/label/%22/values", "\\\""),
            ("/api/v1/label/100%/values", "100%"),
            ("/api/v1/label/%zz/values", "%zz"),
            ("/api/v1/label/%4/values", "%4"),
            ("/api/v1/label/%%41/values", "%A"),
            ("/api/v1/label/%+f/values", "%+f"),
            ("/api/v1/label/%ff%+1/values", "\\xff%+1"),
            ("/api/v1/label//values", ""),
            ("/values", ""),
            ("", ""),
        ] {
            assert_eq!(unreadable_name(path), expected, "{path}");
        }
    }

    #[test]
    fn escapes_of_names() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(decoded(name).as_deref(), expected, "{name}");
        check("", Some(""));
        check("a", Some("a"));
        check("__", Some("_"));
        check("____", Some("__"));
        check("_41_", Some("A"));
        check("_41__42_", Some("AB"));
        check("_0_", Some("\0"));
        check("_e4_", Some("ä"));
        check("_E4_", Some("ä"));
        check("_FFFFF_", Some("\u{fffff}"));
        // Six digits are above the range of characters; an escape without an end is invalid.
        check("_10ffff_", None);
        check("_dfff_", None);
        check("_", None);
        check("___", None);
        check("_g_", None);
        check("_ 1_", None);
    }

    #[tokio::test]
    async fn a_label_has_a_name() {
        use http_body_util::BodyExt as _;

        let response = no_name();
        assert_eq!(response.status().as_u16(), 400);
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let body: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!((&body["errorType"], &body["error"]), (&json!("bad_data"), &json!("invalid label name: \"\"")));
        assert_eq!(quoted("a\"b\n"), r#""a\"b\n""#);
    }

    /// Escaped names decode to the original ones, unless these have characters of six digits or look escaped
    /// themselves.
    #[test]
    fn escaped_names_are_the_names() {
        use crate::encode::escaping::{EscapingScheme, NameOf};

        let letters = ['a', 'Z', '_', '.', '0', '7', ' ', '/', 'é', '\u{1f600}', '\n', '"', '\u{1}'];
        let mut state = 3_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..1000 {
            let name: String = (0..=next(7)).map(|_| letters[next(letters.len())]).collect();
            let escaped = EscapingScheme::Values.name(&name, NameOf::Label).into_owned();
            assert_eq!(label_name(&escaped).as_deref(), Some(name.as_str()), "{escaped}");
        }
        let long = EscapingScheme::Values.name("\u{10ffff}", NameOf::Label).into_owned();
        assert_eq!(label_name(&long), Some(long.clone()), "as Prometheus reads it");
    }
}
