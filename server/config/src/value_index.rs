//! An index of the values of fields: a list that filters or sorts by them costs what it returns, not the size of the
//! family. Rows are written in the transaction of the change; `sql_filter` queries them.

use std::collections::BTreeSet;
use std::iter::once;

use quiver_database::{Connection, Statement, statement};
use quiver_types::text::EXACT_INTEGERS_MAX;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::entity::Entity;
use crate::families::{FAMILIES, RESOURCES};
use crate::family::Family;
use crate::fields::{Field, FieldKind, Mode};
use crate::migrations;
use crate::problem::Result;
use crate::query::bound_to;
use crate::sort_encoding::{CHARS_MAX, encoded, encoded_to};
use crate::text_index::keep_words;

/// Most entities of a family that is read as a whole.
const SMALL_MAX: i64 = 1000;
/// Characters that are kept of an entry of a map, whose key is part of the row, too.
const ENTRY_CHARS_MAX: usize = 200;
/// Longest key of an entry that is in the index, in characters.
const KEY_CHARS_MAX: usize = 200;
/// Entries of the longest list that is in the index.
const ENTRIES_MAX: usize = 200;
/// Greatest number that is one as a float, too.
pub(crate) const EXACT_MAX: i64 = EXACT_INTEGERS_MAX as i64;
/// Rows that are written with one statement.
const ROWS_AT_ONCE: usize = 100;
/// Entities that are read at once to fill the index.
const FILLED_AT_ONCE: i64 = 500;
/// How values and texts are encoded; another number makes all rows anew.
const ENCODING: u32 = 3;
/// What the service keeps beside the body and is in the index.
const KEPT_VALUES: [&str; 4] = ["createdBy", "updatedBy", "managedBy", "version"];
/// Stands for all paths to the attributes of an entity.
const ATTRIBUTE: &str = "attributes.x";

/// How a field is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Each entity has one row, with null where nothing stands; `sorts`: no value is cut.
    One { sorts: bool },
    /// A row for each entry of a list, or for the entry of a map if it is there.
    Each,
}

impl Form {
    fn of(field: &Field) -> Option<Self> {
        if field.mode == Mode::WriteOnly {
            return None;
        }
        match field.kind {
            FieldKind::Text { max, .. } | FieldKind::Login { max, .. } => Some(Self::One { sorts: max <= CHARS_MAX }),
            FieldKind::Int { min, max } if min < -EXACT_MAX || max > EXACT_MAX => None,
            FieldKind::Id
            | FieldKind::Word(_)
            | FieldKind::Slug
            | FieldKind::Bool
            | FieldKind::Time
            | FieldKind::Int { .. }
            | FieldKind::Number { .. } => Some(Self::One { sorts: true }),
            FieldKind::Texts { max } | FieldKind::Ids { max } if max <= ENTRIES_MAX => Some(Self::Each),
            _ => None,
        }
    }
}

impl Family {
    pub(crate) fn is_small(&self) -> bool {
        self.entities_max <= SMALL_MAX
    }

    /// How a field is in the index; none: it is not.
    pub(crate) fn form_of(&self, path: &str) -> Option<Form> {
        // What is shown of these need not be what is stored.
        if self.is_small() || self.derived.contains(&path) {
            return None;
        }
        if KEPT_VALUES.contains(&path) {
            return Some(Form::One { sorts: true });
        }
        if let Some(key) = self.entry(path) {
            return (key.chars().count() <= KEY_CHARS_MAX).then_some(Form::Each);
        }
        self.field(path).as_ref().and_then(Form::of)
    }

