//! Errors in the format of PostgreSQL: SQLSTATE, message, position in the statement.

mod named_token;

use bytes::BytesMut;
use pgwire::messages::Message as _;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};
use quiver_sql::{Fault as Kind, place_of};
use quiver_types::error::disk_is_full;
use quiver_types::{Error, ErrorKind};

use crate::error::public_text;

/// Longest message that is sent, in characters.
const MESSAGE_CHARS_MAX: usize = 1000;

/// An error to be sent to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    severity: &'static str,
    pub(super) code: &'static str,
    pub(super) message: String,
    /// The position in the statement, in characters from 1.
    position: Option<usize>,
}

impl Fault {
    /// An error after which the connection continues.
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: "ERROR", code, message: message.into(), position: None }
    }

    /// An error that ends the connection.
    pub(super) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: "FATAL", ..Self::new(code, message) }
    }

    /// What a client is told beside an answer.
    pub(super) fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: "WARNING", ..Self::new(code, message) }
    }

    /// A protocol violation by the client.
    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::fatal("08P01", message)
    }

    /// The account, key or session of the client has ended.
    pub(super) fn of_ended_account() -> Self {
        Self::fatal("28000", "the account, key or session of this connection has ended")
    }

    /// Whether it ends the connection.
    pub(super) fn is_fatal(&self) -> bool {
        self.severity == "FATAL"
    }

    /// Converts an error of a statement.
    pub(super) fn of(error: &Error, statement: &str) -> Self {
        let named = || match error.kind {
            ErrorKind::Invalid | ErrorKind::Execution => named_token::position(&error.message, statement),
            _ => None,
        };
        let position = place_of(error).and_then(|place| position(statement, place)).or_else(named);
        Self { position, ..Self::new(code(error), public_text(error)) }
    }

    /// Writes it as an `ErrorResponse`, a warning as a `NoticeResponse`.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let mut fields = vec![
            (b'S', self.severity.to_owned()),
            (b'V', self.severity.to_owned()),
            (b'C', self.code.to_owned()),
            // A NUL would end the string, and begin an invalid field.
            (b'M', self.message.chars().take(MESSAGE_CHARS_MAX).collect::<String>().replace('\0', "\u{fffd}")),
        ];
        if let Some(position) = self.position {
            fields.push((b'P', position.to_string()));
        }
        // They are too short to fail.
        let _ = if self.severity == "WARNING" {
            NoticeResponse::new(fields).encode(out)
        } else {
            ErrorResponse::new(fields).encode(out)
        };
    }
}

