use std::io::Cursor;

use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use proptest::prelude::*;
use quiver_query::{Limits, Operator as _, QueryContext};
use quiver_types::{Access, Histogram, ResetHint, RunShared};

use super::*;
use crate::histogram::testing::{custom, exponential, with_negative, with_zero};
use crate::kernel::Block;
use crate::nodes::batch::to_batch;
use crate::nodes::literal::Literal;
use crate::nodes::{Step, StepExec};

const GROUPS: usize = 3;
const STEPS: usize = 2;

const OPS: [AggregateOp; 9] = [
    AggregateOp::Sum,
    AggregateOp::Avg,
    AggregateOp::Count,
    AggregateOp::Min,
    AggregateOp::Max,
    AggregateOp::Group,
    AggregateOp::Stddev,
    AggregateOp::Stdvar,
    AggregateOp::Quantile,
];

/// A row: its group, values by step, a histogram at the first step.
type Row = (u32, Vec<Option<f64>>, Option<Histogram>);

fn fold(op: AggregateOp, param: Option<(Param, PosRange)>) -> FoldParams {
    FoldParams {
        op,
        steps: STEPS,
        ids: vec![],
        groups: GROUPS,
        param,
        pos: PosRange::default(),
        table: Arc::default(),
        histograms: matches!(op, AggregateOp::Sum | AggregateOp::Avg),
        rollup: None,
    }
}

/// Folds the rows of two partitions.
fn folded(fold: &FoldParams, rows: &[Row], cut: usize) -> [Accumulator; 2] {
    let cut = cut.min(rows.len());
    [&rows[..cut], &rows[cut..]].map(|rows| {
        let mut state = Accumulator::new(fold.op, fold.groups, fold.steps, fold.pos);
        for (group, cells, histogram) in rows {
            let values: Vec<f64> = cells.iter().map(|c| c.unwrap_or(7.0)).collect();
            let present: Vec<bool> = cells.iter().map(Option::is_some).collect();
            let hists: Hists = histogram.iter().map(|h| (0, h.clone())).collect();
            let row = SeriesRow { first: 0, values: &values, present: &present, hists: &hists, metric_name: "m" };
            state.fold(*group, &row);
        }
        state
    })
}

/// An answer with the bits of its numbers, of which NaN has many.
type Answer = (Vec<Option<u64>>, String, Annotations);

fn answer(state: Accumulator, mut annotations: Annotations) -> Answer {
    let block = state.finish(&[0.3], &mut annotations);
    let bits = |v: &f64| if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() };
    let values = block.values.iter().zip(&block.present).map(|(v, p)| p.then(|| bits(v))).collect();
    (values, format!("{:?}", block.hists), annotations)
}

/// The batches of two partitions, and what these had to say.
fn given(fold: &FoldParams, states: [Accumulator; 2]) -> (Vec<RecordBatch>, Annotations) {
    let (mut batches, mut annotations) = (Vec::new(), Annotations::default());
    for (partition, mut state) in states.into_iter().enumerate() {
        state.remark(&mut annotations);
        for parts in state.into_parts() {
            batches.push(state::to_batch(partition, parts, fold.steps, &fold.state_schema()).unwrap());
        }
    }
    (batches, annotations)
}

/// A batch as another process gets it.
fn sent(batch: &RecordBatch) -> RecordBatch {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    StreamReader::try_new(Cursor::new(bytes), None).unwrap().next().unwrap().unwrap()
}

/// Checks that states give the same bits merged as they are, as batches in any order, in pieces, and sent elsewhere.
fn check(op: AggregateOp, rows: &[Row], cut: usize) -> Result<(), TestCaseError> {
    let fold = fold(op, None);
    let [mut first, second] = folded(&fold, rows, cut);
    first.merge(second);
    let expected = answer(first, Annotations::default());
    let forms: [fn(Vec<RecordBatch>) -> Vec<RecordBatch>; 3] = [
        |batches| batches.into_iter().rev().collect(),
        |batches| batches.iter().rev().flat_map(|b| (0..b.num_rows()).map(move |row| b.slice(row, 1))).collect(),
        |batches| batches.iter().map(sent).collect(),
    ];
    for (number, form) in forms.into_iter().enumerate() {
        let (batches, annotations) = given(&fold, folded(&fold, rows, cut));
        let merged = fold.merged(form(batches)).unwrap();
        let merged = merged.unwrap_or_else(|| Accumulator::new(op, GROUPS, STEPS, PosRange::default()));
        prop_assert_eq!(answer(merged, annotations), expected.clone(), "{:?}, form {}", op, number);
    }
    Ok(())
}

