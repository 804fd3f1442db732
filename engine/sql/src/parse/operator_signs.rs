//! Signs that stand right behind an operator, as in `a>-1`. The tokenizer takes all letters of operators that stand together
//! for one; PostgreSQL's ends in a sign only where it has a letter that no operator of the standard has. And two signs in a
//! row, which the printer would write as the beginning of a comment: parts of a statement are printed and parsed again.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

use crate::statement_walk::walk_mut;

/// What lets an operator end in a sign.
const UNCOMMON: [char; 10] = ['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'];

/// The same tokens with such signs by themselves.
pub(super) fn apart(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out = Vec::with_capacity(tokens.len());
    for token in tokens {
        match operator(&token.token) {
            Some((name, signs)) => {
                let mut place = token.span.start;
                for part in std::iter::once(name).chain(signs) {
                    let letters = part.to_string().len() as u64;
                    let end = Location { column: place.column + letters, ..place };
                    out.push(TokenWithSpan { token: part, span: Span { start: place, end } });
                    place = end;
                }
            }
            None => out.push(token),
        }
    }
    out
}

/// An operator, and the signs behind it; none: it is something else, or ends otherwise.
fn operator(token: &Token) -> Option<(Token, Vec<Token>)> {
    let Token::CustomBinaryOperator(text) = token else { return None };
    let others = text.strip_suffix(['+', '-'])?;
    // A comment begins there.
    if others.contains(UNCOMMON) || text.contains("--") || text.contains("/*") {
        return None;
    }
    // One letter is left of an operator that is all signs.
    let first = text.chars().next().map_or(0, char::len_utf8);
    let len = others.trim_end_matches(['+', '-']).len().max(first);
    let (name, signs) = text.split_at(len);
    let name = match name {
        "+" => Token::Plus,
        "-" => Token::Minus,
        "*" => Token::Mul,
        "/" => Token::Div,
        "=" => Token::Eq,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "<<" => Token::ShiftLeft,
        ">>" => Token::ShiftRight,
        "->" => Token::Arrow,
        "->>" => Token::LongArrow,
        other => Token::CustomBinaryOperator(other.to_owned()),
    };
    Some((name, signs.chars().map(|sign| if sign == '+' { Token::Plus } else { Token::Minus }).collect()))
}

/// Puts what begins with a minus in brackets where a minus stands before it.
pub(super) fn keep(part: &mut impl VisitMut) {
    let _ = walk_mut(part, &mut SignRewriter);
}

struct SignRewriter;

impl VisitorMut for SignRewriter {
    type Break = ();

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr } = place
            && begins_with_minus(expr)
        {
            let inner = std::mem::replace(&mut **expr, Expr::Value(Value::Null.into()));
            **expr = Expr::Nested(Box::new(inner));
        }
        ControlFlow::Continue(())
    }
}

fn begins_with_minus(expr: &Expr) -> bool {
    match expr {
        // The signs of a power belong to its base, where brackets come later.
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => !is_power(expr),
        Expr::Value(value) => matches!(&value.value, Value::Number(digits, _) if digits.starts_with('-')),
        _ => false,
    }
}

fn is_power(expr: &Expr) -> bool {
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => is_power(expr),
        Expr::BinaryOp { op, .. } => *op == BinaryOperator::PGExp,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use crate::error::place_of;
    use crate::parse::{Params, ReadStatement, parse};

    /// The tokens of a text, with a blank between each two.
    fn split(text: &str) -> String {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().unwrap();
        let tokens: Vec<String> = super::apart(tokens).iter().map(|token| token.token.to_string()).collect();
        tokens.join(" ")
    }

    #[test]
    fn operators_of_the_standard_end_before_a_sign() {
        for (text, expected) in [
            ("a>-1", "a > - 1"),
            ("a>=-1", "a >= - 1"),
            ("a<>+b", "a <> + b"),
            ("a<-1", "a < - 1"),
            ("a<=+1", "a <= + 1"),
            ("a=-1", "a = - 1"),
            ("a-+1", "a - + 1"),
            ("a>-+-b", "a > - + - b"),
            ("1<<-n", "1 << - n"),
            ("1>>-n", "1 >> - n"),
            ("j->-1", "j -> - 1"),
            ("j->>-1", "j ->> - 1"),
            // These are one operator there, too.
            ("a%-1", "a %- 1"),
            ("a||-1", "a ||- 1"),
            ("a&-1", "a &- 1"),
            // A comment is no sign.
            ("a>--1", "a >-- 1"),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }

    #[test]
    fn statements_are_read_so() {
        let printed = |text: &str| match parse(text, &Params::default()).expect(text).statement {
            ReadStatement::Query(query) => query.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(printed("select a>-1, b>=+1 from t where c<>-d"), "SELECT a > -1, b >= +1 FROM t WHERE c <> -d");
        assert_eq!(printed("select j->-1"), "SELECT j -> -1");
        assert_eq!(printed("select - -a, - - -1, -(-2), - -2 ^ 2"), "SELECT -(-a), -(-(-1)), -(-2), --2 ^ 2");
        let params = Params::of_json(&serde_json::json!([-5])).unwrap();
        let ReadStatement::Query(query) = parse("select -$1, 1 -$1", &params).unwrap().statement else {
            panic!("no query")
        };
        assert_eq!(query.to_string(), "SELECT -(-5), 1 - -5");
        let error = parse("select a>-1,\n b>-+) from t", &Params::default()).expect_err("an operand is missing");
        assert_eq!(place_of(&error), Some((2, 6)), "{error}");
    }
}
