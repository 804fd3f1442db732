//! Who may see and change an entity (`identity-and-access` 3 and 4.1).

use quiver_types::{Domain, Right, Services, Triple};
use serde_json::{Map, Value};

use crate::entity::Entity;
use crate::family::{Caller, Family, Rows};
use crate::problem::{Problem, Result};

/// The member of what nobody reads that holds the services an entity is about, where they follow from other entities.
pub(crate) const SERVICES: &str = "services";

/// The services that a name or a pattern can stand for; an empty one and `*` stand for all.
pub(crate) fn services_of_pattern(pattern: &str) -> Services {
    let prefix = pattern.split('*').next().unwrap_or_default();
    let wide = pattern.contains('*') || pattern.is_empty();
    let covering = if wide { format!("{prefix}*") } else { pattern.to_owned() };
    Services::parse(&covering).unwrap_or_else(Services::all)
}

/// Says whether the services that an entity is about follow from other entities: its body alone does not tell them.
pub(crate) fn follows_others(entity: &Entity) -> bool {
    entity.sealed.contains_key(SERVICES)
}

impl Family {
    /// The services that an entity is about, as patterns; empty texts for none.
    fn services_of(&self, body: &Map<String, Value>, sealed: Option<&Map<String, Value>>) -> Vec<String> {
        match sealed.and_then(|s| s.get(SERVICES)).and_then(Value::as_array) {
            Some(list) => list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
            None => vec![(self.service)(body)],
        }
    }

    fn triple(&self, right: Right, service: &str) -> Triple {
        Triple::new(right, Some(self.domain), services_of_pattern(service))
    }

    /// Says whether a caller sees an entity.
    pub fn is_visible(&self, caller: &Caller, entity: &Entity) -> bool {
        self.shows(caller, &entity.body, Some(&entity.sealed))
    }

    /// Says whether a caller sees every entity, whatever it is about.
    pub(crate) fn shows_all(&self, caller: &Caller) -> bool {
        match self.rows {
            Rows::Open => true,
            Rows::Private | Rows::ById => false,
            Rows::Service | Rows::First => caller.rights.covers(&self.triple(Right::View, "*")),
        }
    }

    /// Whether lists show an entity to callers who may see it; not if they would learn its id only from the list.
    pub(crate) fn lists(&self, caller: &Caller, entity: &Entity) -> bool {
        self.rows != Rows::ById || is_own(caller, &entity.body) || caller.rights.covers(&self.triple(self.write, "*"))
    }

    /// As [`Self::is_visible`], for what an entity was: without what nobody reads, rows of other entities need all services.
    pub(crate) fn shows(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
        sealed: Option<&Map<String, Value>>,
    ) -> bool {
        match self.rows {
            Rows::Open | Rows::ById => true,
            Rows::Private => is_shared(body) || is_own(caller, body),
            Rows::Service | Rows::First => self
                .services_of(body, sealed)
                .iter()
                .all(|service| caller.rights.covers(&self.triple(Right::View, service))),
        }
    }

    /// Refuses who may not write an entity.
    pub(crate) fn may_write(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
        sealed: &Map<String, Value>,
    ) -> Result<()> {
        let by_owner = match self.rows {
            Rows::Private => !is_shared(body),
            Rows::ById => true,
            Rows::Open | Rows::Service | Rows::First => false,
        };
        if by_owner && is_own(caller, body) {
            return Ok(());
        }
        for (n, service) in self.services_of(body, Some(sealed)).iter().enumerate() {
            let right = if self.rows == Rows::First && n > 0 { Right::View } else { self.write };
            let needed = self.triple(right, service);
            if !caller.rights.covers(&needed) {
                return Err(Problem::forbidden(&needed.to_string()));
            }
        }
        Ok(())
    }

    /// Says whether a caller needs no right to make entities, since he makes them for himself alone.
    pub(crate) fn is_for_oneself(&self, caller: &Caller) -> bool {
        let own = !self.owners.is_empty() || matches!(self.rows, Rows::Private | Rows::ById);
        own && !caller.rights.covers(&self.triple(self.write, "*"))
    }

