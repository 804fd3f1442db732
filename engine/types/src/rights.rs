//! Rights: triples `{right, domain, service}`, which of them include others, and the [`Access`] that follows from them
//! (`identity-and-access` section 3).

use std::fmt;

use serde_json::{Value, json};

use crate::access::Access;
use crate::services::Services;

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// Read data and configuration.
    View,
    /// Silence, acknowledge, send test notifications, start and cancel jobs.
    Operate,
    /// Create, change, delete, deploy.
    Edit,
    /// Write telemetry; nothing can be read with it.
    Ingest,
    /// All, users and keys too.
    Admin,
}

impl Right {
    /// All rights with what they mean.
    pub const ALL: [(Right, &'static str, &'static str); 5] = [
        (Right::View, "view", "read data and configuration"),
        (Right::Operate, "operate", "silence, acknowledge, send test notifications, start and cancel jobs"),
        (Right::Edit, "edit", "create, change, delete, deploy"),
        (Right::Ingest, "ingest", "write telemetry; nothing can be read with it"),
        (Right::Admin, "admin", "all, users and keys too"),
    ];

    /// Its word in requests, roles and answers.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Reads a word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name, _)| *name == text).map(|(right, ..)| *right)
    }

    /// Says whether who has this right has the other one, too.
    pub fn contains(self, other: Self) -> bool {
        match self {
            Self::Admin => true,
            Self::Edit => matches!(other, Self::Edit | Self::Operate | Self::View),
            Self::Operate => matches!(other, Self::Operate | Self::View),
            Self::View => other == Self::View,
            Self::Ingest => other == Self::Ingest,
        }
    }

    /// The right that both contain.
    fn meet(self, other: Self) -> Option<Self> {
        if self.contains(other) {
            Some(other)
        } else if other.contains(self) {
            Some(self)
        } else {
            None
        }
    }
}

/// What a right is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Domain {
    /// Samples, series and exemplars.
    Metrics,
    /// Log records and their fields.
    Logs,
    /// Spans, traces and service maps.
    Traces,
    /// Telemetry of browsers (real user monitoring).
    Rum,
    /// Alerts and silences.
    Alerts,
    /// Events.
    Events,
    /// Rules and policy.
    Alerting,
    /// Business transactions and the rules that detect them.
    Transactions,
    /// Business processes and their steps.
    Processes,
    /// Segments: named filters that narrow what a query reads.
    Segments,
    /// Apdex thresholds of services and operations.
    Apdex,
    /// Rules that extract fields from telemetry as it comes in.
    Extraction,
    /// Managed resources, their types and relationships.
    Resources,
    /// Users, roles, keys.
    Rbac,
    /// The audit log.
    Audit,
    /// The server itself.
    System,
}

impl Domain {
    /// All domains with what they hold.
    pub const ALL: [(Domain, &'static str, &'static str); 16] = [
        (Domain::Metrics, "metrics", "samples, series, exemplars"),
        (Domain::Logs, "logs", "records and their fields"),
        (Domain::Traces, "traces", "spans, traces, service maps"),
        (Domain::Rum, "rum", "telemetry of browsers"),
        (Domain::Alerts, "alerts", "alerts and silences"),
        (Domain::Events, "events", "events"),
        (Domain::Alerting, "alerting", "rules and notification policy"),
        (Domain::Transactions, "transactions", "business transactions and their detection"),
        (Domain::Processes, "processes", "business processes"),
        (Domain::Segments, "segments", "segments"),
        (Domain::Apdex, "apdex", "Apdex thresholds"),
        (Domain::Extraction, "extraction", "rules of data extraction"),
        (Domain::Resources, "resources", "managed resources, their types and relationships"),
        (Domain::Rbac, "rbac", "users, service accounts, keys, groups, roles, bindings"),
        (Domain::Audit, "audit", "the audit log"),
        (Domain::System, "system", "the server itself"),
    ];

