//! `union`: appends the rows of another query.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::{LogicalPlan, Union as UnionPlan};
use quiver_query::{from_datafusion, in_turn};
use quiver_types::Result;

use super::pipe::{At, Order, Pipe, PipeKind};
use super::rows::{parse_query_or_rows, query_or_rows};
use crate::ast::Query;
use crate::ops::project::ReshapeStep;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::{Column, ColumnStorage};

/// `union (query)` or `union rows(...)`
#[derive(Debug, Clone, PartialEq)]
pub struct Union(pub Box<Query>);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["union"], doc: "Gives the rows of another query, too.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    Ok(Union(Box::new(parse_query_or_rows(parser)?)).into())
}

impl Display for Union {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "union {}", query_or_rows(&self.0))
    }
}

impl PipeKind for Union {
    fn before(&self, after: &Needs) -> Needs {
        after.clone()
    }

    fn order(&self) -> Order {
        Order::Lost
    }

    fn queries_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.0]
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let other = at.planner.query(&self.0, at.needs)?;
        let mut shape = rows.shape.clone();
        shape.columns.extend(other.shape.columns.iter().filter(|c| rows.shape.index(&c.name).is_none()).cloned());
        shape.rest |= other.shape.rest;
        let same = |c: &Column| {
            [&rows.shape, &other.shape].iter().all(|s| s.index(&c.name).is_some_and(|i| s.columns[i].kind == c.kind))
        };
        let kinds: Vec<ColumnStorage> =
            shape.columns.iter().map(|c| if same(c) { c.kind } else { ColumnStorage::Text }).collect();
        shape.columns.iter_mut().zip(kinds).for_each(|(c, kind)| c.kind = kind);
        let time = rows.time;
        let inputs = [rows, other]
            .into_iter()
            .map(|side| Ok(Arc::new(ReshapeStep::plan(side, shape.clone())?.plan)))
            .collect::<Result<Vec<_>>>()?;
        let schema = DFSchema::try_from(shape.schema()).map_err(from_datafusion)?;
        let plan = LogicalPlan::Union(UnionPlan { inputs, schema: Arc::new(schema) });
        Ok(PartialPlan { plan: in_turn(plan)?, shape, time })
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("union (a:b | fields c)", "union (a:b | fields c)"),
            ("union (a | uniq (x) | limit 10)", "union (a | uniq by (x) limit 10)"),
        ]);
        refuses(&[("union", "`(` expected"), ("union (a", "`)` expected")]);
        gives("union rows({a:2, c:3}) | sort by (a)", &["a=1 b=x"], &["a=1 b=x", "a=2 c=3"]);
    }
}
