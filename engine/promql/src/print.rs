//! Writes expressions back as text: in one line as Prometheus shows them, or spread over lines.
//!
//! Reading the text back gives an equal expression, but for the order of matchers, which are sorted.

mod pretty;

use std::fmt::{Result, Write};

use quiver_types::Matcher;
use quiver_types::time::duration;

use crate::ast::{
    AggregateExpr, At, BinaryExpr, DurationExpr, DurationKind, DurationOp, Expr, ExprKind, MatchCardinality,
    SubqueryExpr, VectorMatching, VectorSelector,
};
use crate::duration::seconds;
use crate::lexer::quote::quote;
use crate::range_ends::RangeEnds;

pub use pretty::pretty;

/// Writes an expression in one line.
pub fn print(expr: &Expr) -> String {
    text(|out| write_expr(out, expr))
}

fn text(write: impl FnOnce(&mut String) -> Result) -> String {
    let mut out = String::new();
    write(&mut out).expect("writing to a text cannot fail");
    out
}

/// Writes a number without exponent: `1048576`, `+Inf`, `-Inf`, `NaN`.
pub(crate) fn number(value: f64) -> String {
    if value.is_infinite() { (if value > 0.0 { "+Inf" } else { "-Inf" }).to_owned() } else { value.to_string() }
}

fn write_expr<W: Write + ?Sized>(out: &mut W, expr: &Expr) -> Result {
    match &expr.kind {
        ExprKind::Number { value, duration } => out.write_str(&literal(*value, *duration)),
        ExprKind::String(text) => out.write_str(&text.quoted()),
        ExprKind::Paren(inner) => {
            out.write_char('(')?;
            write_expr(out, inner)?;
            out.write_char(')')
        }
        ExprKind::Unary { negate, expr } => {
            out.write_char(sign(*negate))?;
            write_expr(out, expr)
        }
        ExprKind::Binary(binary) => write_binary(out, binary),
        ExprKind::Aggregate(aggregate) => {
            write_aggregate_head(out, aggregate)?;
            out.write_char('(')?;
            if let Some(param) = &aggregate.param {
                write_expr(out, param)?;
                out.write_str(", ")?;
            }
            write_expr(out, &aggregate.expr)?;
            out.write_char(')')
        }
        ExprKind::Call { function, args } => {
            write!(out, "{function}(")?;
            for (i, arg) in args.iter().enumerate() {
                out.write_str(if i == 0 { "" } else { ", " })?;
                write_expr(out, arg)?;
            }
            out.write_char(')')
        }
        ExprKind::VectorSelector(selector) => {
            write_matchers(out, selector)?;
            write_at(out, selector.at)?;
            out.write_str(extension(selector))?;
            write_offset(out, selector.offset.as_ref())
        }
        ExprKind::MatrixSelector { selector, range } => {
            write_matchers(out, selector)?;
            out.write_char('[')?;
            write_duration(out, range)?;
            out.write_char(']')?;
            out.write_str(extension(selector))?;
            write_at(out, selector.at)?;
            write_offset(out, selector.offset.as_ref())
        }
        ExprKind::Subquery(subquery) => {
            write_expr(out, &subquery.expr)?;
            write_subquery_tail(out, subquery)
        }
    }
}

/// Writes a binary expression; loops over left operands.
pub(crate) fn write_binary<W: Write + ?Sized>(out: &mut W, binary: &BinaryExpr) -> Result {
    let (mut spine, lowest) = binary.lhs.left_spine();
    spine.insert(0, binary);
    write_expr(out, lowest)?;
    for binary in spine.into_iter().rev() {
        out.write_char(' ')?;
        write_operator(out, binary)?;
        out.write_char(' ')?;
        write_expr(out, &binary.rhs)?;
    }
    Ok(())
}

/// Writes an operator with its modifiers.
fn write_operator<W: Write + ?Sized>(out: &mut W, binary: &BinaryExpr) -> Result {
    out.write_str(binary.op.as_str())?;
    if binary.return_bool {
        out.write_str(" bool")?;
    }
    binary.matching.as_ref().map_or(Ok(()), |matching| write_matching(out, matching))
}

fn write_matching<W: Write + ?Sized>(out: &mut W, matching: &VectorMatching) -> Result {
    let side = match matching.card {
        MatchCardinality::ManyToOne => Some("left"),
        MatchCardinality::OneToMany => Some("right"),
        MatchCardinality::OneToOne | MatchCardinality::ManyToMany => None,
    };
    if !matching.labels.is_empty() || matching.on || side.is_some() {
        out.write_str(if matching.on { " on (" } else { " ignoring (" })?;
        write_labels(out, &matching.labels)?;
        out.write_char(')')?;
    }
    if let Some(side) = side {
        write!(out, " group_{side} (")?;
        write_labels(out, &matching.include)?;
        out.write_char(')')?;
    }
    match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left == right => write!(out, " fill ({})", number(left)),
        (left, right) => {
            left.map_or(Ok(()), |value| write!(out, " fill_left ({})", number(value)))?;
            right.map_or(Ok(()), |value| write!(out, " fill_right ({})", number(value)))
        }
    }
}

