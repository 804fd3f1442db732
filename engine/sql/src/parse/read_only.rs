//! Accepts statements that read, and refuses those of which a part writes.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    ObjectName, Query, Select, SetExpr, Statement as SqlStatement, TableFactor, Visitor,
};
use quiver_types::{Error, ErrorKind, Result};

use super::expansion_limits;
use super::nesting_limits::TABLES_MAX;
use crate::error::READS_ONLY;
use crate::names::parts;
use crate::statement_walk::walk;

#[derive(Debug, Clone)]
pub(crate) enum ReadStatement {
    /// A query, to be planned.
    Query(Box<Query>),
    /// `SHOW TABLES`.
    ShowTables,
    /// `DESCRIBE table`, `SHOW COLUMNS FROM table`.
    Describe(Vec<String>),
}

/// The error for a statement that does not only read.
pub(super) fn not_reading(what: &str) -> Error {
    Error::invalid(format!(
        "`{what}` is not allowed: {READS_ONLY}; write `SELECT`, `WITH`, `VALUES`, `EXPLAIN`, `SHOW TABLES` or `DESCRIBE`"
    ))
}

/// The first two words of a statement, to name it in errors.
fn name_of(text: &str) -> String {
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ").to_uppercase()
}

/// Converts a statement that reads.
///
/// # Errors
///
/// Invalid: it is another statement.
pub(super) fn reading(statement: DfStatement) -> Result<ReadStatement> {
    let statement = match statement {
        DfStatement::Statement(statement) => *statement,
        other => return Err(not_reading(&name_of(&other.to_string()))),
    };
    match statement {
        SqlStatement::Query(query) => Ok(ReadStatement::Query(query)),
        SqlStatement::ShowTables { .. } => Ok(ReadStatement::ShowTables),
        SqlStatement::ExplainTable { table_name, .. } => Ok(ReadStatement::Describe(parts(&table_name))),
        SqlStatement::ShowColumns { show_options, .. } => {
            let name = show_options.show_in.and_then(|show| show.parent_name).map(|name| parts(&name));
            name.map(ReadStatement::Describe).ok_or_else(|| Error::invalid("`SHOW COLUMNS` needs `FROM` and a table"))
        }
        other => Err(not_reading(&name_of(&other.to_string()))),
    }
}

/// Finds parts of a query that write, and counts its tables: named ones, and `VALUES`.
#[derive(Default)]
struct Writes {
    named: usize,
    written: usize,
}

impl Visitor for Writes {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        if !query.locks.is_empty() {
            return ControlFlow::Break(Box::new(not_reading("FOR UPDATE")));
        }
        match &*query.body {
            SetExpr::Insert(_) => ControlFlow::Break(Box::new(not_reading("INSERT"))),
            SetExpr::Update(_) => ControlFlow::Break(Box::new(not_reading("UPDATE"))),
            SetExpr::Delete(_) => ControlFlow::Break(Box::new(not_reading("DELETE"))),
            SetExpr::Merge(_) => ControlFlow::Break(Box::new(not_reading("MERGE"))),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        match &select.into {
            Some(_) => ControlFlow::Break(Box::new(not_reading("SELECT INTO"))),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, _: &ObjectName) -> ControlFlow<Self::Break> {
        self.named += 1;
        few(self.named, "names")
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        if !matches!(factor, TableFactor::Table { .. } | TableFactor::NestedJoin { .. }) {
            self.written += 1;
        }
        few(self.written, "writes out")
    }
}

/// Continues while a statement has few tables.
fn few(tables: usize, how: &str) -> ControlFlow<Box<Error>> {
    if tables <= TABLES_MAX {
        return ControlFlow::Continue(());
    }
    let text = format!("a statement {how} at most {TABLES_MAX} tables");
    ControlFlow::Break(Box::new(Error::new(ErrorKind::LimitExceeded, text)))
}

/// Refuses a query of which a part writes, or that has too many tables.
///
/// # Errors
/// Invalid, LimitExceeded.
pub(super) fn only_reads(query: &Query) -> Result<()> {
    match walk(query, &mut Writes::default()) {
        ControlFlow::Continue(()) => expansion_limits::few_tables(query),
        ControlFlow::Break(error) => Err(*error),
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use crate::parse::{Params, parse};

    #[test]
    fn only_reading_is_allowed() {
        for (text, named) in [
            ("insert into logs values (1)", "INSERT INTO"),
            ("drop table logs", "DROP TABLE"),
            ("create table x as select 1", "CREATE TABLE"),
            ("copy logs to 'x'", "COPY LOGS"),
            ("select 1 into x", "SELECT INTO"),
            ("select 1 from logs for update", "FOR UPDATE"),
            ("set x = 1", "SET X"),
            ("explain delete from logs", "DELETE FROM"),
        ] {
            let error = parse(text, &Params::default()).expect_err(text);
            assert_eq!(error.kind, ErrorKind::Invalid, "{text}: {error}");
            assert!(error.message.contains(&format!("`{named}`")), "{text}: {error}");
        }
        for text in ["select 1", "with a as (select 1) select * from a", "values (1)", "show tables", "describe logs"] {
            parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }
}
