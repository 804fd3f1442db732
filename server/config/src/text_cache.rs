//! Texts of a field, held in memory. A list that searches for a part of a text (`co`, `ew`, `q`) makes the database
//! scan all texts of that field for each page. If such a list is requested repeatedly without a change in between, its
//! texts are kept here in the order of the list, and a page only costs the entities that it shows.
//!
//! The texts only preselect: each entity that is read is checked again; only counts rely on them alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use memchr::memmem::Finder;
use quiver_database::{Argument, Connection, statement};
use serde_json::Value;

use crate::config::Config;
use crate::entity_place::Place;
use crate::family::Family;
use crate::filter::{Filter, Op};
use crate::index_order::{IndexOrder, read_in_order};
use crate::listing::Listing;
use crate::problem::Result;
use crate::query::{ListQuery, Page};
use crate::text_index;

pub(crate) mod lists;

use lists::{BYTES_MAX, CachedList, Key, Row, TOO_MUCH};

/// Rows that are read with one statement.
const ROWS_AT_ONCE: usize = if cfg!(test) { 7 } else { 2000 };
/// The same of words, among which descriptions of 16 KiB may be: they come in one piece.
const WORDS_AT_ONCE: usize = if cfg!(test) { 5 } else { 250 };
/// Between the texts that one entity has in a list.
const BETWEEN: char = '\u{0}';
/// Stands for a field of which the index keeps all.
const WHOLE: usize = usize::MAX;
/// Fields that are noted without a change of the configuration (`last_seen`, `key_usage`): nothing would tell that they are others.
const NOTED: [&str; 3] = ["lastSeen", "health", "lastUsedAt"];

/// A part that one text of a field must have; without a field it is looked for in the words of an entity (`text_index`).
struct TextCondition<'a> {
    field: Option<&'a str>,
    op: Op,
    text: &'a str,
    /// Characters from which on a text may have been cut, so that nobody knows; [`WHOLE`]: none is cut.
    cut: usize,
}

impl TextCondition<'_> {
    /// Says whether all entities of which it says so have it, and no others.
    fn is_exact(&self) -> bool {
        // Without a text there is nothing that an empty part could be in.
        self.cut == WHOLE && !self.text.is_empty()
    }

    /// Says whether one of the texts of an entity may have it.
    fn is_in(&self, texts: &str) -> bool {
        texts.split(BETWEEN).any(|text| {
            let has = if self.op == Op::Ends { text.ends_with(self.text) } else { text.contains(self.text) };
            has || text.len() >= self.cut && text.chars().count() >= self.cut
        })
    }
}

impl ListQuery {
    /// A part that all entities of the list must have.
    fn part(&self, family: &Family) -> Option<TextCondition<'_>> {
        let part = match &self.contains {
            Some(text) if family.has_words() => Some(TextCondition { field: None, op: Op::Contains, text, cut: WHOLE }),
            _ => self.filter.as_ref().and_then(|filter| filter.part(family)),
        };
        part.filter(|part| !part.text.contains([BETWEEN, text_index::BETWEEN]))
    }

    /// Whether that is all that is asked for.
    fn is_part(&self) -> bool {
        match (&self.contains, &self.filter) {
            (Some(_), filter) => filter.is_none(),
            (None, filter) => filter.as_ref().is_some_and(Filter::is_one),
        }
    }
}

impl Filter {
    fn part(&self, family: &Family) -> Option<TextCondition<'_>> {
        match self {
            Self::All(list) => list.iter().find_map(|one| one.part(family)),
            Self::Compare(path, op @ (Op::Contains | Op::Ends), Value::String(text)) => {
                let is_kept = family.form_of(path).is_some() && !NOTED.contains(&path.as_str());
                let cut = if family.may_be_cut(path) { family.chars_of(path) } else { WHOLE };
                is_kept.then_some(TextCondition { field: Some(path), op: *op, text, cut })
            }
            Self::Any(_) | Self::Not(_) | Self::Present(_) | Self::Compare(..) | Self::In(..) => None,
        }
    }

    /// Whether it is one comparison.
    fn is_one(&self) -> bool {
        match self {
            Self::All(list) => matches!(list.as_slice(), [one] if one.is_one()),
            Self::Compare(..) => true,
            Self::Any(_) | Self::Not(_) | Self::Present(_) | Self::In(..) => false,
        }
    }
}

