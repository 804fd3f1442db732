//! Pages in the order of a database index: they cost what they return, however large the family is. Orders by several
//! fields, and pages of entities that are rare in an order, come from `grouped_pages`; all other lists read the whole
//! family (`document`).

use quiver_database::{Argument, Connection, Statement, statement};
use serde_json::{Map, Value};

use crate::column::Column;
use crate::config::Config;
use crate::entity::Entity;
use crate::entity_place::{Place, is_listed};
use crate::families::family;
use crate::family::{Caller, Family};
use crate::listing::Listing;
use crate::migrations;
use crate::page_buffer::PageBuffer;
use crate::pieces::{SIZED_AT_ONCE, pieces_of, rows_of};
use crate::problem::{Problem, Result};
use crate::query::{ListQuery, Page};
use crate::sql_filter::CandidateSet;

mod steps;

use steps::Steps;

/// Entries of the largest page that is given in this way.
const PAGE_MAX: usize = 10_000;
/// Rows that are looked at for a page of which rights or a filter leave something out.
pub(crate) const TRIED: usize = if cfg!(test) { 20 } else { 2000 };
/// Fewest rows of an index that are read at once, if a page may take so many.
const STEP_MIN: usize = if cfg!(test) { 3 } else { 100 };
/// Values of a filter that the database looks up.
const LOOKED_UP_MAX: usize = 500;
/// Rows that are filled in with one transaction.
const FILLED_AT_ONCE: usize = 1000;

/// An order that an index has, and behind what a page begins.
#[derive(Debug)]
pub(crate) struct IndexOrder {
    pub(crate) column: Column,
    pub(crate) descending: bool,
    pub(crate) after: Option<(Argument, String)>,
}

impl IndexOrder {
    /// The order of a list, if an index has it; `by_value`: rather that of values, where several have.
    pub(crate) fn of(query: &ListQuery, family: &Family, by_value: bool) -> Option<Self> {
        let fields: Vec<&str> = query.sort.iter().map(|(field, _)| field.as_str()).collect();
        let descending = query.sort.first()?.1;
        let column = match fields.as_slice() {
            ["id"] => Column::Id,
            ["createdAt"] => Column::Created,
            ["updatedAt"] => Column::Updated,
            [field] if by_value && family.sorts_by(field) => Column::Field((*field).to_owned()),
            _ if fields == family.indexed() && query.sort.iter().all(|(_, down)| *down == descending) => Column::Text,
            [field] if family.sorts_by(field) => Column::Field((*field).to_owned()),
            _ => return None,
        };
        let after = match &query.after {
            Some((keys, id)) => Some((column.value(keys)?, id.clone())),
            None => None,
        };
        Some(Self { column, descending, after })
    }

    /// The ids of the next entities that pass a condition, by the indexes alone.
    fn ids(&self, place: &Place, within: &CandidateSet, rows: usize) -> Statement {
        let (rest, values) = self.rest(place, Some(within), rows);
        values.into_iter().fold(statement(format!("SELECT id {rest}")), Statement::bind)
    }

    /// What follows the columns of a statement, and its values.
    pub(crate) fn rest(&self, place: &Place, within: Option<&CandidateSet>, rows: usize) -> (String, Vec<Argument>) {
        let (column, field) = (self.column.name(), self.column.field());
        let way = if self.descending { " DESC" } else { "" };
        let (table, by_field) = self.column.table();
        let mut values: Vec<Argument> = vec![place.family.name.into(), place.owner.as_str().into()];
        values.extend(field.map(Argument::from));
        let from = match (&self.after, self.descending) {
            (None, _) => String::new(),
            (Some((value, id)), false) => {
                values.extend([value.clone(), id.as_str().into()]);
                format!(" AND ({column}, id) > (?, ?)")
            }
            // The first comparison is the one by which the index is entered; the other leaves out what has the same
            // value and came before.
            (Some((value, id)), true) => {
                values.extend([value.clone(), value.clone(), id.as_str().into()]);
                format!(" AND {column} <= ? AND NOT ({column} = ? AND id <= ?)")
            }
        };
        let (within, of_these) = within.map(|within| within.on_the_way(field)).unwrap_or_default();
        values.extend(of_these);
        values.push((rows as i64).into());
        let rest = format!(
            "FROM {table} AS walked WHERE family = ? AND owner = ?{by_field}{from}{within} \
            ORDER BY {column}{way}, id LIMIT ?"
        );
        (rest, values)
    }
}

