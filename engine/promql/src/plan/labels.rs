//! The label phase: how operators map one table of series to the next. Works on dictionary codes, so each distinct
//! label value is handled once, not once per series.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use quiver_types::go_format::quote;
use quiver_types::label::METRIC_NAME;
use quiver_types::series::LabelColumn;
use quiver_types::{Result, SeriesTable};

use super::memory::Room;
use crate::cancellable_sort;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Labels that are dropped together with the metric name (`IsMetadataLabel` in `model/labels`).
pub(crate) const METADATA_LABELS: [&str; 3] = [METRIC_NAME, "__type__", "__unit__"];

/// Tells whether a label is dropped together with the metric name.
pub(crate) fn is_metadata(name: &str) -> bool {
    METADATA_LABELS.contains(&name)
}

/// Rows grouped by equal labels.
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

    /// Tells whether some group has more than one row.
    pub(crate) fn merges(&self) -> bool {
        self.first.len() < self.ids.len()
    }
}

/// Maximum memory per row of the map that is used for grouping.
const GROUP_BYTES: usize = 40;
/// Memory of a string besides its bytes: counters, pointer, entry in a lookup table.
const TEXT_BYTES: usize = 72;

/// Groups rows by the labels for which the predicate is true.
///
/// # Errors
/// LimitExceeded, Timeout, Cancelled; the same for the functions below.
pub(crate) fn group(room: &Room, table: &SeriesTable, mut like: impl FnMut(&str) -> bool) -> Result<Groups> {
    let rows = table.len();
    room.take_codes(rows * 2)?;
    let _map = room.lend(rows.saturating_mul(GROUP_BYTES))?;
    let mut ids = vec![0u32; rows];
    let mut first: Vec<u32> = if rows == 0 { vec![] } else { vec![0] };
    for (name, column) in table.columns() {
        let codes = &column.codes;
        room.did(rows / 8)?;
        if first.len() == rows || !like(name) || codes.windows(2).all(|w| w[0] == w[1]) {
            continue;
        }
        let mut seen: Map<u64, u32> = Map::with_capacity_and_hasher(first.len() * 2, RandomState::default());
        first.clear();
        for piece in room.pieces(rows) {
            for row in piece? {
                let key = u64::from(ids[row]) << 32 | u64::from(codes[row]);
                ids[row] = *seen.entry(key).or_insert_with(|| {
                    first.push(row as u32);
                    (first.len() - 1) as u32
                });
            }
        }
    }
    Ok(Groups { ids, first })
}

/// Groups rows by all their labels, but apart from each other those whose name goes at the end of the query and those
/// that keep it: they will be different series. Those without a name are the same, whether it would go or stay.
pub(crate) fn group_apart(room: &Room, table: &SeriesTable, dropped: &[bool]) -> Result<Groups> {
    let mut rows = group(room, table, |_| true)?;
    let names: Vec<&LabelColumn> = METADATA_LABELS.iter().filter_map(|name| table.column(name)).collect();
    if names.is_empty() || !rows.merges() || !dropped.contains(&true) || !dropped.contains(&false) {
        return Ok(rows);
    }
    let goes = |row: usize| dropped[row] && names.iter().any(|column| column.codes[row] != 0);
    let _places = room.lend(rows.len().saturating_mul(size_of::<[Option<u32>; 2]>()))?;
    room.take_codes(table.len())?;
    let (mut places, mut first) = (vec![[None; 2]; rows.len()], Vec::new());
    for piece in room.pieces(table.len()) {
        for row in piece? {
            let place = &mut places[rows.ids[row] as usize][usize::from(goes(row))];
            rows.ids[row] = *place.get_or_insert_with(|| {
                first.push(row as u32);
                (first.len() - 1) as u32
            });
        }
    }
    rows.first = first;
    Ok(rows)
}

