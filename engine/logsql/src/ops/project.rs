//! `fields`, `delete`, `copy`, `rename`: which columns go on, under which names.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use serde::{Deserialize, Serialize};

use super::computed_fields::assemble;
use super::unpack::Writer;
use crate::ast::field::{FieldPattern, Originals, PatternPair};
use crate::ast::literal::Overwrite;
use crate::chunked_stream::{OutputChunk, ValueMap, map_batches, map_values};
use crate::partial_plan::PartialPlan;
use crate::print::patterns;
use crate::required_fields::Needs;
use crate::rows::{Column, ColumnStorage, Rest, Shape, Texts, batch, rest_without, texts_of, unique};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its steps are read.
pub(crate) const STEPS: &[StepReader] =
    &[StepReader::of::<ProjectStep>(), StepReader::of::<ReshapeStep>(), StepReader::of::<CopyFieldsStep>()];

/// The columns after `fields`.
pub(crate) fn fields_shape(input: &Shape, patterns: &[FieldPattern]) -> Shape {
    let mut names = Vec::new();
    for pattern in patterns {
        match pattern {
            FieldPattern::Name(name) => names.push(name.clone()),
            FieldPattern::Prefix(prefix) => {
                names.extend(input.names().filter(|name| name.starts_with(prefix.as_str())).map(str::to_owned));
            }
        }
    }
    let rest = input.rest && patterns.iter().any(|pattern| pattern.name().is_none());
    let columns = unique(names).into_iter().map(|name| column(input, &name)).collect();
    Shape { columns, rest }
}

fn column(input: &Shape, name: &str) -> Column {
    let kind = input.index(name).map_or(ColumnStorage::Text, |i| input.columns[i].kind);
    Column { name: name.to_owned(), kind }
}

/// The columns after `delete`.
pub(crate) fn delete_shape(input: &Shape, patterns: &[FieldPattern]) -> Shape {
    let kept = |c: &&Column| !patterns.iter().any(|pattern| pattern.matches(&c.name));
    Shape { columns: input.columns.iter().filter(kept).cloned().collect(), rest: input.rest }
}

/// Keeps or leaves out fields. Lacks in DataFusion: fields that stand in maps, and groups of them by prefix.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ProjectStep {
    pub(crate) fields: Vec<FieldPattern>,
    /// Whether these go, and others stay.
    pub(crate) delete: bool,
    pub(crate) input: Shape,
    pub(crate) output: Shape,
}

impl ProjectStep {
    /// Adds it to a plan.
    pub(crate) fn plan(self, rows: PartialPlan) -> quiver_types::Result<PartialPlan> {
        let output = self.output.clone();
        rows.then(self, output)
    }

    fn keeps(&self, name: &str) -> bool {
        self.fields.iter().any(|pattern| pattern.matches(name)) != self.delete
    }

    /// For each column of the output its place in the input. There may be a thousand, so they are looked for once.
    fn places(&self) -> Vec<Option<usize>> {
        self.output.columns.iter().map(|column| self.input.index(&column.name)).collect()
    }

    /// Keeps the columns of the output, and of the map what is kept.
    fn map(&self, rows: &RecordBatch, places: &[Option<usize>]) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let mut columns = Vec::with_capacity(self.output.columns.len() + 1);
        for (column, place) in self.output.columns.iter().zip(places) {
            if let Some(i) = place {
                columns.push(Arc::clone(rows.column(*i)));
            } else {
                let narrow = Shape { columns: vec![column.clone()], rest: false };
                columns.push(Arc::clone(assemble(rows, &self.input, &narrow, &[])?.column(0)));
            }
        }
        if self.output.rest
            && let Some(rest) = Rest::of(rows, &self.input)
        {
            let gone = |name: &str| !self.keeps(name) || self.output.index(name).is_some();
            columns.push(rest_without(&rest, count, gone)?);
        }
        batch(&self.output, columns, count)
    }
}

impl StepKind for ProjectStep {
    const KIND: &'static str = "fields";
}

impl Step for ProjectStep {
    fn name(&self) -> &'static str {
        if self.delete { "LogsDelete" } else { "LogsFields" }
    }

    fn detail(&self) -> String {
        patterns(&self.fields)
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let places = self.places();
        Ok(map_batches(rows, &task, Box::new(move |rows| self.map(&rows, &places))))
    }
}

/// Gives rows other columns: fields that have none get one, kinds change. Lacks in DataFusion: fields that stand in maps.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ReshapeStep {
    pub(crate) input: Shape,
    pub(crate) output: Shape,
}

