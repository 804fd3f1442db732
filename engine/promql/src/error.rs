//! Two errors: that of parsing and checking PromQL, a reason with its place in the text, and that of queries.
//!
//! The former is shown as in Prometheus: `1:5: parse error: unexpected end of input`; lines and columns count from 1,
//! columns in bytes. Reasons are those of Prometheus 3.14.

use quiver_types::ErrorKind;

use crate::annotation::line_column;
use crate::ast::PosRange;

/// Result with [`ParseError`].
pub type Result<T, E = ParseError> = std::result::Result<T, E>;

/// A text that is not a valid expression, or one that can never be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", self.place())]
pub struct ParseError {
    /// [`ErrorKind::Invalid`]; of a valid expression that is not read to its end, or can never be carried out, why: this
    /// shows without a place.
    pub kind: ErrorKind,
    /// The reason, without the place.
    pub message: String,
    /// Where it stands.
    pub pos: PosRange,
    /// Line from 1; 0: the text is empty, so there is no place.
    pub line: u32,
    /// Column from 1, in bytes.
    pub column: u32,
}

impl ParseError {
    /// Makes an error about `pos`; [`ParseError::locate`] adds line and column.
    pub(crate) fn new(pos: PosRange, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Invalid, message: message.into(), pos, line: 0, column: 0 }
    }

    /// Makes an error about `pos` out of one that has a kind.
    pub(crate) fn of(pos: PosRange, error: quiver_types::Error) -> Self {
        Self { kind: error.kind, ..Self::new(pos, error.message) }
    }

    /// Fills line and column from the text that was parsed.
    pub(crate) fn locate(mut self, text: &str) -> Self {
        if !text.is_empty() {
            let (line, column) = line_column(text, self.pos.start as usize);
            (self.line, self.column) = (line as u32, column as u32);
        }
        self
    }

    /// Gives the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn place(&self) -> String {
        match (self.kind, self.line) {
            (ErrorKind::Invalid, 0) => "unknown position: parse error: ".to_owned(),
            (ErrorKind::Invalid, line) => format!("{line}:{}: parse error: ", self.column),
            _ => String::new(),
        }
    }
}

impl From<ParseError> for quiver_types::Error {
    fn from(error: ParseError) -> Self {
        Self::new(error.kind, error.to_string())
    }
}

/// Why a query failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PromqlError {
    /// The text is no valid expression.
    #[error(transparent)]
    Parse(ParseError),
    /// Planning or evaluation failed, or the text was not read to its end.
    #[error(transparent)]
    Evaluation(#[from] quiver_types::Error),
}

impl From<ParseError> for PromqlError {
    fn from(error: ParseError) -> Self {
        if error.kind == ErrorKind::Invalid { Self::Parse(error) } else { Self::Evaluation(error.into()) }
    }
}

impl PromqlError {
    /// Gives the kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Parse(_) => ErrorKind::Invalid,
            Self::Evaluation(e) => e.kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_with_line_and_column() {
        let at = |start| ParseError::new(PosRange { start, end: start }, "unexpected end of input");
        assert_eq!(at(2).locate("1+").to_string(), "1:3: parse error: unexpected end of input");
        assert_eq!(at(4).locate("ü\n+").to_string(), "2:2: parse error: unexpected end of input");
        assert_eq!(at(0).locate("").to_string(), "unknown position: parse error: unexpected end of input");
    }

    /// Only what is no expression is a fault of the text.
    #[test]
    fn errors_of_the_text_and_others() {
        let of = |error: ParseError| {
            let error = PromqlError::from(error);
            (matches!(error, PromqlError::Parse(_)), error.kind(), error.to_string())
        };
        let parsed = crate::parser::parse("1 +\n ").expect_err("no expression");
        assert_eq!(of(parsed), (true, ErrorKind::Invalid, "2:2: parse error: unexpected end of input".to_owned()));
        for kind in [ErrorKind::LimitExceeded, ErrorKind::Cancelled, ErrorKind::Timeout] {
            let ended = ParseError::of(PosRange { start: 1, end: 2 }, quiver_types::Error::new(kind, "no more"))
                .locate("m + n");
            assert_eq!(of(ended), (false, kind, "no more".to_owned()));
        }
    }
}
