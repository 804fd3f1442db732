//! Operations of key transactions beyond the contract (`config-api` 3.2): candidates that were detected and are not
//! key transactions yet, key transactions made from them, and their figures.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::{RUM_TRANSACTIONS, TRANSACTIONS};
use quiver_config::{Family, Op, Place, Problem, Result};
use quiver_query::tables::config_columns::when;
use quiver_types::Domain;
use quiver_types::query_configuration::KeyTransaction;
use serde_json::{Map, Value, json};

use super::body_members::{list, only_members};
use super::joint_changes::moved_to_places;
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use super::telemetry_queries::{IS_ERROR, Row, name_of, number, quoted};
use crate::effects::query_configuration::{key_of, transaction_condition};
use crate::state::AppState;

/// Most key transactions that are created at once.
const ITEMS_MAX: usize = 500;
/// Keys by which candidates can be sorted, besides their owner.
const SORTS: [&str; 4] = ["count", "p95Ms", "errorRate", "transactionName"];

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for family in [&TRANSACTIONS, &RUM_TRANSACTIONS] {
        let at = |rest: &str| format!("{}/{rest}", family.path);
        router = router
            .route(&at("candidates"), special_at(family, MethodFilter::GET, candidates))
            .route(&at("{id}/summary"), special_at(family, MethodFilter::GET, summary))
            .route(&at("from-candidates"), special_at(family, MethodFilter::POST, from_candidates));
    }
    router
}

/// The member that names the owner of a family's transactions.
fn owner_of(family: &Family) -> &'static str {
    if family.name == TRANSACTIONS.name { "service" } else { "application" }
}

/// A condition that selects spans of a family's transactions: only those of browsers have `bt.kind`.
fn of_family(family: &Family) -> String {
    let kind = name_of("attributes.bt.kind");
    let test = if family.name == TRANSACTIONS.name { "IS NULL" } else { "IS NOT NULL" };
    format!("{} IS NOT NULL AND {kind} {test}", name_of("attributes.bt.name"))
}

fn candidates<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let family = ask.place.family;
        let owner = owner_of(family);
        ask.only_parameters(&[owner, "start", "end", "sort", "limit"])?;
        ask.must_see(Domain::Traces)?;
        let ((start, end), limit) = (ask.window()?.sql(), ask.limit_parameter(100)?);
        let sort = ask.parameter("sort")?.unwrap_or("-count");
        let (field, way) = sort.strip_prefix('-').map_or((sort, "ASC"), |field| (field, "DESC"));
        if !SORTS.contains(&field) && field != owner {
            return Err(Problem::parameter(format!("`sort` must be one of {} or {owner}", SORTS.join(", "))));
        }
        let service = ask.parameter(owner)?.map(|s| format!(" AND service_name = {}", quoted(s)));
        let rows = ask
            .rows(format!(
                "SELECT service_name AS {owner}, {name} AS \"transactionName\", count(*) AS count, \
                quantile(duration / 1e6, 0.95) AS \"p95Ms\", \
                avg(CASE WHEN {IS_ERROR} THEN 1.0 ELSE 0.0 END) AS \"errorRate\" FROM quiver.spans \
                WHERE start_time >= {start} AND start_time < {end} AND {of_family} AND {key} IS NULL \
                AND service_name IS NOT NULL{service} \
                GROUP BY 1, 2 ORDER BY {field} {way} NULLS LAST, 1, 2 LIMIT {limit}",
                name = name_of("attributes.bt.name"),
                of_family = of_family(family),
                key = name_of("config@key"),
                service = service.unwrap_or_default(),
                field = name_of(field),
            ))
            .await?;
        Ok(Answer::ok(json!({"items": rows})))
    })
}

