//! A statement with its arguments, and how it is run.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Error};

use crate::connection::{Base, Connection, Database, Link, PooledConnection};
use crate::dialect::numbered;
use crate::value::{Argument, Holds, Row, RowData};

/// How long a statement may take before its connection counts as lost: a network that swallows packets says nothing.
const LOST: Duration = Duration::from_secs(20);

/// A statement with its values.
#[derive(Debug, Clone)]
pub struct Statement {
    sql: Cow<'static, str>,
    arguments: Vec<Argument>,
}

/// Begins a statement. Its text never holds what a request says: that goes in by [`Statement::bind`].
pub fn statement(sql: impl Into<Cow<'static, str>>) -> Statement {
    Statement { sql: sql.into(), arguments: Vec::new() }
}

/// PostgreSQL's texts have no NUL. What no stored text has stands for it, so that a look-up finds nothing.
fn without_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{10fffd}") } else { text }
}

macro_rules! bound {
    ($sql:expr, $arguments:expr, $text:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($sql));
        for argument in $arguments {
            query = match argument {
                Argument::Number(value) => query.bind(value),
                Argument::Text(value) => query.bind($text(value)),
                Argument::Bytes(value) => query.bind(value),
                Argument::Null(Holds::Number) => query.bind(None::<i64>),
                Argument::Null(Holds::Text) => query.bind(None::<String>),
                Argument::Null(Holds::Bytes) => query.bind(None::<Vec<u8>>),
            };
        }
        query
    }};
}

macro_rules! on_link {
    ($query:expr, $link:expr, $method:ident, $sqlite:expr, $postgres:expr) => {{
        let (sql, arguments) = ($query.sql, $query.arguments);
        match $link {
            Link::Base(base) => match base.kind() {
                Base::Sqlite(pool, _) => {
                    bound!(sql, arguments, std::convert::identity).$method(pool).await.map($sqlite)
                }
                Base::Postgres(pool) => {
                    in_time(bound!(numbered(&sql), arguments, without_nul).$method(pool)).await.map($postgres)
                }
            },
            Link::Connection(Connection(held)) => match held {
                PooledConnection::Sqlite(one) => {
                    bound!(sql, arguments, std::convert::identity).$method(&mut **one).await.map($sqlite)
                }
                PooledConnection::SqliteWithin(one) => {
                    bound!(sql, arguments, std::convert::identity).$method(&mut **one).await.map($sqlite)
                }
                PooledConnection::Postgres(one) => {
                    in_time(bound!(numbered(&sql), arguments, without_nul).$method(&mut **one)).await.map($postgres)
                }
                PooledConnection::PostgresWithin(one) => {
                    in_time(bound!(numbered(&sql), arguments, without_nul).$method(&mut **one)).await.map($postgres)
                }
            },
        }
    }};
}

/// Gives up on a connection that does not answer.
pub(crate) async fn in_time<T>(run: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(LOST, run).await.unwrap_or(Err(Error::PoolTimedOut))
}

impl Statement {
    /// Gives the next placeholder its value.
    #[must_use]
    pub fn bind(mut self, value: impl Into<Argument>) -> Self {
        self.arguments.push(value.into());
        self
    }

