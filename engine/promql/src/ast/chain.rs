//! Long chains of left-associative operators: `1 + 1 + 1 + …` is a tree as deep as it is long.
//!
//! Whatever the language derives by recursion (copy, compare, show, drop) is written out here as loops over the left
//! operands, so that a query of 50,000 operands cannot exhaust a stack.

use std::fmt;
use std::mem;

use super::{BinaryExpr, Expr, ExprKind, PosRange};
use crate::print;

impl Expr {
    /// Gives the binary expressions from this one down its left operands, and the expression below them that is not
    /// binary.
    pub fn left_spine(&self) -> (Vec<&BinaryExpr>, &Self) {
        let mut spine = Vec::new();
        let mut expr = self;
        while let ExprKind::Binary(binary) = &expr.kind {
            spine.push(binary.as_ref());
            expr = &binary.lhs;
        }
        (spine, expr)
    }

    /// Gives the number of levels of the tree, chains of left operands counted in full.
    pub fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut open = vec![(self, 1)];
        while let Some((expr, depth)) = open.pop() {
            deepest = deepest.max(depth);
            let mut add = |child| open.push((child, depth + 1));
            match &expr.kind {
                ExprKind::Paren(inner) | ExprKind::Unary { expr: inner, .. } => add(inner),
                ExprKind::Binary(b) => {
                    add(&b.lhs);
                    add(&b.rhs);
                }
                ExprKind::Aggregate(a) => {
                    add(&a.expr);
                    a.param.iter().for_each(&mut add);
                }
                ExprKind::Call { args, .. } => args.iter().for_each(add),
                ExprKind::Subquery(s) => add(&s.expr),
                ExprKind::Number { .. }
                | ExprKind::String(_)
                | ExprKind::VectorSelector(_)
                | ExprKind::MatrixSelector { .. } => {}
            }
        }
        deepest
    }

    /// Gives an expression that only fills a place.
    pub(crate) fn nothing() -> Self {
        Self { kind: ExprKind::Number { value: 0.0, duration: false }, pos: PosRange::default() }
    }
}

impl BinaryExpr {
    /// Copies all but the left operand.
    fn clone_with(&self, lhs: Expr) -> Self {
        let matching = self.matching.clone();
        Self { op: self.op, lhs, rhs: self.rhs.clone(), return_bool: self.return_bool, matching }
    }
}

impl Clone for BinaryExpr {
    fn clone(&self) -> Self {
        let (spine, lowest) = self.lhs.left_spine();
        let mut lhs = lowest.clone();
        // The place of a binary expression stands in the expression around it: one further up.
        let mut places = Vec::with_capacity(spine.len());
        let mut expr = &self.lhs;
        while let ExprKind::Binary(binary) = &expr.kind {
            places.push(expr.pos);
            expr = &binary.lhs;
        }
        for (binary, pos) in spine.into_iter().zip(places).rev() {
            lhs = Expr { kind: ExprKind::Binary(Box::new(binary.clone_with(lhs))), pos };
        }
        self.clone_with(lhs)
    }
}

impl PartialEq for BinaryExpr {
    fn eq(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self, other);
        loop {
            if (a.op, a.return_bool, &a.matching, &a.rhs) != (b.op, b.return_bool, &b.matching, &b.rhs) {
                return false;
            }
            match (&a.lhs.kind, &b.lhs.kind) {
                (ExprKind::Binary(x), ExprKind::Binary(y)) if a.lhs.pos == b.lhs.pos => (a, b) = (x, y),
                (ExprKind::Binary(_), _) | (_, ExprKind::Binary(_)) => return false,
                _ => return a.lhs == b.lhs,
            }
        }
    }
}

impl fmt::Debug for BinaryExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BinaryExpr(")?;
        print::write_binary(f, self)?;
        f.write_str(")")
    }
}

impl Drop for BinaryExpr {
    fn drop(&mut self) {
        let mut expr = mem::replace(&mut self.lhs, Expr::nothing());
        while let ExprKind::Binary(binary) = &mut expr.kind {
            let next = mem::replace(&mut binary.lhs, Expr::nothing());
            expr = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ast::{BinaryExpr, BinaryOp};

    use super::*;

    fn chain(length: u32) -> Expr {
        (1..length).fold(Expr::nothing(), |lhs, start| {
            let pos = PosRange { start, end: start };
            let rhs = Expr::nothing();
            let binary = BinaryExpr { op: BinaryOp::Add, lhs, rhs, return_bool: false, matching: None };
            Expr { kind: ExprKind::Binary(Box::new(binary)), pos }
        })
    }

    #[test]
    fn long_chains() {
        let long = chain(200_000);
        let copy = long.clone();
        assert!(copy == long && copy != chain(199_999));
        assert_eq!(long.depth(), 200_000);
        assert_eq!(format!("{:?}", chain(3)).matches("0 + 0 + 0").count(), 1);
    }
}
