use arrow::array::{BinaryBuilder, Int64Array, LargeStringBuilder, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use datafusion::physical_expr::expressions::{Column, col};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlanProperties as _, Partitioning, collect};
use datafusion::prelude::SessionContext;

use super::*;

const COLUMNS: [(usize, Values); 3] = [(1, Values::Text), (2, Values::Bytes), (3, Values::LargeText)];

fn batch(texts: Vec<Option<String>>) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..texts.len() as i64));
    let (mut bytes, mut large) = (BinaryBuilder::new(), LargeStringBuilder::new());
    for text in &texts {
        bytes.append_option(text.as_ref().map(|text| &text[..1]));
        large.append_option(text.as_ref().map(|text| &text[1..]));
    }
    let (bytes, large): (ArrayRef, ArrayRef) = (Arc::new(bytes.finish()), Arc::new(large.finish()));
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    RecordBatch::try_from_iter_with_nullable([
        ("n", numbers, true),
        ("t", texts, true),
        ("b", bytes, true),
        ("l", large, true),
    ])
    .unwrap()
}

async fn plan(batch: &RecordBatch) -> Arc<dyn ExecutionPlan> {
    let frame = SessionContext::new().read_batch(batch.clone()).unwrap();
    frame.create_physical_plan().await.unwrap()
}

fn turning(
    input: Arc<dyn ExecutionPlan>,
    columns: &[(usize, Values)],
    to: ViewDirection,
    values: &Schema,
) -> Result<TextViewsExec> {
    TextViewsExec::new(input, columns.to_vec(), to, values)
}

fn there_and_back(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let there: Arc<dyn ExecutionPlan> =
        Arc::new(turning(Arc::clone(input), &COLUMNS, ViewDirection::Views, &input.schema()).unwrap());
    assert_eq!(*there.schema().field(2).data_type(), DataType::BinaryView);
    Arc::new(turning(there, &COLUMNS, ViewDirection::Values, &input.schema()).unwrap())
}

async fn rows(plan: Arc<dyn ExecutionPlan>) -> Vec<RecordBatch> {
    collect(plan, SessionContext::new().task_ctx()).await.unwrap()
}

#[tokio::test]
async fn values_are_the_same_there_and_back() {
    let texts = (0..100).map(|n| (n % 7 != 0).then(|| "xyz".repeat(n))).collect();
    let batch = batch(texts);
    assert_eq!(rows(there_and_back(&plan(&batch).await)).await, std::slice::from_ref(&batch));
    let none = batch.slice(0, 0);
    assert!(rows(there_and_back(&plan(&none).await)).await.iter().all(|batch| batch.num_rows() == 0));
}

#[tokio::test]
async fn values_of_a_batch_take_few_bytes() {
    // Each row takes two megabytes and the last one more than a batch may.
    let mut texts = vec![Some("x".repeat(1 << 20)); 40];
    texts.push(Some("y".repeat(4 << 20)));
    let batch = batch(texts);
    let pieces = rows(there_and_back(&plan(&batch).await)).await;
    assert_eq!(pieces.iter().map(RecordBatch::num_rows).sum::<usize>(), 41);
    assert_eq!(pieces.last().unwrap().num_rows(), 1);
    assert_eq!(pieces.iter().map(RecordBatch::num_rows).max().unwrap(), 2, "rows of a piece");
    let schema = batch.schema();
    assert_eq!(arrow::compute::concat_batches(&schema, &pieces).unwrap(), batch);
}

#[tokio::test]
async fn views_refer_to_the_values() {
    let batch = batch(vec![Some("x".repeat(1000)); 10]);
    let there = turning(plan(&batch).await, &COLUMNS, ViewDirection::Views, &batch.schema()).unwrap();
    let views = rows(Arc::new(there)).await;
    let texts = batch.column(1).as_string::<i32>().values().as_ptr();
    assert_eq!(views[0].column(1).as_string_view().data_buffers()[0].as_ptr(), texts);
}

