//! Tokens, keywords, and how error messages name a token.

use super::quote::quote;
use crate::ast::{AggregateOp, BinaryOp, PosRange};

/// A token and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) pos: PosRange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Eof,
    Comma,
    Colon,
    Equal,
    EqualRegex,
    NotRegex,
    At,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    LeftParen,
    RightParen,
    Number,
    Duration,
    String,
    Identifier,
    /// With a colon, so no label can bear it.
    MetricIdentifier,
    Op(BinaryOp),
    Aggregate(AggregateOp),
    Bool,
    By,
    Without,
    On,
    Ignoring,
    GroupLeft,
    GroupRight,
    Fill,
    FillLeft,
    FillRight,
    Offset,
    Anchored,
    Smoothed,
    Start,
    End,
    Step,
    Range,
    MinOf,
    MaxOf,
}

/// Gives the kind of a word that is a keyword in any case.
pub(crate) fn keyword(word: &str) -> Option<TokenKind> {
    // The longest keyword; longer words need no copy in lower case.
    if word.len() > "count_values".len() {
        return None;
    }
    let word = word.to_ascii_lowercase();
    Some(match word.as_str() {
        "inf" | "nan" => TokenKind::Number,
        "and" => TokenKind::Op(BinaryOp::And),
        "or" => TokenKind::Op(BinaryOp::Or),
        "unless" => TokenKind::Op(BinaryOp::Unless),
        "atan2" => TokenKind::Op(BinaryOp::Atan2),
        "bool" => TokenKind::Bool,
        "by" => TokenKind::By,
        "without" => TokenKind::Without,
        "on" => TokenKind::On,
        "ignoring" => TokenKind::Ignoring,
        "group_left" => TokenKind::GroupLeft,
        "group_right" => TokenKind::GroupRight,
        "fill" => TokenKind::Fill,
        "fill_left" => TokenKind::FillLeft,
        "fill_right" => TokenKind::FillRight,
        "offset" => TokenKind::Offset,
        "anchored" => TokenKind::Anchored,
        "smoothed" => TokenKind::Smoothed,
        "start" => TokenKind::Start,
        "end" => TokenKind::End,
        "step" => TokenKind::Step,
        "range" => TokenKind::Range,
        "min_of" => TokenKind::MinOf,
        "max_of" => TokenKind::MaxOf,
        word => TokenKind::Aggregate(AggregateOp::ALL.into_iter().find(|op| op.as_str() == word)?),
    })
}

impl TokenKind {
    /// Says whether a label may be named by it in `by (...)` and the like (all words but `without`).
    pub(crate) fn is_label(self) -> bool {
        match self {
            Self::Op(op) => op.is_set() || op == BinaryOp::Atan2,
            Self::Identifier
            | Self::MetricIdentifier
            | Self::Aggregate(_)
            | Self::Bool
            | Self::On
            | Self::Ignoring
            | Self::GroupLeft
            | Self::GroupRight => true,
            _ => self.is_metric_keyword() && self != Self::Without,
        }
    }

    /// Says whether it is a keyword that may stand for a metric (aggregations may too).
    pub(crate) fn is_metric_keyword(self) -> bool {
        match self {
            Self::Op(op) => op.is_set(),
            Self::By
            | Self::Without
            | Self::Offset
            | Self::Anchored
            | Self::Smoothed
            | Self::Fill
            | Self::FillLeft
            | Self::FillRight => true,
            _ => self.is_named_function(),
        }
    }

    /// Says whether it is a keyword that may be called like a function.
    pub(crate) fn is_named_function(self) -> bool {
        matches!(self, Self::Start | Self::End | Self::Step | Self::Range | Self::MinOf | Self::MaxOf)
    }

    /// Says whether an expression can start with it.
    pub(crate) fn starts_expr(self) -> bool {
        match self {
            Self::Number
            | Self::Duration
            | Self::String
            | Self::Identifier
            | Self::MetricIdentifier
            | Self::LeftParen
            | Self::LeftBrace
            | Self::Aggregate(_)
            | Self::Op(BinaryOp::Add | BinaryOp::Sub) => true,
            _ => self.is_metric_keyword(),
        }
    }
}

