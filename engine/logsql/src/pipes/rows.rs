//! `rows(..)`: rows that stand in the query, as `join` and `union` may take them instead of a query.

use std::collections::{BTreeSet, HashSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::pipe::{At, Order, PipeKind};
use crate::ast::{Filter, Options, Query};
use crate::lexer::quote;
use crate::parser::names::field_name;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::{PartialPlan, internal};
use crate::print::list;
use crate::required_fields::Needs;
use crate::rows::{Shape, batch, push_text};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `rows({name:value, ..}, ..)`
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rows(pub Vec<Vec<(String, String)>>);

/// It is no pipe by name: `join` and `union` read it.
pub(super) const DEFS: &[PipeDef] = &[];

const STEPS: &[StepReader] = &[StepReader::of::<Rows>()];

/// Reads `(query)`, or the rows that stand in its place.
pub(super) fn parse_query_or_rows(parser: &mut Parser<'_>) -> crate::error::Result<Query> {
    if !parser.skip("rows") {
        return parser.query_in_parens();
    }
    let mut columns = HashSet::new();
    let rows = parser.in_parens(|parser| {
        parser.expect("{")?;
        let mut row = Vec::new();
        while !parser.skip("}") {
            let name = field_name(parser.word("a field name", &[":", "=", "{", "}"])?);
            if !parser.skip_any(&[":", "="]) {
                return Err(parser.unexpected("`:` or `=`"));
            }
            if !columns.contains(&name) {
                parser.count_field()?;
                columns.insert(name.clone());
            }
            row.push((name, parser.word("a value", &["{", "}"])?));
            parser.skip(",");
        }
        Ok(row)
    })?;
    parser.count_cells(rows.len() * columns.len())?;
    Ok(Query { options: Options::default(), filter: Filter::All, pipes: vec![Rows(rows).into()] })
}

impl Display for Rows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let row = |row: &Vec<(String, String)>| {
            format!("{{{}}}", list(row, |(name, value)| format!("{}:{}", quote(name), quote(value))))
        };
        write!(f, "rows({})", list(&self.0, row))
    }
}

/// `(query)`, or the rows that stand in its place.
pub(crate) fn query_or_rows(query: &Query) -> String {
    match query.pipes.as_slice() {
        [pipe] if pipe.is::<Rows>() => pipe.to_string(),
        _ => format!("({query})"),
    }
}

impl PipeKind for Rows {
    fn before(&self, _: &Needs) -> Needs {
        Needs::default()
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn order(&self) -> Order {
        Order::Made
    }

    fn own_rows(&self) -> Option<quiver_types::Result<PartialPlan>> {
        Some(PartialPlan::nothing().then(self.clone(), self.shape()))
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, _: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        Err(internal("its rows are its own"))
    }
}

impl Rows {
    fn shape(&self) -> Shape {
        let names: BTreeSet<&str> = self.0.iter().flatten().map(|(name, _)| name.as_str()).collect();
        Shape::of_texts(names)
    }
}

impl StepKind for Rows {
    const KIND: &'static str = "rows";
}

/// Lacks in DataFusion: rows of different fields. (Its `Values` would need each cell as an expression.)
impl Step for Rows {
    fn name(&self) -> &'static str {
        "LogsRows"
    }

    fn detail(&self) -> String {
        self.0.len().to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.shape().schema()
    }

    fn open(self: Arc<Self>, _: SendableRecordBatchStream, _: Arc<TaskContext>) -> Result<Batches> {
        let shape = self.shape();
        let column = |name: &str| {
            let mut builder = StringViewBuilder::with_capacity(self.0.len());
            for row in &self.0 {
                let value = row.iter().rev().find(|(own, _)| own == name).map_or("", |(_, value)| value);
                push_text(&mut builder, value);
            }
            Arc::new(builder.finish()) as ArrayRef
        };
        let made = batch(&shape, shape.names().map(column).collect(), self.0.len())?;
        Ok(futures::stream::iter([Ok(made)]).boxed())
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("union rows({a:1, b:'x y'}, {})", "union rows({\"a\":\"1\", \"b\":\"x y\"}, {})")]);
        refuses(&[("union rows(a)", "`{` expected"), ("rows({a:1})", "unknown pipe `rows`")]);
        gives("union rows({a:1}, {b:2,}) | sort by (a, b)", &[], &["b=2", "a=1"]);
    }
}