    /// The key of what a path names, where that is an entry of a map of single values.
    fn entry<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (map, key) = path.split_once('.')?;
        self.has_entries(&self.field(map)?).then_some(key)
    }

    /// Whether a field is a map of single values: labels, and attributes that a type has checked.
    fn has_entries(&self, field: &Field) -> bool {
        match field.kind {
            FieldKind::Labels => true,
            FieldKind::Map { .. } => self.name == RESOURCES.name,
            _ => false,
        }
    }

    /// Whether a path names an entry of a map that the index has.
    pub(crate) fn is_entry(&self, path: &str) -> bool {
        self.entry(path).is_some()
    }

    /// Whether the index may have the beginning of a value alone. Entries of lists are shorter than what it keeps.
    pub(crate) fn may_be_cut(&self, path: &str) -> bool {
        self.is_entry(path) || self.form_of(path) == Some(Form::One { sorts: false })
    }

    /// Characters that the index keeps of a value.
    pub(crate) fn chars_of(&self, path: &str) -> usize {
        if self.is_entry(path) { ENTRY_CHARS_MAX } else { CHARS_MAX }
    }

    /// Says whether the index has all entities in the order of a field.
    pub(crate) fn sorts_by(&self, path: &str) -> bool {
        self.form_of(path) == Some(Form::One { sorts: true })
    }

    /// Names the fields that the index has of a family, and how.
    fn valued(&self) -> String {
        let paths = self.all_fields().map(|field| field.name).chain(once(ATTRIBUTE));
        let fields = paths.filter_map(|path| Some((path, self.form_of(path)?)));
        let fields: Vec<_> = fields.collect();
        let searched = self.has_words().then(|| self.searched());
        bound_to(&format!("{ENCODING} {:?} {fields:?} {searched:?}", self.form_of("labels.x")))
    }

    /// The rows of an entity: fields and values.
    fn values_of(&self, entity: &Entity) -> BTreeSet<(String, String)> {
        let mut rows = BTreeSet::new();
        if self.is_small() {
            return rows;
        }
        for field in self.all_fields() {
            let value = entity.body.get(field.name).unwrap_or(&Value::Null);
            match (self.form_of(field.name), value) {
                (Some(Form::One { .. }), value) => {
                    rows.insert((field.name.to_owned(), encoded(value)));
                }
                (Some(Form::Each), Value::Array(items)) => {
                    rows.extend(items.iter().map(|item| (field.name.to_owned(), encoded(item))));
                }
                _ => {}
            }
        }
        let texts = [&entity.created_by, &entity.updated_by, &entity.managed_by];
        let kept = texts.map(|text| Value::String(text.clone())).into_iter().chain([Value::from(entity.version)]);
        for (name, value) in KEPT_VALUES.into_iter().zip(kept) {
            rows.insert((name.to_owned(), encoded(&value)));
        }
        for field in self.all_fields().filter(|field| self.has_entries(field)) {
            for (key, value) in entity.body.get(field.name).and_then(Value::as_object).into_iter().flat_map(Map::iter) {
                let path = format!("{}.{key}", field.name);
                if self.form_of(&path).is_some() {
                    rows.insert((path, encoded_to(value, ENTRY_CHARS_MAX)));
                }
            }
        }
        rows
    }
}

/// Writes the rows of an entity that is new, changed, or gone; also its texts.
pub(crate) async fn keep_values(
    db: &mut Connection,
    family: &Family,
    before: Option<&Entity>,
    after: Option<&Entity>,
) -> Result<()> {
    let Some(entity) = after.or(before) else { return Ok(()) };
    let old = before.map(|entity| family.values_of(entity)).unwrap_or_default();
    let new = after.map(|entity| family.values_of(entity)).unwrap_or_default();
    let gone: Vec<&(String, String)> = old.difference(&new).collect();
    for some in gone.chunks(ROWS_AT_ONCE) {
        // Each row is entered by all of the key.
        let one = "(family = ? AND owner = ? AND field = ? AND value = ? AND id = ?)";
        let sql = format!("DELETE FROM entity_value WHERE {}", vec![one; some.len()].join(" OR "));
        bound(statement(sql), family, entity, some).execute(&mut *db).await?;
    }
    let come: Vec<&(String, String)> = new.difference(&old).collect();
    insert(db, family, entity, &come).await?;
    keep_words(db, family, before, after).await
}

