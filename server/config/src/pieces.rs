//! How many entities one statement reads. They come as one row (`fetch_packed`), which stands in memory several times over
//! before each of them is apart: in the database, as its text, and as values.

use std::collections::HashMap;

use quiver_database::{Connection, Row, Statement, statement};

use crate::entity::Entity;
use crate::entity_place::Place;
use crate::problem::Result;

/// Most bytes of entities that are read at once, unless there is only one.
pub(crate) const PIECE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// Most entities that are read at once.
const ENTITIES_AT_ONCE: usize = if cfg!(test) { 3 } else { 250 };
/// Ids of which the sizes are looked up at once.
pub(crate) const SIZED_AT_ONCE: usize = if cfg!(test) { 7 } else { 1000 };

/// How many entities are read next, by their sizes: at least one.
pub(crate) fn at_once(sizes: impl IntoIterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fits = |size: &usize| {
        bytes += *size;
        bytes <= PIECE_BYTES
    };
    sizes.into_iter().take(ENTITIES_AT_ONCE).take_while(fits).count().max(1)
}

/// The statement's ids with the sizes of their entities, of which it selects `id` and `bytes`.
pub(crate) async fn sized(select: Statement, db: &mut Connection) -> Result<Vec<(String, usize)>> {
    let rows = select.fetch_packed("id, bytes", db).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<i64>(1)? as usize))).collect()
}

/// The same of some ids, in that order; what is not there has no size. Only the heads of rows are read for that.
pub(crate) async fn sizes_of(ids: Vec<String>, place: &Place, db: &mut Connection) -> Result<Vec<(String, usize)>> {
    if ids.len() < 2 {
        return Ok(ids.into_iter().map(|id| (id, 0)).collect());
    }
    let places = vec!["?"; ids.len()].join(", ");
    let sql = format!("SELECT id, octet_length(body) AS bytes FROM entity WHERE family = ? AND id IN ({places})");
    let select = ids.iter().fold(statement(sql).bind(place.family.name), Statement::bind);
    let mut sizes: HashMap<String, usize> = sized(select, db).await?.into_iter().collect();
    let with_size = |id: String| {
        let bytes = sizes.remove(&id).unwrap_or(0);
        (id, bytes)
    };
    Ok(ids.into_iter().map(with_size).collect())
}

/// Some ids, cut into those whose entities are read with one statement each.
pub(crate) async fn pieces_of<'i>(ids: &'i [String], place: &Place, db: &mut Connection) -> Result<Vec<&'i [String]>> {
    let sizes = sizes_of(ids.to_vec(), place, db).await?;
    let (mut pieces, mut from) = (Vec::new(), 0);
    while from < ids.len() {
        let end = from + at_once(sizes[from..].iter().map(|(_, bytes)| *bytes));
        pieces.push(&ids[from..end]);
        from = end;
    }
    Ok(pieces)
}

/// Reads entities by their ids, in that order.
pub(crate) async fn rows_of(ids: &[String], place: &Place, db: &mut Connection) -> Result<Vec<Row>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let places = vec!["?"; ids.len()].join(", ");
    let sql = format!("SELECT {} FROM entity WHERE family = ? AND id IN ({places})", Entity::COLUMNS);
    let select = ids.iter().fold(statement(sql).bind(place.family.name), Statement::bind);
    let mut found = HashMap::new();
    for row in select.fetch_packed(Entity::COLUMNS, db).await? {
        found.insert(row.try_get::<String>(0)?, row);
    }
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_a_size_and_a_number() {
        for (sizes, expected) in [
            (&[10, 10][..], 2),
            (&[10, 10, 10, 10][..], ENTITIES_AT_ONCE),
            (&[PIECE_BYTES, 1][..], 1),
            (&[PIECE_BYTES - 1, 1, 1][..], 2),
            // One that is larger comes by itself.
            (&[5 * PIECE_BYTES, 1][..], 1),
            (&[1, 5 * PIECE_BYTES][..], 1),
        ] {
            assert_eq!(at_once(sizes.iter().copied()), expected, "{sizes:?}");
        }
    }
}
