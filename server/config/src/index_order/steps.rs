//! Reads a list step by step along an index: the next entities, or the next index entries.
//!
//! Among entities of equal value ids are ascending, whichever way values are sorted. If values are descending, the
//! index has ids in the opposite order, and a database asked for both orders would sort all entities of a value
//! before it returns the first; entities created by one request share a time, and there may be 10,000 of them. So
//! statements follow the index there, and the entities of the last value, which may be incomplete, are queried
//! separately.

use quiver_database::{Argument, Connection, Row, Statement, statement};

use super::IndexOrder;
use crate::entity_place::Place;
use crate::pieces::{at_once, rows_of, sized, sizes_of};
use crate::problem::Result;

/// A walk along a list.
pub(super) struct Steps {
    pub(super) ordered: IndexOrder,
    /// Ids that were read ahead, with the sizes of their entities.
    ahead: Vec<(String, usize)>,
    /// Whether these are the last ones.
    is_last: bool,
}

impl Steps {
    pub(super) fn new(ordered: IndexOrder) -> Self {
        Self { ordered, ahead: Vec::new(), is_last: false }
    }

    /// Whether the list has ended.
    pub(super) fn is_end(&self) -> bool {
        self.is_last && self.ahead.is_empty()
    }

    /// Reads the next entities: as many as one statement gives, and at most a page; the page continues after them.
    pub(super) async fn next(&mut self, place: &Place, page: usize, db: &mut Connection) -> Result<Vec<Row>> {
        if self.ahead.is_empty() {
            self.ahead = if self.ordered.descending {
                let entries = self.ordered.entries(place, page, db).await?;
                sizes_of(entries.into_iter().map(|(_, id)| id).collect(), place, db).await?
            } else {
                sized(self.ordered.ascending(place, page), db).await?
            };
            self.is_last = self.ahead.len() < page;
        }
        let piece = at_once(self.ahead.iter().map(|(_, bytes)| *bytes)).min(self.ahead.len());
        let rest = self.ahead.split_off(piece);
        let next = std::mem::replace(&mut self.ahead, rest);
        let ids: Vec<String> = next.into_iter().map(|(id, _)| id).collect();
        rows_of(&ids, place, db).await
    }
}

impl IndexOrder {
    /// The statement for the ids and sizes of the next rows, with ascending values.
    fn ascending(&self, place: &Place, rows: usize) -> Statement {
        let column = self.column.name();
        let (rest, values) = self.rest(place, None, rows);
        let select = |sql: String| values.into_iter().fold(statement(sql), Statement::bind);
        if self.column.field().is_none() {
            return select(format!("SELECT id, octet_length(body) AS bytes {rest}"));
        }
        let sql = format!(
            "SELECT id, octet_length(body) AS bytes FROM (SELECT {column} AS value, id AS found {rest}) AS ordered \
            CROSS JOIN entity WHERE family = ? AND id = found ORDER BY value, found"
        );
        select(sql).bind(place.family.name)
    }

    /// Reads the next index entries: values and ids.
    pub(crate) async fn entries(
        &self,
        place: &Place,
        most: usize,
        db: &mut Connection,
    ) -> Result<Vec<(Argument, String)>> {
        let column = self.column.name();
        if !self.descending {
            let (rest, values) = self.rest(place, None, most);
            let select = statement(format!("SELECT {column} AS held, id {rest}"));
            return self.read(values.into_iter().fold(select, Statement::bind), db).await;
        }
        let (mut found, from) = match &self.after {
            Some((value, id)) => {
                let left = format!(" AND {column} = ? AND id > ? ORDER BY id");
                let found = self.along(place, &left, vec![value.clone(), id.into()], most, db).await?;
                (found, Some(value.clone()))
            }
            None => (Vec::new(), None),
        };
        let lacking = most - found.len();
        if lacking == 0 {
            return Ok(found);
        }
        let less = if from.is_some() { format!(" AND {column} < ?") } else { String::new() };
        let less = format!("{less} ORDER BY {column} DESC");
        // One more entry tells whether entities of the last value remain.
        let mut less = self.along(place, &less, from.into_iter().collect(), lacking + 1, db).await?;
        let cut = less.last().filter(|_| less.len() > lacking).map(|(value, _)| value.clone());
        if let Some(cut) = &cut {
            less.truncate(less.partition_point(|(value, _)| value != cut));
        }
        for same in less.chunk_by_mut(|(one, _), (next, _)| one == next) {
            same.sort_by(|(_, one), (_, next)| one.cmp(next));
        }
        found.append(&mut less);
        if let (Some(cut), lacking @ 1..) = (cut, most - found.len()) {
            let first = format!(" AND {column} = ? ORDER BY id");
            found.append(&mut self.along(place, &first, vec![cut], lacking, db).await?);
        }
        Ok(found)
    }

    /// Reads index entries with a condition and an order that follow the index.
    async fn along(
        &self,
        place: &Place,
        rest: &str,
        values: Vec<Argument>,
        most: usize,
        db: &mut Connection,
    ) -> Result<Vec<(Argument, String)>> {
        let (table, by_field) = self.column.table();
        let column = self.column.name();
        let sql =
            format!("SELECT {column} AS held, id FROM {table} WHERE family = ? AND owner = ?{by_field}{rest} LIMIT ?");
        let select = statement(sql).bind(place.family.name).bind(&place.owner);
        let select = self.column.field().into_iter().fold(select, Statement::bind);
        self.read(values.into_iter().fold(select, Statement::bind).bind(most as i64), db).await
    }

    async fn read(&self, select: Statement, db: &mut Connection) -> Result<Vec<(Argument, String)>> {
        let rows = select.fetch_packed("held, id", db).await?;
        let entry =
            |row: &Row| -> Result<(Argument, String)> { Ok((row.argument(0, self.column.holds())?, row.try_get(1)?)) };
        rows.iter().map(entry).collect()
    }
}
