//! The newest sample of each series of some selectors, as one plan: scans, then the newest sample of each series,
//! sorted by name. Series that several selectors match are known from labels, before samples are read.

use std::fmt;
use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, Union, ident};
use futures::StreamExt;
use quiver_query::{QueryContext, Rules, from_datafusion, gathered, operator_plan};
use quiver_types::label::METRIC_NAME;
use quiver_types::{Matcher, Millis, MillisRange, Result, SeriesTable};

use super::RawReader;
use crate::nodes::Step;
use crate::nodes::newest::{NOT_WANTED, Newest, PLACE, each_row};
use crate::plan::labels::{Order, concat, group, sort_numbers};
use crate::plan::memory::Room;
use crate::run_state::RunState;

pub use crate::nodes::newest::NewestValue;

/// The newest samples, sorted by metric name, then by the other labels.
pub struct NewestSamples {
    /// Labels of the series; row numbers refer to it.
    pub table: Arc<SeriesTable>,
    batches: SendableRecordBatchStream,
    ctx: QueryContext,
    /// Memory of the query for the labels.
    _memory: MemoryReservation,
}

impl fmt::Debug for NewestSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewestSamples").field("series", &self.table.len()).finish_non_exhaustive()
    }
}

impl RawReader {
    /// Starts reading the newest sample of each series that has a name and matches one of the selectors. Series whose
    /// newest sample marks their end are left out. The range is inclusive.
    ///
    /// # Errors
    /// LimitExceeded, Timeout, Cancelled, Internal.
    pub async fn newest(&self, selectors: Vec<Vec<Matcher>>, range: MillisRange) -> Result<NewestSamples> {
        let mut found = Vec::with_capacity(selectors.len());
        for matchers in selectors {
            found.push(self.selected(matchers, range).await?);
        }
        let room = Room::new(&self.engine, &self.ctx);
        let tables: Vec<&SeriesTable> = found.iter().map(|selected| &*selected.table).collect();
        let (table, places) = places(&room, &tables)?;
        let histograms = found.iter().any(|selected| selected.has_histograms);
        let mut inputs = Vec::with_capacity(found.len());
        for (mut selected, places) in found.into_iter().zip(places) {
            // Skip a selector that adds no series, unless it is the only one.
            if !inputs.is_empty() && places.iter().all(|place| *place == NOT_WANTED) {
                continue;
            }
            // Do not read series that are not in the result, or that an earlier selector has.
            room.take(places.len())?;
            selected.restrict(places.iter().map(|place| *place != NOT_WANTED).collect());
            let newest = Newest { places, histograms };
            inputs.push(Arc::new(operator_plan(Step(Arc::new(newest)), vec![self.scan(&selected, range)?])?));
        }
        let plan = in_order(inputs)?;
        let run = Arc::new(RunState::new(self.ctx.clone(), None));
        let batches = self.engine.execute(&plan, &self.ctx, Rules::Shared(run)).await?;
        Ok(NewestSamples { table: Arc::new(table), batches, ctx: self.ctx.clone(), _memory: room.into_memory() })
    }
}

/// Sorts the rows of all inputs by place.
fn in_order(inputs: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    let Some(first) = inputs.first() else { return Err(quiver_types::Error::internal("no selector")) };
    let all = if inputs.len() == 1 {
        LogicalPlan::clone(first)
    } else {
        let schema = Arc::clone(first.schema());
        LogicalPlan::Union(Union { inputs, schema })
    };
    let sorted = LogicalPlanBuilder::from(gathered(all)?).sort([ident(PLACE).sort(true, false)]);
    sorted.and_then(LogicalPlanBuilder::build).map_err(from_datafusion)
}

