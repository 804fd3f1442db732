//! Latencies, calls and errors of services over time, for the Monitor page of Jaeger's UI.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use chrono::{DateTime, SecondsFormat};
use quiver_traces::lists::rates::{RatePoint, RateRequest, Rates};
use quiver_traces::{JsonWriter, ParamError, TraceError};
use serde_json::{Value, json};

use super::jaeger::{failed, window};
use crate::encode::json::json_answer;
use crate::handlers::boxed;
use crate::state::AppState;
use crate::traces_api::Call;
use crate::traces_params::kind;

/// Smallest step, in milliseconds.
const STEP_MIN_MS: u64 = 1_000;

#[derive(Clone, Copy)]
enum Figure {
    Latencies,
    Calls,
    Errors,
}

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for at in ["/api", "/jaeger/api"] {
        for (name, figure) in [("latencies", Figure::Latencies), ("calls", Figure::Calls), ("errors", Figure::Errors)] {
            let handler = move |state: State<Arc<AppState>>, request: Request| figures(figure, state, request);
            router = router.route(&format!("{at}/metrics/{name}"), get(boxed(handler)));
        }
        router = router.route(&format!("{at}/metrics/minstep"), get(boxed(min_step)));
    }
    router
}

async fn min_step() -> Response {
    json_answer(&json!({"data": STEP_MIN_MS, "total": 0, "limit": 0, "offset": 0, "errors": null}))
}

