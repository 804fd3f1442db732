//! Status endpoints of Prometheus: configuration, flags, runtime, WAL replay, features. Only what is true here is
//! reported: there is no Go runtime and no scrape configuration.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`serveConfig`, `serveFlags`, `serveRuntimeInfo`,
//! `serveWALReplayStatus`, `features`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::{DateTime, SecondsFormat, Utc};
use quiver_promql::ast::{AggregateOp, BinaryOp};
use quiver_promql::functions::FUNCTIONS;
use serde_json::{Map, Value, json};

use crate::encode::prometheus::{Envelope, success};
use crate::handlers::boxed;
use crate::state::AppState;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v1/status/config", get(boxed(config)))
        .route("/api/v1/status/flags", get(boxed(flags)))
        .route("/api/v1/status/runtimeinfo", get(boxed(runtime)))
        .route("/api/v1/status/walreplay", get(boxed(replay)))
        .route("/api/v1/features", get(boxed(features)))
}

fn answer(data: &Value) -> Response {
    success(&Envelope::default(), data.to_string().as_bytes())
}

type SettingList = [(&'static str, &'static str, Value)];

/// The settings as YAML, as the name of the member (`yaml`) says.
async fn config(State(state): State<Arc<AppState>>) -> Response {
    answer(&json!({"yaml": yaml(&state.live.load().listed)}))
}

fn yaml(listed: &SettingList) -> String {
    let mut out = String::new();
    for section in listed.chunk_by(|a, b| a.0 == b.0) {
        let _ = writeln!(out, "{}:", section[0].0);
        // A JSON value is valid YAML.
        for (_, key, value) in section {
            let _ = writeln!(out, "  {key}: {value}");
        }
    }
    out
}

/// The settings as a flat map.
async fn flags(State(state): State<Arc<AppState>>) -> Response {
    answer(&Value::Object(flat(&state.live.load().listed)))
}

fn flat(listed: &SettingList) -> Map<String, Value> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    listed.iter().map(|(section, key, value)| (format!("{section}.{key}"), text(value).into())).collect()
}

async fn runtime(State(state): State<Arc<AppState>>) -> Response {
    let time = |ms: i64| {
        DateTime::<Utc>::from_timestamp_millis(ms)
            .map_or_else(String::new, |t| t.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    };
    let setting = |section: &str, key: &str| {
        let live = state.live.load();
        let found = live.listed.iter().find(|(s, k, _)| (*s, *k) == (section, key));
        found.and_then(|(_, _, value)| value.as_str()).unwrap_or_default().to_owned()
    };
    let started = time(state.process.started_ms);
    answer(&json!({
        "startTime": started,
        "serverTime": time(state.clock.now_ms()),
        // Settings are read once at the start; invalid ones end the process.
        "reloadConfigSuccess": true,
        "lastConfigTime": started,
        "storageRetention": setting("store", "retention"),
    }))
}

/// Requests are only served after the WAL replay, so it is always done.
async fn replay() -> Response {
    answer(&json!({"min": 0, "max": 0, "current": 0}))
}

async fn features(State(state): State<Arc<AppState>>) -> Response {
    let experimental = state.engines.promql.experimental_functions();
    let functions: BTreeMap<&str, bool> = FUNCTIONS.iter().map(|f| (f.name, !f.experimental || experimental)).collect();
    let mut operators: BTreeMap<&str, bool> = BinaryOp::ALL.iter().map(|op| (op.as_str(), true)).collect();
    for op in AggregateOp::ALL {
        let hidden = matches!(op, AggregateOp::Limitk | AggregateOp::LimitRatio);
        operators.insert(op.as_str(), !hidden || experimental);
    }
    operators.extend(["=~", "!~", "@"].map(|op| (op, true)));
    let on = |names: &[&'static str]| names.iter().map(|name| (*name, true)).collect::<BTreeMap<_, _>>();
    answer(&json!({
        "api": on(&[
            "exclude_alerts", "label_values_match", "otlp_write_receiver", "query_stats", "query_warnings",
            "remote_write_receiver", "time_range_labels", "time_range_series",
        ]),
        "prometheus": {"agent_mode": false, "server_mode": true},
        "promql": on(&[
            "anchored", "at_modifier", "bool", "by", "delayed_name_removal", "duration_expr", "fill", "fill_left",
            "fill_right", "group_left", "group_right", "ignoring", "negative_offset", "offset", "on", "per_query_lookback_delta",
            "per_step_stats", "smoothed", "subqueries", "without",
        ]),
        "promql_functions": functions,
        "promql_operators": operators,
        "rules": on(&["keep_firing_for", "query_offset"]),
        "tsdb": on(&["exemplar_storage", "native_histograms", "st_storage"]),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown() {
        let listed = [
            ("http", "listen", json!("127.0.0.1:1")),
            ("http", "cors_origins", json!(["a"])),
            ("query", "threads", json!(2)),
        ];
        let expected = "http:\n  listen: \"127.0.0.1:1\"\n  cors_origins: [\"a\"]\nquery:\n  threads: 2\n";
        assert_eq!(yaml(&listed), expected);
        let flags = flat(&listed);
        assert_eq!(flags["http.listen"], "127.0.0.1:1");
        assert_eq!((&flags["http.cors_origins"], &flags["query.threads"]), (&json!("[\"a\"]"), &json!("2")));
    }
}