/// The labels of all series with a name, without duplicates and sorted, and for each table the places of its rows.
/// Series in several tables belong to the first one.
fn places(room: &Room, tables: &[&SeriesTable]) -> Result<(SeriesTable, Vec<Vec<u32>>)> {
    let all = if let [one] = tables { SeriesTable::clone(one) } else { concat(room, tables.iter().copied())? };
    room.take_codes(2 * all.len())?;
    let named = |row: u32| !all.metric(row as usize).is_empty();
    let rows: Vec<u32> = if tables.len() == 1 {
        (0..all.len() as u32).filter(|&row| named(row)).collect()
    } else {
        group(room, &all, |_| true)?.first.into_iter().filter(|&row| named(row)).collect()
    };
    // Metric names are compared first, before any other label.
    let others = all.keep(|name| name != METRIC_NAME);
    let order = Order::new(room, &others)?;
    let metric = |row: u32| all.metric(row as usize);
    let sorted = sort_numbers(room, rows.len(), |a, b| {
        let (a, b) = (rows[a as usize], rows[b as usize]);
        metric(a).cmp(metric(b)).then_with(|| order.compare(a, b))
    })?;
    let sorted: Vec<u32> = sorted.into_iter().map(|number| rows[number as usize]).collect();
    room.take_codes(all.len())?;
    let mut place_of = vec![NOT_WANTED; all.len()];
    sorted.iter().zip(0..).for_each(|(&row, place)| place_of[row as usize] = place);
    room.take_codes(sorted.len().saturating_mul(all.names().len()))?;
    let mut rest = place_of.as_slice();
    let mut places = Vec::with_capacity(tables.len());
    for table in tables {
        let (own, others) = rest.split_at(table.len());
        places.push(own.to_vec());
        rest = others;
    }
    Ok((all.take(&sorted), places))
}

impl NewestSamples {
    /// Calls a function for each sample, in order: row of the table, time, value.
    ///
    /// # Errors
    /// Those of the function; LimitExceeded, Timeout, Cancelled, Internal.
    pub async fn each(&mut self, mut visit: impl FnMut(u32, Millis, NewestValue) -> Result<()>) -> Result<()> {
        while let Some(batch) = self.batches.next().await {
            self.ctx.check("query execution")?;
            each_row(&batch.map_err(from_datafusion)?, &mut visit)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::series::SeriesTableBuilder;

    use super::*;

    fn table(rows: &[&[(&str, &str)]]) -> SeriesTable {
        let mut builder = SeriesTableBuilder::default();
        for row in rows {
            builder.push(row.iter().copied());
        }
        builder.finish()
    }

    #[test]
    fn each_series_has_one_place() {
        let room = Room::unbounded();
        let first = table(&[&[("__name__", "b"), ("x", "1")], &[("x", "1")], &[("__name__", "a"), ("x", "2")]]);
        let second = table(&[&[("__name__", "a")], &[("__name__", "b"), ("x", "1")]]);
        let (all, of) = places(&room, &[&first, &second]).unwrap();
        assert_eq!(of, [vec![2, NOT_WANTED, 1], vec![0, NOT_WANTED]]);
        let shown: Vec<Vec<(&str, &str)>> = (0..all.len()).map(|row| all.labels(row).collect()).collect();
        let expected =
            [vec![("__name__", "a")], vec![("__name__", "a"), ("x", "2")], vec![("__name__", "b"), ("x", "1")]];
        assert_eq!(shown, expected);
        let (all, of) = places(&room, &[&second]).unwrap();
        assert_eq!((all.len(), of), (2, vec![vec![0, 1]]));
        assert!(places(&Room::bounded(16), &[&first, &second]).is_err());
    }

    #[test]
    fn names_come_before_labels_of_lesser_names() {
        // `A` stands before `__name__`, so labels in their order would have the second first.
        let both = table(&[&[("A", "1"), ("__name__", "a")], &[("__name__", "a")], &[("A", "0"), ("__name__", "b")]]);
        assert_eq!(places(&Room::unbounded(), &[&both]).unwrap().1, [vec![1, 0, 2]]);
    }
}