/// Texts in error messages and PostgreSQL's code for each, since drivers and frameworks tell errors apart by code. A
/// text that contains another one must come first.
const CODES: [(&str, &str); 194] = [
    (quiver_query::BY_ZERO, "22012"),
    ("verflow happened on", "22003"),
    ("Can't cast value", "22003"),
    ("is out of range for type", "22003"),
    ("is out of range for an angle", "22003"),
    ("there is no function `", "42883"),
    ("too large to store in a Decimal", "22003"),
    ("should satisfy `0 < precision", "22023"),
    ("to value of Date32 type", "22007"),
    ("to value of Time64", "22007"),
    ("input is out of range", "22008"),
    ("no possible date and time matching input", "22008"),
    ("Error parsing timestamp", "22007"),
    ("Cannot cast string", "22P02"),
    ("invalid input syntax for type date", "22007"),
    ("invalid input syntax for type time", "22007"),
    ("invalid input syntax for type interval", "22007"),
    ("invalid input syntax for type", "22P02"),
    ("is no flag of a regular expression", "22023"),
    ("regular expression", "2201B"),
    ("` counts letters from 1", "22023"),
    ("invalid value for parameter", "22023"),
    ("null_value_treatment must be", "22023"),
    ("JSON value must not be null", "22004"),
    ("Invalid qualifier", "42P01"),
    ("square root of a negative number", "2201F"),
    ("negative count not allowed", "22011"),
    ("there is no time zone", "22023"),
    ("there is no setting", "42704"),
    ("Unsupported date_trunc granularity", "22023"),
    ("Date part '", "22023"),
    ("step can't be 0", "22023"),
    ("step size cannot equal zero", "22023"),
    ("`WITH TIES` needs", "42601"),
    ("invalid size", "22023"),
    ("array must have even number of elements", "2202E"),
    ("mismatched array dimensions", "2202E"),
    ("must be in GROUP BY or an aggregate function", "42803"),
    ("Ambiguous reference", "42702"),
    ("is ambiguous", "42702"),
    ("duplicate qualified field name", "42712"),
    ("Unsupported SQL type", "42704"),
    ("failed to match any signature", "42883"),
    ("argument types 'coalesce(", "42804"),
    ("argument types 'greatest(", "42804"),
    ("argument types 'least(", "42804"),
    ("argument types 'make_array(", "42804"),
    ("No function matches", "42883"),
    ("Cannot coerce arithmetic expression", "42883"),
    ("Cannot get result type for temporal operation", "42883"),
    ("non-boolean predicate", "42804"),
    ("queries have different number of columns", "42601"),
    ("SELECT DISTINCT ON expressions must match", "42P10"),
    ("For SELECT DISTINCT, ORDER BY expressions", "42P10"),
    ("Order by column out of bounds", "42P10"),
    ("there is no value for parameter", "42P02"),
    ("there is no window", "42704"),
    ("window functions are not allowed", "42P20"),
    ("which another is built on", "42P20"),
    ("requires an OVER clause", "42809"),
    ("Scalar subquery returned more than one row", "21000"),
    ("a subquery that stands for a value gives more than one row", "21000"),
    ("NTILE requires a positive integer", "22014"),
    ("argument of nth_value must", "22016"),
    ("Invalid input syntax for type interval", "22007"),
    ("to value of Boolean type", "22P02"),
    ("Unable to parse date from", "22008"),
    ("DATE_BIN stride", "22008"),
    ("factorial of a negative number", "22003"),
    ("takes a number from 0 to 1", "22003"),
    ("LIMIT must not be negative", "2201W"),
    ("OFFSET must not be negative", "2201X"),
    ("frame offsets for", "22013"),
    ("field position must not be zero", "22023"),
    ("Step cannot be zero", "22023"),
    ("Step interval cannot be zero", "22023"),
    ("`format` has no value", "22023"),
    ("`format` knows", "22023"),
    ("cannot replace existing key", "22023"),
    ("a name in JSON must not be NULL", "22023"),
    ("should only return one column", "42601"),
    ("parts cannot be compared", "42601"),
    ("out of valid range", "2202E"),
    ("new bit must be 0 or 1", "22023"),
    ("invalid byte sequence for encoding", "22021"),
    ("negative substring length", "22011"),
    ("there is no encoding", "22023"),
    ("Failed to decode value", "22023"),
    ("There is no built-in encoding", "22023"),
    ("Aggregate function calls cannot be nested", "42803"),
    ("Aggregate functions are not allowed", "42803"),
    ("must appear in the GROUP BY clause", "42803"),
    ("Cannot find column with position", "42P10"),
    ("Incompatible inputs for Union", "42804"),
    ("Inconsistent data type across values list", "42804"),
    ("Failed to coerce then", "42804"),
    ("requires a boolean expression", "42804"),
    ("Cannot infer common argument type for logical", "42804"),
    ("Cannot infer common", "42883"),
    ("There isn't a common type", "42883"),
    ("Invalid window frame: start bound", "42P20"),
    ("zero raised to a negative power", "2201F"),
    ("overlay start position", "22011"),
    ("invalid Unicode scalar value", "22023"),
    ("`width_bucket` takes two different ends", "2201G"),
    ("cannot delete ", "22023"),
    ("cannot set path in scalar", "22023"),
    ("path element at position", "22P02"),
    ("an interval is too long", "22008"),
    ("Timestamp out of range", "22008"),
    ("out of range after truncating", "22008"),
    ("converted value exceeds the representable", "22008"),
    ("overflows timestamp", "22008"),
    ("' is out of range", "22008"),
    ("time field value out of range", "22008"),
    ("in a pattern is for times", "22007"),
    ("`to_number` finds no number", "22P02"),
    ("`EEEE` is not the last word", "42601"),
    ("`EEEE` stands together with", "42601"),
    ("`V` stands together with", "42601"),
    ("Inconsistent data length across values list", "42601"),
    ("Unsupported CAST", "42846"),
    ("two texts stand one behind the other", "42601"),
    ("takes no frame whose beginning moves", "0A000"),
    ("one window function over a value and over its cast", "0A000"),
    ("does not support: Interval", "0A000"),
    ("not supported for type", "0A000"),
    ("not recognized for type", "22023"),
    ("is the place of an output", "42601"),
    ("Order by index starts at 1", "42P10"),
    ("non-integer constant in", "42601"),
    ("is not in the list of outputs", "42P10"),
    ("specified more than once", "42712"),
    ("Can not find compatible types to compare", "42883"),
    ("verflow on abs(", "22003"),
    ("Window function calls cannot be nested", "42P20"),
    ("to be an integer or null, but got Utf8", "22P02"),
    ("to be an integer or null", "42804"),
    ("cannot contain window function calls", "42803"),
    ("to grouping function is not in grouping columns", "42803"),
    ("does not support: Time", "0A000"),
    ("otherwise than by `=` in its `WHERE` is not", "0A000"),
    ("stand in conditions of `WHERE` and `ON` only", "0A000"),
    ("Correlated scalar subquery can only be used", "0A000"),
    ("not implemented yet", "0A000"),
    ("Unsupported binary operator", "42883"),
    ("invalid Unicode escape", "42601"),
    ("recursive reference to query", "42P19"),
    ("does not have the form non-recursive-term", "42P19"),
    ("not allowed in a recursive query's recursive term", "42P19"),
    ("names given as column alias", "42P10"),
    ("GROUPS requires an ORDER BY clause", "42P20"),
    ("RANGE requires exactly one ORDER BY column", "42P20"),
    ("Aggregate ORDER BY is not implemented for window functions", "0A000"),
    ("OVER and WITHIN GROUP clause cannot be used together", "0A000"),
    ("writes no NULL as a name", "22004"),
    ("a pattern has two marks", "2200C"),
    ("()` is not supported: `abs()`", "0A000"),
    ("variables are not supported", "0A000"),
    ("cannot read the JSON path", "42601"),
    ("jsonpath item method .size()", "22039"),
    ("jsonpath item method .keyvalue()", "2203C"),
    ("jsonpath item method .", "22036"),
    ("JSON object does not contain key", "2203A"),
    ("malformed array literal", "22P02"),
    ("malformed JSON array", "22P02"),
    ("is out of range Int", "22003"),
    ("`ESCAPE` takes one character", "22025"),
    ("In an aggregate with DISTINCT, ORDER BY expressions", "42P10"),
    ("compound identifier: [", "42601"),
    ("jsonpath member accessor", "2203A"),
    ("jsonpath wildcard member accessor", "2203C"),
    ("jsonpath wildcard array accessor", "22039"),
    ("jsonpath array accessor", "22039"),
    ("jsonpath array subscript", "22033"),
    ("operand of jsonpath operator", "22038"),
    ("operand of unary jsonpath operator", "2203B"),
    ("takes a path that gives one truth", "22038"),
    ("could not find jsonpath variable", "42704"),
    ("argument is not an object", "22023"),
    ("length for type ", "22023"),
    ("null character not permitted", "54000"),
    ("character number must be positive", "22023"),
    ("requested character ", "54000"),
    ("number of elements to trim", "2202E"),
    ("in non-recursive term but type", "42804"),
    ("cannot be matched", "42804"),
    ("Cannot automatically convert", "42804"),
    ("Invalid window frame: end bound", "42P20"),
    ("Cannot access field at argument", "42P01"),
    ("there is no type `", "42704"),
    (" specified, but ", "42809"),
    ("CYCLE` is not in the WITH query", "42703"),
    ("CYCLE` is named more than once", "42701"),
];

