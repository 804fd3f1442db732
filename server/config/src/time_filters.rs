//! Substring filters on times as the API shows them (`2027-01-15T08:00:05.120Z`), translated to conditions on a column
//! of Unix milliseconds. Hours and smaller units become arithmetic that the database does for each index entry; for
//! dates, the days that exist are enumerated.

use std::fmt::Write;
use std::ops::Range;

use quiver_database::statement;

use crate::config::Config;
use crate::entity_place::Place;
use crate::filter::{Filter, Op};
use crate::json::time_text;
use crate::problem::Result;

const DAY_MS: i64 = 86_400_000;
/// Days between which times are written with a year of four digits, and no number of milliseconds is negative.
const WRITTEN: Range<i64> = 0..2_932_897;
/// Days of which parts are looked for, at most.
const DAYS_MAX: i64 = 12_000;
/// Ranges of days that are compared one after the other; more are a list of days.
const RANGES_MAX: usize = 4;
/// Days of the longest list.
const LISTED_MAX: usize = 4000;
/// A time: digits, and what stands between them.
const FORM: &[u8] = b"0000-00-00T00:00:00.000Z";
/// Where its date ends.
const DATE_END: usize = 10;
/// The numbers behind the date: where they begin, how many digits they have, of how many milliseconds they are, and how
/// many there are of each.
const NUMBERS: [(usize, usize, i64, i64); 4] =
    [(11, 2, 3_600_000, 24), (14, 2, 60_000, 60), (17, 2, 1000, 60), (20, 3, 1, 1000)];
/// What a digit counts, by its place before the last one.
const POWERS: [i64; 3] = [1, 10, 100];
const NEVER: &str = "1 = 0";

/// The column that holds a time.
pub(crate) fn column_of(path: &str) -> Option<&'static str> {
    match path {
        "createdAt" => Some("created_ms"),
        "updatedAt" => Some("updated_ms"),
        _ => None,
    }
}

/// A condition on a column of times whose text holds a part, or ends with it, among rows of some days; none: it would be too
/// long.
pub(crate) fn holding(column: &str, op: Op, part: &str, days: &Range<i64>) -> Option<String> {
    let part = part.as_bytes();
    let is_written = WRITTEN.start <= days.start && days.end <= WRITTEN.end;
    if part.is_empty() || days.is_empty() || !is_written || days.end - days.start > DAYS_MAX {
        return None;
    }
    let Some(last) = FORM.len().checked_sub(part.len()) else { return Some(NEVER.to_owned()) };
    let fits = |at: &usize| {
        let mut both = part.iter().zip(&FORM[*at..]);
        both.all(|(c, form)| if *form == b'0' { c.is_ascii_digit() } else { c == form })
    };
    let first = if op == Op::Ends { last } else { 0 };
    let places: Vec<usize> = (first..=last).filter(fits).collect();
    let (of_dates, others): (Vec<usize>, Vec<usize>) = places.into_iter().partition(|at| at + part.len() <= DATE_END);
    let mut either = Vec::new();
    if !of_dates.is_empty() {
        let has = |date: &[u8]| of_dates.iter().any(|at| date[*at..].starts_with(part));
        either.push(by_day(column, days, has)?);
    }
    for at in others {
        let mut all = by_time_of_day(column, part, at);
        if at < DATE_END {
            all.push(by_day(column, days, |date| part.starts_with(&date[at..]))?);
        }
        // What stands between the digits is in each of them.
        either.push(if all.is_empty() { "1 = 1".to_owned() } else { all.join(" AND ") });
    }
    Some(if either.is_empty() { NEVER.to_owned() } else { format!("({})", either.join(") OR (")) })
}

/// Conditions on the digits behind the date, of a part that begins at a place.
fn by_time_of_day(column: &str, part: &[u8], at: usize) -> Vec<String> {
    let mut all = Vec::new();
    for (start, digits, unit, many) in NUMBERS {
        let given = |n: usize| (start + n).checked_sub(at).and_then(|n| part.get(n)).map(|c| i64::from(c - b'0'));
        let given: Vec<Option<i64>> = (0..digits).map(given).collect();
        let number = format!("{column} / {unit} % {many}");
        if let Some(whole) = given.iter().try_fold(0, |whole, digit| digit.map(|digit| whole * 10 + digit)) {
            all.push(format!("{number} = {whole}"));
            continue;
        }
        for (digit, power) in given.iter().rev().zip(POWERS) {
            all.extend(digit.map(|digit| format!("{number} / {power} % 10 = {digit}")));
        }
    }
    all
}

