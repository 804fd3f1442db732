//! Converts strings and bytes to views and back. Lists, maps and structs are packed for this
//! ([`packed_values`](super::packed_values)).
//!
//! A view refers to the buffer that its value lies in, so rows that repeat a value cost sixteen bytes each. Converted
//! back, each row has a copy of its own: this is done for so few rows at once that a batch stays small.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions};
use futures::{TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};

use super::batch_bytes::batch_bytes;
use super::packed_values::{is_packable, packed, unpacked};
use crate::node_defaults::no_expressions;

/// What a column of values holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Values {
    /// Texts with offsets of 32 bits.
    Text,
    /// Texts with offsets of 64 bits.
    LargeText,
    /// Bytes with offsets of 32 bits.
    Bytes,
    /// Bytes with offsets of 64 bits.
    LargeBytes,
    /// Lists, maps or structs.
    Nested,
}

impl Values {
    /// The values of columns of a type; `None` if they have no views.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Utf8 => Some(Self::Text),
            DataType::LargeUtf8 => Some(Self::LargeText),
            DataType::Binary => Some(Self::Bytes),
            DataType::LargeBinary => Some(Self::LargeBytes),
            nested => is_packable(nested).then_some(Self::Nested),
        }
    }

    fn views(self) -> DataType {
        match self {
            Self::Text | Self::LargeText => DataType::Utf8View,
            Self::Bytes | Self::LargeBytes | Self::Nested => DataType::BinaryView,
        }
    }
}

/// The direction of a [`TextViewsExec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ViewDirection {
    /// Values become views; nothing is copied.
    Views,
    /// Views become values, in batches of at most [`batch_bytes`], unless a single row holds more.
    Values,
}

/// Gives columns another form, and leaves their values, their order and their partitions as they are.
#[derive(Debug)]
pub(crate) struct TextViewsExec {
    input: Arc<dyn ExecutionPlan>,
    /// The columns by place, each with what it holds (or held) as values.
    columns: Vec<(usize, Values)>,
    to: ViewDirection,
    properties: Arc<PlanProperties>,
}

impl TextViewsExec {
    /// Makes a node that turns these columns, given by place. `values` has the columns as they are with values, here or
    /// above.
    ///
    /// # Errors
    /// Plan: the input has other columns.
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        columns: Vec<(usize, Values)>,
        to: ViewDirection,
        values: &Schema,
    ) -> Result<Self> {
        let properties = Arc::new(carried(&input, turned(&input.schema(), &columns, to, values)?)?);
        Ok(Self { input, columns, to, properties })
    }

    /// The columns by place, what they become, and how they are with values.
    pub(crate) fn parts(&self) -> (&[(usize, Values)], ViewDirection, SchemaRef) {
        let values = match self.to {
            ViewDirection::Views => self.input.schema(),
            ViewDirection::Values => self.schema(),
        };
        (&self.columns, self.to, values)
    }

    /// What is turned.
    pub(crate) fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }
}

/// The columns of the output.
fn turned(schema: &Schema, columns: &[(usize, Values)], to: ViewDirection, with_values: &Schema) -> Result<SchemaRef> {
    let mut fields: Vec<Arc<Field>> = schema.fields().to_vec();
    for (at, values) in columns {
        let own = with_values.fields().get(*at).map(|field| field.data_type());
        let Some(own) = own.filter(|own| Values::of(own) == Some(*values)).cloned() else {
            return plan_err!("column {at} does not hold values of the form {values:?}");
        };
        let (from, into) = match to {
            ViewDirection::Views => (own, values.views()),
            ViewDirection::Values => (values.views(), own),
        };
        let Some(field) = fields.get_mut(*at).filter(|field| *field.data_type() == from) else {
            return plan_err!("column {at} does not hold values of the type {from}");
        };
        *field = Arc::new(field.as_ref().clone().with_data_type(into));
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

/// What is known of the rows of the input holds for the output: columns have the places and names that they had.
fn carried(input: &Arc<dyn ExecutionPlan>, schema: SchemaRef) -> Result<PlanProperties> {
    let before = input.properties();
    let known = before.equivalence_properties();
    let mut properties = EquivalenceProperties::new_with_orderings(schema, known.oeq_class().iter().cloned());
    properties.add_equivalence_group(known.eq_group().clone())?;
    let partitioning = before.output_partitioning().clone();
    Ok(PlanProperties::new(properties, partitioning, before.emission_type, before.boundedness))
}

impl DisplayAs for TextViewsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<usize> = self.columns.iter().map(|(at, _)| *at).collect();
        let to = match self.to {
            ViewDirection::Views => "views",
            ViewDirection::Values => "values",
        };
        write!(f, "TextViewsExec: to={to}, columns={columns:?}")
    }
}

