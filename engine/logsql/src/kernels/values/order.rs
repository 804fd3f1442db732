//! The order of values: first by kind (empty, number, time, text), then by value.
//!
//! Integers of 64 bits compare exactly, also with each other's unsigned range; other numbers as doubles, with their
//! unit; times as moments; texts naturally: runs of digits compare as numbers, everything else by bytes. The relation
//! is a total preorder: values that differ only in how they are written (`1000`, `1K`) are equal.

use std::cmp::Ordering;

use quiver_types::text::EXACT_INTEGERS_MAX;

use super::number::number;
use super::plain_number::{parse_float, parse_i64, parse_u64};
use super::time::parse_rfc3339;

/// A value as it is compared.
#[derive(Debug, Clone, Copy)]
enum ComparisonKey {
    Empty,
    /// As a double, and for integers by how much the exact value is greater.
    Number(f64, i16),
    Time(i64),
    Text,
}

impl ComparisonKey {
    fn rank(self) -> u8 {
        match self {
            Self::Empty => 0,
            Self::Number(..) => 1,
            Self::Time(_) => 2,
            Self::Text => 3,
        }
    }
}

fn kind(value: &str, read: impl Fn(&str) -> Option<f64>) -> ComparisonKey {
    match value.as_bytes() {
        [] => ComparisonKey::Empty,
        [b'0'..=b'9' | b'-' | b'+' | b'.' | b'i' | b'I', ..] => {
            if let Some(n) = parse_i64(value) {
                return exact(i128::from(n));
            }
            if let Some(n) = parse_u64(value) {
                return exact(i128::from(n));
            }
            if let Some(ns) = parse_rfc3339(value) {
                return ComparisonKey::Time(ns);
            }
            match read(value) {
                // Minus zero equals zero.
                Some(n) => ComparisonKey::Number(n + 0.0, 0),
                None => ComparisonKey::Text,
            }
        }
        _ => ComparisonKey::Text,
    }
}

fn exact(n: i128) -> ComparisonKey {
    // Nearly all are small, and numbers of 128 bits become doubles slowly.
    if let Ok(small) = i64::try_from(n)
        && small.unsigned_abs() <= EXACT_INTEGERS_MAX
    {
        return ComparisonKey::Number(small as f64, 0);
    }
    let double = n as f64;
    ComparisonKey::Number(double, (n - double as i128) as i16)
}

/// Compares two values.
pub fn compare(a: &str, b: &str) -> Ordering {
    if a == b { Ordering::Equal } else { compare_ranked((rank(a), a), (rank(b), b)) }
}

/// What is known of a value from reading it once; comparing it again and again is cheap then.
#[derive(Debug, Clone, Copy)]
pub struct Rank(ComparisonKey);

/// Reads a value for [`compare_ranked`].
pub fn rank(value: &str) -> Rank {
    Rank(kind(value, number))
}

/// The rank of an integer.
pub fn rank_of_int(value: i64) -> Rank {
    Rank(exact(i128::from(value)))
}

/// The rank of a number that is no integer, or one that a double holds exactly.
pub fn rank_of_float(value: f64) -> Rank {
    // Minus zero equals zero.
    Rank(ComparisonKey::Number(value + 0.0, 0))
}

/// Compares two values that were read before.
pub fn compare_ranked(a: (Rank, &str), b: (Rank, &str)) -> Ordering {
    match (a.0.0, b.0.0) {
        (ComparisonKey::Number(x, dx), ComparisonKey::Number(y, dy)) => x.total_cmp(&y).then(dx.cmp(&dy)),
        (ComparisonKey::Time(x), ComparisonKey::Time(y)) => x.cmp(&y),
        (ComparisonKey::Text, ComparisonKey::Text) => natural(a.1.as_bytes(), b.1.as_bytes()),
        (x, y) => x.rank().cmp(&y.rank()),
    }
}

