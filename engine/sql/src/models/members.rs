//! Dimensions and measures within a statement: calls of `MEASURE`, and the marks that replace resolved names.

use datafusion::sql::sqlparser::ast::{Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident};
use quiver_query::tables::models::ModelMember;
use quiver_types::{Error, Result};

use crate::names::parts;

/// The function that wraps measures.
const MEASURE: &str = "measure";
/// First part of the marks of resolved dimensions and measures, before model and member. No statement contains its
/// first character.
pub(super) const DIMENSION_MARK: &str = "\u{1}dimension";
pub(super) const MEASURE_MARK: &str = "\u{1}measure";

pub(super) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

pub(super) fn marked(mark: &str, member: &ModelMember) -> Ast {
    Ast::CompoundIdentifier(vec![quoted(mark), quoted(&member.model), quoted(&member.member)])
}

fn of_mark(expr: &Ast, mark: &str) -> Option<ModelMember> {
    match expr {
        Ast::CompoundIdentifier(idents) => match idents.as_slice() {
            [first, model, member] if first.value == mark => {
                Some(ModelMember { model: model.value.clone(), member: member.value.clone() })
            }
            _ => None,
        },
        _ => None,
    }
}

/// The dimension that a mark stands for; `None` if the expression is no such mark.
pub(super) fn dimension_of(expr: &Ast) -> Option<ModelMember> {
    of_mark(expr, DIMENSION_MARK)
}

/// The measure that a mark stands for; `None` if the expression is no such mark.
pub(super) fn measure_of(expr: &Ast) -> Option<ModelMember> {
    of_mark(expr, MEASURE_MARK)
}

/// Whether an expression calls `MEASURE`.
pub(crate) fn is_measure_call(expr: &Ast) -> bool {
    matches!(expr, Ast::Function(call) if parts(&call.name) == [MEASURE])
}

/// The argument of a call of `MEASURE`.
///
/// # Errors
///
/// Invalid: it has no argument, or clauses that only aggregates over rows have.
pub(super) fn measure_name(call: &Function) -> Result<&Ast> {
    let plain = call.over.is_none()
        && call.filter.is_none()
        && call.within_group.is_empty()
        && call.null_treatment.is_none()
        && matches!(call.parameters, FunctionArguments::None);
    if let FunctionArguments::List(list) = &call.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(name @ (Ast::Identifier(_) | Ast::CompoundIdentifier(_))))] =
            list.args.as_slice()
        && plain
        && list.duplicate_treatment.is_none()
        && list.clauses.is_empty()
    {
        return Ok(name);
    }
    Err(Error::invalid(format!("`{call}`: `MEASURE` takes the name of a measure and nothing else: MEASURE(\"count\")")))
}

/// The error for a measure where a value of a single row is needed.
pub(super) fn bare_measure(member: &ModelMember) -> Error {
    let ModelMember { model, member } = member;
    Error::invalid(format!("`{member}` is a measure of `{model}`: it stands in MEASURE(\"{member}\") alone"))
}
