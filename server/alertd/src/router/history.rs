//! What the router knows and rules do not, for the history: alerts of others as they fire and end, silences as they are set.

use quiver_alerting::dispatch::Alert;
use quiver_alerting::silences::Silence;
use quiver_types::MatchOp;

use super::{MS, Router, State};
use crate::history::{Action, Event, History, Record, RuleRef};

fn event(alert: &Alert, since: i64, (at, from, to): (i64, &'static str, &'static str)) -> Record {
    Record::Event(Event {
        at: at / MS,
        labels: alert.labels.clone(),
        annotations: alert.annotations.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
        from,
        to,
        starts_at: since / MS,
        ends_at: (to == "resolved").then_some(alert.ends_at / MS),
        value: None,
        source: "intake",
        rule: RuleRef::default(),
        generator_url: alert.generator_url.clone(),
    })
}

impl State {
    /// Notes what a posted alert changes; gives since when it fires.
    pub(super) fn note_posted(&mut self, alert: &Alert, now: i64, history: &History) -> Option<i64> {
        let key = alert.labels.canonical();
        let known = self.posted.remove(key).map(|(_, since)| since);
        let since = known.unwrap_or(alert.starts_at);
        match (known, alert.is_resolved(now)) {
            (None, true) => return None,
            (Some(_), true) => {
                history.note(vec![event(alert, since, (now, "firing", "resolved"))]);
                return None;
            }
            (None, false) => history.note(vec![event(alert, since, (now, "inactive", "firing"))]),
            (Some(_), false) => {}
        }
        self.posted.insert(key.to_vec(), (alert.clone(), since));
        Some(since)
    }
}

impl Router {
    /// Notes alerts of others that ended without a word.
    pub(super) fn note_ended(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        let State { posted, dispatcher, .. } = &mut *state;
        let mut records = Vec::new();
        posted.retain(|_, (last, since)| {
            // The clock may have moved what the dispatcher knows.
            let alert = dispatcher.alert(&last.labels).unwrap_or(last);
            let ended = alert.is_resolved(now);
            if ended {
                records.push(event(alert, *since, (alert.ends_at, "firing", "resolved")));
            }
            !ended
        });
        drop(state);
        self.metrics.history.note(records);
    }

    /// Notes that somebody set or ended a silence: a record for each alert that it matches.
    pub(super) fn note_silence(&self, silence: &Silence, action: &'static str, actor: &str) {
        let now = self.now();
        let state = self.state.lock();
        let firing = state.dispatcher.alerts().filter(|a| !a.is_resolved(now) && silence.matchers.matches(&a.labels));
        let record = |alert: Option<&Alert>| Action {
            at: now / MS,
            labels: alert.map(|a| a.labels.clone()).unwrap_or_default(),
            starts_at: alert.map_or(0, |a| a.starts_at / MS),
            action,
            actor: actor.to_owned(),
            subject: silence.id.clone(),
            comment: silence.comment.clone(),
            services: self.services_of(silence),
        };
        let mut records: Vec<Record> = firing.map(|alert| Record::Action(record(Some(alert)))).collect();
        if records.is_empty() {
            records.push(Record::Action(record(None)));
        }
        drop(state);
        self.metrics.history.note(records);
    }

    /// Services that a silence names.
    fn services_of(&self, silence: &Silence) -> Vec<String> {
        let named = |m: &&quiver_types::Matcher| {
            m.op == MatchOp::Equal && !m.value.is_empty() && self.settings.service_labels.contains(&m.name)
        };
        silence.matchers.iter().filter(named).map(|m| m.value.clone()).collect()
    }
}
