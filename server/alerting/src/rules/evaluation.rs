//! Evaluates a rule once: turns the result into alerts or samples.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use quiver_types::label::METRIC_NAME;
use quiver_types::{LabelSet, Millis, brief};

use super::alert::{ActiveAlert, AlertState};
use super::engine::{Element, ElementValue, Engine, RuleSample};
use super::memory::{self, Room, Share};
use super::model::{Language, Rule};
use super::resumption::FormerAlerts;
use super::variables::{defined, names_own, own_fields};
use crate::template::{MapKind, Options, QueriedSample, RULE_FUNCTIONS, Struct, TemplateEnvironment, Templates, Value};

/// How long a resolved alert is kept, so that its end can be reported.
const RESOLVED_RETENTION_MS: Millis = 15 * 60_000;

/// Prefix of the text that a failing template yields.
pub const ERROR_TEMPLATE: &str = "<error expanding template: ";

/// The error for a result whose labels name a service that the editor may not write.
const NOT_THE_EDITORS: &str = "FORBIDDEN: labels of the result name a service for which the last \
    editor of the rule lacks {edit, alerting}";

/// Go's name for the type of template data, which occurs in errors.
const DATA_TYPE: &str =
    "struct { Labels map[string]string; ExternalLabels map[string]string; ExternalURL string; Value interface {} }";

/// Settings for the evaluation of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvaluationSettings {
    /// Labels available to templates, and added to alerts when they are sent.
    pub external_labels: BTreeMap<String, String>,
    /// The external URL of the server.
    pub external_url: String,
    /// Memory for what rules hold.
    pub room: Room,
}

/// Converts the value of an element for templates.
pub(super) fn value_of(value: &ElementValue) -> Value {
    match value {
        ElementValue::Float(value) => Value::Float(*value),
        ElementValue::Histogram(_, text) => Value::Histogram(Arc::from(text.as_str())),
    }
}

/// The inputs of one evaluation of an alerting rule.
pub(super) struct Evaluation<'a> {
    pub(super) rule: &'a Rule,
    /// Its index in the group.
    pub(super) number: usize,
    pub(super) setting: &'a EvaluationSettings,
    pub(super) engine: &'a dyn Engine,
    /// Time of the evaluation.
    pub(super) at: Millis,
    pub(super) offset_ms: Millis,
    pub(super) limit: usize,
    /// For templates: the evaluation interval, and the name of the group.
    pub(super) interval_ms: Millis,
    pub(super) group_id: u64,
    /// On the first evaluation restored alerts that are missing in the result are kept until the next one.
    pub(super) is_first: bool,
    /// When the engine's clock says that the texts of alerts have taken too long.
    pub(super) until: Duration,
}

/// Most errors of templates that are kept of an evaluation, in short: there may be some for each of very many results, and
/// each holds the text of what failed.
const WARNINGS_MAX: usize = 100;
/// Shortest time for the texts of alerts.
const TEXTS_MIN: Duration = Duration::from_secs(1);
/// Longest time for them, whatever the interval is: other groups may wait for the place.
const TEXTS_MAX: Duration = Duration::from_secs(30);

/// When the texts of alerts must be made, which begin to be made now.
pub(super) fn until(engine: &dyn Engine, interval_ms: Millis) -> Duration {
    let interval = Duration::from_millis(interval_ms.max(0).unsigned_abs());
    engine.elapsed().saturating_add(interval.clamp(TEXTS_MIN, TEXTS_MAX))
}

impl Rule {
    /// Whether a label of the rule is added to those of an element.
    fn sets(&self, name: &str, element: &Element) -> bool {
        !(self.service_yields && name == SERVICE && !element.labels.get(SERVICE).is_empty())
    }
}

/// The label that names the service of an alert.
pub(super) const SERVICE: &str = "service";

/// A label or annotation of a rule; a template is parsed once per evaluation.
enum Text<'a> {
    Plain(&'a str),
    Template(Result<Templates, String>),
}

impl<'a> Text<'a> {
    fn of(template: &str, text: &'a str) -> Self {
        // Most labels and annotations are not templates.
        if !text.contains("{{") {
            return Self::Plain(text);
        }
        let mut templates = Templates::new(RULE_FUNCTIONS);
        let added = templates.add(template, &defined(text));
        Self::Template(added.map(|()| templates).map_err(|e| format!("error parsing template {template}: {e}")))
    }
}

