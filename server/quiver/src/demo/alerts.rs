//! Alerts of the demo: rules that fire during the shop's incidents, a policy, and a receiver that prints
//! notifications.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use axum::Json;
use axum::Router;
use axum::routing::post;
use quiver_types::{Error, Result};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

const RULES: &str = r#"groups:
- name: shop
  interval: 15s
  rules:
  - record: job:http_errors:rate1m
    expr: sum by (job) (rate(http_requests_total{status=~"5.."}[1m]))
  - alert: RequestsFail
    expr: job:http_errors:rate1m > 1
    for: 15s
    labels: {severity: page}
    annotations: {summary: '{{ $labels.job }} fails {{ $value | humanize }} requests each second'}
  - alert: SlowRequests
    expr: histogram_quantile(0.9, sum by (job, le) (rate(http_request_duration_seconds_bucket[1m]))) > 0.5
    for: 15s
    labels: {severity: ticket}
    annotations: {summary: '{{ $labels.job }}: one request in ten takes longer than {{ $value | humanizeDuration }}'}
- name: shop-logs
  type: vlogs
  interval: 15s
  rules:
  - alert: BankDoesNotAnswer
    expr: '_time:1m "does not answer" | stats count() failed | filter failed:>5'
    labels: {severity: page}
    annotations: {summary: '{{ $value }} charges failed within a minute'}
"#;

const POLICY: &str = "route:
  receiver: terminal
  group_by: [alertname]
  group_wait: 5s
  group_interval: 15s
receivers:
- name: terminal
  webhook_configs:
  - url: http://ADDRESS/
";

/// Files of the demo's alerting, and the socket of its receiver.
#[derive(Debug)]
pub struct DemoAlerts {
    rules: PathBuf,
    policy: PathBuf,
    /// The socket of the receiver.
    pub listener: TcpListener,
}

/// Paths for the settings.
#[derive(Debug, Clone)]
pub struct Paths(PathBuf, PathBuf);

impl Paths {
    /// Puts the paths into the settings, and allows notifications to this machine.
    pub fn apply(&self, settings: &mut Settings) {
        settings.alerting.rules = vec![self.0.display().to_string()];
        settings.alerting.policy = self.1.display().to_string();
        settings.egress.allow.push("127.0.0.0/8".to_owned());
    }
}

impl DemoAlerts {
    /// Writes the files to the data directory. `None` if the user has rules or a policy.
    ///
    /// # Errors
    /// Internal: the files cannot be written, or there is no free port.
    pub async fn prepare(settings: &Settings) -> Result<Option<Self>> {
        if !settings.alerting.rules.is_empty() || !settings.alerting.policy.is_empty() {
            return Ok(None);
        }
        let cannot = |e: std::io::Error| Error::internal("cannot prepare the alerts of the demo").with_source(e);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?.to_string();
        let dir = Path::new(&settings.store.data).join("demo");
        tokio::fs::create_dir_all(&dir).await.map_err(cannot)?;
        let (rules, policy) = (dir.join("rules.yml"), dir.join("policy.yml"));
        tokio::fs::write(&rules, RULES).await.map_err(cannot)?;
        tokio::fs::write(&policy, POLICY.replace("ADDRESS", &address)).await.map_err(cannot)?;
        Ok(Some(Self { rules, policy, listener }))
    }

    /// The paths of the files.
    pub fn paths(&self) -> Paths {
        Paths(self.rules.clone(), self.policy.clone())
    }

    /// Prints notifications until `stop`.
    pub async fn print(self, stop: CancellationToken) {
        let router = Router::new().route("/", post(told));
        let serving = axum::serve(self.listener, router).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = serving.await {
            tracing::warn!(%error, "the receiver of the demo has ended");
        }
    }
}

async fn told(Json(body): Json<Value>) {
    let _ = std::io::Write::write_all(&mut std::io::stdout(), shown(&body).as_bytes());
}

/// A line per alert.
fn shown(body: &Value) -> String {
    let mut out = String::new();
    for alert in body["alerts"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (status, name) = (text(&alert["status"]).to_uppercase(), text(&alert["labels"]["alertname"]));
        let _ = writeln!(out, "  webhook told: {status:<8} {name}: {}", text(&alert["annotations"]["summary"]));
    }
    out
}

#[cfg(test)]
mod tests {
    use quiver_alertd::policy::Policy;
    use quiver_alerting::rules::read;

    use super::*;
    use crate::rules::Languages;

    #[test]
    fn files_are_valid() {
        let rules = read(RULES, &Languages).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((rules.rule_count(), rules.warnings.len()), (4, 0));
        let policy = Policy::load(&POLICY.replace("ADDRESS", "127.0.0.1:1"), &|_| Ok(Vec::new())).unwrap();
        assert_eq!(policy.config.receivers[0].integrations.len(), 1);
        let body = serde_json::json!({"alerts": [
            {"status": "firing", "labels": {"alertname": "A"}, "annotations": {"summary": "x"}},
        ]});
        assert_eq!(shown(&body), "  webhook told: FIRING   A: x\n");
    }

    /// A notification prints one line per alert; anything else prints nothing.
    #[test]
    fn what_the_receiver_prints() {
        for (body, expected) in [
            ("{}", ""),
            ("[]", ""),
            ("{\"alerts\":5}", ""),
            ("{\"alerts\":[{}]}", "  webhook told:          : \n"),
            (
                "{\"alerts\":[{\"status\":\"resolved\",\"labels\":{\"alertname\":\"A\"}}]}",
                "  webhook told: RESOLVED A: \n",
            ),
            ("{\"alerts\":[{\"status\":5,\"labels\":[]}]}", "  webhook told:          : \n"),
        ] {
            assert_eq!(shown(&serde_json::from_str(body).unwrap()), expected, "{body}");
        }
        let two = serde_json::json!({"alerts": [{"status": "firing"}, {"status": "resolved"}]});
        assert_eq!(shown(&two).lines().count(), 2);
    }

    /// The files are only written if there are no rules and no policy; then the settings name them.
    #[tokio::test]
    async fn files_of_the_demo() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().display().to_string();
        let settings = |flags: &[(&'static str, &str)]| {
            let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            crate::settings::LoadedSettings::load(None, std::iter::empty(), &flags).unwrap().settings
        };
        for own in [("alerting.rules", "[\"a.yml\"]"), ("alerting.policy", "p.yml")] {
            assert!(DemoAlerts::prepare(&settings(&[("store.data", &data), own])).await.unwrap().is_none(), "{own:?}");
        }
        let mut plain = settings(&[("store.data", &data)]);
        let made = DemoAlerts::prepare(&plain).await.unwrap().unwrap();
        made.paths().apply(&mut plain);
        assert_eq!(crate::alerting::read_rules(&plain).unwrap().len(), 2);
        let policy = crate::alerting::read_policy(&plain).unwrap().unwrap();
        assert_eq!(policy.config.receivers[0].integrations.len(), 1);
        let address = made.listener.local_addr().unwrap().to_string();
        assert!(std::fs::read_to_string(&plain.alerting.policy).unwrap().contains(&format!("http://{address}/")));
        assert!(plain.egress.allow.iter().any(|network| network == "127.0.0.0/8"));
    }
}
