//! Conditions of changes, and what changes are called.

use super::*;
use crate::outside::Outside;

fn entity(version: i64) -> Entity {
    let (times_ms, by) = ((0, 0), (String::new(), String::new()));
    Entity::from(Outside { id: "e".to_owned(), version, times_ms, by, body: Map::new() })
}

#[test]
fn conditions_hold_or_tell_what_is_there() {
    for (condition, expected) in [
        (Condition::None, None),
        (Condition::Exists, None),
        (Condition::Versions(vec![3]), None),
        (Condition::Versions(vec![1, 3]), None),
        (Condition::Versions(vec![2]), Some("the entity has changed meanwhile")),
        // Tags that are none of ours leave nothing that could fit.
        (Condition::Versions(Vec::new()), Some("the entity has changed meanwhile")),
        (Condition::Others(vec![2]), None),
        (Condition::Others(Vec::new()), None),
        (Condition::Others(vec![2, 3]), Some("the entity has this version")),
        (Condition::Absent, Some("there is one with this id")),
    ] {
        let told = condition.check(&entity(3)).err();
        assert_eq!(told.as_ref().map(|problem| problem.detail.as_str()), expected, "{condition:?}");
        if let Some(problem) = told {
            assert_eq!((problem.kind, problem.code), (ProblemKind::Precondition, "VERSION_CONFLICT"));
            assert_eq!((&problem.more["etag"], &problem.more["current"]["id"]), (&json!("\"3\""), &json!("e")));
        }
    }
}

#[test]
fn changes_are_called_as_the_audit_log_has_them() {
    let (id, body) = (|| "1".to_owned(), Map::new);
    for (op, action, named, has_fields) in [
        (Op::Create { id: None, body: body() }, "CREATE", None, true),
        (Op::Create { id: Some(id()), body: body() }, "CREATE", Some("1"), true),
        (Op::Replace { id: id(), body: body(), condition: Condition::None }, "UPDATE", Some("1"), true),
        (Op::Patch { id: id(), patch: body(), condition: Condition::None }, "UPDATE", Some("1"), true),
        (Op::Delete { id: id(), condition: Condition::None }, "DELETE", Some("1"), false),
        (Op::Restore { id: id(), version: 1 }, "RESTORE", Some("1"), false),
    ] {
        assert_eq!((op.action(), op.id()), (action, named), "{op:?}");
        let mut op = op;
        assert_eq!(op.fields_mut().is_some(), has_fields, "{op:?}");
    }
}