impl ListQuery {
    /// The only field of its order.
    pub(crate) fn only_field(&self) -> Option<&str> {
        match self.sort.as_slice() {
            [(field, _)] => Some(field.as_str()),
            _ => None,
        }
    }

    /// Whether each entity of a family is asked for.
    pub(crate) fn is_plain(&self, family: &Family, caller: &Caller) -> bool {
        self.filter.is_none() && self.contains.is_none() && family.shows_all(caller)
    }

    /// Whether a page can be given without looking at all that is behind it: what only a look at each entity tells can only
    /// be counted so.
    pub(crate) fn can_be_cut(&self, plain: bool, narrowed: Option<&CandidateSet>) -> bool {
        self.limit <= PAGE_MAX && (!self.count || plain || narrowed.is_some_and(|narrowed| narrowed.exact))
    }

    /// The page of some entities in their order; one more than it holds tells that there is a next one.
    pub(crate) fn page_of(&self, kept: PageBuffer, total: Option<usize>) -> Page {
        let (kept, more) = kept.into_page(self.limit);
        let next_cursor = kept.last().filter(|_| more).map(|(id, map)| self.cursor(&self.keys(map), id));
        let items = kept.into_iter().map(|(_, map)| self.cut(map)).collect();
        Page { items, next_cursor, total }
    }

    /// What a filter leaves of a family, as far as the database can look it up: a condition and its values.
    pub(crate) fn looked_up(&self, family: &Family) -> Option<(String, Vec<Argument>)> {
        let filter = self.filter.as_ref()?;
        let by = |column: &str, field: &str| {
            let values = filter.only(field).filter(|v| !v.is_empty() && v.len() <= LOOKED_UP_MAX)?;
            let sql = format!(" AND {column} IN ({})", vec!["?"; values.len()].join(", "));
            Some((sql, values.into_iter().map(Argument::from).collect()))
        };
        let by_text = || match family.indexed().as_slice() {
            &[field] => by(Column::Text.name(), field),
            _ => None,
        };
        by(Column::Id.name(), "id").or_else(by_text)
    }
}

/// Reads entities by their ids, in that order, as far as a list shows them, until there is one more than a page holds: ids,
/// and what is shown.
pub(crate) async fn read_in_order(ids: &[String], listing: Listing<'_>, db: &mut Connection) -> Result<PageBuffer> {
    let mut kept = PageBuffer::default();
    for some in ids.chunks(SIZED_AT_ONCE) {
        for piece in pieces_of(some, listing.place, db).await? {
            read_piece(piece, listing, db, &mut kept).await?;
            if kept.is_full(listing.query.limit + 1) {
                return Ok(kept);
            }
        }
    }
    Ok(kept)
}

/// Reads a piece of them with one statement.
pub(crate) async fn read_piece(
    ids: &[String],
    listing: Listing<'_>,
    db: &mut Connection,
    kept: &mut PageBuffer,
) -> Result<()> {
    for row in rows_of(ids, listing.place, db).await? {
        if let Some((entity, map)) = listing.read(&row)? {
            kept.push(entity.id, map);
        }
    }
    Ok(())
}

impl Config {
    /// Gives a page of what is known to pass without reading other entities: the indexes give its ids at once, since what
    /// they are asked may take as long for each piece of it. None: no index has its order, or what it shows is rare.
    pub(crate) async fn page_within(&self, listing: Listing<'_>, within: &CandidateSet) -> Result<Option<Page>> {
        let Listing { place, query, .. } = listing;
        if !query.can_be_cut(false, Some(within)) {
            return Ok(None);
        }
        let by_value = query.only_field().is_some_and(|field| within.asks(field));
        let Some(ordered) = IndexOrder::of(query, place.family, by_value) else { return Ok(None) };
        // One row more than the page shows whether there is a next page.
        let wanted = query.limit + 1;
        let most = if within.exact { wanted } else { TRIED.max(2 * wanted) };
        // Several statements see one state.
        let mut db = self.pool.snapshot().await?;
        let rows = ordered.ids(place, within, most).fetch_packed("id", &mut db).await?;
        let ids: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let kept = read_in_order(&ids, listing, &mut db).await?;
        drop(db);
        if !kept.is_full(wanted) && ids.len() == most {
            return Ok(None);
        }
        let total = self.total(place, query, Some(within)).await?;
        Ok(Some(query.page_of(kept, total)))
    }

