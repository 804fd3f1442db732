//! The attribute keys in the maps and lists of a part. If a key is certainly absent, its map need not be read.

use std::collections::BTreeSet;

use quiver_types::spans::Place;
use serde::{Deserialize, Serialize};

/// Footer key: see [`SpanKeys`], as JSON.
pub(super) const KEYS: &str = "quiver.keys";
/// With more keys in a place than this, any key counts as possibly present.
const KEYS_MAX: usize = 2_000;

/// Keys without a column of their own, by place (`None`: any key is possible); and whether there are any events and
/// links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpanKeys {
    span: Option<BTreeSet<String>>,
    resource: Option<BTreeSet<String>>,
    scope: Option<BTreeSet<String>>,
    event: Option<BTreeSet<String>>,
    link: Option<BTreeSet<String>>,
    pub(super) events: bool,
    pub(super) links: bool,
}

impl Default for SpanKeys {
    /// Nothing is known, so anything is possible.
    fn default() -> Self {
        Self { span: None, resource: None, scope: None, event: None, link: None, events: true, links: true }
    }
}

impl SpanKeys {
    /// There are no keys, events or links.
    pub(super) fn none() -> Self {
        let no = || Some(BTreeSet::new());
        Self { span: no(), resource: no(), scope: no(), event: no(), link: no(), events: false, links: false }
    }

    fn of(&self, place: Place) -> Option<&BTreeSet<String>> {
        match place {
            Place::Span => self.span.as_ref(),
            Place::Resource => self.resource.as_ref(),
            Place::Scope => self.scope.as_ref(),
            Place::Event => self.event.as_ref(),
            Place::Link => self.link.as_ref(),
        }
    }

    fn of_mut(&mut self, place: Place) -> &mut Option<BTreeSet<String>> {
        match place {
            Place::Span => &mut self.span,
            Place::Resource => &mut self.resource,
            Place::Scope => &mut self.scope,
            Place::Event => &mut self.event,
            Place::Link => &mut self.link,
        }
    }

    /// Records a key.
    pub(super) fn add(&mut self, place: Place, key: &str) {
        let list = self.of_mut(place);
        if let Some(keys) = list
            && !keys.contains(key)
        {
            keys.insert(key.to_owned());
            if keys.len() > KEYS_MAX {
                *list = None;
            }
        }
    }

    /// Adds the keys of another part.
    pub(super) fn unite(&mut self, other: &Self) {
        for place in Place::ALL {
            match other.of(place) {
                Some(keys) => keys.iter().for_each(|key| self.add(place, key)),
                None => *self.of_mut(place) = None,
            }
        }
        self.events |= other.events;
        self.links |= other.links;
    }

    /// Tells whether a key may be present.
    pub(crate) fn may_have(&self, place: Place, key: &str) -> bool {
        self.of(place).is_none_or(|keys| keys.contains(key))
    }

    /// Tells whether any key may be present.
    pub(super) fn may_have_any(&self, place: Place) -> bool {
        self.of(place).is_none_or(|keys| !keys.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_noted_is_not_there() {
        let mut keys = SpanKeys::none();
        assert!(!keys.may_have_any(Place::Event));
        keys.add(Place::Event, "a");
        let read: SpanKeys = serde_json::from_str(&serde_json::to_string(&keys).unwrap()).unwrap();
        assert_eq!(read, keys);
        assert!(
            read.may_have(Place::Event, "a") && !read.may_have(Place::Event, "b") && !read.may_have(Place::Span, "a")
        );
        (0..=KEYS_MAX).for_each(|i| keys.add(Place::Event, &i.to_string()));
        assert!(keys.may_have(Place::Event, "b") && SpanKeys::default().may_have(Place::Link, "x"));
    }
}
