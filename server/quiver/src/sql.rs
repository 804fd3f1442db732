//! `quiver sql`: runs a query on a running server or on the data directory of a stopped one.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use quiver_api::sql_forms::{Form, Writer};
use quiver_query::QueryContext;
use quiver_query::tables::DomainAccess;
use quiver_sql::{Answer, Params, Request, Session, place_of};
use quiver_types::{Access, Error, ErrorKind, Result, SystemClock};
use serde_json::{Value, json};

use crate::server_client::{Remote, RemoteRows};
use crate::settings::Settings;
use crate::wiring;

mod table;

use table::Table;

/// A query.
#[derive(Debug, Clone)]
pub struct QueryRequest {
    /// The SQL text; parameters are `$1` or `$name`.
    pub statement: String,
    /// Values of the parameters: a JSON list or object.
    pub params: Option<Value>,
    /// Time zone for output.
    pub time_zone: Option<String>,
    /// Output format; `None`: a table.
    pub form: Option<Form>,
}

/// Writes the rows.
enum RowOutput<'w> {
    Table(Table<'w>),
    Form(Box<Writer>, &'w mut dyn Write),
}

impl<'w> RowOutput<'w> {
    fn new(form: Option<Form>, schema: &SchemaRef, to: &'w mut dyn Write) -> Result<Self> {
        Ok(match form {
            None => Self::Table(Table::new(Arc::clone(schema), to)),
            Some(form) => Self::Form(Box::new(Writer::new(form, schema)?), to),
        })
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Table(table) => table.rows(batch),
            Self::Form(writer, to) => to.write_all(&writer.batch(batch)?).map_err(unwritten),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Table(table) => table.end(),
            Self::Form(writer, to) => to.write_all(&writer.end(&json!({}))?).map_err(unwritten),
        }
    }
}

/// A closed pipe is no failure: `head` ends its pipe like that.
pub(crate) fn unwritten(error: std::io::Error) -> Error {
    let kind = if error.kind() == std::io::ErrorKind::BrokenPipe { ErrorKind::Cancelled } else { ErrorKind::Internal };
    Error::new(kind, "cannot write the answer").with_source(error)
}

/// Runs a query on a running server.
///
/// # Errors
/// Unavailable: the server cannot be reached. Execution: the error that the server returned.
pub async fn ask_server(asked: &QueryRequest, remote: &Remote<'_>, to: &mut dyn Write) -> Result<()> {
    let body = json!({"query": asked.statement, "params": asked.params, "time_zone": asked.time_zone});
    // Rows are fetched as Arrow and formatted here, so that the output is the same as that of a data directory.
    let mut rows = match remote.sql(&body).await? {
        RemoteRows::Rows(rows) => rows,
        RemoteRows::Plan(plan) => return shown(&plan, to),
    };
    let mut next = rows.next().await?;
    let schema = rows.schema().ok_or_else(|| Error::internal("the server's answer has no columns"))?;
    let mut out = RowOutput::new(asked.form, &schema, to)?;
    while let Some(batch) = next {
        out.rows(&batch)?;
        next = rows.next().await?;
    }
    out.end()
}

/// Runs a query on the data directory of a stopped server, read-only.
///
/// # Errors
/// Conflict: a server uses it. NotFound: it does not exist. Those of the statement.
pub async fn ask_at_rest(asked: &QueryRequest, settings: &Settings, to: &mut dyn Write) -> Result<()> {
    if !Path::new(&settings.store.data).join("wal").is_dir() {
        return Err(Error::new(ErrorKind::NotFound, format!("`{}` is no data directory", settings.store.data)));
    }
    let at_rest = wiring::at_rest(settings, Arc::new(SystemClock)).await?;
    let request = Request {
        text: asked.statement.clone(),
        params: asked.params.as_ref().map(Params::of_json).transpose()?.unwrap_or_default(),
        time_zone: asked.time_zone.clone(),
        session: Session::of("operator"),
        ..Request::default()
    };
    let ctx = QueryContext::new(Access::full(), at_rest.limits.clone());
    let mut rows = match at_rest.sql.query(request, &DomainAccess::full(), &ctx).await? {
        Answer::Plan(plan) => return shown(&plan, to),
        Answer::Rows(rows) => rows,
    };
    let mut out = RowOutput::new(asked.form, &rows.schema(), to)?;
    while let Some(batch) = rows.next().await? {
        out.rows(&batch)?;
    }
    out.end()
}

fn shown(plan: &Value, to: &mut dyn Write) -> Result<()> {
    writeln!(to, "{plan:#}").map_err(unwritten)
}

/// The line of a statement that an error refers to, with a mark below the position.
pub fn place(error: &Error, statement: &str) -> Option<String> {
    let (line, column) = place_of(error)?;
    let text = statement.lines().nth(line.checked_sub(1)?)?;
    let before: String =
        text.chars().take(column.checked_sub(1)?).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    Some(format!("{text}\n{before}^"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_marked() {
        let error = Error::invalid("there is no column `x` at line 2, column 3; did you mean `y`?");
        assert_eq!(place(&error, "select\n  x from logs").unwrap(), "  x from logs\n  ^");
        assert_eq!(place(&Error::invalid("something"), "select 1"), None);
        assert_eq!(place(&error, "one line"), None);
    }

    #[test]
    fn marks_stand_below_what_they_mean() {
        for (told, statement, expected) in [
            ("x at line 1, column 1", "select 1", Some("select 1\n^")),
            ("x at line 1, column 8; y", "select 1", Some("select 1\n       ^")),
            // The tab is repeated, so that the terminal gives it the same width in both lines.
            ("x at line 1, column 3", "\ta b", Some("\ta b\n\t ^")),
            ("x at line 1, column 5", "äöü x", Some("äöü x\n    ^")),
            // The end of the statement is a position, too.
            ("x at line 2, column 9", "a\nbc", Some("bc\n  ^")),
            ("`a at line 9, column 9` at line 1, column 2", "ab", Some("ab\n ^")),
            ("x at line 0, column 1", "ab", None),
            ("x at line 1, column 0", "ab", None),
            ("x at line 3, column 1", "a\nb", None),
            ("x at line one, column 1", "ab", None),
            ("x at line 1", "ab", None),
        ] {
            assert_eq!(place(&Error::invalid(told), statement).as_deref(), expected, "{told}");
        }
    }

    /// `quiver sql … | head` is no failure; a full disk is.
    #[test]
    fn who_takes_nothing_more() {
        use std::io::ErrorKind as Io;
        for (io, expected) in [
            (Io::BrokenPipe, ErrorKind::Cancelled),
            (Io::StorageFull, ErrorKind::Internal),
            (Io::Other, ErrorKind::Internal),
        ] {
            assert_eq!(unwritten(io.into()).kind, expected, "{io:?}");
        }
    }
}
