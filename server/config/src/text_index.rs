//! The index for `q`: one row of lower-case text per entity, so that a list scans these instead of whole entities. Rows
//! are written with those of `value_index`; `sql_filter` queries them.

use quiver_database::{Connection, statement};
use serde_json::Value;

use crate::entity::Entity;
use crate::family::{Family, KEPT};
use crate::problem::Result;

/// Between the texts of an entity: no field holds it.
pub(crate) const BETWEEN: char = '\u{1}';

impl Family {
    /// The fields that `q` looks through; the first may be one of the others.
    pub(crate) fn searched(&self) -> [&'static str; 4] {
        [self.title, "name", "displayName", "description"]
    }

    /// Whether there are rows of it: what follows from other entities is in none.
    pub(crate) fn has_words(&self) -> bool {
        !self.is_small() && self.searched().iter().all(|field| !self.derived.contains(field) && !KEPT.contains(field))
    }

    fn words_of(&self, entity: &Entity) -> String {
        let [title, others @ ..] = self.searched();
        let fields = [title].into_iter().chain(others.into_iter().filter(|field| *field != title));
        let texts = fields.filter_map(|field| entity.body.get(field).and_then(Value::as_str));
        let mut words = String::new();
        for text in texts.filter(|text| !text.is_empty()) {
            if !words.is_empty() {
                words.push(BETWEEN);
            }
            words.push_str(&text.to_lowercase());
        }
        words
    }
}

/// Writes the row of an entity that is new, changed, or gone.
pub(crate) async fn keep_words(
    db: &mut Connection,
    family: &Family,
    before: Option<&Entity>,
    after: Option<&Entity>,
) -> Result<()> {
    if !family.has_words() {
        return Ok(());
    }
    match (before, after) {
        (Some(gone), None) => {
            let sql = "DELETE FROM entity_text WHERE family = ? AND owner = ? AND id = ?";
            statement(sql).bind(family.name).bind(&gone.owner).bind(&gone.id).execute(db).await?;
        }
        (before, Some(after)) => {
            let words = family.words_of(after);
            if before.map(|entity| family.words_of(entity)).as_ref() == Some(&words) {
                return Ok(());
            }
            let sql = "INSERT INTO entity_text (family, owner, id, words) VALUES (?, ?, ?, ?) \
                ON CONFLICT (family, owner, id) DO UPDATE SET words = excluded.words";
            let insert = statement(sql).bind(family.name).bind(&after.owner).bind(&after.id);
            insert.bind(words).execute(db).await?;
        }
        (None, None) => {}
    }
    Ok(())
}
