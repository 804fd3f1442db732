//! Statements of databases: `query_hash(t)` with all that differs from call to call folded, `summarise(t)` as its operation
//! and tables.

use std::hash::Hasher as _;

use xxhash_rust::xxh3::Xxh3Default;

use super::text_functions::Texts;

/// Longest summary, in bytes.
const SUMMARY_BYTES_MAX: usize = 255;

/// A piece of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'t> {
    /// A name or word of the language.
    Word(&'t str),
    /// A name in quotes, quotes included.
    Quoted(&'t str),
    /// A literal or placeholder.
    Value,
    /// Any other character.
    Sign(char),
}

/// Splits a statement; comments and spaces are gone.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            c if c.is_whitespace() => c.len_utf8(),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            '\'' => {
                out.push(Token::Value);
                quoted(rest, '\'')
            }
            '"' | '`' => {
                let end = quoted(rest, c);
                out.push(Token::Quoted(&rest[..end]));
                end
            }
            '?' => {
                out.push(Token::Value);
                1
            }
            // A cast, whose type is no placeholder.
            ':' if rest.starts_with("::") => {
                out.push(Token::Sign(':'));
                2
            }
            '$' | ':' | '@' | '%' if rest[1..].starts_with(|n: char| n.is_alphanumeric()) => {
                out.push(Token::Value);
                1 + word(&rest[1..])
            }
            c if c.is_ascii_digit() || c == '.' && rest[1..].starts_with(|n: char| n.is_ascii_digit()) => {
                out.push(Token::Value);
                number(rest)
            }
            c if c.is_alphanumeric() || c == '_' => {
                let end = word(rest);
                out.push(Token::Word(&rest[..end]));
                end
            }
            c => {
                out.push(Token::Sign(c));
                c.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

/// Where a number ends, the sign of its exponent included.
fn number(text: &str) -> usize {
    let end = |from: usize| {
        text[from..].find(|c: char| !c.is_alphanumeric() && c != '.').map_or(text.len(), |length| from + length)
    };
    let first = end(0);
    let digits = text[..first].strip_suffix(['e', 'E']);
    let has_power = digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    match text[first..].strip_prefix(['+', '-']) {
        Some(power) if has_power && power.starts_with(|c: char| c.is_ascii_digit()) => end(first + 1),
        _ => first,
    }
}

/// Whether what was written so far ends with the sign of the number to come, and not with an operator between two values.
fn ends_with_sign(words: &[String]) -> bool {
    let [before @ .., sign] = words else { return false };
    let is_open = |word: &String| matches!(word.as_str(), "=" | "<" | ">" | "(" | "[" | "," | "+" | "-" | "*" | "/");
    matches!(sign.as_str(), "-" | "+") && before.last().is_none_or(is_open)
}

/// Where a word ends; names of a schema and a table are one word.
fn word(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '$')).unwrap_or(text.len())
}

/// Where a quoted text ends; a doubled quote, and one behind a backslash, stand for themselves.
fn quoted(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
            } else {
                return at + c.len_utf8();
            }
        }
    }
    text.len()
}

/// Writes a statement without what differs from call to call: literals, placeholders, lengths of lists, case, spaces.
fn folded(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for token in tokens(text) {
        if token == Token::Value && ends_with_sign(&words) {
            words.pop();
        }
        words.push(match token {
            Token::Word(word) => word.to_lowercase(),
            Token::Quoted(name) => name.to_owned(),
            Token::Value => "?".to_owned(),
            Token::Sign(';') => continue,
            Token::Sign(sign) => sign.to_string(),
        });
        // `?, ?` is `?`, and `(?), (?)` is `(?)`: lists are as long as the call has values.
        loop {
            let ends = |tail: &[&str]| words.len() >= tail.len() && words[words.len() - tail.len()..] == *tail;
            let gone = match () {
                () if ends(&["?", ",", "?"]) => 2,
                () if ends(&["(", "?", ")", ",", "(", "?", ")"]) => 4,
                () => break,
            };
            words.truncate(words.len() - gone);
        }
    }
    words.join(" ")
}

/// 16 hexadecimal digits of a text's hash.
pub(super) fn hash(texts: &[&str]) -> String {
    let mut hasher = Xxh3Default::new();
    for text in texts {
        hasher.write(text.as_bytes());
        hasher.write(&[0]);
    }
    format!("{:016x}", hasher.digest())
}

