//! Exports: all entities of a list, as they were at one moment, in texts that stay compressed until they are sent. So a
//! client that reads slowly keeps no connection to the database, and no entity is held as a tree longer than it takes to
//! write it.

use std::io;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use quiver_database::{Argument, Connection, Statement, statement};
use serde_json::{Map, Value};

use crate::config::Config;
use crate::entity::Entity;
use crate::entity_place::Place;
use crate::family::Caller;
use crate::index_order::read_piece;
use crate::listing::Listing;
use crate::page_buffer::{PageBuffer, bytes_of, map_bytes};
use crate::pieces::{PIECE_BYTES, at_once};
use crate::problem::{Problem, Result};
use crate::query::ListQuery;
use crate::sql_filter::CandidateSet;

/// The compression level of zstd.
const LEVEL: i32 = 1;

/// Writes an export, and knows how much memory it may take.
pub trait ExportWriter: Send {
    /// Writes an entity behind those before it.
    fn write(&mut self, entity: Map<String, Value>, out: &mut String);

    /// Changes the memory that the export holds to so many bytes in total.
    ///
    /// # Errors
    /// That is too much; the export ends with this problem.
    fn hold(&mut self, bytes: usize) -> Result<()>;
}

/// The texts of an export, compressed piece by piece.
#[derive(Debug, Default)]
pub struct CompressedExport {
    pieces: Vec<Vec<u8>>,
    entities: usize,
}

impl CompressedExport {
    /// The number of pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The number of entities in all pieces.
    pub fn entities(&self) -> usize {
        self.entities
    }

    /// The text of a piece; empty behind the last one.
    ///
    /// # Errors
    /// There is no memory for the decoder.
    pub fn piece(&self, at: usize) -> io::Result<Vec<u8>> {
        self.pieces.get(at).map_or_else(|| Ok(Vec::new()), |piece| zstd::decode_all(piece.as_slice()))
    }

    /// An export that is not of a database.
    #[doc(hidden)]
    pub fn for_tests(texts: Vec<String>) -> Self {
        let mut exported = Self { entities: texts.len(), ..Self::default() };
        for mut text in texts {
            let _ = exported.add(&mut text);
        }
        exported
    }

    /// Compresses what was written; returns the bytes that it takes now.
    fn add(&mut self, text: &mut String) -> Result<usize> {
        if text.is_empty() {
            return Ok(0);
        }
        let mut piece = zstd::encode_all(text.as_bytes(), LEVEL).map_err(Problem::internal)?;
        piece.shrink_to_fit();
        text.clear();
        let bytes = piece.len() + size_of::<Vec<u8>>();
        self.pieces.push(piece);
        Ok(bytes)
    }
}

/// An entity of an export, before it is written.
struct ExportRow {
    keys: Vec<Value>,
    id: String,
    /// About its size.
    bytes: usize,
}

