//! Series over time for the search page, and the heat map of durations.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_query::QueryContext;
use quiver_types::spans::{Place, STATUS_ERROR, SpanFilter, TraceId};
use serde_json::{Value, json};

use super::sketch::Sketch;
use super::tags::{each_attribute, place_columns};
use super::{Columns, columns, shown};
use crate::engine::{TraceError, TracesEngine, id_text};
use crate::export::internal::STATUS;
use crate::params::{ParamError, place};

/// Most steps of a window.
const STEPS_MAX: i64 = 11_000;
/// What a step of a series takes while it is counted, and a cell of the finest heat map, about.
const CELL_BYTES: usize = 2048;
const HEAT_BYTES: usize = 96;
/// Most series of an answer; the rest is called `other`.
const SERIES_MAX: usize = 100;

/// What series are split by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SplitBy {
    /// Not at all.
    Nothing,
    /// By service.
    Service,
    /// By name.
    Operation,
    /// By status.
    Status,
    /// By the value of an attribute.
    Tag(Option<Place>, String),
}

impl SplitBy {
    /// Reads `service`, `operation`, `status`, `tag:<key>`.
    ///
    /// # Errors
    /// None of these.
    pub fn parse(text: Option<&str>) -> Result<Self, ParamError> {
        Ok(match text {
            None => Self::Nothing,
            Some("service") => Self::Service,
            Some("operation") => Self::Operation,
            Some("status") => Self::Status,
            Some(other) => match other.strip_prefix("tag:").filter(|key| !key.is_empty()) {
                Some(key) => {
                    let (place, key) = place(key);
                    Self::Tag(place, key.to_owned())
                }
                None => {
                    let text = format!("`{other}` is none of service, operation, status, tag:<key>");
                    return Err(ParamError::new("by", text));
                }
            },
        })
    }
}

/// What is shown of the spans of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// How many.
    Count,
    /// How many failed.
    Errors,
    /// A percentile of their duration in nanoseconds.
    Quantile(u8),
    /// Mean duration in nanoseconds.
    Average,
}

impl Measure {
    /// The words.
    pub const WORDS: [&'static str; 6] = ["count", "errors", "p50", "p95", "p99", "avg"];

    /// Reads one of [`Measure::WORDS`].
    pub fn of_word(word: &str) -> Self {
        match word {
            "errors" => Self::Errors,
            "p50" => Self::Quantile(50),
            "p95" => Self::Quantile(95),
            "p99" => Self::Quantile(99),
            "avg" => Self::Average,
            _ => Self::Count,
        }
    }
}

/// Gives the start of the step that a time is in, and checks the number of steps.
fn check_steps(range: (i64, i64), step: i64) -> Result<(), ParamError> {
    if step <= 0 {
        return Err(ParamError::new("step", "must be above 0"));
    }
    if range.1.saturating_sub(range.0) / step > STEPS_MAX {
        return Err(ParamError::new("step", format!("gives more than {STEPS_MAX} points")));
    }
    Ok(())
}

/// Gives a step for a window when none is asked for: about 60 points.
pub fn default_step(range: (i64, i64)) -> i64 {
    (range.1.saturating_sub(range.0) / 60).max(1_000_000_000)
}

impl TracesEngine {
    /// Gives series over time.
    ///
    /// # Errors
    /// Too many steps; those of the engine.
    pub async fn histogram(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        range: (i64, i64),
        step: i64,
        by: SplitBy,
        measure: Measure,
    ) -> Result<Value, TraceError> {
        check_steps(range, step)?;
        self.read(ctx, move |reader| async move {
            let mut series: BTreeMap<String, BTreeMap<i64, (u64, Sketch)>> = BTreeMap::new();
            let mut wanted = columns(&["start", "end", "status"], &[]);
            match &by {
                SplitBy::Service => wanted.extend(columns(&[], &["service"])),
                SplitBy::Operation => wanted.extend(columns(&["name"], &[])),
                SplitBy::Tag(place, _) => wanted.extend(place_columns(*place)),
                SplitBy::Nothing | SplitBy::Status => {}
            }
            reader
                .scan(filter, wanted, |batch| {
                    let c = Columns(batch);
                    let (starts, ends, statuses) = (c.times("start")?, c.times("end")?, c.small("status")?);
                    for i in 0..batch.num_rows() {
                        let name = match &by {
                            SplitBy::Nothing => String::new(),
                            SplitBy::Service => shown(c.view("service")?.value(i)).to_owned(),
                            SplitBy::Operation => c.text("name")?.value(i).to_owned(),
                            SplitBy::Status => STATUS[usize::from(statuses.value(i)).min(2)].to_owned(),
                            SplitBy::Tag(_, key) => {
                                let mut found = String::new();
                                each_attribute(&c, i, |_, k, value| {
                                    if k == key && found.is_empty() {
                                        found = value.text().into_owned();
                                    }
                                });
                                found
                            }
                        };
                        let name = if series.len() >= SERIES_MAX && !series.contains_key(&name) {
                            "other".to_owned()
                        } else {
                            name
                        };
                        let at = starts.value(i).div_euclid(step) * step;
                        if !series.get(&name).is_some_and(|points| points.contains_key(&at)) {
                            reader.collect(CELL_BYTES + 2 * name.len())?;
                        }
                        let of = series.entry(name).or_default().entry(at).or_default();
                        of.0 += u64::from(statuses.value(i) == STATUS_ERROR);
                        of.1.add(ends.value(i).saturating_sub(starts.value(i)));
                    }
                    Ok(true)
                })
                .await?;
            let list: Vec<Value> = series
                .into_iter()
                .map(|(name, points)| {
                    let points = points.into_iter().map(|(at, (errors, mut sketch))| {
                        let value = match measure {
                            Measure::Count => json!(sketch.count()),
                            Measure::Errors => json!(errors),
                            Measure::Quantile(q) => json!(sketch.quantile(f64::from(q) / 100.0)),
                            Measure::Average => json!(sketch.mean()),
                        };
                        json!([at.to_string(), value])
                    });
                    json!({"name": name, "points": points.collect::<Vec<_>>()})
                })
                .collect();
            Ok(json!({"step": step, "series": list}))
        })
        .await
    }