impl ReshapeStep {
    /// Adds it to a plan.
    pub(crate) fn plan(rows: PartialPlan, output: Shape) -> quiver_types::Result<PartialPlan> {
        let step = Self { input: rows.shape.clone(), output: output.clone() };
        rows.then(step, output)
    }

    /// Gives columns to fields that have none yet.
    pub(crate) fn with_columns(rows: PartialPlan, names: &[String]) -> quiver_types::Result<PartialPlan> {
        let missing = names.iter().map(String::as_str).filter(|name| rows.shape.index(name).is_none());
        let missing: Vec<&str> = missing.collect();
        if missing.is_empty() {
            return Ok(rows);
        }
        let output = rows.shape.with_texts(missing);
        Self::plan(rows, output)
    }
}

impl StepKind for ReshapeStep {
    const KIND: &'static str = "columns";
}

impl Step for ReshapeStep {
    fn name(&self) -> &'static str {
        "LogsColumns"
    }

    fn detail(&self) -> String {
        self.output.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let map = move |rows: RecordBatch| assemble(&rows, &self.input, &self.output, &[]);
        Ok(map_batches(rows, &task, Box::new(map)))
    }
}

/// The columns after `copy` or `rename`.
fn pairs_shape(input: &Shape, pairs: &[PatternPair], originals: Originals) -> Shape {
    let mut shape = input.clone();
    for pair in pairs {
        match (&pair.source, &pair.target) {
            (FieldPattern::Name(source), FieldPattern::Name(target)) => {
                if source == target {
                    continue;
                }
                let kind = column(&shape, source).kind;
                if originals == Originals::Drop {
                    shape.columns.retain(|c| c.name != *source);
                }
                shape.columns.retain(|c| c.name != *target);
                shape.columns.push(Column { name: target.clone(), kind });
            }
            (FieldPattern::Name(_), FieldPattern::Prefix(_)) => {}
            (FieldPattern::Prefix(_), _) => {
                let moved: Vec<(String, String)> =
                    shape.names().filter_map(|name| Some((name.to_owned(), renamed(pair, name)?))).collect();
                if originals == Originals::Drop {
                    shape.columns.retain(|c| !moved.iter().any(|(old, _)| *old == c.name));
                }
                shape = shape.with_texts(moved.iter().map(|(_, new)| new.as_str()));
                if let Some(name) = pair.target.name() {
                    shape = shape.with_texts([name]);
                }
                // Rows are written anew, as text.
                shape.columns.iter_mut().for_each(|c| c.kind = ColumnStorage::Text);
            }
        }
    }
    shape
}

/// The name that a pair gives to a field, if it means the field; one of which nothing is left has no name, as in the
/// reference.
fn renamed(pair: &PatternPair, name: &str) -> Option<String> {
    if !pair.source.matches(name) {
        return None;
    }
    Some(match (&pair.source, &pair.target) {
        (_, FieldPattern::Name(target)) => target.clone(),
        (FieldPattern::Name(_), FieldPattern::Prefix(new)) => new.clone(),
        (FieldPattern::Prefix(old), FieldPattern::Prefix(new)) => format!("{new}{}", &name[old.len()..]),
    })
}

/// What is needed before a pair is copied or renamed.
pub(crate) fn moved_needs(needs: &mut Needs, pair: &PatternPair, originals: Originals) {
    match (&pair.source, &pair.target) {
        (FieldPattern::Name(source), FieldPattern::Name(target)) => {
            if source == target {
                return;
            }
            let wanted = needs.has(target);
            needs.remove(target);
            if originals == Originals::Drop {
                needs.remove(source);
            }
            if wanted {
                needs.add(source);
            }
        }
        (FieldPattern::Prefix(_), target) => {
            let wanted = match target {
                FieldPattern::Name(target) => needs.has(target),
                FieldPattern::Prefix(target) => needs.has_any(target),
            };
            if wanted {
                needs.add_pattern(&pair.source);
            } else if originals == Originals::Drop {
                needs.remove_pattern(&pair.source);
            }
        }
        (FieldPattern::Name(_), FieldPattern::Prefix(_)) => {}
    }
}

/// Copies or renames fields, pair after pair. Lacks in DataFusion: fields that stand in maps, and groups of them.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct CopyFieldsStep {
    pairs: Vec<PatternPair>,
    originals: Originals,
    text: String,
    input: Shape,
    output: Shape,
}

impl CopyFieldsStep {
    /// Adds it to a plan.
    pub(crate) fn plan(
        rows: PartialPlan,
        pairs: Vec<PatternPair>,
        originals: Originals,
        text: String,
    ) -> quiver_types::Result<PartialPlan> {
        let output = pairs_shape(&rows.shape, &pairs, originals);
        let step = Self { pairs, originals, text, input: rows.shape.clone(), output: output.clone() };
        rows.then(step, output)
    }

