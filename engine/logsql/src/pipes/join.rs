//! `join`: combines rows with those rows of another query that are equal in some fields.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;

use super::pipe::{At, Order, Pipe, PipeKind};
use super::rows::{parse_query_or_rows, query_or_rows};
use super::syntax::names;
use crate::ast::Query;
use crate::ops::join;
use crate::ops::project::ReshapeStep;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::word;
use crate::required_fields::Needs;

/// `join by (...) (query) [inner] [prefix p]`
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Fields whose values must be equal on both sides.
    pub by: Vec<String>,
    /// The query that gives the rows of the right side.
    pub query: Box<Query>,
    /// Rows without a match are left out.
    pub inner: bool,
    /// Before the names of the right side's fields.
    pub prefix: String,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["join"],
    doc: "Adds the fields of rows of another query that are equal in some fields.",
    parse,
}];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.skip_any(&["by", "on"]);
    let by = parser.fields_in_parens()?;
    let query = Box::new(parse_query_or_rows(parser)?);
    let inner = parser.skip("inner");
    let mut prefix = String::new();
    if parser.skip("prefix") {
        prefix = parser.argument("a prefix")?;
        if parser.is_adjacent("*") {
            parser.advance();
        }
    }
    Ok(Join { by, query, inner, prefix }.into())
}

impl Display for Join {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "join by ({}) {}", names(&self.by), query_or_rows(&self.query))?;
        if self.inner {
            f.write_str(" inner")?;
        }
        if self.prefix.is_empty() { Ok(()) } else { write!(f, " prefix {}", word(&self.prefix)) }
    }
}

impl PipeKind for Join {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        needs.add_all(self.by.iter().map(String::as_str));
        needs
    }

    fn order(&self) -> Order {
        Order::Lost
    }

    fn follows(&self) -> bool {
        true
    }

    fn queries_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.query]
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let mut wanted = Needs::of(&self.by);
        if at.needs.open() {
            wanted.add_needs(&Needs::all());
        }
        let named = at.needs.names.iter().filter_map(|name| name.strip_prefix(self.prefix.as_str()));
        wanted.names.extend(named.map(str::to_owned));
        let right = ReshapeStep::with_columns(at.planner.query(&self.query, &wanted)?, &self.by)?;
        let left = ReshapeStep::with_columns(rows, &self.by)?;
        let operator = join::Join {
            left: left.shape.clone(),
            right: right.shape.clone(),
            by: self.by.clone(),
            inner: self.inner,
            prefix: self.prefix.clone(),
        };
        operator.plan(left, right)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("join on (a, b) (c:d | fields a) inner prefix p_*", "join by (a, b) (c:d | fields a) inner prefix p_"),
            ("join (a) rows({a:1})", "join by (a) rows({\"a\":\"1\"})"),
        ]);
        refuses(&[("join by () (x)", "at least one field expected"), ("join by (a)", "`(` expected")]);
        let rows = ["a=1 b=x", "a=2", "a=3 b=z"];
        let other = "rows({a:1, c:7}, {a:1, c:8}, {a:3, b:y})";
        gives(
            &format!("join by (a) {other} | sort by (a, c)"),
            &rows,
            &["a=1 b=x c=7", "a=1 b=x c=8", "a=2", "a=3 b=z"],
        );
        gives(
            &format!("join by (a) {other} inner prefix r. | sort by (a) | limit 1 | fields r.c, r.b"),
            &rows[2..],
            &["r.b=y"],
        );
    }
}
