//! The label phase: how operators map one table of series to the next. Works on dictionary codes, so a label value is
//! looked at once per distinct value, not once per series.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use quiver_types::SeriesTable;
use quiver_types::label::METRIC_NAME;
use quiver_types::series::LabelColumn;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Labels that go with the metric name (`model/labels` `IsMetadataLabel`).
pub(crate) const METADATA_LABELS: [&str; 3] = [METRIC_NAME, "__type__", "__unit__"];

/// Says whether a label goes with the metric name.
pub(crate) fn is_metadata(name: &str) -> bool {
    METADATA_LABELS.contains(&name)
}

/// Rows with equal labels brought together.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    /// Group of each row.
    pub(crate) ids: Vec<u32>,
    /// First row of each group.
    pub(crate) first: Vec<u32>,
}

impl Groups {
    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.first.len()
    }

    /// Says whether some group has more than one row.
    pub(crate) fn merges(&self) -> bool {
        self.first.len() < self.ids.len()
    }
}

/// Groups rows by the labels that the predicate likes.
pub(crate) fn group(table: &SeriesTable, mut like: impl FnMut(&str) -> bool) -> Groups {
    let rows = table.len();
    let mut ids = vec![0u32; rows];
    let mut first: Vec<u32> = if rows == 0 { vec![] } else { vec![0] };
    for (name, column) in table.columns() {
        let codes = &column.codes;
        if first.len() == rows || !like(name) || codes.windows(2).all(|w| w[0] == w[1]) {
            continue;
        }
        let mut seen: Map<u64, u32> = Map::with_capacity_and_hasher(first.len() * 2, RandomState::default());
        first.clear();
        for (row, id) in ids.iter_mut().enumerate() {
            let key = u64::from(*id) << 32 | u64::from(codes[row]);
            *id = *seen.entry(key).or_insert_with(|| {
                first.push(row as u32);
                (first.len() - 1) as u32
            });
        }
    }
    Groups { ids, first }
}

/// Puts the rows of tables under each other, with dictionaries united.
pub(crate) fn concat<'a>(tables: impl IntoIterator<Item = &'a SeriesTable>) -> SeriesTable {
    let tables: Vec<&SeriesTable> = tables.into_iter().collect();
    let rows = tables.iter().map(|t| t.len()).sum();
    let mut names: BTreeMap<&Arc<str>, Vec<Option<&LabelColumn>>> = BTreeMap::new();
    for (i, table) in tables.iter().enumerate() {
        for (name, column) in table.columns() {
            names.entry(name).or_insert_with(|| vec![None; tables.len()])[i] = Some(column);
        }
    }
    let united = |columns: Vec<Option<&LabelColumn>>| {
        let mut dictionary = Dictionary::default();
        let mut codes = Vec::with_capacity(rows);
        for (column, table) in columns.iter().zip(&tables) {
            match column {
                // The first value of each dictionary is the empty text: no label.
                None => codes.resize(codes.len() + table.len(), 0),
                Some(column) => match dictionary.moved(&column.values) {
                    None => codes.extend_from_slice(&column.codes),
                    Some(moved) => codes.extend(column.codes.iter().map(|&c| moved[c as usize])),
                },
            }
        }
        LabelColumn { values: dictionary.values(), codes: Arc::new(codes) }
    };
    let columns = names.into_iter().map(|(name, columns)| (Arc::clone(name), united(columns))).collect();
    SeriesTable::new(rows, columns)
}

/// A dictionary to which those of further columns are added.
#[derive(Default)]
struct Dictionary<'a> {
    values: Arc<Vec<Arc<str>>>,
    /// The values of the first column, until `codes` is needed.
    first: Option<&'a Arc<Vec<Arc<str>>>>,
    codes: Map<&'a str, u32>,
}

impl<'a> Dictionary<'a> {
    fn values(self) -> Arc<Vec<Arc<str>>> {
        if self.values.is_empty() { Arc::new(vec![Arc::from("")]) } else { self.values }
    }

    /// Adds values; gives their codes where they are others.
    fn moved(&mut self, values: &'a Arc<Vec<Arc<str>>>) -> Option<Vec<u32>> {
        if self.values.is_empty() {
            (self.values, self.first) = (Arc::clone(values), Some(values));
            return None;
        }
        if Arc::ptr_eq(&self.values, values) {
            return None;
        }
        if let Some(first) = self.first.take() {
            self.codes = first.iter().zip(0..).map(|(v, i)| (&**v, i)).collect();
        }
        let code = |v: &'a Arc<str>| {
            *self.codes.entry(&**v).or_insert_with(|| {
                let all = Arc::make_mut(&mut self.values);
                all.push(Arc::clone(v));
                (all.len() - 1) as u32
            })
        };
        Some(values.iter().map(code).collect())
    }
}

/// Makes a column from one text per row; the empty text means that the label is absent.
pub(crate) fn column<'a>(texts: impl IntoIterator<Item = &'a str>) -> LabelColumn {
    let mut values: Vec<Arc<str>> = vec![Arc::from("")];
    let mut lookup: Map<&'a str, u32> = Map::default();
    lookup.insert("", 0);
    let codes = texts
        .into_iter()
        .map(|text| {
            *lookup.entry(text).or_insert_with(|| {
                values.push(Arc::from(text));
                (values.len() - 1) as u32
            })
        })
        .collect();
    LabelColumn { values: Arc::new(values), codes: Arc::new(codes) }
}