/// A condition that holds on the days whose date is wanted.
fn by_day(column: &str, days: &Range<i64>, wanted: impl Fn(&[u8]) -> bool) -> Option<String> {
    let mut found: Vec<Range<i64>> = Vec::new();
    for day in days.clone() {
        if !wanted(&time_text(day * DAY_MS).as_bytes()[..DATE_END]) {
            continue;
        }
        match found.last_mut() {
            Some(range) if range.end == day => range.end = day + 1,
            _ => found.push(day..day + 1),
        }
    }
    if found.len() <= RANGES_MAX {
        let of =
            |range: &Range<i64>| format!("{column} >= {} AND {column} < {}", range.start * DAY_MS, range.end * DAY_MS);
        let ranges: Vec<String> = found.iter().map(of).collect();
        return Some(if ranges.is_empty() { NEVER.to_owned() } else { format!("(({}))", ranges.join(") OR (")) });
    }
    let mut list = String::new();
    for (n, day) in found.into_iter().flatten().enumerate() {
        if n == LISTED_MAX {
            return None;
        }
        write!(list, "{}{day}", if n == 0 { "" } else { ", " }).ok()?;
    }
    Some(format!("{column} / {DAY_MS} IN ({list})"))
}

impl Filter {
    /// Whether it looks for parts of times.
    fn has_parts_of_times(&self) -> bool {
        match self {
            Self::All(list) | Self::Any(list) => list.iter().any(Self::has_parts_of_times),
            Self::Not(inner) => inner.has_parts_of_times(),
            Self::Compare(path, Op::Contains | Op::Ends, _) => column_of(path).is_some(),
            Self::Present(_) | Self::Compare(..) | Self::In(..) => false,
        }
    }
}

impl Config {
    /// The days in which entities of a place were made and changed, for a filter that looks for parts of these times; else
    /// none.
    pub(crate) async fn days(&self, place: &Place, filter: Option<&Filter>) -> Result<Range<i64>> {
        if !filter.is_some_and(Filter::has_parts_of_times) {
            return Ok(0..0);
        }
        let ends = ["min(created_ms)", "min(updated_ms)", "max(created_ms)", "max(updated_ms)"];
        // One at a time each is the end of an index.
        let selects = ends.map(|end| format!("(SELECT {end} FROM entity WHERE family = ? AND owner = ?)"));
        let mut select = statement(format!("SELECT {}", selects.join(", ")));
        for _ in ends {
            select = select.bind(place.family.name).bind(&place.owner);
        }
        let row = select.fetch_one(&self.pool).await?;
        let (mut from, mut to) = (i64::MAX, i64::MIN);
        for n in 0..ends.len() {
            let Some(ms) = row.try_get::<Option<i64>>(n)? else { return Ok(0..0) };
            (from, to) = (from.min(ms), to.max(ms));
        }
        Ok(from.div_euclid(DAY_MS)..to.div_euclid(DAY_MS) + 1)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn conditions_on_parts() {
        let check = |op: Op, part: &str, days: Range<i64>, expected: Option<&str>| {
            assert_eq!(holding("c", op, part, &days).as_deref(), expected, "{part}");
        };
        let month = 20_819..20_850;
        check(Op::Contains, "T08:1", month.clone(), Some("(c / 3600000 % 24 = 8 AND c / 60000 % 60 / 10 % 10 = 1)"));
        check(Op::Ends, "05.1Z", month.clone(), Some(NEVER));
        check(Op::Ends, "7Z", month.clone(), Some("(c / 1 % 1000 / 1 % 10 = 7)"));
        check(Op::Contains, "T", month.clone(), Some("(1 = 1)"));
        check(Op::Contains, "-01-0", month.clone(), Some("(((c >= 1798761600000 AND c < 1799539200000)))"));
        check(
            Op::Contains,
            "5T",
            month.clone(),
            Some(&format!(
                "(((c >= {} AND c < {}) OR (c >= {} AND c < {}) OR (c >= {} AND c < {})))",
                20_823 * DAY_MS,
                20_824 * DAY_MS,
                20_833 * DAY_MS,
                20_834 * DAY_MS,
                20_843 * DAY_MS,
                20_844 * DAY_MS,
            )),
        );
        check(
            Op::Contains,
            "-05T",
            month.start..20_999,
            Some(&format!("(c / {DAY_MS} IN (20823, 20854, 20882, 20913, 20943, 20974))")),
        );
        check(Op::Contains, "", month.clone(), None);
        // As many days as nobody has; none at all; such as have other texts.
        check(Op::Contains, "T08", 0..DAYS_MAX + 1, None);
        check(Op::Contains, "T08", 0..0, None);
        check(Op::Contains, "T08", -2..5, None);
    }

    /// A condition as the database reads it, of one value.
    struct Reader<'t> {
        tokens: std::iter::Peekable<std::vec::IntoIter<&'t str>>,
        c: i64,
    }

