//! Series, label names, label values, metadata: answered from the index alone.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`series`, `labelNames`, `labelValues`, `metricMetadata`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use quiver_promql::parser::parse_selectors;
use quiver_query::{Pace, QueryContext, from_datafusion};
use quiver_types::metrics::MetricMetadata;
use quiver_types::{Error, ErrorKind, Matcher, MillisRange, Result, SeriesSelector, SeriesSnapshot};
use serde_json::{Value, json};

use crate::encode::list::TextList;
use crate::encode::prometheus::{Envelope, error_response, json_text, success};
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::partial::query_context;
use crate::state::AppState;

/// What the metadata of a metric take as JSON, twice, beside their texts.
const METADATA_BYTES: usize = 768;

/// What stands in `warnings` when `limit` cut the answer.
pub(crate) const TRUNCATED: &str = "results truncated due to limit";

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v1/series", get(series).post(series))
        .route("/api/v1/labels", get(labels).post(labels))
        .route("/api/v1/label/{name}/values", get(values))
        .route("/api/v1/label//values", get(|| async { values_of(String::new()) }))
        .route("/api/v1/metadata", get(metadata))
}

/// What `series`, `labels` and `values` share.
#[derive(Debug)]
struct Ask {
    limit: usize,
    range: MillisRange,
    selectors: Vec<Vec<Matcher>>,
    explain: bool,
}

impl Ask {
    /// Reads all but the selectors, whose work belongs to the query.
    fn read(params: &Params, needs_selector: bool) -> Result<Self> {
        if needs_selector && params.all("match[]").next().is_none() {
            return Err(Error::invalid("no match[] parameter provided"));
        }
        let limit = params.limit()?;
        let range =
            MillisRange::new(params.time("start")?.unwrap_or(i64::MIN), params.time("end")?.unwrap_or(i64::MAX));
        Ok(Self { limit, range, selectors: Vec::new(), explain: explain(params) })
    }

    fn read_selectors(&mut self, params: &Params, needs_selector: bool, ctx: &QueryContext) -> Result<()> {
        self.selectors = selectors(params, ctx).map_err(|e| match e.kind {
            // Of the endpoints that take selectors, only `series` says in errors which parameter it is.
            ErrorKind::Invalid if needs_selector => invalid("match[]", &e.message),
            _ => e,
        })?;
        Ok(())
    }
}

fn explain(params: &Params) -> bool {
    params.switch("explain") || params.get("explain") == Some("analyze")
}

/// Reads all `match[]`, as long as the query may go on: use it inside of `QueryEngine::run`.
pub(crate) fn selectors(params: &Params, ctx: &QueryContext) -> Result<Vec<Vec<Matcher>>> {
    let selectors = parse_selectors(params.all("match[]"), Some(&Pace::new(ctx, "query preparation")))?;
    if selectors.iter().any(|matchers| matchers.iter().all(Matcher::matches_empty)) {
        return Err(Error::invalid("match[] must contain at least one non-empty matcher"));
    }
    Ok(selectors)
}

/// Runs one look-up on the engine's threads and encodes what it gives.
async fn answer<F, W>(
    state: Arc<AppState>,
    request: Request,
    needs_selector: bool,
    route: &'static str,
    work: F,
) -> Response
where
    F: FnOnce(Arc<dyn SeriesSnapshot>, QueryContext, Ask, TextList) -> W + Send + 'static,
    W: Future<Output = Result<TextList>> + Send + 'static,
{
    let looked_up = async {
        let params = Params::of(&state, request).await?;
        let mut ask = Ask::read(&params, needs_selector)?;
        let (limit, explain) = (ask.limit, ask.explain);
        let ctx = query_context(&state, state.asked(Language::Series, ""), state.limits());
        let snapshot = state.source.snapshot();
        let list = TextList::new(&state.engine, &ctx, state.settings.answer_bytes_max);
        let inner = ctx.clone();
        let read_and_looked_up = async move {
            ask.read_selectors(&params, needs_selector, &inner)?;
            work(snapshot, inner, ask, list).await
        };
        let texts = state.engine.run(&ctx, read_and_looked_up).await?;
        Ok((texts, limit, explain, ctx))
    };
    match looked_up.await {
        Err(e) => error_response(&e, route),
        Ok((texts, _, true, ctx)) => {
            let totals: BTreeMap<_, _> = ctx.stats.list().into_iter().collect();
            let node = json!({"name": "SeriesIndex", "depth": 0, "rows": texts.len()});
            let shown = json!({"logical": route, "physical": "SeriesIndex", "nodes": [node], "totals": totals});
            success(&Envelope::default(), shown.to_string().as_bytes())
        }
        Ok((mut texts, limit, false, ctx)) => {
            let mut envelope = Envelope::lacking(&ctx);
            if limit > 0 && texts.len() > limit {
                texts.truncate(limit);
                envelope.warnings.push(TRUNCATED.to_owned());
            }
            texts.response(&envelope)
        }
    }
}

