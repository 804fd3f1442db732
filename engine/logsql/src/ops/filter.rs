//! Evaluates a filter over the rows of a batch: the `filter` pipe, `if (...)`, and tables held in memory.

use std::sync::Arc;

use arrow::array::{Array, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use quiver_types::logs::{
    AllRows, ChosenRows, FieldPattern, IfPresent, LogFilter, RowMatcher, STREAM, STREAM_ID, StreamSelector, TIME,
    TextMatch, ValueMatcher, match_coded, match_typed,
};
use serde::{Deserialize, Serialize};

use crate::chunked_stream::map_batches;
use crate::kernels::values::parse_rfc3339;
use crate::partial_plan::PartialPlan;
use crate::rows::{Rest, Shape, Texts, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};
use crate::stream_text;

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<FilterStep>()];

/// What is no field where any field may match, as in the store: times and streams would match any number or label.
const COMPUTED: [&str; 3] = [TIME, STREAM, STREAM_ID];

/// Keeps the rows that match. Lacks in DataFusion: fields that stand in maps, groups of fields by prefix, and one look at
/// each entry of a dictionary.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FilterStep {
    pub(crate) filter: LogFilter,
    pub(crate) shape: Shape,
}

impl FilterStep {
    /// Adds it to a plan.
    pub(crate) fn plan(self, rows: PartialPlan) -> quiver_types::Result<PartialPlan> {
        let shape = self.shape.clone();
        rows.then(self, shape)
    }
}

impl StepKind for FilterStep {
    const KIND: &'static str = "filter";
}

impl Step for FilterStep {
    fn name(&self) -> &'static str {
        "LogsFilter"
    }

    fn detail(&self) -> String {
        self.filter.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.shape.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let keep = move |batch: RecordBatch| {
            let mask = evaluate(&self.filter, &batch, &self.shape)?;
            if mask.count_set_bits() == batch.num_rows() {
                return Ok(batch);
            }
            Ok(filter_record_batch(&batch, &BooleanArray::new(mask, None))?)
        };
        Ok(map_batches(rows, &task, Box::new(keep)))
    }
}

/// Says for each row whether it matches.
pub(crate) fn evaluate(filter: &LogFilter, batch: &RecordBatch, shape: &Shape) -> Result<BooleanBuffer> {
    let rows = batch.num_rows();
    Ok(match filter {
        LogFilter::All => BooleanBuffer::new_set(rows),
        LogFilter::None => BooleanBuffer::new_unset(rows),
        LogFilter::And(all) => {
            let mut mask = BooleanBuffer::new_set(rows);
            for one in all {
                if mask.count_set_bits() == 0 {
                    break;
                }
                mask = &mask & &evaluate(one, batch, shape)?;
            }
            mask
        }
        LogFilter::Or(any) => {
            let mut mask = BooleanBuffer::new_unset(rows);
            for one in any {
                if mask.count_set_bits() == rows {
                    break;
                }
                mask = &mask | &evaluate(one, batch, shape)?;
            }
            mask
        }
        LogFilter::Not(one) => !&evaluate(one, batch, shape)?,
        LogFilter::Value { field, matcher } => values(field, &**matcher, batch, shape)?,
        LogFilter::Row { fields, matcher } => several(fields, &**matcher, batch, shape)?,
        LogFilter::Time(ranges) => times(batch, shape, |ns| ranges.iter().any(|&(min, max)| min <= ns && ns <= max))?,
        LogFilter::TimeOf(predicate) => times(batch, shape, |ns| predicate.matches(ns))?,
        LogFilter::Stream(selector) => texts(&field(batch, shape, STREAM)?, rows, |text| selects(selector, text)),
        LogFilter::StreamIds(ids) => {
            let ids: Vec<String> = ids.iter().map(|id| format!("{id:?}")).collect();
            texts(&field(batch, shape, STREAM_ID)?, rows, |text| ids.iter().any(|id| id == text))
        }
    })
}

/// The values of a field, in its column or in the map.
fn field(batch: &RecordBatch, shape: &Shape, name: &str) -> Result<Values> {
    match (shape.index(name), Rest::of(batch, shape)) {
        (None, Some(rest)) => Ok(Values::InRest(rest, name.to_owned())),
        _ => texts_of(batch, shape, name).map(Values::Column),
    }
}

enum Values {
    Column(Texts),
    InRest(Rest, String),
}

