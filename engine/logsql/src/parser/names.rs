//! Words, names of fields, lists of them, numbers: what all parts of the grammar share.

use std::borrow::Cow;

use quiver_types::logs::MSG;

use super::{CELLS_MAX, FIELDS_MAX, Parser};
use crate::ast::{FieldPattern, Filter, Literal, Test};
use crate::error::Result;
use crate::filter_fields::add_needs;
use crate::literal::{parse_duration, parse_number, parse_u64};
use crate::required_fields::Needs;

/// What ends any word.
const STOPS: &[&str] = &["(", ")", "[", "]", "|", ",", "*", ";"];

impl Parser<'_> {
    /// Takes a word: a quoted text, or adjacent tokens up to a blank or a stop sign.
    pub(crate) fn word(&mut self, what: &str, stops: &[&str]) -> Result<String> {
        if self.at_end() || self.is_any(STOPS) {
            return Err(self.unexpected(what));
        }
        Ok(self.join(|token| token.is_any(STOPS) || token.is_any(stops)))
    }

    /// Joins the next token and those adjacent to it until one stops.
    pub(crate) fn join(&mut self, stop: impl Fn(&crate::lexer::Token<'_>) -> bool) -> String {
        let first = self.token().clone();
        self.advance();
        let mut joined: Option<String> = None;
        while !self.at_end() && !self.token().spaced && !self.is(";") && !stop(self.token()) {
            joined.get_or_insert_with(|| first.raw.to_owned()).push_str(self.token().raw);
            self.advance();
        }
        joined.unwrap_or_else(|| match first.text {
            Cow::Borrowed(text) => text.to_owned(),
            Cow::Owned(text) => text,
        })
    }

    /// Takes a word that may hold any signs but parentheses, commas and `|`.
    pub(crate) fn argument(&mut self, what: &str) -> Result<String> {
        self.word(what, &[])
    }

    /// Counts a field that a pipe names.
    pub(crate) fn count_field(&mut self) -> Result<()> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(self.fault(format!("more than {FIELDS_MAX} fields in the pipes of a query")));
        }
        Ok(())
    }

    /// Counts the cells of a table of written rows.
    pub(crate) fn count_cells(&mut self, cells: usize) -> Result<()> {
        self.cells += cells;
        if self.cells > CELLS_MAX {
            return Err(self.fault(format!("more than {CELLS_MAX} cells in rows: each of them has all columns")));
        }
        Ok(())
    }

    /// Counts a field that a pipe reads, once for a query.
    pub(crate) fn count_read(&mut self, name: &str) -> Result<()> {
        if self.read.insert(name.to_owned()) { self.count_field() } else { Ok(()) }
    }

    /// Counts the fields that a filter of a pipe looks at.
    pub(crate) fn count_reads_of(&mut self, filter: &Filter) -> Result<()> {
        let mut needs = Needs::default();
        add_needs(filter, &mut needs);
        needs.names.iter().try_for_each(|name| self.count_read(name))
    }

    /// Takes the name of one field; the empty name is the message.
    pub(crate) fn field(&mut self) -> Result<String> {
        self.count_field()?;
        let at = self.next;
        let mut name = self.word("a field name", &[])?;
        if self.is_adjacent("*") {
            name.push('*');
        }
        // Also within quotes, as VictoriaLogs has it.
        if name.ends_with('*') {
            return Err(self.fault_at(at, format!("`{name}` stands for several fields, one field expected")));
        }
        Ok(field_name(name))
    }

    /// Takes the name of a field or `prefix*`.
    pub(crate) fn field_pattern(&mut self) -> Result<FieldPattern> {
        if self.skip("*") {
            return Ok(FieldPattern::all());
        }
        self.count_field()?;
        let name = self.word("a field name", &[])?;
        if self.is_adjacent("*") {
            self.advance();
            return Ok(FieldPattern::Prefix(name));
        }
        Ok(FieldPattern::Name(field_name(name)))
    }

    /// Takes items between parentheses, with commas between and perhaps after them.
    pub(crate) fn in_parens<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect("(")?;
        let mut items = Vec::new();
        while !self.skip(")") {
            items.push(item(self)?);
            if !self.is(")") {
                if !self.is(",") {
                    return Err(self.unexpected("`,` or `)`"));
                }
                self.advance();
            }
        }
        Ok(items)
    }

    /// Takes the end of arguments; a comma may stand before it.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.skip(",");
        self.expect(")")
    }

    /// Takes items with commas between.
    pub(crate) fn with_commas<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.skip(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `(a, b)`, at least one.
    pub(crate) fn fields_in_parens(&mut self) -> Result<Vec<String>> {
        let at = self.next;
        let fields = self.in_parens(Self::field)?;
        if fields.is_empty() { Err(self.fault_at(at, "at least one field expected")) } else { Ok(fields) }
    }

    /// `(a, b)` or `a, b`.
    pub(crate) fn fields_anyhow(&mut self) -> Result<Vec<String>> {
        if self.is("(") { self.fields_in_parens() } else { self.with_commas(Self::field) }
    }

    /// `(a, b*)`; any `*` makes it all fields.
    pub(crate) fn patterns_in_parens(&mut self) -> Result<Vec<FieldPattern>> {
        Ok(or_all(self.in_parens(Self::field_pattern)?))
    }

    /// Takes a number that is no fraction and not negative.
    pub(crate) fn count(&mut self, what: &str) -> Result<u64> {
        let at = self.next;
        let text = self.word(what, &[])?;
        parse_u64(&text).ok_or_else(|| self.fault_at(at, format!("{what} expected, got `{text}`")))
    }

    /// Takes a number of any kind.
    pub(crate) fn number(&mut self, what: &str) -> Result<Literal<f64>> {
        let at = self.next;
        let text = self.word(what, &[])?;
        let value = parse_number(&text).ok_or_else(|| self.fault_at(at, format!("{what} expected, got `{text}`")))?;
        Ok(Literal::new(value, text))
    }

    /// Takes a duration.
    pub(crate) fn duration(&mut self, what: &str) -> Result<Literal<i64>> {
        let at = self.next;
        let text = self.word(what, &[])?;
        let value = parse_duration(&text)
            .ok_or_else(|| self.fault_at(at, format!("{what} such as `1h30m` expected, got `{text}`")))?;
        Ok(Literal::new(value, text))
    }

    /// `if (filter)`, if it stands here; an empty one is `*`.
    pub(crate) fn condition(&mut self) -> Result<Option<Filter>> {
        if !self.skip("if") {
            return Ok(None);
        }
        self.filter_in_parens().map(Some)
    }

    /// `(filter)`; an empty one is `*`.
    pub(crate) fn filter_in_parens(&mut self) -> Result<Filter> {
        self.expect("(")?;
        if self.skip(")") {
            return Ok(Filter::All);
        }
        let filter = self.filter_or(None)?;
        self.expect(")")?;
        self.count_reads_of(&filter)?;
        Ok(filter)
    }

    /// `as name`, where `as` may be left out; nothing at the end of the pipe.
    pub(crate) fn as_name(&mut self) -> Result<Option<String>> {
        if self.skip("as") {
            return self.field().map(Some);
        }
        if self.at_pipe_end() || self.is(",") { Ok(None) } else { self.field().map(Some) }
    }

    /// `(a desc, b asc)`.
    pub(crate) fn sort_fields(&mut self) -> Result<Vec<(String, bool)>> {
        self.in_parens(|parser| {
            let field = parser.field()?;
            let descending = parser.skip("desc");
            if !descending {
                parser.skip("asc");
            }
            Ok((field, descending))
        })
    }

    /// `limit N`, if it stands here; `limit 0` is no limit.
    pub(crate) fn limit(&mut self) -> Result<Option<u64>> {
        if !self.skip("limit") {
            return Ok(None);
        }
        self.count("a number of rows after `limit`").map(|n| Some(n).filter(|&n| n > 0))
    }
}

/// A test of the field, of the message when there is none.
pub(super) fn test(field: Option<&FieldPattern>, test: Test) -> Filter {
    let field = field.cloned().unwrap_or_else(|| FieldPattern::Name(MSG.to_owned()));
    Filter::Field { field, test }
}

/// The empty name is the message.
pub(crate) fn field_name(name: String) -> String {
    if name.is_empty() { MSG.to_owned() } else { name }
}

/// A list with `*` in it, and an empty one, are all fields.
pub(crate) fn or_all(fields: Vec<FieldPattern>) -> Vec<FieldPattern> {
    if fields.is_empty() || fields.iter().any(FieldPattern::is_all) { vec![FieldPattern::all()] } else { fields }
}
