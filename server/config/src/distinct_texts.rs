//! The distinct texts of a field, if they are few: a search for a part of a text then scans these instead of the text
//! of every entity.

use std::collections::{BTreeMap, BTreeSet};

use quiver_database::statement;
use serde_json::Value;

use crate::config::Config;
use crate::entity_place::Place;
use crate::filter::{Filter, Op};
use crate::problem::Result;

/// Most texts of a field among which parts are looked for.
const WORDS_MAX: usize = if cfg!(test) { 4 } else { 300 };

/// From each text to the next one: as many steps through the index as there are texts, however many entities have them.
const STEPS: &str = "WITH RECURSIVE word (value, number) AS ( \
    SELECT min(value), 1 FROM entity_value WHERE family = ? AND owner = ? AND field = ? \
        AND value >= '3' AND value < '4' \
    UNION ALL \
    SELECT (SELECT min(value) FROM entity_value WHERE family = ? AND owner = ? AND field = ? \
        AND value > word.value AND value < '4'), number + 1 \
    FROM word WHERE word.value IS NOT NULL AND number < ?) \
    SELECT value FROM word WHERE value IS NOT NULL";

/// All texts of some fields, by field, as the index of values has them.
pub(crate) type Words = BTreeMap<String, Vec<String>>;

impl Filter {
    /// The fields in which it looks for parts of texts.
    fn parted<'a>(&'a self, into: &mut BTreeSet<&'a str>) {
        match self {
            Self::All(list) | Self::Any(list) => list.iter().for_each(|one| one.parted(into)),
            Self::Not(inner) => inner.parted(into),
            Self::Compare(path, Op::Contains | Op::Ends, Value::String(_)) => {
                into.insert(path);
            }
            Self::Present(_) | Self::Compare(..) | Self::In(..) => {}
        }
    }
}

impl Config {
    /// The texts of fields in which a filter looks for parts, of those that have few, none of them cut.
    pub(crate) async fn words(&self, place: &Place, filter: Option<&Filter>) -> Result<Words> {
        let (family, mut words) = (place.family, Words::new());
        let mut fields = BTreeSet::new();
        if let Some(filter) = filter {
            filter.parted(&mut fields);
        }
        for field in fields.into_iter().filter(|field| family.form_of(field).is_some()) {
            let mut select = statement(STEPS);
            for _ in 0..2 {
                select = select.bind(family.name).bind(&place.owner).bind(field);
            }
            let rows = select.bind(WORDS_MAX as i64 + 1).fetch_all(&self.pool).await?;
            let found: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
            // One character says that it is a text.
            let is_cut = |word: &String| word.chars().count() > family.chars_of(field);
            if found.len() <= WORDS_MAX && !found.iter().any(is_cut) {
                words.insert(field.to_owned(), found);
            }
        }
        Ok(words)
    }
}
