//! Turns DataFusion's errors about a statement into ours, with line and column and a suggestion for misspelt names.

use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::tokenizer::Location;
use quiver_query::{BY_ZERO, from_datafusion, no_moment, own_error};
use quiver_types::suggestions::did_you_mean;
use quiver_types::{Error, ErrorKind, brief};
use std::fmt::Write as _;

/// An error of the parser: its text has the place, or the parser stopped there.
pub(crate) fn of_parser(error: &DataFusionError, stopped: Option<Location>) -> Error {
    let text = match error.find_root() {
        DataFusionError::SQL(inner, _) => {
            let text = inner.to_string();
            text.strip_prefix("sql parser error: ").unwrap_or(&text).to_owned()
        }
        other => other.strip_backtrace(),
    };
    if text.contains("recursion limit") {
        return Error::new(ErrorKind::LimitExceeded, TOO_DEEP);
    }
    let mut text = placed(&text);
    let behind_with = text.split_once(" in the query body, found: ").map(|(_, found)| found.to_lowercase());
    if let Some(found) = behind_with
        && ["search at ", "cycle at "].iter().any(|word| found.starts_with(*word))
    {
        return unsupported(format!(
            "`SEARCH DEPTH FIRST BY a SET b`, `SEARCH BREADTH FIRST BY a SET b` and `CYCLE a SET b USING c` are what may \
             stand behind a recursive common table: {text}"
        ));
    }
    if let Some(at) = stopped.filter(|at| at.line > 0 && !text.contains(" at line ")) {
        let _ = write!(text, " at line {}, column {}", at.line, at.column);
    }
    Error::invalid(format!("{UNREADABLE}: {text}"))
}

/// An error of a statement that is understood, and not supported.
pub(crate) fn unsupported(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, text)
}

/// An error of reading the letters of a statement.
pub(crate) fn unreadable(what: &str, at: Location) -> Error {
    Error::invalid(format!("{UNREADABLE}: {what} at line {}, column {}", at.line, at.column))
}

/// What of a statement is wrong, as far as clients tell faults apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be read.
    Syntax,
    /// It would write.
    Writes,
    /// There is no such table.
    Table,
    /// There is no such column.
    Column,
    /// There is no such function.
    Function,
    /// None of these: a limit that was reached, a type that does not fit …
    Other,
}

impl Fault {
    /// That of an error of this crate, by how each begins.
    pub fn of(error: &Error) -> Self {
        let text = error.message.as_str();
        if text.starts_with(UNREADABLE) {
            Self::Syntax
        } else if text.contains(READS_ONLY) {
            Self::Writes
        } else if text.starts_with(NO_TABLE) {
            Self::Table
        } else if text.starts_with(NO_COLUMN) {
            Self::Column
        } else if text.starts_with(NO_FUNCTION) {
            Self::Function
        } else {
            Self::Other
        }
    }
}

const UNREADABLE: &str = "cannot read the statement";
/// What each error of a statement that writes says.
pub(crate) const READS_ONLY: &str = "statements only read";
/// What is said of a statement that the parser cannot go to the end of.
pub(crate) const TOO_DEEP: &str = "the statement nests too deeply";
/// How errors begin that say which table, column, function is not there.
pub(crate) const NO_TABLE: &str = "there is no table";
pub(crate) const NO_COLUMN: &str = "there is no column";
const NO_FUNCTION: &str = "Invalid function";
/// Functions of windows alone; others of these are aggregates, too.
const OF_WINDOWS: [&str; 8] = ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead"];

