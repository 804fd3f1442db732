//! A job that applies detection rules to stored spans: membership in transactions is replaced day by day.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use quiver_config::Job;
use quiver_config::families::{DETECTION_RULES, RUM_DETECTION_RULES};
use quiver_ingest::transaction_detection::{Redetect, redetect};
use quiver_store::{RewriteCounts, SpanRewriter};
use quiver_types::SpansBatch;
use quiver_types::detection::{BT_ID, BT_NAME, BT_RULE, Detector};
use serde_json::{Value, json};

use super::{StopReason, advance, count};
use crate::effects::detector_of;
use crate::state::AppState;

/// The kind of jobs for detection rules of spans.
pub(crate) const KIND: &str = "bt-apply-to-all";
/// Like [`KIND`], for detection rules of pages.
pub(crate) const RUM_KIND: &str = "rum-bt-apply-to-all";

/// Parameters of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Params {
    /// Rules; `None`: all that are enabled.
    pub(crate) rules: Option<Vec<String>>,
    /// Services or applications, as names or globs.
    pub(crate) services: Vec<String>,
    /// Range of span starts in Unix nanoseconds.
    pub(crate) range: (i64, i64),
}

impl Params {
    /// The stored form.
    pub(crate) fn to_json(&self) -> Value {
        json!({"rules": self.rules, "services": self.services, "range": [self.range.0, self.range.1]})
    }

    fn read(value: &Value) -> Self {
        let texts = |key: &str| {
            let list = value.get(key)?.as_array()?;
            Some(list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
        };
        let at = |n: usize| value["range"][n].as_i64();
        Self {
            rules: texts("rules"),
            services: texts("services").unwrap_or_default(),
            range: (at(0).unwrap_or(i64::MIN), at(1).unwrap_or(i64::MAX)),
        }
    }
}

#[derive(Debug)]
struct DetectionRewriter {
    detector: Detector,
    scope: Redetect,
}

impl SpanRewriter for DetectionRewriter {
    fn attributes(&self) -> &[&'static str] {
        &[BT_ID, BT_NAME, BT_RULE]
    }

    fn concerns(&self, services: &[String]) -> bool {
        services.iter().any(|service| self.scope.is_for(service))
    }

    fn rewrite(&self, batch: &mut SpansBatch) -> RewriteCounts {
        let (scanned, changed) = redetect(batch, &self.detector, &self.scope);
        RewriteCounts { scanned, changed }
    }
}

/// The transaction names assigned so far, from a checkpoint.
fn names_of(checkpoint: &Value) -> Option<HashMap<String, HashSet<String>>> {
    let map = checkpoint.get("names")?.as_object()?;
    let texts = |list: &Value| {
        list.as_array().map(|l| l.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()).unwrap_or_default()
    };
    Some(map.iter().map(|(rule, names)| (rule.clone(), texts(names))).collect())
}

/// Continues a job after its last completed day.
pub(super) async fn run(state: &Arc<AppState>, job: &mut Job) -> Result<(), StopReason> {
    let params = Params::read(&job.params);
    let family = if job.kind == KIND { &DETECTION_RULES } else { &RUM_DETECTION_RULES };
    let detector = detector_of(&state.config, family).await?;
    // Names assigned at ingestion are kept; a resumed job knows the names that it assigned before.
    let names = names_of(&job.checkpoint).unwrap_or_else(|| state.effects.detector_for(family).names());
    let scope = Redetect {
        rules: params.rules.clone(),
        services: params.services.clone(),
        range: params.range,
        pages: job.kind == RUM_KIND,
    };
    let applied = Arc::new(DetectionRewriter { detector: detector.knowing(names), scope });
    let rewriter: Arc<dyn SpanRewriter> = Arc::clone(&applied) as _;
    let (start_ms, end_ms) = (params.range.0.div_euclid(1_000_000), params.range.1.div_euclid(1_000_000));
    let later = |e: quiver_types::Error| StopReason::Later(e.message);
    let days = state.engines.store.days_of_spans(start_ms, end_ms.saturating_add(1)).await.map_err(later)?;
    let done = job.checkpoint.get("day").and_then(Value::as_i64);
    let already = days.iter().filter(|day| done.is_some_and(|done| i64::from(**day) <= done)).count();
    for (n, day) in days.iter().enumerate().skip(already) {
        let rewritten = state.engines.store.rewrite_spans(*day, &rewriter).await.map_err(later)?;
        count(job, "partitions", 1);
        count(job, "scanned", rewritten.scanned);
        count(job, "changed", rewritten.changed);
        job.progress = (n + 1) as f64 / days.len() as f64;
        job.checkpoint = json!({"day": day, "names": applied.detector.names()});
        advance(state, job).await?;
    }
    for name in ["partitions", "scanned", "changed"] {
        count(job, name, 0);
    }
    state.effects.detector_for(family).learn(&applied.detector.names());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_back() {
        let params = Params { rules: Some(vec!["r".into()]), services: vec!["cart*".into()], range: (5, 9) };
        assert_eq!(Params::read(&params.to_json()), params);
        let all = Params { rules: None, services: Vec::new(), range: (i64::MIN, i64::MAX) };
        assert_eq!(Params::read(&all.to_json()), all);
    }

    #[test]
    fn names_come_back() {
        let names = HashMap::from([("r".to_owned(), HashSet::from(["a".to_owned(), "b".to_owned()]))]);
        assert_eq!(names_of(&json!({"day": 3, "names": names})), Some(names));
        assert_eq!(names_of(&json!({})), None);
    }
}
