//! Columns with their table before a subscript: the parser takes `t.x['a']` for an access to parts of a value `t`, so that
//! nothing that looks for columns would find `t.x`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, VisitMut, VisitorMut};

use crate::statement_walk::walk_mut;

/// Makes names of all such columns in a part of a statement.
pub(super) fn put(part: &mut impl VisitMut) {
    let _ = walk_mut(part, &mut Names);
}

struct Names;

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundFieldAccess { root, access_chain } = place {
            qualified(root, access_chain);
        }
        ControlFlow::Continue(())
    }
}

/// Moves the table of a qualified column (`t.x[1]`) from the chain of accesses into the name.
pub(crate) fn qualified(root: &mut Expr, access_chain: &mut Vec<AccessExpr>) {
    let Expr::Identifier(first) = &*root else { return };
    let is_name = |access: &AccessExpr| matches!(access, AccessExpr::Dot(Expr::Identifier(_)));
    let count = access_chain.iter().take_while(|access| is_name(access)).count();
    if count == 0 {
        return;
    }
    let mut names = vec![first.clone()];
    for access in access_chain.drain(..count) {
        if let AccessExpr::Dot(Expr::Identifier(name)) = access {
            names.push(name);
        }
    }
    *root = Expr::CompoundIdentifier(names);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::read_expression;

    #[test]
    fn tables_stand_in_names_before_subscripts() {
        for (text, expected) in [
            ("t.x['a']", "t.x"),
            ("s.t.x['a'][1]", "s.t.x"),
            ("t.x[1:2]", "t.x"),
            ("x['a']", "x"),
            ("(t.x)['a']", "(t.x)"),
        ] {
            let found = read_expression(text).unwrap();
            assert_eq!(found.to_string(), text);
            let Expr::CompoundFieldAccess { root, access_chain } = found else { panic!("{text}") };
            assert_eq!(root.to_string(), expected, "{text}");
            assert!(access_chain.iter().all(|access| matches!(access, AccessExpr::Subscript(_))), "{text}");
        }
        let mut within = read_expression("f(1)").unwrap();
        put(&mut within);
        assert_eq!(within.to_string(), "f(1)");
    }
}