/// Line and column that an error of this crate names, from 1.
pub fn place_of(error: &Error) -> Option<(usize, usize)> {
    let rest = error.message.rsplit_once(" at line ")?.1;
    let (line, rest) = rest.split_once(", column ")?;
    let column: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// ` at Line: 1, Column: 5` as `at line 1, column 5`.
fn placed(text: &str) -> String {
    text.replace(" at Line: ", " at line ").replace(", Column: ", ", column ")
}

/// An error of planning: the caller's, unless it is known to be of another kind.
pub(crate) fn of_planner(error: DataFusionError) -> Error {
    let place = error
        .diagnostic()
        .and_then(|d| d.span)
        .map_or_else(String::new, |span| format!(" at line {}, column {}", span.start.line, span.start.column));
    let suggestion = suggestion(error.find_root());
    let root = match error.find_root() {
        DataFusionError::External(_) | DataFusionError::ResourcesExhausted(_) | DataFusionError::Shared(_) => {
            return from_datafusion(error);
        }
        DataFusionError::Internal(_) => return from_datafusion(error),
        DataFusionError::Plan(text) | DataFusionError::NotImplemented(text) | DataFusionError::Execution(text) => {
            text.clone()
        }
        DataFusionError::SchemaError(inner, _) => match &**inner {
            SchemaError::FieldNotFound { field, .. } => format!("{NO_COLUMN} `{}`", field.flat_name()),
            other => other.to_string(),
        },
        // It may hold a value that a statement made of a few letters.
        DataFusionError::ArrowError(inner, _) => brief(format_args!("Arrow error: {inner}")),
        other => other.strip_backtrace(),
    };
    let windowless = without_window(&root);
    let root = match plainly(&root).trim_end_matches('.') {
        // The planner reads places in an `ORDER BY` alone.
        "invalid digit found in string" => "a constant in `ORDER BY` is the place of an output, a whole number",
        root => windowless.as_deref().unwrap_or(root),
    };
    Error::invalid(format!("{root}{place}{suggestion}")).with_source(error)
}

/// What DataFusion says of a statement, without its backtrace and what is addressed to those who make DataFusion.
fn plainly(text: &str) -> &str {
    let text = text.split("\n\nbacktrace").next().unwrap_or_default();
    // Before it stand all forms that a function has, each with what it lacks.
    let text = text.rfind("No function matches").and_then(|at| text.get(at..)).unwrap_or(text);
    text.split("\nThis issue was likely caused by a bug in DataFusion's code").next().unwrap_or_default()
}

/// What is said of a function of windows that has none: the planner looks for another of its name. None: it is another error.
fn without_window(text: &str) -> Option<String> {
    let (name, _) = text.strip_prefix(NO_FUNCTION)?.strip_prefix(" '")?.split_once('\'')?;
    OF_WINDOWS.contains(&name).then(|| format!("window function {name} requires an OVER clause"))
}

/// What the root of an error says. Values in it may take as much memory as a query: a longer text is not made.
fn said_by(root: &DataFusionError) -> String {
    match root {
        DataFusionError::ArrowError(inner, _) => brief(inner),
        DataFusionError::External(inner) => brief(inner),
        DataFusionError::NotImplemented(text) | DataFusionError::Execution(text) | DataFusionError::Plan(text) => {
            brief(text)
        }
        other => brief(other),
    }
}

/// What is wrong with a regular expression, which is drawn over several lines; none: it is another error.
fn of_pattern(root: &DataFusionError) -> Option<String> {
    let text = said_by(root);
    let (_, drawn) = text.split_once("regex parse error")?;
    let said = drawn.lines().find_map(|line| line.trim().strip_prefix("error: "));
    let said = said.map_or_else(String::new, |said| format!(": {said}"));
    Some(format!("a regular expression cannot be read{said}"))
}

/// An error of running: what the data made of a function or a cast is the caller's.
pub(crate) fn of_run(error: DataFusionError) -> Error {
    if own_error(&error).is_some() {
        return from_datafusion(error);
    }
    let root = error.find_root();
    if let Some(text) = of_pattern(root) {
        return Error::new(ErrorKind::Execution, text).with_source(error);
    }
    let text = match root {
        DataFusionError::ArrowError(inner, _) => of_arrow(inner),
        // Aggregates look at their constants when they begin to run.
        DataFusionError::NotImplemented(text) => {
            of_frames(text).or_else(|| no_moment(text)).unwrap_or_else(|| brief(text))
        }
        DataFusionError::Execution(text) | DataFusionError::Plan(text) => {
            no_moment(text).unwrap_or_else(|| brief(text))
        }
        _ => return from_datafusion(error),
    };
    Error::new(ErrorKind::Execution, text).with_source(error)
}

/// What is said of values that arrow cannot work with.
fn of_arrow(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => BY_ZERO.to_owned(),
        ArrowError::CastError(text) | ArrowError::ParseError(text) => no_moment(text).unwrap_or_else(|| brief(error)),
        other => {
            let text = brief(other);
            no_moment(&text).unwrap_or(text)
        }
    }
}

/// What is said of an aggregate that cannot leave a value out again; none: it is another error.
fn of_frames(text: &str) -> Option<String> {
    if !text.contains("can not be used as a sliding accumulator") {
        return None;
    }
    let (_, call) = text.split_once("is not implemented: ")?;
    let name = call.split('(').next().unwrap_or_default();
    Some(format!("`{name}` takes no frame whose beginning moves: let it begin with `UNBOUNDED PRECEDING`"))
}