    /// Runs it; gives the number of rows that it changed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn execute<'c>(self, on: impl Into<Link<'c>>) -> BoxFuture<'c, Result<u64, Error>> {
        self.execute_on(on.into())
    }

    // These give boxed futures, and are not generic, so that what sqlx does is compiled here, once.

    fn execute_on(self, link: Link<'_>) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move { on_link!(self, link, execute, |done| done.rows_affected(), |done| done.rows_affected()) })
    }

    /// Gives all rows.
    ///
    /// # Errors
    /// Those of the database.
    pub fn fetch_all<'c>(self, on: impl Into<Link<'c>>) -> BoxFuture<'c, Result<Vec<Row>, Error>> {
        self.fetch_all_on(on.into())
    }

    fn fetch_all_on(self, link: Link<'_>) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        let sqlite = |rows: Vec<_>| rows.into_iter().map(|row| Row(RowData::Sqlite(row))).collect();
        let postgres = |rows: Vec<_>| rows.into_iter().map(|row| Row(RowData::Postgres(row))).collect();
        Box::pin(async move { on_link!(self, link, fetch_all, sqlite, postgres) })
    }

    /// Gives the first row, if there is one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn fetch_optional<'c>(self, on: impl Into<Link<'c>>) -> BoxFuture<'c, Result<Option<Row>, Error>> {
        self.fetch_optional_on(on.into())
    }

    fn fetch_optional_on(self, link: Link<'_>) -> BoxFuture<'_, Result<Option<Row>, Error>> {
        let sqlite = |row: Option<_>| row.map(|row| Row(RowData::Sqlite(row)));
        let postgres = |row: Option<_>| row.map(|row| Row(RowData::Postgres(row)));
        Box::pin(async move { on_link!(self, link, fetch_optional, sqlite, postgres) })
    }

    /// Gives the first row.
    ///
    /// # Errors
    /// Those of the database; `RowNotFound`.
    pub fn fetch_one<'c>(self, on: impl Into<Link<'c>>) -> BoxFuture<'c, Result<Row, Error>> {
        self.fetch_one_on(on.into())
    }

    fn fetch_one_on(self, link: Link<'_>) -> BoxFuture<'_, Result<Row, Error>> {
        Box::pin(async move { self.fetch_optional_on(link).await?.ok_or(Error::RowNotFound) })
    }

    /// Gives all rows of a statement that is known to have few, say a page; `columns` are those that it selects, texts and
    /// numbers. They come as one: each row by itself costs SQLite's thread and the caller's a change of turns.
    ///
    /// # Errors
    /// Those of the database.
    pub fn fetch_packed<'c>(self, columns: &str, on: impl Into<Link<'c>>) -> BoxFuture<'c, Result<Vec<Row>, Error>> {
        self.packed(columns).fetch_packed_on(on.into())
    }

    /// The statement that gives all rows of this one as one text.
    fn packed(self, columns: &str) -> Self {
        let sql = format!("SELECT CAST(json_group_array(json_array({columns})) AS TEXT) FROM ({}) AS packed", self.sql);
        Self { sql: sql.into(), arguments: self.arguments }
    }

    fn fetch_packed_on(self, link: Link<'_>) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let row = self.fetch_one_on(link).await?;
            // PostgreSQL has none where there are no rows.
            let Some(text) = row.try_get::<Option<String>>(0)? else { return Ok(Vec::new()) };
            let rows: Vec<Vec<Value>> = serde_json::from_str(&text).map_err(|e| Error::Decode(Box::new(e)))?;
            Ok(rows.into_iter().map(|row| Row(RowData::Packed(row))).collect())
        })
    }

    /// Gives rows one after the other, without holding all of them.
    pub fn fetch(self, base: &Database) -> BoxStream<'_, Result<Row, Error>> {
        let (sql, arguments) = (self.sql, self.arguments);
        match base.kind() {
            Base::Sqlite(pool, _) => {
                let rows = bound!(sql, arguments, std::convert::identity).fetch(pool);
                rows.map(|row| row.map(|row| Row(RowData::Sqlite(row)))).boxed()
            }
            Base::Postgres(pool) => {
                let rows = bound!(numbered(&sql), arguments, without_nul).fetch(pool);
                rows.map(|row| row.map(|row| Row(RowData::Postgres(row)))).boxed()
            }
        }
    }

    /// The same on a connection, which sees one state of all tables if it is that of a snapshot.
    pub fn fetch_on(self, on: &mut Connection) -> BoxStream<'_, Result<Row, Error>> {
        let (sql, arguments) = (self.sql, self.arguments);
        macro_rules! rows {
            ($query:expr, $one:expr, $kind:path) => {
                $query.fetch(&mut **$one).map(|row| row.map(|row| Row($kind(row)))).boxed()
            };
        }
        match &mut on.0 {
            PooledConnection::Sqlite(one) => {
                rows!(bound!(sql, arguments, std::convert::identity), one, RowData::Sqlite)
            }
            PooledConnection::SqliteWithin(one) => {
                rows!(bound!(sql, arguments, std::convert::identity), one, RowData::Sqlite)
            }
            PooledConnection::Postgres(one) => {
                rows!(bound!(numbered(&sql), arguments, without_nul), one, RowData::Postgres)
            }
            PooledConnection::PostgresWithin(one) => {
                rows!(bound!(numbered(&sql), arguments, without_nul), one, RowData::Postgres)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_postgresql_have_no_nul() {
        for (text, expected) in [("", ""), ("a", "a"), ("\0", "\u{10fffd}"), ("a\0b\0", "a\u{10fffd}b\u{10fffd}")] {
            assert_eq!(without_nul(text.to_owned()), expected);
        }
    }
}