/// Concatenates tables, uniting their dictionaries.
pub(crate) fn concat<'a>(room: &Room, tables: impl IntoIterator<Item = &'a SeriesTable>) -> Result<SeriesTable> {
    let tables: Vec<&SeriesTable> = tables.into_iter().collect();
    let rows = tables.iter().map(|t| t.len()).sum();
    let mut names: BTreeMap<&Arc<str>, Vec<Option<&LabelColumn>>> = BTreeMap::new();
    for (i, table) in tables.iter().enumerate() {
        room.did(table.names().len())?;
        for (name, column) in table.columns() {
            if !names.contains_key(name) {
                room.take(tables.len() * size_of::<usize>())?;
            }
            names.entry(name).or_insert_with(|| vec![None; tables.len()])[i] = Some(column);
        }
    }
    let united = |columns: Vec<Option<&LabelColumn>>| -> Result<LabelColumn> {
        room.take_codes(rows)?;
        let mut dictionary = Dictionary::default();
        let mut codes = Vec::with_capacity(rows);
        for (column, table) in columns.iter().zip(&tables) {
            room.did(1 + table.len() / 4)?;
            match column {
                // The first value of each dictionary is empty: no label.
                None => codes.resize(codes.len() + table.len(), 0),
                Some(column) => match dictionary.moved(room, &column.values)? {
                    None => codes.extend_from_slice(&column.codes),
                    Some(moved) => codes.extend(column.codes.iter().map(|&c| moved[c as usize])),
                },
            }
        }
        Ok(LabelColumn { values: dictionary.values(), codes: Arc::new(codes) })
    };
    let columns = names.into_iter().map(|(name, columns)| Ok((Arc::clone(name), united(columns)?)));
    Ok(SeriesTable::new(rows, columns.collect::<Result<Vec<_>>>()?))
}

/// A dictionary to which those of more columns are added.
#[derive(Default)]
struct Dictionary<'a> {
    values: Arc<Vec<Arc<str>>>,
    /// The values of the first column, as long as `codes` is not needed.
    first: Option<&'a Arc<Vec<Arc<str>>>>,
    codes: Map<&'a str, u32>,
}

impl<'a> Dictionary<'a> {
    fn values(self) -> Arc<Vec<Arc<str>>> {
        if self.values.is_empty() { Arc::new(vec![Arc::from("")]) } else { self.values }
    }

    /// Adds values; returns their new codes, or `None` if codes are unchanged.
    fn moved(&mut self, room: &Room, values: &'a Arc<Vec<Arc<str>>>) -> Result<Option<Vec<u32>>> {
        if self.values.is_empty() {
            (self.values, self.first) = (Arc::clone(values), Some(values));
            return Ok(None);
        }
        if Arc::ptr_eq(&self.values, values) {
            return Ok(None);
        }
        if let Some(first) = self.first.take() {
            room.take(first.len() * TEXT_BYTES)?;
            for (code, value) in first.iter().enumerate() {
                room.did_text(value.len())?;
                self.codes.insert(value, code as u32);
            }
        }
        room.take(values.len() * TEXT_BYTES)?;
        let mut moved = Vec::with_capacity(values.len());
        for value in values.iter() {
            room.did_text(value.len())?;
            moved.push(*self.codes.entry(value).or_insert_with(|| {
                let all = Arc::make_mut(&mut self.values);
                all.push(Arc::clone(value));
                (all.len() - 1) as u32
            }));
        }
        Ok(Some(moved))
    }
}

/// Collects the distinct values of a new label; the empty string means that the label is absent.
pub(crate) struct Values<'r> {
    room: &'r Room,
    texts: Vec<Arc<str>>,
    codes: Map<Arc<str>, u32>,
}

impl<'r> Values<'r> {
    /// Starts with the empty string.
    pub(crate) fn new(room: &'r Room) -> Self {
        let empty: Arc<str> = Arc::from("");
        Self { room, texts: vec![Arc::clone(&empty)], codes: Map::from_iter([(empty, 0)]) }
    }

    /// The code of a string; adds it if it is new.
    pub(crate) fn code(&mut self, text: &str) -> Result<u32> {
        self.room.did_text(text.len())?;
        if let Some(&code) = self.codes.get(text) {
            return Ok(code);
        }
        self.room.take(text.len() + TEXT_BYTES)?;
        let (text, code): (Arc<str>, u32) = (Arc::from(text), self.texts.len() as u32);
        self.texts.push(Arc::clone(&text));
        self.codes.insert(text, code);
        Ok(code)
    }