fn suggestion(root: &DataFusionError) -> String {
    let DataFusionError::SchemaError(inner, _) = root else { return String::new() };
    let SchemaError::FieldNotFound { field, valid_fields } = &**inner else { return String::new() };
    let names = valid_fields.iter().map(|column| column.name.as_str());
    did_you_mean(&field.name, names)
}

#[cfg(test)]
mod tests {
    use datafusion::common::Column;
    use datafusion::sql::sqlparser::parser::ParserError;

    use super::*;

    #[test]
    fn errors_of_the_parser_have_one_place() {
        let sql = |error: ParserError| DataFusionError::SQL(Box::new(error), None);
        let said = |text: &str, stopped: Option<(u64, u64)>| {
            let stopped = stopped.map(|(line, column)| Location { line, column });
            of_parser(&sql(ParserError::ParserError(text.to_owned())), stopped).message
        };
        for (text, stopped, expected) in [
            // Where the parser says where, it stands further on.
            ("Expected: x, found: y at Line: 2, Column: 7", Some((9, 9)), "Expected: x, found: y at line 2, column 7"),
            ("it ends", Some((3, 4)), "it ends at line 3, column 4"),
            ("it ends", Some((0, 0)), "it ends"),
            ("it ends", None, "it ends"),
        ] {
            assert_eq!(said(text, stopped), format!("cannot read the statement: {expected}"));
        }
        let tokens = of_parser(&sql(ParserError::TokenizerError("a letter".to_owned())), None);
        assert_eq!((tokens.kind, Fault::of(&tokens)), (ErrorKind::Invalid, Fault::Syntax));
        let deep = of_parser(&sql(ParserError::RecursionLimitExceeded), Some(Location { line: 1, column: 2 }));
        assert_eq!((deep.kind, deep.message.as_str()), (ErrorKind::LimitExceeded, TOO_DEEP));
        let cycle = sql(ParserError::ParserError(
            "Expected: SELECT, VALUES, or a subquery in the query body, found: CYCLE at Line: 1, Column: 71".to_owned(),
        ));
        let cycle = of_parser(&cycle, None);
        assert_eq!((cycle.kind, place_of(&cycle)), (ErrorKind::Unsupported, Some((1, 71))));
        let letter = unreadable("no such letter", Location { line: 4, column: 1 });
        assert_eq!(place_of(&letter), Some((4, 1)));
    }

    #[test]
    fn columns_that_may_have_been_meant() {
        let missing = |field: Column, known: &[&str]| {
            let valid_fields = known.iter().map(|name| Column::new_unqualified(*name)).collect();
            let inner = SchemaError::FieldNotFound { field: Box::new(field), valid_fields };
            of_planner(DataFusionError::SchemaError(Box::new(inner), Box::new(None)))
        };
        for (field, known, expected) in [
            (Column::new_unqualified("nme"), &["cpu", "name"][..], "`nme`; did you mean `name`?"),
            (Column::new(Some("h"), "Nam"), &["name"][..], "`h.Nam`; did you mean `name`?"),
            (Column::new_unqualified("zzz"), &["cpu", "name"][..], "`zzz`"),
            (Column::new_unqualified("nme"), &[][..], "`nme`"),
        ] {
            let error = missing(field, known);
            assert_eq!((error.kind, Fault::of(&error)), (ErrorKind::Invalid, Fault::Column));
            assert_eq!(error.message, format!("there is no column {expected}"));
        }
    }

    #[test]
    fn places_are_written_our_way() {
        assert_eq!(placed("Expected: x, found: y at Line: 2, Column: 7"), "Expected: x, found: y at line 2, column 7");
    }

