//! Matchers over the index of a part: bitmaps of series, the most selective ones first.
//!
//! A matcher that takes no empty value gives the union of what has a liked value; one that takes it (a negative one, an
//! absent label) all but what has a disliked value. A value is judged once. Where few series are left and a label has
//! far more values than these, their labels are read and judged instead.

use hashbrown::HashMap;
use quiver_types::{MatchOp, Matcher, ReadStats, Result};
use roaring::RoaringBitmap;

use super::prune::{literal_values, prefix};
use crate::part::{LabelIndex, Part};

/// Values per candidate from which on the labels of candidates are read.
const VALUES_PER_CANDIDATE: u64 = 4;
/// Fewer values than this are read whatever there are candidates.
const VALUES_FEW: u64 = 8 * 1024;
/// More candidates than this are not read.
const CANDIDATES_MAX: u64 = 64 * 1024;

/// How much a matcher leaves, as far as can be told without reading.
fn rank(matcher: &Matcher) -> u8 {
    match matcher.op {
        MatchOp::Equal if !matcher.value.is_empty() => 0,
        MatchOp::Regex if !matcher.matches_empty() => 1,
        _ => 2,
    }
}

/// Gives the numbers of the series of a part that all matchers match.
pub(super) async fn matching(
    part: &Part,
    index: &LabelIndex<'_>,
    matchers: &[Matcher],
    stats: &ReadStats,
) -> Result<RoaringBitmap> {
    let mut order: Vec<&Matcher> = matchers.iter().collect();
    order.sort_by_key(|m| (rank(m), index.rows(&m.name).map_or(0, |rows| rows.end - rows.start)));
    let mut found: Option<RoaringBitmap> = None;
    for matcher in order {
        found = narrow(part, index, matcher, found, stats).await?;
        if found.as_ref().is_some_and(RoaringBitmap::is_empty) {
            break;
        }
    }
    Ok(found.unwrap_or_else(|| all(part)))
}

fn all(part: &Part) -> RoaringBitmap {
    let mut all = RoaringBitmap::new();
    all.insert_range(0..part.series_count());
    all
}

/// Keeps of `found` (none: everything) what a matcher matches.
async fn narrow(
    part: &Part,
    index: &LabelIndex<'_>,
    matcher: &Matcher,
    found: Option<RoaringBitmap>,
    stats: &ReadStats,
) -> Result<Option<RoaringBitmap>> {
    let takes_empty = matcher.matches_empty();
    let Some(rows) = index.rows(&matcher.name) else {
        return Ok(if takes_empty { found } else { Some(RoaringBitmap::new()) });
    };
    let few = |found: &RoaringBitmap, values: u64| {
        values > VALUES_FEW && found.len() * VALUES_PER_CANDIDATE < values && found.len() <= CANDIDATES_MAX
    };
    let (hits, bitmap) = match (matcher.single_value(), literal_values(matcher)) {
        (Some(value), _) => {
            let rows = index.find(rows, &[value], stats).await?;
            (!takes_empty, index.union(&rows, stats).await?)
        }
        (None, Some(values)) => {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let rows = index.find(rows, &values, stats).await?;
            (true, index.union(&rows, stats).await?)
        }
        (None, None) => {
            let runs = index.with_prefix(rows, &prefix(matcher));
            let values = runs.iter().map(|rows| rows.end - rows.start).sum();
            if let Some(found) = found.as_ref().filter(|found| few(found, values)) {
                return judge(part, matcher, found, stats).await.map(Some);
            }
            // What is united is what the matcher says of the values of series that have the label.
            let mut chosen = Vec::new();
            index
                .values(&runs, stats, &mut |row, value| {
                    if matcher.matches(value) != takes_empty {
                        chosen.push(row);
                    }
                })
                .await?;
            stats.take(size_of_val(&chosen[..]))?;
            let bitmap = index.union(&chosen, stats).await?;
            stats.give_back(size_of_val(&chosen[..]));
            (!takes_empty, bitmap)
        }
    };
    Ok(Some(match (hits, found) {
        (true, None) => bitmap,
        (true, Some(found)) => found & bitmap,
        (false, found) => found.unwrap_or_else(|| all(part)) - bitmap,
    }))
}

/// Judges candidates by their labels, each distinct value once.
async fn judge(part: &Part, matcher: &Matcher, found: &RoaringBitmap, stats: &ReadStats) -> Result<RoaringBitmap> {
    let numbers: Vec<u32> = found.iter().collect();
    let labels = part.labels(&numbers, Some(std::slice::from_ref(&matcher.name)), stats).await?;
    let Some(label) = labels.into_iter().next() else {
        return Ok(if matcher.matches_empty() { found.clone() } else { RoaringBitmap::new() });
    };
    let mut judged: HashMap<u32, bool, foldhash::fast::RandomState> = HashMap::default();
    let mut like = |code: u32| *judged.entry(code).or_insert_with(|| matcher.matches(&label.values[code as usize]));
    let kept = numbers.iter().zip(&label.codes).filter(|(_, code)| like(**code)).map(|(&number, _)| number);
    Ok(RoaringBitmap::from_sorted_iter(kept).expect("a subset in order"))
}