    /// The column with one code per row; memory of the codes must have been reserved by the caller.
    pub(crate) fn column(self, codes: Vec<u32>) -> LabelColumn {
        LabelColumn { values: Arc::new(self.texts), codes: Arc::new(codes) }
    }
}

/// Makes a column from one string per row.
pub(crate) fn column<'a>(room: &Room, rows: usize, texts: impl IntoIterator<Item = &'a str>) -> Result<LabelColumn> {
    room.take_codes(rows)?;
    let mut values = Values::new(room);
    let codes = texts.into_iter().map(|text| values.code(text)).collect::<Result<_>>()?;
    Ok(values.column(codes))
}

/// Removes name, type and unit from the rows that are flagged.
pub(crate) fn drop_names(room: &Room, table: &SeriesTable, flags: &[bool]) -> Result<SeriesTable> {
    if !flags.contains(&true) {
        return Ok(table.clone());
    }
    if flags.iter().all(|f| *f) {
        return Ok(table.keep(|n| !is_metadata(n)));
    }
    let mut out = table.clone();
    for name in METADATA_LABELS {
        if let Some(column) = table.column(name) {
            room.take_codes(table.len())?;
            let codes = column.codes.iter().zip(flags).map(|(&c, &f)| if f { 0 } else { c }).collect();
            let column = LabelColumn { values: Arc::clone(&column.values), codes: Arc::new(codes) };
            out = out.with_column(name, Some(column));
        }
    }
    Ok(out)
}

/// Rows in the order of results: labels are compared pair by pair, by name, then value; a prefix comes first.
pub(crate) fn sorted(room: &Room, table: &SeriesTable) -> Result<Vec<u32>> {
    let order = Order::new(room, table)?;
    sort_numbers(room, table.len(), |a, b| order.compare(a, b))
}

/// The position of each row in [`sorted`].
pub(crate) fn ranks(room: &Room, table: &SeriesTable) -> Result<Vec<u32>> {
    room.take_codes(table.len())?;
    let mut ranks = vec![0u32; table.len()];
    sorted(room, table)?.into_iter().zip(0..).for_each(|(row, rank)| ranks[row as usize] = rank);
    Ok(ranks)
}

/// Sorts the numbers below `count`; the sort is stable.
pub(crate) fn sort_numbers(room: &Room, count: usize, compare: impl Fn(u32, u32) -> Ordering) -> Result<Vec<u32>> {
    room.take(count * cancellable_sort::BYTES)?;
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    cancellable_sort::sort_numbers(&mut numbers, |comparisons| room.did(comparisons), compare)?;
    Ok(numbers)
}

/// Compares rows of a table by their labels.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// For each column the codes, and the rank of each code's value.
    columns: Vec<(&'a [u32], Vec<u32>)>,
}

