//! Pages ordered by several fields. The rows of the first field's index are walked; entities with the same value form a
//! group. Small groups are read and sorted; a group that is too large for that is walked by the next field.
//!
//! So only the entities of the page, and those that no index covers, are read, and not the whole family.

use std::sync::Arc;

use futures::TryStreamExt;
use quiver_database::{Argument, Connection, Holds, Row, Statement, statement};

use crate::column::Column;
use crate::config::Config;
use crate::entity::Entity;
use crate::entity_place::Place;
use crate::family::Family;
use crate::index_order::TRIED;
use crate::listing::Listing;
use crate::page_buffer::{FirstEntities, PageBuffer};
use crate::pieces::{SIZED_AT_ONCE, pieces_of, rows_of};
use crate::problem::Result;
use crate::query::{ListQuery, Page};
use crate::sort_encoding::CHARS_MAX;
use crate::sql_filter::CandidateSet;
use crate::value_index::Form;

/// Rows of an index that are read at once: fewest and most. A group that has more is walked by the next field.
const ROWS: (usize, usize) = if cfg!(test) { (6, 6) } else { (200, 2000) };
/// Fewest entities that are taken before it is asked whether the page is full.
const ENTITIES_AT_ONCE: usize = if cfg!(test) { 2 } else { 200 };

/// Where a walk is.
struct Level {
    /// By which field it goes: a place in [`Walk::order`]; behind the last one: no index has the order of what is here.
    at: usize,
    /// Among which entities.
    within: Option<CandidateSet>,
    /// From which value on, and whether with it.
    from: Option<(Argument, bool)>,
    /// Whether the cursor lies among them.
    has_cursor: bool,
}

/// A walk, and what it has found.
struct Walk<'a> {
    listing: Listing<'a>,
    /// Its query.
    query: Arc<ListQuery>,
    /// What an index orders by, with whether it descends; the last one is the id.
    order: Vec<(Option<Column>, bool)>,
    /// What the cursor has there.
    cursor: Vec<Option<Argument>>,
    wanted: usize,
    rows: usize,
    kept: PageBuffer,
    read: usize,
}

impl Column {
    /// What has the order of a field, or of the beginnings of what stands there.
    fn of(family: &Family, path: &str) -> Option<Self> {
        match path {
            "id" => Some(Self::Id),
            "createdAt" => Some(Self::Created),
            "updatedAt" => Some(Self::Updated),
            _ => matches!(family.form_of(path), Some(Form::One { .. })).then(|| Self::Field(path.to_owned())),
        }
    }

    /// What it holds.
    pub(crate) fn holds(&self) -> Holds {
        match self {
            Self::Created | Self::Updated => Holds::Number,
            Self::Id | Self::Text | Self::Field(_) => Holds::Text,
        }
    }

    /// The entities that have a value there.
    fn having(&self, place: &Place, value: &Argument) -> CandidateSet {
        match (self, value) {
            (Self::Field(field), Argument::Text(text)) => CandidateSet::with_value(place, field, text),
            _ => CandidateSet::with_column(place, self.name(), value.clone()),
        }
    }
}

/// Whether only the beginning of a value is kept, as far as that shows.
fn is_cut(value: &Argument) -> bool {
    // One character says what kind of value it is.
    matches!(value, Argument::Text(text) if text.chars().count() > CHARS_MAX)
}

impl<'a> Walk<'a> {
    /// None: no index has the order of the first field, or the cursor is none of ours.
    fn of(listing: Listing<'a>) -> Option<Self> {
        let Listing { place, query, .. } = listing;
        let by_field = query.sort.iter().map(|(path, descending)| (Column::of(place.family, path), *descending));
        let order: Vec<_> = by_field.chain([(Some(Column::Id), false)]).collect();
        let first = order.first()?.0.as_ref()?;
        let mut cursor = Vec::new();
        if let Some((keys, id)) = &query.after {
            first.value(keys)?;
            let value = |(at, (column, _)): (usize, &(Option<Column>, bool))| match keys.get(at..=at) {
                Some(key) => column.as_ref().and_then(|column| column.value(key)),
                None => Some(Argument::Text(id.clone())),
            };
            cursor = order.iter().enumerate().map(value).collect();
        }
        // One row more than the page shows whether there is a next page.
        let wanted = query.limit + 1;
        Some(Self {
            listing,
            query: Arc::new(query.clone()),
            order,
            cursor,
            wanted,
            // The last group is cut, so one that is full takes some more.
            rows: wanted.saturating_add(wanted / 8).clamp(ROWS.0, ROWS.1),
            kept: PageBuffer::default(),
            read: 0,
        })
    }

