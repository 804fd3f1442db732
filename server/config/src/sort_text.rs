//! The text by which an index orders the entities of a family: the fields of its natural order, or the field that names
//! them.

use std::fmt::Write;

use futures::TryStreamExt;
use quiver_database::{Connection, statement};
use serde_json::{Map, Value};

use crate::entity::Entity;
use crate::family::{ChangeContext, Family};
use crate::fields::FieldKind;
use crate::problem::Result;

/// Longest field that is sorted by through an index, in characters: PostgreSQL's rows of indexes have 2,700 bytes.
const CHARS_MAX: usize = 500;
/// Greatest number that has the digits which are kept of one.
const NUMBER_MAX: i64 = 9_999_999_999;
/// Between the fields of a text: less than all that a field may hold.
const BETWEEN: char = '\u{1}';

/// Values as one text, which orders as they do: what is not there comes first, numbers are not negative.
pub(crate) fn joined<'a>(values: impl Iterator<Item = &'a Value>) -> Option<String> {
    let mut text = String::new();
    for (n, value) in values.enumerate() {
        if n > 0 {
            text.push(BETWEEN);
        }
        match value {
            Value::Null => {}
            Value::String(part) => text.push_str(part),
            Value::Number(number) => {
                let number = number.as_i64().filter(|n| (0..=NUMBER_MAX).contains(n))?;
                write!(text, "{number:010}").ok()?;
            }
            _ => return None,
        }
    }
    Some(text)
}

impl Family {
    /// The fields that an index orders entities by: those of the natural order, else the one that names them; empty where
    /// they are too long or of other kinds.
    pub(crate) fn indexed(&self) -> Vec<&'static str> {
        let is_text = |field: &str| match self.kind_of(field) {
            Some(FieldKind::Text { min, max } | FieldKind::Login { min, max }) => min > 0 && max <= CHARS_MAX,
            Some(FieldKind::Slug | FieldKind::Id) => true,
            _ => false,
        };
        let is_number = |field: &str| matches!(self.kind_of(field), Some(FieldKind::Int { min, max }) if min >= 0 && max <= NUMBER_MAX);
        let natural = self.natural.iter().all(|(field, down)| !down && (is_text(field) || is_number(field)));
        if natural && !self.natural.is_empty() {
            return self.natural.iter().map(|(field, _)| *field).collect();
        }
        if is_text(self.title) { vec![self.title] } else { Vec::new() }
    }

    /// The text that an index orders an entity by.
    pub(crate) fn sort_text(&self, body: &Map<String, Value>) -> String {
        let fields = self.indexed();
        joined(fields.iter().map(|field| body.get(*field).unwrap_or(&Value::Null))).unwrap_or_default()
    }
}

/// The texts between which those of entities lie whose first fields have some values.
fn beginning_with(values: &[&str]) -> (String, String) {
    let from: String = values.iter().flat_map(|value| [*value, "\u{1}"]).collect();
    let to = format!("{}\u{2}", from.strip_suffix(BETWEEN).unwrap_or_default());
    (from, to)
}

/// The place behind the others of an ordered family whose first fields have some values, by the index that has their order:
/// there may be many. Others are those that who makes it sees: a place tells how many come before it. The greatest place is
/// shared, and so may be others, where ids say who comes first.
pub(crate) async fn place_behind(
    db: &mut Connection,
    family: &Family,
    making: &ChangeContext<'_>,
    first: &[&str],
) -> Result<i64> {
    let (from, to) = beginning_with(first);
    let few = if family.shows_all(making.caller) { " LIMIT 1" } else { "" };
    let sql = format!(
        "SELECT {} FROM entity WHERE family = ? AND owner = ? AND sort_text >= ? AND sort_text < ? AND id <> ? \
        ORDER BY sort_text DESC{few}",
        Entity::COLUMNS
    );
    let rows = statement(sql).bind(family.name).bind("").bind(from).bind(to).bind(making.id.unwrap_or_default());
    let mut rows = rows.fetch_on(db);
    let last = loop {
        let Some(row) = rows.try_next().await? else { return Ok(0) };
        let other = Entity::read(&row)?;
        if family.is_visible(making.caller, &other) {
            break other;
        }
    };
    let most = match family.kind_of("position") {
        Some(FieldKind::Int { max, .. }) => max,
        _ => NUMBER_MAX,
    };
    Ok(last.body.get("position").and_then(Value::as_i64).map_or(0, |n| (n + 1).min(most)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::families::{GROUPS, RESOURCES, ROUTES, RULES, SILENCES, USERS};

    #[test]
    fn texts_order_as_values_do() {
        let text = |values: Value| joined(values.as_array().expect("a list").iter()).expect("a text");
        let ascending = [
            json!([null, "b", 3]),
            json!(["a", "b", null]),
            json!(["a", "b", 9]),
            json!(["a", "b", 10]),
            json!(["a", "b c", 1]),
            json!(["a b", "a", 0]),
            json!(["ab", "a", 0]),
            json!(["é", "a", 0]),
        ];
        for pair in ascending.windows(2) {
            assert!(text(pair[0].clone()) < text(pair[1].clone()), "{pair:?}");
        }
        let (from, to) = beginning_with(&["a", "b"]);
        let inside: Vec<bool> = ascending.iter().map(|v| text(v.clone())).map(|t| from <= t && t < to).collect();
        assert_eq!(inside, [false, true, true, true, false, false, false, false]);
        for other in [json!([-1]), json!([10_000_000_000_i64]), json!([true]), json!([{}])] {
            assert_eq!(joined(other.as_array().expect("a list").iter()), None, "{other}");
        }
    }

    #[test]
    fn what_families_are_ordered_by() {
        assert_eq!(GROUPS.indexed(), ["name"]);
        assert_eq!(USERS.indexed(), ["username"]);
        assert_eq!(RESOURCES.indexed(), ["displayName"]);
        assert_eq!(RULES.indexed(), ["namespace", "group", "position"]);
        assert_eq!(ROUTES.indexed(), ["parentId", "position"]);
        // Prose is too long for an index.
        assert!(SILENCES.indexed().is_empty());
    }
}
