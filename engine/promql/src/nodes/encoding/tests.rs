use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use arrow::record_batch::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_query::{Limits, Operator as _, QueryContext};
use quiver_types::series::SeriesTableBuilder;
use quiver_types::{Access, Histogram, RunShared, STALE_NAN_BITS, SeriesTable};
use smallvec::SmallVec;

use super::*;
use crate::annotation::AnnotationPlace;
use crate::ast::{AggregateOp, BinaryOp, MatchCardinality, PosRange, VectorMatching};
use crate::functions::function_reference::{KernelKind, NamedKernel};
use crate::functions::{FUNCTIONS, Kernel};
use crate::kernel::{Block, Grid, Window};
use crate::nodes::Step;
use crate::nodes::absent::Absent;
use crate::nodes::aggregate::{FoldFinal, FoldParams, FoldPartial};
use crate::nodes::batch::{matrix_schema, to_batch};
use crate::nodes::broadcast::Broadcast;
use crate::nodes::chunks::SampleChunks;
use crate::nodes::driver::Param;
use crate::nodes::histogram::{HistogramFunction, HistogramGroup, StepHistogram};
use crate::nodes::join::{JoinGroup, StepJoin};
use crate::nodes::literal::Literal;
use crate::nodes::map::{Map, Stage};
use crate::nodes::newest::{NOT_WANTED, Newest};
use crate::nodes::rollup::{Rollup, RollupFunction, SampleSource};
use crate::nodes::rows::MapRows;
use crate::nodes::scalar::ToScalar;
use crate::nodes::select::StepSelect;
use crate::nodes::set::StepSet;
use crate::nodes::sort::{Sort, SortBy};
use crate::nodes::union::{Operand, StepUnion};
use crate::range_ends::RangeEnds;
use crate::run_state::RunState;
use crate::window::InstantValue;

const GRID: Grid = Grid { start: i64::MIN, step_ms: 15_000, steps: 3 };
const POS: PosRange = PosRange { start: 3, end: u32::MAX };

/// Numbers whose bits are easily lost.
fn numbers() -> Vec<Param> {
    let stale = f64::from_bits(STALE_NAN_BITS);
    [stale, -f64::NAN, -0.0, f64::INFINITY, 5e-324].into_iter().map(Param::Const).chain([Param::Input(1)]).collect()
}

fn table() -> Arc<SeriesTable> {
    let mut builder = SeriesTableBuilder::default();
    builder.push([("__name__", "m"), ("le", "+Inf")]);
    builder.push([("ä\"b", "\n")]);
    builder.push([]);
    Arc::new(builder.finish())
}

fn rollup(function: RollupFunction, source: SampleSource, at: Option<i64>) -> Rollup {
    let window = Window { range_ms: 300_000, offset_ms: -1, ends: RangeEnds::Anchored, lookback_ms: i64::MAX };
    let (grid, params, table) = (GRID, numbers(), table());
    let place = AnnotationPlace { shown: PosRange { start: 1, end: 2 }, evaluated: POS };
    let (histograms, stats_only, tally) = (at.is_some(), at.is_none(), 7);
    Rollup { function, source, grid, window, at, params, place, table, histograms, stats_only, tally }
}

fn rollups() -> Vec<Rollup> {
    let ranges = FUNCTIONS.iter().filter(|f| matches!(f.kernel, Kernel::Range(_))).map(RollupFunction::Range);
    let instant = [InstantValue::Value, InstantValue::Timestamp, InstantValue::StartTimestamp];
    let others = instant.map(RollupFunction::Instant).into_iter().chain([RollupFunction::Smoothed]);
    let mut all: Vec<Rollup> = ranges.chain(others).map(|f| rollup(f, SampleSource::Scan, None)).collect();
    all.push(rollup(RollupFunction::Smoothed, SampleSource::Grid(GRID), Some(-1)));
    all
}

fn fold(op: AggregateOp, param: Option<(Param, PosRange)>, rollup: Option<Arc<Rollup>>) -> Arc<FoldParams> {
    let (ids, table) = (vec![0, 1, 0], table());
    Arc::new(FoldParams { op, steps: 2, ids, groups: 2, param, pos: POS, table, histograms: false, rollup })
}