fn any_value() -> impl Strategy<Value = f64> {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, 1e100, -1e100, 1e-300, -0.0, 0.0];
    prop_oneof![3 => -1e3_f64..1e3, 1 => prop::sample::select(special.to_vec())]
}

fn any_histogram() -> impl Strategy<Value = Histogram> {
    let counts = || prop::collection::vec(prop_oneof![4 => (0_u32..50).prop_map(f64::from), 1 => Just(1e17)], 1..4);
    let exponential = (-1..3, 1..4, counts(), counts(), 0_u32..3).prop_map(|(schema, offset, p, n, zero)| {
        let h = with_negative(exponential(schema, offset, &p), offset, &n);
        if zero == 0 { h } else { with_zero(h, 0.25, f64::from(zero)) }
    });
    let custom = (0_usize..2, counts()).prop_map(|(bounds, c)| custom(&[[1.0, 2.0], [1.0, 3.0]][bounds], &c));
    let huge = Just(with_zero(exponential_of(f64::MAX / 4.0), 0.5, 1.0));
    (prop_oneof![6 => exponential, 1 => custom, 1 => huge], 0_usize..4).prop_map(|(h, hint)| {
        let hints = [ResetHint::Unknown, ResetHint::Reset, ResetHint::NotReset, ResetHint::Gauge];
        Histogram { reset_hint: hints[hint], ..h }
    })
}

fn exponential_of(count: f64) -> Histogram {
    exponential(0, 1, &[count])
}

proptest! {
    #[test]
    fn states_travel_as_batches(
        rows in prop::collection::vec(
            (0..GROUPS as u32, prop::collection::vec(prop::option::of(any_value()), STEPS), Just(None::<Histogram>)), 0..20),
        cut in 0_usize..20,
    ) {
        for op in OPS {
            check(op, &rows, cut)?;
        }
    }

    #[test]
    fn sums_of_histograms_travel_with_what_they_lost(
        rows in prop::collection::vec((0..GROUPS as u32, Just(vec![None::<f64>; STEPS]), prop::option::of(any_histogram())), 0..12),
        float in prop::option::of(0..GROUPS as u32), cut in 0_usize..12,
    ) {
        let float = float.map(|group| (group, vec![Some(1.0); STEPS], None));
        let rows: Vec<Row> = rows.into_iter().chain(float).collect();
        for op in [AggregateOp::Sum, AggregateOp::Avg, AggregateOp::Count, AggregateOp::Max] {
            check(op, &rows, cut)?;
        }
    }
}

#[test]
fn numbers_are_not_copied() {
    for op in OPS.into_iter().filter(|op| *op != AggregateOp::Group) {
        let fold = fold(op, None);
        let [state, _] = folded(&fold, &[(1, vec![Some(2.0), None], None)], 1);
        let parts = state.into_parts().pop().unwrap();
        let address = parts.numbers[0].as_ptr();
        let batch = state::to_batch(4, parts.clone(), STEPS, &fold.state_schema()).unwrap();
        assert_eq!(state::partition(&batch), Some(4));
        drop(batch);
        let batch = state::to_batch(4, parts, STEPS, &fold.state_schema()).unwrap();
        let back = state::to_parts(batch, op, GROUPS, STEPS).unwrap();
        assert_eq!(back.numbers[0].as_ptr(), address, "{op:?}");
    }
}

#[test]
fn other_batches_are_refused() {
    let sum = fold(AggregateOp::Sum, None);
    let (batches, _) = given(&sum, folded(&sum, &[], 0));
    let refused = |op, groups, steps| state::to_parts(batches[0].clone(), op, groups, steps).is_err();
    assert!(!refused(AggregateOp::Sum, GROUPS, STEPS));
    assert!(refused(AggregateOp::Avg, GROUPS, STEPS), "it has other columns");
    assert!(refused(AggregateOp::Sum, GROUPS - 1, STEPS), "it has a group more");
    assert!(refused(AggregateOp::Sum, GROUPS, STEPS + 1), "it has other steps");
}

