//! Long alternatives of equal columns, `(s = 'a' AND n = 'x') OR (s = 'a' AND n = 'y') OR …`, as tools that read the catalog
//! write them with one for each table. They become lists, `(s = 'a' AND n IN ('x', 'y'))`, which are as deep as one
//! alternative and not as all of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, Value, Visitor, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::statement_walk::{walk, walk_mut};

/// Most operators of an alternative.
const OPERATORS_OF_ONE: usize = 9;

/// The words of a statement with one value in the place of each alternative that may become part of a list.
pub(super) fn without(tokens: &[Token]) -> Vec<Token> {
    let tokens: Vec<&Token> = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let is_or = |at: usize| tokens.get(at).is_some_and(|token| is_word(token, Keyword::OR));
    let (mut at, mut left) = (0, Vec::new());
    while let Some(token) = tokens.get(at) {
        match alternative(&tokens[at..]) {
            Some(length) if is_or(at + length) || (at > 0 && is_or(at - 1)) => {
                left.push(Token::SingleQuotedString(String::new()));
                at += length;
            }
            _ => {
                left.push((*token).clone());
                at += 1;
            }
        }
    }
    left
}

fn is_word(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword)
}

/// The number of tokens of an alternative in parentheses with which a text begins; `None` if it begins otherwise.
fn alternative(tokens: &[&Token]) -> Option<usize> {
    let (mut at, mut operators) = (1, 0);
    if !matches!(tokens.first()?, Token::LParen) {
        return None;
    }
    loop {
        let Token::Word(_) = tokens.get(at)? else { return None };
        at += 1;
        while matches!(tokens.get(at)?, Token::Period) {
            let Token::Word(_) = tokens.get(at + 1)? else { return None };
            at += 2;
        }
        let (Token::Eq, Token::SingleQuotedString(_)) = (tokens.get(at)?, tokens.get(at + 1)?) else { return None };
        operators += 1;
        at += 2;
        match tokens.get(at)? {
            Token::RParen => return Some(at + 1),
            token if is_word(token, Keyword::AND) && operators < OPERATORS_OF_ONE => operators += 1,
            _ => return None,
        }
        at += 1;
    }
}

/// Makes lists of the alternatives in a query, and gives how many operators are left: many, if they have little in common.
pub(super) fn make(query: &mut Query) -> usize {
    let _ = walk_mut(query, &mut Lists { done: 0 });
    let mut left = Operators(0);
    let _ = walk(&*query, &mut left);
    left.0
}

/// Counts operators with two operands.
struct Operators(usize);

impl Visitor for Operators {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.0 += usize::from(matches!(expr, Expr::BinaryOp { .. }));
        ControlFlow::Continue(())
    }
}

struct Lists {
    /// How many of the next `OR` belong to alternatives that are lists already.
    done: usize,
}

impl VisitorMut for Lists {
    type Break = ();

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if !matches!(place, Expr::BinaryOp { op: BinaryOperator::Or, .. }) {
            return ControlFlow::Continue(());
        }
        if self.done > 0 {
            self.done -= 1;
            return ControlFlow::Continue(());
        }
        let chain = std::mem::replace(place, Expr::Value(Value::Null.into()));
        let alternatives = gathered(operands(chain, &BinaryOperator::Or));
        // Those on the left are visited next, one within the other.
        self.done = alternatives.len().saturating_sub(2);
        *place = joined(alternatives, &BinaryOperator::Or);
        ControlFlow::Continue(())
    }
}

/// What a chain of one operator connects, in order.
fn operands(mut chain: Expr, operator: &BinaryOperator) -> Vec<Expr> {
    let mut found = Vec::new();
    loop {
        match chain {
            Expr::BinaryOp { left, op, right } if op == *operator => {
                found.push(*right);
                chain = *left;
            }
            first => {
                found.push(first);
                found.reverse();
                return found;
            }
        }
    }
}

/// The chain of some operands.
fn joined(operands: Vec<Expr>, operator: &BinaryOperator) -> Expr {
    let connected =
        |left: Expr, right: Expr| Expr::BinaryOp { left: Box::new(left), op: operator.clone(), right: Box::new(right) };
    operands.into_iter().reduce(connected).unwrap_or(Expr::Value(Value::Boolean(false).into()))
}

/// An alternative.
enum Alternative {
    /// Conditions, the last of which holds for any of a list.
    Equal {
        others: Vec<Expr>,
        column: Expr,
        values: Vec<Expr>,
    },
    Other(Expr),
}

