//! Who sees and who writes an entity (`identity-and-access` 3 and 4.1).

use quiver_types::{Domain, Right, Services, Triple};
use serde_json::{Map, Value};

use crate::document::Entity;
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

    /// Says whether lists show an entity to who may see it: not where he would learn its id by them.
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
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, services) in
            [("", "*"), ("*", "*"), ("cart", "cart"), ("cart*", "cart*"), ("cart*db", "cart*"), ("*-db", "*")]
        {
            assert_eq!(services_of_pattern(pattern).as_str(), services, "{pattern}");
        }
    }
}
