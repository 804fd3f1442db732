//! The table of the series of one operator: labels, dictionary-coded per label name.
//!
//! Labels are touched once per series, in the label phase; the number phase carries row numbers only
//! (`engines` 1.1).

mod encoding;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::label::METRIC_NAME;

/// One label of all series of a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabelColumn {
    /// Distinct values; entry 0 is always the empty text (label absent).
    pub values: Arc<Vec<Arc<str>>>,
    /// One entry per row: index into `values`.
    pub codes: Arc<Vec<u32>>,
}

impl LabelColumn {
    /// Gives the value of a row; the empty text when the label is absent.
    pub fn value(&self, row: usize) -> &Arc<str> {
        &self.values[self.codes[row] as usize]
    }
}

/// Labels of all series of an operator; immutable, shared. Columns are sorted by name; `__name__` is one of them.
#[derive(Debug, Clone, Default)]
pub struct SeriesTable {
    rows: usize,
    names: Vec<Arc<str>>,
    columns: Vec<LabelColumn>,
}

impl SeriesTable {
    /// Makes a table; columns must be sorted by name and have `rows` codes each.
    pub fn new(rows: usize, columns: Vec<(Arc<str>, LabelColumn)>) -> Self {
        assert!(columns.windows(2).all(|w| w[0].0 < w[1].0), "label columns are sorted by name");
        assert!(columns.iter().all(|(_, c)| c.codes.len() == rows), "label columns have one code per row");
        let (names, columns) = columns.into_iter().unzip();
        Self { rows, names, columns }
    }

    /// Makes a table with one row without labels.
    pub fn unlabelled() -> Self {
        Self { rows: 1, ..Self::default() }
    }

    /// Number of series.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Says whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Label names, sorted; a name may be absent in every row.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Finds the column of a label.
    pub fn column(&self, name: &str) -> Option<&LabelColumn> {
        self.names.binary_search_by(|n| (**n).cmp(name)).ok().map(|i| &self.columns[i])
    }

    /// Walks the columns in name order.
    pub fn columns(&self) -> impl Iterator<Item = (&Arc<str>, &LabelColumn)> {
        self.names.iter().zip(&self.columns)
    }

    /// Gives a label of a row; the empty text when it is absent.
    pub fn value(&self, row: usize, name: &str) -> &str {
        self.column(name).map_or("", |c| c.value(row))
    }

    /// Gives the metric name of a row.
    pub fn metric(&self, row: usize) -> &str {
        self.value(row, METRIC_NAME)
    }

    /// Walks the present labels of a row in name order.
    pub fn labels(&self, row: usize) -> impl Iterator<Item = (&str, &str)> {
        self.columns().filter(move |(_, c)| c.codes[row] != 0).map(move |(n, c)| (&**n, &**c.value(row)))
    }

    /// Keeps the given rows, in the given order (repeats allowed).
    #[must_use]
    pub fn take(&self, rows: &[u32]) -> Self {
        let columns = self.columns.iter().map(|c| LabelColumn {
            values: Arc::clone(&c.values),
            codes: Arc::new(rows.iter().map(|&r| c.codes[r as usize]).collect()),
        });
        Self { rows: rows.len(), names: self.names.clone(), columns: columns.collect() }
    }

    /// Keeps only the columns whose name the predicate accepts.
    #[must_use]
    pub fn keep(&self, mut like: impl FnMut(&str) -> bool) -> Self {
        let kept = self.columns().filter(|(n, _)| like(n)).map(|(n, c)| (Arc::clone(n), c.clone()));
        let (names, columns) = kept.unzip();
        Self { rows: self.rows, names, columns }
    }

    /// Replaces or adds a column; `None` removes it.
    #[must_use]
    pub fn with_column(&self, name: &str, column: Option<LabelColumn>) -> Self {
        let mut columns: BTreeMap<Arc<str>, LabelColumn> =
            self.columns().map(|(n, c)| (Arc::clone(n), c.clone())).collect();
        match column {
            Some(column) => columns.insert(Arc::from(name), column),
            None => columns.remove(name),
        };
        Self::new(self.rows, columns.into_iter().collect())
    }
}

