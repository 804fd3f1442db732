//! The union of the series of several sources (parts, live data) in one table in series order.
//!
//! Series are identified by their 128-bit id alone. Sources mostly list them in the same order, so the union walks two
//! lists side by side and uses a hash map only where they differ. Labels are read only for series that are new to the
//! union, and sorting compares dictionary codes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use quiver_types::label::METRIC_NAME;
use quiver_types::series::LabelColumn;
use quiver_types::{ReadStats, Result, SeriesId, SeriesTable};

use super::dictionary::{CodedColumn, unite_columns};

/// Estimated memory of a series besides its labels.
const SERIES_BYTES: usize = 48;

/// A list of distinct series.
#[async_trait]
pub(crate) trait SeriesList: Sync {
    /// Identities of the series, in the order of the list.
    fn ids(&self) -> &[SeriesId];
    /// Tells whether that is series order.
    fn is_sorted(&self) -> bool {
        true
    }
    /// Label columns, sorted by name, of the series at the given ascending positions (`None` means all). Labels and
    /// values that none of these series has are left out. If `names` is given, only those labels.
    ///
    /// # Errors
    /// Those of the memory gate, which is asked before memory is used; those of reading.
    async fn columns(
        &self,
        places: Option<&[u32]>,
        names: Option<&[String]>,
        stats: &ReadStats,
    ) -> Result<Vec<CodedColumn>>;
    /// Identities and labels of all series, if available in series order.
    fn table(&self) -> Option<(Arc<Vec<SeriesId>>, Arc<SeriesTable>)> {
        None
    }
}

/// Series in series order, with the row of each source's series.
#[derive(Debug, Clone)]
pub(crate) struct Union {
    pub(crate) ids: Arc<Vec<SeriesId>>,
    /// Labels; the values of each column are sorted.
    pub(crate) table: Arc<SeriesTable>,
    /// For each source and each of its series, the row.
    pub(crate) rows: Vec<Vec<u32>>,
}

/// Tells whether the union is in the order of one of the sources, so that no labels are needed for sorting.
pub(crate) fn is_one_list(sources: &[&dyn SeriesList]) -> bool {
    let entries = Entries::collect(sources);
    match entries.runs[..] {
        [] => true,
        [SourceRun { source, places: None }] => sources[source].is_sorted(),
        _ => false,
    }
}

/// Unites sources; the table gets the labels in `names`, or all. A source whose series are all in an earlier source
/// costs only two passes over its ids. If series of several sources interleave, all their labels are read, whatever is
/// requested, because the order of the rows depends on them.
///
/// # Errors
/// Those of the memory gate, and of reading.
pub(crate) async fn unite(sources: &[&dyn SeriesList], names: Option<&[String]>, stats: &ReadStats) -> Result<Union> {
    // Identity, place and entry of each series.
    stats.take(sources.iter().map(|source| source.ids().len()).sum::<usize>() * SERIES_BYTES)?;
    stats.check()?;
    let entries = Entries::collect(sources);
    let mut sorted = false;
    if let [SourceRun { source, places: None }] = entries.runs[..] {
        if let Some((ids, table)) = sources[source].table() {
            return Ok(Union { ids, table, rows: entries.places });
        }
        sorted = sources[source].is_sorted();
    }
    let read = names.filter(|_| sorted);
    let rows = entries.ids.len();
    let mut by_name: BTreeMap<Arc<str>, Vec<(usize, CodedColumn)>> = BTreeMap::new();
    let mut first = 0;
    for run in &entries.runs {
        let source = sources[run.source];
        stats.check()?;
        for column in source.columns(run.places.as_deref(), read, stats).await? {
            by_name.entry(Arc::clone(&column.name)).or_default().push((first, column));
        }
        first += run.places.as_ref().map_or(source.ids().len(), Vec::len);
    }
    let codes_bytes = rows * size_of::<u32>();
    let mut columns = Vec::with_capacity(by_name.len());
    for (name, parts) in by_name {
        stats.take(codes_bytes)?;
        stats.check()?;
        let bytes: usize = parts.iter().map(|(_, part)| part.codes.len() * size_of::<u32>()).sum();
        columns.push(unite_columns(name, rows, parts));
        stats.give_back(bytes);
    }
    let order = SeriesOrder::new(&columns);
    let wanted = |column: &CodedColumn| names.is_none_or(|names| names.iter().any(|name| **name == *column.name));
    if sorted || (1..rows).all(|row| order.compare(row - 1, row).is_lt()) {
        columns.retain(wanted);
        return Ok(Union { ids: Arc::new(entries.ids), table: Arc::new(table(rows, columns)), rows: entries.places });
    }
    stats.take(codes_bytes * (columns.len() + 2))?;
    stats.check()?;
    let mut sorted: Vec<u32> = (0..rows as u32).collect();
    // The stable sort detects the sorted runs of the sources and merges them.
    sorted.sort_by(|&a, &b| order.compare(a as usize, b as usize));
    let take = |codes: &[u32]| sorted.iter().map(|&entry| codes[entry as usize]).collect();
    let take_column = |c: &CodedColumn| CodedColumn {
        name: Arc::clone(&c.name),
        values: Arc::clone(&c.values),
        codes: take(&c.codes),
    };
    let columns: Vec<_> = columns.iter().filter(|column| wanted(column)).map(take_column).collect();
    stats.give_back(codes_bytes * columns.len());
    let ids = sorted.iter().map(|&entry| entries.ids[entry as usize]).collect();
    let mut row_of = vec![0u32; rows];
    sorted.iter().zip(0..).for_each(|(&entry, row)| row_of[entry as usize] = row);
    let mut places = entries.places;
    places.iter_mut().flatten().for_each(|entry| *entry = row_of[*entry as usize]);
    Ok(Union { ids: Arc::new(ids), table: Arc::new(table(rows, columns)), rows: places })
}

