//! Sends results: rows as they are found, and the outcome of commands.

use arrow::array::RecordBatch;
use pgwire::messages::Message as _;
use pgwire::messages::response::{CommandComplete, TransactionStatus};
use pgwire::messages::startup::ParameterStatus;

use super::queries::statement_fault;
use super::statement_end::StatementCancellation;
use super::{Connection, OUT_BYTES, Trouble, attended};
use crate::postgres::command::{Command, DiscardTarget, Form, Motion, Prepare, SettingScope};
use crate::postgres::encode;
use crate::postgres::error::Fault;
use crate::postgres::portal::Portal;
use crate::postgres::statements::PreparedStatement;

/// Rows that are encoded at once.
pub(super) const ROWS: usize = 1024;

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Commit,
    Rollback,
}

impl Ending {
    fn tag(self) -> &'static str {
        match self {
            Self::Commit => "COMMIT",
            Self::Rollback => "ROLLBACK",
        }
    }
}

impl Connection {
    pub(super) fn complete(&mut self, tag: impl Into<String>) {
        let _ = CommandComplete::new(tag.into()).encode(&mut self.out);
    }

    /// Executes a portal; 0 rows: all of them.
    pub(super) async fn execute(&mut self, portal: &mut Portal, rows: u32) -> Result<(), Trouble> {
        let ends = matches!(portal.command, Command::Commit { .. } | Command::Rollback { .. } | Command::RollbackTo(_));
        if !ends && portal.command != Command::Empty {
            self.alive()?;
        }
        self.resolve(portal).await?;
        match portal.command.clone() {
            Command::Empty => self.say(b'I'),
            // A cursor, by its name as a portal.
            Command::Query if portal.scroll.is_some() => {
                let most = (rows > 0).then_some(rows);
                let sent = self.scrolled(portal, Motion::Forward(most), true).await?;
                if most.is_none_or(|most| sent < most as usize) {
                    self.complete(format!("SELECT {sent}"));
                } else {
                    self.say(b's');
                }
            }
            Command::Query => {
                self.open(portal).await?;
                let most = usize::try_from(rows).ok().filter(|rows| *rows > 0);
                let sent = self.rows(portal, most).await?;
                if portal.done {
                    self.complete(format!("SELECT {sent}"));
                } else {
                    self.say(b's');
                }
            }
            Command::Show(_) => {
                self.open(portal).await?;
                self.rows(portal, None).await?;
                self.complete("SHOW");
            }
            Command::Fetch(name, motion) => self.fetch(&name, motion, &portal.results).await?,
            Command::Move(name, motion) => self.pass(&name, motion).await?,
            Command::Declare(declare) => self.declare(declare, portal)?,
            Command::Prepare(prepare) => self.prepare(prepare).await?,
            Command::Copy(copy) => {
                let mut copied = Portal::new(copy.query, Command::Query);
                self.open(&mut copied).await?;
                let sent = self.lines(&mut copied, &copy.form).await?;
                self.complete(format!("COPY {sent}"));
            }
            other => self.command(other)?,
        }
        Ok(())
    }

    async fn prepare(&mut self, prepare: Prepare) -> Result<(), Trouble> {
        let Prepare { name, types, query } = prepare;
        let statement = PreparedStatement { text: query, command: Command::Query, declared: types, described: None };
        self.kept.prepare(name.clone(), statement)?;
        // Reports errors of the statement at once.
        if let Err(trouble) = self.described(&name).await {
            self.kept.close_statement(&name);
            return Err(trouble);
        }
        self.complete("PREPARE");
        Ok(())
    }

