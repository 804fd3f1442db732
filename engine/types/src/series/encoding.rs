//! The serialized form of a table of series. Its invariants are checked when it is read, so that no row number points
//! beyond the end of a column.

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{LabelColumn, SeriesTable};

impl Serialize for SeriesTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.rows, &self.names, &self.columns).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SeriesTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (rows, names, columns) = <(usize, Vec<Arc<str>>, Vec<LabelColumn>)>::deserialize(deserializer)?;
        if names.len() != columns.len() || names.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(D::Error::custom("label columns of a table are not sorted by name"));
        }
        if columns.iter().any(|column| column.codes.len() != rows || !column.is_whole()) {
            return Err(D::Error::custom("a label column has no value for a row of its table"));
        }
        Ok(Self { rows, names, columns })
    }
}

impl LabelColumn {
    fn is_whole(&self) -> bool {
        self.values.first().is_some_and(|absent| absent.is_empty())
            && self.codes.iter().all(|code| (*code as usize) < self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::SeriesTableBuilder;

    fn read(bytes: &[u8]) -> Option<SeriesTable> {
        postcard::from_bytes(bytes).ok()
    }

    #[test]
    fn tables_come_back() {
        let mut builder = SeriesTableBuilder::default();
        builder.push([("__name__", "m"), ("le", "+Inf")]);
        builder.push([]);
        builder.push([("__name__", "m"), ("ä", "\n")]);
        let table = builder.finish();
        for table in [table.take(&[2, 0, 0]), table, SeriesTable::unlabelled(), SeriesTable::default()] {
            let back = read(&postcard::to_allocvec(&table).expect("written")).expect("read");
            assert_eq!(format!("{back:?}"), format!("{table:?}"));
        }
    }

    #[test]
    fn broken_tables_are_refused() {
        type Columns<'a> = Vec<(Vec<&'a str>, Vec<u32>)>;
        let check = |rows: usize, names: &[&str], columns: Columns<'_>, fits: bool| {
            let bytes = postcard::to_allocvec(&(rows, names, &columns)).expect("written");
            assert_eq!(read(&bytes).is_some(), fits, "{rows} {names:?} {columns:?}");
        };
        let column = |codes: &[u32]| (vec!["", "x"], codes.to_vec());
        check(2, &["a", "b"], vec![column(&[0, 1]), column(&[1, 1])], true);
        check(2, &["b", "a"], vec![column(&[0, 1]), column(&[1, 1])], false);
        check(2, &["a", "a"], vec![column(&[0, 1]), column(&[1, 1])], false);
        check(2, &["a"], vec![column(&[0, 2])], false);
        check(2, &["a"], vec![column(&[0])], false);
        check(2, &["a", "b"], vec![column(&[0, 1])], false);
        check(1, &["a"], vec![(vec!["x"], vec![0])], false);
        check(1, &["a"], vec![(vec![], vec![0])], false);
    }
}
