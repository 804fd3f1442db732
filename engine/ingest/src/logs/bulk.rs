//! The bulk format of a search engine: pairs of an action line and a document line. A document that cannot be stored
//! is a failed item of the response; only an invalid action line fails the request.

mod answer;

pub use answer::BulkAnswer;
use answer::Item;
use quiver_types::LogsBatch;

use super::LogsContext;
use super::json::Cursor;
use super::lines::{Line, Lines, document};
use super::options::Defaults;
use super::row_counts::{DropReason, Report};
use super::rows::Rows;
use crate::error::{Error, Result};

/// The most actions of a request. Until the response is sent, each takes one byte.
const ITEMS_MAX: usize = 4 << 20;

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

/// The result of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Taken,
    Dropped(DropReason),
    Unsupported,
}

/// The items of the response so far.
#[derive(Debug, Default)]
struct Items(Vec<Item>);

impl Items {
    fn push(&mut self, action: Action, outcome: Outcome) -> Result<()> {
        if self.0.len() == ITEMS_MAX {
            return Err(Error::TooMany { what: "actions of a request", limit: ITEMS_MAX });
        }
        self.0.push(Item::of(action, outcome));
        Ok(())
    }
}

/// Decodes a bulk request that arrives in pieces.
#[derive(Debug)]
pub struct Bulk {
    lines: Lines,
    rows: Rows,
    action: Option<Action>,
    items: Items,
}

impl Bulk {
    /// Begins a request, whose body is passed to `feed`.
    pub fn new(ctx: &LogsContext) -> Self {
        let rows = Rows::new(ctx, Defaults::BULK);
        Self { lines: Lines::new(ctx.limits.line_bytes_max), rows, action: None, items: Items::default() }
    }

    /// Reads a piece of the body.
    ///
    /// # Errors
    ///
    /// Invalid: an invalid action line.
    pub fn feed(&mut self, data: &[u8]) -> Result<()> {
        let Self { lines, rows, action, items } = self;
        lines.feed(data, &mut |number, line| read_line(rows, action, items, number, line))
    }

    /// Reads the last line, which need not end in a line break.
    ///
    /// # Errors
    ///
    /// Invalid: an invalid action line, or an action without its document.
    pub fn finish(&mut self) -> Result<()> {
        let Self { lines, rows, action, items } = self;
        lines.finish(&mut |number, line| read_line(rows, action, items, number, line))?;
        if self.action.is_some() {
            return Err(Error::Format(format!("the action in line {} has no document", self.lines.number)));
        }
        Ok(())
    }

    /// Takes the batches that are full; the one that is being filled stays.
    pub fn take_full(&mut self) -> Vec<LogsBatch> {
        self.rows.take_full()
    }

    /// Takes all batches, including the one that is not full.
    pub fn take_all(&mut self) -> Vec<LogsBatch> {
        self.rows.take_all()
    }

    /// Counts of stored and dropped rows.
    pub fn report(&self) -> &Report {
        &self.rows.report
    }

    /// Whether there were rows, and the sender may write none of them.
    pub fn all_forbidden(&self) -> bool {
        let forbidden = |item: &Item| item.is_forbidden();
        !self.items.0.is_empty() && self.items.0.iter().all(forbidden)
    }

    /// Bytes that are held for the response.
    pub fn kept_bytes(&self) -> usize {
        self.items.0.capacity() * size_of::<Item>()
    }

    /// Approximate bytes of the rows that are not in a full batch.
    pub fn open_bytes(&self) -> usize {
        self.rows.open_bytes()
    }

    /// Bytes that the request adds to each row, about.
    pub fn added_bytes(&self) -> usize {
        self.rows.added_bytes()
    }

    /// The response: an item for each action, in order.
    pub fn into_answer(self, took_ms: u64) -> BulkAnswer {
        BulkAnswer::new(self.items.0, took_ms)
    }
}

fn read_line(
    rows: &mut Rows,
    action: &mut Option<Action>,
    items: &mut Items,
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
            items.push(found, Outcome::Unsupported)?;
        } else {
            *action = Some(found);
        }
        return Ok(());
    };
    let outcome = match line {
        _ if current == Action::Update => Outcome::Unsupported,
        Line::TooLong => {
            rows.report.drop_row(DropReason::LongLine);
            Outcome::Dropped(DropReason::LongLine)
        }
        Line::Text(text) => match document(rows, &mut Cursor::new(text)) {
            // A row outside of the retention is dropped, but reported as stored: the sender would retry it forever.
            Ok(Err(why)) if why.is_fault() => Outcome::Dropped(why),
            Ok(_) => Outcome::Taken,
            Err(_) => {
                rows.report.drop_row(DropReason::Unreadable);
                Outcome::Dropped(DropReason::Unreadable)
            }
        },
    };
    items.push(current, outcome)
}

/// Parses an action line: an object whose first member is named after the action and is an object. Others behind it are
/// passed over, as Elasticsearch 8 does (winston's transport counts its attempts there), unless they are actions.
fn read_action(line: &str) -> Result<Action, String> {
    let mut json = Cursor::new(line);
    let mut found = None;
    let mut read = || {
        json.expect(b'{', "expected an action")?;
        let mut first = true;
        while json.next_key(first)? {
            let name = json.text_rest()?.text();
            json.expect(b':', "expected `:`")?;
            let action = Action::ALL.iter().find(|(word, _)| *word == name).map(|(_, action)| *action);
            if !first {
                if action.is_some() {
                    return Err(json.fault("expected one action"));
                }
                json.skip()?;
                continue;
            }
            first = false;
            found = action;
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