/// Figures of a key transaction, over all transactions that its name or pattern matches.
fn summary<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["start", "end"])?;
        let entity = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let key = key_of(&entity, owner_of(ask.place.family));
        let (start, end) = ask.window()?.sql();
        let vitals = vitals(ask, &key, &start, &end).await?;
        let row = if ask.sees(Domain::Traces) {
            let (t, frustrates) = (name_of("config@apdex_t"), name_of("config@errors_frustrate"));
            let judged = format!(
                "CASE WHEN {IS_ERROR} AND {frustrates} = 1 THEN 0.0 WHEN duration / 1e6 <= {t} THEN 1.0 \
                WHEN duration / 1e6 <= 4 * {t} THEN 0.5 ELSE 0.0 END"
            );
            let text = format!(
                "SELECT count(*) AS count, avg(CASE WHEN {IS_ERROR} THEN 1.0 ELSE 0.0 END) AS \"errorRate\", \
                quantile(duration / 1e6, 0.5) AS \"p50Ms\", quantile(duration / 1e6, 0.95) AS \"p95Ms\", \
                quantile(duration / 1e6, 0.99) AS \"p99Ms\", quantile(duration / 1e6, {share}) AS \"latencyMs\", \
                avg({judged}) AS apdex FROM quiver.spans WHERE start_time >= {start} AND start_time < {end} \
                AND service_name = {service} AND {of_family} AND {holds} = 1",
                share = key.latency_percentile / 100.0,
                service = quoted(&key.service),
                of_family = of_family(ask.place.family),
                holds = name_of(&when(&transaction_condition(&key.transaction))),
            );
            Some(ask.row(text).await?)
        } else {
            None
        };
        // Without the right to see spans the figures are null.
        let figure = |name: &str| row.as_ref().map_or(Value::Null, |row| number(row, name));
        let mut answer = json!({
            "count": figure("count"), "errorRate": figure("errorRate"), "p50Ms": figure("p50Ms"),
            "p95Ms": figure("p95Ms"), "p99Ms": figure("p99Ms"), "apdex": figure("apdex"),
            "slo": {
                "latencyMs": figure("latencyMs"), "latencyPercentile": key.latency_percentile,
                "latencySloMs": key.latency_slo_ms, "latencyMet": met(&figure("latencyMs"), key.latency_slo_ms, 1.0),
                "errorRateSloPct": key.error_rate_slo_pct,
                "errorRateMet": met(&figure("errorRate"), key.error_rate_slo_pct, 100.0),
            },
        });
        if let Some(vitals) = vitals {
            answer["vitals"] = vitals;
        }
        Ok(Answer::ok(answer))
    })
}

/// Whether a value meets its limit; null if either is unknown.
fn met(value: &Value, bound: Option<f64>, factor: f64) -> Value {
    match (value.as_f64(), bound) {
        (Some(value), Some(bound)) => json!(value * factor <= bound),
        _ => Value::Null,
    }
}

/// Web vitals of the pages that executions of a transaction loaded, by URL without query, next to their limits.
/// `None` if it is not a transaction of pages. If a vital was reported several times the last report counts.
async fn vitals(ask: &Ask, key: &KeyTransaction, start: &str, end: &str) -> Result<Option<Value>> {
    if ask.place.family.name != RUM_TRANSACTIONS.name {
        return Ok(None);
    }
    let first = |names: &[&str]| names.iter().map(|name| name_of(name)).collect::<Vec<_>>().join(", ");
    let page = |names: &[&str]| format!("regexp_replace(coalesce({}), '[?#].*$', '')", first(names));
    let rows = if ask.sees(Domain::Traces) && ask.sees(Domain::Logs) {
        ask.rows(format!(
            "SELECT vital, quantile(value, 0.75) AS p75 FROM (SELECT lower({vital}) AS vital, \
            last_value(try_cast({value} AS DOUBLE) ORDER BY time) AS value FROM quiver.logs \
            WHERE time >= {start} AND time < {end} AND service_name = {service} \
            AND {event} = 'browser.web_vital' AND lower({vital}) IN ('lcp', 'inp', 'cls') \
            AND {told} IN (SELECT {loaded} FROM quiver.spans WHERE start_time >= {start} AND start_time < {end} \
            AND service_name = {service} AND {kind} IN ('pageLoad', 'routeChange') AND {holds} = 1) \
            GROUP BY 1, coalesce({id}, concat(CAST(time AS VARCHAR), {session}))) AS reports GROUP BY 1",
            vital = name_of("browser.web_vital.name"),
            value = name_of("browser.web_vital.value"),
            id = name_of("browser.web_vital.id"),
            event = name_of("event_name"),
            session = name_of("session.id"),
            service = quoted(&key.service),
            told = page(&["url.full", "browser.document.url.full", "http.url"]),
            loaded = page(&["attributes.url.full", "attributes.http.url", "attributes.location.href"]),
            kind = name_of("attributes.bt.kind"),
            holds = name_of(&when(&transaction_condition(&key.transaction))),
        ))
        .await?
    } else {
        Vec::new()
    };
    let one = |vital: &str, limit: Option<f64>| {
        let row: Option<&Row> = rows.iter().find(|row| row.get("vital").and_then(Value::as_str) == Some(vital));
        let p75 = row.map_or(Value::Null, |row| number(row, "p75"));
        json!({"p75": p75, "limit": limit, "met": met(&p75, limit, 1.0)})
    };
    let limits = key.vitals;
    Ok(Some(json!({
        "lcpMs": one("lcp", limits.lcp_ms), "inpMs": one("inp", limits.inp_ms), "cls": one("cls", limits.cls),
    })))
}

