//! Expressions over columns of which some are dictionary codes of texts: an expression that depends on one such
//! column alone is evaluated once per text.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeBinaryArray, Int32Array, Int32DictionaryArray, RecordBatch,
    RecordBatchOptions, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;

use crate::tables::cells::hex_ids;
use crate::tables::convert::HEX;

/// The values of an expression for each row.
#[derive(Debug, Clone)]
pub(super) enum EvaluatedColumn {
    /// Texts as dictionary codes.
    Coded(Int32DictionaryArray),
    /// Ids in bytes, which stand for their hexadecimal texts.
    Ids(FixedSizeBinaryArray),
    /// Values of the expression's own type.
    Plain(ArrayRef),
}

impl EvaluatedColumn {
    /// The values in the expression's own type.
    pub(super) fn plain(self) -> Result<ArrayRef> {
        Ok(match self {
            Self::Coded(coded) => take(coded.values(), coded.keys(), None)?,
            Self::Ids(ids) => Arc::new(hex_ids(&ids)),
            Self::Plain(array) => array,
        })
    }

    /// The values as they are stored: two are equal if and only if the expression's values are.
    pub(super) fn held(self) -> ArrayRef {
        match self {
            Self::Coded(coded) => Arc::new(coded),
            Self::Ids(ids) => Arc::new(ids),
            Self::Plain(array) => array,
        }
    }
}

/// Where an expression reads an input from.
#[derive(Debug, Clone)]
enum Source {
    /// The column at this index, unchanged.
    Column(usize),
    /// An expression that depends on one column of codes.
    OfText(OfText),
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Column(a), Self::Column(b)) => a == b,
            (Self::OfText(a), Self::OfText(b)) => a.column == b.column && a.expr.eq(&b.expr),
            _ => false,
        }
    }
}

/// An expression over one column of codes.
#[derive(Debug, Clone)]
struct OfText {
    column: usize,
    /// The expression over a batch that has only that column.
    expr: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
}

/// An expression in the form in which it is evaluated.
#[derive(Debug, Clone)]
pub(super) enum PreparedExpr {
    /// The column at this index, unchanged.
    Column(usize),
    /// An expression that depends on one column of codes alone: evaluated once per text.
    OfText(OneText),
    /// Any other expression: evaluated once per row.
    Rows(OfRows),
}

/// An expression that is evaluated once per text of a column of codes.
#[derive(Debug, Clone)]
pub(super) struct OneText(OfText);

/// An expression that is evaluated once per row, and the inputs that it reads.
#[derive(Debug, Clone)]
pub(super) struct OfRows {
    expr: Arc<dyn PhysicalExpr>,
    sources: Vec<Source>,
    schema: SchemaRef,
}

fn is_coded(schema: &Schema, column: usize) -> bool {
    matches!(schema.field(column).data_type(), DataType::Dictionary(..))
}

/// The index of the only column of codes that an expression depends on.
fn one_text(expr: &Arc<dyn PhysicalExpr>, coded: &Schema) -> Option<usize> {
    let columns = collect_columns(expr);
    let mut columns = columns.iter();
    let only = columns.next()?.index();
    (columns.next().is_none() && is_coded(coded, only)).then_some(only)
}

fn of_text(expr: &Arc<dyn PhysicalExpr>, column: usize, plain: &Schema) -> Result<OfText> {
    let changed = Arc::clone(expr).transform_up(|e| {
        Ok(match e.downcast_ref::<Column>() {
            Some(of) => Transformed::yes(Arc::new(Column::new(of.name(), 0)) as Arc<dyn PhysicalExpr>),
            None => Transformed::no(e),
        })
    });
    let schema = Arc::new(Schema::new(vec![plain.field(column).clone()]));
    Ok(OfText { column, expr: changed?.data, schema })
}

