//! Areas: what is deployed together, and whether its changes take effect at once (`config-api` 2.3).

use quiver_database::{Connection, statement};
use serde_json::{Map, Value};

use crate::entity::Entity;
use crate::families::names;
use crate::problem::Result;

/// The member that says of an entity that its changes wait; it is there only where they can.
pub(crate) const STAGED: &str = "staged";

/// What is deployed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// Rules and their groups.
    Rules,
    /// The policy of notification.
    Policy,
}

impl Area {
    /// All areas, each of which is deployed alone.
    pub const ALL: [Self; 2] = [Self::Rules, Self::Policy];

    /// Its name in the settings.
    fn word(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Policy => "policy",
        }
    }

    /// The area of a family, if it is in one.
    pub(crate) fn of(family: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|area| area.families().contains(&family))
    }

    /// Names of its families.
    fn families(self) -> &'static [&'static str] {
        match self {
            Self::Rules => &[names::RULE_GROUPS, names::RULES],
            Self::Policy => &names::POLICY,
        }
    }

    /// Takes what is there for what was deployed.
    pub(crate) async fn keep(self, db: &mut Connection) -> Result<()> {
        self.forget(db).await?;
        for family in self.families() {
            let (into, from) = (Entity::COLUMNS, Entity::COLUMNS);
            let sql =
                format!("INSERT INTO deployed (family, {into}) SELECT family, {from} FROM entity WHERE family = ?");
            statement(sql).bind(*family).execute(&mut *db).await?;
        }
        Ok(())
    }

    /// Forgets what was deployed.
    pub(crate) async fn forget(self, db: &mut Connection) -> Result<()> {
        for family in self.families() {
            statement("DELETE FROM deployed WHERE family = ?").bind(*family).execute(&mut *db).await?;
        }
        Ok(())
    }
}

/// Says whether changes of an area act by themselves, by the entity of the settings.
pub(crate) fn acts_by_itself(settings: Option<&Entity>, area: Area) -> bool {
    settings.is_none_or(|entity| says(&entity.body, area.word()))
}

/// What an entity of these settings says of an area; what it does not say is true.
fn says(body: &Map<String, Value>, area: &str) -> bool {
    body.get("autoDeploy").and_then(|areas| areas.get(area)) != Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Nothing waits because a setting is not there.
    #[test]
    fn what_is_not_said_is_true() {
        for (body, rules, policy) in [
            (json!({}), true, true),
            (json!({"autoDeploy": null}), true, true),
            (json!({"autoDeploy": {}}), true, true),
            (json!({"autoDeploy": {"rules": null, "policy": "false"}}), true, true),
            (json!({"autoDeploy": {"rules": false}}), false, true),
            (json!({"autoDeploy": {"rules": true, "policy": false}}), true, false),
        ] {
            let body = body.as_object().expect("an object");
            assert_eq!((says(body, "rules"), says(body, "policy")), (rules, policy), "{body:?}");
        }
    }
}
