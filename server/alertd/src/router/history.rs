//! History records that only the router can write: posted alerts that start and stop firing, changes of silences, and
//! alerts that are muted by inhibition.

use std::collections::BTreeSet;
use std::sync::Arc;

use quiver_alerting::dispatch::{Alert, FilteredAlerts, Flush, MuteReason, SilenceIndex};
use quiver_alerting::silences::Silence;
use quiver_types::LabelSet;

use serde_json::Value;

use super::{MS, Router, State, records};
use crate::durable_state::{Change, RowKind};
use crate::history::{Action, Event, History, Record, RuleRef};

/// Records that are handed on together: the history takes so many only, and those beyond that need not be made at once.
const RECORDS_AT_ONCE: usize = 1000;
/// Most records of changes of silences that are made at once: the history would drop more.
const RECORDS_MAX: usize = 100_000;

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
        generator_url: alert.generator_url.to_string(),
    })
}

impl State {
    /// Notes what a posted alert changes.
    pub(super) fn note_posted(&mut self, alert: &Alert, now: i64, history: &History) {
        let key = alert.labels.canonical();
        let known = self.posted.remove(key).map(|(_, since)| since);
        let since = known.unwrap_or(alert.starts_at);
        match (known, alert.is_resolved(now)) {
            (None, true) => return,
            (Some(_), true) => {
                history.note(vec![event(alert, since, (now, "firing", "resolved"))]);
                return;
            }
            (None, false) => history.note(vec![event(alert, since, (now, "inactive", "firing"))]),
            (Some(_), false) => {}
        }
        self.posted.insert(key.to_vec(), (alert.clone(), since));
        self.posted_until = self.posted_until.min(alert.ends_at);
    }

    /// Gives since when an alert fires, as its episode is called by.
    fn since(&self, alert: &Alert) -> i64 {
        self.posted.get(alert.labels.canonical()).map_or(alert.starts_at, |(_, since)| *since)
    }

    /// An alert as it is kept, with what the history goes by.
    pub(super) fn row(&self, alert: &Alert) -> Value {
        let key = alert.labels.canonical();
        let mut row = records::alert(alert);
        if let Some((_, since)) = self.posted.get(key) {
            row["posted"] = (*since).into();
        }
        if let Some(since) = self.inhibited.get(key) {
            row["inhibited"] = (*since).into();
        }
        row
    }

    /// Takes over from a kept alert what [`Self::row`] says of it.
    pub(super) fn read_row(&mut self, alert: &Alert, row: &Value) {
        let key = alert.labels.canonical();
        if let Some(since) = row["posted"].as_i64() {
            self.posted.insert(key.to_vec(), (alert.clone(), since));
        }
        if let Some(since) = row["inhibited"].as_i64() {
            self.inhibited.insert(key.to_vec(), since);
        }
    }

    /// Notes which alerts of a group that was judged begin or cease to be held back by others; gives what is to be kept of
    /// that. What is held back when it ends stays so in the history.
    pub(super) fn note_inhibited(&mut self, flush: &Flush, passed: &FilteredAlerts, history: &History) -> Vec<Change> {
        let (mut records, mut changes) = (Vec::new(), Vec::new());
        let by_others = passed.muted.iter().filter(|(_, why)| matches!(why, MuteReason::Inhibited(_)));
        let held: BTreeSet<&[u8]> = by_others.map(|(alert, _)| alert.labels.canonical()).collect();
        for alert in flush.alerts.iter().filter(|alert| !alert.is_resolved(flush.at)) {
            let (key, since) = (alert.labels.canonical(), self.since(alert));
            let is_held = held.contains(key);
            if is_held == (self.inhibited.get(key) == Some(&since)) {
                continue;
            }
            // It may have been reported again since the group was judged, or be gone.
            let Some(known) = self.dispatcher.alert(&alert.labels).cloned() else { continue };
            if is_held {
                self.inhibited.insert(key.to_vec(), since);
            } else {
                self.inhibited.remove(key);
            }
            changes.push(Change::set(RowKind::Alert, key, &self.row(&known)));
            records.push(Record::Action(Action {
                at: flush.at / MS,
                labels: alert.labels.clone(),
                starts_at: since / MS,
                action: if is_held { "inhibit" } else { "uninhibit" },
                actor: String::new(),
                subject: String::new(),
                comment: Arc::default(),
                services: Vec::new(),
            }));
        }
        history.note(records);
        changes
    }

    /// Forgets what is noted of alerts that are gone.
    pub(super) fn drop_notes(&mut self, gone: &[LabelSet]) {
        for labels in gone {
            self.inhibited.remove(labels.canonical());
            self.shares.forget(labels);
        }
    }
}

impl Router {
    /// Notes alerts of others that ended without a word.
    pub(super) fn note_ended(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        // This runs every second, and there may be very many alerts: return early if none has ended.
        if state.posted_until > now {
            return;
        }
        let State { posted, dispatcher, posted_until, .. } = &mut *state;
        let (mut records, mut until) = (Vec::new(), i64::MAX);
        posted.retain(|_, (last, since)| {
            // The clock may have moved what the dispatcher knows.
            let alert = dispatcher.alert(&last.labels).unwrap_or(last);
            let ended = alert.is_resolved(now);
            if ended {
                records.push(event(alert, *since, (alert.ends_at, "firing", "resolved")));
            } else {
                until = until.min(alert.ends_at);
            }
            !ended
        });
        *posted_until = until;
        drop(state);
        self.metrics.history.note(records);
    }

    /// Notes which silences somebody set or ended: a record for each alert that one matches, or one without an alert.
    pub(super) fn note_silences(&self, changed: &[(&Silence, &'static str, String)]) {
        if changed.is_empty() {
            return;
        }
        let now = self.now();
        let live: Vec<(LabelSet, i64)> = {
            let state = self.state.lock();
            let live = state.dispatcher.alerts().filter(|a| !a.is_resolved(now));
            live.map(|alert| (alert.labels.clone(), state.since(alert))).collect()
        };
        let all: Vec<Arc<Silence>> = changed.iter().map(|(silence, ..)| Arc::new((*silence).clone())).collect();
        let silenced = SilenceIndex::new(&all);
        let comments: Vec<Arc<str>> = all.iter().map(|silence| Arc::from(silence.comment.as_str())).collect();
        let record = |place: usize, labels: LabelSet, since: i64| {
            let (silence, action, actor) = &changed[place];
            Record::Action(Action {
                at: now / MS,
                labels,
                starts_at: since / MS,
                action,
                actor: actor.clone(),
                subject: silence.id.clone(),
                comment: Arc::clone(&comments[place]),
                services: silence.services(&self.settings.service_labels).map(str::to_owned).collect(),
            })
        };
        let (mut records, mut count, mut matched) = (Vec::new(), 0, vec![false; changed.len()]);
        for (labels, since) in live {
            for place in silenced.places(&labels) {
                matched[place] = true;
                records.push(record(place, labels.clone(), since));
            }
            if records.len() >= RECORDS_AT_ONCE {
                count += records.len();
                self.metrics.history.note(std::mem::take(&mut records));
            }
            if count > RECORDS_MAX {
                return;
            }
        }
        let unmatched = matched.iter().enumerate().filter(|(_, matched)| !**matched);
        records.extend(unmatched.map(|(place, _)| record(place, LabelSet::default(), 0)));
        self.metrics.history.note(records);
    }
}
