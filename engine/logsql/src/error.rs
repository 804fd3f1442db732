//! Errors of the language: what is wrong, where in the text, and what may have been meant.

use std::fmt;

use quiver_types::Error;

/// Result of the language's own functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where in the text of a query an error is, for those who show texts by lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryPlace {
    /// Line, from 1.
    pub line: u32,
    /// Character within the line, from 1.
    pub column: u32,
}

impl fmt::Display for QueryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {} of the query", self.line, self.column)
    }
}

impl std::error::Error for QueryPlace {}

impl QueryPlace {
    /// Gives the place that an error of the parser is about. Errors about a query as a whole have none.
    pub fn of(error: &Error) -> Option<Self> {
        error.source.as_deref().and_then(|source| source.downcast_ref::<Self>()).copied()
    }

    /// The place behind some text.
    fn behind(before: &str) -> Self {
        let line = before.rfind('\n').map_or(before, |at| &before[at + 1..]);
        Self { line: before.matches('\n').count() as u32 + 1, column: line.chars().count() as u32 + 1 }
    }
}

/// Makes an error about a place in the query. Positions in the message count characters from 0.
pub(crate) fn at(query: &str, offset: usize, message: impl AsRef<str>) -> Error {
    let before = query.get(..offset).unwrap_or(query);
    let position = before.chars().count();
    Error::invalid(format!("{} at offset {position}", message.as_ref())).with_source(QueryPlace::behind(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_know_their_line_and_column() {
        let check = |query: &str, line: u32, column: u32| {
            let error = crate::parse(query).expect_err(query);
            assert_eq!(QueryPlace::of(&error), Some(QueryPlace { line, column }), "{query}: {error}");
        };
        check("foo | sotr(x)", 1, 7);
        check("* |\n stats by (\u{e9}) cuont() x", 2, 15);
        check("a:\n\n", 3, 1);
        check("a:\"b", 1, 3);
        let whole = crate::stats_columns(&crate::parse("*").expect("a filter")).expect_err("no stats");
        assert_eq!(QueryPlace::of(&whole), None);
        let told = QueryPlace { line: 2, column: 3 }.to_string();
        assert_eq!(told, "line 2, column 3 of the query");
    }
}
