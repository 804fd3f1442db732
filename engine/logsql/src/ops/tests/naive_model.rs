//! Steps over made-up rows, against the same done to a list.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use crate::pipes::testing::gives;

/// A number `a` and a key `b` of a row.
type Row = (i64, u8);

fn made() -> impl Strategy<Value = Vec<Row>> {
    vec((-20..120_i64, 0..5_u8), 1..40)
}

fn text(row: &Row) -> String {
    format!("a={} b=k{}", row.0, row.1)
}

/// Runs pipes over rows, and compares what they give with what is expected of them.
fn check(pipes: &str, rows: &[Row], expected: &[String]) {
    let rows: Vec<String> = rows.iter().map(text).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    gives(pipes, &rows, &expected);
}

/// The numbers of each key, in their order.
fn by_key(rows: &[Row]) -> BTreeMap<u8, Vec<i64>> {
    let mut groups = BTreeMap::<u8, Vec<i64>>::new();
    for (number, key) in rows {
        groups.entry(*key).or_default().push(*number);
    }
    groups
}

fn kept(rows: &[Row], is_kept: impl Fn(&Row) -> bool) -> Vec<String> {
    rows.iter().filter(|row| is_kept(row)).map(text).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_are_sorted(rows in made(), offset in 0..20_usize, limit in 1..20_usize) {
        let mut sorted = rows.clone();
        sorted.sort_by_key(|row| (Reverse(row.0), row.1));
        let all: Vec<String> = sorted.iter().map(text).collect();
        check("sort by (a desc, b)", &rows, &all);
        let some: Vec<String> = all.iter().skip(offset).take(limit).cloned().collect();
        check(&format!("sort by (a desc, b) offset {offset} limit {limit}"), &rows, &some);
        check(&format!("sort by (a desc, b) | offset {offset} | limit {limit}"), &rows, &some);
    }

    #[test]
    fn groups_are_counted(rows in made()) {
        let groups = by_key(&rows);
        let counted = groups.iter().map(|(key, numbers)| {
            let (least, greatest) = (numbers.iter().min().unwrap(), numbers.iter().max().unwrap());
            let different = numbers.iter().collect::<BTreeSet<_>>().len();
            let (count, sum) = (numbers.len(), numbers.iter().sum::<i64>());
            format!("b=k{key} n={count} s={sum} l={least} g={greatest} u={different}")
        });
        let counted: Vec<String> = counted.collect();
        let functions = "count() n, sum(a) s, min(a) l, max(a) g, count_uniq(a) u";
        check(&format!("stats by (b) {functions} | sort by (b)"), &rows, &counted);
        let hits: Vec<String> = groups.iter().map(|(key, numbers)| format!("b=k{key} hits={}", numbers.len())).collect();
        check("uniq by (b) with hits | sort by (b)", &rows, &hits);
        check("top 10 by (b) | sort by (b)", &rows, &hits);
    }

    #[test]
    fn buckets_begin_at_multiples(rows in made(), step in 1..30_i64) {
        let rows: Vec<Row> = rows.into_iter().map(|(number, key)| (number.abs(), key)).collect();
        let mut buckets = BTreeMap::<i64, usize>::new();
        for (number, _) in &rows {
            *buckets.entry(number / step * step).or_default() += 1;
        }
        let expected: Vec<String> = buckets.iter().map(|(begin, count)| format!("a={begin} n={count}")).collect();
        check(&format!("stats by (a:{step}) count() n | sort by (a)"), &rows, &expected);
    }

    #[test]
    fn rows_are_kept(rows in made(), from in -20..120_i64, wide in 0..60_i64, key in 0..5_u8) {
        let to = from + wide;
        check(&format!("filter a:range[{from}, {to})"), &rows, &kept(&rows, |row| (from..to).contains(&row.0)));
        check(&format!("filter a:>{from} a:<={to}"), &rows, &kept(&rows, |row| row.0 > from && row.0 <= to));
        let either = kept(&rows, |row| row.1 == key || row.0 < from);
        check(&format!("filter b:=k{key} or a:<{from}"), &rows, &either);
        check(&format!("filter !(b:in(k{key}) or a:<{from})"), &rows, &kept(&rows, |row| row.1 != key && row.0 >= from));
    }

    #[test]
    fn numbers_are_worked_out(rows in made(), by in 1..9_i64, less in 0..50_i64) {
        let expected: Vec<String> =
            rows.iter().map(|row| format!("{} c={}", text(row), row.0 * by - less)).collect();
        check(&format!("math a * {by} - {less} as c"), &rows, &expected);
        let mut sum = 0;
        let running = rows.iter().zip(1..).map(|(row, count)| {
            sum += row.0;
            format!("{} n={count} s={sum}", text(row))
        });
        let running: Vec<String> = running.collect();
        check("running_stats count() n, sum(a) s", &rows, &running);
    }
}