impl Config {
    /// Gives all entities that match, in the order of the list. All are of one moment.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`; those of [`ExportWriter::hold`].
    pub fn export<'a>(
        &'a self,
        place: &'a Place,
        query: &'a ListQuery,
        caller: &'a Caller,
        to: &'a mut dyn ExportWriter,
    ) -> BoxFuture<'a, Result<CompressedExport>> {
        Box::pin(async move {
            let query = query.clone().everything();
            let beside = self.beside(place.family).await?;
            let listing = Listing { place, query: &query, caller, beside: &beside };
            let within = self.narrowed(listing).await?;
            let mut db = self.pool.snapshot().await?;
            let found = listing.in_order(within, &mut db, usize::MAX, &mut |bytes| to.hold(bytes)).await?;
            let (ids, sizes): (Vec<String>, Vec<usize>) = found.into_iter().map(|one| (one.id, one.bytes)).unzip();
            let of_ids: usize = ids.iter().map(|id| id.len() + size_of::<(String, usize)>()).sum();
            let (mut exported, mut text, mut packed, mut from) = (CompressedExport::default(), String::new(), 0, 0);
            while from < ids.len() {
                let end = from + at_once(sizes[from..].iter().copied());
                let mut read = PageBuffer::default();
                read_piece(&ids[from..end], listing, &mut db, &mut read).await?;
                for (_, entity) in read.into_rows() {
                    to.write(query.cut(entity), &mut text);
                    exported.entities += 1;
                }
                from = end;
                if text.len() >= PIECE_BYTES {
                    packed += exported.add(&mut text)?;
                    to.hold(of_ids + packed)?;
                }
            }
            packed += exported.add(&mut text)?;
            to.hold(packed)?;
            Ok(exported)
        })
    }

    /// Gives the ids of all entities that match, in the order of the list, if they are not more than `most`: else one more.
    /// Nothing else of them is held.
    pub(crate) async fn all_ids(
        &self,
        place: &Place,
        query: &ListQuery,
        caller: &Caller,
        most: usize,
    ) -> Result<Vec<String>> {
        let beside = self.beside(place.family).await?;
        let listing = Listing { place, query, caller, beside: &beside };
        let within = self.narrowed(listing).await?;
        let mut db = self.pool.snapshot().await?;
        let found = listing.in_order(within, &mut db, most, &mut |_| Ok(())).await?;
        Ok(found.into_iter().map(|one| one.id).collect())
    }

    /// What the database can tell by itself of the entities of a list: a condition and its values.
    async fn narrowed(&self, Listing { place, query, caller, .. }: Listing<'_>) -> Result<(String, Vec<Argument>)> {
        if let Some(found) = query.looked_up(place.family) {
            return Ok(found);
        }
        let asked = self.asked(place, query.filter.as_ref()).await?;
        let narrowed = CandidateSet::of(query.filter.as_ref(), query.contains.as_deref(), place, caller, &asked);
        Ok(narrowed.as_ref().map(CandidateSet::condition).unwrap_or_default())
    }
}

impl Listing<'_> {
    /// Finds the entities of the list and puts them in order; only what they are ordered by is held, which `hold` is told.
    /// Beyond `most` it finds one more, and looks no further.
    async fn in_order(
        &self,
        (condition, values): (String, Vec<Argument>),
        db: &mut Connection,
        most: usize,
        hold: &mut (dyn FnMut(usize) -> Result<()> + Send),
    ) -> Result<Vec<ExportRow>> {
        let sql = format!("SELECT {} FROM entity WHERE family = ? AND owner = ?{condition}", Entity::COLUMNS);
        let select = statement(sql).bind(self.place.family.name).bind(&self.place.owner);
        let mut rows = values.into_iter().fold(select, Statement::bind).fetch_on(db);
        let (mut found, mut held) = (Vec::new(), 0);
        while let Some(row) = rows.try_next().await? {
            let Some((entity, map)) = self.read(&row)? else { continue };
            let keys = self.query.keys(&map);
            let key_bytes: usize = keys.iter().map(|key| size_of::<Value>() + bytes_of(key)).sum();
            // The list grows by doubling.
            held += 2 * size_of::<ExportRow>() + entity.id.len() + key_bytes;
            hold(held)?;
            found.push(ExportRow { keys, id: entity.id, bytes: map_bytes(&map) });
            if found.len() > most {
                break;
            }
        }
        drop(rows);
        found.sort_by(|a, b| self.query.order((&a.keys, &a.id), (&b.keys, &b.id)));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_in_their_order() {
        let mut exported = CompressedExport::default();
        let mut text = "a".repeat(5000);
        let bytes = exported.add(&mut text).expect("it can be compressed");
        assert!(bytes < 200 && text.is_empty(), "{bytes} bytes");
        text.push('b');
        exported.add(&mut text).expect("it can be compressed");
        assert_eq!(exported.add(&mut text).expect("nothing"), 0);
        let texts: Vec<Vec<u8>> = (0..3).map(|at| exported.piece(at).expect("a text")).collect();
        assert_eq!(texts, ["a".repeat(5000).into_bytes(), b"b".to_vec(), Vec::new()]);
        assert_eq!(exported.pieces(), 2);
    }
}
