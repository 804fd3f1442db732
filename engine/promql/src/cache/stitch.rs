//! Joins results for consecutive steps: one row per label set.

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use quiver_types::label::push_pair;
use quiver_types::series::SeriesTableBuilder;
use quiver_types::{Result, SeriesTable};

use crate::kernel::{Block, Grid};
use crate::plan::labels::sorted;
use crate::plan::memory::Room;
use crate::result::StepResult;

/// Memory of a row besides its values and labels.
const ROW_BYTES: usize = 256;

/// Steps of a result, and where they start in the joined result.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) result: Arc<StepResult>,
    /// The steps to take from it.
    pub(crate) steps: Range<usize>,
    /// Index of the first one in the joined result.
    pub(crate) at: usize,
}

/// Joins the pieces into one result, sorted by labels. Rows without values in the pieces' steps are left out.
///
/// # Errors
/// LimitExceeded, Timeout, Cancelled.
pub(crate) fn stitch(room: &Room, pieces: &[Piece], grid: Grid) -> Result<StepResult> {
    let mut rows: HashMap<Vec<u8>, u32, RandomState> = HashMap::default();
    let mut table = SeriesTableBuilder::default();
    let mut block = Block::new(grid.steps);
    let mut key = Vec::new();
    // Values and presence grow by doubling; a row also has a key, codes and a place in the order.
    let row_bytes = 2 * grid.steps * (size_of::<f64>() + 1) + ROW_BYTES;
    for piece in pieces {
        let target = piece.at..piece.at + piece.steps.len();
        for row in piece.result.rows() {
            let present = &row.present[piece.steps.clone()];
            let hists = || row.hists.iter().filter(|h| piece.steps.contains(&(h.1 as usize)));
            if !present.contains(&true) && hists().next().is_none() {
                continue;
            }
            key.clear();
            let labels = || piece.result.table.labels(row.row as usize);
            labels().for_each(|(name, value)| push_pair(&mut key, name, value));
            let at = if let Some(&at) = rows.get(&key) {
                at
            } else {
                room.take(row_bytes + 2 * key.len())?;
                let at = rows.len() as u32;
                rows.insert(key.clone(), at);
                table.push(labels());
                block.rows.push(at);
                block.values.resize(block.values.len() + grid.steps, 0.0);
                block.present.resize(block.present.len() + grid.steps, false);
                at
            };
            room.did(piece.steps.len())?;
            let start = at as usize * grid.steps;
            let cells = start + target.start..start + target.end;
            block.values[cells.clone()].copy_from_slice(&row.values[piece.steps.clone()]);
            block.present[cells].copy_from_slice(present);
            let moved = |step: u32| (step as usize - piece.steps.start + piece.at) as u32;
            room.take(hists().map(|h| h.2.memory_bytes()).sum())?;
            block.hists.extend(hists().map(|h| (at, moved(h.1), h.2.clone())));
        }
    }
    block.hists.sort_by_key(|h| (h.0, h.1));
    let table: SeriesTable = table.finish();
    let order: Vec<_> = sorted(room, &table)?.into_iter().map(|row| (row, 0, row)).collect();
    Ok(StepResult { table: Arc::new(table), grid, blocks: Arc::new(vec![block]), order: Arc::new(order) })
}

#[cfg(test)]
mod tests {
    use quiver_types::Histogram;

    use super::*;

    fn result(start: i64, rows: &[(&str, &[Option<f64>])]) -> Arc<StepResult> {
        let mut table = SeriesTableBuilder::default();
        let mut block = Block::new(rows[0].1.len());
        for (i, (name, cells)) in rows.iter().enumerate() {
            table.push([("a", *name)]);
            block.rows.push(i as u32);
            block.values.extend(cells.iter().map(|c| c.unwrap_or(-1.0)));
            block.present.extend(cells.iter().map(Option::is_some));
        }
        let order = (0..rows.len() as u32).map(|i| (i, 0, i)).collect();
        let grid = Grid { start, step_ms: 10, steps: rows[0].1.len() };
        Arc::new(StepResult {
            table: Arc::new(table.finish()),
            grid,
            blocks: Arc::new(vec![block]),
            order: Arc::new(order),
        })
    }

    #[test]
    fn rows_meet_by_their_labels() {
        let left = result(0, &[("x", &[Some(1.0), Some(2.0), Some(3.0)]), ("z", &[Some(9.0), None, None])]);
        let right = result(30, &[("b", &[Some(5.0)]), ("x", &[Some(4.0)])]);
        let mut right = Arc::unwrap_or_clone(right);
        Arc::make_mut(&mut right.blocks)[0].present[0] = false;
        Arc::make_mut(&mut right.blocks)[0].hists.push((0, 0, Histogram::default()));
        let right = Arc::new(right);
        let pieces = [Piece { result: left, steps: 1..3, at: 0 }, Piece { result: right, steps: 0..1, at: 2 }];
        let whole = stitch(&Room::unbounded(), &pieces, Grid { start: 10, step_ms: 10, steps: 3 }).unwrap();
        let rows: Vec<_> = whole
            .rows()
            .map(|row| {
                let cells = row.values.iter().zip(row.present).map(|(v, p)| p.then_some(*v)).collect::<Vec<_>>();
                (whole.table.value(row.row as usize, "a").to_owned(), cells)
            })
            .collect();
        let expected =
            [("b".to_owned(), vec![None, None, None]), ("x".to_owned(), vec![Some(2.0), Some(3.0), Some(4.0)])];
        assert_eq!(rows, expected);
        assert_eq!(whole.blocks[0].hists.iter().map(|h| (h.0, h.1)).collect::<Vec<_>>(), [(1, 2)]);
    }
}
