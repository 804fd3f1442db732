//! Operators that stand behind their operand and are words: `x IS NULL`, `x AT TIME ZONE 'UTC'`. The parser goes no deeper for
//! them, but each holds all before it, and whoever plans them calls himself.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use quiver_types::{Error, ErrorKind, Result};

/// Most of them behind one operand.
const BEHIND_MAX: usize = 50;

/// Refuses a statement that has more of them.
pub(super) fn few(tokens: &[Token]) -> Result<()> {
    let most = most(tokens);
    if most <= BEHIND_MAX {
        return Ok(());
    }
    let text =
        format!("{most} operators such as `IS NULL` stand one behind the other, at most {BEHIND_MAX} are allowed");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// Counts those behind one operand, and behind what stands in its brackets: the most there are.
fn most(tokens: &[Token]) -> usize {
    // Behind the operand that is read, and the most since the bracket that is open.
    let (mut behind, mut most) = (0, 0);
    let mut open = Vec::new();
    for token in tokens {
        match token {
            Token::Whitespace(_) | Token::SingleQuotedString(_) | Token::Number(..) | Token::Placeholder(_) => {}
            Token::LParen => open.push((std::mem::take(&mut behind), std::mem::take(&mut most))),
            Token::RParen => {
                let (before, most_before) = open.pop().unwrap_or_default();
                behind = before + most;
                most = most_before;
            }
            Token::Word(word) => match word.keyword {
                Keyword::IS
                | Keyword::AT
                | Keyword::IN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::SIMILAR
                | Keyword::RLIKE
                | Keyword::REGEXP
                | Keyword::BETWEEN
                | Keyword::COLLATE
                | Keyword::NOTNULL => behind += 1,
                Keyword::NoKeyword
                | Keyword::NULL
                | Keyword::NOT
                | Keyword::TRUE
                | Keyword::FALSE
                | Keyword::UNKNOWN
                | Keyword::TIME
                | Keyword::ZONE
                | Keyword::TO => {}
                _ => behind = 0,
            },
            _ => behind = 0,
        }
        most = most.max(behind);
    }
    open.into_iter().map(|(_, most)| most).chain([most]).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    #[test]
    fn operators_behind_one_operand() {
        let most = |text: &str| super::most(&Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().unwrap());
        assert_eq!(most("select a is null, b is null from t where c is null and d in (1, 2)"), 1);
        assert_eq!(most("select case when a is null then 1 when b is null then 2 when c is null then 3 end"), 1);
        assert_eq!(most("select now() at time zone 'UTC' at time zone 'Europe/Berlin' is not null"), 3);
        assert_eq!(most("select a in (b is null) in (true)"), 3);
        assert_eq!(most("select (a is null) is null"), 2);
        assert_eq!(most("select coalesce(a is null is null, b) is null"), 3);
        assert_eq!(most("select 1 from (select a is null is null from t) s where (b is null) and (c is null"), 2);
        assert_eq!(most(&format!("select {} 1 from t", "a is null and b in (1), ".repeat(100))), 1);
        assert_eq!(most(&format!("select a {}", "is null ".repeat(5_000))), 5_000);
    }
}