    /// Sends rows as they are found, at most `most`. Returns how many.
    pub(super) async fn rows(&mut self, portal: &mut Portal, most: Option<usize>) -> Result<usize, Trouble> {
        let Portal { run, results, done, text, .. } = portal;
        let Some(run) = run else { return Ok(0) };
        let forms = encode::forms(results, run.schema.fields().len())?;
        let ending = StatementCancellation::of(run);
        self.cancellable.runs(&ending.running);
        let mut sent = 0;
        while most.is_none_or(|most| sent < most) {
            let wanted = most.map_or(ROWS, |most| ROWS.min(most - sent));
            let next = attended(&mut self.stream, &mut self.read, &ending.running, run.next(wanted)).await?;
            let Some(batch) = next.map_err(|error| statement_fault(&error, text))? else {
                *done = true;
                run.end();
                return Ok(sent);
            };
            sent += batch.num_rows();
            self.batch(&batch, &forms, &ending, text).await?;
        }
        Ok(sent)
    }

    /// Sends the rows of a batch, few at a time, since a row may be long.
    pub(super) async fn batch(
        &mut self,
        batch: &RecordBatch,
        forms: &[bool],
        ending: &StatementCancellation,
        text: &str,
    ) -> Result<(), Trouble> {
        let mut at = 0;
        while at < batch.num_rows() {
            let rows = (batch.num_rows() - at).min(64);
            encode::rows(&batch.slice(at, rows), forms, &mut self.out)
                .map_err(|error| statement_fault(&error, text))?;
            at += rows;
            if self.out.len() >= OUT_BYTES {
                self.send(ending, text).await?;
            }
        }
        Ok(())
    }

    /// Sends all rows as `COPY` data as they are found. Returns how many.
    async fn lines(&mut self, portal: &mut Portal, form: &Form) -> Result<usize, Trouble> {
        let Portal { run, text, .. } = portal;
        let Some(run) = run else { return Ok(0) };
        encode::lines_follow(&run.schema, form, &mut self.out)?;
        let ending = StatementCancellation::of(run);
        self.cancellable.runs(&ending.running);
        let mut sent = 0;
        loop {
            let next = attended(&mut self.stream, &mut self.read, &ending.running, run.next(ROWS)).await?;
            let Some(batch) = next.map_err(|error| statement_fault(&error, text))? else {
                if form.is_binary() {
                    encode::copied_all(sent > 0, &mut self.out).map_err(|error| statement_fault(&error, text))?;
                }
                self.say(b'c');
                return Ok(sent);
            };
            let mut at = 0;
            while at < batch.num_rows() {
                let rows = (batch.num_rows() - at).min(64);
                let (piece, out) = (batch.slice(at, rows), &mut self.out);
                let written = if form.is_binary() {
                    encode::copied(&piece, sent == 0, out)
                } else {
                    encode::lines(&piece, form, out)
                };
                written.map_err(|error| statement_fault(&error, text))?;
                at += rows;
                sent += rows;
                if self.out.len() >= OUT_BYTES {
                    self.send(&ending, text).await?;
                }
            }
        }
    }

    fn command(&mut self, command: Command) -> Result<(), Trouble> {
        match command {
            Command::Begin => {
                self.transaction = TransactionStatus::Transaction;
                self.settings.begin_transaction();
                self.complete("BEGIN");
            }
            Command::Commit { chains } => self.end(Ending::Commit, chains)?,
            Command::Rollback { chains } => self.end(Ending::Rollback, chains)?,
            Command::Savepoint(_) | Command::Release(_) | Command::RollbackTo(_) => self.savepoint(command)?,
            Command::Mark(tag) => self.complete(tag),
            Command::Set(name, value) => self.set(&name, value.as_deref(), SettingScope::Connection)?,
            Command::SetLocal(name, value) => self.set(&name, value.as_deref(), SettingScope::Transaction)?,
            Command::Reset(name) => {
                match name {
                    Some(name) => {
                        self.settings.set(&name, None, SettingScope::Connection)?;
                        self.tell(&name);
                    }
                    None => self.reset(),
                }
                self.complete("RESET");
            }
            Command::Discard(what) => {
                if what == DiscardTarget::All {
                    if self.transaction != TransactionStatus::Idle {
                        return Err(Fault::new("25001", "`DISCARD ALL` stands outside of transactions").into());
                    }
                    self.kept.forget_statements();
                    self.kept.end_portals();
                    self.reset();
                    self.complete("DISCARD ALL");
                } else {
                    self.complete("DISCARD");
                }
            }
            Command::Deallocate(None) => {
                self.kept.forget_statements();
                self.complete("DEALLOCATE ALL");
            }
            Command::Deallocate(Some(name)) => {
                self.kept.statement(&name)?;
                self.kept.close_statement(&name);
                self.complete("DEALLOCATE");
            }
            Command::Close(None) => {
                self.kept.end_portals();
                self.complete("CLOSE CURSOR ALL");
            }
            Command::Close(Some(name)) => {
                if !self.kept.close_portal(&name) {
                    return Err(Fault::new("34000", format!("there is no cursor `{}`", name.escape_debug())).into());
                }
                self.complete("CLOSE CURSOR");
            }
            _ => return Err(Fault::new("XX000", "a command is none").into()),
        }
        Ok(())
    }

