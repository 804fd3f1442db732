//! Durations of queries and writes: a histogram for each language or signal, and phase.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_query::{Phase, Query};
use quiver_types::Domain;

use super::histogram::{Histogram, write_histograms};
use super::text::write_metric;

/// Under which name queries are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Instant and range queries.
    Promql,
    /// Queries that the index answers: series, label names and values, metadata, exemplars, cardinality.
    Series,
    /// Remote read of Prometheus.
    RemoteRead,
    /// The newest samples, for a scraper (`/federate`).
    Federation,
    /// Queries of logs.
    Logsql,
    /// Queries of traces through any API.
    Traces,
    /// SQL over all signals.
    Sql,
    /// Analytics queries over models.
    Olap,
}

impl Language {
    const ALL: [Self; 8] = [
        Self::Promql,
        Self::Series,
        Self::RemoteRead,
        Self::Federation,
        Self::Logsql,
        Self::Traces,
        Self::Sql,
        Self::Olap,
    ];

    /// The domain whose data queries of this language read. Those of SQL and analytics begin with the rights of metrics, and
    /// each of their tables is read with those of its own domain.
    pub(crate) fn domain(self) -> Domain {
        match self {
            Self::Logsql => Domain::Logs,
            Self::Traces => Domain::Traces,
            Self::Promql | Self::Series | Self::RemoteRead | Self::Federation | Self::Sql | Self::Olap => {
                Domain::Metrics
            }
        }
    }

    /// The name in metrics and lists.
    pub(crate) fn word(self) -> &'static str {
        ["promql", "series", "remote_read", "federation", "logsql", "traces", "sql", "olap"][self as usize]
    }
}

/// A kind of telemetry that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Samples of metrics.
    Metrics,
    /// Log records.
    Logs,
    /// Spans of traces.
    Traces,
}

const SIGNALS: [&str; 3] = ["metrics", "logs", "traces"];

/// A phase of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reading the body from the connection.
    Read,
    /// Decompressing and decoding it.
    Decode,
    /// Storing the rows, until the store acknowledges them.
    Store,
}

const STEPS: [&str; 3] = ["read", "decode", "store"];

/// Histograms of all phases.
#[derive(Debug, Default)]
pub struct Phases {
    queries: [[Histogram; Phase::ALL.len()]; Language::ALL.len()],
    plans: [AtomicU64; Language::ALL.len()],
    writes: [[Histogram; STEPS.len()]; SIGNALS.len()],
}

impl Phases {
    /// Adds the phases of a query that ended.
    pub(crate) fn query(&self, query: &Query) {
        let Some(language) = Language::ALL.iter().position(|l| l.word() == query.asked.language) else { return };
        self.plans[language].fetch_add(query.plans(), Relaxed);
        for phase in Phase::ALL {
            self.queries[language][phase as usize].observe(query.time_in(phase));
        }
    }

    /// Adds the duration of a step of a write.
    pub(crate) fn step(&self, signal: Signal, step: Step, took: Duration) {
        self.writes[signal as usize][step as usize].observe(took);
    }

    /// Runs a step of a write and adds its duration.
    pub(crate) async fn timed<T>(&self, signal: Signal, step: Step, work: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let done = work.await;
        self.step(signal, step, began.elapsed());
        done
    }

    /// Writes all histograms.
    pub(crate) fn write(&self, out: &mut String) {
        let queries = Language::ALL.iter().zip(&self.queries).flat_map(|(language, phases)| {
            let labels = move |phase: Phase| format!("language=\"{}\",phase=\"{}\"", language.word(), phase.word());
            Phase::ALL.into_iter().zip(phases).map(move |(phase, histogram)| (labels(phase), histogram))
        });
        let name = "quiver_query_phase_duration_seconds";
        let help = "Time of queries by phase; of answers that stream, encode goes on beside execute.";
        write_histograms(out, name, help, queries);
        let count = |(language, count): (&Language, &AtomicU64)| {
            (format!("{{language=\"{}\"}}", language.word()), count.load(Relaxed) as f64)
        };
        let plans: Vec<_> = Language::ALL.iter().zip(&self.plans).map(count).collect();
        write_metric(out, "quiver_query_plans_total", "counter", "Plans that answered queries.", &plans);
        let writes = SIGNALS.iter().zip(&self.writes).flat_map(|(signal, steps)| {
            let labels = move |step: &str| format!("signal=\"{signal}\",phase=\"{step}\"");
            STEPS.iter().zip(steps).map(move |(step, histogram)| (labels(step), histogram))
        });
        let name = "quiver_ingest_phase_duration_seconds";
        let help =
            "Time of requests that bring data, over HTTP and gRPC, by phase; store ends with the acknowledgement.";
        write_histograms(out, name, help, writes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn languages_have_words_and_domains() {
        let words: BTreeSet<&str> = Language::ALL.into_iter().map(Language::word).collect();
        assert_eq!(words.len(), Language::ALL.len(), "{words:?}");
        for (language, domain) in [
            (Language::Logsql, Domain::Logs),
            (Language::Traces, Domain::Traces),
            (Language::Promql, Domain::Metrics),
            (Language::RemoteRead, Domain::Metrics),
        ] {
            assert_eq!(language.domain(), domain, "{language:?}");
        }
    }

    #[tokio::test]
    async fn steps_of_writes_count_apart() {
        let phases = Phases::default();
        assert_eq!(phases.timed(Signal::Logs, Step::Decode, async { 5 }).await, 5);
        phases.step(Signal::Traces, Step::Store, Duration::from_secs(2));
        let mut out = String::new();
        phases.write(&mut out);
        for (signal, step, count) in
            [("logs", "decode", 1), ("traces", "store", 1), ("metrics", "decode", 0), ("logs", "store", 0)]
        {
            let line =
                format!("quiver_ingest_phase_duration_seconds_count{{signal=\"{signal}\",phase=\"{step}\"}} {count}");
            assert!(out.lines().any(|l| l == line), "`{line}` is not in\n{out}");
        }
        let line = "quiver_ingest_phase_duration_seconds_sum{signal=\"traces\",phase=\"store\"} 2";
        assert!(out.lines().any(|l| l == line), "`{line}` is not in\n{out}");
    }
}
