//! Cursors: `DECLARE`, `FETCH` and `MOVE`.

use pgwire::messages::response::TransactionStatus;
use quiver_types::Error;
use tokio_util::sync::CancellationToken;

use super::queries::statement_fault;
use super::results::ROWS;
use super::statement_end::StatementCancellation;
use super::{Connection, Trouble, attended, cancelled};
use crate::error::public_text;
use crate::postgres::command::{Command, Declare, Motion};
use crate::postgres::encode;
use crate::postgres::error::Fault;
use crate::postgres::portal::{CursorHoldability, Portal};
use crate::postgres::scroll::ScrollableRows;

impl Connection {
    /// Creates a cursor.
    pub(super) fn declare(&mut self, declare: Declare, portal: &mut Portal) -> Result<(), Trouble> {
        let is_alone = self.transaction == TransactionStatus::Idle;
        if is_alone && !declare.is_held {
            let text = "a cursor is declared within a transaction, or `WITH HOLD`";
            return Err(Fault::new("25P01", text).into());
        }
        let mut cursor = Portal::new(declare.query, Command::Query);
        cursor.take_params(portal);
        if declare.is_held {
            // A statement outside of a transaction is a transaction of its own, which ends with it.
            cursor.hold = if is_alone { CursorHoldability::Kept } else { CursorHoldability::Wanted };
        }
        cursor.scroll = declare.scrolls.then(ScrollableRows::default);
        self.kept.open(declare.name, cursor)?;
        self.complete("DECLARE CURSOR");
        Ok(())
    }

    /// Skips rows of a cursor.
    pub(super) async fn pass(&mut self, name: &str, motion: Motion) -> Result<(), Trouble> {
        let mut cursor = self.cursor(name, motion)?;
        // A cursor that failed is closed: it would continue after rows that the client never got.
        let passed = match motion {
            _ if cursor.scroll.is_some() => self.scrolled(&mut cursor, motion, false).await?,
            Motion::Forward(count) => self.passed(&mut cursor, count).await?,
            _ => 0,
        };
        self.kept.put(name, cursor);
        self.complete(format!("MOVE {passed}"));
        Ok(())
    }

    async fn passed(&mut self, cursor: &mut Portal, count: Option<u32>) -> Result<usize, Trouble> {
        self.open(cursor).await?;
        let most = count.map_or(usize::MAX, |count| count as usize);
        let Portal { run: Some(run), done, text, .. } = &mut *cursor else { return Ok(0) };
        let running = CancellationToken::new();
        self.cancellable.runs(&running);
        let mut passed = 0;
        while passed < most {
            let next = attended(&mut self.stream, &mut self.read, &running, run.next(ROWS.min(most - passed))).await?;
            let Some(batch) = next.map_err(|error| statement_fault(&error, text))? else {
                *done = true;
                run.end();
                break;
            };
            passed += batch.num_rows();
        }
        Ok(passed)
    }

    /// Sends rows of a cursor.
    pub(super) async fn fetch(&mut self, name: &str, motion: Motion, forms: &[i16]) -> Result<(), Trouble> {
        let mut cursor = self.cursor(name, motion)?;
        cursor.results = forms.to_vec();
        // As in `pass`.
        let sent = match motion {
            _ if cursor.scroll.is_some() => self.scrolled(&mut cursor, motion, true).await?,
            Motion::Forward(count) => self.fetched(&mut cursor, count).await?,
            _ => 0,
        };
        self.kept.put(name, cursor);
        self.complete(format!("FETCH {sent}"));
        Ok(())
    }

    async fn fetched(&mut self, cursor: &mut Portal, count: Option<u32>) -> Result<usize, Trouble> {
        self.open(cursor).await?;
        match count {
            Some(0) => Ok(0),
            count => self.rows(cursor, count.map(|count| count as usize)).await,
        }
    }

    /// Takes a cursor out that can go where it shall.
    fn cursor(&mut self, name: &str, motion: Motion) -> Result<Portal, Fault> {
        let cursor = self.kept.take(name)?;
        if cursor.scroll.is_some() || matches!(motion, Motion::Forward(_)) {
            return Ok(cursor);
        }
        self.kept.put(name, cursor);
        let text = format!(
            "cursor `{}` only goes forward, by `NEXT`, a number of rows, or `ALL`: declare it with `SCROLL`",
            name.escape_debug()
        );
        Err(Fault::new("55000", text))
    }

    /// Moves a cursor that scrolls, and sends the rows that it passes if it `shows` them. Returns how many.
    pub(super) async fn scrolled(
        &mut self,
        cursor: &mut Portal,
        motion: Motion,
        shows: bool,
    ) -> Result<usize, Trouble> {
        self.open(cursor).await?;
        self.fill(cursor, motion).await?;
        let Portal { run: Some(run), scroll: Some(scroll), results, text, .. } = &mut *cursor else { return Ok(0) };
        run.check().map_err(|error| statement_fault(&error, text))?;
        let span = scroll.move_by(motion);
        if !shows {
            return Ok(span.rows);
        }
        let forms = encode::forms(results, run.schema.fields().len())?;
        let ending = StatementCancellation::of(run);
        self.cancellable.runs(&ending.running);
        let mut sent = 0;
        while let Some(piece) = scroll.piece(span, sent, ROWS).map_err(|error| statement_fault(&error, text))? {
            // Rows that are held never wait, and may be many.
            if ending.running.is_cancelled() {
                return Err(cancelled().into());
            }
            run.check().map_err(|error| statement_fault(&error, text))?;
            sent += piece.num_rows();
            self.batch(&piece, &forms, &ending, text).await?;
        }
        Ok(sent)
    }

    /// Reads the rows that a motion of a cursor needs, and holds them in the memory of its query.
    async fn fill(&mut self, cursor: &mut Portal, motion: Motion) -> Result<(), Trouble> {
        let Portal { run: Some(run), scroll: Some(scroll), text, .. } = &mut *cursor else { return Ok(()) };
        let running = CancellationToken::new();
        self.cancellable.runs(&running);
        while scroll.lacks_rows(motion) {
            let next = attended(&mut self.stream, &mut self.read, &running, run.next(usize::MAX)).await?;
            let Some(batch) = next.map_err(|error| statement_fault(&error, text))? else {
                scroll.end();
                break;
            };
            let bytes = scroll.push(batch);
            if let Some(ctx) = run.ctx() {
                let memory = scroll.memory.get_or_insert_with(|| self.app.engines.query.collected("cursor", ctx));
                memory.add(bytes).map_err(|error| too_many(&error))?;
            }
        }
        Ok(())
    }
}

/// The rows of a cursor do not fit into the memory of its query.
fn too_many(error: &Error) -> Fault {
    let text = format!(
        "a cursor with `SCROLL` holds all rows that were read, and there is no room for more: {}; declare it without \
         `SCROLL`, or read fewer rows",
        public_text(error)
    );
    Fault::new("53200", text)
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;

    #[test]
    fn what_does_not_fit_is_said_by_name() {
        let fault = too_many(&Error::new(ErrorKind::LimitExceeded, "it holds 5 MiB"));
        assert_eq!((fault.code, fault.is_fatal()), ("53200", false));
        assert!(fault.message.contains("`SCROLL`") && fault.message.contains("it holds 5 MiB"), "{}", fault.message);
    }
}
