//! Further reports of a span: the call of the first report replaces that of a later one, in whatever order they arrive.

use super::super::{EdgeKey, RollupBuilder, Weight};
use super::{Child, Kinship, ParentCandidate, key};
use crate::spans::model::SERVER;
use crate::spans::{EdgeKind, are_one_span};
use crate::tables::spans::minute_of;

impl RollupBuilder {
    /// Takes out what a report counted as a call, for an earlier report of the same. Says whether it could: who called it
    /// may be forgotten, and then the later one goes on to count.
    pub(super) fn take_back(&mut self, own_key: u64, known: &ParentCandidate) -> bool {
        let is = |c: &Child| {
            let same_side = c.service == known.service && c.is_callee() == known.callee;
            // Reports far apart are calls of their own.
            let same_call = same_side && c.weight.start == known.weight.start;
            same_call && c.id == known.id && key(&c.trace, &c.id) == own_key
        };
        let minute = minute_of(known.weight.start);
        if known.wait_for != 0 {
            let waiting = self.waiting.get_mut(&known.wait_for);
            if let Some(list) = waiting
                && let Some(at) = list.iter().position(is)
            {
                list.swap_remove(at);
            } else if let Some(at) = self.open.iter().rposition(is) {
                self.open.swap_remove(at);
            } else if let Some(parent) = self.known.get(&known.wait_for).copied() {
                let below_half = parent.half == Some(known.service) && !known.callee;
                if parent.service != known.service && !below_half {
                    self.take_out((minute, parent.service, known.service, EdgeKind::Service), &known.weight);
                    if let Some(crossed) = self.crossed.get_mut(&known.wait_for) {
                        crossed.retain(|c| !is(c));
                    }
                }
            } else {
                return false;
            }
        } else if known.kind == SERVER {
            let user = self.names.number("");
            self.take_out((minute, user, known.service, EdgeKind::User), &known.weight);
        }
        if let Some((peer, kind)) = known.remote.filter(|_| !known.answered) {
            self.take_out((minute, known.service, peer, kind), &known.weight);
        }
        true
    }

    fn take_out(&mut self, edge: EdgeKey, weight: &Weight) {
        if let Some(total) = self.edges.get_mut(&edge) {
            total.take_out(weight);
        }
    }

    /// Counts the call that the called half of a shared id answers; of its reports the first one counts.
    pub(super) fn answer(&mut self, own_key: u64, caller: &ParentCandidate, child: &Child, received: i64) {
        if caller.half != Some(child.service) {
            self.halve(own_key, child.service, (received, child.weight));
            self.resolve(child, own_key, Kinship::CalledHalf);
            return;
        }
        let Some(half) = self.halves.get_mut(&own_key) else { return };
        let known = half.1;
        if child.weight.report(received) < known.report(half.0) && are_one_span(known.start, child.weight.start) {
            *half = (received, child.weight);
            let edge = |start: i64| (minute_of(start), caller.service, child.service, EdgeKind::Service);
            self.take_out(edge(known.start), &known);
            self.edges.entry(edge(child.weight.start)).or_default().add(&child.weight);
        }
    }
}

#[cfg(test)]
mod tests;