    fn level(&self, at: usize, within: Option<CandidateSet>, has_cursor: bool) -> Level {
        let from = self.cursor.get(at).cloned().flatten().filter(|_| has_cursor);
        Level { at, within, from: from.map(|value| (value, true)), has_cursor }
    }

    /// Where it begins: by the first field in which not all entities of the place have the same value. Others order nothing,
    /// and to look at each entity for them takes as long as half a page.
    async fn first_level(&self, db: &mut Connection, narrowed: Option<CandidateSet>) -> Result<Level> {
        let (mut at, has_cursor) = (0, !self.cursor.is_empty());
        // What comes last is the id.
        while let [(Some(column), _), _, ..] = &self.order[at..] {
            let only = self.only_value(db, column).await?.filter(|value| !is_cut(value));
            if only.is_none() || has_cursor && self.cursor.get(at) != Some(&only) {
                break;
            }
            at += 1;
        }
        Ok(self.level(at, narrowed, has_cursor))
    }

    /// The value that all entities of the place have in a column; none: there are several.
    async fn only_value(&self, db: &mut Connection, column: &Column) -> Result<Option<Argument>> {
        let (name, (table, by_field)) = (column.name(), column.table());
        let end = |end: &str| format!("(SELECT {end}({name}) FROM {table} WHERE family = ? AND owner = ?{by_field})");
        let mut select = statement(format!("SELECT {}, {}", end("min"), end("max")));
        for _ in 0..2 {
            select = select.bind(self.listing.place.family.name).bind(&self.listing.place.owner);
            select = column.field().into_iter().fold(select, Statement::bind);
        }
        let row = select.fetch_one(db).await?;
        let (least, most) = (row.argument(0, column.holds())?, row.argument(1, column.holds())?);
        Ok((least == most && !matches!(least, Argument::Null(_))).then_some(least))
    }

    /// Takes groups until the page is full; `false`: after so many entities it was not.
    async fn fill_page(&mut self, db: &mut Connection, narrowed: Option<CandidateSet>, most: usize) -> Result<bool> {
        let mut levels = vec![self.first_level(db, narrowed).await?];
        while let Some(level) = levels.pop() {
            if self.kept.is_full(self.wanted) {
                break;
            }
            if self.read > most {
                return Ok(false);
            }
            let Some((Some(column), descending)) = self.order.get(level.at).cloned() else {
                self.take_all(db, level.within.as_ref()).await?;
                continue;
            };
            let rows = self.rows(db, &level, &column, descending).await?;
            let Some((last, _)) = rows.last() else { continue };
            let is_end = rows.len() < self.rows;
            let whole = if is_end { rows.len() } else { rows.iter().take_while(|(value, _)| value != last).count() };
            if whole > 0 {
                self.take_groups(db, &rows[..whole], most).await?;
                if !is_end {
                    levels.push(Level { from: Some((last.clone(), true)), ..level });
                }
                continue;
            }
            let having = column.having(self.listing.place, last).for_a_walk(db).await?;
            let within = match &level.within {
                Some(within) => within.clone().and(having),
                None => having,
            };
            let at = if is_cut(last) { self.order.len() } else { level.at + 1 };
            let has_cursor = level.has_cursor && self.cursor.get(level.at) == Some(&Some(last.clone()));
            let below = self.level(at, Some(within), has_cursor);
            levels.push(Level { from: Some((last.clone(), false)), ..level });
            levels.push(below);
        }
        Ok(self.kept.is_full(self.wanted) || self.read <= most)
    }

