//! One alert of a rule: its label set, state and times.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_types::{LabelSet, Millis};

use super::engine::ElementValue;
use super::memory;

/// State of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertState {
    /// It was firing and is resolved; kept for a while, so that its end is reported.
    Inactive,
    /// The expression gives it, but not yet for the rule's `for`.
    Pending,
    /// The expression has given it for the rule's `for`, or it is kept firing.
    Firing,
}

impl AlertState {
    /// Gives the state as the label `alertstate` shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

/// An element of the last evaluations of a rule, with its state. Times are Unix milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveAlert {
    /// Identity: labels with `alertname`.
    pub labels: LabelSet,
    /// Annotations of the last evaluation that had it.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// Value of that evaluation.
    pub value: ElementValue,
    /// Whether it is pending, firing, or over.
    pub state: AlertState,
    /// Since when the expression gives it.
    pub active_at: Millis,
    /// Since when it fires.
    pub fired_at: Option<Millis>,
    /// Identifies its firing period: when it began to fire, by the clock at that time. Clock jumps do not change it.
    pub period: Option<Millis>,
    /// When it ended.
    pub resolved_at: Option<Millis>,
    /// First evaluation that missed it while it is kept firing.
    pub keep_firing_since: Option<Millis>,
    /// When it was last sent to the router.
    pub last_sent_at: Option<Millis>,
    /// Until when the router takes it as firing without another report.
    pub valid_until: Option<Millis>,
    /// Whether it was restored after a restart, and no evaluation has succeeded since.
    pub restored: bool,
}

impl ActiveAlert {
    /// Its approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        memory::of_alert(&self.labels) + memory::of_texts(&self.annotations)
    }

    /// Shifts its times by a clock jump.
    pub(super) fn shift(&mut self, by_ms: Millis) {
        self.active_at = self.active_at.saturating_add(by_ms);
        let times = [
            &mut self.fired_at,
            &mut self.resolved_at,
            &mut self.keep_firing_since,
            &mut self.last_sent_at,
            &mut self.valid_until,
        ];
        times.into_iter().flatten().for_each(|time| *time = time.saturating_add(by_ms));
    }

    /// Says whether it is to be sent now: when it starts to fire or is resolved, and then again after each delay.
    pub fn needs_sending(&self, now: Millis, resend_delay_ms: Millis) -> bool {
        match (self.state, self.last_sent_at) {
            (AlertState::Pending, _) => false,
            // Resolved, and that has not been sent yet.
            (AlertState::Inactive, Some(sent)) if self.resolved_at.is_some_and(|at| at > sent) => true,
            (_, Some(sent)) => sent.saturating_add(resend_delay_ms) < now,
            (_, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(state: AlertState, resolved_at: Option<Millis>, last_sent_at: Option<Millis>) -> ActiveAlert {
        ActiveAlert {
            labels: LabelSet::default(),
            annotations: Arc::default(),
            value: ElementValue::Float(1.0),
            state,
            active_at: 0,
            fired_at: None,
            period: None,
            resolved_at,
            keep_firing_since: None,
            last_sent_at,
            valid_until: None,
            restored: false,
        }
    }

    /// As Prometheus' `needsSending`: a resolved alert is sent at once, others again after the delay.
    #[test]
    fn when_it_is_sent() {
        use AlertState::{Firing, Inactive, Pending};
        for (state, resolved_at, last_sent_at, now, expected) in [
            (Pending, None, None, 100, false),
            (Pending, None, Some(0), 100_000, false),
            (Firing, None, None, 0, true),
            (Firing, None, Some(10), 70, false),
            (Firing, None, Some(10), 71, true),
            (Firing, None, Some(10), 5, false),
            (Firing, None, Some(Millis::MAX), Millis::MAX, false),
            (Inactive, Some(20), None, 20, true),
            (Inactive, Some(20), Some(19), 20, true),
            (Inactive, Some(20), Some(20), 80, false),
            (Inactive, Some(20), Some(20), 81, true),
        ] {
            let told = alert(state, resolved_at, last_sent_at).needs_sending(now, 60);
            assert_eq!(told, expected, "{state:?} {resolved_at:?} {last_sent_at:?} {now}");
        }
    }
}
