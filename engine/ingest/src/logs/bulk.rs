//! The bulk format of a search engine: pairs of an action line and a document line. A document that cannot be taken is
//! a failed item of the answer; only a broken action line fails the request.

use std::fmt::Write;

use quiver_types::LogsBatch;

use super::LogsContext;
use super::json::Cursor;
use super::lines::{Line, Lines, document};
use super::options::Defaults;
use super::report::{Dropped, Report};
use super::rows::Rows;
use crate::error::{Error, Result};

/// An action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Create,
    Index,
    Update,
    Delete,
}

impl Action {
    const ALL: [(&'static str, Self); 4] =
        [("create", Self::Create), ("index", Self::Index), ("update", Self::Update), ("delete", Self::Delete)];
}

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Taken,
    Dropped(Dropped),
    Unsupported,
}

/// Decodes a bulk request, in any pieces.
#[derive(Debug)]
pub struct Bulk {
    lines: Lines,
    rows: Rows,
    action: Option<Action>,
    items: Vec<(Action, Outcome)>,
}

impl Bulk {
    /// Begins a request.
    pub fn new(ctx: &LogsContext) -> Self {
        let rows = Rows::new(ctx, Defaults::BULK);
        Self { lines: Lines::new(ctx.limits.line_bytes_max), rows, action: None, items: Vec::new() }
    }

    /// Reads a piece of the body.
    ///
    /// # Errors
    /// Invalid: a broken action line.
    pub fn feed(&mut self, data: &[u8]) -> Result<()> {
        let Self { lines, rows, action, items } = self;
        lines.feed(data, &mut |number, line| read_line(rows, action, items, number, line))
    }

    /// Reads the last line, which may lack its end.
    ///
    /// # Errors
    /// Invalid: a broken action line, or an action without its document.
    pub fn finish(&mut self) -> Result<()> {
        let Self { lines, rows, action, items } = self;
        lines.finish(&mut |number, line| read_line(rows, action, items, number, line))?;
        if self.action.is_some() {
            return Err(Error::Format(format!("the action in line {} has no document", self.lines.number)));
        }
        Ok(())
    }

    /// Takes the batches that are full.
    pub fn take_full(&mut self) -> Vec<LogsBatch> {
        self.rows.take_full()
    }

    /// Takes all batches.
    pub fn take_all(&mut self) -> Vec<LogsBatch> {
        self.rows.take_all()
    }

    /// What became of the rows.
    pub fn report(&self) -> &Report {
        &self.rows.report
    }

    /// Writes the answer: an item for each action, in order.
    pub fn answer(&self, took_ms: u64) -> String {
        let failed = |(_, outcome): &(Action, Outcome)| *outcome != Outcome::Taken;
        let mut out = String::with_capacity(64 + 32 * self.items.len());
        let errors = self.items.iter().any(failed);
        let _ = write!(out, "{{\"took\":{took_ms},\"errors\":{errors},\"items\":[");
        for (i, (action, outcome)) in self.items.iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            let word = Action::ALL[*action as usize].0;
            let _ = match outcome {
                // What was taken is a new document, whichever of the two actions brought it; the reference says so too.
                Outcome::Taken => write!(out, "{separator}{{\"create\":{{\"status\":201}}}}"),
                other => write!(
                    out,
                    "{separator}{{\"{word}\":{{\"status\":400,\"error\":{{\"type\":\"{}\",\"reason\":\"{}\"}}}}}}",
                    other.kind(),
                    other.reason(*action)
                ),
            };
        }
        out.push_str("]}");
        out
    }
}

impl Outcome {
    fn kind(self) -> &'static str {
        match self {
            Self::Unsupported => "illegal_argument_exception",
            _ => "document_parsing_exception",
        }
    }

    fn reason(self, action: Action) -> String {
        match self {
            Self::Dropped(why) => why.text().to_owned(),
            _ => format!("`{}` is not supported: logs are only added", Action::ALL[action as usize].0),
        }
    }
}

fn read_line(
    rows: &mut Rows,
    action: &mut Option<Action>,
    items: &mut Vec<(Action, Outcome)>,
    number: u64,
    line: Line<'_>,
) -> Result<()> {
    let Some(current) = action.take() else {
        let Line::Text(text) = line else {
            return Err(Error::Format(format!("line {number}: the action is too long")));
        };
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        let found = read_action(text).map_err(|what| Error::Format(format!("line {number}: {what}")))?;
        if found == Action::Delete {
            items.push((found, Outcome::Unsupported));
        } else {
            *action = Some(found);
        }
        return Ok(());
    };
    let outcome = match line {
        _ if current == Action::Update => Outcome::Unsupported,
        Line::TooLong => {
            rows.report.drop_row(Dropped::LongLine);
            Outcome::Dropped(Dropped::LongLine)
        }
        Line::Text(text) => match document(rows, &mut Cursor::new(text)) {
            // A row out of its time is dropped without a word to the sender, who would send it again for ever.
            Ok(Err(why)) if why.is_fault() => Outcome::Dropped(why),
            Ok(_) => Outcome::Taken,
            Err(_) => {
                rows.report.drop_row(Dropped::Unreadable);
                Outcome::Dropped(Dropped::Unreadable)
            }
        },
    };
    items.push((current, outcome));
    Ok(())
}

/// Reads an action line: an object with one member, whose name is the action and whose value an object.
fn read_action(line: &str) -> Result<Action, String> {
    let mut json = Cursor::new(line);
    let mut found = None;
    let mut read = || {
        json.expect(b'{', "expected an action")?;
        let mut first = true;
        while json.next_key(first)? {
            let name = json.text_rest()?.text();
            json.expect(b':', "expected `:`")?;
            if !first {
                return Err(json.fault("expected one action"));
            }
            first = false;
            found = Action::ALL.iter().find(|(word, _)| *word == name).map(|(_, action)| *action);
            if found.is_none() {
                return Err(json.fault("expected `create`, `index`, `update` or `delete`"));
            }
            if json.peek() != b'{' {
                return Err(json.fault("expected an object"));
            }
            json.skip()?;
        }
        if json.at_end() { Ok(()) } else { Err(json.fault("unexpected text after the action")) }
    };
    read().map_err(|fault| format!("{} at offset {}", fault.what, fault.offset))?;
    found.ok_or_else(|| "expected an action".to_owned())
}