/// Takes name, type and unit away from the rows that are flagged.
pub(crate) fn drop_names(table: &SeriesTable, flags: &[bool]) -> SeriesTable {
    if !flags.contains(&true) {
        return table.clone();
    }
    if flags.iter().all(|f| *f) {
        return table.keep(|n| !is_metadata(n));
    }
    let mut out = table.clone();
    for name in METADATA_LABELS {
        if let Some(column) = table.column(name) {
            let codes = column.codes.iter().zip(flags).map(|(&c, &f)| if f { 0 } else { c }).collect();
            let column = LabelColumn { values: Arc::clone(&column.values), codes: Arc::new(codes) };
            out = out.with_column(name, Some(column));
        }
    }
    out
}

/// Gives the rows in the order in which answers list them: labels compared pair by pair, name then value, the shorter
/// set first.
pub(crate) fn sorted(table: &SeriesTable) -> Vec<u32> {
    let order = Order::new(table);
    let mut rows: Vec<u32> = (0..table.len() as u32).collect();
    rows.sort_by(|&a, &b| order.compare(a, b));
    rows
}

/// Compares rows of a table by their labels.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// Per column the codes, and the rank of each code among the values.
    columns: Vec<(&'a [u32], Vec<u32>)>,
}

impl<'a> Order<'a> {
    /// Ranks the values of each column once.
    pub(crate) fn new(table: &'a SeriesTable) -> Self {
        let ranked = |column: &'a LabelColumn| {
            let mut by_value: Vec<u32> = (0..column.values.len() as u32).collect();
            by_value.sort_unstable_by(|&a, &b| column.values[a as usize].cmp(&column.values[b as usize]));
            let mut ranks = vec![0u32; by_value.len()];
            for (rank, code) in by_value.into_iter().enumerate() {
                ranks[code as usize] = rank as u32;
            }
            (column.codes.as_slice(), ranks)
        };
        Self { columns: table.columns().map(|(_, c)| ranked(c)).collect() }
    }

    /// Compares two rows.
    pub(crate) fn compare(&self, a: u32, b: u32) -> Ordering {
        for (i, (codes, ranks)) in self.columns.iter().enumerate() {
            let (x, y) = (codes[a as usize], codes[b as usize]);
            if x == y {
                continue;
            }
            // The row without this label either goes on with a label of a greater name, or ends here and is shorter.
            let more = |row: u32| self.columns[i + 1..].iter().any(|(codes, _)| codes[row as usize] != 0);
            return match (x, y) {
                (0, _) => {
                    if more(a) {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    }
                }
                (_, 0) => {
                    if more(b) {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
                _ => ranks[x as usize].cmp(&ranks[y as usize]),
            };
        }
        Ordering::Equal
    }
}

/// Writes the labels of a row as Prometheus shows them in messages: `{__name__="a", b="c"}`.
pub(crate) fn show<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = labels.into_iter().map(|(n, v)| format!("{}={}", show_name(n), quoted(v))).collect();
    format!("{{{}}}", pairs.join(", "))
}

fn show_name(name: &str) -> String {
    let plain =
        name.bytes().enumerate().all(|(i, b)| b == b'_' || b.is_ascii_alphabetic() || (i > 0 && b.is_ascii_digit()));
    if plain && !name.is_empty() { name.to_owned() } else { quoted(name) }
}

/// Quotes a text as Go's `strconv.Quote` does.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use quiver_types::series::SeriesTableBuilder;

    use super::*;

    fn table(rows: &[&[(&str, &str)]]) -> SeriesTable {
        let mut b = SeriesTableBuilder::default();
        for row in rows {
            b.push(row.iter().copied());
        }
        b.finish()
    }

    #[test]
    fn groups() {
        let t = table(&[&[("a", "1"), ("b", "x")], &[("a", "2"), ("b", "x")], &[("a", "1"), ("b", "y")], &[]]);
        assert_eq!(group(&t, |n| n == "a").ids, [0, 1, 0, 2]);
        assert_eq!(group(&t, |n| n == "b").first, [0, 2, 3]);
        assert_eq!(group(&t, |_| false).len(), 1);
        assert!(!group(&t, |_| true).merges());
        assert_eq!(group(&table(&[]), |_| true).len(), 0);
    }

    #[test]
    fn concat_unites_dictionaries() {
        let first = table(&[&[("a", "1"), ("b", "x")]]);
        let t = concat([&first, &table(&[&[("a", "2")], &[("a", "1"), ("c", "z")]]), &first, &table(&[&[("a", "2")]])]);
        assert_eq!(t.labels(1).collect::<Vec<_>>(), [("a", "2")]);
        assert_eq!(t.labels(2).collect::<Vec<_>>(), [("a", "1"), ("c", "z")]);
        assert_eq!(t.labels(3).collect::<Vec<_>>(), [("a", "1"), ("b", "x")]);
        assert_eq!(group(&t, |n| n == "a").ids, [0, 1, 0, 0, 1]);
    }

    #[test]
    fn order_of_answers() {
        let t = table(&[&[("b", "1")], &[("a", "2")], &[("a", "10"), ("b", "1")], &[], &[("a", "10")]]);
        assert_eq!(sorted(&t), [3, 4, 2, 1, 0]);
    }

    #[test]
    fn names_go() {
        let t = table(&[&[("__name__", "m"), ("a", "1")], &[("__name__", "m"), ("__unit__", "s")]]);
        let dropped = drop_names(&t, &[false, true]);
        assert_eq!(dropped.labels(0).count(), 2);
        assert_eq!(dropped.labels(1).count(), 0);
        assert_eq!(show(t.labels(0)), r#"{__name__="m", a="1"}"#);
    }
}