/// Writes an aggregation up to its arguments.
fn write_aggregate_head<W: Write + ?Sized>(out: &mut W, aggregate: &AggregateExpr) -> Result {
    out.write_str(aggregate.op.as_str())?;
    if aggregate.without || !aggregate.grouping.is_empty() {
        out.write_str(if aggregate.without { " without (" } else { " by (" })?;
        write_labels(out, &aggregate.grouping)?;
        out.write_str(") ")?;
    }
    Ok(())
}

fn write_labels<W: Write + ?Sized>(out: &mut W, labels: &[String]) -> Result {
    for (i, label) in labels.iter().enumerate() {
        out.write_str(if i == 0 { "" } else { ", " })?;
        out.write_str(&label_name(label))?;
    }
    Ok(())
}

/// Writes a label's name, in quotes if it needs them.
fn label_name(label: &str) -> String {
    let plain =
        label.chars().enumerate().all(|(i, c)| c == '_' || c.is_ascii_alphabetic() || i > 0 && c.is_ascii_digit());
    if plain && !label.is_empty() { label.to_owned() } else { quote(label) }
}

fn write_matchers<W: Write + ?Sized>(out: &mut W, selector: &VectorSelector) -> Result {
    let name = selector.name.as_deref().unwrap_or("");
    out.write_str(name)?;
    let made_of_name = |m: &&Matcher| {
        m.name == "__name__" && m.op == quiver_types::MatchOp::Equal && m.value == name && !name.is_empty()
    };
    let mut shown: Vec<String> = selector
        .matchers
        .iter()
        .filter(|m| !made_of_name(m))
        .map(|m| format!("{}{}{}", label_name(&m.name), m.op.as_str(), quote(&m.value)))
        .collect();
    if shown.is_empty() {
        // A selector of nothing but braces (an argument of `info`) must not vanish.
        return out.write_str(if name.is_empty() { "{}" } else { "" });
    }
    shown.sort_unstable();
    write!(out, "{{{}}}", shown.join(","))
}

fn extension(selector: &VectorSelector) -> &'static str {
    match selector.ends {
        RangeEnds::Samples => "",
        RangeEnds::Anchored => " anchored",
        RangeEnds::Smoothed => " smoothed",
    }
}

fn write_at<W: Write + ?Sized>(out: &mut W, at: Option<At>) -> Result {
    match at {
        None => Ok(()),
        Some(At::Time(millis)) => write!(out, " @ {:.3}", millis as f64 / 1000.0),
        Some(At::Start) => out.write_str(" @ start()"),
        Some(At::End) => out.write_str(" @ end()"),
    }
}

fn write_offset<W: Write + ?Sized>(out: &mut W, offset: Option<&DurationExpr>) -> Result {
    let Some(offset) = offset else { return Ok(()) };
    out.write_str(" offset ")?;
    write_duration(out, offset)
}

/// Writes what follows the inner expression of a subquery.
fn write_subquery_tail<W: Write + ?Sized>(out: &mut W, subquery: &SubqueryExpr) -> Result {
    out.write_char('[')?;
    write_duration(out, &subquery.range)?;
    out.write_char(':')?;
    subquery.step.as_ref().map_or(Ok(()), |step| write_duration(out, step))?;
    out.write_char(']')?;
    write_at(out, subquery.at)?;
    write_offset(out, subquery.offset.as_ref())
}

fn write_duration<W: Write + ?Sized>(out: &mut W, duration: &DurationExpr) -> Result {
    match &duration.kind {
        DurationKind::Literal { seconds, duration } => out.write_str(&literal(*seconds, *duration)),
        DurationKind::Step => out.write_str("step()"),
        DurationKind::Range => out.write_str("range()"),
        DurationKind::Unary { negate, expr } => {
            out.write_str(if *negate { "-" } else { "" })?;
            write_duration(out, expr)
        }
        DurationKind::Binary { op: op @ (DurationOp::Min | DurationOp::Max), lhs, rhs } => {
            write!(out, "{}(", op.as_str())?;
            write_duration(out, lhs)?;
            out.write_str(", ")?;
            write_duration(out, rhs)?;
            out.write_char(')')
        }
        DurationKind::Binary { op, lhs, rhs } => {
            write_duration(out, lhs)?;
            write!(out, " {} ", op.as_str())?;
            write_duration(out, rhs)
        }
        DurationKind::Paren(inner) => {
            out.write_char('(')?;
            write_duration(out, inner)?;
            out.write_char(')')
        }
    }
}

/// Writes a number, as a duration if it was one and has whole milliseconds.
fn literal(value: f64, is_duration: bool) -> String {
    let millis = value * 1000.0;
    if is_duration && millis.abs() < i64::MAX as f64 && seconds(millis.round() as i64) == value {
        return duration::format(millis.round() as i64);
    }
    number(value)
}

fn sign(negate: bool) -> char {
    if negate { '-' } else { '+' }
}

impl DurationOp {
    /// Gives the operator as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Mod => "%",
            Self::Pow => "^",
            Self::Min => "min_of",
            Self::Max => "max_of",
        }
    }
}

#[cfg(test)]
mod tests;
