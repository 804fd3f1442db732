//! `COPY … TO STDOUT`: the rows of a query or table as lines of text or CSV, or in binary form, as psql's `\copy` and bulk
//! reads of drivers request them.
//!
//! Source: PostgreSQL's copyto.c, `CopyAttributeOutText` and `CopyAttributeOutCSV`.

use bytes::{BufMut as _, BytesMut};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::statement_parts::{closing, is_word, offset, part};
use super::{Fault, Words};

/// What to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::postgres) struct CopyOut {
    pub(in crate::postgres) query: String,
    pub(in crate::postgres) form: Form,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Text,
    Csv,
    /// Values as the protocol has them in binary form.
    Binary,
}

/// The format of the rows; all but the first is about lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::postgres) struct Form {
    format: Format,
    /// Whether the first line has the column names.
    pub(in crate::postgres) has_header: bool,
    pub(in crate::postgres) delimiter: u8,
    null: String,
    quote: u8,
    escape: u8,
    /// Whether all values except NULL are quoted.
    quotes_all: bool,
}

impl Form {
    /// Whether rows are written in binary form, and not as lines.
    pub(in crate::postgres) fn is_binary(&self) -> bool {
        self.format == Format::Binary
    }

    fn is_csv(&self) -> bool {
        self.format == Format::Csv
    }

    /// Writes a value; `None`: NULL. `is_alone`: the line has no other value.
    pub(in crate::postgres) fn push(&self, value: Option<&[u8]>, is_alone: bool, out: &mut BytesMut) {
        match value {
            None => out.put_slice(self.null.as_bytes()),
            Some(value) if self.is_csv() => self.push_csv(value, is_alone, out),
            Some(value) => self.push_text(value, out),
        }
    }

    fn push_csv(&self, value: &[u8], is_alone: bool, out: &mut BytesMut) {
        let is_special = |byte: &u8| *byte == self.delimiter || *byte == self.quote || matches!(byte, b'\n' | b'\r');
        let is_quoted = self.quotes_all
            || value == self.null.as_bytes()
            || value.iter().any(is_special)
            // As the only value it would mark the end of the data.
            || (is_alone && value == b"\\.");
        if !is_quoted {
            out.put_slice(value);
            return;
        }
        out.put_u8(self.quote);
        for byte in value {
            if *byte == self.quote || *byte == self.escape {
                out.put_u8(self.escape);
            }
            out.put_u8(*byte);
        }
        out.put_u8(self.quote);
    }

    fn push_text(&self, value: &[u8], out: &mut BytesMut) {
        for byte in value {
            let letter = match byte {
                b'\\' => b'\\',
                8 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                11 => b'v',
                12 => b'f',
                b'\r' => b'r',
                other if *other == self.delimiter => self.delimiter,
                other => {
                    out.put_u8(*other);
                    continue;
                }
            };
            out.put_slice(&[b'\\', letter]);
        }
    }

    /// The option that would make the output ambiguous, if any does.
    fn unreadable(&self) -> Option<&'static str> {
        let (delimiter, null) = (self.delimiter, self.null.as_bytes());
        // These have a meaning after a backslash.
        let has_meaning = |byte: u8| matches!(byte, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9');
        if self.is_csv() && delimiter == self.quote {
            Some("`delimiter` must not be the `quote`")
        } else if !self.is_csv() && has_meaning(delimiter) {
            Some("`delimiter` must be no letter, digit, `.` or backslash in the text format")
        } else if null.contains(&delimiter) || null.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            Some("`null` must have neither the `delimiter` nor ends of lines")
        } else if self.is_csv() && null.contains(&self.quote) {
            Some("`null` must not have the `quote`")
        } else {
            None
        }
    }
}

/// Parses a statement that begins with `COPY`; `None` if it does not copy to `STDOUT`.
///
/// # Errors
/// Unknown or unsupported options.
pub(super) fn read(text: &str, tokens: Vec<TokenWithSpan>) -> Result<Option<CopyOut>, Fault> {
    let Some((query, used)) = query_of(text, &tokens) else { return Ok(None) };
    let rest: Vec<Token> = tokens.into_iter().skip(used).map(|token| token.token).collect();
    let mut words = Words { tokens: rest.into_iter().peekable() };
    if !(words.takes(&["to"]) && words.takes(&["stdout"])) {
        return Ok(None);
    }
    words.takes(&["with"]);
    let mut options = Options::default();
    if words.tokens.peek() == Some(&Token::LParen) {
        words.tokens.next();
        options.listed(&mut words)?;
    } else {
        options.in_words(&mut words)?;
    }
    if !words.ends() {
        return Err(unread("what stands behind its options"));
    }
    Ok(Some(CopyOut { query, form: options.form()? }))
}

