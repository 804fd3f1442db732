//! Errors as clients of PostgreSQL read them: SQLSTATE, message, place in the statement.

use bytes::BytesMut;
use pgwire::messages::Message as _;
use pgwire::messages::response::ErrorResponse;
use quiver_sql::{Fault as Kind, place_of};
use quiver_types::{Error, ErrorKind};

use crate::error::public_text;

/// How much of a message is sent.
const MESSAGE_CHARS_MAX: usize = 1000;

/// An error on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    severity: &'static str,
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Where in the statement, in letters from 1.
    position: Option<usize>,
}

impl Fault {
    /// An error after which the connection goes on.
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: "ERROR", code, message: message.into(), position: None }
    }

    /// An error that ends the connection.
    pub(super) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: "FATAL", ..Self::new(code, message) }
    }

    /// A client that does not keep to the protocol.
    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::fatal("08P01", message)
    }

    /// Whether the connection ends with it.
    pub(super) fn is_fatal(&self) -> bool {
        self.severity == "FATAL"
    }

    /// An error of a statement.
    pub(super) fn of(error: &Error, statement: &str) -> Self {
        let position = place_of(error).and_then(|place| position(statement, place));
        Self { position, ..Self::new(code(error), public_text(error)) }
    }

    /// Writes it.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let mut fields = vec![
            (b'S', self.severity.to_owned()),
            (b'V', self.severity.to_owned()),
            (b'C', self.code.to_owned()),
            // A NUL would end the text for the client, and begin a field that there is none of.
            (b'M', self.message.chars().take(MESSAGE_CHARS_MAX).collect::<String>().replace('\0', "\u{fffd}")),
        ];
        if let Some(position) = self.position {
            fields.push((b'P', position.to_string()));
        }
        // It is too short to be refused.
        let _ = ErrorResponse::new(fields).encode(out);
    }
}

fn code(error: &Error) -> &'static str {
    match Kind::of(error) {
        Kind::Syntax => return "42601",
        Kind::Writes => return "25006",
        Kind::Table => return "42P01",
        Kind::Column => return "42703",
        Kind::Function => return "42883",
        Kind::Other => {}
    }
    match error.kind {
        ErrorKind::Invalid => "42000",
        ErrorKind::Execution => "22000",
        ErrorKind::Unauthenticated => "28000",
        ErrorKind::Forbidden => "42501",
        ErrorKind::NotFound => "42704",
        ErrorKind::Conflict => "40001",
        ErrorKind::Unsupported => "0A000",
        ErrorKind::TooLarge | ErrorKind::LimitExceeded => "54000",
        ErrorKind::Timeout | ErrorKind::SenderTimeout | ErrorKind::Cancelled => "57014",
        ErrorKind::Unavailable => "53000",
        ErrorKind::Damaged => "XX001",
        ErrorKind::Internal => "XX000",
    }
}

/// The letter of a line and column.
fn position(statement: &str, (line, column): (usize, usize)) -> Option<usize> {
    let before: usize = statement.split_inclusive('\n').take(line.checked_sub(1)?).map(|l| l.chars().count()).sum();
    Some(before + column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_places() {
        let error = Error::invalid("there is no column `x` at line 2, column 8; did you mean `y`?");
        let fault = Fault::of(&error, "select 1,\n  foo x");
        assert_eq!((fault.code, fault.position), ("42703", Some(18)));
        let check = |error: Error, code: &str| assert_eq!(Fault::of(&error, "").code, code, "{error}");
        check(Error::invalid("cannot read the statement: x"), "42601");
        check(Error::invalid("`DROP TABLE` is not allowed: statements only read; write `SELECT`"), "25006");
        check(Error::new(ErrorKind::Cancelled, "x"), "57014");
        check(Error::new(ErrorKind::LimitExceeded, "x"), "54000");
        let mut out = BytesMut::new();
        Fault::new("XX000", "a".repeat(100_000)).write(&mut out);
        assert!(out.len() < 2000 && out[0] == b'E');
    }
}
