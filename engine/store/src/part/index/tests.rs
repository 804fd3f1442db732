#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

use std::collections::{BTreeMap, BTreeSet};

use quiver_types::ErrorKind;

use super::super::label_pairs::PairTable;
use super::super::tests::{Budget, block_on, open, series, write};
use super::*;

/// Series by number: label sets with shared and own values, one without labels among them.
fn sets() -> Vec<Vec<(String, String)>> {
    let set = |n: u32| {
        let label = |name: &str, value: String| (name.to_owned(), value);
        let mut set = vec![label("__name__", format!("m{}", n % 3)), label("id", format!("{:03}", n * 7 % 200))];
        if n.is_multiple_of(2) {
            set.push(label("zone", ["eu-a", "eu-b", "us", "é", "ü"][n as usize % 5].to_owned()));
        }
        if n == 17 { Vec::new() } else { set }
    };
    (0..200).map(set).collect()
}

/// What the index says, by label and value.
fn model() -> BTreeMap<String, BTreeMap<String, Vec<u32>>> {
    let mut out: BTreeMap<String, BTreeMap<String, Vec<u32>>> = BTreeMap::new();
    for (number, set) in (0..).zip(sets()) {
        for (name, value) in set {
            out.entry(name).or_default().entry(value).or_default().push(number);
        }
    }
    out
}