fn table(rows: usize, columns: Vec<CodedColumn>) -> SeriesTable {
    let columns = columns.into_iter().map(|c| (c.name, LabelColumn { values: c.values, codes: Arc::new(c.codes) }));
    SeriesTable::new(rows, columns.collect())
}

/// The series of one source that no earlier source has.
struct SourceRun {
    source: usize,
    /// Their positions in the source; `None` means all.
    places: Option<Vec<u32>>,
}

/// Distinct series of all sources, run by run.
#[derive(Default)]
struct Entries {
    ids: Vec<SeriesId>,
    runs: Vec<SourceRun>,
    /// For each source and each of its series, the entry.
    places: Vec<Vec<u32>>,
}

impl Entries {
    fn collect(sources: &[&dyn SeriesList]) -> Self {
        // Largest source first: mostly, the others are subsets of it.
        let mut order: Vec<usize> = (0..sources.len()).filter(|&s| !sources[s].ids().is_empty()).collect();
        order.sort_by_key(|&s| std::cmp::Reverse(sources[s].ids().len()));
        let mut out = Self { places: vec![Vec::new(); sources.len()], ..Self::default() };
        let mut lookup: Option<HashMap<SeriesId, u32, foldhash::fast::RandomState>> = None;
        for s in order {
            let ids = sources[s].ids();
            if out.ids.is_empty() {
                out.ids.extend_from_slice(ids);
                out.places[s] = (0..ids.len() as u32).collect();
                out.runs.push(SourceRun { source: s, places: None });
                continue;
            }
            let (mut places, mut new, mut next) = (Vec::with_capacity(ids.len()), Vec::new(), 0);
            for (i, &id) in ids.iter().enumerate() {
                if out.ids.get(next) != Some(&id) {
                    let lookup = lookup.get_or_insert_with(|| out.ids.iter().copied().zip(0..).collect());
                    match lookup.entry(id) {
                        Entry::Occupied(known) => next = *known.get() as usize,
                        Entry::Vacant(vacant) => {
                            places.push(*vacant.insert(out.ids.len() as u32));
                            out.ids.push(id);
                            new.push(i as u32);
                            continue;
                        }
                    }
                }
                places.push(next as u32);
                next += 1;
            }
            out.places[s] = places;
            if !new.is_empty() {
                out.runs.push(SourceRun { source: s, places: Some(new) });
            }
        }
        out
    }
}

/// Compares series by codes, in series order (`LabelSet::cmp_series`).
struct SeriesOrder<'a> {
    metric: Option<&'a [u32]>,
    others: Vec<&'a [u32]>,
}

