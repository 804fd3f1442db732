//! One evaluation of one rule: results to alerts and samples.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use quiver_types::label::METRIC_NAME;
use quiver_types::{LabelSet, Millis};

use super::alert::{ActiveAlert, AlertState};
use super::check::DEFINITIONS;
use super::{Element, ElementValue, Engine, Language, Rule, Written};
use crate::template::{Host, MapKind, Options, QueriedSample, RULE_FUNCTIONS, Struct, Value, expand};

/// How long an ended alert is kept, so that its end is told.
const RESOLVED_RETENTION_MS: Millis = 15 * 60_000;

/// What a template that fails yields begins with this.
pub const ERROR_TEMPLATE: &str = "<error expanding template: ";

/// What rules are told of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setting {
    /// Labels that templates see and that are added to alerts when they are sent.
    pub external_labels: BTreeMap<String, String>,
    /// Where the service is seen from outside.
    pub external_url: String,
}

/// A result that counts against the limit or has equal alerts.
pub(super) fn value_of(value: &ElementValue) -> Value {
    match value {
        ElementValue::Float(value) => Value::Float(*value),
        ElementValue::Histogram(_, text) => Value::Histogram(Arc::from(text.as_str())),
    }
}

/// What one evaluation of an alerting rule sees.
pub(super) struct Evaluation<'a> {
    pub(super) rule: &'a Rule,
    /// Its place in the group.
    pub(super) number: usize,
    pub(super) setting: &'a Setting,
    pub(super) engine: &'a dyn Engine,
    /// Time of the evaluation.
    pub(super) at: Millis,
    pub(super) offset_ms: Millis,
    pub(super) limit: usize,
    /// Restored alerts that are missing now are judged at the next evaluation.
    pub(super) is_first: bool,
}

impl Rule {
    /// Says whether a label of the rule counts beside those of an element.
    fn sets(&self, name: &str, element: &Element) -> bool {
        !(self.service_yields && name == SERVICE && !element.labels.get(SERVICE).is_empty())
    }
}

/// The label that says whose an alert is.
const SERVICE: &str = "service";