    /// Ends a transaction, and begins another one where the statement chains them.
    fn end(&mut self, ending: Ending, chains: bool) -> Result<(), Trouble> {
        let tag = ending.tag();
        if chains && self.transaction == TransactionStatus::Idle {
            let text = format!("{tag} AND CHAIN can only be used in transaction blocks");
            return Err(Fault::new("25P01", text).into());
        }
        // As in PostgreSQL, a transaction that failed is rolled back also by `COMMIT`, and the answer says so.
        let ending = if self.transaction == TransactionStatus::Error { Ending::Rollback } else { ending };
        let is_kept = ending == Ending::Commit;
        self.transaction = if chains { TransactionStatus::Transaction } else { TransactionStatus::Idle };
        if is_kept {
            self.kept.commit();
        } else {
            self.kept.roll_back();
        }
        self.kept.end_savepoints();
        if self.settings.end_transaction(is_kept) {
            self.tell_all();
        }
        if chains {
            self.settings.begin_transaction();
        }
        self.complete(ending.tag());
        Ok(())
    }

    /// Each statement only reads, so there is nothing to take back, but a transaction that failed goes on.
    fn savepoint(&mut self, command: Command) -> Result<(), Trouble> {
        if self.transaction == TransactionStatus::Idle {
            return Err(Fault::new("25P01", "savepoints are set and used within transactions").into());
        }
        match command {
            Command::Savepoint(name) => {
                self.kept.save(name)?;
                self.complete("SAVEPOINT");
            }
            Command::Release(name) => {
                self.kept.release_savepoint(&name)?;
                self.complete("RELEASE");
            }
            Command::RollbackTo(name) => {
                self.kept.return_to_savepoint(&name)?;
                self.transaction = TransactionStatus::Transaction;
                self.complete("ROLLBACK");
            }
            _ => return Err(Fault::new("XX000", "a savepoint is none").into()),
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Option<&str>, holds: SettingScope) -> Result<(), Trouble> {
        self.settings.set(name, value, holds)?;
        if holds == SettingScope::Transaction && self.transaction == TransactionStatus::Idle {
            Fault::warning("25P01", "SET LOCAL can only be used in transaction blocks").write(&mut self.out);
        }
        self.tell(name);
        self.complete("SET");
        Ok(())
    }

    fn reset(&mut self) {
        self.settings.reset();
        self.tell_all();
    }

    /// Reports the values of all settings that clients track.
    pub(super) fn tell_all(&mut self) {
        let all: Vec<_> = self.settings.reported().collect();
        for (name, value) in all {
            let _ = ParameterStatus::new(name.to_owned(), value).encode(&mut self.out);
        }
    }

    /// Reports the value of a setting to the client, if it is one that clients track.
    pub(super) fn tell(&mut self, name: &str) {
        let found = self.settings.reported().find(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some((name, value)) = found {
            let _ = ParameterStatus::new(name.to_owned(), value).encode(&mut self.out);
        }
    }
}
