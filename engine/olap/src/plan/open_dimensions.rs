//! Open dimensions (`olap-api.md` 12.8): a model gives the rule for their names, and only the column that is read says
//! which type their values have. Senders also write one attribute as a number here and as a text there.
//!
//! Operators of numbers (`gt` and its kin) compare numbers whatever the column is: of texts, those that are numbers. Where the
//! column has numbers, values of `equals` are read as numbers, and texts are looked for in what the numbers look like. Rows
//! are ordered by numbers first, then by the other texts.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, try_cast, when};

use super::{Planner, Stage, column};
use crate::error::OlapResult;
use crate::model::MemberId;
use crate::model::catalog::MemberKind;
use crate::query::filter::{Literal, Test};

/// Whether values of a type are texts.
fn is_text(ty: &DataType) -> bool {
    match ty {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// The value as a text.
fn text(value: Expr, ty: &DataType) -> Expr {
    if is_text(ty) { value } else { cast(value, DataType::Utf8) }
}

/// A text as a number; none: it is none.
fn number_in(literal: &Literal) -> Option<Literal> {
    match literal {
        Literal::Text(text) => Literal::number(text),
        Literal::Integer(_) | Literal::Double(_) => Some(literal.clone()),
        Literal::Boolean(_) | Literal::Instant(_) => None,
    }
}

impl Planner<'_> {
    /// Whether a member is an open dimension.
    pub(super) fn is_opened(&self, id: &MemberId) -> bool {
        matches!(self.catalog.find(id).map(|found| found.kind), Some(MemberKind::Dimension(dimension)) if dimension.is_opened)
    }

    /// The test of a filter on an open dimension, and the value that it is for.
    pub(super) fn opened(&self, stage: &Stage, test: &Test, value: Expr) -> OlapResult<(Test, Expr)> {
        let ty = value.get_type(&self.schema(stage, &value)?)?;
        Ok(match test {
            Test::Compare(_, Literal::Integer(_) | Literal::Double(_)) => (test.clone(), self.number(value, &ty)?),
            Test::Text { .. } => (test.clone(), text(value, &ty)),
            Test::In { values, null, negated } if ty.is_numeric() => {
                // A text that is not a number equals no number, also next to one that is.
                let numbers: Vec<Literal> = values.iter().filter_map(number_in).collect();
                if numbers.is_empty() && !values.is_empty() {
                    (test.clone(), text(value, &ty))
                } else {
                    (Test::In { values: numbers, null: *null, negated: *negated }, value)
                }
            }
            _ => (test.clone(), value),
        })
    }

    /// The key that comes before the column of an open dimension in an order; none: the column is enough.
    pub(super) fn opened_order(&self, name: &str, schema: &DFSchema) -> OlapResult<Option<Expr>> {
        let value = column(name);
        let ty = value.get_type(schema)?;
        is_text(&ty).then(|| self.number(value, &ty)).transpose()
    }

    /// The value as a number; NULL where it is none, or is NaN, which would be greater than all others.
    fn number(&self, value: Expr, ty: &DataType) -> OlapResult<Expr> {
        if ty.is_numeric() {
            return Ok(value);
        }
        let number = try_cast(text(value, ty), DataType::Float64);
        let is_nan = self.scalar("isnan", vec![number.clone()])?;
        Ok(when(is_nan.is_not_true(), number).end()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers() {
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        assert!(is_text(&coded) && is_text(&DataType::Utf8View) && !is_text(&DataType::Int64));
        let of = |text: &str| number_in(&Literal::Text(text.to_owned()));
        assert_eq!((of("200"), of("1.5")), (Some(Literal::Integer(200)), Some(Literal::Double(1.5))));
        assert_eq!((of("fast"), of("inf"), of("")), (None, None, None));
        assert_eq!(number_in(&Literal::Boolean(true)), None);
    }
}
