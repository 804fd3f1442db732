//! What a caller may see. Every scan and every index look-up takes an [`Access`], so nothing can be read without one.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Matcher;
use crate::logs::LogFilter;
use crate::services::Services;
use crate::spans::SpanFilter;

/// The services whose telemetry a caller may read (`identity-and-access` section 4).
///
/// Rows without a service are visible to full access only. Caches use the whole value as part of their keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    services: Option<Arc<Visible>>,
    within: Option<Arc<AccessSegment>>,
}

/// A segment: a subset of what the caller may see, to which he has narrowed a query. It is applied by the scans.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccessSegment {
    /// Identifies the segment with its content: segments are equal if their identities are, and caches use it as key.
    pub identity: String,
    /// The rows that belong to the segment.
    pub rows: SegmentRows,
}

/// The rows of one signal that belong to a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SegmentRows {
    /// Series that all matchers of one of these lists match.
    Series(Vec<Vec<Matcher>>),
    /// Log rows that match this filter.
    Logs(LogFilter),
    /// Spans that match this filter.
    Spans(SpanFilter),
}

impl PartialEq for AccessSegment {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for AccessSegment {}

impl std::hash::Hash for AccessSegment {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

/// Services by name, and beginnings of names.
#[derive(Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
struct Visible {
    names: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl Access {
    /// Sees everything, rows without a service too.
    pub fn full() -> Self {
        Self { services: None, within: None }
    }

    /// Sees only rows of the named services.
    pub fn services<I, S>(services: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let names = services.into_iter().map(Into::into).collect();
        Self { services: Some(Arc::new(Visible { names, ..Visible::default() })), within: None }
    }

    /// Sees the services of some triples.
    pub(crate) fn of<'a>(services: impl Iterator<Item = &'a Services>) -> Self {
        let mut visible = Visible::default();
        for one in services {
            match one.prefix() {
                Some("") => return Self::full(),
                Some(prefix) => visible.prefixes.insert(prefix.to_owned()),
                None => visible.names.insert(one.as_str().to_owned()),
            };
        }
        Self { services: Some(Arc::new(visible)), within: None }
    }

    /// The same access, narrowed to a segment.
    #[must_use]
    pub fn narrowed(self, within: AccessSegment) -> Self {
        Self { within: Some(Arc::new(within)), ..self }
    }

    /// Says whether a segment narrows it. Indexes and rollups that only know services must not be used then.
    pub fn is_narrowed(&self) -> bool {
        self.within.is_some()
    }

    /// Gives the identity of the segment; empty: there is none.
    pub fn segment(&self) -> &str {
        self.within.as_ref().map_or("", |within| &within.identity)
    }

    /// Narrows selectors of series to the segment. A series is selected if any of them matches; no selector: all
    /// series.
    pub fn selectors(&self, selectors: &[Vec<Matcher>]) -> Vec<Vec<Matcher>> {
        let Some(SegmentRows::Series(lists)) = self.within.as_ref().map(|within| &within.rows) else {
            return selectors.to_vec();
        };
        if lists.is_empty() {
            // No series has two names.
            return vec![["", "none"].map(|name| Matcher::equal(crate::label::METRIC_NAME, name)).to_vec()];
        }
        let all = [Vec::new()];
        let selectors = if selectors.is_empty() { &all } else { selectors };
        let both = |own: &Vec<Matcher>| lists.iter().map(|list| [&own[..], list].concat()).collect::<Vec<_>>();
        selectors.iter().flat_map(both).collect()
    }

    /// The log rows of the segment, if one narrows them.
    pub fn logs(&self) -> Option<&LogFilter> {
        match &self.within.as_ref()?.rows {
            SegmentRows::Logs(filter) => Some(filter),
            _ => None,
        }
    }

    /// The spans of the segment, if one narrows them.
    pub fn spans(&self) -> Option<&SpanFilter> {
        match &self.within.as_ref()?.rows {
            SegmentRows::Spans(filter) => Some(filter),
            _ => None,
        }
    }

    /// Names and patterns of the visible services, `*` for all.
    pub fn patterns(&self) -> Vec<String> {
        let Some(visible) = &self.services else { return vec!["*".to_owned()] };
        let prefixes = visible.prefixes.iter().map(|p| format!("{p}*"));
        visible.names.iter().cloned().chain(prefixes).collect()
    }

