//! Parses statements that concern the connection and are not queries: transactions, settings, prepared statements,
//! cursors, and `COPY`.

use std::time::Duration;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use quiver_sql::{TEXT_BYTES_MAX, plain_literals};

use super::error::Fault;

mod copy;
mod cursors;
mod prepared;
mod settings;
mod statement_parts;

pub(super) use copy::{CopyOut, Form};
pub(super) use cursors::{Declare, Motion};
pub(super) use prepared::Prepare;
pub(super) use settings::{SettingScope, Settings};

/// A statement; except for `Query`, the connection runs it itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// Only white space and comments.
    Empty,
    /// Passed to the engine, which reports what it does not know.
    Query,
    Begin,
    /// `COMMIT` and `END`; whether another transaction begins at once (`AND CHAIN`).
    Commit {
        chains: bool,
    },
    /// `ROLLBACK` and `ABORT`; the same.
    Rollback {
        chains: bool,
    },
    /// `SAVEPOINT` and its name.
    Savepoint(String),
    /// `RELEASE`: a savepoint.
    Release(String),
    /// `ROLLBACK TO`: a savepoint.
    RollbackTo(String),
    /// A command without effect here, which is allowed in a transaction. Its command tag.
    Mark(&'static str),
    /// A setting and its value; `None`: its default.
    Set(String, Option<String>),
    /// The same until the transaction ends.
    SetLocal(String, Option<String>),
    /// A setting; `None`: all.
    Reset(Option<String>),
    /// A setting; `None`: all.
    Show(Option<String>),
    /// `DISCARD`.
    Discard(DiscardTarget),
    /// `PREPARE`.
    Prepare(Prepare),
    /// The name of a prepared statement, and a query whose only row has its values.
    Execute(String, Option<String>),
    /// A prepared statement; `None`: all.
    Deallocate(Option<String>),
    /// `DECLARE`: creates a cursor.
    Declare(Declare),
    /// A cursor and where it goes.
    Fetch(String, Motion),
    /// As `FETCH`, but the rows are skipped.
    Move(String, Motion),
    /// A cursor; `None`: all.
    Close(Option<String>),
    /// `COPY … TO STDOUT`.
    Copy(CopyOut),
}

/// The object of `DISCARD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiscardTarget {
    All,
    /// Something that does not exist here.
    Nothing,
}

fn bounded(text: &str) -> Result<(), Fault> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let text = format!("statements of {} bytes are too long, at most {TEXT_BYTES_MAX} are allowed", text.len());
    Err(Fault::new("54000", text))
}

fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, Fault> {
    let dialect = PostgreSqlDialect {};
    // The translation keeps all positions.
    let plain = plain_literals(text).map_err(|e| Fault::new("42601", e.message))?;
    let tokens = Tokenizer::new(&dialect, &plain).tokenize_with_location();
    tokens.map_err(|e| Fault::new("42601", format!("cannot read the statement: {e}")))
}

/// Splits a text at the semicolons between statements.
///
/// # Errors
/// A text that is too long, or an unterminated quote.
pub(super) fn split(text: &str) -> Result<Vec<String>, Fault> {
    bounded(text)?;
    let ends: Vec<_> = tokens(text)?
        .into_iter()
        .filter(|token| token.token == Token::SemiColon)
        .map(|token| token.span.start)
        .collect();
    let (mut parts, mut part, mut ends) = (Vec::new(), String::new(), ends.into_iter().peekable());
    let (mut line, mut column) = (1, 1);
    for letter in text.chars() {
        if ends.peek().is_some_and(|end| (end.line, end.column) == (line, column)) {
            ends.next();
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(letter);
        }
        if letter == '\n' {
            (line, column) = (line + 1, 1);
        } else {
            column += 1;
        }
    }
    parts.push(part);
    parts.retain(|part| read(part) != Ok(Command::Empty));
    Ok(parts)
}

