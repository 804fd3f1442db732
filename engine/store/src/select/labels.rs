//! Label names and label values, from indexes alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use hashbrown::HashSet;
use quiver_types::{ReadStats, Result};

use super::dictionary::used_codes;
use super::live;
use super::resolve::{PARTS_OPENED_AT_ONCE, Question};
use crate::error::leave_out;
use crate::part::{PartLabel, PartSeries};
use crate::snapshot::Snapshot;

/// What a text takes beside its bytes, on its way into a list.
const TEXT_BYTES: usize = 64;

type Texts = HashSet<Arc<str>, foldhash::fast::RandomState>;

/// What of a label set is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Its label names.
    Names,
    /// The value of this label.
    Values(&'a str),
}

/// Gives the sorted names or values of all series of the question.
pub(crate) async fn labels(
    question: &Question<'_>,
    wanted: Wanted<'_>,
    snapshot: &Snapshot,
    stats: &ReadStats,
) -> Result<Vec<String>> {
    let (parts, _) = question.parts(snapshot, stats);
    let mut found = Texts::default();
    let mut opened = futures::stream::iter(parts)
        .map(|part| async move { part.series(stats).await.map(|series| (part, series)) })
        .buffered(PARTS_OPENED_AT_ONCE);
    while let Some(opened) = opened.next().await {
        let (part, series) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                leave_out(stats, e)?;
                continue;
            }
        };
        // All series of a part that lies in the range as a whole: its dictionaries are the answer.
        let range = part.meta.range();
        let whole = question.selectors.is_empty()
            && question.access.is_full()
            && question.range.min <= range.min
            && range.max <= question.range.max;
        let numbers = if whole { None } else { Some(question.of_part(&series)) };
        stats.check()?;
        let before = found.len();
        of_part(&series, numbers.as_deref(), wanted, &mut found);
        // The texts are those of the part, which a cache counts.
        stats.take((found.len() - before) * TEXT_BYTES)?;
    }
    for live in live::resolve(question, snapshot) {
        live.for_pairs(|name, value| match wanted {
            Wanted::Names => insert(&mut found, name),
            Wanted::Values(wanted) if wanted == name => insert(&mut found, value),
            Wanted::Values(_) => {}
        });
    }
    stats.take(found.iter().map(|text| text.len() + TEXT_BYTES).sum())?;
    stats.check()?;
    let sorted: BTreeSet<Arc<str>> = found.into_iter().collect();
    Ok(sorted.iter().map(ToString::to_string).collect())
}

fn insert(found: &mut Texts, text: &str) {
    if !found.contains(text) {
        found.insert(Arc::from(text));
    }
}

/// `numbers` are the series that count; `None`: all.
fn of_part(series: &PartSeries, numbers: Option<&[u32]>, wanted: Wanted<'_>, found: &mut Texts) {
    match (wanted, numbers) {
        (Wanted::Names, None) => series.label_columns().iter().for_each(|label| insert(found, &label.name)),
        (Wanted::Names, Some(numbers)) => {
            let present = |label: &&PartLabel| numbers.iter().any(|&number| label.codes.get(number) != 0);
            let labels = series.label_columns().iter().filter(|label| !found.contains(&label.name)).collect::<Vec<_>>();
            labels.into_iter().filter(present).for_each(|label| insert(found, &label.name));
        }
        (Wanted::Values(name), numbers) => {
            let Some(label) = series.label(name) else { return };
            let used = match numbers {
                None => (0..label.values.len() as u32).collect(),
                Some(numbers) => used_codes(&label.codes.gather(numbers), label.values.len()),
            };
            for code in used.into_iter().filter(|&code| code != 0) {
                let value = &label.values[code as usize];
                if !found.contains(value) {
                    found.insert(Arc::clone(value));
                }
            }
        }
    }
}