async fn figures(figure: Figure, State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        answer(figure, &call).await
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn answer(figure: Figure, call: &Call) -> Result<Response, TraceError> {
    let params = &call.params;
    let services: Vec<String> = params.all("service").map(str::to_owned).collect();
    if services.is_empty() {
        return Err(ParamError::new("service", "is required").into());
    }
    let millis = |name: &str, default: u64| -> Result<i64, TraceError> {
        let ms = params.number(name, STEP_MIN_MS..=86_400_000 * 31)?.unwrap_or(default);
        Ok(ms as i64 * 1_000_000)
    };
    let kinds = params.all("spanKind").map(|k| kind("spanKind", k)).collect::<Result<Vec<u8>, _>>()?;
    let range = if params.has("lookback") {
        window(call)?
    } else {
        let (_, end) = window(call)?;
        (end.saturating_sub(3_600_000_000_000), end)
    };
    let quantile = match (figure, params.one("quantile")?) {
        (Figure::Latencies, None) => return Err(ParamError::new("quantile", "is required").into()),
        (_, None) => 0.95,
        (_, Some(text)) => {
            let q = text.parse::<f64>().ok().filter(|q| (0.0..=1.0).contains(q));
            q.ok_or_else(|| ParamError::new("quantile", format!("`{text}` is not between 0 and 1")))?
        }
    };
    let by_operation = params.switch("groupByOperation")?.unwrap_or(false);
    let request = RateRequest {
        services,
        kinds: if kinds.is_empty() { vec![2] } else { kinds },
        by_operation,
        range,
        step: millis("step", 5_000)?,
        per: millis("ratePer", 600_000)?,
        quantile,
    };
    let found = call.state.engines.traces.rates(&call.ctx, request).await?;
    let points = found.iter().map(|rates| rates.points.len()).sum();
    call.written(points, move |w| write_family(w, figure, quantile, by_operation, &found))
}

fn write_family(w: &mut JsonWriter<'_>, figure: Figure, quantile: f64, by_operation: bool, found: &[Rates]) {
    let (of, grouped) = if by_operation {
        ("service_operation", "grouped by service & operation")
    } else {
        ("service", "grouped by service")
    };
    let (name, help) = match figure {
        Figure::Latencies => (format!("{of}_latencies"), format!("{quantile:.2}th quantile latency, {grouped}")),
        Figure::Calls => (format!("{of}_call_rate"), format!("calls/sec, {grouped}")),
        Figure::Errors => (
            format!("{of}_error_rate"),
            format!("error rate, computed as a fraction of errors/sec over calls/sec, {grouped}"),
        ),
    };
    w.object(|w| {
        w.key("name").text(&name);
        w.key("type").text("GAUGE");
        w.key("help").text(&help);
        w.key("metrics").array(|w| {
            for rates in found {
                if w.is_closed() {
                    return;
                }
                write_series(w, figure, rates);
            }
        });
    });
}

fn write_series(w: &mut JsonWriter<'_>, figure: Figure, rates: &Rates) {
    let operation = rates.operation.as_deref().map(|operation| ("operation", operation));
    w.object(|w| {
        w.key("labels").array(|w| {
            for (name, value) in operation.into_iter().chain([("service_name", rates.service.as_str())]) {
                w.object(|w| {
                    w.key("name").text(name);
                    w.key("value").text(value);
                });
            }
        });
        w.key("metricPoints").array(|w| rates.points.iter().for_each(|point| write_point(w, figure, point)));
    });
}

fn write_point(w: &mut JsonWriter<'_>, figure: Figure, point: &RatePoint) {
    let value = match figure {
        Figure::Latencies => point.latency_ms,
        Figure::Calls => Some(point.calls_per_s),
        Figure::Errors => point.error_ratio,
    };
    // Where there are no calls, no number: a word, as in JSON of protobuf. Jaeger's UI leaves it out of averages.
    let value = value.map_or_else(|| Value::from("NaN"), Value::from);
    let time = DateTime::from_timestamp_nanos(point.time);
    w.object(|w| {
        w.key("gaugeValue").object(|w| w.key("doubleValue").raw(value));
        w.key("timestamp").text(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(figure: Figure, quantile: f64, by_operation: bool, found: &[Rates]) -> Value {
        let mut w = JsonWriter::default();
        write_family(&mut w, figure, quantile, by_operation, found);
        serde_json::from_slice(&w.finish().expect("JSON")).expect("JSON")
    }

    #[test]
    fn figures_are_families_of_gauges() {
        let point = RatePoint { time: 1_500_000_000, calls_per_s: 2.0, error_ratio: Some(0.5), latency_ms: Some(12.5) };
        let rates = |operation: Option<&str>| Rates {
            service: "cart".to_owned(),
            operation: operation.map(str::to_owned),
            points: vec![point.clone()],
        };
        let of_service = ("grouped by service", rates(None));
        let of_operation = ("grouped by service & operation", rates(Some("GET /")));
        let share = "error rate, computed as a fraction of errors/sec over calls/sec";
        for (figure, (grouped, rates), name, help, value) in [
            (Figure::Latencies, &of_operation, "service_operation_latencies", "0.95th quantile latency", 12.5),
            (Figure::Latencies, &of_service, "service_latencies", "0.95th quantile latency", 12.5),
            (Figure::Calls, &of_service, "service_call_rate", "calls/sec", 2.0),
            (Figure::Errors, &of_operation, "service_operation_error_rate", share, 0.5),
        ] {
            let by_operation = rates.operation.is_some();
            let shown = family(figure, 0.95, by_operation, std::slice::from_ref(rates));
            assert_eq!((shown["name"].as_str(), shown["type"].as_str()), (Some(name), Some("GAUGE")));
            assert_eq!(shown["help"], format!("{help}, {grouped}"));
            let mut labels = vec![json!({"name": "service_name", "value": "cart"})];
            if by_operation {
                labels.insert(0, json!({"name": "operation", "value": "GET /"}));
            }
            let points = json!([{"gaugeValue": {"doubleValue": value}, "timestamp": "1970-01-01T00:00:01.500Z"}]);
            assert_eq!(shown["metrics"], json!([{"labels": labels, "metricPoints": points}]), "{name}");
        }
        assert_eq!(family(Figure::Calls, 0.95, false, &[])["metrics"], json!([]));
        let idle = RatePoint { time: 0, calls_per_s: 0.0, error_ratio: None, latency_ms: None };
        let idle = [Rates { service: "cart".to_owned(), operation: None, points: vec![idle] }];
        for (figure, value) in
            [(Figure::Latencies, json!("NaN")), (Figure::Calls, json!(0.0)), (Figure::Errors, json!("NaN"))]
        {
            let shown = family(figure, 0.5, false, &idle);
            assert_eq!(shown["metrics"][0]["metricPoints"][0]["gaugeValue"], json!({"doubleValue": value}));
        }
        assert_eq!(family(Figure::Latencies, 0.5, false, &[])["help"], "0.50th quantile latency, grouped by service");
    }
}