    /// Gives counts by time and duration.
    ///
    /// # Errors
    /// Too many steps; those of the engine.
    pub async fn heatmap(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        range: (i64, i64),
        step: i64,
        buckets: usize,
    ) -> Result<Value, TraceError> {
        check_steps(range, step)?;
        self.read(ctx, move |reader| async move {
            // Finer than any answer; folded to the wanted number of rows once the extremes are known.
            let mut cells: HashMap<(i64, i32), (u64, u64, TraceId), FixedState> = HashMap::default();
            let wanted = columns(&["trace_id", "start", "end", "status"], &[]);
            let log = |duration: i64| ((duration.max(1) as f64).log2() * 16.0).floor() as i32;
            reader
                .scan(filter, wanted, |batch| {
                    let c = Columns(batch);
                    let (starts, ends, statuses) = (c.times("start")?, c.times("end")?, c.small("status")?);
                    let (ids, known) = (c.ids("trace_id")?, cells.len());
                    for i in 0..batch.num_rows() {
                        let at = starts.value(i).div_euclid(step) * step;
                        let id: TraceId = ids.value(i).try_into().unwrap_or_default();
                        let cell = cells.entry((at, log(ends.value(i) - starts.value(i)))).or_insert((0, 0, id));
                        cell.0 += 1;
                        cell.1 += u64::from(statuses.value(i) == STATUS_ERROR);
                        // The same one whatever the order of rows.
                        cell.2 = cell.2.min(id);
                    }
                    reader.collect((cells.len() - known) * HEAT_BYTES)?;
                    Ok(true)
                })
                .await?;
            Ok(fold_heatmap(&cells, buckets))
        })
        .await
    }
}

fn fold_heatmap(cells: &HashMap<(i64, i32), (u64, u64, TraceId), FixedState>, buckets: usize) -> Value {
    let mut times: Vec<i64> = cells.keys().map(|k| k.0).collect();
    times.sort_unstable();
    times.dedup();
    let least = cells.keys().map(|k| k.1).min().unwrap_or(0);
    let most = cells.keys().map(|k| k.1).max().unwrap_or(0);
    let width = ((most - least + 1) as usize).div_ceil(buckets.max(1)).max(1);
    let rows = ((most - least + 1) as usize).div_ceil(width);
    let bounds: Vec<i64> = (0..=rows).map(|i| 2f64.powf((least as f64 + (i * width) as f64) / 16.0) as i64).collect();
    let mut counts = vec![vec![0u64; rows]; times.len()];
    let mut errors = counts.clone();
    let mut exemplars: Vec<Vec<Option<TraceId>>> = vec![vec![None; rows]; times.len()];
    for (&(at, log), &(count, failed, id)) in cells {
        let (Ok(column), row) = (times.binary_search(&at), (log - least) as usize / width) else { continue };
        counts[column][row] += count;
        errors[column][row] += failed;
        let exemplar = &mut exemplars[column][row];
        *exemplar = Some(exemplar.map_or(id, |known| known.min(id)));
    }
    let exemplars: Vec<Vec<Option<String>>> =
        exemplars.iter().map(|column| column.iter().map(|id| id.as_ref().map(id_text)).collect()).collect();
    let times: Vec<String> = times.iter().map(i64::to_string).collect();
    json!({"times": times, "bounds": bounds, "counts": counts, "errors": errors, "exemplars": exemplars})
}