/// The tokens of a statement.
struct Words {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Words {
    fn peek(&mut self) -> Option<String> {
        match self.tokens.peek() {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    /// Consumes the next word if it is one of these.
    fn takes(&mut self, wanted: &[&str]) -> bool {
        let found = self.peek().is_some_and(|word| wanted.contains(&word.as_str()));
        if found {
            self.tokens.next();
        }
        found
    }

    /// Consumes a name, which may be quoted.
    fn name(&mut self) -> Option<String> {
        match self.tokens.next()? {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
            Token::Word(word) => Some(word.value),
            _ => None,
        }
    }

    /// Consumes a qualified name.
    fn path(&mut self) -> Option<String> {
        let mut name = self.name()?;
        while self.tokens.peek() == Some(&Token::Period) {
            self.tokens.next();
            name = format!("{name}.{}", self.name()?);
        }
        Some(name)
    }

    /// Consumes the rest as one value; lists are separated by commas.
    fn value(&mut self) -> Option<String> {
        let mut values = Vec::new();
        loop {
            let sign = if matches!(self.tokens.peek(), Some(Token::Minus)) { self.tokens.next() } else { None };
            let value = match self.tokens.next()? {
                Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
                Token::Word(word) => word.value,
                Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text,
                Token::Number(number, _) => number,
                _ => return None,
            };
            values.push(format!("{}{value}", if sign.is_some() { "-" } else { "" }));
            match self.tokens.next() {
                None => return Some(values.join(", ")),
                Some(Token::Comma) => {}
                Some(_) => return None,
            }
        }
    }

    fn ends(&mut self) -> bool {
        self.tokens.peek().is_none()
    }
}

/// Parses a statement.
///
/// # Errors
/// A statement that begins as a command and has an invalid rest.
pub(super) fn read(text: &str) -> Result<Command, Fault> {
    bounded(text)?;
    let is_part = |t: &TokenWithSpan| !matches!(t.token, Token::Whitespace(_) | Token::SemiColon | Token::EOF);
    let tokens: Vec<TokenWithSpan> = tokens(text)?.into_iter().filter(is_part).collect();
    let begins = |word: &str| tokens.first().is_some_and(|first| statement_parts::is_word(&first.token, word));
    if begins("copy") {
        return Ok(copy::read(text, tokens)?.map_or(Command::Query, Command::Copy));
    }
    if begins("prepare") {
        return prepared::prepare(text, &tokens)?.ok_or_else(|| unread("prepare"));
    }
    if begins("execute") {
        return prepared::execute(text, &tokens).ok_or_else(|| unread("execute"));
    }
    let behind_for = if begins("declare") { cursors::behind_for(text, &tokens) } else { None };
    let tokens: Vec<Token> = tokens.into_iter().map(|token| token.token).collect();
    let mut words = Words { tokens: tokens.into_iter().peekable() };
    let Some(first) = words.peek() else {
        return Ok(if words.ends() { Command::Empty } else { Command::Query });
    };
    let known = [
        "begin",
        "start",
        "commit",
        "end",
        "rollback",
        "abort",
        "savepoint",
        "release",
        "set",
        "reset",
        "show",
        "discard",
        "deallocate",
        "declare",
        "fetch",
        "move",
        "close",
        "unlisten",
    ];
    if !known.contains(&first.as_str()) {
        return Ok(Command::Query);
    }
    words.tokens.next();
    command(&first, &mut words, behind_for)?.ok_or_else(|| unread(&first))
}

fn unread(first: &str) -> Fault {
    Fault::new("42601", format!("cannot read the statement: `{}`", first.to_uppercase()))
}

fn command(first: &str, words: &mut Words, behind_for: Option<&str>) -> Result<Option<Command>, Fault> {
    Ok(match first {
        "begin" | "start" => {
            words.takes(&["transaction", "work"]);
            modes(words, ModesOf::ThisTransaction)?.then_some(Command::Begin)
        }
        "commit" | "end" => {
            words.takes(&["transaction", "work"]);
            chains(words).map(|chains| Command::Commit { chains })
        }
        "rollback" | "abort" => {
            words.takes(&["transaction", "work"]);
            let to = words.takes(&["to"]);
            if to {
                words.takes(&["savepoint"]);
                last_name(words).map(Command::RollbackTo)
            } else {
                chains(words).map(|chains| Command::Rollback { chains })
            }
        }
        "savepoint" => last_name(words).map(Command::Savepoint),
        "release" => {
            words.takes(&["savepoint"]);
            last_name(words).map(Command::Release)
        }
        // There are no notifications.
        "unlisten" => Some(Command::Mark("UNLISTEN")),
        "set" => set(words)?,
        "reset" => {
            if words.takes(&["all"]) {
                Some(Command::Reset(None))
            } else {
                named(words).map(|name| Command::Reset(Some(name)))
            }
        }
        "show" => show(words),
        "discard" => match words.name().as_deref() {
            Some("all") => Some(Command::Discard(DiscardTarget::All)),
            Some("plans" | "sequences" | "temp" | "temporary") => Some(Command::Discard(DiscardTarget::Nothing)),
            _ => None,
        },
        "deallocate" => {
            words.takes(&["prepare"]);
            all_or_name(words).map(Command::Deallocate)
        }
        "close" => all_or_name(words).map(Command::Close),
        "fetch" => cursors::fetch(words).map(|(name, motion)| Command::Fetch(name, motion)),
        "move" => cursors::fetch(words).map(|(name, motion)| Command::Move(name, motion)),
        "declare" => cursors::declare(words, behind_for)?,
        _ => None,
    })
}

/// Of what transaction modes are set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ModesOf {
    /// It cannot write.
    ThisTransaction,
    /// They may be called writing, as by a server in recovery, which refuses each write; pools of JDBC reset them so.
    LaterTransactions,
}

/// Consumes transaction modes such as `READ WRITE` after `BEGIN`. False if something else follows.
fn modes(words: &mut Words, of: ModesOf) -> Result<bool, Fault> {
    while !words.ends() {
        let known = if words.takes(&["isolation"]) {
            words.takes(&["level"])
                && (words.takes(&["serializable"])
                    || (words.takes(&["repeatable"]) && words.takes(&["read"]))
                    || (words.takes(&["read"]) && words.takes(&["committed", "uncommitted"])))
        } else if words.takes(&["read"]) {
            let writes = words.takes(&["write"]);
            if writes && of == ModesOf::ThisTransaction {
                return Err(Fault::new("25006", "cannot begin a transaction that writes: statements only read"));
            }
            writes || words.takes(&["only"])
        } else {
            (words.takes(&["not"]) && words.takes(&["deferrable"])) || words.takes(&["deferrable"])
        };
        if !known {
            return Ok(false);
        }
        if words.tokens.peek() == Some(&Token::Comma) {
            words.tokens.next();
        }
    }
    Ok(true)
}

/// Consumes the rest of the end of a transaction: `AND CHAIN`, `AND NO CHAIN`, or nothing.
fn chains(words: &mut Words) -> Option<bool> {
    let chains = if words.takes(&["and"]) {
        let is_last = words.takes(&["no"]);
        words.takes(&["chain"]).then_some(!is_last)?
    } else {
        false
    };
    words.ends().then_some(chains)
}

/// Consumes a name that nothing follows.
fn last_name(words: &mut Words) -> Option<String> {
    let name = words.name();
    name.filter(|_| words.ends())
}

#[allow(clippy::option_option, reason = "none: neither; none within: all")]
fn all_or_name(words: &mut Words) -> Option<Option<String>> {
    let name = if words.takes(&["all"]) { None } else { Some(words.name()?) };
    words.ends().then_some(name)
}

/// Consumes the name of a setting, or the words that the SQL standard has for it.
fn named(words: &mut Words) -> Option<String> {
    let name = if words.takes(&["time"]) {
        words.takes(&["zone"]).then(|| "timezone".to_owned())
    } else if words.takes(&["transaction"]) {
        (words.takes(&["isolation"]) && words.takes(&["level"])).then(|| "transaction_isolation".to_owned())
    } else if words.takes(&["session"]) {
        words.takes(&["authorization"]).then(|| "session_authorization".to_owned())
    } else {
        words.path()
    };
    name.filter(|_| words.ends())
}

fn show(words: &mut Words) -> Option<Command> {
    if words.takes(&["all"]) {
        return Some(Command::Show(None));
    }
    // The engine runs `SHOW TABLES` and `SHOW COLUMNS FROM`.
    if matches!(words.peek().as_deref(), Some("tables" | "columns" | "full" | "extended")) {
        return Some(Command::Query);
    }
    named(words).map(|name| Command::Show(Some(name)))
}

fn set(words: &mut Words) -> Result<Option<Command>, Fault> {
    let is_local = words.takes(&["local"]);
    let scoped = is_local || words.takes(&["session"]);
    if scoped && words.takes(&["characteristics"]) {
        let transaction = words.takes(&["as"]) && words.takes(&["transaction"]);
        return Ok((transaction && modes(words, ModesOf::LaterTransactions)?).then_some(Command::Mark("SET")));
    }
    if words.takes(&["transaction"]) {
        return Ok(modes(words, ModesOf::ThisTransaction)?.then_some(Command::Mark("SET")));
    }
    let name = if words.takes(&["time"]) {
        let is_zone = words.takes(&["zone"]);
        if is_zone && words.takes(&["interval"]) {
            let zone = zone_as_interval(words);
            return Ok(zone.map(|zone| assigned("timezone".to_owned(), Some(zone), is_local)));
        }
        is_zone.then(|| "timezone".to_owned())
    } else if words.takes(&["names"]) {
        Some("client_encoding".to_owned())
    } else if scoped && !is_local && words.takes(&["authorization"]) {
        Some("session_authorization".to_owned())
    } else {
        // The SQL standard has `SET ROLE NONE`.
        words.path().filter(|name| {
            let equals = words.tokens.peek() == Some(&Token::Eq);
            if equals {
                words.tokens.next();
            }
            equals || words.takes(&["to"]) || (name == "role" && !words.ends())
        })
    };
    let Some(name) = name else { return Ok(None) };
    let is_default = words.takes(&["default"]) || (name == "timezone" && words.takes(&["local"]));
    let value = if is_default { words.ends().then_some(None) } else { words.value().map(Some) };
    Ok(value.map(|value| assigned(name, value, is_local)))
}

fn assigned(name: String, value: Option<String>, is_local: bool) -> Command {
    if is_local { Command::SetLocal(name, value) } else { Command::Set(name, value) }
}

/// Consumes an offset from UTC behind `INTERVAL`: `'+02:00' HOUR TO MINUTE`, as Sequelize sends it.
fn zone_as_interval(words: &mut Words) -> Option<String> {
    let Token::SingleQuotedString(text) = words.tokens.next()? else { return None };
    let has_hours = words.takes(&["hour"]);
    let has_minutes = has_hours && words.takes(&["to"]);
    if has_minutes && !words.takes(&["minute"]) {
        return None;
    }
    if words.ends() { settings::zone_of_interval(&text, has_hours && !has_minutes) } else { None }
}

/// Parses a duration in a setting: milliseconds, or a number with a unit, to the nearest millisecond.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let factor = match text[end..].trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let ms = (number * factor).round_ties_even();
    (ms <= f64::from(i32::MAX)).then(|| Duration::from_millis(ms as u64))
}

#[cfg(test)]
mod tests;