impl Token {
    /// Gives the text of the token.
    pub(crate) fn text(self, query: &str) -> &str {
        &query[self.pos.start as usize..self.pos.end as usize]
    }

    /// Gives the words by which error messages name the token.
    pub(crate) fn describe(self, query: &str) -> String {
        let text = self.text(query);
        match self.kind {
            TokenKind::Eof => "end of input".to_owned(),
            TokenKind::Identifier => format!("identifier {}", quote(text)),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quote(text)),
            TokenKind::String => format!("string {}", shortened(text)),
            TokenKind::Number => format!("number {}", shortened(text)),
            TokenKind::Duration => format!("duration {}", shortened(text)),
            TokenKind::Op(_) | TokenKind::EqualRegex | TokenKind::NotRegex | TokenKind::At => format!("<op:{text}>"),
            TokenKind::Aggregate(_) => format!("<aggr:{text}>"),
            TokenKind::Bool
            | TokenKind::By
            | TokenKind::Without
            | TokenKind::On
            | TokenKind::Ignoring
            | TokenKind::GroupLeft
            | TokenKind::GroupRight
            | TokenKind::Fill
            | TokenKind::FillLeft
            | TokenKind::FillRight
            | TokenKind::Offset
            | TokenKind::Anchored
            | TokenKind::Smoothed => format!("<{text}>"),
            _ => quote(text),
        }
    }
}

/// Quotes a text, but no more than ten characters of it.
fn shortened(text: &str) -> String {
    if text.len() <= 10 {
        return quote(text);
    }
    let end = text.char_indices().nth(10).map_or(text.len(), |(i, _)| i);
    format!("{}...", quote(&text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a word may be: a label in lists, a metric, a function, the start of an expression.
    #[test]
    fn what_keywords_may_stand_for() {
        for (word, label, metric, function, starts) in [
            ("and", true, true, false, true),
            ("UNLESS", true, true, false, true),
            ("atan2", true, false, false, false),
            ("bool", true, false, false, false),
            ("by", true, true, false, true),
            ("Without", false, true, false, true),
            ("on", true, false, false, false),
            ("ignoring", true, false, false, false),
            ("group_right", true, false, false, false),
            ("fill_left", true, true, false, true),
            ("offset", true, true, false, true),
            ("smoothed", true, true, false, true),
            ("start", true, true, true, true),
            ("Range", true, true, true, true),
            ("MIN_OF", true, true, true, true),
            ("sum", true, false, false, true),
            ("count_values", true, false, false, true),
            ("nan", false, false, false, true),
            ("Inf", false, false, false, true),
        ] {
            let kind = keyword(word).unwrap_or_else(|| panic!("{word}"));
            let found = (kind.is_label(), kind.is_metric_keyword(), kind.is_named_function(), kind.starts_expr());
            assert_eq!(found, (label, metric, function, starts), "{word}");
        }
        for word in ["", "a", "rate", "summ", "infinity", "count_valuess", "группа", "ＳＵＭ", "step_", "group-left"]
        {
            assert_eq!(keyword(word), None, "{word}");
        }
        assert!(TokenKind::MetricIdentifier.is_label() && TokenKind::Identifier.starts_expr());
        assert!(!TokenKind::String.is_label() && !TokenKind::RightParen.starts_expr() && !TokenKind::Eof.starts_expr());
        assert!(!TokenKind::Op(BinaryOp::Mul).starts_expr() && TokenKind::Op(BinaryOp::Sub).starts_expr());
    }

    #[test]
    fn long_texts_are_cut_after_ten_characters() {
        let check = |text: &str, expected: &str| assert_eq!(shortened(text), expected);
        check("'12345678'", "\"'12345678'\"");
        check("'123456789'", "\"'123456789\"...");
        check("'ééééé'", "\"'ééééé'\"...");
        check("'éééééééééééé'", "\"'ééééééééé\"...");
        check("\"a\"", r#""\"a\"""#);
    }
}