    /// Gives the visible service if there is exactly one, given by name and not by pattern.
    pub fn only_service(&self) -> Option<&str> {
        let visible = self.services.as_ref()?;
        let one = visible.names.len() == 1 && visible.prefixes.is_empty();
        visible.names.first().filter(|_| one).map(String::as_str)
    }

    /// Says whether rows of any service are visible. Without any, the domain is as if it were not there.
    pub fn sees_some(&self) -> bool {
        self.services.as_ref().is_none_or(|visible| !visible.names.is_empty() || !visible.prefixes.is_empty())
    }

    /// Says whether everything is visible, so that a scan can skip the check per series.
    pub fn is_full(&self) -> bool {
        self.services.is_none()
    }

    /// Says whether rows of this service are visible; the empty text means "no service".
    pub fn allows(&self, service: &str) -> bool {
        match &self.services {
            None => true,
            Some(_) if service.is_empty() => false,
            Some(visible) => {
                visible.names.contains(service) || visible.prefixes.iter().any(|p| service.starts_with(p.as_str()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_narrow_selectors() {
        let one = |name: &str| vec![Matcher::equal(name, "x")];
        let within = |lists| AccessSegment { identity: "s".to_owned(), rows: SegmentRows::Series(lists) };
        let access = Access::full().narrowed(within(vec![one("a"), one("b")]));
        assert_eq!(access.selectors(&[]), [one("a"), one("b")]);
        let both = access.selectors(&[one("c"), one("d")]);
        assert_eq!(both.len(), 4);
        assert_eq!(both[1], [one("c"), one("b")].concat());
        assert_eq!(Access::full().selectors(&[one("c")]), [one("c")]);
        let nothing = Access::full().narrowed(within(Vec::new())).selectors(&[]);
        assert!(!nothing[0].iter().all(|m| m.matches("")) && !nothing[0].iter().all(|m| m.matches("none")));
        assert_ne!(access, Access::full());
    }

    #[test]
    fn rows_without_service_need_full_access() {
        assert!(Access::full().allows(""));
        assert!(!Access::services([""]).allows(""));
        assert!(Access::services(["a"]).allows("a"));
        assert!(!Access::services(["a"]).allows("b"));
    }

    #[test]
    fn visible_services_as_patterns() {
        let of = |texts: &[&str]| {
            let services: Vec<Services> = texts.iter().map(|text| Services::parse(text).expect("a pattern")).collect();
            Access::of(services.iter())
        };
        assert_eq!(of(&["b", "a*", "a", "b"]).patterns(), ["a", "b", "a*"]);
        assert_eq!((of(&["a", "*"]).is_full(), Access::full().patterns()), (true, vec!["*".to_owned()]));
        assert_eq!(of(&[]).patterns(), [""; 0]);
        let one = |texts: &[&str]| of(texts).only_service().map(str::to_owned);
        assert_eq!((one(&["a"]), one(&["a", "b"]), one(&["a*"])), (Some("a".to_owned()), None, None));
        assert_eq!((one(&["a", "b*"]), one(&["*"]), one(&[])), (None, None, None));
        let access = of(&["a*", "shop"]);
        let seen = ["a", "ab", "shop", "shop2", "", "b"].map(|service| access.allows(service));
        assert_eq!(seen, [true, true, true, false, false, false]);
        assert!(!of(&[]).is_full() && !of(&[]).allows("a"));
        assert_eq!([&["*"][..], &["a"], &["a*"], &[]].map(|texts| of(texts).sees_some()), [true, true, true, false]);
    }

    #[test]
    fn a_segment_is_of_one_signal() {
        let within = |rows| Access::services(["a"]).narrowed(AccessSegment { identity: "s".to_owned(), rows });
        let logs = within(SegmentRows::Logs(LogFilter::All));
        let spans = within(SegmentRows::Spans(SpanFilter::Root));
        assert!(logs.logs().is_some() && logs.spans().is_none() && spans.spans().is_some() && spans.logs().is_none());
        assert!(logs.is_narrowed() && logs.allows("a") && !logs.allows("b"), "rights stay as they were");
        assert_eq!((logs.segment(), Access::full().segment()), ("s", ""));
        // Others are not narrowed by it.
        let own = vec![vec![Matcher::equal("a", "x")]];
        assert_eq!(logs.selectors(&own), own);
        assert_eq!(logs, spans, "its identity alone tells it apart");
        let other = Access::services(["a"])
            .narrowed(AccessSegment { identity: "t".to_owned(), rows: SegmentRows::Logs(LogFilter::All) });
        assert!(logs != other && logs != Access::services(["a"]));
    }
}
