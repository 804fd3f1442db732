//! Limits postfix operators that are words: `x IS NULL`, `x AT TIME ZONE 'UTC'`. The parser does not recurse for
//! them, but each contains all before it, so planning recurses.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use quiver_types::{Error, ErrorKind, Result};

/// The most of them behind one operand.
const BEHIND_MAX: usize = 50;
/// The most of them in one expression, across operands: names may be key words, so it is not always clear where an
/// operand ends.
const CHAIN_MAX: usize = 1_000;

/// Refuses a statement with more of them.
pub(super) fn few(tokens: &[Token]) -> Result<()> {
    let (most, chain) = (most(tokens), chain(tokens));
    let (found, allowed) = if most > BEHIND_MAX { (most, BEHIND_MAX) } else { (chain, CHAIN_MAX) };
    if found <= allowed {
        return Ok(());
    }
    let text = format!("{found} operators such as `IS NULL` stand one behind the other, at most {allowed} are allowed");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

fn stands_behind(word: Keyword) -> bool {
    use Keyword::{
        AT, BETWEEN, COLLATE, ILIKE, IN, IS, LIKE, MATCH, MEMBER, NOTNULL, OVERLAPS, REGEXP, RLIKE, SIMILAR,
    };
    matches!(
        word,
        IS | AT
            | IN
            | LIKE
            | ILIKE
            | SIMILAR
            | RLIKE
            | REGEXP
            | BETWEEN
            | COLLATE
            | NOTNULL
            | OVERLAPS
            | MEMBER
            | MATCH
    )
}

/// The most postfix operators in any one expression, those in parentheses counted separately.
fn chain(tokens: &[Token]) -> usize {
    let (mut place, mut longest) = (Place::default(), 0);
    // Those of the current expression, and the most since the last open parenthesis.
    let (mut length, mut most) = (0, 0);
    let mut open = Vec::new();
    for token in tokens {
        let ends = place.ends(token);
        match token {
            Token::LParen | Token::LBracket => open.push((std::mem::take(&mut length), std::mem::take(&mut most))),
            Token::RParen | Token::RBracket => {
                let (before, most_before) = open.pop().unwrap_or_default();
                length = before + most;
                most = most_before;
            }
            Token::Comma => length = 0,
            Token::Word(word) if stands_behind(word.keyword) => length += 1,
            Token::Word(_) if ends => length = 0,
            _ => {}
        }
        most = most.max(length);
        longest = longest.max(most);
    }
    longest
}

/// Tracks whether the parser expects a value: if so, it takes nearly every word for a name.
#[derive(Debug)]
struct Place {
    is_value: bool,
}

impl Default for Place {
    fn default() -> Self {
        Self { is_value: true }
    }
}

impl Place {
    /// Advances past a token; returns whether it is a key word that ends an expression.
    fn ends(&mut self, token: &Token) -> bool {
        use Keyword::{AND, ELSE, END, FALSE, NULL, NoKeyword, OR, SELECT, THEN, TRUE, UNION, WHEN, WHERE};
        let was_value = self.is_value;
        match token {
            Token::Whitespace(_) => {}
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::Placeholder(_)
            | Token::RParen
            | Token::RBracket => self.is_value = false,
            Token::Word(word) => {
                self.is_value = match word.keyword {
                    NoKeyword | NULL | TRUE | FALSE => false,
                    END if !was_value => false,
                    // It is a name, unless a value follows.
                    other if was_value => is_before_value(other),
                    _ => true,
                };
                return !was_value && matches!(word.keyword, AND | OR | WHEN | THEN | ELSE | SELECT | WHERE | UNION);
            }
            _ => self.is_value = true,
        }
        false
    }
}

/// Whether a value, or more words before one, must follow a word that stands where a value is expected.
fn is_before_value(word: Keyword) -> bool {
    use Keyword::{
        ALL, ANY, ASYMMETRIC, BY, CASE, CONNECT_BY_ROOT, DISTINCT, ELSE, FROM, INTERVAL, NOT, ON, OVER, PRIOR, SELECT,
        SOME, SYMMETRIC, THEN, TO, WHEN, WHERE, ZONE,
    };
    stands_behind(word)
        || matches!(word, ALL | ANY | ASYMMETRIC | BY | CASE | CONNECT_BY_ROOT | DISTINCT | ELSE | FROM | INTERVAL)
        || matches!(word, NOT | ON | OVER | PRIOR | SELECT | SOME | SYMMETRIC | THEN | TO | WHEN | WHERE | ZONE)
}

/// An open `CASE`.
struct Case {
    /// Operators outside of it.
    outside: usize,
    /// Operators of its longest arm.
    longest: usize,
    /// Depth of parentheses around it: deeper inside, its key words are names (`(SELECT 1 when)`).
    brackets: usize,
}

impl Case {
    /// Operators in total, given those of its last arm.
    fn end(self, last: usize) -> usize {
        self.outside + self.longest.max(last)
    }
}

/// Counts the operators of a statement. Of the arms of a `CASE`, which do not nest in each other, only the longest
/// counts.
pub(super) fn operators(tokens: &[Token], is_operator: impl Fn(&Token) -> bool) -> usize {
    let mut place = Place::default();
    // Operators since the last `CASE` or arm, and the depth of parentheses.
    let (mut found, mut brackets) = (0, 0_usize);
    let mut open: Vec<Case> = Vec::new();
    for token in tokens {
        let ends = place.ends(token);
        match token {
            Token::LParen | Token::LBracket => brackets += 1,
            Token::RParen | Token::RBracket => {
                brackets = brackets.saturating_sub(1);
                // A `CASE` that does not end within its parentheses was a name.
                while let Some(case) = open.pop_if(|case| case.brackets > brackets) {
                    found = case.end(found);
                }
            }
            _ => {}
        }
        match token {
            Token::Word(word) if word.keyword == Keyword::CASE => {
                open.push(Case { outside: std::mem::take(&mut found), longest: 0, brackets });
            }
            Token::Word(word) if word.keyword == Keyword::END => {
                if let Some(case) = open.pop_if(|case| case.brackets == brackets) {
                    found = case.end(found);
                }
            }
            Token::Word(word) if ends && matches!(word.keyword, Keyword::WHEN | Keyword::THEN | Keyword::ELSE) => {
                if let Some(case) = open.last_mut().filter(|case| case.brackets == brackets) {
                    case.longest = case.longest.max(std::mem::take(&mut found));
                }
            }
            other => found += usize::from(is_operator(other)),
        }
    }
    open.into_iter().rev().fold(found, |found, case| case.end(found))
}

/// The most postfix operators behind one operand, those in parentheses counted separately.
fn most(tokens: &[Token]) -> usize {
    // Those behind the current operand, and the most since the last open parenthesis.
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
    fn tokens(text: &str) -> Vec<super::Token> {
        Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().unwrap()
    }

    #[test]
    fn words_may_be_names() {
        // A key word that is used as a name does not restart the count.
        for (one, count) in [
            ("like name ", 1),
            ("like then ", 1),
            ("is distinct from a ", 1),
            ("like b escape 'x' ", 1),
            ("at time zone then ", 1),
            ("like interval then ", 1),
            ("like f(1) over then ", 1),
            ("like a + b ", 1),
            ("like a::text ", 1),
            ("overlaps when ", 1),
            ("like t.then ", 1),
            ("is null like (select x like y) ", 3),
        ] {
            let found = super::chain(&tokens(&format!("select a {}", one.repeat(2_000))));
            assert_eq!(found, 2_000 * count, "{one}");
        }
        // Parts beside each other do.
        for (text, count) in [
            ("select a is null, name like value, ".repeat(1_000), 1),
            (format!("select case {} end", "when name like 'a' then 1 ".repeat(2_000)), 1),
            (format!("select case {} end", "when a is null then name ".repeat(2_000)), 1),
            ("a like b and ".repeat(2_000), 1),
            ("(a like b) is null or ".repeat(2_000), 2),
            (String::new(), 0),
        ] {
            assert_eq!(super::chain(&tokens(&text)), count, "{}", &text[..text.len().min(60)]);
        }
        assert!(super::few(&tokens(&format!("select a {}", "like name ".repeat(1_000)))).is_ok());
        let error = super::few(&tokens(&format!("select a {}", "like name ".repeat(1_001)))).unwrap_err();
        assert!(error.message.starts_with("1001 operators such as `IS NULL`"), "{error}");
    }

    #[test]
    fn arms_stand_beside_each_other() {
        let plus = |text: &str| super::operators(&tokens(text), |token| matches!(token, super::Token::Plus));
        for (text, count) in [
            ("a + b + c", 2),
            ("case when a + b then c + d + e else 1 end", 2),
            ("x + case when a + b then c + d + e else 1 end + y", 4),
            ("case a + b when 1 then 2 end", 1),
            ("case when a then case when b + c then 1 end + 1 when d + e then 1 end", 2),
            ("case when a + b then 1 end + case when c + d then 1 end", 3),
            // Names, and a `CASE` that never ends.
            ("case when then + then + then + then then 1 end", 3),
            ("case when t.then + t.else + 1 then 1 end", 2),
            ("case when a + (select 1 when) + (select b + c then) + d then 1 end", 4),
            ("case when (t.case + a) + b then c + d end + e", 3),
            ("case when (t.end + a) + b then c end", 2),
            ("case + case + case", 2),
            ("end + end + end", 2),
            ("case when a + b then c + d + e", 2),
        ] {
            assert_eq!(plus(text), count, "{text}");
        }
        let long = format!("case {} end", "when a + 1 then b + 1 ".repeat(5_000));
        assert_eq!(plus(&long), 1);
    }
}