/// Builds a [`SeriesTable`] row by row from label pairs in any order.
#[derive(Debug, Default)]
pub struct SeriesTableBuilder {
    rows: usize,
    columns: BTreeMap<Arc<str>, ColumnBuilder>,
}

#[derive(Debug)]
struct ColumnBuilder {
    values: Vec<Arc<str>>,
    lookup: std::collections::HashMap<Arc<str>, u32>,
    codes: Vec<u32>,
}

impl SeriesTableBuilder {
    /// Adds a row.
    pub fn push<'a>(&mut self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, value) in labels {
            if value.is_empty() {
                continue;
            }
            if !self.columns.contains_key(name) {
                let empty = ColumnBuilder {
                    values: vec![Arc::from("")],
                    lookup: std::collections::HashMap::default(),
                    codes: Vec::new(),
                };
                self.columns.insert(Arc::from(name), empty);
            }
            let column = self.columns.get_mut(name).expect("inserted above");
            column.codes.resize(self.rows, 0);
            let code = if let Some(&code) = column.lookup.get(value) {
                code
            } else {
                let value: Arc<str> = Arc::from(value);
                let code = column.values.len() as u32;
                column.values.push(Arc::clone(&value));
                column.lookup.insert(value, code);
                code
            };
            column.codes.push(code);
        }
        self.rows += 1;
    }

    /// Gives the table: a row per label set, in the order of pushing.
    pub fn finish(self) -> SeriesTable {
        let rows = self.rows;
        let columns = self.columns.into_iter().map(|(name, mut c)| {
            c.codes.resize(rows, 0);
            (name, LabelColumn { values: Arc::new(c.values), codes: Arc::new(c.codes) })
        });
        SeriesTable::new(rows, columns.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builder_take_keep() {
        let mut b = SeriesTableBuilder::default();
        b.push([("__name__", "m"), ("a", "1")]);
        b.push([("b", "2"), ("__name__", "m")]);
        b.push([]);
        let t = b.finish();
        assert_eq!(t.labels(0).collect::<Vec<_>>(), [("__name__", "m"), ("a", "1")]);
        assert_eq!(t.labels(2).count(), 0);
        let t = t.take(&[1, 1]);
        assert_eq!(t.len(), 2);
        assert_eq!(t.keep(|n| n != "__name__").labels(1).collect::<Vec<_>>(), [("b", "2")]);
        assert_eq!(t.with_column("b", None).value(0, "b"), "");
    }

    #[test]
    fn columns_are_replaced_and_narrowed() {
        let mut builder = SeriesTableBuilder::default();
        builder.push([("a", "1"), ("b", "")]);
        builder.push([("c", "x")]);
        builder.push([("a", "1"), ("c", "y")]);
        let table = builder.finish();
        let names = |table: &SeriesTable| table.names().iter().map(|name| (**name).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&table), ["a", "c"], "what has no value is no column");
        let values = |name: &str| (0..3).map(|row| table.value(row, name).to_owned()).collect::<Vec<_>>();
        assert_eq!(values("a"), ["1", "", "1"]);
        assert_eq!(values("c"), ["", "x", "y"]);
        assert_eq!((table.value(0, "b"), table.metric(0), table.column("b").is_none()), ("", "", true));
        let a = table.column("a").expect("there");
        assert_eq!((a.values.len(), a.codes.as_slice()), (2, &[1, 0, 1][..]), "each value stands once");
        // A column under another name, between others, and over one that is there.
        let more = table.with_column("b", Some(a.clone())).with_column("c", Some(a.clone()));
        assert_eq!(names(&more), ["a", "b", "c"]);
        assert_eq!(more.labels(2).collect::<Vec<_>>(), [("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!(names(&more.with_column("x", None)), ["a", "b", "c"]);
        let few = more.keep(|name| name == "b").take(&[1, 2, 2]);
        assert_eq!((few.len(), few.labels(0).count(), few.value(2, "b"), few.value(2, "a")), (3, 0, "1", ""));
        assert!(table.take(&[]).is_empty() && !SeriesTable::unlabelled().is_empty());
        assert_eq!(SeriesTable::unlabelled().labels(0).count(), 0);
    }
}