fn bound(sql: Statement, family: &Family, entity: &Entity, rows: &[&(String, String)]) -> Statement {
    rows.iter().fold(sql, |sql, (field, value)| {
        sql.bind(family.name).bind(&entity.owner).bind(field).bind(value).bind(&entity.id)
    })
}

async fn insert(db: &mut Connection, family: &Family, entity: &Entity, rows: &[&(String, String)]) -> Result<()> {
    for some in rows.chunks(ROWS_AT_ONCE) {
        let sql = format!(
            "INSERT INTO entity_value (family, owner, field, value, id) VALUES {} ON CONFLICT DO NOTHING",
            vec!["(?, ?, ?, ?, ?)"; some.len()].join(", ")
        );
        bound(statement(sql), family, entity, some).execute(&mut *db).await?;
    }
    Ok(())
}

impl Config {
    /// Makes the rows of families of which the index lacks fields: earlier builds knew others, or none.
    pub(crate) async fn fill_values(&self) -> Result<()> {
        for family in FAMILIES.iter().filter(|family| !family.is_small()) {
            let sql = "SELECT fields FROM entity_value_of WHERE family = ?";
            let row = statement(sql).bind(family.name).fetch_optional(&self.pool).await?;
            let known: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
            let fields = family.valued();
            if known.as_ref() != Some(&fields) {
                self.fill_family(family, &fields).await?;
            }
        }
        Ok(())
    }

    /// In one transaction: nobody reads rows of a family that are not complete.
    async fn fill_family(&self, family: &Family, fields: &str) -> Result<()> {
        let mut tx = migrations::begin(&self.pool).await?;
        for table in ["entity_value", "entity_text"] {
            let sql = format!("DELETE FROM {table} WHERE family = ?");
            statement(sql).bind(family.name).execute(&mut *tx).await?;
        }
        let mut last = String::new();
        loop {
            let sql = format!("SELECT {} FROM entity WHERE family = ? AND id > ? ORDER BY id LIMIT ?", Entity::COLUMNS);
            let rows = statement(sql).bind(family.name).bind(&last).bind(FILLED_AT_ONCE);
            let rows = rows.fetch_all(&mut *tx).await?;
            for row in &rows {
                let entity = Entity::read(row)?;
                keep_values(&mut tx, family, None, Some(&entity)).await?;
                last = entity.id;
            }
            if rows.is_empty() {
                break;
            }
        }
        let sql = "INSERT INTO entity_value_of (family, fields) VALUES (?, ?) \
            ON CONFLICT (family) DO UPDATE SET fields = excluded.fields";
        statement(sql).bind(family.name).bind(fields).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{KEYS, RELATIONSHIPS, TRANSACTIONS, USERS};

    #[test]
    fn which_fields_the_index_has() {
        let form = |path: &str| RESOURCES.form_of(path);
        assert_eq!(form("service"), Some(Form::One { sorts: true }));
        // Longer than what is kept.
        assert_eq!(form("key"), Some(Form::One { sorts: false }));
        assert_eq!(form("tags"), Some(Form::Each));
        assert_eq!(form("labels.k8s.io/name"), Some(Form::Each));
        assert_eq!(form("attributes.host.name"), Some(Form::Each));
        // Whatever stands there may hold more of its kind.
        assert_eq!(RELATIONSHIPS.form_of("attributes.x"), None);
        assert_eq!(form("version"), Some(Form::One { sorts: true }));
        for other in ["id", "createdAt", "labels", "attributes", "description", "nothing", "tags.x"] {
            assert_eq!(form(other), None, "{other}");
        }
        assert_eq!(USERS.form_of("password"), None);
        assert_eq!(KEYS.form_of("lastUsedAt"), Some(Form::One { sorts: true }));
        // There are never many.
        assert_eq!(TRANSACTIONS.form_of("service"), None);
    }
}
