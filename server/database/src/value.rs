//! Arguments of statements, and values in the rows of their results.

use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Postgres, Row as _, Sqlite};

/// A value for a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A signed number of 64 bits.
    Number(i64),
    /// A text, which may be empty.
    Text(String),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// Nothing, where such a value could be.
    Null(Holds),
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Signed numbers of 64 bits (`INTEGER`, `BIGINT`).
    Number,
    /// Texts, compared by code points (`TEXT`).
    Text,
    /// Bytes as they are (`BLOB`, `BYTEA`).
    Bytes,
}

macro_rules! arguments {
    ($($type:ty => $variant:ident($value:ident) $make:expr;)*) => {
        $(impl From<$type> for Argument {
            fn from($value: $type) -> Self {
                Self::$variant($make)
            }
        })*
    };
}

arguments! {
    i64 => Number(value) value;
    &str => Text(value) value.to_owned();
    String => Text(value) value;
    &String => Text(value) value.clone();
    &&str => Text(value) (*value).to_owned();
    Vec<u8> => Bytes(value) value;
    &[u8] => Bytes(value) value.to_vec();
}

/// A row of an answer.
pub struct Row(pub(crate) RowData);

pub(crate) enum RowData {
    Sqlite(SqliteRow),
    Postgres(PgRow),
    /// One of many that came as one.
    Packed(Vec<Value>),
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("columns", &self.len()).finish()
    }
}

/// A type that can be read from a column.
pub trait FromColumn: Sized {
    /// Reads column `at`.
    ///
    /// # Errors
    /// When the column is not there, or of another type.
    fn get(row: &Row, at: usize) -> Result<Self, Error>;
}

impl<T> FromColumn for T
where
    T: for<'r> sqlx::Decode<'r, Sqlite>
        + sqlx::Type<Sqlite>
        + for<'r> sqlx::Decode<'r, Postgres>
        + sqlx::Type<Postgres>
        + DeserializeOwned,
{
    fn get(row: &Row, at: usize) -> Result<Self, Error> {
        match &row.0 {
            RowData::Sqlite(row) => row.try_get(at),
            RowData::Postgres(row) => row.try_get(at),
            RowData::Packed(row) => {
                let value = row.get(at).ok_or(Error::ColumnIndexOutOfBounds { index: at, len: row.len() })?;
                T::deserialize(value).map_err(|e| Error::Decode(Box::new(e)))
            }
        }
    }
}

impl Row {
    /// Reads a column by its place from 0.
    ///
    /// # Errors
    /// When the column is not there, or of another type.
    pub fn try_get<T: FromColumn>(&self, at: usize) -> Result<T, Error> {
        T::get(self, at)
    }

    /// Reads a column as what would be put into it.
    ///
    /// # Errors
    /// When the column is not there, or of another type.
    pub fn argument(&self, at: usize, holds: Holds) -> Result<Argument, Error> {
        let value = match holds {
            Holds::Number => self.try_get::<Option<i64>>(at)?.map(Argument::Number),
            Holds::Text => self.try_get::<Option<String>>(at)?.map(Argument::Text),
            Holds::Bytes => self.try_get::<Option<Vec<u8>>>(at)?.map(Argument::Bytes),
        };
        Ok(value.unwrap_or(Argument::Null(holds)))
    }

    /// How many columns there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            RowData::Sqlite(row) => row.len(),
            RowData::Postgres(row) => row.len(),
            RowData::Packed(row) => row.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_that_came_as_one() {
        let cells =
            vec![json!(5), json!("a"), Value::Null, json!(1.5), json!([1, 255]), json!(9_007_199_254_740_993_i64)];
        let row = Row(RowData::Packed(cells));
        assert_eq!((row.try_get::<i64>(0).unwrap(), row.try_get::<String>(1).unwrap()), (5, "a".to_owned()));
        assert_eq!(row.try_get::<i64>(5).unwrap(), 9_007_199_254_740_993, "beyond what doubles tell apart");
        assert_eq!(
            (row.try_get::<Option<i64>>(2).unwrap(), row.try_get::<Option<String>>(1).unwrap()),
            (None, Some("a".to_owned()))
        );
        for at in [1, 2, 3, 4] {
            assert!(matches!(row.try_get::<i64>(at), Err(Error::Decode(_))), "{at}");
        }
        assert!(matches!(row.try_get::<i64>(6), Err(Error::ColumnIndexOutOfBounds { index: 6, len: 6 })));
        assert_eq!((row.len(), row.is_empty(), Row(RowData::Packed(Vec::new())).is_empty()), (6, false, true));
    }

    #[test]
    fn what_a_row_holds_can_be_put_in_again() {
        let row = Row(RowData::Packed(vec![json!(-1), json!(""), json!([0, 1]), Value::Null]));
        for (at, holds, expected) in [
            (0, Holds::Number, Argument::Number(-1)),
            (1, Holds::Text, Argument::Text(String::new())),
            (2, Holds::Bytes, Argument::Bytes(vec![0, 1])),
            (3, Holds::Number, Argument::Null(Holds::Number)),
            (3, Holds::Text, Argument::Null(Holds::Text)),
            (3, Holds::Bytes, Argument::Null(Holds::Bytes)),
        ] {
            assert_eq!(row.argument(at, holds).unwrap(), expected, "{at}");
        }
        assert!(row.argument(0, Holds::Text).is_err() && row.argument(1, Holds::Number).is_err());
        let text = String::from("a");
        let texts = [Argument::from("a"), Argument::from(&text), Argument::from(&"a"), Argument::from(text.clone())];
        assert!(texts.iter().all(|argument| *argument == Argument::Text("a".to_owned())), "{texts:?}");
    }
}
