//! Rows of tables in brackets: `SELECT (t).*` is `SELECT t.*`, which the parser takes for a column without a name.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The same tokens without such brackets.
pub(super) fn bare(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // Blanks stand between them, but not within.
    let said: Vec<usize> = (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let mut left_out = Vec::new();
    for place in said.windows(6) {
        let [before, opens, name, closes, point, star] = *place else { continue };
        let token = |at: usize| &tokens[at].token;
        let begins = match token(before) {
            Token::Comma | Token::LParen => true,
            Token::Word(word) => matches!(word.keyword, Keyword::SELECT | Keyword::DISTINCT | Keyword::ALL),
            _ => false,
        };
        let is_row = matches!(
            [token(opens), token(name), token(closes), token(point), token(star)],
            [Token::LParen, Token::Word(_), Token::RParen, Token::Period, Token::Mul]
        );
        if begins && is_row {
            left_out.extend([opens, closes]);
        }
    }
    if left_out.is_empty() {
        return tokens;
    }
    let mut left_out = left_out.into_iter().peekable();
    let is_kept = |(at, token): (usize, TokenWithSpan)| left_out.next_if_eq(&at).is_none().then_some(token);
    tokens.into_iter().enumerate().filter_map(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use crate::parse::{Params, ReadStatement, parse};

    #[test]
    fn brackets_around_tables_are_left_out() {
        for (text, expected) in [
            ("select (t).* from t", "SELECT t.* FROM t"),
            ("select distinct ( \"T\" ).*, 1, (u) . * from t", "SELECT DISTINCT \"T\".*, 1, u.* FROM t"),
            ("select count((t).*) from t", "SELECT count(t.*) FROM t"),
            ("select (t).a, (2) * 3 from t", "SELECT (t).a, (2) * 3 FROM t"),
        ] {
            let read = parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
            let ReadStatement::Query(query) = read.statement else { panic!("{text} is no query") };
            assert_eq!(query.to_string(), expected);
        }
    }
}
