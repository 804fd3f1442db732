//! Bounds on statements: those that would nest too deeply are refused before a tree is built.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use quiver_types::{Error, ErrorKind, Result};

use super::{behind, signs, texts};
use crate::error::unreadable;

/// The most bytes of a statement.
pub const TEXT_BYTES_MAX: usize = 256 << 10;
/// The most operators of a statement: a chain of operators nests as deeply as it is long, and planning recurses.
pub(crate) const OPERATORS_MAX: usize = 1_000;
/// The most tables that a statement names.
pub(super) const TABLES_MAX: usize = 100;
/// The deepest nesting of `CASE`, which is what the parser supports.
const CASES_MAX: usize = 45;

/// Refuses statements that exceed the bounds; returns the number of tokens.
pub(super) fn bounded(text: &str) -> Result<usize> {
    let refused = |text: String| Err(Error::new(ErrorKind::LimitExceeded, text));
    if text.len() > TEXT_BYTES_MAX {
        return refused(format!(
            "a statement of {} bytes is too long, at most {TEXT_BYTES_MAX} are allowed",
            text.len()
        ));
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    let tokens = signs::apart(tokens.map_err(|e| unreadable(&e.message, e.location))?);
    let tokens: Vec<Token> = tokens.into_iter().map(|token| token.token).collect();
    let joins = |token: &Token| match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::DIV
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::MINUS
                | Keyword::NOT
        ),
        Token::Whitespace(_)
        | Token::Comma
        | Token::Period
        | Token::LParen
        | Token::RParen
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::SemiColon => false,
        _ => true,
    };
    let operators = behind::operators(&tokens, joins);
    if operators > OPERATORS_MAX {
        return refused(format!(
            "a statement with {operators} operators is too deep, at most {OPERATORS_MAX} are allowed; `IN (…)` takes long lists"
        ));
    }
    behind::few(&tokens)?;
    texts::readable_names(&tokens)?;
    // Beyond its depth limit the parser backtracks, and then reports a misleading error at a valid word.
    let (mut cases, mut deepest) = (0_usize, 0);
    for token in &tokens {
        match token {
            Token::Word(word) if word.keyword == Keyword::CASE => cases += 1,
            Token::Word(word) if word.keyword == Keyword::END => cases = cases.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(cases);
    }
    if deepest > CASES_MAX {
        return refused(format!("`CASE` stands {deepest} deep in others, at most {CASES_MAX} are allowed"));
    }
    let selects = |token: &&Token| matches!(token, Token::Word(word) if word.keyword == Keyword::SELECT);
    if tokens.iter().filter(selects).count() > TABLES_MAX {
        return refused(format!("a statement has at most {TABLES_MAX} selects"));
    }
    Ok(tokens.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, parse};

    #[test]
    fn cases_in_cases() {
        let nested = |deep: usize| format!("select {}1{}", "case when true then ".repeat(deep), " end".repeat(deep));
        parse(&nested(CASES_MAX), &Params::default()).unwrap();
        for deep in [CASES_MAX + 1, 5_000] {
            let error = parse(&nested(deep), &Params::default()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
            assert!(error.message.contains(&format!("{deep} deep")), "{error}");
        }
        // Consecutive `CASE`s do not nest.
        let wide = "case when true then 1 end, ".repeat(100);
        parse(&format!("select {wide} 1"), &Params::default()).unwrap();
    }

    #[test]
    fn deep_statements_are_refused() {
        let check = |text: String| assert!(parse(&text, &Params::default()).is_err(), "{text:.60}");
        check(format!("select {}1{}", "(".repeat(10_000), ")".repeat(10_000)));
        check(format!("select 1{}", " + 1".repeat(50_000)));
        check(format!("select 1{}", " union all select 1".repeat(5_000)));
        check(format!("select 1 from {}a", "a, ".repeat(5_000)));
        check(format!("select {}", "not ".repeat(5_000)));
        check(format!("select 1 from {}(values (1)) z", "(values (1)) a, ".repeat(5_000)));
        check(format!("select 1 from unnest(array[1]) a{}", " cross join unnest(array[1]) b".repeat(5_000)));
        for chain in ["is null", "is not true", "at time zone 'UTC'", "notnull", "in (true)", "like 'a'", "collate x"] {
            check(format!("select a {}", format!("{chain} ").repeat(5_000)));
        }
        check("x".repeat(TEXT_BYTES_MAX + 1));
    }
}
