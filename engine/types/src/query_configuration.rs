//! The configuration that queries read: key transactions, Apdex thresholds, business processes. Plain data, pinned per
//! query like a snapshot, so that a change applies to all history from the next query on (`config-api` 6).

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use serde_json::Value;

use crate::condition::{Case, Glob};
use crate::error::Result;

/// The threshold of services that nobody set, in milliseconds.
pub const SERVICE_MS: i64 = 500;
/// That of applications in browsers.
pub const RUM_MS: i64 = 3000;

/// A name, or a pattern of names.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    glob: Option<Glob>,
}

impl NamePattern {
    /// Reads a name; one that holds `*` or `{` is a pattern, too.
    pub fn new(text: &str) -> Self {
        let glob = text.contains(['*', '{']).then(|| Glob::parse(text, Case::Sensitive).ok()).flatten();
        Self { text: text.to_owned(), glob }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it may stand for several names.
    pub fn is_pattern(&self) -> bool {
        self.glob.is_some()
    }

    /// Says whether a name is the one meant, or fits the pattern.
    pub fn matches(&self, name: &str) -> bool {
        self.text == name || self.glob.as_ref().is_some_and(|glob| glob.matches(name))
    }
}

/// Limits of web vitals, which three quarters of what browsers tell are to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Vitals {
    /// Largest contentful paint, in milliseconds.
    pub lcp_ms: Option<f64>,
    /// Interaction to next paint, in milliseconds.
    pub inp_ms: Option<f64>,
    /// Cumulative layout shift, without a unit.
    pub cls: Option<f64>,
}

/// A key business transaction.
#[derive(Debug, Clone)]
pub struct KeyTransaction {
    /// The entity's id.
    pub id: String,
    /// The name that people gave it, shown in lists.
    pub name: String,
    /// Whose transaction it is: a service, or an application.
    pub service: String,
    /// The transaction, as detection rules name it.
    pub transaction: NamePattern,
    /// Who looks after it.
    pub owner: String,
    /// `critical`, `high`, `normal`.
    pub tier: String,
    /// Its Apdex threshold in milliseconds; none: that of its service counts.
    pub threshold_ms: Option<f64>,
    /// The latency that is promised, in milliseconds at [`Self::latency_percentile`]; none: nothing is promised.
    pub latency_slo_ms: Option<f64>,
    /// The percentile, 0 to 100, that [`Self::latency_slo_ms`] is about; 95 where nothing else is said.
    pub latency_percentile: f64,
    /// The share of failures that is allowed, in percent.
    pub error_rate_slo_pct: Option<f64>,
    /// Of pages: what their web vitals may be.
    pub vitals: Vitals,
    /// When it was changed, Unix milliseconds.
    pub updated_ms: i64,
}

/// An Apdex threshold of a service or of operations of it.
#[derive(Debug, Clone)]
pub struct ApdexThreshold {
    /// The entity's id.
    pub id: String,
    /// Service that it is for; `*`: all.
    pub service: String,
    /// Operations that it is for; none: all of the service.
    pub operation: Option<NamePattern>,
    /// The Apdex threshold T in milliseconds: what takes no longer satisfies.
    pub threshold_ms: f64,
    /// Whether errors frustrate, however fast they come.
    pub errors_frustrate: bool,
}

/// The threshold that counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effective<'a> {
    /// The Apdex threshold T in milliseconds.
    pub threshold_ms: f64,
    /// Whether errors frustrate.
    pub errors_frustrate: bool,
    /// `keyTransaction`, `operation`, `service`, `default`, `builtin`.
    pub source: &'static str,
    /// Id of the key transaction or the threshold that it comes from; none where it is built in.
    pub id: Option<&'a str>,
}

/// Key transactions and thresholds of one kind of telemetry: spans of services, or what happens in browsers.
#[derive(Debug, Clone, Default)]
pub struct PerformanceTargets {
    /// Enabled key transactions, older ones first.
    pub keys: Vec<KeyTransaction>,
    /// Apdex thresholds of services (or applications) and of their operations.
    pub thresholds: Vec<ApdexThreshold>,
    /// Whether it is about browsers.
    pub is_rum: bool,
}

impl PerformanceTargets {
    /// The key transaction that a transaction of a service is: one named so before one whose pattern fits.
    pub fn key(&self, service: &str, transaction: &str) -> Option<&KeyTransaction> {
        let of_service = || self.keys.iter().filter(|key| key.service == service);
        let named = of_service().find(|key| key.transaction.text() == transaction);
        named.or_else(|| of_service().find(|key| key.transaction.matches(transaction)))
    }