fn folds() -> Vec<Arc<FoldParams>> {
    let mut all: Vec<Arc<FoldParams>> = AggregateOp::ALL.map(|op| fold(op, None, None)).into();
    all.push(fold(AggregateOp::Quantile, Some((Param::Input(1), POS)), None));
    let fused = rollup(RollupFunction::Smoothed, SampleSource::Scan, Some(0));
    all.push(fold(AggregateOp::Sum, None, Some(Arc::new(fused))));
    all
}

fn named<K: KernelKind>() -> Vec<NamedKernel<K>> {
    FUNCTIONS.iter().filter_map(|f| Some(NamedKernel { name: f.name, kernel: K::of(&f.kernel)? })).collect()
}

fn map() -> Map {
    let scalar = Param::Const(f64::NAN);
    let mut stages = vec![Stage::Negate, Stage::StepTime, Stage::FloatsOnly, Stage::Nothing];
    stages.extend(named().into_iter().map(|function| Stage::Function { function, params: numbers() }));
    stages.extend(named().into_iter().map(|function| Stage::ScalarFunction(function, scalar)));
    stages.extend(BinaryOp::ALL.map(|op| Stage::ScalarBinary(op, scalar)));
    let with_scalar = |scalar_left: bool| Stage::Binary {
        op: BinaryOp::TrimUpper,
        return_bool: !scalar_left,
        scalar_left,
        scalar: Param::Input(2),
        pos: POS,
    };
    stages.extend([true, false].map(with_scalar));
    Map { stages, grid: GRID, histograms: true, table: table() }
}

fn join(card: MatchCardinality, fill: Option<f64>) -> StepJoin {
    let labels = vec![String::new(), "ä".to_owned()];
    let include = labels.clone();
    let matching = VectorMatching { card, labels, on: fill.is_some(), include, fill_left: fill, fill_right: None };
    let few = |numbers: &[u32]| -> SmallVec<[u32; 2]> { numbers.iter().copied().collect() };
    let group = JoinGroup { many: few(&[0, 1, 2]), one: few(&[u32::MAX]), pairs: few(&[]), lone: few(&[4, 5]) };
    StepJoin {
        op: BinaryOp::Atan2,
        return_bool: fill.is_none(),
        steps: 2,
        histograms: fill.is_some(),
        swapped: card == MatchCardinality::OneToMany,
        one_to_one: card == MatchCardinality::OneToOne,
        fill_many: fill,
        fill_one: fill.map(|v| -v),
        groups: vec![group, JoinGroup::default()],
        merges: fill.is_some(),
        many_table: table(),
        one_table: Arc::default(),
        matching,
        pos: POS,
    }
}

fn histogram(function: HistogramFunction) -> StepHistogram {
    let classic = vec![(0, f64::NEG_INFINITY), (2, f64::INFINITY)];
    let groups = vec![HistogramGroup { classic, native: Some(1), out: vec![0, 1] }, HistogramGroup::default()];
    let (params, places, bad, merges) = (numbers(), vec![vec![0], vec![1, 0]], vec![1], true);
    StepHistogram { function, params, places, grid: GRID, groups, bad, table: table(), pos: POS, merges }
}

fn select(op: AggregateOp, param: Param) -> StepSelect {
    let (ids, hashes) = (vec![0, 1, 0], vec![0, u64::MAX, 1 << 63]);
    let (param_pos, pos, single, histograms) = (POS, PosRange::default(), true, true);
    StepSelect { op, steps: 1, single, ids, groups: 2, hashes, param, param_pos, pos, histograms }
}

fn literal(rows: Vec<u32>) -> Literal {
    let schema = matrix_schema(2, true);
    let values = rows.iter().flat_map(|&row| [f64::from(row) + 0.5, -0.0]).collect();
    let present = rows.iter().flat_map(|_| [true, false]).collect();
    let hists = vec![(0, 1, Histogram::stale())];
    let batch = to_batch(Block { rows, steps: 2, values, present, hists }, &schema).expect("a batch");
    Literal { shown: "ä".to_owned(), schema, batches: vec![batch.slice(0, 0), batch] }
}