impl<'a> Order<'a> {
    /// Ranks the values of each column once.
    pub(crate) fn new(room: &Room, table: &'a SeriesTable) -> Result<Self> {
        let ranked = |column: &'a LabelColumn| -> Result<_> {
            let values = &column.values;
            let by_value = sort_numbers(room, values.len(), |a, b| values[a as usize].cmp(&values[b as usize]))?;
            room.take_codes(values.len())?;
            let mut ranks = vec![0u32; by_value.len()];
            for (rank, code) in by_value.into_iter().enumerate() {
                ranks[code as usize] = rank as u32;
            }
            Ok((column.codes.as_slice(), ranks))
        };
        Ok(Self { columns: table.columns().map(|(_, c)| ranked(c)).collect::<Result<_>>()? })
    }

    /// Compares two rows.
    pub(crate) fn compare(&self, a: u32, b: u32) -> Ordering {
        for (i, (codes, ranks)) in self.columns.iter().enumerate() {
            let (x, y) = (codes[a as usize], codes[b as usize]);
            if x == y {
                continue;
            }
            // The row without this label either continues with a label of a greater name, or ends here and is shorter.
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

/// Formats labels like Prometheus in messages: `{__name__="a", b="c"}`.
pub(crate) fn show<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = labels.into_iter().map(|(n, v)| format!("{}={}", show_name(n), quote(v))).collect();
    format!("{{{}}}", pairs.join(", "))
}

fn show_name(name: &str) -> String {
    let plain =
        name.bytes().enumerate().all(|(i, b)| b == b'_' || b.is_ascii_alphabetic() || (i > 0 && b.is_ascii_digit()));
    if plain && !name.is_empty() { name.to_owned() } else { quote(name) }
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
        let room = Room::unbounded();
        let t = table(&[&[("a", "1"), ("b", "x")], &[("a", "2"), ("b", "x")], &[("a", "1"), ("b", "y")], &[]]);
        assert_eq!(group(&room, &t, |n| n == "a").unwrap().ids, [0, 1, 0, 2]);
        assert_eq!(group(&room, &t, |n| n == "b").unwrap().first, [0, 2, 3]);
        assert_eq!(group(&room, &t, |_| false).unwrap().len(), 1);
        assert!(!group(&room, &t, |_| true).unwrap().merges());
        assert_eq!(group(&room, &table(&[]), |_| true).unwrap().len(), 0);
    }

    #[test]
    fn concat_unites_dictionaries() {
        let room = Room::unbounded();
        let first = table(&[&[("a", "1"), ("b", "x")]]);
        let others = [table(&[&[("a", "2")], &[("a", "1"), ("c", "z")]]), table(&[&[("a", "2")]])];
        let t = concat(&room, [&first, &others[0], &first, &others[1]]).unwrap();
        assert_eq!(t.labels(1).collect::<Vec<_>>(), [("a", "2")]);
        assert_eq!(t.labels(2).collect::<Vec<_>>(), [("a", "1"), ("c", "z")]);
        assert_eq!(t.labels(3).collect::<Vec<_>>(), [("a", "1"), ("b", "x")]);
        assert_eq!(group(&room, &t, |n| n == "a").unwrap().ids, [0, 1, 0, 0, 1]);
    }

    #[test]
    fn order_of_answers() {
        let t = table(&[&[("b", "1")], &[("a", "2")], &[("a", "10"), ("b", "1")], &[], &[("a", "10")]]);
        assert_eq!(sorted(&Room::unbounded(), &t).unwrap(), [3, 4, 2, 1, 0]);
    }

    #[test]
    fn names_go() {
        let t = table(&[&[("__name__", "m"), ("a", "1")], &[("__name__", "m"), ("__unit__", "s")]]);
        let dropped = drop_names(&Room::unbounded(), &t, &[false, true]).unwrap();
        assert_eq!(dropped.labels(0).count(), 2);
        assert_eq!(dropped.labels(1).count(), 0);
        assert_eq!(show(t.labels(0)), r#"{__name__="m", a="1"}"#);
    }

    #[test]
    fn tables_that_do_not_fit_are_not_made() {
        let t = table(&[&[("a", "1")], &[("a", "2")]]);
        let (small, large) = (Room::bounded(16), Room::bounded(1 << 16));
        assert_eq!(group(&small, &t, |_| true).unwrap_err().kind, quiver_types::ErrorKind::LimitExceeded);
        assert!(group(&large, &t, |_| true).is_ok());
        assert!(concat(&small, [&t, &t]).is_err() && concat(&large, [&t, &t]).is_ok());
        assert!(column(&large, 1, ["x".repeat(1 << 16).as_str()]).is_err());
        assert!(column(&large, 1, ["x".repeat(1 << 12).as_str()]).is_ok());
    }

    #[test]
    fn order_by_name_then_value_then_length() {
        let rows: [&[(&str, &str)]; 8] = [
            &[("a", "1"), ("c", "1")],
            &[("a", "1"), ("b", "9")],
            &[("a", "1")],
            &[("b", "0")],
            &[],
            &[("a", "ä")],
            &[("A", "z")],
            &[("a", "1"), ("b", "9"), ("c", "0")],
        ];
        let t = table(&rows);
        let order = sorted(&Room::unbounded(), &t).unwrap();
        // As lists of pairs compare, byte by byte.
        let mut expected: Vec<u32> = (0..8).collect();
        expected.sort_by(|&a, &b| rows[a as usize].cmp(rows[b as usize]));
        assert_eq!(order, expected);
        let places = ranks(&Room::unbounded(), &t).unwrap();
        assert!(order.iter().zip(0..).all(|(&row, rank)| places[row as usize] == rank));
        assert!(sorted(&Room::unbounded(), &table(&[])).unwrap().is_empty());
        assert_eq!(
            sorted(&Room::unbounded(), &table(&[&[("a", "1")], &[("a", "1")]])).unwrap(),
            [0, 1],
            "equal rows stay"
        );
    }

    #[test]
    fn new_values_are_kept_once() {
        let room = Room::unbounded();
        let texts = ["b", "", "a", "b", "", "ü"];
        let made = column(&room, texts.len(), texts).unwrap();
        assert_eq!(*made.codes, [1, 0, 2, 1, 0, 3]);
        assert_eq!(made.values.iter().map(|v| &**v).collect::<Vec<_>>(), ["", "b", "a", "ü"]);
        assert_eq!(column(&room, 0, []).unwrap().values.len(), 1, "the empty text is there from the first");
    }

    /// Breaks if a row that loses its name takes that of a row with the same labels away, or keeps it by that.
    #[test]
    fn rows_that_lose_their_name_are_apart_from_those_that_keep_it() {
        let room = Room::unbounded();
        let labels = |a: &'static str| [("__name__", "m"), ("a", a)];
        let (one, two) = (labels("1"), labels("2"));
        let t = table(&[&one, &two, &one, &two, &one]);
        let check = |dropped: [bool; 5], ids: &[u32], first: &[u32]| {
            let rows = group_apart(&room, &t, &dropped).unwrap();
            assert_eq!((rows.ids.as_slice(), rows.first.as_slice()), (ids, first), "{dropped:?}");
        };
        check([false; 5], &[0, 1, 0, 1, 0], &[0, 1]);
        check([true; 5], &[0, 1, 0, 1, 0], &[0, 1]);
        check([false, false, true, false, true], &[0, 1, 2, 1, 2], &[0, 1, 2]);
        check([true, false, false, true, true], &[0, 1, 2, 3, 0], &[0, 1, 2, 3]);
        // `sum(a) or 0 * sum(a)` is one series: an aggregation has no name that could go.
        let unnamed: &[(&str, &str)] = &[("a", "1")];
        for t in [table(&[unnamed, unnamed]), table(&[unnamed, unnamed, &one])] {
            let rows = group_apart(&room, &t, &[true, false, false][..t.len()]).unwrap();
            assert_eq!(rows.ids[..2], [0, 0], "{:?}", rows.ids);
        }
    }

    #[test]
    fn names_of_some_rows_or_of_all() {
        let room = Room::unbounded();
        let t =
            table(&[&[("__name__", "m"), ("__type__", "gauge"), ("a", "1")], &[("__name__", "n"), ("__unit__", "s")]]);
        let shown = |flags: &[bool]| {
            let t = drop_names(&room, &t, flags).unwrap();
            (0..t.len()).map(|row| show(t.labels(row))).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[true, true]), [r#"{a="1"}"#, "{}"]);
        assert_eq!(shown(&[true, false]), [r#"{a="1"}"#, r#"{__name__="n", __unit__="s"}"#]);
        assert_eq!(
            shown(&[false, false]),
            [r#"{__name__="m", __type__="gauge", a="1"}"#, r#"{__name__="n", __unit__="s"}"#]
        );
        assert_eq!(
            show([("a b", "x\"\n"), ("1a", ""), ("", "ü"), ("a:b", "c")]),
            r#"{"a b"="x\"\n", "1a"="", ""="ü", "a:b"="c"}"#
        );
    }
}