#[tokio::test]
async fn order_and_partitions_stay_known() {
    let batch = batch(vec![Some("b".into()), Some("a".into())]);
    let text = || -> Arc<dyn PhysicalExpr> { Arc::new(Column::new("t", 1)) };
    let input = plan(&batch).await;
    let by = LexOrdering::new([PhysicalSortExpr::new_default(text())]).unwrap();
    let sorted: Arc<dyn ExecutionPlan> = Arc::new(SortExec::new(by.clone(), Arc::clone(&input)));
    let turned = there_and_back(&sorted);
    assert_eq!(turned.output_ordering(), Some(&by));
    let by_text = Partitioning::Hash(vec![text()], 3);
    let spread: Arc<dyn ExecutionPlan> = Arc::new(RepartitionExec::try_new(input, by_text.clone()).unwrap());
    assert_eq!(*there_and_back(&spread).output_partitioning(), by_text);
    assert!(col("t", &turned.schema()).is_ok());
}

#[tokio::test]
async fn what_was_turned_just_below_is_not_turned_twice() {
    let input = plan(&batch(vec![None])).await;
    let values = input.schema();
    let there: Arc<dyn ExecutionPlan> = Arc::new(turning(input, &COLUMNS[..2], ViewDirection::Views, &values).unwrap());
    let before = turning(Arc::clone(&there), &COLUMNS[..2], ViewDirection::Values, &values).unwrap();
    let before: Arc<dyn ExecutionPlan> = Arc::new(before);
    let shown = |columns: &[(usize, Values)]| {
        let plan = as_views(&before, columns.to_vec()).unwrap();
        datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string()
    };
    let nodes = |text: &str| text.matches("TextViewsExec").count();
    assert_eq!(nodes(&shown(&COLUMNS[..2])), 1);
    let other = shown(&[COLUMNS[0], COLUMNS[2]]);
    assert_eq!(nodes(&other), 3, "{other}");
    assert!(other.contains("to=values, columns=[2]") && other.contains("to=views, columns=[3]"), "{other}");
    let plan = as_views(&before, COLUMNS.to_vec()).unwrap();
    assert_eq!(as_values(plan, &before.schema()).unwrap().schema(), before.schema());
}

#[tokio::test]
async fn columns_without_views_are_refused() {
    let input = plan(&batch(vec![None])).await;
    let values = input.schema();
    for column in [(0, Values::Text), (1, Values::Bytes), (9, Values::Text), (1, Values::Nested)] {
        assert!(turning(Arc::clone(&input), &[column], ViewDirection::Views, &values).is_err());
    }
    assert!(turning(input, &[(1, Values::Text)], ViewDirection::Values, &values).is_err());
}

#[tokio::test]
async fn nested_values_are_bytes_between() {
    // Each row has a list of a megabyte, and one has none.
    let items: ArrayRef = Arc::new(StringArray::from_iter_values(vec!["x".repeat(1 << 10); 20 << 10]));
    let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
    let nulls = Some((0..20).map(|row| row != 7).collect());
    let lists = ListArray::new(field, OffsetBuffer::from_lengths([1 << 10; 20]), items, nulls);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20));
    let columns = [("n", numbers, true), ("l", Arc::new(lists) as ArrayRef, true)];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let input = plan(&batch).await;
    let there = as_views(&input, vec![(1, Values::Nested)]).unwrap();
    assert_eq!(*there.schema().field(1).data_type(), DataType::BinaryView);
    let back = as_values(Arc::clone(&there), &input.schema()).unwrap();
    assert_eq!(as_views(&back, vec![(1, Values::Nested)]).unwrap().schema(), there.schema());
    let pieces = rows(back).await;
    assert!(pieces.iter().all(|piece| piece.num_rows() < 6), "each has a few megabytes");
    assert_eq!(arrow::compute::concat_batches(&batch.schema(), &pieces).unwrap(), batch);
}
