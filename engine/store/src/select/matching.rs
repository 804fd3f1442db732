//! Evaluates matchers with the index of a part, as bitmaps of series, most selective matchers first.
//!
//! A matcher that does not match the empty value gives the union of the series with a matching value. One that does (a
//! negative one, or one for an absent label) gives all series except those with a value that does not match. Each value
//! is tested once. If few series are left and a label has far more values than that, the labels of these series are
//! read and tested instead.

use hashbrown::HashMap;
use quiver_types::{MatchOp, Matcher, ReadStats, Result};
use roaring::RoaringBitmap;

use super::pruning::{literal_values, prefix};
use crate::part::{LabelIndex, Part};

/// The labels of candidates are read if the label has at least this many values per candidate.
const VALUES_PER_CANDIDATE: u64 = 4;
/// With fewer values than this, the values are always read.
const VALUES_FEW: u64 = 8 * 1024;
/// With more candidates than this, their labels are never read.
const CANDIDATES_MAX: u64 = 64 * 1024;

/// Estimates how much a matcher leaves, without reading; selective ones get a low rank.
fn rank(matcher: &Matcher) -> u8 {
    match matcher.op {
        MatchOp::Equal if !matcher.value.is_empty() => 0,
        MatchOp::Regex if !matcher.matches_empty() => 1,
        _ => 2,
    }
}

/// Numbers of the series of a part that match all matchers.
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

/// Keeps those of `found` (`None` means all series) that match a matcher.
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
            // Collect the values for which the result of the matcher is as needed; their series are then united.
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

/// Tests candidates by their labels, each distinct value once.
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