/// Each operator, with what it holds.
fn operators() -> Vec<Arc<dyn StepOperator>> {
    let (steps, histograms) = (2, true);
    let (left, right) = (vec![0, 1, 0], vec![]);
    let mut all: Vec<Arc<dyn StepOperator>> = vec![
        Arc::new(Absent { steps: 1 }),
        Arc::new(Broadcast { steps, histograms }),
        Arc::new(literal(vec![0, 7])),
        Arc::new(Literal { shown: String::new(), schema: matrix_schema(1, false), batches: vec![] }),
        Arc::new(map()),
        Arc::new(MapRows { steps, histograms, to: Arc::new(vec![2, 0, 2]), merges: true, shown: "x".to_owned() }),
        Arc::new(Newest { places: vec![NOT_WANTED, 0], histograms }),
        Arc::new(SampleChunks { places: vec![1, 0] }),
        Arc::new(Sort { by: SortBy::Value { descending: true }, histograms, rows: 0 }),
        Arc::new(Sort { by: SortBy::Rank(vec![1, 0]), histograms: false, rows: 2 }),
        Arc::new(histogram(HistogramFunction::Fraction)),
        Arc::new(histogram(HistogramFunction::Quantiles(vec![POS, PosRange::default()]))),
        Arc::new(join(MatchCardinality::OneToOne, None)),
        Arc::new(join(MatchCardinality::ManyToOne, Some(f64::from_bits(STALE_NAN_BITS)))),
        Arc::new(join(MatchCardinality::OneToMany, Some(0.0))),
        Arc::new(select(AggregateOp::Topk, Param::Input(1))),
        Arc::new(select(AggregateOp::LimitRatio, Param::Const(-0.5))),
        Arc::new(StepSet { op: BinaryOp::Unless, steps, histograms, left, right, signatures: 2 }),
        Arc::new(StepUnion {
            steps,
            histograms,
            operands: vec![Operand { signatures: vec![0], to: vec![1] }, Operand { signatures: vec![], to: vec![] }],
            signatures: 1,
            merges: true,
        }),
        Arc::new(ToScalar { steps: usize::MAX >> 40 }),
    ];
    all.extend(rollups().into_iter().map(|rollup| -> Arc<dyn StepOperator> { Arc::new(rollup) }));
    for fold in folds() {
        all.push(Arc::new(FoldPartial(Arc::clone(&fold))));
        all.push(Arc::new(FoldFinal(fold)));
    }
    all
}

#[test]
fn operators_come_back() {
    let mut covered = BTreeSet::new();
    for operator in operators() {
        let body = operator.written().unwrap_or_else(|e| panic!("{operator:?}: {e}"));
        let back = read_operator(&body).unwrap_or_else(|e| panic!("{operator:?}: {e}"));
        assert_eq!(format!("{back:?}"), format!("{operator:?}"));
        assert_eq!(back.written().unwrap(), body, "bits of {operator:?}");
        let shown = |o: &dyn StepOperator| (o.name(), o.detail(), o.schema(), o.spread(), o.partial_inputs());
        assert_eq!(shown(&*back), shown(&*operator));
        let (kind, _) = postcard::take_from_bytes::<&str>(&body).unwrap();
        covered.insert(kind.to_owned());
    }
    let kinds: BTreeSet<String> = KINDS.iter().map(|kind| kind.name.to_owned()).collect();
    assert_eq!(covered, kinds);
}

/// Collects what the sources below a folder say about types that are operators.
fn implemented(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            implemented(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let types = text.lines().filter_map(|line| line.strip_prefix("impl StepOperator for "));
            names.extend(types.filter_map(|rest| rest.split([' ', '<']).next()).map(str::to_owned));
        }
    }
}