impl ExecutionPlan for TextViewsExec {
    fn name(&self) -> &'static str {
        "TextViewsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return datafusion::common::internal_err!("{} has one input, not {}", self.name(), children.len());
        };
        let (columns, to, values) = self.parts();
        Ok(Arc::new(Self::new(Arc::clone(input), columns.to_vec(), to, &values)?))
    }

    crate::by_replacing!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let bytes = batch_bytes(context.memory_pool().as_ref());
        let batches = self.input.execute(partition, context)?;
        let to = self.to;
        let turn = Turn { schema: self.schema(), columns: self.columns.clone(), to };
        let turned = batches.map_ok(move |batch| {
            let starts = match to {
                ViewDirection::Views => vec![0],
                ViewDirection::Values => starts(&batch, &turn.columns, bytes),
            };
            let turn = turn.clone();
            let pieces = (0..starts.len()).map(move |n| {
                let end = starts.get(n + 1).copied().unwrap_or(batch.num_rows());
                turn.batch(&batch.slice(starts[n], end - starts[n]))
            });
            stream::iter(pieces)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), turned.try_flatten())))
    }
}

/// How batches are turned.
#[derive(Clone)]
struct Turn {
    schema: SchemaRef,
    columns: Vec<(usize, Values)>,
    to: ViewDirection,
}

impl Turn {
    fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch, DataFusionError> {
        let mut columns = batch.columns().to_vec();
        for (at, values) in &self.columns {
            columns[*at] = self.column(&columns[*at], *values, self.schema.field(*at).data_type())?;
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    fn column(&self, column: &ArrayRef, values: Values, into: &DataType) -> Result<ArrayRef, DataFusionError> {
        Ok(match (values, self.to) {
            (Values::Nested, ViewDirection::Views) => packed(column)?,
            (Values::Nested, ViewDirection::Values) => unpacked(column, into)?,
            _ => cast(column, into)?,
        })
    }
}

/// Where pieces of a batch of views begin, such that the values of each take `batch_bytes` at most.
fn starts(batch: &RecordBatch, columns: &[(usize, Values)], batch_bytes: usize) -> Vec<usize> {
    let views: Vec<&[u128]> = columns.iter().map(|(at, _)| views(batch.column(*at).as_ref())).collect();
    let all: usize = views.iter().flat_map(|column| column.iter()).map(|view| length(*view)).sum();
    let mut starts = vec![0];
    if all <= batch_bytes {
        return starts;
    }
    let mut held = 0;
    for row in 0..batch.num_rows() {
        let bytes: usize = views.iter().map(|column| length(column[row])).sum();
        if held > 0 && held + bytes > batch_bytes {
            starts.push(row);
            held = 0;
        }
        held += bytes;
    }
    starts
}

/// The views of a column of texts or bytes.
fn views(array: &dyn Array) -> &[u128] {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().views(),
        _ => array.as_binary_view().views(),
    }
}

/// Bytes of the value that a view stands for: its lower half word, as Arrow's format says.
fn length(view: u128) -> usize {
    view as u32 as usize
}

/// Turns the columns of a plan into views. Columns that were made from views just below stay what they were there.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn as_views(
    input: &Arc<dyn ExecutionPlan>,
    columns: Vec<(usize, Values)>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if columns.is_empty() {
        return Ok(Arc::clone(input));
    }
    let below = input.downcast_ref::<TextViewsExec>().filter(|below| below.to == ViewDirection::Values);
    let Some(below) = below else {
        let views = TextViewsExec::new(Arc::clone(input), columns, ViewDirection::Views, &input.schema())?;
        return Ok(Arc::new(views));
    };
    let (both, new): (Vec<_>, Vec<_>) = columns.into_iter().partition(|column| below.columns.contains(column));
    let rest: Vec<_> = below.columns.iter().filter(|column| !both.contains(column)).copied().collect();
    let mut plan = Arc::clone(below.input());
    for (columns, to) in [(rest, ViewDirection::Values), (new, ViewDirection::Views)] {
        if !columns.is_empty() {
            plan = Arc::new(TextViewsExec::new(plan, columns, to, &input.schema())?);
        }
    }
    Ok(plan)
}

/// Gives a plan the types of columns that it had before some of them became views.
///
/// # Errors
/// Those of making the node.
pub(crate) fn as_values(plan: Arc<dyn ExecutionPlan>, before: &Schema) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let pairs = before.fields().iter().zip(schema.fields()).enumerate();
    let changed = pairs.filter(|(_, (was, is))| was.data_type() != is.data_type());
    let columns: Vec<_> =
        changed.filter_map(|(at, (was, _))| Values::of(was.data_type()).map(|values| (at, values))).collect();
    if columns.is_empty() {
        return Ok(plan);
    }
    Ok(Arc::new(TextViewsExec::new(plan, columns, ViewDirection::Values, before)?))
}

#[cfg(test)]
mod tests;
