//! The `stats` of a query: its timings, and the samples that it read.
//!
//! Shape of Prometheus 3.14 `util/stats/query_stats.go`.

use std::fmt::Write as _;
use std::time::Duration;

use quiver_promql::{QueryOutcome, SampleStats};
use serde_json::json;

use super::prometheus::write_time;

/// The JSON object; with `per_step` also samples per step.
pub(crate) fn to_json(outcome: &QueryOutcome, per_step: bool) -> String {
    let t = &outcome.timings;
    let s = |d: Duration| d.as_secs_f64();
    let evaluation = t.parse + t.plan + t.execute + t.arrange;
    let timings = json!({
        "evalTotalTime": s(evaluation),
        "resultSortTime": s(t.arrange),
        "queryPreparationTime": s(t.parse + t.plan),
        "innerEvalTime": s(t.execute),
        "execQueueTime": s(t.queue),
        "execTotalTime": s(t.queue + evaluation),
    });
    let mut out = format!("{{\"timings\":{timings}");
    if let Some(samples) = &outcome.samples {
        out.push_str(",\"samples\":{");
        if per_step {
            out.push_str(&steps("totalQueryableSamplesPerStep", samples, &samples.total_per_step));
        }
        let _ = write!(out, "\"totalQueryableSamples\":{},", samples.total());
        if per_step {
            out.push_str(&steps("samplesReadPerStep", samples, &samples.read_per_step));
        }
        let _ = write!(out, "\"samplesRead\":{},\"peakSamples\":{}}}", samples.read(), samples.peak);
    }
    out.push('}');
    out
}

/// A member with counts by time: `"name":[[1435781451.781,3]],`.
fn steps(name: &str, stats: &SampleStats, counts: &[u64]) -> String {
    let mut out = format!("\"{name}\":[").into_bytes();
    for (step, count) in counts.iter().enumerate() {
        out.extend_from_slice(if step > 0 { b",[" } else { b"[" });
        write_time(&mut out, stats.start_ms + step as i64 * stats.step_ms);
        out.extend_from_slice(format!(",{count}]").as_bytes());
    }
    out.extend_from_slice(b"],");
    String::from_utf8(out).expect("only ASCII was written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stand_beside_their_times() {
        let stats = SampleStats {
            start_ms: 1_435_781_451_781,
            step_ms: 15_000,
            total_per_step: vec![3, 0],
            read_per_step: Vec::new(),
            peak: 3,
        };
        assert_eq!(steps("a", &stats, &stats.total_per_step), r#""a":[[1435781451.781,3],[1435781466.781,0]],"#);
        assert_eq!(steps("b", &stats, &stats.read_per_step), r#""b":[],"#);
    }

    fn outcome(samples: Option<SampleStats>) -> QueryOutcome {
        let seconds = Duration::from_secs;
        QueryOutcome {
            value: std::sync::Arc::new(quiver_promql::QueryValue::Scalar { time_ms: 0, value: 0.0 }),
            warnings: Vec::new(),
            infos: Vec::new(),
            samples,
            timings: quiver_promql::QueryTimings {
                queue: seconds(1),
                parse: seconds(2),
                plan: seconds(4),
                execute: seconds(8),
                arrange: seconds(16),
            },
            memory: std::sync::Arc::default(),
        }
    }

    #[test]
    fn times_are_those_of_the_phases() {
        let shown: serde_json::Value = serde_json::from_str(&to_json(&outcome(None), true)).expect("JSON");
        let timings = json!({
            "evalTotalTime": 30.0, "resultSortTime": 16.0, "queryPreparationTime": 6.0, "innerEvalTime": 8.0,
            "execQueueTime": 1.0, "execTotalTime": 31.0,
        });
        assert_eq!(shown, json!({"timings": timings}), "without counts there are none");
    }

    #[test]
    fn samples_by_step_are_for_who_asks() {
        let stats = SampleStats {
            start_ms: -500,
            step_ms: 500,
            total_per_step: vec![1, 2, 4],
            read_per_step: vec![1, 0, 3],
            peak: 7,
        };
        let shown = |per_step: bool| -> serde_json::Value {
            serde_json::from_str(&to_json(&outcome(Some(stats.clone())), per_step)).expect("JSON")
        };
        let few = json!({"totalQueryableSamples": 7, "samplesRead": 4, "peakSamples": 7});
        assert_eq!(shown(false)["samples"], few);
        let mut all = few;
        all["totalQueryableSamplesPerStep"] = json!([[-0.5, 1], [0, 2], [0.5, 4]]);
        all["samplesReadPerStep"] = json!([[-0.5, 1], [0, 0], [0.5, 3]]);
        assert_eq!(shown(true)["samples"], all);
    }
}