/// Alternatives with those put together that differ in the value of their last column alone.
fn gathered(all: Vec<Expr>) -> Vec<Expr> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut found: Vec<Alternative> = Vec::new();
    for expr in all {
        let Some((others, column, value)) = equal_columns(&expr) else {
            found.push(Alternative::Other(expr));
            continue;
        };
        let words: Vec<String> = others.iter().chain([&column]).map(ToString::to_string).collect();
        let place = *places.entry(words.join(" AND ")).or_insert(found.len());
        match found.get_mut(place) {
            Some(Alternative::Equal { values, .. }) => values.push(value),
            _ => found.push(Alternative::Equal { others, column, values: vec![value] }),
        }
    }
    found.into_iter().map(written).collect()
}

fn written(alternative: Alternative) -> Expr {
    match alternative {
        Alternative::Other(expr) => expr,
        Alternative::Equal { mut others, column, values } => {
            others.push(Expr::InList { expr: Box::new(column), list: values, negated: false });
            Expr::Nested(Box::new(joined(others, &BinaryOperator::And)))
        }
    }
}

/// The conditions of an alternative before the last one, and the column and the value of that; `None` if one is no column that
/// equals a text.
fn equal_columns(alternative: &Expr) -> Option<(Vec<Expr>, Expr, Expr)> {
    let Expr::Nested(inner) = alternative else { return None };
    let mut others = operands((**inner).clone(), &BinaryOperator::And);
    if !others.iter().all(is_equal_column) {
        return None;
    }
    match others.pop()? {
        Expr::BinaryOp { left, right, .. } => Some((others, *left, *right)),
        _ => None,
    }
}

fn is_equal_column(condition: &Expr) -> bool {
    let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else { return false };
    matches!(**left, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        && matches!(&**right, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_)))
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use crate::parse::{OPERATORS_MAX, Params, ReadStatement, parse};

    fn shown(condition: &str) -> String {
        let text = format!("select 1 from t where x = 1 and ({condition}) order by 1");
        match parse(&text, &Params::default()).unwrap().statement {
            ReadStatement::Query(query) => query.to_string(),
            other => panic!("no query: {other:?}"),
        }
    }

    fn any(count: usize, of: impl Fn(usize) -> String) -> String {
        (0..count).map(of).collect::<Vec<_>>().join(" OR ")
    }

    #[test]
    fn alternatives_of_long_statements_become_lists() {
        let two = |n: usize| format!("(\"ns\".\"nspname\" = 's{}' AND \"t\".\"relname\" = 't{n}')", n % 2);
        let found = shown(&any(300, two));
        assert!(
            found.contains("x = 1 AND ((\"ns\".\"nspname\" = 's0' AND \"t\".\"relname\" IN ('t0', 't2', "),
            "{found:.300}"
        );
        assert!(
            found.contains("')) OR (\"ns\".\"nspname\" = 's1' AND \"t\".\"relname\" IN ('t1', 't3', "),
            "{found:.300}"
        );
        let one = shown(&format!("{} or y > 2", any(200, |n| format!("(a = 'x' AND b = 'y' AND c = '{n}')"))));
        assert!(one.contains("(a = 'x' AND b = 'y' AND c IN ('0', '1', "), "{one:.300}");
        assert!(one.contains("')) OR y > 2) ORDER BY 1"), "{one:.300}");
        // Short ones stay as they are written.
        assert!(shown(&any(3, two)).contains("AND \"t\".\"relname\" = 't2')) ORDER BY 1"));
    }

    #[test]
    fn what_is_left_is_bounded() {
        type Arm = fn(usize) -> String;
        let cases: [(usize, Arm); 6] = [
            // Nothing in common.
            (210, |n| format!("(a = '{n}' AND b = '{n}' AND c = '{n}')")),
            (OPERATORS_MAX + 2, |_| "(a = 'x')".to_owned()),
            (400, |n| format!("(a = 'x' AND b = {n})")),
            (400, |n| format!("(a = 'x' AND b > '{n}')")),
            (2, |_| format!("({}b = 'y')", "a = 'x' AND ".repeat(1_000))),
            // The longest arm counts, whatever the others are.
            (2, |_| format!("case when (a = 'x') or (a = 'y') then 1{} else 2 end = 3", " + 1".repeat(1_000))),
        ];
        for (count, of) in cases {
            let text = format!("select 1 from t where {}", any(count, of));
            let error = parse(&text, &Params::default()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{text:.100}: {error}");
            assert!(error.message.contains("operators"), "{error}");
        }
    }
}
