//! Several changes of one request that are made together: the entities that result, and the position of errors in the
//! body.

use std::collections::BTreeMap;

use quiver_config::{ChangeOutcome, Entity, Problem};

/// Entities as changes leave them, in no order.
pub(super) fn entities_after(all: Vec<Entity>, done: Vec<ChangeOutcome>) -> Vec<Entity> {
    let by_id = |entity: Entity| (entity.id.clone(), entity);
    let mut left: BTreeMap<String, Entity> = all.into_iter().map(by_id).collect();
    for one in done {
        if let Some(before) = one.before {
            left.remove(&before.id);
        }
        left.extend(one.after.map(by_id));
    }
    left.into_values().collect()
}

/// Moves errors of the n-th change, whose fields begin with `/<n>`, to the n-th of some places in the body.
pub(super) fn moved_to_places(problem: Problem, places: &[String]) -> Problem {
    problem.moved(|field| {
        let path = field.trim_start_matches('/');
        let (n, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        n.parse::<usize>().ok().and_then(|n| places.get(n)).map(|place| format!("{place}{rest}"))
    })
}

#[cfg(test)]
mod tests {
    use quiver_config::ExternalEntity;

    use super::*;

    fn entity(id: &str, version: i64) -> Entity {
        Entity::from(ExternalEntity {
            id: id.to_owned(),
            version,
            times_ms: (0, 0),
            by: (String::new(), String::new()),
            body: serde_json::Map::new(),
        })
    }

    #[test]
    fn what_changes_leave() {
        let done = |before: Option<Entity>, after: Option<Entity>| ChangeOutcome {
            action: "UPDATE",
            before,
            after,
            changed: true,
            family: "routes",
            given: Vec::new(),
        };
        let all = vec![entity("kept", 1), entity("changed", 1), entity("gone", 1)];
        let changes = vec![
            done(Some(entity("changed", 1)), Some(entity("changed", 2))),
            done(Some(entity("gone", 1)), None),
            done(None, Some(entity("new", 1))),
        ];
        let left = entities_after(all, changes);
        let mut left: Vec<(&str, i64)> = left.iter().map(|e| (e.id.as_str(), e.version)).collect();
        left.sort_unstable();
        assert_eq!(left, [("changed", 2), ("kept", 1), ("new", 1)]);
    }

    #[test]
    fn errors_stand_where_their_change_does() {
        let places = [String::new(), "/rules/0".to_owned()];
        for (field, expected) in [
            ("/0/name", "/name"),
            ("/1", "/rules/0"),
            ("/1/expr", "/rules/0/expr"),
            ("/2/expr", "/2/expr"),
            ("/a", "/a"),
        ] {
            let problem = moved_to_places(Problem::field(field, "REQUIRED", "is required"), &places);
            assert_eq!(problem.errors[0].field, expected, "{field}");
        }
    }
}