fn code(error: &Error) -> &'static str {
    match Kind::of(error) {
        Kind::Syntax => return "42601",
        Kind::Writes => return "25006",
        Kind::Table => return "42P01",
        Kind::Column => return "42703",
        Kind::Function => return "42883",
        Kind::Other => {}
    }
    if matches!(error.kind, ErrorKind::Invalid | ErrorKind::Execution)
        && let Some((_, code)) = CODES.iter().find(|(said, _)| error.message.contains(said))
    {
        return code;
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
        ErrorKind::Unavailable if disk_is_full(error) => "53100",
        ErrorKind::Unavailable => "53000",
        ErrorKind::Damaged => "XX001",
        ErrorKind::Internal => "XX000",
    }
}

/// Converts line and column to a character position.
fn position(statement: &str, (line, column): (usize, usize)) -> Option<usize> {
    let before: usize = statement.split_inclusive('\n').take(line.checked_sub(1)?).map(|l| l.chars().count()).sum();
    // The position in a message may be quoted from a value in the statement, and then be out of range.
    before.checked_add(column).filter(|at| (1..=statement.chars().count() + 1).contains(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_places() {
        let error = Error::invalid("there is no column `x` at line 2, column 8; did you mean `y`?");
        let fault = Fault::of(&error, "select 1,\n  foo x");
        assert_eq!((fault.code, fault.position), ("42703", Some(18)));
        let fault = Fault::of(&Error::invalid("Cannot cast string 'x' to value of Int32 type"), "select 'x'::int");
        assert_eq!((fault.code, fault.position), ("22P02", Some(8)));
        let check = |error: Error, code: &str| assert_eq!(Fault::of(&error, "").code, code, "{error}");
        check(Error::invalid("cannot read the statement: x"), "42601");
        check(Error::invalid("`DROP TABLE` is not allowed: statements only read; write `SELECT`"), "25006");
        check(Error::new(ErrorKind::Cancelled, "x"), "57014");
        check(Error::invalid("division by zero"), "22012");
        check(Error::new(ErrorKind::Execution, "Cast error: Cannot cast string 'x' to value of Int64 type"), "22P02");
        check(Error::invalid("Cannot cast string '2024-13-01' to value of Date32 type"), "22007");
        let ran = |text: &str| Error::new(ErrorKind::Execution, text);
        check(Error::invalid("date/time field value out of range: \"2024-13-01\""), "22008");
        check(Error::invalid("invalid input syntax for type timestamp: \"x\""), "22007");
        check(Error::invalid("invalid input syntax for type json: \"x\""), "22P02");
        check(ran("Error parsing timestamp from '2024-13-01' using format '%Y-%m-%d': input is out of range"), "22008");
        check(Error::invalid("Invalid input syntax for type interval: \"foo\""), "22007");
        check(
            Error::invalid("Cannot infer common argument type for logical boolean operation Int64 AND Boolean"),
            "42804",
        );
        check(Error::invalid("Cannot infer common argument type for comparison operation Date32 = Int64"), "42883");
        check(Error::invalid("Cannot get result type for temporal operation Date32 * Int64: x"), "42883");
        check(Error::invalid("Unsupported CAST from Boolean to Decimal128(38, 10)"), "42846");
        check(ran("Compute error: Timestamp out of range"), "22008");
        check(ran("Day value '-1' is out of range"), "22008");
        check(ran("input of `2` is out of range for an angle"), "22003");
        check(Error::invalid("there is no function `nothing` of the product"), "42883");
        check(Error::invalid("there is no setting `nothing`"), "42704");
        check(ran("time field value out of range: 25:00:00"), "22008");
        check(ran("Cannot cast string '25:00' to value of Time64(ns) type"), "22007");
        check(ran("Compute error: Quarter does not support: Interval(MonthDayNano)"), "0A000");
        check(
            Error::invalid("No function matches the given name and argument types 'coalesce(Int64, Boolean)'"),
            "42804",
        );
        check(
            Error::invalid("No function matches the given name and argument types 'nullif(Int64, Boolean)'"),
            "42883",
        );
        check(Error::invalid("OVER specified, but lower is not a window function nor an aggregate function"), "42809");
        check(Error::invalid("column \"n\" of a `SEARCH` or `CYCLE` is not in the WITH query"), "42703");
        check(Error::invalid("column \"n\" of a `SEARCH` or `CYCLE` is named more than once"), "42701");
        check(Error::invalid("anything else"), "42000");
        check(Error::new(ErrorKind::LimitExceeded, "x"), "54000");
        check(Error::new(ErrorKind::Unavailable, "x"), "53000");
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        check(Error::new(ErrorKind::Unavailable, "x").with_source(full), "53100");
        let mut out = BytesMut::new();
        Fault::new("XX000", "a".repeat(100_000)).write(&mut out);
        assert!(out.len() < 2000 && out[0] == b'E');
    }

    /// Would fail if a position quoted from a value were taken for one in the statement.
    #[test]
    fn places_lie_in_the_statement() {
        let place = |text: &str, statement: &str| Fault::of(&Error::invalid(text), statement).position;
        for (text, statement, expected) in [
            ("no at line 1, column 1", "x", Some(1)),
            ("no at line 1, column 2", "x", Some(2)),
            ("no at line 1, column 3", "x", None),
            ("no at line 1, column 0", "x", None),
            ("no at line 0, column 1", "x", None),
            ("no at line 3, column 2", "é\r\n\nüx", Some(6)),
            ("no at line 9, column 1", "a\nb", Some(4)),
            ("no at line 9, column 9", "a\nb", None),
            ("no ` at line 2, column 18446744073709551615`", "a\nb", None),
            ("no ` at line 18446744073709551615, column 1`", "a\nb", Some(4)),
            ("no ` at line 18446744073709551616, column 1`", "a\nb", None),
            ("no at line 1 column 1", "x", None),
            ("no", "x", None),
        ] {
            assert_eq!(place(text, statement), expected, "{text} in {statement:?}");
        }
    }

    /// A text that contains another one must come before it, or it is never found.
    #[test]
    fn every_text_has_its_own_code() {
        for (said, code) in CODES {
            assert!(code.len() == 5 && code.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()), "{code}");
            // Classes for success, warnings and no data are not errors.
            assert!(!matches!(&code[..2], "00" | "01" | "02"), "{said}: {code}");
            for kind in [ErrorKind::Invalid, ErrorKind::Execution] {
                let fault = Fault::of(&Error::new(kind, format!("before {said} behind")), "");
                assert_eq!((fault.code, fault.position), (code, None), "{said}");
            }
            // For other kinds of errors the kind decides, whatever the text says.
            assert_eq!(Fault::of(&Error::new(ErrorKind::Timeout, said), "").code, "57014");
        }
    }

    #[test]
    fn what_is_sent_is_one_message_of_fields() {
        let sent = |fault: &Fault| -> Vec<(char, String)> {
            let mut out = BytesMut::new();
            fault.write(&mut out);
            assert_eq!(out[0], b'E');
            assert_eq!(u32::from_be_bytes(out[1..5].try_into().unwrap()) as usize, out.len() - 1);
            let body = std::str::from_utf8(&out[5..]).unwrap().strip_suffix("\0\0").expect("an end");
            let field = |field: &str| (char::from(field.as_bytes()[0]), field[1..].to_owned());
            body.split('\0').map(field).collect()
        };
        let pair = |kind: char, text: &str| (kind, text.to_owned());
        let (error, fatal) = (Fault::new("22023", "a\0b"), Fault::protocol("no"));
        assert_eq!(sent(&error), [pair('S', "ERROR"), pair('V', "ERROR"), pair('C', "22023"), pair('M', "a\u{fffd}b")]);
        assert_eq!(sent(&fatal), [pair('S', "FATAL"), pair('V', "FATAL"), pair('C', "08P01"), pair('M', "no")]);
        assert!(fatal.is_fatal() && Fault::of_ended_account().is_fatal() && !error.is_fatal());
        let mut notice = BytesMut::new();
        Fault::warning("25P01", "no").write(&mut notice);
        assert!(notice[0] == b'N' && notice.ends_with(b"C25P01\0Mno\0\0"), "{notice:?}");
        let placed = Fault::of(&Error::invalid("no at line 1, column 2"), "xy");
        assert_eq!(sent(&placed).last(), Some(&pair('P', "2")));
        // It is cut between characters.
        let long = sent(&Fault::new("XX000", "é".repeat(MESSAGE_CHARS_MAX + 1)));
        assert_eq!(long[3].1, "é".repeat(MESSAGE_CHARS_MAX));
    }
}
