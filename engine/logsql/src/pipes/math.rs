//! `math`: numbers made of the numbers of a row.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::RowPipe;
use crate::ast::MathExpr;
use crate::error::Result;
use crate::kernels::values::push_f64;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::print::math::{math_name, math_text};
use crate::print::{list, word};
use crate::row_functions::math::{Context, Expr, field_value};
use crate::series_columns::StatsColumns;

/// `math e as r, ..`: expressions with the names of their results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Math(pub Vec<(MathExpr, String)>);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["math", "eval"], doc: "Computes numbers of the numbers of a row.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let items = parser.with_commas(|parser| {
        let expr = parser.math(u8::MAX)?;
        let name = parser.as_name()?;
        // One without a name gets one.
        if name.is_none() {
            parser.count_field()?;
        }
        let name = name.unwrap_or_else(|| math_name(&expr));
        Ok((expr, name))
    })?;
    Ok(Math(items).into())
}

impl Display for Math {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "math {}", list(&self.0, |(expr, name)| format!("{} as {}", math_text(expr), word(name))))
    }
}

impl Math {
    /// The expressions over places in a list of fields.
    fn compiled(&self) -> (Vec<Expr>, Vec<String>) {
        let mut sources = Vec::new();
        let all = self.0.iter().map(|(expr, _)| Expr::compile(expr, &mut sources)).collect();
        (all, sources)
    }
}

impl RowPipe for Math {
    const KIND: &'static str = "math";

    fn sources(&self) -> Vec<String> {
        self.compiled().1
    }

    fn targets(&self) -> Vec<String> {
        self.0.iter().map(|(_, name)| name.clone()).collect()
    }

    /// Expressions are computed one after the other: each sees the results before it.
    fn compute(&self, now_ns: i64) -> Result<Compute> {
        let ((compiled, sources), targets) = (self.compiled(), self.targets());
        let ctx = Context::new(now_ns, now_ns as u64);
        let mut results = vec![f64::NAN; targets.len()];
        Ok(Box::new(move |values, out| {
            for (i, expr) in compiled.iter().enumerate() {
                // Which earlier result a field is, the last one of that name.
                let field = |source: usize| match targets[..i].iter().rposition(|name| *name == sources[source]) {
                    Some(earlier) => results[earlier],
                    None => field_value(values[source]),
                };
                results[i] = expr.evaluate(&field, &ctx);
            }
            for (value, out) in results.iter().zip(out) {
                push_f64(out, *value);
            }
        }))
    }

    fn follow(&self, columns: &mut StatsColumns) -> quiver_types::Result<()> {
        self.0.iter().try_for_each(|(_, name)| columns.add_value(self, name))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("math a+b*(c-1)/2 x", "math (a + b * (c - 1) / 2) as x"),
            ("eval round(a, 5) as b, -b as c", "math round(a, 5) as b, -b as c"),
            ("math a / 5m", "math (a / 5m) as \"a / 5m\""),
            ("math max(a, b) default 0 as m", "math (max(a, b) default 0) as m"),
        ]);
        refuses(&[("math", "expected"), ("math a +", "expected"), ("math abs(a, b) as c", "abs")]);
        gives("math a * 2 as b, b + 1 as c", &["a=5", "a=x"], &["a=5 b=10 c=11", "a=x b=NaN c=NaN"]);
        gives("math (a default 7) ^ 2 as b | fields b", &["a=3", "c=1"], &["b=9", "b=49"]);
        gives("math 3 & 6 as a, 3 or 4 as b, 3 xor 1 as c, 7 % 4 as d", &[""], &["a=2 b=7 c=2 d=3"]);
        gives(
            "math a % 7 as b",
            &["a=9223372036854775808", "a=-14", "a=-15"],
            &["a=9223372036854775808 b=1", "a=-14 b=0", "a=-15 b=-1"],
        );
    }
}