    /// Gives a page without reading the whole family, where no filter is that narrow by itself. None: no index has its
    /// order, or what it shows is rare.
    pub(crate) async fn page_by_index(
        &self,
        listing: Listing<'_>,
        narrowed: Option<&CandidateSet>,
    ) -> Result<Option<Page>> {
        let Listing { place, query, caller, beside } = listing;
        let plain = query.is_plain(place.family, caller);
        if !query.can_be_cut(plain, narrowed) {
            return Ok(None);
        }
        let Some(ordered) = IndexOrder::of(query, place.family, false) else { return Ok(None) };
        // One row more than the page shows whether there is a next page.
        let wanted = query.limit + 1;
        let most = match narrowed {
            _ if plain => wanted,
            // Where the database can gather what passes the walk ends sooner.
            Some(_) => TRIED.max(4 * wanted),
            None => TRIED.max(8 * wanted),
        };
        let (mut read, mut kept) = (0, PageBuffer::default());
        let mut steps = Steps::new(ordered);
        // Several statements see one state: what is moved meanwhile is not found at both places, or at none.
        let mut db = self.pool.snapshot().await?;
        loop {
            let left = most - read;
            let rows = steps.next(place, wanted.max(STEP_MIN).min(left), &mut db).await?;
            read += rows.len();
            let mut last = None;
            for (n, row) in rows.iter().enumerate() {
                let mut entity = Entity::read(row)?;
                let is_listed = is_listed(place, &entity, caller);
                let mut map = entity.take_shown();
                beside.add(&entity, &mut map);
                if n + 1 == rows.len() {
                    last = Some((query.keys(&map), entity.id.clone()));
                }
                if is_listed && query.wants(place.family, &map) {
                    kept.push(entity.id, map);
                }
                if kept.is_full(wanted) {
                    break;
                }
            }
            if kept.is_full(wanted) || steps.is_end() {
                break;
            }
            let after = last.and_then(|(keys, id)| Some((steps.ordered.column.value(&keys)?, id)));
            // At this rate it would come too far: the database finds what passes sooner.
            let is_late = narrowed.is_some() && read * wanted / kept.len().max(1) > most;
            if read == most || is_late || after.is_none() {
                return Ok(None);
            }
            steps.ordered.after = after;
        }
        drop(db);
        let total = self.total(place, query, narrowed).await?;
        Ok(Some(query.page_of(kept, total)))
    }

    /// How many entities a list has, if it counts them.
    pub(crate) async fn total(
        &self,
        place: &Place,
        query: &ListQuery,
        narrowed: Option<&CandidateSet>,
    ) -> Result<Option<usize>> {
        if !query.count {
            return Ok(None);
        }
        self.count(place, narrowed.filter(|narrowed| narrowed.exact)).await.map(Some)
    }

    async fn count(&self, place: &Place, within: Option<&CandidateSet>) -> Result<usize> {
        // How many a family has is known; where they have owners that says nothing of those of one.
        if within.is_none() && place.family.owners.is_empty() {
            let sql = "SELECT number FROM entity_count WHERE family = ?";
            let row = statement(sql).bind(place.family.name).fetch_optional(&self.pool).await?;
            let Some(row) = row else { return Ok(0) };
            return Ok(row.try_get::<i64>(0)? as usize);
        }
        let all = || {
            let sql = "SELECT count(*) FROM entity WHERE family = ? AND owner = ?";
            statement(sql).bind(place.family.name).bind(&place.owner)
        };
        let count = within.map_or_else(all, |narrowed| narrowed.count(place));
        Ok(count.fetch_one(&self.pool).await?.try_get::<i64>(0)? as usize)
    }

    /// Gives entities of earlier builds and of their copies the text that an index orders them by.
    pub(crate) async fn fill_sort_texts(&self) -> Result<()> {
        loop {
            let sql = "SELECT family, id, body FROM entity WHERE sort_text IS NULL LIMIT ?";
            let rows = statement(sql).bind(FILLED_AT_ONCE as i64).fetch_all(&self.pool).await?;
            if rows.is_empty() {
                return Ok(());
            }
            let mut tx = migrations::begin(&self.pool).await?;
            for row in rows {
                let (name, id, body): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let body: Map<String, Value> = serde_json::from_str(&body).map_err(Problem::internal)?;
                let text = family(&name).map(|family| family.sort_text(&body)).unwrap_or_default();
                // Another server may start at the same time.
                let sql = "UPDATE entity SET sort_text = ? WHERE family = ? AND id = ? AND sort_text IS NULL";
                statement(sql).bind(text).bind(name).bind(id).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        }
    }
}
