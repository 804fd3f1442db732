//! What windows give counts as long as it is there, and their conditions hold row by row.

use arrow::array::{BooleanArray, StringArray};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::functions_window::cume_dist::cume_dist_udwf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::{WindowFrame, col, lit};

use super::*;
use crate::functions::sum;

fn pool(bytes: usize) -> (Arc<dyn MemoryPool>, Room) {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
    (Arc::clone(&pool), Room::new(pool))
}

fn given(room: &Room, collects: bool) -> WindowMemory {
    MemoryPolicy { collects, is_long: true, room: room.clone() }.begin().unwrap()
}

#[test]
fn values_that_are_collected_take_memory_in_steps() {
    let (pool, room) = pool(3 * STEP);
    let mut all = given(&room, true);
    all.add(STEP - 1).unwrap();
    assert_eq!(pool.reserved(), 0);
    all.add(1).unwrap();
    assert_eq!(pool.reserved(), STEP);
    all.add(2 * STEP).unwrap();
    assert_eq!(pool.reserved(), 3 * STEP);
    assert!(all.recent.is_empty(), "nothing of it goes");
    assert!(all.add(STEP).is_err());
    drop(all);
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn values_that_are_gone_give_their_memory_back() {
    const EACH: usize = 100;
    let (pool, room) = pool(KEPT * EACH + 2 * STEP);
    let mut recent = given(&room, false);
    for _ in 0..2 * KEPT {
        recent.add(EACH).unwrap();
        assert!(recent.recent.len() <= KEPT);
    }
    let held = pool.reserved() + recent.owed;
    assert!((KEPT * EACH..=KEPT * EACH + STEP).contains(&held), "{held}");
    // Those that take nothing let the others go.
    for _ in 0..KEPT {
        recent.add(0).unwrap();
    }
    assert_eq!(pool.reserved() + recent.owed, 0);
    // Without an end of those that stay it is refused.
    let mut all = given(&room, true);
    assert!((0..2 * KEPT).any(|_| all.add(EACH).is_err()));
}

/// Joins texts, so that it is seen which rows it got.
#[derive(Debug, Default)]
struct Joined(VecDeque<String>);

impl Accumulator for Joined {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.extend(values[0].as_string::<i32>().iter().map(|text| text.unwrap_or("-").to_owned()));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.drain(..values[0].len());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8(Some(self.0.iter().map(String::as_str).collect())))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

fn frames(room: &Room, rows: Option<usize>, is_filtered: bool) -> Frames {
    Frames { inner: Box::new(Joined::default()), given: given(room, true), rows, is_filtered }
}

fn texts(texts: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

#[test]
fn conditions_hold_for_the_rows_of_a_frame() {
    let (_, room) = pool(1 << 20);
    let said = |frames: &mut Frames| frames.evaluate().unwrap().to_string();
    let mut plain = frames(&room, None, false);
    plain.update_batch(&[texts(&[Some("a"), None, Some("b")])]).unwrap();
    assert_eq!(said(&mut plain), "a-b");
    let mut some = frames(&room, None, true);
    let condition: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]));
    let values = [condition, texts(&[Some("a"), Some("b"), Some("c"), None])];
    some.update_batch(&values).unwrap();
    assert_eq!(said(&mut some), "a-", "NULL does not hold");
    // A frame that moves leaves those out that it took.
    let first = values.each_ref().map(|values| values.slice(0, 3));
    some.retract_batch(&first).unwrap();
    assert_eq!(said(&mut some), "-");
    assert!(some.supports_retract_batch());
    for wrong in [vec![], vec![texts(&[Some("a")])]] {
        assert!(some.update_batch(&wrong).is_err(), "{wrong:?}");
    }
    let state = some.state().unwrap();
    some.merge_batch(&[state[0].to_array().unwrap()]).unwrap();
    assert_eq!(said(&mut some), "--", "a state has no condition");
}

#[test]
fn one_value_for_all_rows_counts_once_for_each() {
    let (pool, room) = pool(100 * STEP);
    let long = "x".repeat(STEP);
    let rows = [Some(long.as_str()), Some(""), Some(""), Some("")];
    let reserved = |rows_of_all: Option<usize>| {
        let mut frames = frames(&room, rows_of_all, false);
        frames.update_batch(&[texts(&rows)]).unwrap();
        frames.evaluate().unwrap();
        pool.reserved()
    };
    let (once, each) = (reserved(None), reserved(Some(0)));
    assert!((STEP..2 * STEP).contains(&once), "{once}");
    assert!((4 * STEP..5 * STEP).contains(&each), "{each}");
    // A value that is not long takes nothing.
    let mut short = frames(&room, Some(0), false);
    short.given.is_long = false;
    short.update_batch(&[texts(&rows)]).unwrap();
    short.evaluate().unwrap();
    assert_eq!(pool.reserved(), 0);
}