impl PreparedExpr {
    /// Prepares an expression. `plain` is the schema that the expression was made for, `coded` that of the batches.
    pub(super) fn new(expr: &Arc<dyn PhysicalExpr>, plain: &Schema, coded: &Schema) -> Result<Self> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            return Ok(Self::Column(column.index()));
        }
        if let Some(column) = one_text(expr, coded) {
            return Ok(Self::OfText(OneText(of_text(expr, column, plain)?)));
        }
        let (mut sources, mut fields): (Vec<Source>, Vec<Field>) = (Vec::new(), Vec::new());
        let changed = Arc::clone(expr).transform_down(|e| {
            let (source, field) = match (e.downcast_ref::<Column>(), one_text(&e, coded)) {
                (Some(column), _) => (Source::Column(column.index()), plain.field(column.index()).clone()),
                (None, Some(column)) => {
                    let field = Field::new(format!("of_text_{}", sources.len()), e.data_type(plain)?, true);
                    (Source::OfText(of_text(&e, column, plain)?), field)
                }
                (None, None) => return Ok(Transformed::no(e)),
            };
            let at = sources.iter().position(|known| *known == source).unwrap_or_else(|| {
                sources.push(source);
                fields.push(field);
                sources.len() - 1
            });
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(fields[at].name(), at));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        });
        let expr = changed?.data;
        Ok(Self::Rows(OfRows { expr, sources, schema: Arc::new(Schema::new(fields)) }))
    }

    /// The indexes of the columns that it reads.
    pub(super) fn reads(&self) -> Vec<usize> {
        match self {
            Self::Column(at) => vec![*at],
            Self::OfText(OneText(of)) => vec![of.column],
            Self::Rows(of) => of.sources.iter().map(Source::column).collect(),
        }
    }

    /// Whether it is a constant other than NULL.
    pub(super) fn is_constant(&self) -> bool {
        let Self::Rows(of) = self else { return false };
        of.expr.downcast_ref::<Literal>().is_some_and(|constant| !constant.value().is_null())
    }

    /// Evaluates it over a batch with the coded schema.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<EvaluatedColumn> {
        match self {
            Self::Column(at) => Ok(column(batch, *at)),
            Self::OfText(OneText(of)) => of.evaluate(batch),
            Self::Rows(of) => {
                let columns = of.sources.iter().map(|source| match source {
                    Source::Column(at) => column(batch, *at).plain(),
                    Source::OfText(of) => of.evaluate(batch)?.plain(),
                });
                let columns = columns.collect::<Result<Vec<_>>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let rows = RecordBatch::try_new_with_options(Arc::clone(&of.schema), columns, &options)?;
                Ok(EvaluatedColumn::Plain(of.expr.evaluate(&rows)?.into_array(rows.num_rows())?))
            }
        }
    }
}

impl Source {
    fn column(&self) -> usize {
        match self {
            Self::Column(at) => *at,
            Self::OfText(of) => of.column,
        }
    }
}

fn column(batch: &RecordBatch, at: usize) -> EvaluatedColumn {
    let array = batch.column(at);
    if let Some(coded) = array.as_any().downcast_ref::<Int32DictionaryArray>() {
        return EvaluatedColumn::Coded(compact(coded));
    }
    match array.as_fixed_size_binary_opt() {
        Some(ids) if batch.schema_ref().field(at).metadata().contains_key(HEX) => EvaluatedColumn::Ids(ids.clone()),
        _ => EvaluatedColumn::Plain(Arc::clone(array)),
    }
}

/// If there are fewer rows than texts, keeps only the texts that occur.
fn compact(coded: &Int32DictionaryArray) -> Int32DictionaryArray {
    if coded.values().len() <= coded.len() * 2 {
        return coded.clone();
    }
    match take(coded.values(), coded.keys(), None) {
        Ok(values) => {
            let codes = Int32Array::new((0..coded.len() as i32).collect(), values.nulls().cloned());
            Int32DictionaryArray::new(codes, values)
        }
        Err(_) => coded.clone(),
    }
}

/// Whether a condition is true for each text.
fn is_all(given: &BooleanArray) -> bool {
    given.null_count() == 0 && given.true_count() == given.len()
}

impl OfText {
    fn over(&self, texts: ArrayRef) -> Result<ArrayRef> {
        let rows = texts.len();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![texts])?;
        self.expr.evaluate(&batch)?.into_array(rows)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<EvaluatedColumn> {
        let EvaluatedColumn::Coded(coded) = column(batch, self.column) else {
            return Ok(EvaluatedColumn::Plain(self.over(column(batch, self.column).plain()?)?));
        };
        let (keys, values) = (coded.keys(), coded.values());
        let count = values.len();
        // The result for NULL comes behind those of the texts.
        let nulls = keys.null_count() > 0;
        let texts =
            if nulls { concat(&[&**values, &*new_null_array(values.data_type(), 1)])? } else { Arc::clone(values) };
        // A text that does not occur in the rows must not make the query fail.
        let Ok(given) = self.over(texts) else {
            return Ok(EvaluatedColumn::Plain(self.over(EvaluatedColumn::Coded(coded).plain()?)?));
        };
        let keys = if nulls && given.is_valid(count) {
            Int32Array::from_iter_values(keys.iter().map(|key| key.unwrap_or(count as i32)))
        } else {
            keys.clone()
        };
        Ok(match given.data_type() {
            DataType::Utf8View | DataType::Utf8 => EvaluatedColumn::Coded(Int32DictionaryArray::try_new(keys, given)?),
            // If the store has filtered the texts already, all rows pass, and none need be looked up.
            DataType::Boolean if keys.null_count() == 0 && is_all(given.as_boolean()) => {
                EvaluatedColumn::Plain(Arc::new(BooleanArray::new(BooleanBuffer::new_set(keys.len()), None)))
            }
            _ => EvaluatedColumn::Plain(take(&given, &keys, None)?),
        })
    }
}