    /// The most specific threshold: key transaction, operation, service, `*`, built in.
    pub fn threshold(&self, service: &str, operation: Option<&str>, transaction: Option<&str>) -> Effective<'_> {
        let key = transaction.and_then(|transaction| {
            let of_service = || self.keys.iter().filter(|k| k.service == service && k.threshold_ms.is_some());
            let named = of_service().find(|key| key.transaction.text() == transaction);
            named.or_else(|| of_service().find(|key| key.transaction.matches(transaction)))
        });
        if let Some((key, threshold_ms)) = key.and_then(|key| Some((key, key.threshold_ms?))) {
            // What errors do is said by the threshold that would count otherwise.
            let errors_frustrate = self.of_names(service, operation).errors_frustrate;
            return Effective { threshold_ms, errors_frustrate, source: "keyTransaction", id: Some(&key.id) };
        }
        self.of_names(service, operation)
    }

    fn of_names(&self, service: &str, operation: Option<&str>) -> Effective<'_> {
        let of_service = |name: &str| {
            let own = || self.thresholds.iter().filter(|t| t.service == name);
            let fits = |t: &&ApdexThreshold| {
                t.operation.as_ref().zip(operation).is_some_and(|(pattern, operation)| pattern.matches(operation))
            };
            // Of several patterns the longest says most.
            let best = own().filter(fits).max_by_key(|t| t.operation.as_ref().map_or(0, |o| o.text().len()));
            (best.map(|t| t.id.as_str()), own().find(|t| t.operation.is_none()).map(|t| t.id.as_str()))
        };
        let find = |id: Option<&str>| id.and_then(|id| self.thresholds.iter().find(|t| t.id == id));
        let ((own_operation, own), (any_operation, any)) = (of_service(service), of_service("*"));
        effective(find(own_operation), "operation")
            .or_else(|| effective(find(own), "service"))
            .or_else(|| effective(find(any_operation), "operation"))
            .or_else(|| effective(find(any), "default"))
            .unwrap_or(Effective {
                threshold_ms: (if self.is_rum { RUM_MS } else { SERVICE_MS }) as f64,
                errors_frustrate: true,
                source: "builtin",
                id: None,
            })
    }
}

fn effective<'t>(found: Option<&'t ApdexThreshold>, source: &'static str) -> Option<Effective<'t>> {
    let threshold = found?;
    Some(Effective {
        threshold_ms: threshold.threshold_ms,
        errors_frustrate: threshold.errors_frustrate,
        source,
        id: Some(&threshold.id),
    })
}

/// A business process.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// The entity's id.
    pub id: String,
    /// The name that people gave it, shown in lists.
    pub name: String,
    /// Its version: it grows with each change.
    pub version: i64,
    /// The field whose value instances are told apart by.
    pub correlation: String,
    /// An instance without a next step for so long is abandoned.
    pub timeout_ms: i64,
    /// How long an instance may take.
    pub sla_ms: Option<f64>,
    /// Services that its steps are about; an empty one: any.
    pub services: Vec<String>,
    /// Its steps in order.
    pub steps: Vec<ProcessStep>,
}

/// A step of a business process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessStep {
    /// Its id within the process.
    pub id: String,
    /// The name that people gave it.
    pub name: String,
    /// Where it is seen: in `span`, `log`, `event` or `rum`.
    pub kind: StepKind,
    /// What is seen (`config-api` 1.6).
    pub condition: Value,
    /// Of which service; none: any.
    pub service: Option<String>,
    /// The field to tell instances apart by, where it is another one here.
    pub correlation: Option<String>,
    /// Whether instances may go on without it.
    pub optional: bool,
    /// `none`, `success`, `failure`.
    pub outcome: String,
    /// How long after the step before it at most.
    pub max_gap_ms: Option<i64>,
}

/// Where a step is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// In spans of any kind.
    Span,
    /// In spans that begin a business transaction.
    Transaction,
    /// In log records.
    Log,
    /// In log records that have a name of an event.
    Event,
    /// In spans of browsers.
    Rum,
}

/// All that queries read of configuration.
#[derive(Debug, Clone, Default)]
pub struct QueryConfiguration {
    /// Key transactions and thresholds of services, which judge their spans.
    pub services: PerformanceTargets,
    /// Of applications in browsers.
    pub pages: PerformanceTargets,
    /// Business processes that are enabled.
    pub processes: Vec<Process>,
}

/// Managed resources and what relates them, as rows of tables; none: there are none.
#[derive(Debug, Clone, Default)]
pub struct Resources {
    /// Rows of resources.
    pub resources: Option<RecordBatch>,
    /// Rows of relationships.
    pub relationships: Option<RecordBatch>,
}