    /// Its word in requests, roles and answers.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Reads a word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name, _)| *name == text).map(|(domain, ..)| *domain)
    }
}

/// A permission: a right in a domain over services, written `{right, domain, services}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Triple {
    /// What may be done.
    pub right: Right,
    /// About what; none: everything.
    pub domain: Option<Domain>,
    /// Over the telemetry of which services.
    pub services: Services,
}

impl fmt::Display for Triple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}, {}, {}}}", self.right.name(), self.domain_name(), self.services.as_str())
    }
}

impl Triple {
    /// Makes a triple.
    pub fn new(right: Right, domain: Option<Domain>, services: Services) -> Self {
        Self { right, domain, services }
    }

    /// `{right, domain, *}`.
    pub fn everywhere(right: Right, domain: Domain) -> Self {
        Self::new(right, Some(domain), Services::all())
    }

    /// `{admin, *, *}`, which nothing is closed to.
    pub fn admin() -> Self {
        Self::new(Right::Admin, None, Services::all())
    }

    /// The word of the domain, or `*`.
    pub fn domain_name(&self) -> &'static str {
        self.domain.map_or("*", Domain::name)
    }

    fn of_words(right: &str, domain: &str, services: &str) -> Result<Self, String> {
        let right = Right::parse(right.trim()).ok_or_else(|| format!("unknown right `{}`", right.trim()))?;
        let domain = match domain.trim() {
            "*" => None,
            word => Some(Domain::parse(word).ok_or_else(|| format!("unknown domain `{word}`"))?),
        };
        let services = Services::parse(services.trim()).ok_or("`*` stands at the end of a service's name only")?;
        Ok(Self { right, domain, services })
    }

    /// Reads `{view, logs, cart}`, `["view","logs","cart"]` or `{"right":…,"domain":…,"service":…}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_json(value: &Value) -> Result<Self, String> {
        let no = || "a permission is `{right, domain, service}`".to_owned();
        match value {
            Value::String(text) => {
                let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(no)?;
                let words: Vec<&str> = inner.splitn(3, ',').collect();
                let [right, domain, service] = words[..] else { return Err(no()) };
                Self::of_words(right, domain, service)
            }
            Value::Array(words) => {
                let [Value::String(right), Value::String(domain), Value::String(service)] = &words[..] else {
                    return Err(no());
                };
                Self::of_words(right, domain, service)
            }
            Value::Object(map) => {
                let word = |key: &str| map.get(key).and_then(Value::as_str);
                if let Some(key) = map.keys().find(|k| !matches!(k.as_str(), "right" | "domain" | "service")) {
                    return Err(format!("unknown field `{key}` of a permission"));
                }
                let (Some(right), Some(domain), Some(service)) = (word("right"), word("domain"), word("service"))
                else {
                    return Err(no());
                };
                Self::of_words(right, domain, service)
            }
            _ => Err(no()),
        }
    }

    /// Writes it as an object.
    pub fn to_json(&self) -> Value {
        json!({"right": self.right.name(), "domain": self.domain_name(), "service": self.services.as_str()})
    }

    /// Says whether who has this triple has the other one, too.
    pub fn covers(&self, other: &Self) -> bool {
        let domain = self.domain.is_none() || self.domain == other.domain;
        self.right.contains(other.right) && domain && self.services.covers(&other.services)
    }

    /// Gives what both allow; `None`: they have nothing in common.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        let right = self.right.meet(other.right)?;
        let domain = match (self.domain, other.domain) {
            (None, any) | (any, None) => any,
            (mine, theirs) if mine == theirs => mine,
            _ => return None,
        };
        let services = if self.services.covers(&other.services) {
            &other.services
        } else if other.services.covers(&self.services) {
            &self.services
        } else {
            return None;
        };
        Some(Self { right, domain, services: services.clone() })
    }
}

/// All that somebody may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights(Vec<Triple>);