impl Values {
    fn get<'a>(&'a self, row: usize, scratch: &'a mut String) -> &'a str {
        match self {
            Self::Column(texts) => texts.get(row, scratch),
            Self::InRest(rest, name) => rest.row(row).find(|(own, _)| own == name).map_or("", |(_, value)| value),
        }
    }
}

/// Asks once for each entry of a dictionary, else once for each row.
fn texts(values: &Values, rows: usize, matches: impl Fn(&str) -> bool) -> BooleanBuffer {
    if let Values::Column(Texts::Dictionary(keys, entries)) = values
        && entries.len() < rows
    {
        let empty = matches("");
        let of_entry: Vec<bool> = (0..entries.len()).map(|i| matches(entries.value(i))).collect();
        return BooleanBuffer::collect_bool(rows, |row| {
            if keys.is_null(row) { empty } else { of_entry[keys.value(row) as usize] }
        });
    }
    if let Values::Column(Texts::Missing) = values {
        return if matches("") { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) };
    }
    let mut scratch = String::new();
    BooleanBuffer::collect_bool(rows, |row| matches(values.get(row, &mut scratch)))
}

/// Puts a matcher to a column, by the evaluator of how its values are held.
fn matching(values: &Values, rows: usize, matcher: &dyn ValueMatcher) -> BooleanBuffer {
    let all = AllRows(rows);
    match values {
        Values::Column(Texts::View(array)) => {
            let texts = TextMatch::new(array, matcher);
            all.select(|at| texts.matches(at))
        }
        Values::Column(Texts::Dictionary(keys, entries)) => match_coded(keys, entries, matcher, &all),
        Values::Column(Texts::Int(array)) => match_typed(array, matcher, &all),
        Values::Column(Texts::Float(array)) => match_typed(array, matcher, &all),
        Values::Column(Texts::Id(array)) => match_typed(array, matcher, &all),
        _ => texts(values, rows, |text| matcher.matches(text)),
    }
}

fn values(
    pattern: &FieldPattern,
    matcher: &dyn ValueMatcher,
    batch: &RecordBatch,
    shape: &Shape,
) -> Result<BooleanBuffer> {
    let rows = batch.num_rows();
    let prefix = match pattern {
        FieldPattern::Name(name) => return Ok(matching(&field(batch, shape, name)?, rows, matcher)),
        FieldPattern::Prefix(prefix) => prefix,
    };
    let mut mask = BooleanBuffer::new_unset(rows);
    for name in shape.names().filter(|name| name.starts_with(prefix.as_str()) && !COMPUTED.contains(name)) {
        let column = field(batch, shape, name)?;
        // A field that is missing is never asked.
        mask = &mask | &matching(&column, rows, &IfPresent(matcher));
    }
    if let Some(rest) = Rest::of(batch, shape) {
        mask = &mask
            | &BooleanBuffer::collect_bool(rows, |row| {
                rest.row(row).any(|(name, value)| name.starts_with(prefix.as_str()) && matcher.matches(value))
            });
    }
    Ok(mask)
}

fn several(fields: &[String], matcher: &dyn RowMatcher, batch: &RecordBatch, shape: &Shape) -> Result<BooleanBuffer> {
    let columns = fields.iter().map(|name| field(batch, shape, name)).collect::<Result<Vec<_>>>()?;
    let mut scratch = vec![String::new(); columns.len()];
    Ok(BooleanBuffer::collect_bool(batch.num_rows(), |row| {
        let values: Vec<&str> = columns.iter().zip(&mut scratch).map(|(c, s)| c.get(row, s)).collect();
        matcher.matches(&values)
    }))
}

fn times(batch: &RecordBatch, shape: &Shape, matches: impl Fn(i64) -> bool) -> Result<BooleanBuffer> {
    let column = texts_of(batch, shape, TIME)?;
    if let Texts::Time(array) = &column {
        return Ok(BooleanBuffer::collect_bool(batch.num_rows(), |row| {
            array.is_valid(row) && matches(array.value(row))
        }));
    }
    let values = field(batch, shape, TIME)?;
    Ok(texts(&values, batch.num_rows(), |text| parse_rfc3339(text).is_some_and(&matches)))
}

/// Whether the text of a stream's labels fits a selector. A text that is none, such as that of a row which has lost its
/// stream, fits only a selector without conditions, whatever it asks of labels that are missing.
fn selects(selector: &StreamSelector, text: &str) -> bool {
    let Some(labels) = stream_text::read(text) else { return selector.groups.is_empty() };
    let value = |name: &str| labels.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value.as_str());
    selector.selects(value)
}
