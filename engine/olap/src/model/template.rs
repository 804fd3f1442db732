//! SQL texts of models with references to models and members in braces.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use quiver_yaml::problem::Place;

use super::MemberId;

/// The most operators of a text, as for SQL statements.
pub(super) const OPERATORS_MAX: usize = 1_000;

/// Parts of SQL whose value differs between queries.
const UNSTEADY: [&str; 7] = ["now(", "now (", "current_", "today", "range_", "random", "uuid"];

/// A part of a SQL text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Plain SQL.
    Text(String),
    /// An unresolved reference: the names between the dots.
    Raw(Vec<String>),
    /// The alias of a model.
    Model(String),
    /// The expression of a member.
    Member(MemberId),
    /// A time dimension cut to one of its granularities.
    Bucket(MemberId, String),
}

/// A SQL text of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The text as written.
    pub text: String,
    /// Its parts in order, which together are the text.
    pub pieces: Vec<Piece>,
    /// Its position in the file.
    pub place: Place,
}

impl Template {
    /// Splits a text. Braces within quotes, and braces that contain no name, are plain SQL.
    pub fn parse(text: &str, place: Place) -> Self {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut quoted = false;
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            quoted ^= c == '\'';
            let dollar = usize::from(text[at..].starts_with("${"));
            if !quoted
                && text[at + dollar..].starts_with('{')
                && let Some((names, length)) = reference(&text[at + dollar..])
            {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Raw(names));
                at += dollar + length;
                continue;
            }
            plain.push(c);
            at += c.len_utf8();
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Self { text: text.trim().to_owned(), pieces, place }
    }

    /// The members that it refers to.
    pub fn members(&self) -> impl Iterator<Item = &MemberId> {
        self.pieces.iter().filter_map(|p| match p {
            Piece::Member(id) | Piece::Bucket(id, _) => Some(id),
            Piece::Text(_) | Piece::Raw(_) | Piece::Model(_) => None,
        })
    }

    /// The times that it cuts to granularities.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (&MemberId, &str)> {
        self.pieces
            .iter()
            .filter_map(|p| if let Piece::Bucket(id, name) = p { Some((id, name.as_str())) } else { None })
    }

    /// Whether it has too many operators: a chain of operators nests as deeply as it is long, and planning recurses.
    pub(super) fn is_too_deep(&self) -> bool {
        let joins = |token: &Token| match token {
            Token::Word(word) => matches!(word.keyword, Keyword::AND | Keyword::OR | Keyword::NOT | Keyword::IS),
            Token::Whitespace(_)
            | Token::Comma
            | Token::Period
            | Token::LParen
            | Token::RParen
            | Token::LBrace
            | Token::RBrace
            | Token::Number(..)
            | Token::SingleQuotedString(_) => false,
            _ => true,
        };
        // Each operator has at least one character. Invalid SQL is reported when it is planned.
        self.text.len() > OPERATORS_MAX
            && Tokenizer::new(&PostgreSqlDialect {}, &self.text)
                .tokenize()
                .is_ok_and(|tokens| tokens.iter().filter(|token| joins(token)).count() > OPERATORS_MAX)
    }

    /// The models whose columns it refers to.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| if let Piece::Model(name) = p { Some(name.as_str()) } else { None })
    }

    /// The member, if the text is just one reference.
    pub fn only_member(&self) -> Option<&MemberId> {
        match self.only_piece() {
            Some(Piece::Member(id)) => Some(id),
            _ => None,
        }
    }

    /// Whether the text is just a time cut to a granularity.
    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.only_piece(), Some(Piece::Bucket(..)))
    }

    fn only_piece(&self) -> Option<&Piece> {
        let mut parts = self.pieces.iter().filter(|p| !matches!(p, Piece::Text(t) if t.trim().is_empty()));
        parts.next().filter(|_| parts.next().is_none())
    }
}

/// Parses `{a}`, `{a.b}` or `{a.b.c}` at the beginning of a text: the names, and the length of the reference.
fn reference(text: &str) -> Option<(Vec<String>, usize)> {
    let end = text.find('}')?;
    let names: Vec<String> = text[1..end].trim().split('.').map(str::to_owned).collect();
    let sane = |n: &String| super::is_name(n) && !n.starts_with(|c: char| c.is_ascii_digit());
    (names.len() <= 3 && names.iter().all(sane)).then_some((names, end + 1))
}

/// Whether a text has the same value for the same rows, regardless of the caller and the time.
pub(crate) fn is_steady(sql: &str) -> bool {
    let lower = sql.to_lowercase();
    !UNSTEADY.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces() {
        let check = |text: &str, expected: &[Piece]| {
            assert_eq!(Template::parse(text, Place::default()).pieces, expected, "{text}");
        };
        let raw = |text: &str| Piece::Raw(text.split('.').map(str::to_owned).collect());
        let plain = |text: &str| Piece::Text(text.to_owned());
        check("a + b", &[plain("a + b")]);
        check("{CUBE}.x <= 4 * ${Services.apdexT}", &[raw("CUBE"), plain(".x <= 4 * "), raw("Services.apdexT")]);
        check("'{CUBE}' || {count}", &[plain("'{CUBE}' || "), raw("count")]);
        check("'it''s {x}' || {y}", &[plain("'it''s {x}' || "), raw("y")]);
        check("{ 1 }", &[plain("{ 1 }")]);
        check("{a.b.c} {a.b.c.d}", &[raw("a.b.c"), plain(" {a.b.c.d}")]);
    }
}