    impl<'t> Reader<'t> {
        fn holds(sql: &'t str, c: i64) -> bool {
            let tokens: Vec<&str> = sql.split_whitespace().collect();
            let mut reader = Self { tokens: tokens.into_iter().peekable(), c };
            let found = reader.either();
            assert_eq!(reader.tokens.next(), None, "{sql}");
            found
        }

        fn takes(&mut self, token: &str) -> bool {
            self.tokens.next_if(|next| *next == token).is_some()
        }

        fn next(&mut self) -> &'t str {
            self.tokens.next().expect("more")
        }

        fn literal(&mut self) -> i64 {
            self.next().parse().expect("a number")
        }

        fn either(&mut self) -> bool {
            let mut found = self.all();
            while self.takes("OR") {
                found |= self.all();
            }
            found
        }

        fn all(&mut self) -> bool {
            let mut found = self.one();
            while self.takes("AND") {
                found &= self.one();
            }
            found
        }

        fn one(&mut self) -> bool {
            if self.takes("(") {
                let found = self.either();
                assert!(self.takes(")"));
                return found;
            }
            let mut value = if self.takes("c") { self.c } else { self.literal() };
            loop {
                match self.next() {
                    "/" => value /= self.literal(),
                    "%" => value %= self.literal(),
                    "=" => return value == self.literal(),
                    ">=" => return value >= self.literal(),
                    "<" => return value < self.literal(),
                    "IN" => {
                        assert!(self.takes("("));
                        let mut found = false;
                        while !self.takes(")") {
                            found |= value == self.literal();
                        }
                        return found;
                    }
                    other => panic!("{other}"),
                }
            }
        }
    }

    /// Whatever part is looked for, the rows that the database gives are those whose texts have it.
    #[test]
    fn conditions_hold_where_texts_have_the_part() {
        let mut rng = StdRng::seed_from_u64(4);
        let mut held = 0;
        for _ in 0..200 {
            let start = rng.random_range(0..25_000);
            let days = start..start + rng.random_range(1..40);
            let mut any = || rng.random_range(days.start * DAY_MS..days.end * DAY_MS);
            let (ms, other) = (any(), any());
            let (text, other) = (time_text(ms), time_text(other));
            let from = if rng.random::<bool>() { &text } else { &other };
            let at = rng.random_range(0..from.len());
            let part = &from[at..rng.random_range(at + 1..=from.len())];
            for (op, expected) in [(Op::Contains, text.contains(part)), (Op::Ends, text.ends_with(part))] {
                let sql = holding("c", op, part, &days).expect("few days");
                let spaced = sql.replace('(', " ( ").replace(')', " ) ").replace(',', " ");
                assert_eq!(Reader::holds(&spaced, ms), expected, "{part} in {text} by {sql}");
                held += usize::from(expected);
            }
        }
        assert!(held > 50, "{held}");
    }
}
