//! Label names and label values, from indexes only.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use hashbrown::HashSet;
use quiver_types::{ReadStats, Result};

use super::live;
use super::matcher_resolution::{PARTS_OPENED_AT_ONCE, SelectorQuery};
use crate::error::leave_out;
use crate::part::Part;
use crate::snapshot::Snapshot;

/// Estimated memory of a text besides its bytes while a list is collected.
const TEXT_BYTES: usize = 64;

type Texts = HashSet<Arc<str>, foldhash::fast::RandomState>;

/// Number of series whose labels are read at a time; the first ones mostly have all names that exist.
const SERIES_AT_ONCE: usize = 4096;

/// What is requested of label sets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LabelRequest<'a> {
    /// The label names.
    Names,
    /// The value of this label.
    Values(&'a str),
}

/// The sorted names or values of all series that a question selects.
pub(crate) async fn labels(
    question: &SelectorQuery<'_>,
    wanted: LabelRequest<'_>,
    snapshot: &Snapshot,
    stats: &ReadStats,
) -> Result<Vec<String>> {
    let (parts, _) = question.parts(snapshot, stats);
    let mut found = Texts::default();
    let ask = |part: Arc<Part>| async move { of_part(&part, question, wanted, stats).await };
    let mut answers = futures::stream::iter(parts).map(ask).buffered(PARTS_OPENED_AT_ONCE);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(texts) => texts.into_iter().for_each(|text| {
                found.insert(text);
            }),
            Err(e) => leave_out(stats, e)?,
        }
        stats.check()?;
    }
    for live in live::resolve(question, snapshot, stats)? {
        live.for_pairs(stats, |name, value| match wanted {
            LabelRequest::Names => insert(&mut found, name, stats),
            LabelRequest::Values(wanted) if wanted == name => insert(&mut found, value, stats),
            LabelRequest::Values(_) => Ok(()),
        })?;
    }
    stats.take(found.iter().map(|text| text.len() + TEXT_BYTES).sum())?;
    stats.check()?;
    let sorted: BTreeSet<Arc<str>> = found.into_iter().collect();
    Ok(sorted.iter().map(ToString::to_string).collect())
}

fn insert(found: &mut Texts, text: &str, stats: &ReadStats) -> Result<()> {
    if !found.contains(text) {
        stats.take(text.len() + TEXT_BYTES)?;
        found.insert(Arc::from(text));
    }
    Ok(())
}

/// The names or values that the series of a part have.
async fn of_part(
    part: &Part,
    question: &SelectorQuery<'_>,
    wanted: LabelRequest<'_>,
    stats: &ReadStats,
) -> Result<Vec<Arc<str>>> {
    let range = part.meta.range();
    let whole_range = question.range.min <= range.min && range.max <= question.range.max;
    // All series of the part are selected: the answer is in its dictionaries.
    let whole = question.selectors.is_empty() && question.access.is_full() && whole_range;
    if whole && let LabelRequest::Names = wanted {
        let names = part.label_names(stats).await?;
        return Ok(names.into_iter().map(Arc::from).collect());
    }
    if whole && let LabelRequest::Values(name) = wanted {
        let index = part.label_index(stats).await?;
        let Some(rows) = index.rows(name) else { return Ok(Vec::new()) };
        stats.take((rows.end - rows.start) as usize * TEXT_BYTES)?;
        let mut values = Vec::new();
        index.values(std::slice::from_ref(&rows), stats, &mut |_, value| values.push(Arc::from(value))).await?;
        return Ok(values);
    }
    let mut numbers = question.of_part(part, stats).await?;
    if !question.access.is_full() || !whole_range {
        let pages = part.series_pages(&numbers, stats).await?;
        question.keep_allowed(&pages, &mut numbers);
        let mut at = 0;
        numbers.retain(|&number| {
            while pages[at].numbers().end <= number {
                at += 1;
            }
            pages[at].range(number).overlaps(&question.range)
        });
    }
    match wanted {
        LabelRequest::Values(name) => {
            let labels = part.labels(&numbers, Some(&[name.to_owned()]), stats).await?;
            Ok(labels
                .into_iter()
                .flat_map(|label| label.values.into_iter().filter(|value| !value.is_empty()))
                .collect())
        }
        LabelRequest::Names => {
            let all = part.label_names(stats).await?.len();
            let mut names = Texts::default();
            for numbers in numbers.chunks(SERIES_AT_ONCE) {
                let mut bytes = 0;
                for label in part.labels(numbers, None, stats).await? {
                    bytes += size_of_val(&label.codes[..]);
                    if !names.contains(&label.name) && label.codes.iter().any(|&code| code != 0) {
                        names.insert(label.name);
                    }
                }
                stats.give_back(bytes);
                if names.len() == all {
                    break;
                }
            }
            Ok(names.into_iter().collect())
        }
    }
}
