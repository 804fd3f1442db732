//! Bounds on statements: those that would nest too deeply are refused before a tree is built.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use quiver_types::{Error, ErrorKind, Result};

use super::{equality_lists, operator_signs, postfix_operators, string_literals};
use crate::error::unreadable;

/// The most bytes of a statement.
pub const TEXT_BYTES_MAX: usize = 256 << 10;
/// The most bytes of a name. Of those that are not there the planner seeks the nearest, letter by letter, among hundreds of
/// functions, or all columns of a query: one of 200 KB took ten seconds, in which nothing can cancel it. The longest that
/// telemetry has are names of attributes below their prefixes, of some 300 bytes.
const NAME_BYTES_MAX: usize = 1 << 10;
/// The most operators of a statement: a chain of operators nests as deeply as it is long, and planning recurses.
pub(crate) const OPERATORS_MAX: usize = 1_000;
/// The most tables that a statement names.
pub(super) const TABLES_MAX: usize = 100;
/// The deepest nesting of `CASE`, which is what the parser supports.
const CASES_MAX: usize = 45;

/// What is known of a statement within the bounds.
pub(super) struct Bounded {
    /// The number of its tokens.
    pub(super) words: usize,
    /// Whether it has more than [`OPERATORS_MAX`] operators until alternatives become lists.
    pub(super) needs_lists: bool,
}

/// Refuses more operators than a statement may have.
///
/// # Errors
/// LimitExceeded.
pub(super) fn few_operators(operators: usize) -> Result<()> {
    if operators <= OPERATORS_MAX {
        return Ok(());
    }
    let text = format!(
        "a statement with {operators} operators is too deep, at most {OPERATORS_MAX} are allowed; `IN (…)` takes long lists"
    );
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// Refuses statements that exceed the bounds.
pub(super) fn bounded(text: &str) -> Result<Bounded> {
    let refused = |text: String| Err(Error::new(ErrorKind::LimitExceeded, text));
    if text.len() > TEXT_BYTES_MAX {
        return refused(format!(
            "a statement of {} bytes is too long, at most {TEXT_BYTES_MAX} are allowed",
            text.len()
        ));
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    let tokens = operator_signs::apart(tokens.map_err(|e| unreadable(&e.message, e.location))?);
    no_junk(&tokens)?;
    let tokens: Vec<Token> = tokens.into_iter().map(|token| token.token).collect();
    short_names(&tokens)?;
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
    let operators = postfix_operators::operators(&tokens, joins);
    let needs_lists = operators > OPERATORS_MAX;
    if needs_lists && postfix_operators::operators(&equality_lists::without(&tokens), joins) > OPERATORS_MAX {
        few_operators(operators)?;
    }
    postfix_operators::few(&tokens)?;
    string_literals::readable_names(&tokens)?;
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
    Ok(Bounded { words: tokens.len(), needs_lists })
}

/// Refuses names that are longer than any.
///
/// # Errors
/// LimitExceeded.
fn short_names(tokens: &[Token]) -> Result<()> {
    let words = tokens.iter().filter_map(|token| if let Token::Word(word) = token { Some(&word.value) } else { None });
    let longest = words.map(String::len).max().unwrap_or_default();
    if longest <= NAME_BYTES_MAX {
        return Ok(());
    }
    let text = format!("a name of {longest} bytes is too long, at most {NAME_BYTES_MAX} are allowed");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// Refuses a word right behind a number (`2b`, `0b11`), which would be taken for the name of an output.
///
/// # Errors
/// Invalid.
fn no_junk(tokens: &[TokenWithSpan]) -> Result<()> {
    for (number, next) in tokens.iter().zip(tokens.iter().skip(1)) {
        if let (Token::Number(digits, _), Token::Word(word)) = (&number.token, &next.token)
            && word.quote_style.is_none()
        {
            let said = format!("trailing junk after numeric literal at or near `{digits}{}`", word.value);
            return Err(unreadable(&said, number.span.start));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, parse, parse_open};

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
    fn words_do_not_stand_right_behind_numbers() {
        for (text, near) in [
            ("select 2b", "`2b` at line 1, column 8"),
            ("select 1,\n 0b11", "`0b11` at line 2, column 2"),
            ("select 1.5from t", "`1.5from` at line 1, column 8"),
            ("select case when 1=1then 2 end", "`1then` at line 1, column 20"),
        ] {
            let error = parse(text, &Params::default()).unwrap_err();
            assert!(error.message.ends_with(near), "{text}: {error}");
        }
        for text in ["select 2 b", "select 1\"b\", 1e3, 1.e2, .5", "select 1::int, t2.a3, $1 as x1 from t2"] {
            parse_open(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }

    #[test]
    fn names_are_short() {
        for text in [
            "select NAME from t",
            "select a.\"NAME\" from t a",
            "select NAME(1)",
            "select * from NAME(1)",
            "select 1 as NAME",
        ] {
            let of = |bytes: usize| parse(&text.replace("NAME", &"z".repeat(bytes)), &Params::default());
            of(NAME_BYTES_MAX).unwrap_or_else(|e| panic!("{text}: {e}"));
            let error = of(NAME_BYTES_MAX + 1).unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{text}: {error}");
            assert!(error.message.starts_with("a name of 1025 bytes"), "{text}: {error}");
        }
        // Other words of any length are no names.
        parse(&format!("select '{0}', {0} from t /* {1} */", "9".repeat(30), "z".repeat(5_000)), &Params::default())
            .unwrap();
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