/// A node that gives rows.
fn literal(rows: &[(u32, [f64; STEPS])]) -> Arc<dyn ExecutionPlan> {
    let schema = matrix_schema(STEPS, false);
    let block = Block {
        rows: rows.iter().map(|row| row.0).collect(),
        steps: STEPS,
        values: rows.iter().flat_map(|row| row.1).collect(),
        present: vec![true; rows.len() * STEPS],
        hists: vec![],
    };
    given_node(vec![to_batch(block, &schema).unwrap()], schema)
}

fn given_node(batches: Vec<RecordBatch>, schema: SchemaRef) -> Arc<dyn ExecutionPlan> {
    Arc::new(StepExec::new(Arc::new(Literal { shown: String::new(), schema, batches }), vec![]))
}

/// Rows of two groups in two partitions.
fn two_partitions() -> Arc<dyn ExecutionPlan> {
    let first = literal(&[(0, [1.0, 2.0]), (1, [5.0, 6.0])]);
    UnionExec::try_new(vec![first, literal(&[(2, [3.0, 7.0])])]).unwrap()
}

fn with_rows(fold: FoldParams) -> Arc<FoldParams> {
    Arc::new(FoldParams { ids: vec![0, 1, 0], ..fold })
}

/// Both halves, as they are planned.
fn planned(fold: &Arc<FoldParams>, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Arc<dyn ExecutionPlan> {
    let step = Arc::new(Step(Arc::new(FoldFinal(Arc::clone(fold)))));
    step.physical(inputs, &SessionContext::new().state()).unwrap()
}

/// Runs a plan, with nothing shared by any other run.
async fn run(plan: &Arc<dyn ExecutionPlan>) -> Vec<RecordBatch> {
    let query = QueryContext::new(Access::full(), Limits::default());
    let shared = RunShared::with(Arc::new(RunState::new(query, None)));
    let config = SessionConfig::new().with_extension(Arc::new(shared));
    let task = TaskContext::default().with_session_config(config);
    collect(Arc::clone(plan), Arc::new(task)).await.unwrap()
}

#[tokio::test]
async fn halves_run_apart() {
    for op in OPS {
        let param = (op == AggregateOp::Quantile).then(|| (Param::Const(0.5), PosRange::default()));
        let fold = with_rows(fold(op, param));
        let together = planned(&fold, vec![two_partitions()]);
        let expected = run(&together).await;
        assert_eq!(expected.iter().map(RecordBatch::num_rows).sum::<usize>(), 2, "{op:?}");
        assert_eq!(run(&together).await, expected, "{op:?} again");
        let partial: Arc<dyn ExecutionPlan> =
            Arc::new(StepExec::new(Arc::new(FoldPartial(Arc::clone(&fold))), vec![two_partitions()]));
        let states = run(&partial).await.iter().rev().map(sent).collect();
        let given = given_node(states, fold.state_schema());
        let merging: Arc<dyn ExecutionPlan> = Arc::new(StepExec::new(Arc::new(FoldFinal(fold)), vec![given]));
        assert_eq!(run(&merging).await, expected, "{op:?} in two runs");
    }
}

#[tokio::test]
async fn a_parameter_that_depends_on_the_step_leaves_the_partitions_alone() {
    let fold = with_rows(fold(AggregateOp::Quantile, Some((Param::Input(1), PosRange::default()))));
    let plan = planned(&fold, vec![two_partitions(), literal(&[(0, [0.0, 1.0])])]);
    let partial = Arc::clone(plan.children()[0].children()[0]);
    assert_eq!((partial.name(), partial.output_partitioning().partition_count()), ("StepAggregate: partial", 2));
    let block = to_block(run(&plan).await.remove(0)).unwrap();
    assert_eq!((block.rows, block.values), (vec![0, 1], vec![1.0, 7.0, 5.0, 6.0]));
}
