//! Whose telemetry a sender may write, checked record by record (`identity-and-access` 4.2).
//!
//! A sender with rights to all services has no [`Sender`], which costs nothing. For others each series, resource or row
//! is checked by the service that it names. Neighbouring records mostly name the same one, so the last verdict is
//! cached.

use std::sync::Arc;

use quiver_types::label::{Pairs, push_pair};
use quiver_types::{Access, SeriesId};

/// A sender that may write only some services.
#[derive(Debug, Clone)]
pub struct Sender {
    access: Access,
    names: Arc<[String]>,
    only: Option<Arc<str>>,
}

impl Sender {
    /// Makes a sender; `None` if it may write all services. `names` are the labels or fields that name the service of
    /// a record; the first one that is not empty counts.
    pub fn of(access: Access, names: Arc<[String]>) -> Option<Arc<Self>> {
        if access.is_full() {
            return None;
        }
        let only = access.only_service().map(Arc::from);
        Some(Arc::new(Self { access, names, only }))
    }

    /// Decides on records of a service; an empty text means no service.
    fn verdict(&self, service: &str) -> Verdict {
        match &self.only {
            _ if self.access.allows(service) => Verdict::Take,
            Some(_) if service.is_empty() && !self.names.is_empty() => Verdict::Name,
            _ => Verdict::Refuse,
        }
    }

    /// Gives the label or field that is set on records without a service, and its value.
    fn named(&self) -> (&str, &str) {
        (self.names.first().map_or("", String::as_str), self.only.as_deref().unwrap_or_default())
    }
}

/// The decision on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is accepted as it is.
    Take,
    /// It names no service, and the sender may write only one: that is set.
    Name,
    /// The sender has no right to write it.
    Refuse,
}

/// Decides on the records of a request.
#[derive(Debug)]
pub(crate) struct Gate {
    sender: Arc<Sender>,
    last: Option<(String, Verdict)>,
    first_refused: Option<String>,
}

impl Gate {
    pub(crate) fn new(sender: Arc<Sender>) -> Self {
        Self { sender, last: None, first_refused: None }
    }

    /// What becomes of a record of a service.
    #[inline]
    pub(crate) fn judge(&mut self, service: &str) -> Verdict {
        match &mut self.last {
            Some((known, verdict)) if known.as_str() == service => *verdict,
            last => {
                let verdict = self.sender.verdict(service);
                if verdict == Verdict::Refuse {
                    self.first_refused.get_or_insert_with(|| service.to_owned());
                }
                *last = Some((service.to_owned(), verdict));
                verdict
            }
        }
    }

    /// The first service that was refused.
    pub(crate) fn first_refused(&self) -> &str {
        self.first_refused.as_deref().unwrap_or_default()
    }

    /// Gives the label or field that is set on records without a service, and its value.
    pub(crate) fn named(&self) -> (&str, &str) {
        self.sender.named()
    }

    /// Decides on a series, by its canonical bytes.
    #[inline]
    pub(crate) fn judge_series(&mut self, canonical: &[u8]) -> Verdict {
        let service = service_of(canonical, &self.sender.names);
        self.judge(service)
    }

    /// Appends the series with the missing service added to `out`, and gives its id.
    pub(crate) fn name_series(&self, canonical: &[u8], out: &mut Vec<u8>) -> SeriesId {
        let start = out.len();
        let (label, service) = self.sender.named();
        let mut waiting = Some(label);
        for (name, value) in Pairs::new(canonical) {
            if let Some(label) = waiting.take_if(|label| *label <= name) {
                push_pair(out, label, service);
                if label == name {
                    continue;
                }
            }
            push_pair(out, name, value);
        }
        if let Some(label) = waiting {
            push_pair(out, label, service);
        }
        SeriesId::of(&out[start..])
    }
}

/// The service of a series: the first of the labels that is there, for none of them is empty.
fn service_of<'a>(canonical: &'a [u8], names: &[String]) -> &'a str {
    let (mut place, mut found) = (names.len(), "");
    for (name, value) in Pairs::new(canonical) {
        if let Some(at) = names[..place].iter().position(|wanted| wanted == name) {
            (place, found) = (at, value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use quiver_types::LabelSet;

    use super::*;

    fn sender(services: &[&str]) -> Arc<Sender> {
        let names = ["service_name", "service", "job"].map(str::to_owned);
        Sender::of(Access::services(services.iter().copied()), names.into()).expect("not all")
    }

    #[test]
    fn verdicts() {
        assert!(Sender::of(Access::full(), [].into()).is_none());
        let check = |services: &[&str], labels: &[(&str, &str)], expected: Verdict| {
            let labels = LabelSet::from_pairs(labels.iter().copied());
            assert_eq!(
                Gate::new(sender(services)).judge_series(labels.canonical()),
                expected,
                "{services:?} {labels:?}"
            );
        };
        check(&["a", "b"], &[("__name__", "m"), ("job", "a")], Verdict::Take);
        check(&["a", "b"], &[("__name__", "m"), ("job", "a"), ("service_name", "c")], Verdict::Refuse);
        check(&["a", "b"], &[("__name__", "m"), ("job", "c"), ("service", "b")], Verdict::Take);
        check(&["a", "b"], &[("__name__", "m")], Verdict::Refuse);
        check(&["a"], &[("__name__", "m")], Verdict::Name);
        check(&["a"], &[("__name__", "m"), ("job", "b")], Verdict::Refuse);
        check(&[], &[("__name__", "m")], Verdict::Refuse);
    }

    #[test]
    fn a_missing_service_stands_in_its_place() {
        for labels in [&[][..], &[("a", "1")], &[("zone", "1")], &[("__name__", "m"), ("a", "1"), ("zone", "2")]] {
            let mut out = vec![7];
            let id = Gate::new(sender(&["cart"]))
                .name_series(LabelSet::from_pairs(labels.iter().copied()).canonical(), &mut out);
            let expected = LabelSet::from_pairs(labels.iter().copied().chain([("service_name", "cart")]));
            assert_eq!((&out[1..], id), (expected.canonical(), expected.id()), "{labels:?}");
        }
    }
}