#[test]
fn every_operator_has_a_form() {
    let mut names = BTreeSet::new();
    implemented(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    let kinds: Vec<String> = KINDS.iter().map(|kind| kind.name.to_owned()).collect();
    assert!(kinds.is_sorted_by(|a, b| a < b), "{kinds:?}");
    assert_eq!(names.into_iter().collect::<Vec<_>>(), kinds);
}

/// Writes and reads all nodes of steps of a plan.
fn again(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let children: Vec<Arc<dyn ExecutionPlan>> = plan.children().into_iter().map(again).collect();
    if let Some(node) = plan.downcast_ref::<StepExec>() {
        return Arc::new(read_node(&write_node(node).unwrap(), children).unwrap());
    }
    if children.is_empty() {
        Arc::clone(plan)
    } else {
        Arc::clone(plan)
            .replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
            .unwrap()
    }
}

fn planned(operator: impl StepOperator, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Arc<dyn ExecutionPlan> {
    Arc::new(Step(Arc::new(operator))).physical(inputs, &SessionContext::new().state()).unwrap()
}

fn leaf(partitions: usize) -> Arc<dyn ExecutionPlan> {
    Arc::new(EmptyExec::new(matrix_schema(2, false)).with_partitions(partitions))
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    let mut text = displayable(plan.as_ref()).indent(true).to_string();
    let mut level = vec![plan];
    while let Some(node) = level.pop() {
        let _ = writeln!(text, "{} {:?}", node.output_partitioning().partition_count(), node.schema());
        level.extend(node.children());
    }
    text
}

#[test]
fn nodes_keep_their_inputs() {
    let check = |plan: Arc<dyn ExecutionPlan>, coalesced: usize| {
        let text = shown(&plan);
        assert_eq!(shown(&again(&plan)), text);
        assert_eq!(text.matches("CoalescePartitionsExec").count(), coalesced, "{text}");
    };
    let quantile = || FoldFinal(fold(AggregateOp::Quantile, Some((Param::Input(1), POS)), None));
    check(planned(quantile(), vec![leaf(3), leaf(2)]), 2);
    check(planned(quantile(), vec![leaf(1), leaf(1)]), 0);
    check(planned(Broadcast { steps: 2, histograms: false }, vec![leaf(3)]), 0);
    check(planned(join(MatchCardinality::OneToOne, None), vec![leaf(3), leaf(1)]), 1);
    check(planned(literal(vec![1]), vec![]), 0);
}

/// Runs a plan, with nothing shared by any other run.
async fn run(plan: &Arc<dyn ExecutionPlan>) -> Vec<RecordBatch> {
    let query = QueryContext::new(Access::full(), Limits::default());
    let shared = RunShared::with(Arc::new(RunState::new(query, None)));
    let config = SessionConfig::new().with_extension(Arc::new(shared));
    collect(Arc::clone(plan), Arc::new(TaskContext::default().with_session_config(config))).await.unwrap()
}

#[tokio::test]
async fn answers_are_the_same() {
    let block = |row: u32| Block {
        rows: vec![row],
        steps: 2,
        values: vec![0.1 * f64::from(row + 1), f64::NAN],
        present: vec![true, row == 1],
        hists: vec![],
    };
    let rows = |row: u32| {
        let schema = matrix_schema(2, false);
        let batches = vec![to_batch(block(row), &schema).unwrap()];
        planned(Literal { shown: String::new(), schema, batches }, vec![])
    };
    let both = UnionExec::try_new(vec![rows(0), rows(1)]).unwrap();
    let stages = vec![Stage::ScalarBinary(BinaryOp::Mul, Param::Const(3.0))];
    let grid = Grid { start: 0, step_ms: 1, steps: 2 };
    let mapped = planned(Map { stages, grid, histograms: false, table: table() }, vec![both]);
    let plan = planned(FoldFinal(fold(AggregateOp::Avg, None, None)), vec![mapped]);
    let expected = run(&plan).await;
    assert_eq!(expected.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    assert_eq!(run(&again(&plan)).await, expected);
    assert_eq!(run(&again(&again(&plan))).await, expected);
}

#[test]
fn what_is_broken_is_an_error() {
    let plan = planned(join(MatchCardinality::ManyToOne, Some(1.0)), vec![leaf(1), leaf(1)]);
    let bytes = write_node(plan.downcast_ref::<StepExec>().unwrap()).unwrap();
    assert!(read_node(&bytes, vec![leaf(1), leaf(1)]).is_ok());
    assert!(read_node(&bytes, vec![leaf(1)]).is_err(), "an input too few");
    assert!(read_node(&bytes, vec![leaf(1), leaf(2)]).is_err(), "rows that nobody reads");
    assert!(read_node(&bytes, vec![leaf(2), leaf(1)]).is_err(), "rows that nobody reads");
    for length in 0..bytes.len() {
        assert!(read_node(&bytes[..length], vec![leaf(1), leaf(1)]).is_err(), "{length} bytes");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        assert!(read_node(&bytes, vec![leaf(1), leaf(1)]).is_err(), "byte {at}");
    }
    // What no checksum tells: somebody else's operator, and one of another shape.
    let other = postcard::to_allocvec(&(0_usize, "Nothing")).unwrap();
    assert!(read_node(&sealed(other), vec![]).is_err());
    let longer = postcard::to_allocvec(&("Absent", 1_usize, 1_usize)).unwrap();
    assert!(read_operator(&longer).is_err());
    // A list that says that it is longer than all memory.
    let endless = postcard::to_allocvec(&("SampleChunks", usize::MAX)).unwrap();
    assert!(read_operator(&endless).is_err());
}