/// Compares texts: runs of digits as numbers of any length, then by the number of leading zeros; a digit is less than
/// any other character.
fn natural(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let same = a.iter().zip(b).take_while(|(x, y)| x == y && !x.is_ascii_digit()).count();
        (a, b) = (&a[same..], &b[same..]);
        let (Some(&x), Some(&y)) = (a.first(), b.first()) else { return a.len().cmp(&b.len()) };
        match (x.is_ascii_digit(), y.is_ascii_digit()) {
            (true, true) => {}
            (false, false) => return x.cmp(&y),
            (digit, _) => return if digit { Ordering::Less } else { Ordering::Greater },
        }
        let (run_a, run_b) = (run(a), run(b));
        let order = compare_runs(run_a, run_b);
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (&a[run_a.len()..], &b[run_b.len()..]);
    }
}

fn run(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().take_while(|b| b.is_ascii_digit()).count()]
}

fn significant(run: &[u8]) -> &[u8] {
    &run[run.iter().take_while(|&&b| b == b'0').count()..]
}

fn compare_runs(a: &[u8], b: &[u8]) -> Ordering {
    let (x, y) = (significant(a), significant(b));
    x.len().cmp(&y.len()).then_with(|| x.cmp(y)).then(a.len().cmp(&b.len()))
}

/// Appends bytes that compare as the values do, and of which none is the beginning of another: sorting, ranking and
/// least and greatest then need no knowledge of values.
pub fn push_sort_key(out: &mut Vec<u8>, value: &str) {
    push_key(out, value, kind(value, number));
}

/// Like [`push_sort_key`], but durations and sizes are texts, which stand among the numbers by the whole number that they
/// begin with: `0`, `1.5MiB`, `12KB`, `100`. The reference sorts whole results so, and takes their value only where it
/// keeps the best rows of a `limit`.
pub fn push_plain_sort_key(out: &mut Vec<u8>, value: &str) {
    let kind = kind(value, parse_float);
    let whole = match kind {
        ComparisonKey::Number(n, _) => Some(n.floor()),
        ComparisonKey::Text => {
            let digits = run(value.as_bytes());
            // Digits alone are a number, however many there are.
            (!digits.is_empty()).then(|| value[..digits.len()].parse().unwrap_or(f64::INFINITY))
        }
        ComparisonKey::Empty | ComparisonKey::Time(_) => None,
    };
    if let Some(whole) = whole {
        out.push(1);
        push_double(out, whole);
    }
    push_key(out, value, kind);
}

fn push_key(out: &mut Vec<u8>, value: &str, kind: ComparisonKey) {
    out.push(kind.rank());
    match kind {
        ComparisonKey::Empty => {}
        ComparisonKey::Number(n, more) => {
            push_double(out, n);
            out.extend_from_slice(&((more as u16) ^ 0x8000).to_be_bytes());
        }
        ComparisonKey::Time(ns) => out.extend_from_slice(&((ns as u64) ^ 1 << 63).to_be_bytes()),
        ComparisonKey::Text => push_natural_key(out, value.as_bytes()),
    }
}

fn push_double(out: &mut Vec<u8>, n: f64) {
    let bits = n.to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.extend_from_slice(&ordered.to_be_bytes());
}

/// End 0; run of digits 1, length, digits, leading zeros; bytes up to 2 after a 2; other bytes as they are.
fn push_natural_key(out: &mut Vec<u8>, mut bytes: &[u8]) {
    while let Some(&b) = bytes.first() {
        if b.is_ascii_digit() {
            let run = run(bytes);
            let digits = significant(run);
            out.push(1);
            push_length(out, digits.len());
            out.extend_from_slice(digits);
            push_length(out, run.len() - digits.len());
            bytes = &bytes[run.len()..];
        } else {
            if b <= 2 {
                out.push(2);
            }
            out.push(b);
            bytes = &bytes[1..];
        }
    }
    out.push(0);
}

fn push_length(out: &mut Vec<u8>, length: usize) {
    if length < 255 {
        out.push(length as u8);
    } else {
        out.push(255);
        out.extend_from_slice(&(length as u64).to_be_bytes());
    }
}