/// A value that a list is ordered by as a text that orders as it does; none: nothing.
fn ordering(value: &Argument) -> Option<Cow<'_, str>> {
    match value {
        Argument::Text(text) => Some(Cow::Borrowed(text)),
        Argument::Number(number) => Some(Cow::Owned(format!("{:016x}", (*number as u64) ^ (1 << 63)))),
        Argument::Bytes(_) | Argument::Null(_) => None,
    }
}

impl CachedList {
    /// The entities behind the cursor of a list.
    fn behind(&self, ordered: &IndexOrder) -> &[Row] {
        let Some((value, after)) = &ordered.after else { return &self.rows };
        let Some(from) = ordering(value) else { return &self.rows };
        let is_before = |row: &Row| {
            let order = self.text(row.value, row.id).cmp(&*from);
            let order = if ordered.descending { order.reverse() } else { order };
            order.then_with(|| self.text(row.id, row.texts).cmp(after)).is_le()
        };
        &self.rows[self.rows.partition_point(is_before)..]
    }

    /// The ids of those of some entities that may have a part.
    fn having<'h>(&'h self, part: &'h TextCondition<'_>, rows: &'h [Row]) -> impl Iterator<Item = &'h str> {
        // No part has what stands between texts: what is found in all of them is in one.
        let finder = (part.op == Op::Contains && part.cut == WHOLE).then(|| Finder::new(part.text));
        let having = rows.iter().filter(move |row| {
            let texts = self.text(row.texts, row.end);
            finder.as_ref().map_or_else(|| part.is_in(texts), |finder| finder.find(texts.as_bytes()).is_some())
        });
        having.map(move |row| self.text(row.id, row.texts))
    }
}

impl Key {
    fn of(place: &Place, ordered: &IndexOrder, field: Option<&str>) -> Self {
        Self {
            family: place.family.name,
            owner: place.owner.clone(),
            column: ordered.column.clone(),
            descending: ordered.descending,
            field: field.map(str::to_owned),
        }
    }
}

impl Config {
    /// Gives a page of what has a part of a text, without a look at the others in the database. None: texts of such a list
    /// are not kept, or rights and the rest of a filter leave out some of what has the part, be it on the page or where it
    /// counts.
    pub(crate) async fn page_held(&self, listing: Listing<'_>) -> Result<Option<Page>> {
        let Listing { place, query, caller, .. } = listing;
        let Some(part) = query.part(place.family) else { return Ok(None) };
        let is_exact = part.is_exact() && query.is_part() && place.family.shows_all(caller);
        if !query.can_be_cut(is_exact, None) {
            return Ok(None);
        }
        let Some(ordered) = IndexOrder::of(query, place.family, false) else { return Ok(None) };
        if ordered.column.field().is_some_and(|field| NOTED.contains(&field)) {
            return Ok(None);
        }
        let key = Key::of(place, &ordered, part.field);
        if !self.lists.kept().ask(&key, self.revision()) {
            return Ok(None);
        }
        // Several statements see one state.
        let mut db = self.pool.snapshot().await?;
        let Some(held) = self.held(key, place, &ordered, part.field, &mut db).await? else { return Ok(None) };
        // One more than the page tells that there is a next one.
        let wanted = query.limit + 1;
        let ids: Vec<String> = held.having(&part, held.behind(&ordered)).take(wanted).map(str::to_owned).collect();
        let kept = read_in_order(&ids, listing, &mut db).await?;
        drop(db);
        if !kept.is_full(wanted) && ids.len() == wanted {
            return Ok(None);
        }
        let total = query.count.then(|| held.having(&part, &held.rows).count());
        Ok(Some(query.page_of(kept, total)))
    }