/// The texts from which the alerts of one evaluation are made.
struct Texts<'a> {
    /// Name of its templates in errors.
    template: String,
    labels: Vec<(&'a str, Text<'a>)>,
    annotations: Vec<(&'a str, Text<'a>)>,
    external_labels: Value,
    external_url: Value,
    /// Whether one of them uses a variable of vmalert.
    names_own: bool,
}

impl<'a> Texts<'a> {
    fn of(rule: &'a Rule, setting: &EvaluationSettings) -> Self {
        let template = format!("__alert_{}", rule.name);
        let all = |texts: &'a BTreeMap<String, String>| {
            texts.iter().map(|(name, text)| (name.as_str(), Text::of(&template, text))).collect::<Vec<_>>()
        };
        let (labels, annotations) = (all(&rule.labels), all(&rule.annotations));
        let external = setting.external_labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let external_labels = Value::text_map(MapKind::Texts, external);
        let external_url = Value::text(&setting.external_url);
        let names_own = rule.labels.values().chain(rule.annotations.values()).any(|text| names_own(text));
        Self { template, labels, annotations, external_labels, external_url, names_own }
    }
}

impl Evaluation<'_> {
    /// Each text is bounded, but there may be some for each of very many results, and each may query.
    fn in_time(&self) -> Result<(), String> {
        if self.engine.elapsed() <= self.until {
            return Ok(());
        }
        let max = TEXTS_MAX.as_secs();
        Err(format!("expanding labels and annotations takes longer than the interval of the group, or than {max}s"))
    }

    fn expand<'d>(
        &self,
        template: &str,
        text: &Text<'_>,
        data: impl FnOnce() -> &'d Value,
        warnings: &RefCell<Vec<String>>,
    ) -> String {
        let parsed = match text {
            Text::Plain(text) => return (*text).to_owned(),
            Text::Template(parsed) => parsed,
        };
        let query = |expr: &str| {
            self.in_time()?;
            let elements = self.engine.query(self.number, Language::Promql, expr, self.at)?;
            let sample = |e: Element| QueriedSample { value: value_of(&e.value), labels: e.labels };
            Ok(elements.into_iter().map(sample).collect())
        };
        let host = TemplateEnvironment {
            query: Some(&query),
            now_ns: i128::from(self.at) * 1_000_000,
            external_url: &self.setting.external_url,
            route_labels: None,
        };
        let options = Options { host, ..Options::default() };
        let outcome = match parsed {
            Ok(templates) => templates
                .run(template, data(), &options)
                .map_err(|e| format!("error executing template {template}: {e}")),
            Err(e) => Err(e.clone()),
        };
        outcome.unwrap_or_else(|e| {
            if warnings.borrow().len() < WARNINGS_MAX {
                warnings.borrow_mut().push(brief(&e));
            }
            format!("{ERROR_TEMPLATE}{e}>")
        })
    }

    /// Makes the template data. Labels are expanded before there is an alert; annotations can refer to it.
    fn data(&self, element: &Element, texts: &Texts<'_>, alert: Option<(&LabelSet, Millis)>) -> Value {
        let mut fields = vec![
            ("Labels", "", Value::text_map(MapKind::Texts, element.labels.iter())),
            ("ExternalLabels", "", texts.external_labels.clone()),
            ("ExternalURL", "", texts.external_url.clone()),
            ("Value", "", value_of(&element.value)),
        ];
        if texts.names_own {
            fields.extend(own_fields(self.rule, self.interval_ms, self.group_id, alert));
        }
        Value::Struct(Arc::new(Struct { type_name: DATA_TYPE, fields }))
    }

    /// Expands the labels or annotations of an element, and holds each text as soon as it is made: a single element may
    /// have very many long ones. Most have no templates, and then no data is made.
    fn expand_all(
        &self,
        all: &[(&str, Text<'_>)],
        template: &str,
        data: impl Fn() -> Value,
        (share, warnings): (&mut Share, &RefCell<Vec<String>>),
    ) -> Result<BTreeMap<String, String>, String> {
        let made = OnceCell::new();
        let mut out = BTreeMap::new();
        for (n, (name, text)) in all.iter().enumerate() {
            // The time limit has just been checked at the start of the element.
            if n > 0 && matches!(text, Text::Template(_)) {
                self.in_time()?;
            }
            let text = self.expand(template, text, || made.get_or_init(&data), warnings);
            share.grow(memory::of_text(name, &text))?;
            out.insert((*name).to_owned(), text);
        }
        Ok(out)
    }

    /// The labels of an alert: those of the element without its name, those of the rule, and `alertname`.
    fn labels(
        &self,
        element: &Element,
        texts: &Texts<'_>,
        (share, warnings): (&mut Share, &RefCell<Vec<String>>),
    ) -> Result<LabelSet, String> {
        let mut labels: BTreeMap<&str, &str> = element.labels.iter().filter(|(name, _)| *name != METRIC_NAME).collect();
        let data = || self.data(element, texts, None);
        let mut own = self.expand_all(&texts.labels, &texts.template, data, (&mut *share, warnings))?;
        // The alert holds them from now on.
        share.shrink(memory::of_texts(&own));
        own.retain(|name, _| self.rule.sets(name, element));
        labels.extend(own.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        labels.insert("alertname", &self.rule.name);
        let labels = LabelSet::from_pairs(labels);
        share.grow(memory::of_alert(&labels))?;
        Ok(labels)
    }

    fn annotations(
        &self,
        element: &Element,
        texts: &Texts<'_>,
        alert: (&LabelSet, Millis),
        holds: (&mut Share, &RefCell<Vec<String>>),
    ) -> Result<BTreeMap<String, String>, String> {
        self.expand_all(&texts.annotations, &texts.template, || self.data(element, texts, Some(alert)), holds)
    }

    /// Makes a new alert, without annotations.
    fn alert(&self, labels: LabelSet, element: &Element) -> ActiveAlert {
        ActiveAlert {
            labels,
            annotations: Arc::default(),
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

    /// Refuses labels of services that the editor may not write. The error does not name the service, since everyone
    /// who sees the rule can read it.
    fn must_write(&self, labels: &LabelSet) -> Result<(), String> {
        if self.engine.may_write(self.number, labels) { Ok(()) } else { Err(NOT_THE_EDITORS.to_owned()) }
    }

    /// Updates the alerts with a result; returns the samples to write.
    ///
    /// # Errors
    /// Two alerts with equal labels, one of a service that the editor may not write, or texts that take too much time or
    /// memory: nothing has changed. More alerts than the limit: all are removed.
    pub(super) fn alerts(
        &self,
        elements: &[Element],
        before: &FormerAlerts,
        active: &mut BTreeMap<Vec<u8>, ActiveAlert>,
        (share, warnings): (&mut Share, &RefCell<Vec<String>>),
    ) -> Result<Vec<RuleSample>, String> {
        let mut hits = BTreeMap::new();
        let made = OnceCell::new();
        let texts = || made.get_or_init(|| Texts::of(self.rule, self.setting));
        for element in elements {
            self.in_time()?;
            let labels = self.labels(element, texts(), (&mut *share, warnings))?;
            self.must_write(&labels)?;
            if hits.insert(labels.canonical().to_vec(), (labels, element)).is_some() {
                return Err("vector contains metrics with the same labelset after applying alert labels".to_owned());
            }
        }
        if self.rule.keep_firing_for_ms > 0 {
            let kept =
                active.iter().filter(|(key, alert)| alert.state == AlertState::Firing && !hits.contains_key(*key));
            kept.map(|(_, alert)| alert.bytes()).try_for_each(|bytes| share.grow(bytes))?;
        }
        let mut fresh = Vec::with_capacity(hits.len());
        for (key, (labels, element)) in &hits {
            self.in_time()?;
            let there = active.get(key).filter(|there| there.state != AlertState::Inactive).cloned();
            let mut alert = there.unwrap_or_else(|| {
                let mut alert = self.alert(labels.clone(), element);
                before.resume(key, &mut alert, self.rule.for_ms);
                alert
            });
            let annotations = self.annotations(element, texts(), (labels, alert.active_at), (&mut *share, warnings))?;
            (alert.value, alert.annotations) = (element.value.clone(), Arc::new(annotations));
            fresh.push((key.clone(), alert));
        }
        active.extend(fresh);
        let mut written = Vec::new();
        let mut count = 0;
        active.retain(|key, alert| {
            let hit = hits.contains_key(key);
            let stays = self.step(alert, hit) && (hit || self.has_room(alert, share));
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

    /// Says whether there is room for an alert that is no result any more. One that has ended is only kept so that its end
    /// is told again: if its labels hold the value, there is another one with each evaluation.
    fn has_room(&self, alert: &ActiveAlert, share: &mut Share) -> bool {
        let is_told = alert.resolved_at.is_some_and(|at| at < self.at);
        alert.state != AlertState::Inactive || share.grow(alert.bytes()).is_ok() || !is_told
    }

    /// Updates one alert. Returns whether it is kept.
    fn step(&self, alert: &mut ActiveAlert, hit: bool) -> bool {
        if hit {
            alert.keep_firing_since = None;
            alert.restored = false;
        } else if alert.restored && self.is_first {
            // A restored alert is not resolved before there was time to evaluate it.
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
            // `for` was increased.
            alert.state = AlertState::Pending;
            (alert.fired_at, alert.period) = (None, None);
            (alert.last_sent_at, alert.keep_firing_since) = (None, None);
        }
        true
    }

    fn sample(&self, alert: &ActiveAlert, name: &str, state: Option<&str>, value: f64) -> RuleSample {
        let mut pairs: BTreeMap<&str, &str> = alert.labels.iter().collect();
        pairs.insert(METRIC_NAME, name);
        pairs.extend(state.map(|state| ("alertstate", state)));
        RuleSample {
            labels: LabelSet::from_pairs(pairs),
            ts: self.at - self.offset_ms,
            value: ElementValue::Float(value),
        }
    }

    fn state_sample(&self, alert: &ActiveAlert) -> RuleSample {
        self.sample(alert, "ALERTS", Some(alert.state.as_str()), 1.0)
    }

    fn since_sample(&self, alert: &ActiveAlert) -> RuleSample {
        self.sample(alert, "ALERTS_FOR_STATE", None, alert.active_at.div_euclid(1000) as f64)
    }

    /// Makes the series of a recording rule.
    ///
    /// # Errors
    /// Two series with equal labels, one of a service that the editor may not write, or more than the limit.
    pub(super) fn series(&self, elements: Vec<Element>, share: &mut Share) -> Result<Vec<RuleSample>, String> {
        let mut seen = std::collections::HashSet::new();
        let mut written = Vec::with_capacity(elements.len());
        for element in elements {
            let mut pairs: BTreeMap<&str, &str> = element.labels.iter().collect();
            pairs.insert(METRIC_NAME, &self.rule.name);
            let own = self.rule.labels.iter().filter(|(name, _)| self.rule.sets(name, &element));
            pairs.extend(own.map(|(n, v)| (n.as_str(), v.as_str())));
            let labels = LabelSet::from_pairs(pairs);
            self.must_write(&labels)?;
            share.grow(memory::of_series(&labels))?;
            if !seen.insert(labels.clone()) {
                return Err("vector contains metrics with the same labelset after applying rule labels".to_owned());
            }
            written.push(RuleSample { labels, ts: self.at - self.offset_ms, value: element.value });
        }
        if self.limit > 0 && written.len() > self.limit {
            return Err(format!("exceeded limit of {} with {} series", self.limit, written.len()));
        }
        Ok(written)
    }
}

/// Formats pairs as `{a="b", c="d"}`.
pub fn show_pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = "{".to_owned();
    for (i, (name, value)) in pairs.enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_as_text() {
        let check = |pairs: &[(&str, &str)], expected: &str| assert_eq!(show_pairs(pairs.iter().copied()), expected);
        check(&[], "{}");
        check(&[("a", "b")], "{a=\"b\"}");
        check(&[("_a1", ""), ("b", "x\"y\\\n")], "{_a1=\"\", b=\"x\\\"y\\\\\\n\"}");
        // Names that need UTF-8 are quoted.
        check(
            &[("1a", "x"), ("a.b", "y"), ("ä", "z"), ("", "w"), ("a:b", "v")],
            "{\"1a\"=\"x\", \"a.b\"=\"y\", \"ä\"=\"z\", \"\"=\"w\", \"a:b\"=\"v\"}",
        );
    }
}