impl FromIterator<Triple> for Rights {
    fn from_iter<I: IntoIterator<Item = Triple>>(triples: I) -> Self {
        let mut all: Vec<Triple> = triples.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        // What another triple gives as well says nothing.
        let needed = |i: usize, t: &Triple| !all.iter().enumerate().any(|(j, other)| j != i && other.covers(t));
        Self(all.iter().enumerate().filter(|(i, t)| needed(*i, t)).map(|(_, t)| t.clone()).collect())
    }
}

impl Rights {
    /// `{admin, *, *}`.
    pub fn full() -> Self {
        Self(vec![Triple::admin()])
    }

    /// What a role gives, narrowed to some services where a binding names them.
    pub fn narrowed(role: &[Triple], services: Option<&[String]>) -> Self {
        let Some(services) = services else { return role.iter().cloned().collect() };
        let patterns = services.iter().filter_map(|s| Services::parse(s));
        let meet = |s: Services| {
            role.iter().filter_map(move |t| t.meet(&Triple { services: s.clone(), ..t.clone() })).collect::<Vec<_>>()
        };
        patterns.flat_map(meet).collect()
    }

    /// The triples, none of which another one covers.
    pub fn triples(&self) -> &[Triple] {
        &self.0
    }

    /// Says whether a triple is among them, as a whole.
    pub fn covers(&self, triple: &Triple) -> bool {
        self.0.iter().any(|mine| mine.covers(triple))
    }

    /// Says whether whatever the other ones let somebody view, of a domain or of all, these do, too.
    pub fn show_all_of(&self, other: &Self, domain: Option<Domain>) -> bool {
        let of = |t: &&Triple| domain.is_none() || t.domain.is_none() || t.domain == domain;
        let viewed = other.0.iter().filter(|t| t.right.contains(Right::View)).filter(of);
        let needed = |t: &Triple| Triple::new(Right::View, domain.or(t.domain), t.services.clone());
        self.0 == other.0 || viewed.map(needed).all(|t| self.covers(&t))
    }

    fn of(&self, right: Right, domain: Domain) -> impl Iterator<Item = &Services> {
        let fits = move |t: &&Triple| t.right.contains(right) && t.domain.is_none_or(|d| d == domain);
        self.0.iter().filter(fits).map(|t| &t.services)
    }

    /// Says whether there is a service for which the right is given.
    pub fn has_any(&self, right: Right, domain: Domain) -> bool {
        self.of(right, domain).next().is_some()
    }

    /// Says whether the right is given in some domain.
    pub fn has_in_some_domain(&self, right: Right) -> bool {
        self.0.iter().any(|t| t.right.contains(right))
    }

    /// The services for which the right is given.
    pub fn access(&self, right: Right, domain: Domain) -> Access {
        Access::of(self.of(right, domain))
    }