    #[test]
    fn faults_of_the_data_are_the_callers() {
        let divide = of_run(DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None));
        assert_eq!((divide.kind, divide.message.as_str()), (ErrorKind::Execution, BY_ZERO));
        let date = ArrowError::CastError("Cannot cast string '2024-02-30' to value of Date32 type".into());
        let date = of_run(DataFusionError::ArrowError(Box::new(date), None));
        assert_eq!(date.message, "date/time field value out of range: \"2024-02-30\"");
        let constant = DataFusionError::Plan("a percentile is between 0 and 1".into());
        assert_eq!(of_run(constant).kind, ErrorKind::Execution);
        let own = DataFusionError::External(Box::new(Error::new(ErrorKind::Timeout, "late")));
        assert_eq!(of_run(own).kind, ErrorKind::Timeout);
        let frame = "Aggregate can not be used as a sliding accumulator because `retract_batch` is not implemented: \
                     mode(t.x) ORDER BY [t.x ASC NULLS LAST] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW";
        let frame = of_run(DataFusionError::NotImplemented(frame.to_owned()));
        let said = "`mode` takes no frame whose beginning moves: let it begin with `UNBOUNDED PRECEDING`";
        assert_eq!((frame.kind, frame.message.as_str()), (ErrorKind::Execution, said));
        assert_eq!(of_run(DataFusionError::NotImplemented("another".to_owned())).message, "another");
    }
    #[test]
    fn patterns_of_rows_are_the_callers() {
        let said = std::io::Error::other("regex parse error:\n    (?1)b\n      ^\nerror: unrecognized flag");
        let error = of_run(DataFusionError::External(Box::new(said)));
        let named = "a regular expression cannot be read: unrecognized flag";
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Execution, named));
        let drawn =
            "did not compile: Syntax(\n~~~\nregex parse error:\n    a(?=b)\n     ^^^\nerror: no look-around\n~~~)";
        let error = of_run(DataFusionError::ArrowError(Box::new(ArrowError::ComputeError(drawn.into())), None));
        let named = "a regular expression cannot be read: no look-around";
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Execution, named));
        // What is ours has its kind, whatever it says.
        let own = Error::new(ErrorKind::LimitExceeded, "regex parse error");
        assert_eq!(of_run(DataFusionError::External(Box::new(own))).kind, ErrorKind::LimitExceeded);
        let other = std::io::Error::other("a disk is gone");
        assert_eq!(of_run(DataFusionError::External(Box::new(other))).kind, ErrorKind::Internal);
    }

    #[test]
    fn functions_of_windows_have_one() {
        let said = |text: &str| of_planner(DataFusionError::Plan(text.to_owned())).message;
        let known = "Invalid function 'row_number'.\nDid you mean 'row_number'?";
        assert_eq!(said(known), "window function row_number requires an OVER clause");
        let unknown = said("Invalid function 'row_numbers'.\nDid you mean 'row_number'?");
        assert!(unknown.starts_with("Invalid function 'row_numbers'"), "{unknown}");
    }

    #[test]
    fn texts_are_the_callers_own() {
        let text = "Internal error: Function 'round' failed to match any signature, errors: Error during planning: Function \
                    'round' expects 2 arguments but received 1.\nThis issue was likely caused by a bug in DataFusion's code. \
                    Please help us. No function matches the given name and argument types 'round(Utf8)'. You might need casts.";
        let said = of_planner(DataFusionError::Plan(text.to_owned())).message;
        assert!(said.starts_with("No function matches the given name and argument types 'round(Utf8)'"), "{said}");
        let other = "no map.\nThis issue was likely caused by a bug in DataFusion's code. Please help us";
        assert_eq!(of_planner(DataFusionError::Plan(other.to_owned())).message, "no map");
        let own = DataFusionError::Internal("Function 'date_part' failed to match any signature, errors: x".to_owned());
        let error = of_planner(own);
        assert_eq!((error.kind, error.message.contains("`date_part`")), (ErrorKind::Invalid, true), "{error}");
    }

    /// Breaks if an error of the planner loses its place or its hint, or one of ours its kind.
    #[test]
    fn faults_are_told_by_how_errors_begin() {
        let fault = |text: &str| Fault::of(&Error::invalid(text));
        assert_eq!(fault("cannot read the statement: x at line 1, column 2"), Fault::Syntax);
        assert_eq!(fault("statements only read: `DROP` writes"), Fault::Writes);
        assert_eq!(fault("there is no table `x`"), Fault::Table);
        assert_eq!(fault("there is no column `x`; did you mean `y`?"), Fault::Column);
        assert_eq!(fault("Invalid function 'x'"), Fault::Function);
        assert_eq!(fault("x: there is no table"), Fault::Other);
        let place = |text: &str| place_of(&Error::invalid(text));
        assert_eq!(place("x at line 3, column 14; did you mean `y`?"), Some((3, 14)));
        assert_eq!(place("at line 1 at line 2, column 5"), Some((2, 5)));
        assert_eq!((place("x at line 3"), place("x at line a, column 1"), place("")), (None, None, None));
        let planned = of_planner(DataFusionError::Plan("it is wrong.\n\nbacktrace: here".to_owned()));
        assert_eq!((planned.kind, planned.message.as_str()), (ErrorKind::Invalid, "it is wrong"));
        let place = of_planner(DataFusionError::Plan("invalid digit found in string".to_owned())).message;
        assert_eq!(place, "a constant in `ORDER BY` is the place of an output, a whole number");
        let own = DataFusionError::External(Box::new(Error::new(ErrorKind::Forbidden, "no")));
        assert_eq!(of_planner(own.context("a table")).kind, ErrorKind::Forbidden);
    }
}