impl Evaluation<'_> {
    fn expand(&self, name: &str, text: &str, data: &Value, warnings: &RefCell<Vec<String>>) -> String {
        // Most labels and annotations hold no template.
        if !text.contains("{{") {
            return text.to_owned();
        }
        let query = |expr: &str| {
            let elements = self.engine.query(self.number, Language::Promql, expr, self.at)?;
            let sample = |e: Element| QueriedSample { value: value_of(&e.value), labels: e.labels };
            Ok(elements.into_iter().map(sample).collect())
        };
        let host = Host {
            query: Some(&query),
            now_ns: i128::from(self.at) * 1_000_000,
            external_url: &self.setting.external_url,
            route_labels: None,
        };
        let options = Options { host, ..Options::default() };
        let name = format!("__alert_{name}");
        expand(&name, &format!("{DEFINITIONS}{text}"), data, RULE_FUNCTIONS, &options).unwrap_or_else(|e| {
            warnings.borrow_mut().push(e.clone());
            format!("{ERROR_TEMPLATE}{e}>")
        })
    }

    /// Makes an alert of an element: labels of the element without its name, of the rule, and `alertname`.
    fn alert(&self, element: &Element, warnings: &RefCell<Vec<String>>) -> ActiveAlert {
        let external = self.setting.external_labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let data = Value::Struct(Arc::new(Struct {
            type_name: "struct",
            fields: vec![
                ("Labels", "", Value::text_map(MapKind::Texts, element.labels.iter())),
                ("ExternalLabels", "", Value::text_map(MapKind::Texts, external)),
                ("ExternalURL", "", Value::text(&self.setting.external_url)),
                ("Value", "", value_of(&element.value)),
            ],
        }));
        let expand = |texts: &BTreeMap<String, String>| {
            let pair =
                |(name, text): (&String, &String)| (name.clone(), self.expand(&self.rule.name, text, &data, warnings));
            texts.iter().map(pair).collect::<BTreeMap<_, _>>()
        };
        let mut labels: BTreeMap<&str, &str> = element.labels.iter().filter(|(name, _)| *name != METRIC_NAME).collect();
        let mut own = expand(&self.rule.labels);
        own.retain(|name, _| self.rule.sets(name, element));
        labels.extend(own.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        labels.insert("alertname", &self.rule.name);
        ActiveAlert {
            labels: LabelSet::from_pairs(labels),
            annotations: expand(&self.rule.annotations),
            value: element.value.clone(),
            state: AlertState::Pending,
            active_at: self.at,
            fired_at: None,
            period: None,
            resolved_at: None,
            keep_firing_since: None,
            last_sent_at: None,
            valid_until: None,
            restored: false,
        }
    }

    /// Moves alerts on by a result; gives the samples to be written.
    ///
    /// # Errors
    /// Two alerts with equal labels: nothing has changed. More alerts than the limit: all are gone.
    pub(super) fn alerts(
        &self,
        elements: &[Element],
        active: &mut BTreeMap<Vec<u8>, ActiveAlert>,
        warnings: &RefCell<Vec<String>>,
    ) -> Result<Vec<Written>, String> {
        let mut hits = BTreeMap::new();
        for element in elements {
            let alert = self.alert(element, warnings);
            if hits.insert(alert.labels.canonical().to_vec(), alert).is_some() {
                return Err("vector contains metrics with the same labelset after applying alert labels".to_owned());
            }
        }
        for (key, alert) in &hits {
            match active.get_mut(key).filter(|there| there.state != AlertState::Inactive) {
                Some(there) => {
                    there.value = alert.value.clone();
                    there.annotations = alert.annotations.clone();
                }
                None => drop(active.insert(key.clone(), alert.clone())),
            }
        }
        let mut written = Vec::new();
        let mut count = 0;
        active.retain(|key, alert| {
            let hit = hits.contains_key(key);
            let stays = self.step(alert, hit);
            if stays && alert.state != AlertState::Inactive {
                count += 1;
                written.push(self.state_sample(alert));
                written.push(self.since_sample(alert));
            }
            stays
        });
        if self.limit > 0 && count > self.limit {
            active.clear();
            return Err(format!("exceeded limit of {} with {count} alerts", self.limit));
        }
        Ok(written)
    }

    /// Moves one alert on; says whether it stays.
    fn step(&self, alert: &mut ActiveAlert, hit: bool) -> bool {
        if hit {
            alert.keep_firing_since = None;
            alert.restored = false;
        } else if alert.restored && self.is_first {
            // What was lost while down shows only once there has been time to look.
            return true;
        } else {
            alert.restored = false;
            let kept = alert.state == AlertState::Firing
                && self.rule.keep_firing_for_ms > 0
                && self.at - *alert.keep_firing_since.get_or_insert(self.at) < self.rule.keep_firing_for_ms;
            let forgotten = alert.resolved_at.is_some_and(|at| self.at - at > RESOLVED_RETENTION_MS);
            if alert.state == AlertState::Pending || forgotten {
                return false;
            }
            if alert.state != AlertState::Inactive && !kept {
                alert.state = AlertState::Inactive;
                alert.resolved_at = Some(self.at);
            }
            if !kept {
                return true;
            }
        }
        let age = self.at - alert.active_at;
        if alert.state == AlertState::Pending && age >= self.rule.for_ms {
            alert.state = AlertState::Firing;
            (alert.fired_at, alert.period) = (Some(self.at), Some(self.at));
        }
        if alert.state == AlertState::Firing && age < self.rule.for_ms {
            // `for` was raised.
            alert.state = AlertState::Pending;
            (alert.fired_at, alert.period) = (None, None);
            (alert.last_sent_at, alert.keep_firing_since) = (None, None);
        }
        true
    }

    fn sample(&self, alert: &ActiveAlert, name: &str, state: Option<&str>, value: f64) -> Written {
        let mut pairs: BTreeMap<&str, &str> = alert.labels.iter().collect();
        pairs.insert(METRIC_NAME, name);
        pairs.extend(state.map(|state| ("alertstate", state)));
        Written { labels: LabelSet::from_pairs(pairs), ts: self.at - self.offset_ms, value: ElementValue::Float(value) }
    }

    fn state_sample(&self, alert: &ActiveAlert) -> Written {
        self.sample(alert, "ALERTS", Some(alert.state.as_str()), 1.0)
    }

    fn since_sample(&self, alert: &ActiveAlert) -> Written {
        self.sample(alert, "ALERTS_FOR_STATE", None, alert.active_at.div_euclid(1000) as f64)
    }

    /// Makes the series of a recording rule.
    ///
    /// # Errors
    /// Two series with equal labels, or more than the limit.
    pub(super) fn series(&self, elements: Vec<Element>) -> Result<Vec<Written>, String> {
        let mut seen = std::collections::HashSet::new();
        let mut written = Vec::with_capacity(elements.len());
        for element in elements {
            let mut pairs: BTreeMap<&str, &str> = element.labels.iter().collect();
            pairs.insert(METRIC_NAME, &self.rule.name);
            let own = self.rule.labels.iter().filter(|(name, _)| self.rule.sets(name, &element));
            pairs.extend(own.map(|(n, v)| (n.as_str(), v.as_str())));
            let labels = LabelSet::from_pairs(pairs);
            if !seen.insert(labels.clone()) {
                return Err("vector contains metrics with the same labelset after applying rule labels".to_owned());
            }
            written.push(Written { labels, ts: self.at - self.offset_ms, value: element.value });
        }
        if self.limit > 0 && written.len() > self.limit {
            return Err(format!("exceeded limit of {} with {} series", self.limit, written.len()));
        }
        Ok(written)
    }
}

/// Writes labels as `{a="b", c="d"}`, with the name before them.
pub(crate) fn show_labels(labels: &LabelSet) -> String {
    let mut out = labels.metric().to_owned();
    let mut rest = labels.iter().filter(|(name, _)| *name != METRIC_NAME).peekable();
    if rest.peek().is_none() && !out.is_empty() {
        return out;
    }
    out.push('{');
    for (i, (name, value)) in rest.enumerate() {
        let separator = if i > 0 { ", " } else { "" };
        let plain = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let name = if plain { name.to_owned() } else { crate::text::quote(name) };
        let _ = write!(out, "{separator}{name}={}", crate::text::quote(value));
    }
    out.push('}');
    out
}