/// The query whose rows are copied, and the number of its tokens.
fn query_of(text: &str, tokens: &[TokenWithSpan]) -> Option<(String, usize)> {
    if tokens.get(1)?.token == Token::LParen {
        let end = closing(tokens, 1)?;
        let (from, to) = (offset(text, tokens[1].span.start)? + 1, offset(text, tokens[end].span.start)?);
        return Some((part(text, from, to)?, end + 1));
    }
    let is_name = |token: &&TokenWithSpan| !is_word(&token.token, "to") && token.token != Token::LParen;
    let behind = 1 + tokens[1..].iter().take_while(is_name).count();
    // Copied literally: printing the tokens would lose doubled quotes in names.
    let written = |from: usize, to: usize| {
        let place = |at: usize| offset(text, tokens.get(at)?.span.start);
        text.get(place(from)?..place(to)?)
    };
    let table = written(1, behind)?;
    if tokens.get(behind)?.token != Token::LParen {
        return Some((format!("SELECT * FROM {table}"), behind));
    }
    let end = closing(tokens, behind)?;
    Some((format!("SELECT {} FROM {table}", written(behind + 1, end)?), end + 1))
}

fn unread(what: &str) -> Fault {
    Fault::new("42601", format!("cannot read the statement: `COPY` has no {what}"))
}

/// Options as written in the statement.
#[derive(Default)]
struct Options {
    format: Format,
    has_header: bool,
    quotes_all: bool,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
}

impl Options {
    /// `(FORMAT csv, HEADER)`, after the parenthesis.
    fn listed(&mut self, words: &mut Words) -> Result<(), Fault> {
        loop {
            let name = words.name().ok_or_else(|| unread("option without a name"))?;
            match name.as_str() {
                "format" => {
                    let format = match words.tokens.next() {
                        Some(Token::Word(word)) => word.value.to_lowercase(),
                        Some(Token::SingleQuotedString(word)) => word,
                        _ => String::new(),
                    };
                    self.set_format(&format)?;
                }
                "header" => self.has_header = flag(words),
                "force_quote" => self.quotes_all = all(words)?,
                _ => self.set(&name, words)?,
            }
            match words.tokens.next() {
                Some(Token::Comma) => {}
                Some(Token::RParen) => return Ok(()),
                _ => return Err(unread("such options")),
            }
        }
    }

    /// The old syntax, such as `CSV HEADER DELIMITER ';'`.
    fn in_words(&mut self, words: &mut Words) -> Result<(), Fault> {
        while !words.ends() {
            let name = words.name().ok_or_else(|| unread("option without a name"))?;
            match name.as_str() {
                "csv" | "binary" => self.set_format(&name)?,
                "header" => self.has_header = true,
                "force" => {
                    words.takes(&["quote"]);
                    self.quotes_all = all(words)?;
                }
                _ => {
                    words.takes(&["as"]);
                    self.set(&name, words)?;
                }
            }
        }
        Ok(())
    }

    fn set_format(&mut self, format: &str) -> Result<(), Fault> {
        self.format = match format {
            "text" => Format::Text,
            "csv" => Format::Csv,
            "binary" => Format::Binary,
            _ => return Err(Fault::new("22023", "`COPY` writes `text`, `csv` or `binary`")),
        };
        Ok(())
    }

    fn set(&mut self, name: &str, words: &mut Words) -> Result<(), Fault> {
        let place = match name {
            "delimiter" | "delimiters" => &mut self.delimiter,
            "null" => &mut self.null,
            "quote" => &mut self.quote,
            "escape" => &mut self.escape,
            other => return Err(unread(&format!("option `{}`", other.escape_debug()))),
        };
        *place = match words.tokens.next() {
            Some(Token::SingleQuotedString(value) | Token::EscapedStringLiteral(value)) => Some(value),
            _ => return Err(unread(&format!("`{name}` that is no text"))),
        };
        Ok(())
    }

    fn form(self) -> Result<Form, Fault> {
        let one = |name: &str, value: Option<String>, default: u8| match value.as_deref().map(str::as_bytes) {
            None => Ok(default),
            Some([byte]) if !matches!(byte, b'\n' | b'\r') => Ok(*byte),
            Some(_) => Err(Fault::new("22023", format!("`{name}` of `COPY` is one letter of one byte"))),
        };
        let is_csv = self.format == Format::Csv;
        if !is_csv && (self.quotes_all || self.quote.is_some() || self.escape.is_some()) {
            return Err(Fault::new("0A000", "`COPY` has quotes and their escapes in CSV only"));
        }
        if self.format == Format::Binary && (self.has_header || self.delimiter.is_some() || self.null.is_some()) {
            return Err(unread("header, `delimiter` or `null` in binary form"));
        }
        let (delimiter, null) = if is_csv { (b',', "") } else { (b'\t', "\\N") };
        let quote = one("quote", self.quote, b'"')?;
        let form = Form {
            format: self.format,
            has_header: self.has_header,
            delimiter: one("delimiter", self.delimiter, delimiter)?,
            null: self.null.unwrap_or_else(|| null.to_owned()),
            quote,
            escape: one("escape", self.escape, quote)?,
            quotes_all: self.quotes_all,
        };
        match form.unreadable() {
            Some(what) => Err(Fault::new("22023", format!("`COPY`: {what}"))),
            None => Ok(form),
        }
    }
}