    /// The texts of a list, which are kept from now on. The state that `db` sees says whether they are still the same.
    async fn held(
        &self,
        key: Key,
        place: &Place,
        ordered: &IndexOrder,
        field: Option<&str>,
        db: &mut Connection,
    ) -> Result<Option<Arc<CachedList>>> {
        let row = statement("SELECT number FROM revision").fetch_one(&mut *db).await?;
        let change = row.try_get::<i64>(0)? as u64;
        let known = self.lists.kept().find(&key, change);
        if known.is_some() {
            return Ok(known);
        }
        let bytes_max = self.share_of_memory(BYTES_MAX);
        let Ok(_reading) = self.lists.reading.try_lock() else { return Ok(None) };
        let Some(held) = read(place, ordered, field, bytes_max, db).await? else {
            self.lists.kept().asked.insert(key, (self.revision(), TOO_MUCH));
            return Ok(None);
        };
        let held = Arc::new(held);
        self.lists.kept().put(key, change, Arc::clone(&held), bytes_max);
        Ok(Some(held))
    }
}

/// Reads the texts of a field in the order of a list. None: they are too much.
async fn read(
    place: &Place,
    ordered: &IndexOrder,
    field: Option<&str>,
    bytes_max: usize,
    db: &mut Connection,
) -> Result<Option<CachedList>> {
    let Some(texts) = texts_of(place, field, bytes_max, db).await? else { return Ok(None) };
    let mut walk = IndexOrder { column: ordered.column.clone(), descending: ordered.descending, after: None };
    let mut held = CachedList::default();
    loop {
        let entries = walk.entries(place, ROWS_AT_ONCE, db).await?;
        let is_end = entries.len() < ROWS_AT_ONCE;
        for (value, id) in entries {
            if let Some(text) = ordering(&value) {
                held.push(&text, &id, texts.get(&id).map_or("", String::as_str));
            }
            walk.after = Some((value, id));
        }
        if held.size() > bytes_max {
            return Ok(None);
        }
        if is_end {
            // What it grew by for more is not counted.
            held.bytes.shrink_to_fit();
            held.rows.shrink_to_fit();
            return Ok(Some(held));
        }
    }
}

/// Reads the texts of a field, by entity. None: they are too much.
async fn texts_of(
    place: &Place,
    field: Option<&str>,
    bytes_max: usize,
    db: &mut Connection,
) -> Result<Option<HashMap<String, String>>> {
    let (mut found, mut bytes) = (HashMap::<String, String>::new(), 0);
    // The first character of a value says that it is a text.
    let (mut last, mut last_id) = ("3".to_owned(), String::new());
    let at_once = if field.is_some() { ROWS_AT_ONCE } else { WORDS_AT_ONCE };
    loop {
        let select = if let Some(field) = field {
            let sql = "SELECT value AS held, id FROM entity_value WHERE family = ? AND owner = ? AND field = ? \
                    AND value < '4' AND (value, id) > (?, ?) ORDER BY value, id LIMIT ?";
            statement(sql).bind(place.family.name).bind(&place.owner).bind(field).bind(&last)
        } else {
            let sql = "SELECT words AS held, id FROM entity_text WHERE family = ? AND owner = ? AND id > ? \
                    ORDER BY id LIMIT ?";
            statement(sql).bind(place.family.name).bind(&place.owner)
        };
        let select = select.bind(&last_id).bind(at_once as i64);
        let rows = select.fetch_packed("held, id", &mut *db).await?;
        for row in &rows {
            (last, last_id) = (row.try_get(0)?, row.try_get(1)?);
            let text = if field.is_some() { last.get(1..).unwrap_or_default() } else { last.as_str() };
            bytes += text.len();
            if let Some(others) = found.get_mut(&last_id) {
                others.push(BETWEEN);
                others.push_str(text);
            } else {
                // Most texts are shorter than what stands around them.
                bytes += last_id.len() + size_of::<(String, String)>();
                found.insert(last_id.clone(), text.to_owned());
            }
        }
        if bytes > bytes_max {
            return Ok(None);
        }
        if rows.len() < at_once {
            return Ok(Some(found));
        }
    }
}