    /// The next rows of an index: values and ids.
    async fn rows(
        &self,
        db: &mut Connection,
        level: &Level,
        column: &Column,
        descending: bool,
    ) -> Result<Vec<(Argument, String)>> {
        let name = column.name();
        let way = if descending { " DESC" } else { "" };
        let from = match (&level.from, descending) {
            (None, _) => String::new(),
            (Some((_, with)), down) => {
                let sign = if down { "<" } else { ">" };
                format!(" AND {name} {sign}{} ?", if *with { "=" } else { "" })
            }
        };
        let within = level.within.as_ref().map(|within| within.on_the_way(column.field()));
        let (within, values) = within.unwrap_or_default();
        let (table, by_field) = column.table();
        let sql = format!(
            "SELECT {name} AS held, id FROM {table} AS walked WHERE family = ? AND owner = ?{by_field}{from}{within} \
            ORDER BY {name}{way} LIMIT ?"
        );
        let select = statement(sql).bind(self.listing.place.family.name).bind(&self.listing.place.owner);
        let select = column.field().into_iter().fold(select, Statement::bind);
        let select = level.from.iter().map(|(value, _)| value.clone()).fold(select, Statement::bind);
        let select = values.into_iter().fold(select, Statement::bind).bind(self.rows as i64);
        let read =
            |row: &Row| -> Result<(Argument, String)> { Ok((row.argument(0, column.holds())?, row.try_get(1)?)) };
        select.fetch_packed("held, id", db).await?.iter().map(read).collect()
    }

    /// Reads whole groups until the page is full.
    async fn take_groups(&mut self, db: &mut Connection, mut rows: &[(Argument, String)], most: usize) -> Result<()> {
        while !rows.is_empty() && !self.kept.is_full(self.wanted) && self.read <= most {
            let lacking = self.wanted - self.kept.len();
            let some = lacking.max(ENTITIES_AT_ONCE).min(rows.len());
            let last = &rows[some - 1].0;
            let end = some + rows[some..].iter().take_while(|(value, _)| value == last).count();
            let mut found = self.first();
            let (place, ids) = (self.listing.place, rows[..end].iter().map(|(_, id)| id.clone()).collect::<Vec<_>>());
            for some in ids.chunks(SIZED_AT_ONCE) {
                for piece in pieces_of(some, place, db).await? {
                    for row in rows_of(piece, place, db).await? {
                        self.take(&row, &mut found)?;
                    }
                }
            }
            found.add_to(&mut self.kept);
            rows = &rows[end..];
        }
        Ok(())
    }

    /// Reads all that is left, for want of an index that has their order.
    async fn take_all(&mut self, db: &mut Connection, within: Option<&CandidateSet>) -> Result<()> {
        let (within, values) = within.map(CandidateSet::condition).unwrap_or_default();
        let select = values.into_iter().fold(self.entities(&within), Statement::bind);
        let mut found = self.first();
        let mut rows = select.fetch_on(db);
        while let Some(row) = rows.try_next().await? {
            self.take(&row, &mut found)?;
        }
        drop(rows);
        found.add_to(&mut self.kept);
        Ok(())
    }

    fn entities(&self, more: &str) -> Statement {
        let sql = format!("SELECT {} FROM entity AS walked WHERE family = ? AND owner = ?{more}", Entity::COLUMNS);
        statement(sql).bind(self.listing.place.family.name).bind(&self.listing.place.owner)
    }

    /// Takes an entity, if it is asked for and among the first of those that are lacking.
    fn take(&mut self, row: &Row, found: &mut FirstEntities) -> Result<()> {
        self.read += 1;
        let Some((entity, map)) = self.listing.read(row)? else { return Ok(()) };
        let keys = self.query.keys(&map);
        if self.query.is_behind(&keys, &entity.id) {
            found.take(keys, entity.id, map);
        }
        Ok(())
    }

    /// Begins with none of those that are lacking.
    fn first(&self) -> FirstEntities {
        FirstEntities::behind(&self.kept, &self.query, self.wanted)
    }
}

impl Config {
    /// Gives a page in an order by several fields, or of what is rare in the order of one. None: no index has the order of
    /// the first field, or none knows anything of a filter and what it leaves is rare.
    pub(crate) async fn page_by_groups(
        &self,
        listing: Listing<'_>,
        narrowed: Option<&CandidateSet>,
    ) -> Result<Option<Page>> {
        let Listing { place, query, caller, .. } = listing;
        let plain = query.is_plain(place.family, caller);
        if !query.can_be_cut(plain, narrowed) {
            return Ok(None);
        }
        let Some(mut walk) = Walk::of(listing) else { return Ok(None) };
        let most = if plain || narrowed.is_some() { usize::MAX } else { TRIED.max(8 * walk.wanted) };
        // Several statements see one state: what is moved meanwhile is not found at both places, or at none.
        let mut db = self.pool.snapshot().await?;
        if !walk.fill_page(&mut db, narrowed.cloned(), most).await? {
            return Ok(None);
        }
        drop(db);
        let total = self.total(place, query, narrowed).await?;
        Ok(Some(query.page_of(walk.kept, total)))
    }
}