    /// Says whether a caller may write what another manager owns.
    pub(crate) fn may_override(&self, caller: &Caller, entity: &Entity) -> bool {
        let services = self.services_of(&entity.body, Some(&entity.sealed));
        services.iter().all(|service| caller.rights.covers(&self.triple(Right::Admin, service)))
    }
}

fn is_shared(body: &Map<String, Value>) -> bool {
    body.get("visibility").and_then(Value::as_str) == Some("shared")
}

fn is_own(caller: &Caller, body: &Map<String, Value>) -> bool {
    body.get("owner").and_then(Value::as_str) == Some(caller.subject.as_str())
}

/// Refuses who may not do something in a domain for a service or a pattern of them.
///
/// # Errors
/// `FORBIDDEN`, with the triple that lacks.
pub fn must_have(caller: &Caller, right: Right, domain: Domain, service: &str) -> Result<()> {
    let needed = Triple::new(right, Some(domain), services_of_pattern(service));
    if caller.rights.covers(&needed) { Ok(()) } else { Err(Problem::forbidden(&needed.to_string())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::families::{GROUPS, KEYS, PROCESSES, SAVED_VIEWS, SEGMENTS, TRANSACTIONS};

    #[test]
    fn patterns() {
        for (pattern, services) in
            [("", "*"), ("*", "*"), ("cart", "cart"), ("cart*", "cart*"), ("cart*db", "cart*"), ("*-db", "*")]
        {
            assert_eq!(services_of_pattern(pattern).as_str(), services, "{pattern}");
        }
    }

    fn caller(triples: &[&str]) -> Caller {
        let rights = triples.iter().map(|triple| Triple::of_json(&json!(triple)).expect(triple)).collect();
        Caller { rights, subject: "user:me".to_owned(), ..Caller::system() }
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    /// Entities of one service can be seen by callers who may see the service, and written by those who may write it.
    #[test]
    fn entities_of_a_service() {
        let cart = map(json!({"service": "cart"}));
        for (triple, sees, writes) in [
            ("{view, transactions, cart}", true, false),
            ("{edit, transactions, cart}", true, true),
            ("{edit, transactions, ca*}", true, true),
            ("{edit, transactions, *}", true, true),
            ("{edit, transactions, pay}", false, false),
            ("{edit, processes, cart}", false, false),
            ("{operate, transactions, cart}", true, false),
            ("{admin, *, *}", true, true),
        ] {
            let caller = caller(&[triple]);
            assert_eq!(TRANSACTIONS.shows(&caller, &cart, None), sees, "{triple}");
            let written = TRANSACTIONS.may_write(&caller, &cart, &Map::new());
            assert_eq!(written.is_ok(), writes, "{triple}");
            if let Err(problem) = written {
                assert_eq!(problem.more["required"], "{edit, transactions, cart}", "{triple}");
            }
        }
        // Of no service, or of a pattern of them, is what is about all that it can mean.
        for (service, needed) in [("", "{edit, transactions, *}"), ("ca*", "{edit, transactions, ca*}")] {
            let body = map(json!({"service": service}));
            let problem = TRANSACTIONS.may_write(&caller(&["{edit, transactions, cart}"]), &body, &Map::new());
            assert_eq!(problem.expect_err(service).more["required"], needed);
        }
    }

    /// What names several services needs the right for each of them; without what is sealed, for all.
    #[test]
    fn entities_of_several_services() {
        let body = map(json!({"name": "order"}));
        let sealed = map(json!({"services": ["cart", "pay"]}));
        let both = caller(&["{edit, processes, cart}", "{edit, processes, pay}"]);
        let one = caller(&["{edit, processes, cart}"]);
        assert!(PROCESSES.shows(&both, &body, Some(&sealed)) && PROCESSES.may_write(&both, &body, &sealed).is_ok());
        assert!(!PROCESSES.shows(&one, &body, Some(&sealed)));
        let problem = PROCESSES.may_write(&one, &body, &sealed).expect_err("one lacks");
        assert_eq!(problem.more["required"], "{edit, processes, pay}");
        assert!(!PROCESSES.shows(&both, &body, None), "what it was is not known");
        assert!(PROCESSES.shows(&caller(&["{view, processes, *}"]), &body, None));
        assert!(PROCESSES.shows_all(&caller(&["{view, processes, *}"])) && !PROCESSES.shows_all(&both));
    }

    /// Private ones are their owner's alone, shared ones everybody's to see, and theirs to write who have the right.
    #[test]
    fn entities_of_an_owner() {
        let editor = caller(&["{edit, segments, *}"]);
        let nobody = caller(&[]);
        let body = |owner: &str, visibility: &str| map(json!({"owner": owner, "visibility": visibility}));
        for (owner, visibility, sees, nobody_writes, editor_writes) in [
            ("user:me", "private", true, true, true),
            ("user:you", "private", false, false, true),
            ("user:me", "shared", true, false, true),
            ("user:you", "shared", true, false, true),
        ] {
            let body = body(owner, visibility);
            assert_eq!(SEGMENTS.shows(&nobody, &body, None), sees, "{owner} {visibility}");
            assert_eq!(SEGMENTS.shows(&editor, &body, None), sees, "{owner} {visibility}: no right shows more");
            let writes = |caller: &Caller| SEGMENTS.may_write(caller, &body, &Map::new()).is_ok();
            assert_eq!((writes(&nobody), writes(&editor)), (nobody_writes, editor_writes), "{owner} {visibility}");
        }
        assert!(!SEGMENTS.shows_all(&editor));
        // A saved view is seen by who knows its id, and written by its owner.
        let (mine, yours) = (map(json!({"owner": "user:me"})), map(json!({"owner": "user:you"})));
        assert!(SAVED_VIEWS.shows(&nobody, &mine, None) && SAVED_VIEWS.shows(&nobody, &yours, None));
        assert!(SAVED_VIEWS.may_write(&nobody, &mine, &Map::new()).is_ok());
        assert_eq!(SAVED_VIEWS.may_write(&nobody, &yours, &Map::new()).expect_err("not mine").code, "FORBIDDEN");
        assert!(GROUPS.shows_all(&nobody) && GROUPS.shows(&nobody, &mine, None), "the table of rights has asked");
        for (family, without, with) in [
            (&SEGMENTS, true, false),
            (&SAVED_VIEWS, true, true),
            (&KEYS, true, true),
            (&GROUPS, false, false),
            (&TRANSACTIONS, false, false),
        ] {
            let bounded = (family.is_for_oneself(&nobody), family.is_for_oneself(&editor));
            assert_eq!(bounded, (without, with), "{}", family.name);
            assert!(!family.is_for_oneself(&caller(&["{admin, *, *}"])), "{}", family.name);
        }
    }

    #[test]
    fn who_lacks_a_right_is_told_which() {
        let caller = caller(&["{view, logs, ca*}"]);
        for (service, lacks) in [
            ("cart", None),
            ("ca*", None),
            ("cart*db", None),
            ("pay", Some("{view, logs, pay}")),
            ("c*", Some("{view, logs, c*}")),
            ("", Some("{view, logs, *}")),
            ("*", Some("{view, logs, *}")),
        ] {
            let asked = must_have(&caller, Right::View, Domain::Logs, service);
            let told = asked.err().map(|problem| problem.more["required"].as_str().unwrap_or_default().to_owned());
            assert_eq!(told.as_deref(), lacks, "{service}");
        }
        assert!(must_have(&caller, Right::Edit, Domain::Logs, "cart").is_err());
        assert!(must_have(&caller, Right::View, Domain::Metrics, "cart").is_err());
    }
}
