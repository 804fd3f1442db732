//! Helpers to build the expressions that translations generate, and to read those that a statement contains.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, Value,
};
use quiver_query::functions::list_items;
use quiver_types::{Error, ErrorKind, Result};

use super::data_types::is_text;
use crate::names::normal;
use crate::parse::text_literal;

pub(crate) use crate::names::bare;
pub(super) use crate::parse::read_expression as expr;
pub(super) use crate::parse::read_query as query;

/// The most bytes that copies of one part of a statement may add to it.
const COPIES_MAX: usize = 64 << 10;

/// Of how many items or rows a condition must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantifier {
    Any,
    All,
}

impl Quantifier {
    /// The operator that joins the conditions on single items.
    pub(super) fn joining(self) -> BinaryOperator {
        match self {
            Self::Any => BinaryOperator::Or,
            Self::All => BinaryOperator::And,
        }
    }

    /// The value that one item can decide on, whatever the others are. Without items it is the opposite.
    pub(super) fn decisive(self) -> bool {
        self == Self::Any
    }
}

/// A literal text.
pub(super) fn text(value: &str) -> Expr {
    Expr::Value(text_literal(value.to_owned()).into())
}

/// A literal whole number.
pub(super) fn number(value: i64) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).into())
}

pub(super) fn boolean(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// Refuses to copy a part of a statement so often that the statement could grow without bound.
pub(super) fn copied(part: &Expr, times: usize) -> Result<()> {
    let bytes = part.to_string().len().saturating_mul(times);
    if bytes <= COPIES_MAX {
        return Ok(());
    }
    let text = format!("a condition of {bytes} bytes is too long, at most {COPIES_MAX} are allowed");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// A call of one of the session's functions.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    let list = FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Takes an expression and leaves a placeholder.
pub(super) fn take(place: &mut Expr) -> Expr {
    std::mem::replace(place, Expr::Value(Value::Null.into()))
}

/// The text of a literal, also within parentheses and casts to text.
pub(super) fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) | Value::Number(text, _) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => literal(inner),
        Expr::Cast { expr: inner, data_type, .. } if is_text(data_type) => literal(inner),
        _ => None,
    }
}

/// Whether an expression is the literal NULL.
pub(super) fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

/// The items of a list literal (`{1,"a b",NULL}`); `None` if the text is no list, or a list of lists.
pub(super) fn items_of_text(written: &str) -> Option<Vec<Expr>> {
    let item = |item: Option<String>| item.map_or_else(|| Expr::Value(Value::Null.into()), |item| text(&item));
    Some(list_items(written)?.into_iter().map(item).collect())
}

/// Whether an operator is an arithmetic one.
pub(super) fn calculates(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply | BinaryOperator::Divide)
}

/// Whether a name is a function that is called without parentheses, such as `current_user`, which the parser takes
/// for a column.
pub(super) fn is_bare_function(name: &Ident) -> bool {
    name.quote_style.is_none() && matches!(normal(name).as_str(), "current_schema" | "current_role")
}

/// The expression of a positional argument.
pub(super) fn value_of(arg: &mut FunctionArg) -> Option<&mut Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    }
}

/// The arguments of a call, if each is a plain expression.
pub(crate) fn arguments(args: &FunctionArguments) -> Option<Vec<Expr>> {
    match args {
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
        FunctionArguments::List(list) => plain_arguments(&list.args),
    }
}

/// These arguments, if each is a plain expression.
pub(super) fn plain_arguments(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    args.iter().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_seen_through_parentheses() {
        for (text, expected) in [("'a'", Some("a")), ("(('a'))", Some("a")), ("12", Some("12")), ("b", None)] {
            assert_eq!(literal(&expr(text).unwrap()), expected, "{text}");
        }
        assert!(is_null(&expr("NULL").unwrap()) && !is_null(&expr("'NULL'").unwrap()));
    }

    #[test]
    fn quantifiers_decide_by_opposite_values() {
        assert_eq!(Quantifier::Any.joining(), BinaryOperator::Or);
        assert_eq!(Quantifier::All.joining(), BinaryOperator::And);
        assert_eq!([Quantifier::Any, Quantifier::All].map(Quantifier::decisive), [true, false]);
    }

    #[test]
    fn calls_are_known_by_their_last_name() {
        let named = |text: &str| match expr(text).unwrap() {
            Expr::Function(call) => bare(&call.name),
            other => panic!("no call: {other}"),
        };
        assert_eq!(named("Lower(a)").as_deref(), Some("lower"));
        assert_eq!(named("pg_catalog.lower(a)").as_deref(), Some("lower"));
    }
}