/// Whether an option is on; without a value it is.
fn flag(words: &mut Words) -> bool {
    if let Some(Token::Number(number, _)) = words.tokens.peek() {
        let is_on = number != "0";
        words.tokens.next();
        return is_on;
    }
    let is_off = words.takes(&["false", "off"]);
    words.takes(&["true", "on"]);
    !is_off
}

/// `*`: all columns.
fn all(words: &mut Words) -> Result<bool, Fault> {
    match words.tokens.next() {
        Some(Token::Mul) => Ok(true),
        _ => {
            Err(Fault::new("0A000", "`COPY` puts all values in quotes here (`FORCE QUOTE *`), or those that need them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};

    use super::super::{Command, read};
    use super::{CopyOut, Form};

    fn copied(text: &str) -> CopyOut {
        match read(text) {
            Ok(Command::Copy(copy)) => copy,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn line(form: &Form, values: &[Option<&str>]) -> String {
        let mut out = BytesMut::new();
        for value in values {
            form.push(value.map(str::as_bytes), values.len() == 1, &mut out);
            out.put_u8(form.delimiter);
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn statements_are_read() {
        let found = copied("copy (select ')', (1)\nfrom t) to stdout");
        assert_eq!(found.query, "      select ')', (1)\nfrom t");
        assert_eq!(copied("COPY a.\"B\" TO STDOUT").query, "SELECT * FROM a.\"B\" ");
        assert_eq!(copied("copy a (b, c) to stdout csv").query, "SELECT b, c FROM a ");
        // A quoted name is only a name.
        let named = copied(
            r#"copy "a""b" ("c"" from d --", e -- f
            ) to stdout"#,
        );
        assert_eq!(named.query.lines().next(), Some(r#"SELECT "c"" from d --", e -- f"#));
        assert!(named.query.ends_with(r#" FROM "a""b" "#), "{}", named.query);
        for same in [
            "copy a to stdout with (format csv, header, delimiter ';', force_quote *)",
            "copy a to stdout (format 'csv', header true, delimiter ';', force_quote *)",
            "copy a to stdout with csv header delimiter as ';' force quote *",
        ] {
            let form = copied(same).form;
            let Form { has_header, delimiter, quotes_all, .. } = form;
            assert!(form.is_csv() && has_header && quotes_all && delimiter == b';', "{same}");
        }
        for binary in ["copy a to stdout with (format binary)", "copy a to stdout binary"] {
            assert!(copied(binary).form.is_binary(), "{binary}");
        }
        for other in ["copy a from stdin", "copy a to '/tmp/x'", "copy a to program 'x'"] {
            assert_eq!(read(other), Ok(Command::Query), "{other}");
        }
        for (wrong, code) in [
            ("copy a to stdout with (format parquet)", "22023"),
            ("copy a to stdout with (format binary, header)", "42601"),
            ("copy a to stdout binary delimiter ','", "42601"),
            ("copy a to stdout with (format binary, quote '''')", "0A000"),
            ("copy a to stdout with (nothing 'x')", "42601"),
            ("copy a to stdout with (delimiter 'ab')", "22023"),
            ("copy a to stdout csv header now", "42601"),
            ("copy a to stdout with (format csv, delimiter ';', quote ';')", "22023"),
            ("copy a to stdout csv delimiter '\"'", "22023"),
            ("copy a to stdout csv quote ','", "22023"),
            ("copy a to stdout csv null 'a,b'", "22023"),
            ("copy a to stdout csv null '\"'", "22023"),
            ("copy a to stdout csv null E'a\n'", "22023"),
            ("copy a to stdout delimiter 'n'", "22023"),
            ("copy a to stdout delimiter '\\'", "22023"),
            ("copy a to stdout delimiter ',' null ','", "22023"),
            ("copy a to stdout quote '\"'", "0A000"),
            ("copy a to stdout with (force_quote *)", "0A000"),
        ] {
            assert_eq!(read(wrong).unwrap_err().code, code, "{wrong}");
        }
    }

    #[test]
    fn values_are_written_as_postgresql_writes_them() {
        let text = copied("copy a to stdout").form;
        assert_eq!(line(&text, &[Some("a\tb\\\n"), None, Some("")]), "a\\tb\\\\\\n\t\\N\t\t");
        let csv = copied("copy a to stdout csv").form;
        assert_eq!(line(&csv, &[Some("a,b"), None, Some(""), Some("q\"")]), "\"a,b\",,\"\",\"q\"\"\",");
        assert_eq!(line(&csv, &[Some("\\.")]), "\"\\.\",");
        for fine in
            ["copy a to stdout csv delimiter 'n'", "copy a to stdout null '\"'", "copy a to stdout delimiter '|'"]
        {
            copied(fine);
        }
        let other = copied("copy a to stdout with (format csv, null 'x', quote '''', escape '!')").form;
        assert_eq!(line(&other, &[Some("x"), None, Some("it's!,")]), "'x',x,'it!'s!!,',");
    }
}
