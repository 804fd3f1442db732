//! Memory quotas for alerts, so that one rule or sender with far too many alerts cannot displace all others. Posted
//! alerts and alerts of our own rules are counted separately. The last fifth of each quota is reserved for alert names
//! that have few alerts.

use std::collections::HashMap;

use quiver_alerting::dispatch::Alert;
use quiver_types::LabelSet;

/// The label by which alerts are told apart here.
const NAME: &str = "alertname";
/// Part of the room that a name with many alerts does not get.
const LAST: usize = 5;
/// From this part on a name has many.
const MANY: usize = 10;
/// How much more memory the alerts of our rules may have than those of others.
const OURS_TIMES: usize = 2;

/// The bytes of an alert with the groups in which it may be the only one
/// ([`quiver_alerting::routes::Route::groups_bytes`]).
fn weight(alert: &Alert, groups_bytes: usize) -> usize {
    alert.bytes().saturating_add(groups_bytes)
}

/// Who reported an alert first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reporter {
    OurRules,
    /// It was posted.
    Others,
}

/// Most alerts, and most bytes of those that others post.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaLimits {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

/// Why an alert is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuotaExceeded {
    /// The maximum number of alerts is reached.
    Count,
    /// The memory for alerts is used up.
    Bytes,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: usize,
    bytes: usize,
}

/// An alert that is known.
#[derive(Debug, Clone, Copy)]
struct AlertUsage {
    bytes: usize,
    /// The part of `bytes` that its groups take.
    groups_bytes: usize,
    reporter: Reporter,
}

/// What the alerts that are known take.
#[derive(Debug, Default)]
pub(super) struct Shares {
    known: HashMap<LabelSet, AlertUsage>,
    names: HashMap<String, Sum>,
    posted_bytes: usize,
    our_bytes: usize,
}

impl Shares {
    fn bytes_of(&mut self, reporter: Reporter) -> &mut usize {
        match reporter {
            Reporter::OurRules => &mut self.our_bytes,
            Reporter::Others => &mut self.posted_bytes,
        }
    }

    /// The bytes that the groups of an alert took when it was last reported; `None` if the alert is unknown.
    pub(super) fn groups_bytes_of(&self, labels: &LabelSet) -> Option<usize> {
        self.known.get(labels).map(|known| known.groups_bytes)
    }

    /// The bytes that the alerts of a reporter take, and the most that they may take.
    fn room_of(&self, reporter: Reporter, most: QuotaLimits) -> (usize, usize) {
        match reporter {
            Reporter::OurRules => (self.our_bytes, most.bytes.saturating_mul(OURS_TIMES)),
            Reporter::Others => (self.posted_bytes, most.bytes),
        }
    }

