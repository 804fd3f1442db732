//! Expressions spread over lines: what does not fit into a line is broken, operands go deeper than their operator.

use std::fmt::{self, Write};

use super::{sign, text, write_aggregate_head, write_expr, write_operator, write_subquery_tail};
use crate::ast::{Expr, ExprKind};

/// Longest line that is not broken, in bytes, without its indentation.
const LINE_BYTES_MAX: usize = 100;

/// Deepest level that is broken: long chains of operators stay in one line from there, or indentation alone would
/// outgrow the text a thousand times.
const LEVELS_MAX: usize = 100;

/// Writes an expression over several lines where it is long.
pub fn pretty(expr: &Expr) -> String {
    text(|out| Pretty { out, line_bytes_max: LINE_BYTES_MAX }.write(expr, 0))
}

pub(super) struct Pretty<'a> {
    pub(super) out: &'a mut String,
    pub(super) line_bytes_max: usize,
}

impl Pretty<'_> {
    pub(super) fn write(&mut self, expr: &Expr, level: usize) -> fmt::Result {
        let breaks = level < LEVELS_MAX && self.is_long(expr);
        match &expr.kind {
            ExprKind::Subquery(subquery) if breaks => {
                self.write(&subquery.expr, level)?;
                return write_subquery_tail(self.out, subquery);
            }
            // As Prometheus does it: whoever is short starts without indentation.
            ExprKind::Subquery(_) => return write_expr(self.out, expr),
            ExprKind::Binary(binary) if breaks => {
                self.write(&binary.lhs, level + 1)?;
                self.line(level);
                write_operator(self.out, binary)?;
                self.out.push('\n');
                return self.write(&binary.rhs, level + 1);
            }
            ExprKind::Unary { negate, expr } => {
                self.indent(level);
                self.out.push(sign(*negate));
                let inner = text(|out| Pretty { out, line_bytes_max: self.line_bytes_max }.write(expr, level));
                self.out.push_str(inner.trim());
                return Ok(());
            }
            _ => {}
        }
        self.indent(level);
        match &expr.kind {
            ExprKind::Paren(inner) if breaks => {
                self.out.push_str("(\n");
                self.write(inner, level + 1)?;
            }
            ExprKind::Aggregate(aggregate) if breaks => {
                write_aggregate_head(self.out, aggregate)?;
                self.out.push_str("(\n");
                if let Some(param) = &aggregate.param {
                    self.write(param, level + 1)?;
                    self.out.push_str(",\n");
                }
                self.write(&aggregate.expr, level + 1)?;
            }
            ExprKind::Call { function, args } if breaks => {
                self.out.push_str(function);
                self.out.push_str("(\n");
                for (i, arg) in args.iter().enumerate() {
                    self.out.push_str(if i == 0 { "" } else { ",\n" });
                    self.write(arg, level + 1)?;
                }
            }
            _ => return write_expr(self.out, expr),
        }
        self.line(level);
        self.out.push(')');
        Ok(())
    }

    fn line(&mut self, level: usize) {
        self.out.push('\n');
        self.indent(level);
    }

    fn indent(&mut self, level: usize) {
        self.out.extend(std::iter::repeat_n("  ", level));
    }

    /// Says whether an expression is longer than a line, in time that does not depend on how much longer.
    fn is_long(&self, expr: &Expr) -> bool {
        // Each operator takes four bytes and more.
        let mut operators = 0;
        let mut lowest = expr;
        while let ExprKind::Binary(binary) = &lowest.kind {
            operators += 1;
            if operators * 4 > self.line_bytes_max {
                return true;
            }
            lowest = &binary.lhs;
        }
        write_expr(&mut Room { bytes: self.line_bytes_max }, expr).is_err()
    }
}

/// Takes up to so many bytes and then fails.
struct Room {
    bytes: usize,
}

impl Write for Room {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes = self.bytes.checked_sub(text.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}
