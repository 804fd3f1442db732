//! Conversion of errors to DataFusion's and back, so that kind and message survive the trip through a plan.

use std::io;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use quiver_types::{Error, ErrorKind, brief};

use crate::time_literals::{is_beyond, is_end_of_day};

/// How a refusal begins that is due to other queries: operators know refusals by their type, so it stands in the text.
pub(crate) const CROWDED: &str = "other queries hold the memory";

/// How a refusal begins that names what takes most of the memory: up to the next colon.
pub(crate) const MOSTLY: &str = "most of the memory is for ";

/// Wraps an error so that [`from_datafusion`] finds it again.
pub fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Finds our own error inside of DataFusion's, if there is one.
pub fn own_error(error: &DataFusionError) -> Option<&Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if let Some(own) = e.downcast_ref::<Error>() {
            return Some(own);
        }
        if let Some(DataFusionError::Shared(shared)) = e.downcast_ref::<DataFusionError>() {
            cause = Some(&**shared);
            continue;
        }
        if let Some(DataFusionError::External(inner)) = e.downcast_ref::<DataFusionError>() {
            cause = Some(&**inner);
            continue;
        }
        // What it is made of is not its source.
        if let Some(inner) = e.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            cause = Some(inner);
            continue;
        }
        cause = e.source();
    }
    None
}

/// A join by other conditions than `=` whose left side does not fit runs that side a second time, to spill it; where that
/// is not to be had again (behind an exchange), DataFusion calls it a fault of its own. It is the same want of memory.
const NOT_SPILLED: &str = "Left side produced no data to spill";

const NO_MEMORY: &str = "query needs more memory than its limit allows (setting `memory.limit`)";

/// Finds our own error inside of DataFusion's; others become LimitExceeded (memory), Unavailable (memory that other
/// queries hold) or Internal.
pub fn from_datafusion(error: DataFusionError) -> Error {
    if let Some(own) = own_error(&error) {
        return own.clone();
    }
    if let DataFusionError::ResourcesExhausted(why) = error.find_root() {
        if why.starts_with(CROWDED) {
            let text = format!("{CROWDED} that this one needs (setting `memory.limit`): ask again later");
            return Error::new(ErrorKind::Unavailable, text).with_source(error);
        }
        let most = why.strip_prefix(MOSTLY).and_then(|why| why.split_once(':'));
        let text =
            most.map_or_else(|| NO_MEMORY.to_owned(), |(work, _)| format!("{NO_MEMORY}: {work} takes most of it"));
        return Error::new(ErrorKind::LimitExceeded, text).with_source(error);
    }
    if matches!(error.find_root(), DataFusionError::Internal(text) if text.contains(NOT_SPILLED)) {
        return Error::new(ErrorKind::LimitExceeded, NO_MEMORY).with_source(error);
    }
    if matches!(error.find_root(), DataFusionError::Internal(text) if text.contains("array_resize: ")) {
        return Error::invalid("`array_resize` makes no list that is shorter than one of 0 items").with_source(error);
    }
    let misfit = match error.find_root() {
        DataFusionError::Internal(text) => misfit(text),
        _ => None,
    };
    if let Some(text) = misfit {
        return Error::invalid(text).with_source(error);
    }
    Error::internal("the query failed inside of the engine").with_source(error)
}

/// Whether a query was refused memory that other queries held: without them it would have got it.
pub fn is_crowded_out(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable && error.message.starts_with(CROWDED)
}

/// What is said of a function that takes no such arguments, or of a range of another type than the value: where a function
/// has several forms, and of each range, DataFusion calls that a fault of its own. None: it is something else.
fn misfit(text: &str) -> Option<String> {
    if text.starts_with("Uncomparable values") {
        return Some("lists of lists have no order: `min` and `max` do not take them".to_owned());
    }
    if let Some((types, _)) = text.split_once(" in BETWEEN expression")
        && let Some((value, bound)) = types.strip_prefix("Failed to coerce types ").and_then(|t| t.split_once(" and "))
    {
        return Some(format!("Cannot infer common argument type for comparison operation {value} BETWEEN {bound}"));
    }
    let (before, _) = text.split_once("' failed to match any signature")?;
    let name = before.rsplit('\'').next()?;
    Some(format!("No function matches the arguments of `{name}`. You might need to add explicit type casts"))
}