fn in_memory() -> LabelIndex<'static> {
    let mut table = PairTable::default();
    for set in &sets() {
        table.push(set.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
    LabelIndex::Memory(Arc::new(MemoryIndex::new(table)))
}

#[test]
fn an_index_in_memory_says_what_the_series_have() {
    let (index, model, stats) = (in_memory(), model(), ReadStats::default());
    assert_eq!(index.names().iter().map(|name| &**name).collect::<Vec<_>>(), ["__name__", "id", "zone"]);
    assert!(index.rows("id2").is_none() && index.rows("").is_none());
    let mut next = 0;
    for (name, values) in &model {
        let rows = index.rows(name).unwrap();
        assert_eq!((rows.start, rows.end), (next, next + values.len() as u64), "rows of labels lie side by side");
        next = rows.end;
        let mut shown = Vec::new();
        block_on(
            index.values(std::slice::from_ref(&rows), &stats, &mut |row, value| shown.push((row, value.to_owned()))),
        )
        .unwrap();
        let expected: Vec<(u64, String)> = rows.clone().zip(values.keys().cloned()).collect();
        assert_eq!(shown, expected, "{name}");
        for (row, (value, series)) in rows.clone().zip(values) {
            assert_eq!(block_on(index.find(rows.clone(), &[value], &stats)).unwrap(), [row]);
            assert_eq!(block_on(index.one(row, &stats)).unwrap().iter().collect::<Vec<_>>(), *series);
        }
    }
    let all: usize = model.values().flat_map(BTreeMap::values).map(Vec::len).sum();
    assert_eq!(block_on(index.count(&stats)).unwrap(), all as u64);
}

#[test]
fn values_are_found_among_those_of_their_label_alone() {
    let (index, stats) = (in_memory(), ReadStats::default());
    let zones = index.rows("zone").unwrap();
    let find = |wanted: &[&str]| -> Vec<u64> {
        block_on(index.find(zones.clone(), wanted, &stats)).unwrap().iter().map(|row| row - zones.start).collect()
    };
    assert!(find(&[]).is_empty());
    assert!(find(&["", "eu", "eu-", "eu-c", "zz", "ÿ"]).is_empty());
    assert_eq!(find(&["", "eu-a", "eu-aa", "us", "ü", "ÿ"]), [0, 2, 4]);
    assert_eq!(find(&["m0", "us"]), [2], "a value of another label is none of this one");
    let some = |from: u64, to: u64| {
        let rows = zones.start + from..zones.start + to;
        block_on(index.find(rows, &["eu-a", "eu-b", "us"], &stats)).unwrap().len()
    };
    assert_eq!((some(0, 5), some(1, 2), some(3, 5), some(2, 2)), (3, 1, 0, 0));
}

#[test]
fn prefixes_narrow_to_the_values_that_have_them() {
    let index = in_memory();
    let zones = index.rows("zone").unwrap();
    let narrowed = |prefix: &str| -> Vec<Range<u64>> {
        let runs = index.with_prefix(zones.clone(), prefix);
        runs.iter().map(|run| run.start - zones.start..run.end - zones.start).filter(|run| !run.is_empty()).collect()
    };
    assert_eq!(narrowed(""), [0..5]);
    assert_eq!(narrowed("eu"), [0..2]);
    assert_eq!(narrowed("eu-b"), [1..2]);
    assert_eq!(narrowed("é"), [3..4]);
    for prefix in ["a", "eu-bb", "eu-c", "zz", "ÿ"] {
        assert!(narrowed(prefix).is_empty(), "{prefix}");
    }
}

#[test]
fn unions_are_of_any_rows() {
    let (index, model, stats) = (in_memory(), model(), ReadStats::default());
    let lists: Vec<&Vec<u32>> = model.values().flat_map(BTreeMap::values).collect();
    for step in [1, 2, 7, 50, 1000] {
        let rows: Vec<u64> = (0..lists.len() as u64).step_by(step).collect();
        let expected: BTreeSet<u32> = rows.iter().flat_map(|row| lists[*row as usize].iter().copied()).collect();
        let union = block_on(index.union(&rows, &stats)).unwrap();
        assert!(union.iter().eq(expected), "every {step}th");
        let mut shown = Vec::new();
        block_on(index.each(&rows, &stats, &mut |row, series| shown.push((row, series.len())))).unwrap();
        let lens = rows.iter().map(|row| (*row, lists[*row as usize].len() as u64));
        assert_eq!(shown, lens.collect::<Vec<_>>());
    }
    assert!(block_on(index.union(&[], &stats)).unwrap().is_empty());
}

#[test]
fn the_first_that_is_not_before_is_found() {
    for len in 0..20 {
        for first in 0..=len {
            assert_eq!(partition(len, |n| n < first), first, "{first} of {len}");
        }
    }
    assert_eq!(partition(u64::MAX, |n| n < u64::MAX - 3), u64::MAX - 3);
}

/// A look-up in a file asks for what it decodes, and gives that back; what it gives out is kept.
#[test]
fn lookups_in_a_file_hold_memory_as_long_as_they_take() {
    let dir = tempfile::tempdir().unwrap();
    let mut runs: Vec<_> = sets()
        .iter()
        .map(|set| {
            let pairs: Vec<_> = set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let mut run = series(&pairs, "");
            run.samples.push(1, 1.0, 0);
            run
        })
        .collect();
    runs.sort_by(|a, b| a.labels.cmp_series(&b.labels));
    let part = open(dir.path(), &write(dir.path(), 0, &runs));
    let (budget, stats) = Budget::of(1 << 20);
    let index = block_on(part.label_index(&stats)).unwrap();
    assert!(matches!(index, LabelIndex::File(_)));
    let rows = index.rows("zone").unwrap();
    let found = block_on(index.find(rows.clone(), &["us"], &stats)).unwrap();
    assert_eq!((found.len(), budget.taken()), (1, 0));
    let mut values = 0;
    block_on(index.values(std::slice::from_ref(&rows), &stats, &mut |_, _| values += 1)).unwrap();
    assert_eq!((values, budget.taken()), (5, 0));
    let one = block_on(index.one(found[0], &stats)).unwrap();
    assert_eq!(budget.taken(), one.serialized_size() as i64);
    let zone: Vec<u32> = (0..).zip(&runs).filter(|(_, run)| run.labels.get("zone") == "us").map(|(n, _)| n).collect();
    assert_eq!(one.iter().collect::<Vec<_>>(), zone);

    let (budget, stats) = Budget::of(1);
    let without = part.without("none");
    let index = block_on(without.label_index(&stats)).unwrap();
    let refused = block_on(index.find(rows, &["us"], &stats)).unwrap_err();
    assert_eq!((refused.kind(), budget.taken()), (ErrorKind::LimitExceeded, 0));
}
