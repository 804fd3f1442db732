//! Tables as data: what is copied from one database to another, whatever their kinds.

use sqlx::Error;

use crate::connection::Connection;
use crate::statement::{Statement, statement};
use crate::value::{Argument, Holds, Row};

/// The tables of one part of the server.
#[derive(Debug)]
pub struct Schema {
    /// Name of the part, under which its steps are counted.
    pub part: &'static str,
    /// The steps that make the tables, in order: name and statements. Numbers are positions from 1.
    pub steps: &'static [(&'static str, &'static str)],
    /// What of it a copy holds.
    pub tables: &'static [Table],
}

/// A table of the database, as a copy of its rows must know it.
#[derive(Debug)]
pub struct Table {
    /// Its name in the database.
    pub name: &'static str,
    /// Its columns; one that is no more stays, so that older copies can be read.
    pub columns: &'static [(&'static str, Holds)],
    /// The columns of its key, separated by commas.
    pub key: &'static str,
    /// Whether its rows are of no use without the key under which they were encrypted.
    pub sealed: bool,
}

impl Table {
    /// The statement that gives all rows, in order.
    pub fn select(&self) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        format!("SELECT {} FROM {} ORDER BY {}", columns.join(", "), self.name, self.key)
    }

    /// Reads a row of [`Self::select`].
    ///
    /// # Errors
    /// When a column holds something else.
    pub fn read(&self, row: &Row) -> Result<Vec<Argument>, Error> {
        self.columns.iter().enumerate().map(|(at, (_, holds))| row.argument(at, *holds)).collect()
    }

    /// A column by its name.
    pub fn column(&self, name: &str) -> Option<&'static (&'static str, Holds)> {
        self.columns.iter().find(|(known, _)| *known == name)
    }

    /// Removes all rows.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn clear(&self, on: &mut Connection) -> Result<(), Error> {
        statement(format!("DELETE FROM {}", self.name)).execute(on).await.map(|_| ())
    }

    /// Inserts rows of some columns with one statement; there may be 1,000 values in all.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn insert(
        &self,
        on: &mut Connection,
        columns: &[&'static str],
        rows: Vec<Vec<Argument>>,
    ) -> Result<(), Error> {
        if rows.is_empty() || columns.is_empty() {
            return Ok(());
        }
        let one = format!("({})", vec!["?"; columns.len()].join(", "));
        let all = vec![one; rows.len()].join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES {all}", self.name, columns.join(", "));
        let insert = rows.into_iter().flatten().fold(statement(sql), Statement::bind);
        insert.execute(on).await.map(|_| ())
    }
}