/// Creates key transactions, all or none; the name of each consists of its owner and the transaction's name.
fn from_candidates<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["items"])?;
        let owner = owner_of(ask.place.family);
        let given = list(&body, "items", ITEMS_MAX)?;
        if given.is_empty() {
            return Err(Problem::field("/items", "REQUIRED", "must hold at least one"));
        }
        let (mut ops, mut places) = (Vec::with_capacity(given.len()), Vec::with_capacity(given.len()));
        for (n, item) in given.iter().enumerate() {
            let place = format!("/items/{n}");
            let Value::Object(item) = item else {
                return Err(Problem::field(place, "INVALID_TYPE", "must be an object"));
            };
            only_members(item, &[owner, "transactionName"]).map_err(|p| p.below(&place))?;
            let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
            let name: String = format!("{}: {}", text(owner), text("transactionName")).chars().take(200).collect();
            let mut made: Map<String, Value> = item.clone();
            made.insert("name".to_owned(), json!(name));
            ops.push((Place::of(ask.place.family), Op::Create { id: None, body: made }));
            places.push(place);
        }
        let done = ask.config.change_all(&ask.caller, ops, ask.mode).await;
        let done = done.map_err(|problem| moved_to_places(problem, &places))?;
        ask.acts().await;
        let made = done.into_iter().filter_map(|one| one.after);
        let items: Vec<Value> = made.map(|entity| Value::Object(entity.shown())).collect();
        Ok(Answer { status: 201, ..Answer::ok(json!({"items": items})) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_tell_apart_services_and_pages() {
        for (family, owner, test) in
            [(&TRANSACTIONS, "service", "NULL"), (&RUM_TRANSACTIONS, "application", "NOT NULL")]
        {
            assert_eq!(owner_of(family), owner);
            let expected = format!("\"attributes.bt.name\" IS NOT NULL AND \"attributes.bt.kind\" IS {test}");
            assert_eq!(of_family(family), expected);
        }
    }

    #[test]
    fn objectives_are_met_where_both_sides_are_known() {
        for (value, bound, factor, expected) in [
            (json!(100.0), Some(100.0), 1.0, json!(true)),
            (json!(100), Some(99.5), 1.0, json!(false)),
            // The value is a fraction, its limit a percentage.
            (json!(0.01), Some(1.0), 100.0, json!(true)),
            (json!(0.02), Some(1.0), 100.0, json!(false)),
            (json!(0), Some(0.0), 100.0, json!(true)),
            (json!(null), Some(1.0), 1.0, json!(null)),
            (json!("1"), Some(1.0), 1.0, json!(null)),
            (json!(1), None, 1.0, json!(null)),
        ] {
            assert_eq!(met(&value, bound, factor), expected, "{value} {bound:?}");
        }
    }
}