fn bound(rows: u64, is_before: bool) -> WindowFrameBound {
    let rows = ScalarValue::UInt64(Some(rows));
    if is_before { WindowFrameBound::Preceding(rows) } else { WindowFrameBound::Following(rows) }
}

#[test]
fn frames_say_which_rows_are_needed() {
    let first = || WindowFrameBound::Preceding(ScalarValue::UInt64(None));
    let last = || WindowFrameBound::Following(ScalarValue::UInt64(None));
    let rows = |from, to| WindowFrame::new_bounds(WindowFrameUnits::Rows, from, to);
    let range = |from, to| WindowFrame::new_bounds(WindowFrameUnits::Range, from, to);
    let call = |function: WindowFunctionDefinition, frame: &WindowFrame, is_ordered: bool| {
        let mut call = WindowFunction::new(function, vec![col("a")]);
        call.params.window_frame = frame.clone();
        if is_ordered {
            call.params.order_by = vec![col("a").sort(true, false)];
        }
        call
    };
    let row_number = || WindowFunctionDefinition::WindowUDF(row_number_udwf());
    let cume_dist = || WindowFunctionDefinition::WindowUDF(cume_dist_udwf());
    let sum = || WindowFunctionDefinition::AggregateUDF(sum());
    for (frame, to_the_end, of_all) in [
        (rows(first(), WindowFrameBound::CurrentRow), false, false),
        (rows(first(), last()), true, true),
        (rows(bound(3, true), last()), true, false),
        (rows(first(), bound(3, false)), false, false),
        (range(first(), last()), true, true),
    ] {
        for function in [row_number(), sum()] {
            let expr = Expr::WindowFunction(Box::new(call(function, &frame, true)));
            assert_eq!(collects(&expr), to_the_end, "{frame}");
            assert_eq!(collects(&expr.alias("b")), to_the_end, "{frame}");
        }
        let expr = Expr::WindowFunction(Box::new(call(cume_dist(), &frame, true)));
        assert!(collects(&expr), "{frame}: it has to see all rows");
        assert_eq!(is_constant(&call(sum(), &frame, true).params), of_all, "{frame}");
    }
    // All rows are peers of the row at hand where there is no order.
    let to_peers = range(first(), WindowFrameBound::CurrentRow);
    assert!(is_constant(&call(sum(), &to_peers, false).params));
    assert!(!is_constant(&call(sum(), &to_peers, true).params));
    assert!(!collects(&col("a")) && !collects(&lit(1)));
}

#[test]
fn aggregates_come_apart_and_together() {
    let (_, room) = pool(1);
    for condition in [None, Some(col("b").gt(lit(1)))] {
        let mut call = WindowFunction::new(sum(), vec![col("a")]);
        call.params.filter = condition.clone().map(Box::new);
        assert_eq!(is_filtered(&call), condition.is_some());
        let name = sum().window_function_schema_name(&call.params).unwrap();
        let made = counted(call, true, false, &room);
        assert!(made.params.filter.is_none(), "it is an argument");
        assert_eq!(made.params.args.len(), 1 + usize::from(condition.is_some()));
        let WindowFunctionDefinition::AggregateUDF(function) = &made.fun else { panic!("no aggregate") };
        assert_eq!(function.window_function_schema_name(&made.params).unwrap(), name, "its column is called as before");
        let (parts, inner) = aggregate_parts(function).unwrap();
        assert_eq!(*inner, *sum());
        let bytes = postcard::to_allocvec(&parts).unwrap();
        let again = aggregate_of(postcard::from_bytes(&bytes).unwrap(), inner, &room);
        assert_eq!(again, *function);
        // The condition is no argument of the function within.
        let kinds = [vec![DataType::Boolean; usize::from(condition.is_some())], vec![DataType::Int64]].concat();
        assert_eq!(function.return_type(&kinds).unwrap(), DataType::Int64);
    }
    assert!(aggregate_parts(&sum()).is_none());
    let made = counted(WindowFunction::new(row_number_udwf(), vec![]), false, true, &room);
    let WindowFunctionDefinition::WindowUDF(function) = &made.fun else { panic!("no function of rows") };
    let (collects, inner) = function_parts(function).unwrap();
    assert!(!collects && function_parts(&inner).is_none());
    assert_eq!(function_of(collects, inner, &room), *function);
}
