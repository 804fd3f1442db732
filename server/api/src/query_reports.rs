//! Reports each ended query: its phases to the metrics, and to the log if it was slow.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use quiver_query::{Observer, Phase, Query};
use quiver_types::read_stats::get;
use xxhash_rust::xxh3::xxh3_64;

use crate::live_settings::LiveSettings;
use crate::metrics::ApiMetrics;

/// Observes queries of all languages.
#[derive(Debug)]
pub struct QueryWatch {
    /// Where they are counted.
    pub metrics: Arc<ApiMetrics>,
    /// Settings, of which one says from when on a query is slow.
    pub live: Arc<ArcSwap<LiveSettings>>,
}

impl Observer for QueryWatch {
    fn ended(&self, query: &Query) {
        let asked = &query.asked;
        if asked.standing {
            return;
        }
        self.metrics.phases.query(query);
        let took = query.began.elapsed();
        self.metrics.usage.ended(query, took);
        if took < self.live.load().slow_query {
            return;
        }
        self.metrics.slow_queries.fetch_add(1, Relaxed);
        let ms = |phase: Phase| query.time_in(phase).as_millis() as u64;
        tracing::warn!(
            language = asked.language,
            took_ms = took.as_millis() as u64,
            queue_ms = ms(Phase::Queue),
            plan_ms = ms(Phase::Plan),
            execute_ms = ms(Phase::Execute),
            encode_ms = ms(Phase::Encode),
            memory_bytes = query.memory().1,
            samples = get(&query.stats.samples),
            values = get(&query.stats.values),
            bytes_read = get(&query.stats.bytes_read),
            stopped = query.is_stopped(),
            caller = %asked.caller,
            path = %asked.path,
            request_id = %asked.request_id,
            // Of the text as it is kept: what is asked again and again has the same.
            digest = %format_args!("{:016x}", xxh3_64(asked.text.as_bytes())),
            times = %asked.times,
            query = %asked.text,
            "slow query"
        );
    }
}