    /// Writes rows anew, field by field.
    fn rewrite(&self, rows: &RecordBatch, room: usize) -> Result<OutputChunk> {
        let mut writer = Writer::new(rows, &self.input, &self.output)?;
        let columns: Vec<(&str, Texts)> =
            self.input.names().map(|name| Ok((name, texts_of(rows, &self.input, name)?))).collect::<Result<_>>()?;
        let rest = Rest::of(rows, &self.input);
        let mut scratch = vec![String::new(); columns.len()];
        for row in 0..rows.num_rows() {
            let own: Vec<(&str, &str)> =
                columns.iter().zip(&mut scratch).map(|((name, texts), s)| (*name, texts.get(row, s))).collect();
            let all = own.into_iter().chain(rest.iter().flat_map(|rest| rest.row(row)));
            let mut fields: Vec<(Cow<'_, str>, &str)> = all.map(|(name, value)| (Cow::Borrowed(name), value)).collect();
            self.pairs.iter().for_each(|pair| copy_pair(pair, self.originals, &mut fields));
            writer.begin_empty();
            for (name, value) in &fields {
                writer.put(name, value, Overwrite::Always);
            }
            writer.end();
            if writer.bytes >= room {
                break;
            }
        }
        writer.finish(&self.output)
    }
}

impl StepKind for CopyFieldsStep {
    const KIND: &'static str = "rename";
}

impl Step for CopyFieldsStep {
    fn name(&self) -> &'static str {
        "LogsRename"
    }

    fn detail(&self) -> String {
        self.text.clone()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        // Single fields move as whole columns.
        let single = self.pairs.iter().all(|pair| pair.source.name().is_some());
        let map: ValueMap = Box::new(move |rows, room| {
            if !single {
                return self.rewrite(rows, room);
            }
            let batch = copy_columns(&self.pairs, self.originals, rows, &self.input, &self.output)?;
            Ok(OutputChunk { batch, taken: rows.num_rows(), bytes: 0 })
        });
        Ok(map_values(rows, &task, map))
    }
}

fn copy_pair<'a>(pair: &PatternPair, originals: Originals, fields: &mut Vec<(Cow<'a, str>, &'a str)>) {
    let made: Vec<(Cow<'a, str>, &'a str)> = fields
        .iter()
        .filter(|(_, value)| pair.target.name().is_none() || !value.is_empty())
        .filter_map(|(name, value)| Some((Cow::Owned(renamed(pair, name)?), *value)))
        .collect();
    if originals == Originals::Drop {
        fields.retain(|(name, _)| !pair.source.matches(name));
    }
    fields.retain(|(name, _)| !made.iter().any(|(new, _)| new == name));
    fields.extend(made);
}

fn copy_columns(
    pairs: &[PatternPair],
    originals: Originals,
    rows: &RecordBatch,
    input: &Shape,
    output: &Shape,
) -> Result<RecordBatch> {
    let mut shape = input.clone();
    let mut rows = rows.clone();
    for pair in pairs {
        let (Some(source), Some(target)) = (pair.source.name(), pair.target.name()) else { continue };
        if source == target {
            continue;
        }
        let next = pairs_shape(&shape, std::slice::from_ref(pair), originals);
        let narrow = Shape { columns: vec![column(&shape, source)], rest: false };
        let array = Arc::clone(assemble(&rows, &shape, &narrow, &[])?.column(0));
        // What was renamed is gone: it must not reappear in the map.
        let dropped = Shape { columns: shape.columns.clone(), rest: false };
        let kept = if shape.rest { &shape } else { &dropped };
        rows = move_column(&rows, kept, &next, target, array)?;
        shape = next;
    }
    if shape == *output { Ok(rows) } else { assemble(&rows, &shape, output, &[]) }
}

fn move_column(
    rows: &RecordBatch,
    input: &Shape,
    output: &Shape,
    target: &str,
    array: ArrayRef,
) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(output.columns.len() + 1);
    for column in &output.columns {
        columns.push(match input.index(&column.name) {
            _ if column.name == target => Arc::clone(&array),
            Some(i) => Arc::clone(rows.column(i)),
            None => crate::rows::missing(rows.num_rows()),
        });
    }
    if output.rest
        && let Some(rest) = Rest::of(rows, input)
    {
        columns.push(rest_without(&rest, rows.num_rows(), |name| output.index(name).is_some())?);
    }
    batch(output, columns, rows.num_rows())
}