/// `query_hash(t)`: the same for statements that differ in values, lengths of lists, spaces and case at most.
pub(super) fn query_hash(texts: &Texts<'_>) -> Option<String> {
    Some(hash(&[&folded(texts[0]?)]))
}

/// `summarise(t)`: the operation in capitals, then the tables in order.
pub(super) fn summarise(texts: &Texts<'_>) -> Option<String> {
    const BEFORE_TABLES: [&str; 5] = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE"];
    // What may stand between such a word and the name.
    const BETWEEN: [&str; 4] = ["IF", "NOT", "EXISTS", "ONLY"];
    let mut summary = String::new();
    let mut is_table_next = false;
    for token in tokens(texts[0]?) {
        let (name, is_quoted) = match token {
            Token::Word(name) => (name, false),
            Token::Quoted(name) => (name, true),
            Token::Value | Token::Sign(_) => {
                is_table_next = false;
                continue;
            }
        };
        let upper = name.to_uppercase();
        if summary.is_empty() {
            summary.push_str(&upper);
            is_table_next = BEFORE_TABLES.contains(&upper.as_str());
        } else if !is_quoted && BEFORE_TABLES.contains(&upper.as_str()) {
            is_table_next = true;
        } else if is_table_next && (is_quoted || !BETWEEN.contains(&upper.as_str())) {
            is_table_next = false;
            if upper != "SELECT" && summary.len() + 1 + name.len() <= SUMMARY_BYTES_MAX {
                summary.push(' ');
                summary.push_str(name);
            }
        }
    }
    Some(summary).filter(|s| s.len() <= SUMMARY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_folded() {
        let check = |text, expected| assert_eq!(folded(text), expected, "{text}");
        check("SELECT *\n FROM t -- all\n WHERE a = 'it''s' AND b=12.5;", "select * from t where a = ? and b = ?");
        check("select * from t where id in (1, 2, 3)", "select * from t where id in ( ? )");
        check("select * from t where id in ($1,$2) /* x */", "select * from t where id in ( ? )");
        check("INSERT INTO t VALUES (?, ?), (?, ?)", "insert into t values ( ? )");
        check("SELECT \"A\" FROM s.t WHERE x = :name OR y = @p1", "select \"A\" from s.t where x = ? or y = ?");
        check("a 'unclosed", "a ?");
        check("select 1 from t where a = -5 and b in (-1, 2, -3.5)", "select ? from t where a = ? and b in ( ? )");
        check("select a - 5, b-1e-3, c --5", "select a - ? , b - ? , c");
        check("values (0x1f, 1E+10, .5, -2e-7)", "values ( ? )");
        check("select a - -5, b * -2", "select a - ? , b * ?");
        check("select x::text, y :: int from t", "select x : text , y : int from t");
        check("select `a``b`, \"c\"\"d\" from t where e = 'f\\'g'", "select `a``b` , \"c\"\"d\" from t where e = ?");
        check("select größe from maße where ü = 'ü'", "select größe from maße where ü = ?");
        check("select 1; select 2;", "select ? select ?");
        check("/* unclosed", "");
        check("-- only a comment", "");
        let same = |a: &str, b: &str| assert_eq!(query_hash(&[Some(a)]), query_hash(&[Some(b)]));
        same("select 1", "SELECT  22");
        same("select a from t where b = 5", "select a from t where b = -5e-3");
        assert_ne!(query_hash(&[Some("select a")]), query_hash(&[Some("select b")]));
        assert_ne!(query_hash(&[Some("select a::int")]), query_hash(&[Some("select a::text")]));
        assert_ne!(query_hash(&[Some("select a - 5")]), query_hash(&[Some("select a + 5")]));
        assert_eq!(query_hash(&[None]), None);
    }

    #[test]
    fn summaries() {
        let check = |text, expected: &str| assert_eq!(summarise(&[Some(text)]).as_deref(), Some(expected), "{text}");
        check("select * from orders o join users u on o.u = u.id", "SELECT orders users");
        check("INSERT INTO shop.orders VALUES (1)", "INSERT shop.orders");
        check("update orders set a = 1", "UPDATE orders");
        check("CREATE TABLE IF NOT EXISTS t (a int)", "CREATE t");
        check("select * from (select 1 from a) x", "SELECT a");
        check("GET user:17", "GET");
        check("delete from only \"Orders\" where id = 1", "DELETE \"Orders\"");
        check("truncate table a", "TRUNCATE a");
        check("with x as (select 1 from a) select * from x join b on true", "WITH a x b");
        check("select a from b where c = 'from d' -- from e", "SELECT b");
        check("", "");
    }
}
