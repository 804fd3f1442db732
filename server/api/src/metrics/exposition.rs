//! The server's own metrics as `/metrics` shows them: counters of requests and the state of each part of the server.

use std::sync::atomic::Ordering::Relaxed;

use super::text::write_metric;
use super::write_store;
use crate::state::AppState;

/// Gives all own metrics as exposition text, version 0.0.4.
pub fn text(state: &AppState) -> String {
    let mut out = String::with_capacity(16 * 1024);
    let one = |v: f64| vec![(String::new(), v)];
    let version = vec![(format!("{{version=\"{}\"}}", state.settings.version), 1.0)];
    write_metric(&mut out, "quiver_build_info", "gauge", "Version of the product.", &version);
    let enforced = one(f64::from(u8::from(state.is_enforced())));
    write_metric(&mut out, "rbac_enabled", "gauge", "Whether callers must say who they are.", &enforced);
    (state.process.write_metrics)(&mut out);
    state.metrics.write_requests(&mut out);
    let used = state.engines.query.used();
    let loads = [
        ("quiver_query_started_total", "counter", "Queries begun.", &used.started),
        ("quiver_query_failed_total", "counter", "Queries that failed.", &used.failed),
        ("quiver_query_cancelled_total", "counter", "Queries whose caller went away.", &used.cancelled),
        ("quiver_queries_running", "gauge", "Queries that run.", &used.running),
        ("quiver_queries_waiting", "gauge", "Queries that wait for a place.", &used.waiting),
        ("quiver_query_slow_total", "counter", "Queries slower than the setting.", &state.metrics.slow_queries),
        ("quiver_query_unlogged_total", "counter", "Queries that have no row.", &state.metrics.usage.lost),
    ];
    for (name, kind, help, counter) in loads {
        write_metric(&mut out, name, kind, help, &one(counter.load(Relaxed) as f64));
    }
    let seconds = used.micros.load(Relaxed) as f64 / 1e6;
    write_metric(&mut out, "quiver_query_seconds_total", "counter", "Time spent in queries.", &one(seconds));
    let reserved = state.engines.query.memory_reserved() as f64;
    write_metric(&mut out, "quiver_query_memory_bytes", "gauge", "Memory pool in use.", &one(reserved));
    state.metrics.logs.write(&mut out);
    state.metrics.rejections.write(&mut out);
    caches(state, &mut out);
    state.metrics.spans.write(&mut out);
    state.alertd.metrics.write(&mut out);
    write_store(&mut out);
    out
}

/// Writes size and counters of the caches.
fn caches(state: &AppState, out: &mut String) {
    let stats = state.engines.store.cache_stats();
    let each = |f: fn(&quiver_store::lru::CacheStats) -> u64| -> Vec<(String, f64)> {
        stats.iter().map(|(name, s)| (format!("{{cache=\"{name}\"}}"), f(s) as f64)).collect()
    };
    let results = state.engines.promql.results().stats();
    let with_results = |mut list: Vec<(String, f64)>, n: u64| {
        list.push(("{cache=\"results\"}".to_owned(), n as f64));
        list
    };
    let bytes = with_results(each(|s| s.bytes), results.bytes);
    write_metric(out, "quiver_cache_bytes", "gauge", "Bytes that a cache holds.", &bytes);
    let entries = with_results(each(|s| s.entries), results.entries);
    write_metric(out, "quiver_cache_entries", "gauge", "Entries that a cache holds.", &entries);
    write_metric(out, "quiver_cache_hits_total", "counter", "Look-ups that a cache answered.", &each(|s| s.hits));
    write_metric(out, "quiver_cache_misses_total", "counter", "Look-ups that it did not.", &each(|s| s.misses));
    let steps = [
        ("{from=\"cache\"}".to_owned(), results.steps_kept as f64),
        ("{from=\"evaluation\"}".to_owned(), results.steps_evaluated as f64),
    ];
    let help = "Steps of range queries whose results may be kept, by where they came from.";
    write_metric(out, "quiver_result_steps_total", "counter", help, &steps);
}