async fn series(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answer(state, request, true, "/api/v1/series", |snapshot, ctx, ask, mut list| async move {
        let mut found = BTreeSet::new();
        let pace = Pace::new(&ctx, "series look-up");
        for matchers in ask.selectors {
            let selector = SeriesSelector { matchers, range: ask.range, labels: None };
            let selected = snapshot.select(&ctx.access, &selector, &ctx.stats).await?;
            ctx.check("series look-up")?;
            let table = &selected.table;
            for row in 0..table.len() {
                let bytes: usize = table.labels(row).map(|(name, value)| name.len() + value.len() + 6).sum();
                pace.did(table.names().len() + bytes)?;
                list.take(bytes)?;
                let mut text = labels_json(table.labels(row));
                // It grew by doubling.
                text.shrink_to_fit();
                found.insert(text);
            }
        }
        found.into_iter().try_for_each(|text| list.push(text))?;
        Ok(list)
    })
    .await
}

/// Gives a label set as a JSON object.
pub(crate) fn labels_json<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::with_capacity(128);
    out.push('{');
    for (i, (name, value)) in labels.enumerate() {
        if i > 0 {
            out.push(',');
        }
        json_text(&mut out, name);
        out.push(':');
        json_text(&mut out, value);
    }
    out.push('}');
    out
}

fn texts_json(texts: Vec<String>, mut list: TextList, ctx: &QueryContext) -> Result<TextList> {
    let pace = Pace::new(ctx, "label look-up");
    for text in texts {
        pace.did(1 + text.len())?;
        list.take(text.len() + 2)?;
        let mut out = String::with_capacity(text.len() + 2);
        json_text(&mut out, &text);
        list.push(out)?;
    }
    Ok(list)
}

async fn labels(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answer(state, request, false, "/api/v1/labels", |snapshot, ctx, ask, list| async move {
        texts_json(snapshot.label_names(&ctx.access, &ask.selectors, ask.range, &ctx.stats).await?, list, &ctx)
    })
    .await
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
    let Some(name) = label_name(&name) else { return values_of(name) };
    answer(state, request, false, "/api/v1/label/values", move |snapshot, ctx, ask, list| async move {
        texts_json(snapshot.label_values(&ctx.access, &name, &ask.selectors, ask.range, &ctx.stats).await?, list, &ctx)
    })
    .await
}

/// Shows the bytes of a name that is not UTF-8.
fn unreadable_name(path: &str) -> String {
    let name = path.rsplit('/').nth(1).unwrap_or_default().as_bytes();
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < name.len() {
        let hex = name.get(at + 1..at + 3).filter(|_| name[at] == b'%').and_then(|h| std::str::from_utf8(h).ok());
        let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
        bytes.push(byte.unwrap_or(name[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    bytes.escape_ascii().to_string()
}

/// The answer for a name that no label has.
fn values_of(name: String) -> Response {
    error_response(&Error::invalid(format!("invalid label name: {name:?}")), "/api/v1/label/values")
}

/// Decodes a name of the form `U__my_2e_label` (Prometheus `model.UnescapeName`, values encoding); others stay.
fn label_name(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let Some(escaped) = name.strip_prefix("U__") else { return Some(name.to_owned()) };
    let mut out = String::new();
    let mut rest = escaped;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '_' {
            out.push(c);
        } else if let Some(after) = rest.strip_prefix('_') {
            out.push('_');
            rest = after;
        } else {
            let (hex, after) = rest.split_once('_')?;
            out.push(u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)?);
            rest = after;
        }
    }
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
        let (snapshot, inner) = (state.source.snapshot(), ctx.clone());
        let work = async move { snapshot.metadata(&inner.access, metric.as_deref(), &inner.stats).await };
        let found = state.engine.run(&ctx, work).await?;
        let memory = state.engine.reservation("metadata", &ctx);
        let bytes = |m: &MetricMetadata| METADATA_BYTES + 2 * (m.metric.len() + m.help.len() + m.unit.len());
        memory.try_grow(found.iter().map(bytes).sum()).map_err(from_datafusion)?;
        Ok((found, limit, per_metric, ctx, memory))
    };
    match looked_up.await {
        Err(e) => error_response(&e, route),
        Ok((found, limit, per_metric, ctx, _memory)) => {
            let mut by_metric: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for m in found {
                let full = limit.is_some_and(|l| l > 0 && by_metric.len() >= l) && !by_metric.contains_key(&m.metric);
                if full {
                    continue;
                }
                let list = by_metric.entry(m.metric).or_default();
                if per_metric.is_none_or(|l| l == 0 || list.len() < l) {
                    list.push(json!({"type": m.metric_type, "help": m.help, "unit": m.unit}));
                }
            }
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
        check("U__a_zz_", None);
        check("", None);
    }

    #[test]
    fn names_that_are_no_text() {
        assert_eq!(unreadable_name("/api/v1/label/a%FFb%20/values"), "a\\xffb ");
    }

    #[test]
    fn labels_are_json() {
        assert_eq!(labels_json([("a", "x\"y\n")].into_iter()), r#"{"a":"x\"y\n"}"#);
    }
}
