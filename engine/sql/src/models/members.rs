//! Dimensions and measures within a statement: calls of `MEASURE`, and the marks that replace resolved names.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, VisitorMut,
};
use quiver_query::tables::models::ModelMember;
use quiver_types::{Error, Result};

use crate::names::parts;
use crate::statement_walk::walk_mut;

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

/// A call as statements write it: with names in place of marks.
pub(super) fn written(call: &Function) -> String {
    let mut call = call.clone();
    let _ = walk_mut(&mut call, &mut Names);
    call.to_string()
}

/// Writes names in place of marks.
struct Names;

impl VisitorMut for Names {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<()> {
        if let Some(member) = dimension_of(expr) {
            *expr = Ast::Identifier(quoted(&member.member));
        } else if let Some(member) = measure_of(expr) {
            *expr = Ast::Identifier(Ident::new(format!("MEASURE({})", quoted(&member.member))));
        }
        ControlFlow::Continue(())
    }
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

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr};

    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    /// The first output of a statement.
    fn output(text: &str) -> Ast {
        let text = format!("select {text} from t");
        let ReadStatement::Query(query) = parse(&text, &Params::default()).expect(&text).statement else {
            panic!("no query: {text}")
        };
        let SetExpr::Select(select) = *query.body else { panic!("no select: {text}") };
        match select.projection.into_iter().next() {
            Some(SelectItem::UnnamedExpr(expr)) => expr,
            other => panic!("no output: {other:?}"),
        }
    }

    fn call(text: &str) -> Function {
        match output(text) {
            Ast::Function(call) => call,
            other => panic!("no call: {other}"),
        }
    }

    #[test]
    fn measures_are_called_by_their_names() {
        for (text, expected) in [("measure(a)", "a"), ("MEASURE(\"a\")", "\"a\""), ("measure(t.a)", "t.a")] {
            assert!(is_measure_call(&output(text)), "{text}");
            assert_eq!(measure_name(&call(text)).expect(text).to_string(), expected);
        }
        assert!(!is_measure_call(&output("measures(a)")) && !is_measure_call(&output("measure")));
        for text in [
            "measure()",
            "measure(a, b)",
            "measure(a + 1)",
            "measure(distinct a)",
            "measure(a) over ()",
            "measure(a) filter (where b)",
        ] {
            let refused = measure_name(&call(text)).expect_err(text);
            assert!(refused.message.contains("takes the name of a measure and nothing else"), "{text}: {refused}");
        }
    }

    #[test]
    fn marks_stand_for_members_of_their_kind() {
        let member = ModelMember { model: "Sales".to_owned(), member: "count".to_owned() };
        let parts = |found: Option<ModelMember>| found.map(|found| (found.model, found.member));
        let expected = Some(("Sales".to_owned(), "count".to_owned()));
        let (dimension, measure) = (marked(DIMENSION_MARK, &member), marked(MEASURE_MARK, &member));
        assert_eq!((parts(dimension_of(&dimension)), parts(measure_of(&measure))), (expected.clone(), expected));
        assert!(dimension_of(&measure).is_none() && measure_of(&dimension).is_none());
        assert!(dimension_of(&output("dimension.a.b")).is_none(), "a name of a statement is no mark");
        assert!(bare_measure(&member).message.contains("`count` is a measure of `Sales`"));
    }
}