/// What arrow says is wrong with texts that are no times.
const NO_TIMES: [&str; 4] = [
    "timestamp must contain at least 10 characters",
    "error parsing date",
    "invalid timestamp separator",
    "error parsing time",
];

/// PostgreSQL's name of a type of whole numbers, of what arrow calls it.
fn whole(kind: &str) -> Option<&'static str> {
    [("Int16 ", "smallint"), ("Int32 ", "integer"), ("Int64 ", "bigint")]
        .into_iter()
        .find_map(|(arrow, name)| kind.starts_with(arrow).then_some(name))
}

/// Whether a text is a whole number of any size.
fn is_whole(text: &str) -> bool {
    let digits = text.trim();
    let digits = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// What PostgreSQL says of a text that is no date or time, or a number that its type does not hold, of what arrow does;
/// none: it is another error.
pub fn no_moment(said: &str) -> Option<String> {
    let (kind, text) = if let Some((_, rest)) = said.split_once("Cannot cast string '") {
        let (text, kind) = rest.rsplit_once("' to value of ")?;
        if let Some(kind) = whole(kind).filter(|_| is_whole(text)) {
            return Some(format!("value \"{}\" is out of range for type {kind}", brief(text)));
        }
        let kind = if kind.starts_with("Date") {
            "date"
        } else if kind.starts_with("Time32") || kind.starts_with("Time64") {
            "time"
        } else {
            return None;
        };
        (kind, text)
    } else {
        let (_, rest) = said.split_once("Error parsing timestamp from '")?;
        let (text, _) = rest.rsplit_once("': ").filter(|(_, why)| NO_TIMES.contains(why))?;
        ("timestamp", text)
    };
    let shown = brief(text);
    Some(if kind == "time" && is_end_of_day(text) {
        // Arrow shows no such time, and 00:00 is another one.
        format!("times of a day end before 24:00 but in comparisons: date/time field value out of range: \"{shown}\"")
    } else if is_beyond(text) {
        format!("date/time field value out of range: \"{shown}\"")
    } else {
        format!("invalid input syntax for type {kind}: \"{shown}\"")
    })
}

/// What PostgreSQL says of a quotient by zero.
pub const BY_ZERO: &str = "division by zero";

const AT_HAND: &str = "a subquery or `LATERAL` that reads the row at hand otherwise than by `=` in its `WHERE` is not \
                       supported: join with it, and group the join";

/// Whether a rule failed that makes joins of subqueries.
fn is_joining(text: &str) -> bool {
    ["'scalar_subquery_to_join'", "'decorrelate_lateral_join'"].iter().any(|rule| text.contains(rule))
}

/// An error of making a plan ready to run: constants are evaluated there, so what a cast or a function makes of them is
/// a fault of the statement.
pub(crate) fn of_planning(error: DataFusionError) -> Error {
    let text = match error.find_root() {
        DataFusionError::ArrowError(inner, _) => match &**inner {
            ArrowError::CastError(text)
            | ArrowError::ParseError(text)
            | ArrowError::ComputeError(text)
            // A number has more digits than the decimal that it is cast to.
            | ArrowError::InvalidArgumentError(text)
            | ArrowError::ArithmeticOverflow(text) => Some(text.clone()),
            ArrowError::DivideByZero => Some(BY_ZERO.to_owned()),
            _ => None,
        },
        DataFusionError::NotImplemented(text) if text.contains("InSubquery") || text.contains("Exists") => {
            let text = "`EXISTS`, and `IN` with a subquery about the row at hand, stand in conditions of `WHERE` and `ON` only";
            Some(text.to_owned())
        }
        DataFusionError::NotImplemented(text)
            if text.contains("OuterReferenceColumn") || text.contains("ScalarSubquery") =>
        {
            Some(AT_HAND.to_owned())
        }
        DataFusionError::NotImplemented(text)
            if text.contains("Unsupported LIMIT expression") || text.contains("Unsupported OFFSET expression") =>
        {
            Some("`LIMIT` and `OFFSET` take constants".to_owned())
        }
        DataFusionError::Plan(text) if text.starts_with("LIMIT must be >=") => {
            Some("LIMIT must not be negative".to_owned())
        }
        DataFusionError::Plan(text) if text.starts_with("OFFSET must be >=") => {
            Some("OFFSET must not be negative".to_owned())
        }
        DataFusionError::NotImplemented(text) if text.contains("logical expression AggregateFunction") => {
            let text = "Aggregate functions are not allowed in `GROUP BY`, `VALUES` and conditions of joins: compute them \
                        in a subquery";
            Some(text.to_owned())
        }
        // Types make one of them of the two, which the planner then finds once.
        DataFusionError::NotImplemented(text) if text.contains("logical expression WindowFunction") => {
            let text = "one window function over a value and over its cast (`avg(x) OVER (), avg(x::float8) OVER ()`) is \
                        not supported: leave the cast out";
            Some(text.to_owned())
        }
        DataFusionError::Plan(text) | DataFusionError::Execution(text) | DataFusionError::NotImplemented(text) => {
            Some(text.clone())
        }
        // The rules that make joins of subqueries lose a column where there is no equality to join by.
        DataFusionError::SchemaError(..) if is_joining(&error.to_string()) => Some(AT_HAND.to_owned()),
        // Patterns are read then, too; their error says where in them it is wrong, over several lines.
        root if root.to_string().contains("Cannot run range queries") => {
            Some("a `RANGE` with a distance is over one key that is a number, a time or an interval".to_owned())
        }
        root if root.to_string().contains("regex parse error") => {
            Some("a regular expression cannot be read".to_owned())
        }
        _ => None,
    };
    let own = from_datafusion(error);
    match text {
        // What came from us has its kind already.
        Some(text) if own.kind == ErrorKind::Internal => {
            Error::invalid(no_moment(&text).unwrap_or(text)).with_source(own)
        }
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_that_cannot_spill_wants_memory() {
        let error = DataFusionError::Internal(format!("{NOT_SPILLED}.\nmore")).context("a join");
        assert_eq!(from_datafusion(error).kind, ErrorKind::LimitExceeded);
        assert_eq!(from_datafusion(DataFusionError::Internal("m".into())).kind, ErrorKind::Internal);
    }

    #[test]
    fn windows_over_a_cast_are_told_of_in_words() {
        let text = "Physical plan does not support logical expression WindowFunction(WindowFunction { fun: x })";
        let error = of_planning(DataFusionError::NotImplemented(text.to_owned()));
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains("leave the cast out") && !error.message.contains("fun:"), "{error}");
    }

    #[test]
    fn misplaced_aggregates_are_told_of_in_words() {
        for (text, said) in [
            (
                "logical expression AggregateFunction(AggregateFunction { func: x })",
                "Aggregate functions are not allowed",
            ),
            (
                "Unsupported LIMIT expression: Some(Alias(Alias { expr: AggregateFunction { func: x } }))",
                "take constants",
            ),
        ] {
            let error = of_planning(DataFusionError::NotImplemented(text.to_owned()));
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.contains(said) && !error.message.contains("func:"), "{error}");
        }
    }

    #[test]
    fn texts_that_are_no_times_are_told_of_as_in_postgresql() {
        for (said, expected) in [
            (
                "Cast error: Cannot cast string '2024-02-30' to value of Date32 type",
                Some("date/time field value out of range: \"2024-02-30\""),
            ),
            ("Cannot cast string 'it's' to value of Date32 type", Some("invalid input syntax for type date: \"it's\"")),
            (
                "Cannot cast string '25:00' to value of Time64(ns) type",
                Some("date/time field value out of range: \"25:00\""),
            ),
            (
                "Cannot cast string '24:00' to value of Time64(ns) type",
                Some(
                    "times of a day end before 24:00 but in comparisons: date/time field value out of range: \"24:00\"",
                ),
            ),
            ("Cannot cast string 'x' to value of Time32(s) type", Some("invalid input syntax for type time: \"x\"")),
            (
                "Parser error: Error parsing timestamp from '2024-13-01 10:00:00': error parsing date",
                Some("date/time field value out of range: \"2024-13-01 10:00:00\""),
            ),
            (
                "Error parsing timestamp from 'x': timestamp must contain at least 10 characters",
                Some("invalid input syntax for type timestamp: \"x\""),
            ),
            ("Error parsing timestamp from 'x' using format '%Y': premature end of input", None),
            ("Cannot cast string 'x' to value of Int64 type", None),
            (
                "Cannot cast string ' -99999999999' to value of Int32 type",
                Some("value \" -99999999999\" is out of range for type integer"),
            ),
            ("Cannot cast string 'x' to value of Timestamp(ns) type", None),
            ("division by zero", None),
        ] {
            assert_eq!(no_moment(said).as_deref(), expected, "{said}");
        }
        let error = ArrowError::ParseError("Error parsing timestamp from '2024-01-32': error parsing date".into());
        let found = of_planning(DataFusionError::ArrowError(Box::new(error), None));
        assert_eq!(found.message, "date/time field value out of range: \"2024-01-32\"");
    }

    #[test]
    fn no_list_is_shorter_than_none() {
        let error = DataFusionError::Internal("array_resize: failed to convert size to usize".into());
        assert_eq!(from_datafusion(error).kind, ErrorKind::Invalid);
    }

    #[test]
    fn constants_are_the_statements() {
        let cast = DataFusionError::ArrowError(Box::new(ArrowError::CastError("no number".into())), None);
        let found = of_planning(cast.context("a rule"));
        assert_eq!((found.kind, found.message.as_str()), (ErrorKind::Invalid, "no number"));
        for (inner, said) in [
            (ArrowError::DivideByZero, "division by zero"),
            (ArrowError::InvalidArgumentError("1234 is too large".into()), "1234 is too large"),
        ] {
            let found = of_planning(DataFusionError::ArrowError(Box::new(inner), None));
            assert_eq!((found.kind, found.message.as_str()), (ErrorKind::Invalid, said));
        }
        let own = to_datafusion(Error::new(ErrorKind::LimitExceeded, "much"));
        assert_eq!(of_planning(own).kind, ErrorKind::LimitExceeded);
        assert_eq!(of_planning(DataFusionError::Internal("m".into())).kind, ErrorKind::Internal);
        for text in ["logical expression OuterReferenceColumn(Field {", "logical expression ScalarSubquery(<subquery>)"]
        {
            let found = of_planning(DataFusionError::NotImplemented(text.into()));
            assert!(found.kind == ErrorKind::Invalid && found.message.contains("the row at hand"), "{found}");
        }
        assert!(is_joining("Optimizer rule 'decorrelate_lateral_join' failed") && !is_joining("no rule"));
    }

    #[test]
    fn kinds_survive() {
        let own = Error::new(ErrorKind::Execution, "many-to-many");
        let wrapped = to_datafusion(own).context("while joining");
        let back = from_datafusion(wrapped);
        assert_eq!((back.kind, back.message.as_str()), (ErrorKind::Execution, "many-to-many"));
        let written = ArrowError::from(io::Error::other(Error::new(ErrorKind::Unavailable, "full")));
        assert_eq!(from_datafusion(DataFusionError::from(written).context("a sort")).kind, ErrorKind::Unavailable);
        let shared = DataFusionError::Shared(std::sync::Arc::new(to_datafusion(Error::invalid("x"))));
        assert_eq!(from_datafusion(shared).kind, ErrorKind::Invalid);
        assert_eq!(from_datafusion(DataFusionError::ResourcesExhausted("m".into())).kind, ErrorKind::LimitExceeded);
        let crowded = DataFusionError::ResourcesExhausted(format!("{CROWDED}: m")).context("a sort");
        assert_eq!(from_datafusion(crowded).kind, ErrorKind::Unavailable);
        assert_eq!(from_datafusion(DataFusionError::Internal("m".into())).kind, ErrorKind::Internal);
    }

    #[test]
    fn arguments_that_do_not_fit_are_the_statements() {
        for (text, expected) in [
            ("Uncomparable values: List, List", "lists of lists have no order: `min` and `max` do not take them"),
            (
                "Failed to coerce types Int64 and Utf8 in BETWEEN expression",
                "Cannot infer common argument type for comparison operation Int64 BETWEEN Utf8",
            ),
            (
                "Function 'f' failed: 'power' failed to match any signature, errors: …",
                "No function matches the arguments of `power`. You might need to add explicit type casts",
            ),
        ] {
            for wraps in [false, true] {
                let error = DataFusionError::Internal(text.to_owned());
                let error = if wraps { error.context("type_coercion") } else { error };
                let found = from_datafusion(error);
                assert_eq!((found.kind, found.message.as_str()), (ErrorKind::Invalid, expected), "{text}");
            }
        }
        for text in [
            "",
            "failed to match any signature",
            "Failed to coerce types Int64 in BETWEEN expression",
            "in BETWEEN expression",
        ] {
            assert_eq!(from_datafusion(DataFusionError::Internal(text.to_owned())).kind, ErrorKind::Internal, "{text}");
        }
        let planned = DataFusionError::Plan("'f' failed to match any signature".to_owned());
        assert_eq!(from_datafusion(planned).kind, ErrorKind::Internal, "the planner's errors are `of_planning`'s");
    }

    #[test]
    fn planning_says_what_is_wrong_with_a_statement() {
        let arrow = |inner| DataFusionError::ArrowError(Box::new(inner), None);
        for (error, expected) in [
            (DataFusionError::Plan("no such column".into()), "no such column"),
            (DataFusionError::Plan("LIMIT must be >= 0, '-1' was provided".into()), "LIMIT must not be negative"),
            (DataFusionError::Plan("OFFSET must be >=0, '-1' was provided".into()), "OFFSET must not be negative"),
            (DataFusionError::Execution("no such zone".into()), "no such zone"),
            (DataFusionError::NotImplemented("no such thing".into()), "no such thing"),
            (arrow(ArrowError::ParseError("no date".into())), "no date"),
            (arrow(ArrowError::ComputeError("no number".into())), "no number"),
            (arrow(ArrowError::ArithmeticOverflow("too large".into())), "too large"),
            (
                DataFusionError::NotImplemented("Physical plan of InSubquery".into()),
                "`EXISTS`, and `IN` with a subquery about the row at hand, stand in conditions of `WHERE` and `ON` only",
            ),
            (
                DataFusionError::Internal("Cannot run range queries with more keys".into()),
                "a `RANGE` with a distance is over one key that is a number, a time or an interval",
            ),
            (DataFusionError::Internal("regex parse error:\n(\n^".into()), "a regular expression cannot be read"),
        ] {
            let found = of_planning(error.context("a rule").context("another"));
            assert_eq!((found.kind, found.message.as_str()), (ErrorKind::Invalid, expected));
        }
        for error in [arrow(ArrowError::MemoryError("m".into())), DataFusionError::Internal("m".into())] {
            assert_eq!(of_planning(error).kind, ErrorKind::Internal);
        }
        let memory = DataFusionError::ResourcesExhausted("m".into()).context("a rule");
        assert_eq!(of_planning(memory).kind, ErrorKind::LimitExceeded, "want of memory is no slip of the statement");
        let own = to_datafusion(Error::new(ErrorKind::Cancelled, "it was ended")).context("a rule");
        assert_eq!(of_planning(own).message, "it was ended");
    }

    #[test]
    fn own_errors_are_found_however_deep() {
        let own = || Error::new(ErrorKind::Timeout, "late");
        let external = |error: DataFusionError| DataFusionError::External(Box::new(error));
        let shared = |error: DataFusionError| DataFusionError::Shared(std::sync::Arc::new(error));
        let deep = external(shared(external(to_datafusion(own()).context("a")).context("b"))).context("c");
        assert_eq!(own_error(&deep).map(|error| error.kind), Some(ErrorKind::Timeout));
        let read = DataFusionError::IoError(io::Error::other(own()));
        assert_eq!(own_error(&read).map(|error| error.kind), Some(ErrorKind::Timeout));
        assert!(own_error(&DataFusionError::IoError(io::Error::other("a disk"))).is_none());
        assert!(own_error(&external(DataFusionError::Internal("m".into()))).is_none());
    }
}