    /// What both give: the rights of a key are those that its owner still has.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        self.0.iter().flat_map(|mine| other.0.iter().filter_map(|theirs| mine.meet(theirs))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn triple(text: &str) -> Triple {
        Triple::of_json(&Value::String(text.to_owned())).expect("a triple")
    }

    #[test]
    fn texts() {
        for text in ["{view, logs, cart}", "{admin, *, *}", "{ingest, metrics, shop-*}"] {
            assert_eq!(triple(text).to_string(), text);
            assert_eq!(Triple::of_json(&triple(text).to_json()), Ok(triple(text)));
        }
        assert_eq!(Triple::of_json(&json!(["view", "logs", "cart"])), Ok(triple("{view,logs,cart}")));
        let wrong = [
            json!("view, logs, cart"),
            json!("{view, logs}"),
            json!("{see, logs, *}"),
            json!("{view, dreams, *}"),
            json!("{view, logs, a*b}"),
            json!("{view, logs, }"),
            json!({"right": "view", "domain": "logs"}),
            json!({"right": "view", "domain": "logs", "service": "x", "more": 1}),
            json!(["view", "logs", 1]),
            json!(7),
        ];
        for value in wrong {
            assert!(Triple::of_json(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn covering() {
        let check = |a: &str, b: &str, yes: bool| assert_eq!(triple(a).covers(&triple(b)), yes, "{a} {b}");
        check("{admin, *, *}", "{ingest, logs, x}", true);
        check("{edit, logs, *}", "{view, logs, x}", true);
        check("{edit, logs, *}", "{ingest, logs, x}", false);
        check("{view, logs, cart*}", "{view, logs, cart-db}", true);
        check("{view, logs, cart*}", "{view, logs, cart-*}", true);
        check("{view, logs, cart}", "{view, logs, cart*}", false);
        check("{view, logs, *}", "{view, *, x}", false);
        check("{view, *, x}", "{view, *, x}", true);
    }

    #[test]
    fn rights_to_view_that_are_left() {
        let rights = |texts: &[&str]| texts.iter().map(|t| triple(t)).collect::<Rights>();
        let check = |now: &[&str], before: &[&str], yes: bool| {
            assert_eq!(rights(now).show_all_of(&rights(before), None), yes, "{now:?} {before:?}");
        };
        let of_logs = |now: &[&str], before: &[&str], yes: bool| {
            assert_eq!(rights(now).show_all_of(&rights(before), Some(Domain::Logs)), yes, "{now:?} {before:?}");
        };
        of_logs(&["{view, logs, cart}"], &["{view, logs, cart}", "{view, traces, bank}"], true);
        of_logs(&["{view, logs, cart}"], &["{edit, *, cart}"], true);
        of_logs(&["{view, logs, cart}"], &["{view, *, *}"], false);
        of_logs(&["{view, traces, *}"], &["{view, logs, cart}"], false);
        check(&[], &[], true);
        check(&[], &["{view, logs, cart}"], false);
        check(&["{view, logs, c*}"], &["{edit, logs, cart}", "{ingest, traces, *}"], true);
        check(&["{view, logs, cart}"], &["{view, logs, cart}", "{view, logs, bank}"], false);
        check(&["{view, logs, *}"], &["{admin, *, *}"], false);
        check(&["{admin, *, *}"], &["{view, logs, *}", "{view, metrics, x}"], true);
    }

    #[test]
    fn access_of_rights() {
        let rights: Rights =
            [triple("{view, logs, a}"), triple("{edit, logs, b*}"), triple("{ingest, logs, c}")].into_iter().collect();
        let access = rights.access(Right::View, Domain::Logs);
        assert!(access.allows("a") && access.allows("b2") && !access.allows("c") && !access.allows(""));
        assert!(!rights.has_any(Right::View, Domain::Metrics) && rights.has_in_some_domain(Right::Ingest));
        assert!(Rights::full().access(Right::View, Domain::Traces).is_full());
        assert!(!Rights::default().access(Right::View, Domain::Traces).allows("a"));
    }

    #[test]
    fn narrowing() {
        let role = [triple("{view, *, *}"), triple("{edit, logs, cart*}")];
        let check = |services: Option<&[&str]>, expected: &[&str]| {
            let services: Option<Vec<String>> = services.map(|s| s.iter().map(|s| (*s).to_owned()).collect());
            let held = Rights::narrowed(&role, services.as_deref());
            let expected: Rights = expected.iter().map(|t| triple(t)).collect();
            assert_eq!(held, expected, "{services:?}");
        };
        check(None, &["{view, *, *}", "{edit, logs, cart*}"]);
        check(Some(&["cart-db"]), &["{view, *, cart-db}", "{edit, logs, cart-db}"]);
        check(Some(&["c*"]), &["{view, *, c*}", "{edit, logs, cart*}"]);
        check(Some(&["shop"]), &["{view, *, shop}"]);
        check(Some(&[]), &[]);
    }

    fn any_triple() -> impl Strategy<Value = Triple> {
        let services = prop::sample::select(vec!["*", "a*", "ab*", "a", "ab", "b"]);
        let domain = prop::option::of(prop::sample::select(vec![Domain::Logs, Domain::Metrics]));
        (0..5_usize, domain, services)
            .prop_map(|(r, d, s)| Triple::new(Right::ALL[r].0, d, Services::parse(s).expect("a pattern")))
    }

    proptest! {
        /// What two sets both give is what each of them gives.
        #[test]
        fn meeting(a in prop::collection::vec(any_triple(), 0..4), b in prop::collection::vec(any_triple(), 0..4), t in any_triple()) {
            let (a, b): (Rights, Rights) = (a.into_iter().collect(), b.into_iter().collect());
            prop_assert_eq!(a.meet(&b).covers(&t), a.covers(&t) && b.covers(&t));
        }

        /// A service is visible exactly when a triple about it alone is covered.
        #[test]
        fn access_is_covering(all in prop::collection::vec(any_triple(), 0..5), service in prop::sample::select(vec!["a", "ab", "abc", "b", "c"])) {
            let rights: Rights = all.into_iter().collect();
            let one = Triple::new(Right::View, Some(Domain::Logs), Services::parse(service).expect("a name"));
            prop_assert_eq!(rights.access(Right::View, Domain::Logs).allows(service), rights.covers(&one));
        }
    }

    #[test]
    fn what_is_wrong_with_a_triple_is_said() {
        for (value, why) in [
            (json!("{see, logs, *}"), "unknown right `see`"),
            (json!("{view, dreams, *}"), "unknown domain `dreams`"),
            (json!("{view, logs, a*b}"), "`*` stands at the end of a service's name only"),
            (json!("{VIEW, logs, a}"), "unknown right `VIEW`"),
            (
                json!({"right": "view", "domain": "logs", "service": "x", "more": 1}),
                "unknown field `more` of a permission",
            ),
            (json!({"right": 1, "domain": "logs", "service": "x"}), "a permission is `{right, domain, service}`"),
            (json!(["view", "logs"]), "a permission is `{right, domain, service}`"),
            (json!("{view, logs, x"), "a permission is `{right, domain, service}`"),
        ] {
            assert_eq!(Triple::of_json(&value), Err(why.to_owned()), "{value}");
        }
        // Everything after the second comma is the name.
        assert_eq!(triple("{view, logs, a, b}").services.as_str(), "a, b");
        assert_eq!(triple(" {view,logs,*} "), triple("{view, logs, *}"));
    }

    #[test]
    fn words_of_rights_and_domains() {
        for (place, (right, name, _)) in Right::ALL.into_iter().enumerate() {
            assert_eq!((right as usize, Right::parse(name), right.name()), (place, Some(right), name));
            assert!(right.contains(right) && Right::Admin.contains(right), "{name}");
            assert_eq!(Right::View.contains(right), right == Right::View, "{name}");
        }
        for (place, (domain, name, _)) in Domain::ALL.into_iter().enumerate() {
            assert_eq!((domain as usize, Domain::parse(name), domain.name()), (place, Some(domain), name));
        }
        assert_eq!((Right::parse("*"), Domain::parse("*")), (None, None));
    }

    #[test]
    fn what_another_triple_gives_is_left_out() {
        let held: Rights =
            ["{view, logs, a*}", "{edit, logs, *}", "{view, logs, ab}", "{view, traces, ab}", "{edit, logs, *}"]
                .iter()
                .map(|text| triple(text))
                .collect();
        assert_eq!(held.triples(), [triple("{view, traces, ab}"), triple("{edit, logs, *}")]);
        assert_eq!(held.meet(&Rights::full()), held);
        assert_eq!(held.meet(&Rights::default()), Rights::default());
        assert_eq!(Rights::full().triples(), [Triple::admin()]);
    }
}
