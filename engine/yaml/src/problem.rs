//! What is wrong with a text: where, in what, and why.

use std::fmt;

/// The stable word for a problem; the API shows it as `code` of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The text is no YAML, or more of it than is read.
    Malformed,
    /// Something must be there.
    Required,
    /// A field that nobody knows.
    UnknownField,
    /// A list where a text is wanted, and the like.
    InvalidType,
    /// A word or combination that is not allowed.
    InvalidValue,
    /// A number beyond its bounds.
    OutOfRange,
    /// An expression that does not parse.
    InvalidExpr,
    /// A regular expression that does not compile.
    InvalidRegex,
    /// A template that does not parse.
    InvalidTemplate,
    /// A matcher that does not parse.
    InvalidMatcher,
    /// A duration that does not parse.
    InvalidDuration,
    /// A name that is not there.
    UnknownReference,
    /// Two of what may be there once.
    Duplicate,
}

impl Code {
    /// Gives the word as the API shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "MALFORMED_YAML",
            Self::Required => "REQUIRED",
            Self::UnknownField => "UNKNOWN_FIELD",
            Self::InvalidType => "INVALID_TYPE",
            Self::InvalidValue => "INVALID_VALUE",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::InvalidExpr => "INVALID_EXPR",
            Self::InvalidRegex => "INVALID_REGEX",
            Self::InvalidTemplate => "INVALID_TEMPLATE",
            Self::InvalidMatcher => "INVALID_MATCHER",
            Self::InvalidDuration => "INVALID_DURATION",
            Self::UnknownReference => "UNKNOWN_REFERENCE",
            Self::Duplicate => "DUPLICATE",
        }
    }
}

/// A place in a text, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Character within the line, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Something that is wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Problem {
    /// Where it stands; of what is missing: what should hold it.
    pub place: Place,
    /// JSON pointer of the field.
    pub path: String,
    /// The stable word for the kind of problem, for programs.
    pub code: Code,
    /// The reason, without the place.
    pub message: String,
}

/// Problems as they are found, at most [`PROBLEMS_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    found: Vec<Problem>,
    fields: UnknownFields,
}

/// What fields that nobody knows are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// Problems: each is told.
    #[default]
    Refused,
    /// Nothing: a younger Prometheus may know them.
    Ignored,
}

/// Most problems that are told of one text.
pub const PROBLEMS_MAX: usize = 100;

impl Problems {
    /// Begins a list, which takes fields that nobody knows as it is told.
    pub fn with(fields: UnknownFields) -> Self {
        Self { found: Vec::new(), fields }
    }

    /// Adds one; those beyond the bound are left out.
    pub fn push(&mut self, problem: Problem) {
        let ignored = problem.code == Code::UnknownField && self.fields == UnknownFields::Ignored;
        if !ignored && self.found.len() < PROBLEMS_MAX {
            self.found.push(problem);
        }
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Gives how many there are.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Walks them in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.found.iter()
    }

    /// Gives the value, or what is wrong with it.
    ///
    /// # Errors
    /// Itself, unless empty.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { found: vec![problem], fields: UnknownFields::default() }
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.found.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.found.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: u32, code: Code) -> Problem {
        Problem { place: Place { line, column: 2 }, path: "/a".to_owned(), code, message: "is wrong".to_owned() }
    }

    #[test]
    fn so_many_are_told_and_no_more() {
        let mut problems = Problems::default();
        assert_eq!(problems.clone().or(7), Ok(7));
        for line in 1..=2 * PROBLEMS_MAX as u32 {
            problems.push(problem(line, Code::Required));
        }
        assert_eq!(problems.len(), PROBLEMS_MAX);
        assert!(problems.iter().map(|p| p.place.line).eq(1..=PROBLEMS_MAX as u32), "the first ones, in order");
        assert!((&problems).into_iter().eq(problems.iter()));
        assert_eq!(problems.clone().or(7), Err(problems));
    }

    #[test]
    fn fields_of_younger_versions_may_be_ignored() {
        let codes = [Code::UnknownField, Code::InvalidType, Code::UnknownField, Code::Duplicate];
        let kept = |mut problems: Problems| {
            for code in codes {
                problems.push(problem(1, code));
            }
            problems.iter().map(|p| p.code.as_str()).collect::<Vec<_>>()
        };
        let all = ["UNKNOWN_FIELD", "INVALID_TYPE", "UNKNOWN_FIELD", "DUPLICATE"];
        assert_eq!(kept(Problems::with(UnknownFields::Refused)), all);
        assert_eq!(kept(Problems::with(UnknownFields::Ignored)), ["INVALID_TYPE", "DUPLICATE"]);
        assert_eq!(kept(Problems::default()), all);
    }

    #[test]
    fn one_line_each() {
        let mut problems = Problems::from(problem(3, Code::Malformed));
        assert_eq!(problems.to_string(), "3:2: is wrong");
        problems.push(problem(10, Code::Required));
        assert_eq!(problems.to_string(), "3:2: is wrong\n10:2: is wrong");
        assert!(Place { line: 3, column: 9 } < Place { line: 10, column: 1 }, "by line, then by column");
    }
}
