//! The database of configuration and accounts: a SQLite file by default, PostgreSQL by URL. Statements are written
//! once, in SQL that both understand; the differences (placeholders, column types, how one writer excludes others) are
//! handled here.

mod connection;
mod dialect;
mod open;
mod sqlite_file;
mod statement;
mod tables;
mod value;
mod writable;

pub use connection::{Connection, Database, Link, WriteTransaction};
pub use open::{is_passing, page_cache};
pub use sqlite_file::{CHECKED_BYTES_MAX, Damage, OpenedFile, TABLES, damage, fault_of_file, is_empty, is_ours};
pub use sqlx::Error;
pub use statement::{Statement, statement};
pub use tables::{Schema, Table};
pub use value::{Argument, FromColumn, Holds, Row};
pub use writable::with_writable;

#[cfg(test)]
mod tests;