/// What is read as rows of a table only when somebody asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigurationList {
    /// Who is told of alerts.
    Receivers,
    /// Silences, those that are over too, as long as they are kept.
    Silences,
    /// What was done to configuration and accounts, or refused.
    Audit,
}

/// Counts bytes before they are held; an error where there is no room for them.
pub type ReserveFn<'a> = dyn Fn(usize) -> Result<()> + Send + Sync + 'a;

/// Access to the configuration as it is now.
#[async_trait]
pub trait ConfiguredSource: Send + Sync + Debug {
    /// What is configured; reading it never waits.
    fn configured(&self) -> Arc<QueryConfiguration>;

    /// Managed resources. There may be many, so that they are read when somebody asks for them.
    ///
    /// # Errors
    /// Unavailable: the database is gone.
    async fn resources(&self) -> Result<Arc<Resources>> {
        Ok(Arc::default())
    }

    /// Rules as rows of a table; none: there are none. They are read when somebody asks for them, too.
    ///
    /// # Errors
    /// Unavailable: the database is gone.
    async fn rules(&self) -> Result<Option<RecordBatch>> {
        Ok(None)
    }

    /// Rows of another table, read anew each time; `hold` counts them. Of the audit log those of one caller alone, where
    /// `own` names him as his queries do.
    ///
    /// # Errors
    /// Unavailable: the database is gone; those of `hold`.
    async fn listed(
        &self,
        _of: ConfigurationList,
        _own: Option<&str>,
        _hold: &ReserveFn<'_>,
    ) -> Result<Vec<RecordBatch>> {
        Ok(Vec::new())
    }
}

/// Nothing is configured.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingConfigured;

impl ConfiguredSource for NothingConfigured {
    fn configured(&self) -> Arc<QueryConfiguration> {
        Arc::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, transaction: &str, threshold_ms: Option<f64>) -> KeyTransaction {
        KeyTransaction {
            id: id.to_owned(),
            name: id.to_owned(),
            service: "cart".to_owned(),
            transaction: NamePattern::new(transaction),
            owner: String::new(),
            tier: "normal".to_owned(),
            threshold_ms,
            latency_slo_ms: None,
            latency_percentile: 95.0,
            error_rate_slo_pct: None,
            vitals: Vitals::default(),
            updated_ms: 0,
        }
    }

    fn threshold(id: &str, service: &str, operation: Option<&str>, threshold_ms: f64) -> ApdexThreshold {
        let operation = operation.map(NamePattern::new);
        ApdexThreshold {
            id: id.to_owned(),
            service: service.to_owned(),
            operation,
            threshold_ms,
            errors_frustrate: true,
        }
    }

    #[test]
    fn the_most_specific_threshold_counts() {
        let judging = PerformanceTargets {
            keys: vec![key("k1", "POST **", Some(10.0)), key("k2", "POST /pay", Some(20.0)), key("k3", "GET /", None)],
            thresholds: vec![
                threshold("s", "cart", None, 30.0),
                threshold("o1", "cart", Some("POST **"), 40.0),
                threshold("o2", "cart", Some("POST /cart/**"), 50.0),
                threshold("any", "*", None, 60.0),
                threshold("anyop", "*", Some("GET /health"), 70.0),
            ],
            is_rum: false,
        };
        let check = |service: &str, operation: &str, transaction: Option<&str>, expected: (f64, &str, &str)| {
            let found = judging.threshold(service, Some(operation), transaction);
            let got = (found.threshold_ms, found.source, found.id.unwrap_or_default());
            assert_eq!(got, expected, "{service} {operation} {transaction:?}");
        };
        check("cart", "x", Some("POST /pay"), (20.0, "keyTransaction", "k2"));
        check("cart", "x", Some("POST /other"), (10.0, "keyTransaction", "k1"));
        check("cart", "x", Some("GET /"), (30.0, "service", "s"));
        check("cart", "POST /cart/1", None, (50.0, "operation", "o2"));
        check("cart", "POST /x", None, (40.0, "operation", "o1"));
        check("other", "POST /x", Some("POST /pay"), (60.0, "default", "any"));
        check("other", "GET /health", None, (70.0, "operation", "anyop"));
        let none = PerformanceTargets { is_rum: true, ..PerformanceTargets::default() };
        assert_eq!(none.threshold("a", None, None).threshold_ms, RUM_MS as f64);
        assert_eq!(judging.key("cart", "POST /pay").map(|k| k.id.as_str()), Some("k2"));
        assert_eq!(judging.key("front", "POST /pay").map(|k| k.id.as_str()), None);
    }
}