impl<'a> SeriesOrder<'a> {
    fn new(columns: &'a [CodedColumn]) -> Self {
        let of_metric = |c: &&CodedColumn| &*c.name == METRIC_NAME;
        Self {
            metric: columns.iter().find(of_metric).map(|c| &c.codes[..]),
            others: columns.iter().filter(|c| !of_metric(c)).map(|c| &c.codes[..]).collect(),
        }
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        if let Some(metric) = self.metric
            && metric[a] != metric[b]
        {
            return metric[a].cmp(&metric[b]);
        }
        let Some(differs) = self.others.iter().position(|codes| codes[a] != codes[b]) else {
            return Ordering::Equal;
        };
        let (x, y) = (self.others[differs][a], self.others[differs][b]);
        // If only one has the label, the other's next label has a greater name; without a next label it is a prefix,
        // and so comes first.
        let ends = |row: usize| self.others[differs..].iter().all(|codes| codes[row] == 0);
        match (x, y) {
            (0, _) => {
                if ends(a) {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (_, 0) => {
                if ends(b) {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            _ => x.cmp(&y),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use quiver_types::LabelSet;

    use super::*;

    struct Sets(Vec<LabelSet>, Vec<SeriesId>);

    #[async_trait]
    impl SeriesList for Sets {
        fn ids(&self) -> &[SeriesId] {
            &self.1
        }

        fn is_sorted(&self) -> bool {
            self.0.is_sorted_by(|a, b| a.cmp_series(b).is_lt())
        }

        async fn columns(
            &self,
            places: Option<&[u32]>,
            wanted: Option<&[String]>,
            _: &ReadStats,
        ) -> Result<Vec<CodedColumn>> {
            let all: Vec<u32> = (0..self.0.len() as u32).collect();
            let sets: Vec<_> = places.unwrap_or(&all).iter().map(|&i| &self.0[i as usize]).collect();
            let names: BTreeSet<&str> = sets.iter().flat_map(|set| set.iter().map(|l| l.0)).collect();
            let names = names.into_iter().filter(|n| wanted.is_none_or(|w| w.iter().any(|w| w == n)));
            let column = |name: &str| {
                let values: BTreeSet<&str> = sets.iter().map(|set| set.get(name)).chain([""]).collect();
                let values: Vec<Arc<str>> = values.into_iter().map(Arc::from).collect();
                let code = |set: &&LabelSet| values.partition_point(|v| **v < *set.get(name)) as u32;
                let codes = sets.iter().map(code).collect();
                CodedColumn { name: Arc::from(name), values: Arc::new(values), codes }
            };
            Ok(names.map(column).collect())
        }
    }

    fn label_set() -> impl Strategy<Value = LabelSet> {
        let pairs = proptest::collection::vec((0..4usize, 0..3usize), 0..5);
        (0..3usize, pairs).prop_map(|(metric, pairs)| {
            let names = ["A", "a", "b", "z"];
            let values = ["", "1", "2"];
            let metric = ("__name__", ["l", "m", "n"][metric]);
            LabelSet::from_pairs(pairs.iter().map(|&(n, v)| (names[n], values[v])).chain([metric]))
        })
    }

    proptest! {
        #[test]
        fn union_is_sorted_and_complete(
            lists in proptest::collection::vec(proptest::collection::vec(label_set(), 0..20), 0..5),
            sort in proptest::bool::ANY,
        ) {
            let mut sources = Vec::new();
            for mut list in lists {
                list.sort_by(LabelSet::cmp_series);
                list.dedup();
                if !sort {
                    list.reverse();
                }
                let ids = list.iter().map(LabelSet::id).collect();
                sources.push(Sets(list, ids));
            }
            let lists: Vec<_> = sources.iter().map(|s| s as &dyn SeriesList).collect();
            let stats = ReadStats::default();
            let union = futures::executor::block_on(unite(&lists, None, &stats)).unwrap();
            let wanted = ["A".to_owned(), "b".to_owned()];
            let narrow = futures::executor::block_on(unite(&lists, Some(&wanted), &stats)).unwrap();
            prop_assert_eq!((&narrow.ids, &narrow.rows), (&union.ids, &union.rows));
            for row in 0..narrow.table.len() {
                let expected: Vec<_> = union.table.labels(row).filter(|l| wanted.iter().any(|w| w == l.0)).collect();
                prop_assert_eq!(narrow.table.labels(row).collect::<Vec<_>>(), expected);
            }
            let mut expected: Vec<_> = sources.iter().flat_map(|s| s.0.clone()).collect();
            expected.sort_by(LabelSet::cmp_series);
            expected.dedup();
            let rows: Vec<_> = (0..union.table.len()).map(|r| LabelSet::from_pairs(union.table.labels(r))).collect();
            prop_assert_eq!(&rows, &expected);
            let ids: Vec<_> = rows.iter().map(LabelSet::id).collect();
            prop_assert_eq!(&ids, &*union.ids);
            for (source, places) in sources.iter().zip(&union.rows) {
                let found: Vec<_> = places.iter().map(|&row| rows[row as usize].clone()).collect();
                prop_assert_eq!(&found, &source.0);
            }
        }
    }
}
