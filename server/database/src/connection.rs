//! A database and its connections, and which connection a statement runs on.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;
use sqlx::{Postgres, Sqlite, Transaction};

use crate::sqlite_file::OpenedFile;

/// A database; copies are the same one.
#[derive(Clone)]
pub struct Database(pub(crate) Base);

#[derive(Clone)]
pub(crate) enum Base {
    Sqlite(SqlitePool, Arc<OpenedFile>),
    Postgres(PgPool),
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Base::Sqlite(..) => "SQLite",
            Base::Postgres(_) => "PostgreSQL",
        })
    }
}

impl Database {
    pub(crate) fn kind(&self) -> &Base {
        &self.0
    }
}

/// A connection of the pool, held until it is dropped; within a transaction where it came with one.
pub struct Connection(pub(crate) PooledConnection);

pub(crate) enum PooledConnection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
    SqliteWithin(Transaction<'static, Sqlite>),
    PostgresWithin(Transaction<'static, Postgres>),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

/// A transaction that holds the write lock; dropped, it changes nothing.
#[derive(Debug)]
pub struct WriteTransaction(pub(crate) Connection);

impl Deref for WriteTransaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl DerefMut for WriteTransaction {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0
    }
}

/// On what a statement runs.
#[derive(Debug)]
pub enum Link<'c> {
    /// Any connection of the pool.
    Base(&'c Database),
    /// This connection, for statements that belong to one transaction.
    Connection(&'c mut Connection),
}

impl<'c> From<&'c Database> for Link<'c> {
    fn from(base: &'c Database) -> Self {
        Self::Base(base)
    }
}

impl<'c> From<&'c mut Connection> for Link<'c> {
    fn from(connection: &'c mut Connection) -> Self {
        Self::Connection(connection)
    }
}

impl<'c> From<&'c mut WriteTransaction> for Link<'c> {
    fn from(writing: &'c mut WriteTransaction) -> Self {
        Self::Connection(&mut writing.0)
    }
}
