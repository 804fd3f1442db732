//! Rows of tables in brackets: `SELECT (t).*` is `SELECT t.*`, which the parser takes for a column without a name. Rows of
//! functions that return members of objects, `SELECT (json_each(x)).*`, are their columns.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::DEPTH_MAX;
use crate::member_functions::{MEMBER, gives_members};

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

/// The same tokens with both columns where all of a member is shown. What stands within the arguments stays as it is, so that
/// nested calls are not copied again and again.
pub(super) fn members(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let said: Vec<usize> = (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let is_shown = said.windows(2).any(|pair| is_all(&tokens, pair));
    if !is_shown {
        return tokens;
    }
    let (mut out, mut done, mut at) = (Vec::new(), 0, 1);
    while at < said.len() {
        if let Some(end) = member_ends(&tokens, &said[at - 1..]) {
            let (row, star) = (&tokens[said[at]..=said[at + end]], said[at + end + 2]);
            out.extend_from_slice(&tokens[done..said[at]]);
            for (column, separator) in MEMBER.into_iter().zip([Some(Token::Comma), None]) {
                let name =
                    Token::Word(Word { value: column.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword });
                out.extend_from_slice(row);
                let behind = [Some(Token::Period), Some(name), separator].into_iter().flatten();
                out.extend(behind.map(|token| TokenWithSpan { token, span: tokens[star].span }));
            }
            (done, at) = (star + 1, at + end + 2);
        }
        at += 1;
    }
    out.extend_from_slice(&tokens[done..]);
    out
}

/// Whether two tokens are `.*`.
fn is_all(tokens: &[TokenWithSpan], places: &[usize]) -> bool {
    matches!(places, [point, star] if tokens[*point].token == Token::Period && tokens[*star].token == Token::Mul)
}

/// How many places behind its bracket the one ends that stands around a call that returns members, if all of its columns are
/// shown. `said` are the places of the token before the bracket and of what follows.
fn member_ends(tokens: &[TokenWithSpan], said: &[usize]) -> Option<usize> {
    let token = |at: usize| said.get(at).map(|at| &tokens[*at].token);
    let begins = match token(0)? {
        Token::Comma => true,
        Token::Word(word) => matches!(word.keyword, Keyword::SELECT | Keyword::ALL),
        _ => false,
    };
    let (Token::LParen, Token::Word(name), Token::LParen) = (token(1)?, token(2)?, token(3)?) else { return None };
    if !begins || !gives_members(&name.value.to_lowercase()) {
        return None;
    }
    let (mut depth, mut at) = (0, 1);
    loop {
        match token(at)? {
            // The parser refuses this depth anyway, and searching for the end from each parenthesis takes quadratic time.
            Token::LParen if depth > DEPTH_MAX => return None,
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        // The parenthesis of the arguments must close right before the one around the call.
        if depth == 1 && at > 3 && token(at + 1)? != &Token::RParen {
            return None;
        }
        if depth == 0 {
            return is_all(tokens, said.get(at + 1..at + 3)?).then_some(at - 1);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    #[test]
    fn members_are_shown_at_the_places_of_outputs() {
        let shown = |text: &str| {
            let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().unwrap();
            members(tokens).iter().map(|token| token.token.to_string()).collect::<String>()
        };
        for (text, expected) in [
            ("select (json_each(x)).*", "select (json_each(x)).\"key\",(json_each(x)).\"value\""),
            (
                "select a, (JSONB_EACH_TEXT(f(x), (y))).*, b",
                "select a, (JSONB_EACH_TEXT(f(x), (y))).\"key\",\
                 (JSONB_EACH_TEXT(f(x), (y))).\"value\", b",
            ),
            ("select (json_each(x)).key", "select (json_each(x)).key"),
            ("select (json_each(x)) * 2, t.*", "select (json_each(x)) * 2, t.*"),
            ("select (json_each(x) || y).*", "select (json_each(x) || y).*"),
            ("select f((json_each(x)).*)", "select f((json_each(x)).*)"),
            ("select (lower(x)).*", "select (lower(x)).*"),
            ("select (json_each(x).*", "select (json_each(x).*"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        let open = format!("select t.*{}", ", (json_each(1".repeat(15_000));
        assert_eq!(shown(&open), open, "brackets that nobody closes");
    }

    #[test]
    fn brackets_around_tables_are_left_out() {
        for (text, expected) in [
            ("select (t).* from t", "SELECT t.* FROM t"),
            ("select distinct ( \"T\" ).*, 1, (u) . * from t", "SELECT DISTINCT \"T\".*, 1, u.* FROM t"),
            ("select count((t).*) from t", "SELECT count(t.*) FROM t"),
            ("select (t).a, (2) * 3 from t", "SELECT (t).a, (2) * 3 FROM t"),
            (
                "select 1, (json_each(x)) . * from t",
                "SELECT 1, (json_each(x)).\"key\", (json_each(x)).\"value\" FROM t",
            ),
        ] {
            let read = parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
            let ReadStatement::Query(query) = read.statement else { panic!("{text} is no query") };
            assert_eq!(query.to_string(), expected);
        }
    }
}