    /// Counts alerts anew after a change of the routes, by the size of their groups in the new tree. Removes and returns
    /// those that grow and no longer fit.
    pub(super) fn count_anew<'a>(
        &mut self,
        alerts: impl Iterator<Item = &'a Alert>,
        groups_bytes_of: impl Fn(&LabelSet) -> usize,
        most: QuotaLimits,
    ) -> Vec<LabelSet> {
        let mut weighed: Vec<(usize, &Alert)> = alerts.map(|alert| (groups_bytes_of(&alert.labels), alert)).collect();
        // Alerts with few groups come first, so that those which hardly grow are kept.
        weighed.sort_by_key(|(groups_bytes, _)| *groups_bytes);
        let mut without_room = Vec::new();
        for (groups_bytes, alert) in weighed {
            let Some(known) = self.known.get(&alert.labels).copied() else { continue };
            let more = weight(alert, groups_bytes).saturating_sub(known.bytes);
            let (bytes, bytes_max) = self.room_of(known.reporter, most);
            if more > 0 && bytes.saturating_add(more) > bytes_max {
                self.forget(&alert.labels);
                without_room.push(alert.labels.clone());
            } else {
                self.note(alert, groups_bytes, known.reporter);
            }
        }
        without_room
    }

    /// Checks that an alert whose groups take so many bytes fits; a known alert counts only for what it grows by.
    ///
    /// # Errors
    /// What there is too much of.
    pub(super) fn has_room(
        &self,
        alert: &Alert,
        groups_bytes: usize,
        reporter: Reporter,
        most: QuotaLimits,
    ) -> Result<(), QuotaExceeded> {
        let known = self.known.get(&alert.labels);
        let more = weight(alert, groups_bytes).saturating_sub(known.map_or(0, |known| known.bytes));
        let (bytes, bytes_max) = self.room_of(known.map_or(reporter, |known| known.reporter), most);
        let name = self.names.get(alert.labels.get(NAME)).copied().unwrap_or_default();
        let left = |all: usize, of_name: usize| if of_name > all / MANY { all - all / LAST } else { all };
        if more > 0 && bytes + more > left(bytes_max, name.bytes) {
            return Err(QuotaExceeded::Bytes);
        }
        if known.is_none() && self.known.len() >= left(most.count, name.count) {
            return Err(QuotaExceeded::Count);
        }
        Ok(())
    }

    /// Notes an alert as it is known now. It stays with those who reported it first.
    pub(super) fn note(&mut self, alert: &Alert, groups_bytes: usize, reporter: Reporter) {
        let former = self.remove(&alert.labels);
        let reporter = former.map_or(reporter, |former| former.reporter);
        let known = AlertUsage { bytes: weight(alert, groups_bytes), groups_bytes, reporter };
        let of_name = self.names.entry(alert.labels.get(NAME).to_owned()).or_default();
        (of_name.count, of_name.bytes) = (of_name.count + 1, of_name.bytes + known.bytes);
        *self.bytes_of(known.reporter) += known.bytes;
        self.known.insert(alert.labels.clone(), known);
    }

    /// Forgets an alert that is gone.
    pub(super) fn forget(&mut self, labels: &LabelSet) {
        self.remove(labels);
    }

    fn remove(&mut self, labels: &LabelSet) -> Option<AlertUsage> {
        let gone = self.known.remove(labels)?;
        *self.bytes_of(gone.reporter) -= gone.bytes;
        let name = labels.get(NAME);
        if let Some(of_name) = self.names.get_mut(name) {
            (of_name.count, of_name.bytes) = (of_name.count - 1, of_name.bytes - gone.bytes);
            if of_name.count == 0 {
                self.names.remove(name);
            }
        }
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn alert(name: &str, i: usize) -> Alert {
        Alert {
            labels: LabelSet::from_pairs([("alertname", name), ("i", i.to_string().as_str())]),
            annotations: Arc::default(),
            starts_at: 0,
            ends_at: 100,
            is_timeout: false,
            updated_at: 0,
            generator_url: Arc::default(),
        }
    }

    /// Takes alerts of a name until there is no room; gives how many.
    fn fill(shares: &mut Shares, name: &str, reporter: Reporter, most: QuotaLimits) -> (usize, QuotaExceeded) {
        for i in 0.. {
            let alert = alert(name, i);
            match shares.has_room(&alert, 0, reporter, most) {
                Ok(()) => shares.note(&alert, 0, reporter),
                Err(full) => return (i, full),
            }
        }
        unreachable!("there is an end")
    }

    #[test]
    fn one_name_leaves_room_for_others() {
        let most = QuotaLimits { count: 100, bytes: usize::MAX / 4 };
        let mut shares = Shares::default();
        assert_eq!(fill(&mut shares, "A", Reporter::OurRules, most), (80, QuotaExceeded::Count));
        // Another one gets as many as are few, whoever reports it.
        assert_eq!(fill(&mut shares, "B", Reporter::Others, most), (11, QuotaExceeded::Count));
        assert_eq!(fill(&mut shares, "C", Reporter::OurRules, most), (9, QuotaExceeded::Count));
        assert_eq!(shares.has_room(&alert("A", 3), 0, Reporter::OurRules, most), Ok(()), "it is known");
        for i in 0..80 {
            shares.forget(&alert("A", i).labels);
            shares.forget(&alert("A", i).labels);
        }
        assert_eq!(fill(&mut shares, "D", Reporter::OurRules, most).0, 60, "of 80 there are 20");
    }

    #[test]
    fn rules_take_nothing_of_what_is_for_others() {
        let one = alert("A", 10).bytes();
        let most = QuotaLimits { count: 1000, bytes: 50 * one };
        let mut shares = Shares::default();
        let (count, full) = fill(&mut shares, "A", Reporter::OurRules, most);
        assert!(full == QuotaExceeded::Bytes && (70..90).contains(&count), "{count}");
        let (count, full) = fill(&mut shares, "B", Reporter::Others, most);
        assert!(full == QuotaExceeded::Bytes && (35..45).contains(&count), "{count}");
        // It stays with those who reported it first, and grows by what is more.
        let larger = Alert { generator_url: "x".repeat(100).into(), ..alert("B", 0) };
        let before = (shares.posted_bytes, shares.our_bytes);
        shares.note(&larger, 0, Reporter::OurRules);
        assert_eq!(
            (shares.posted_bytes, shares.our_bytes),
            (before.0 + larger.bytes() - alert("B", 0).bytes(), before.1)
        );
        let all: Vec<LabelSet> = shares.known.keys().cloned().collect();
        for labels in &all {
            shares.forget(labels);
        }
        assert_eq!((shares.posted_bytes, shares.our_bytes, shares.names.len()), (0, 0, 0));
    }

    /// A policy of many routes that go on makes many groups of one alert.
    #[test]
    fn groups_of_further_routes_count() {
        let one = alert("A", 0);
        let most = QuotaLimits { count: 10, bytes: one.bytes() + 1000 };
        let mut shares = Shares::default();
        assert_eq!(shares.has_room(&one, 1000, Reporter::Others, most), Ok(()));
        assert_eq!(shares.has_room(&one, 1001, Reporter::Others, most), Err(QuotaExceeded::Bytes));
        shares.note(&one, 2000, Reporter::Others);
        assert_eq!(shares.posted_bytes, one.bytes() + 2000);
        assert_eq!(shares.groups_bytes_of(&one.labels), Some(2000));
        shares.forget(&one.labels);
        assert_eq!(shares.groups_bytes_of(&one.labels), None);
        assert_eq!((shares.posted_bytes, shares.names.len()), (0, 0));
    }

    /// Breaks if a policy that puts alerts into many more groups drops an alert that fits, or one that does not grow.
    #[test]
    fn another_tree_of_routes_counts_anew() {
        let alerts: Vec<Alert> = (0..10).map(|i| alert("A", i)).collect();
        let one = alerts[0].bytes();
        let most = QuotaLimits { count: 5, bytes: 10 * one + 1000 + 200_000 };
        let mut shares = Shares::default();
        for alert in &alerts {
            shares.note(alert, 100, Reporter::Others);
        }
        let growing = [1, 3, 5, 7].map(|n: usize| alerts[n].labels.clone());
        let of = |labels: &LabelSet| if growing.contains(labels) { 100_100 } else { 100 };
        let gone = shares.count_anew(alerts.iter(), of, most);
        // There is room for the growth of two of the four.
        assert_eq!(gone, growing[2..]);
        assert_eq!((shares.known.len(), shares.posted_bytes), (8, 8 * one + 6 * 100 + 2 * 100_100));
        let gone = shares.count_anew(alerts.iter(), |_| 0, QuotaLimits { count: 0, bytes: 0 });
        assert_eq!((gone.len(), shares.posted_bytes), (0, 8 * one), "who takes less stays, however full it is");
    }
}
