//! Filters: or, and, not, parentheses, and what stands behind a field name.

use quiver_types::logs::{STREAM, STREAM_ID, TIME};
use regex::Regex;

use super::names::{field_name, test};
use super::{Parser, calls};
use crate::ast::{CompareOp, FieldPattern, Filter, RangeBound, Test, Values};
use crate::error::Result;
use crate::kernels::golang_regex;
use crate::literal::parse_number;
use crate::print;

/// What cannot begin a filter.
const NO_START: &[&str] = &[",", ")", "[", "]", "|", ";"];

/// What ends a word without quotes.
const STOPS: &[&str] = &["*", ",", "(", ")", "[", "]", "|", ";"];

impl Parser<'_> {
    /// Filters with `or` between; `field` is what inner filters without a field of their own apply to.
    pub(crate) fn filter_or(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        self.deeper(|parser| {
            let mut any = vec![parser.filter_and(field)?];
            while parser.skip("or") {
                any.push(parser.filter_and(field)?);
            }
            Ok(if any.len() == 1 { any.remove(0) } else { Filter::Or(any) })
        })
    }

    fn filter_and(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let mut all = vec![self.filter_one(field)?];
        while !self.at_end() && !self.is_any(&["or", ")", "|", ";"]) {
            self.skip("and");
            all.push(self.filter_one(field)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Filter::And(all) })
    }

    fn filter_one(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        self.deeper(|parser| parser.filter_inner(field))
    }

    fn filter_inner(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        if self.at_end() || self.is_any(NO_START) {
            return Err(self.unexpected("a filter"));
        }
        if self.is("{") {
            if field.is_some_and(|f| f.name() != Some(STREAM)) {
                return Err(self.fault("a stream selector is asked of `_stream` alone; quote `{` to look for it,"));
            }
            return self.stream_filter().map(Filter::Stream);
        }
        if self.is("(") {
            return self.in_group(field);
        }
        if self.skip(":") {
            return self.filter_one(field);
        }
        if self.skip_any(&["!", "-", "not"]) {
            return Ok(Filter::Not(Box::new(self.filter_one(field)?)));
        }
        if self.is("*") {
            return self.star(field);
        }
        if let Some(filter) = self.operator(field)? {
            return Ok(filter);
        }
        if self.token().is_word()
            && let Some(call) = calls::find(&self.token().text)
            && (self.after_next().is("(") || (call.brackets && self.after_next().is("[")))
        {
            self.advance();
            return (call.parse)(self, field);
        }
        self.phrase(field)
    }

    /// Reads a filter in parentheses: `(...)`, or of a field `field:(...)`.
    fn in_group(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        if let Some(before) = self.next.checked_sub(1).map(|i| &self.tokens[i])
            && !self.token().spaced
        {
            if before.is_any(&["*", ")", "]", "}"]) {
                return Err(self.unexpected("a blank"));
            }
            if (before.quoted || before.is_word()) && !before.is_any(&["and", "or", "not", "filter", "where", "if"]) {
                return Err(self.unknown(self.next - 1, "filter function", calls::names()));
            }
        }
        self.expect("(")?;
        let filter = self.filter_or(field)?;
        self.expect(")")?;
        Ok(filter)
    }

    /// `*`, `*sub*`, `*:x`.
    fn star(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        self.advance();
        if field.is_none() && self.is_adjacent(":") {
            self.advance();
            return self.filter_one(Some(&FieldPattern::all()));
        }
        let begin = self.next;
        if !self.at_end() && !self.token().spaced && !self.is_any(STOPS) {
            let colon_stops = field.is_none();
            let text = self.join(|token| token.is_any(STOPS) || (colon_stops && token.is(":")));
            if self.is_adjacent("*") {
                self.advance();
                return Ok(test(field, Test::Substring(text)));
            }
            self.next = begin;
        }
        Ok(if field.is_none() { Filter::All } else { test(field, Test::Prefix(String::new())) })
    }

    /// `=x`, `!=x`, `~re`, `!~re`, `>x` and so on.
    fn operator(&mut self, field: Option<&FieldPattern>) -> Result<Option<Filter>> {
        let negated = |filter| Filter::Not(Box::new(filter));
        Ok(Some(if self.skip("!=") {
            negated(self.exact(field)?)
        } else if self.skip("!~") {
            negated(self.regexp(field)?)
        } else if self.skip_any(&["~", "=~"]) {
            self.regexp(field)?
        } else if self.skip("=") {
            self.exact(field)?
        } else if self.skip(">") {
            let op = if self.is("=") { CompareOp::Ge } else { CompareOp::Gt };
            self.compare(field, op)?
        } else if self.skip("<") {
            let op = if self.is("=") { CompareOp::Le } else { CompareOp::Lt };
            self.compare(field, op)?
        } else {
            return Ok(None);
        }))
    }

    fn exact(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let value = if self.is_adjacent("*") { String::new() } else { self.argument("a value after `=`")? };
        if self.is_adjacent("*") {
            self.advance();
            return Ok(test(field, Test::ExactPrefix(value)));
        }
        Ok(test(field, Test::Exact(value)))
    }

    fn regexp(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let at = self.next;
        if self.at_end() || self.is_any(NO_START) || self.is("(") {
            return Err(self.unexpected("a regular expression"));
        }
        let text = self.join(|token| token.is_any(&["(", ")", "[", "]", "|", ","]));
        self.check_regexp(at, &text)?;
        Ok(test(field, Test::Regexp(text)))
    }

    /// Says what is wrong with a regular expression.
    pub(crate) fn check_regexp(&mut self, at: usize, text: &str) -> Result<Regex> {
        let compiled = golang_regex::compile(text).and_then(|regex| self.regexps.add(regex.as_str()).map(|()| regex));
        compiled.map_err(|fault| self.fault_at(at, fault))
    }

    fn compare(&mut self, field: Option<&FieldPattern>, op: CompareOp) -> Result<Filter> {
        if matches!(op, CompareOp::Ge | CompareOp::Le) {
            self.advance();
        }
        let value = self.argument("a value after the comparison")?;
        Ok(test(field, compare_test(op, value)))
    }

    /// A word, phrase or prefix, or the name of a field and what is asked of it.
    fn phrase(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let colon_stops = field.is_none();
        let text = self.join(|token| token.is_any(STOPS) || (colon_stops && token.is(":")));
        if self.is_adjacent("*") {
            self.advance();
            if colon_stops && self.is_adjacent(":") {
                self.advance();
                return self.filter_one(Some(&FieldPattern::Prefix(text)));
            }
            return Ok(test(field, Test::Prefix(text)));
        }
        if colon_stops && self.skip(":") {
            return self.of_field(field_name(text));
        }
        Ok(test(field, Test::Phrase(text)))
    }

    fn of_field(&mut self, name: String) -> Result<Filter> {
        match name.as_str() {
            TIME => self.time_filter(),
            STREAM_ID => self.stream_id(),
            STREAM if !self.is("{") => Err(self.unexpected("a stream selector such as `{app=\"nginx\"}`")),
            _ => self.filter_one(Some(&FieldPattern::Name(name))),
        }
    }

    fn stream_id(&mut self) -> Result<Filter> {
        if self.is("in") && self.after_next().is("(") {
            self.advance();
            return Ok(match self.values()? {
                None => Filter::All,
                Some(Values::List(ids)) => {
                    ids.iter().try_for_each(|id| self.check_stream_id(id))?;
                    Filter::StreamId(Values::List(ids))
                }
                Some(values) => Filter::StreamId(values),
            });
        }
        if self.is("*") {
            self.advance();
            return Ok(Filter::All);
        }
        self.skip("=");
        let id = self.argument("a stream id")?;
        self.check_stream_id(&id)?;
        Ok(Filter::StreamId(Values::List(vec![id])))
    }

    fn check_stream_id(&self, id: &str) -> Result<()> {
        if matches!(id.len(), 32 | 48) && id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(());
        }
        Err(self.fault_at(self.next.saturating_sub(1), format!("`{id}` is no stream id of 32 hexadecimal digits")))
    }
}

/// A comparison: of numbers when the other side is one, else of bytes. As in `range`, infinity is taken in: there is
/// nothing beyond it to leave out. Nothing compares with NaN.
fn compare_test(op: CompareOp, value: String) -> Test {
    let Some(number) = parse_number(&value) else {
        return Test::TextCompare { op, value };
    };
    let (least, greatest) = (RangeBound::Included(f64::NEG_INFINITY), RangeBound::Included(f64::INFINITY));
    let beside = if number.is_infinite() { RangeBound::Included(number) } else { RangeBound::Excluded(number) };
    let (min, max) = match op {
        // Greater than the greatest and less than the least.
        _ if number.is_nan() => (greatest, least),
        CompareOp::Gt => (beside, greatest),
        CompareOp::Ge => (RangeBound::Included(number), greatest),
        CompareOp::Lt => (least, beside),
        CompareOp::Le => (least, RangeBound::Included(number)),
    };
    Test::Range { min, max, text: format!("{}{}", op.as_str(), print::bound(&value)) }
}
