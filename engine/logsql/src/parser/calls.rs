//! Filter functions: `in(...)`, `range[...]`, `ipv4_range(...)` and so on. One line each in [`CALLS`].

use std::net::Ipv6Addr;

use super::Parser;
use super::names::{field_name, test};
use crate::ast::{FieldPattern, Filter, Literal, PatternPlace, RangeBound, Test, Values};
use crate::error::Result;
use crate::kernels::filters::check_common_cases;
use crate::kernels::values;
use crate::literal::{parse_ipv4, parse_number, parse_u64};
use crate::print;

/// A filter function.
pub(super) struct FilterCall {
    /// As it is written before the parentheses.
    name: &'static str,
    /// Whether `[` may stand in place of `(`.
    pub(super) brackets: bool,
    /// Reads its arguments; the name is already taken.
    pub(super) parse: fn(&mut Parser<'_>, Option<&FieldPattern>) -> Result<Filter>,
}

const fn call(name: &'static str, parse: fn(&mut Parser<'_>, Option<&FieldPattern>) -> Result<Filter>) -> FilterCall {
    FilterCall { name, brackets: false, parse }
}

/// All filter functions.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a path to a method of `Parser<'_>` is not general enough"
)]
const CALLS: &[FilterCall] = &[
    call("contains_all", |p, f| p.of_values(f, Test::ContainsAll)),
    call("contains_any", |p, f| p.of_values(f, Test::ContainsAny)),
    call("contains_common_case", |p, f| Ok(test(f, Test::ContainsCommonCase(p.common_cases()?)))),
    call("eq_field", |p, f| Ok(test(f, Test::EqField(p.one_field()?)))),
    call("equals_common_case", |p, f| Ok(test(f, Test::EqualsCommonCase(p.common_cases()?)))),
    call("exact", |p, f| p.text_or_prefix(f, Test::Exact, Test::ExactPrefix)),
    call("i", |p, f| p.text_or_prefix(f, Test::AnyCasePhrase, Test::AnyCasePrefix)),
    call("in", |p, f| p.of_values(f, Test::In)),
    call("ipv4_range", |p, f| p.ipv4_range(f)),
    call("ipv6_range", |p, f| p.ipv6_range(f)),
    call("json_array_contains_any", |p, f| Ok(test(f, Test::JsonArrayContainsAny(p.texts()?)))),
    call("le_field", |p, f| Ok(test(f, Test::LeField(p.one_field()?)))),
    call("len_range", |p, f| p.len_range(f)),
    call("lt_field", |p, f| Ok(test(f, Test::LtField(p.one_field()?)))),
    call("pattern_match", |p, f| p.pattern(f, PatternPlace::Any)),
    call("pattern_match_full", |p, f| p.pattern(f, PatternPlace::Full)),
    call("pattern_match_prefix", |p, f| p.pattern(f, PatternPlace::Prefix)),
    call("pattern_match_suffix", |p, f| p.pattern(f, PatternPlace::Suffix)),
    FilterCall { name: "range", brackets: true, parse: |p, f| p.range(f) },
    call("re", |p, f| p.regexp_call(f)),
    call("seq", |p, f| Ok(test(f, Test::Sequence(p.texts()?)))),
    call("string_range", |p, f| p.string_range(f)),
    call("value_type", |p, f| Ok(test(f, Test::ValueType(p.one_text()?)))),
];

/// Gives the function of this name.
pub(super) fn find(name: &str) -> Option<&'static FilterCall> {
    CALLS.iter().find(|call| call.name.eq_ignore_ascii_case(name))
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|call| call.name)
}

impl Parser<'_> {
    /// Reads `(a, b)`; the list may be empty.
    fn texts(&mut self) -> Result<Vec<String>> {
        self.in_parens(|parser| parser.argument("a value"))
    }

    /// Reads texts that are looked for in each case they are commonly written in.
    fn common_cases(&mut self) -> Result<Vec<String>> {
        let begin = self.next;
        let texts = self.texts()?;
        check_common_cases(&texts).map_err(|fault| self.fault_at(begin, fault))?;
        Ok(texts)
    }

    /// Reads `(a)`.
    fn one_text(&mut self) -> Result<String> {
        let at = self.next;
        let mut texts = self.texts()?;
        match texts.len() {
            1 => Ok(texts.remove(0)),
            n => Err(self.fault_at(at, format!("one argument expected, got {n}"))),
        }
    }

    fn one_field(&mut self) -> Result<String> {
        Ok(field_name(self.one_text()?))
    }

    /// `(a)` or `(a*)`.
    fn text_or_prefix(
        &mut self,
        field: Option<&FieldPattern>,
        whole: fn(String) -> Test,
        prefix: fn(String) -> Test,
    ) -> Result<Filter> {
        self.expect("(")?;
        let text = if self.is("*") { String::new() } else { self.argument("a text")? };
        let make = if self.skip("*") { prefix } else { whole };
        self.expect(")")?;
        Ok(test(field, make(text)))
    }

    /// A list, a subquery, or nothing for `(*)`.
    pub(crate) fn values(&mut self) -> Result<Option<Values>> {
        if self.any_value() {
            return Ok(None);
        }
        let begin = self.next;
        let fault = match self.texts() {
            Ok(texts) => return Ok(Some(Values::List(texts))),
            Err(fault) => fault,
        };
        self.next = begin;
        // What is no list and has no pipe was meant as a list.
        let query = self.query_in_parens().map_err(|inner| if self.has_pipe(begin) { inner } else { fault })?;
        if query.output_field().is_none() {
            return Err(self.fault_at(begin, "a subquery must end in `| fields name` or `| uniq by (name)`"));
        }
        Ok(Some(Values::Subquery(Box::new(query))))
    }

    /// `(*)`, or a list with `*` in it: every value.
    pub(crate) fn any_value(&mut self) -> bool {
        let begin = self.next;
        let found = self.list_with_any().unwrap_or(false);
        if !found {
            self.next = begin;
        }
        found
    }

    /// `(a, *)`: takes a list, and says whether `*` is one of its values.
    fn list_with_any(&mut self) -> Result<bool> {
        self.expect("(")?;
        let mut any = false;
        loop {
            if self.skip("*") {
                any = true;
            } else {
                self.argument("a value")?;
            }
            if !self.skip(",") {
                self.expect(")")?;
                return Ok(any);
            }
            if self.skip(")") {
                return Ok(any);
            }
        }
    }

    /// Whether a pipe stands in the parentheses that begin here.
    fn has_pipe(&self, begin: usize) -> bool {
        let mut depth = 0;
        for token in &self.tokens[begin..] {
            match () {
                () if token.is("(") => depth += 1,
                () if token.is(")") && depth == 1 => return false,
                () if token.is(")") => depth -= 1,
                () if token.is("|") && depth == 1 => return true,
                () => {}
            }
        }
        false
    }

    /// Where the parentheses that begin here end.
    pub(crate) fn closing(&self, begin: usize) -> Option<usize> {
        let mut depth = 0usize;
        self.tokens[begin..]
            .iter()
            .position(|token| {
                depth += usize::from(token.is("("));
                depth -= usize::from(token.is(")"));
                depth == 0
            })
            .map(|after| begin + after)
    }

    fn of_values(&mut self, field: Option<&FieldPattern>, make: fn(Values) -> Test) -> Result<Filter> {
        Ok(self.values()?.map_or(Filter::All, |values| test(field, make(values))))
    }

    fn regexp_call(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        self.expect("(")?;
        let at = self.next;
        if self.at_end() || self.is_any(&[")", ",", "|"]) {
            return Err(self.unexpected("a regular expression"));
        }
        let text = self.join(|token| token.is_any(&["(", ")", "[", "]", "|", ","]));
        self.check_regexp(at, &text)?;
        self.close()?;
        Ok(test(field, Test::Regexp(text)))
    }

    fn range(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let open = if self.skip("[") { '[' } else { self.expect("(").map(|()| '(')? };
        let min = self.range_bound()?;
        self.expect(",")?;
        let max = self.range_bound()?;
        self.skip(",");
        let close = if self.skip("]") { ']' } else { self.expect(")").map(|()| ')')? };
        let bound = |value, included| if included { RangeBound::Included(value) } else { RangeBound::Excluded(value) };
        let text = format!("range{open}{}, {}{close}", print::bound(&min.text), print::bound(&max.text));
        if min.value.is_nan() || max.value.is_nan() {
            // Nothing lies beside what is no number.
            let (min, max) = (RangeBound::Included(f64::INFINITY), RangeBound::Included(f64::NEG_INFINITY));
            return Ok(test(field, Test::Range { min, max, text }));
        }
        // An open end at infinity takes infinity in: there is nothing beyond it to leave out.
        let (min_in, max_in) = (open == '[' || min.value.is_infinite(), close == ']' || max.value.is_infinite());
        Ok(test(field, Test::Range { min: bound(min.value, min_in), max: bound(max.value, max_in), text }))
    }

    fn range_bound(&mut self) -> Result<Literal<f64>> {
        let at = self.next;
        let text = self.argument("a number")?;
        match parse_number(&text) {
            Some(value) => Ok(Literal::new(value, text)),
            None => Err(self.fault_at(at, format!("a number expected, got `{text}`"))),
        }
    }

    fn len_range(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        self.expect("(")?;
        let min = self.length()?;
        self.expect(",")?;
        let max = self.length()?;
        self.close()?;
        Ok(test(field, Test::LenRange { min, max }))
    }

    fn length(&mut self) -> Result<Literal<u64>> {
        let at = self.next;
        let text = self.argument("a length")?;
        let value = match text.trim_start_matches('+').to_ascii_lowercase().as_str() {
            "inf" | "infinity" => Some(u64::MAX),
            _ => parse_u64(&text),
        };
        let value = value.ok_or_else(|| self.fault_at(at, format!("a length or `inf` expected, got `{text}`")))?;
        Ok(Literal::new(value, text))
    }

    fn string_range(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let at = self.next;
        let mut texts = self.texts()?;
        if texts.len() != 2 {
            return Err(self.fault_at(at, format!("two arguments expected, got {}", texts.len())));
        }
        let max = texts.remove(1);
        Ok(test(field, Test::StringRange { min: texts.remove(0), max }))
    }

    fn pattern(&mut self, field: Option<&FieldPattern>, place: PatternPlace) -> Result<Filter> {
        Ok(test(field, Test::PatternMatch { place, pattern: self.one_text()? }))
    }

    fn ipv4_range(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let at = self.next;
        let texts = self.texts()?;
        let (min, max) = address_range(&texts, 32, |text| parse_ipv4(text).map(u128::from))
            .ok_or_else(|| self.fault_at(at, "two IPv4 addresses, one, or `a.b.c.d/bits` expected"))?;
        Ok(test(field, Test::Ipv4Range { min: min as u32, max: max as u32 }))
    }

    fn ipv6_range(&mut self, field: Option<&FieldPattern>) -> Result<Filter> {
        let at = self.next;
        let texts = self.texts()?;
        let (min, max) = address_range(&texts, 128, |text| {
            let mapped = || parse_ipv4(text).map(|v4| std::net::Ipv4Addr::from(v4).to_ipv6_mapped());
            text.parse::<Ipv6Addr>().ok().or_else(mapped).map(u128::from)
        })
        .ok_or_else(|| self.fault_at(at, "two IPv6 addresses, one, or `address/bits` expected"))?;
        Ok(test(field, Test::Ipv6Range { min, max }))
    }
}

/// Reads `a, b`, `a` or `a/bits` as the first and the last address.
fn address_range(texts: &[String], bits: u32, parse: impl Fn(&str) -> Option<u128>) -> Option<(u128, u128)> {
    match texts {
        [min, max] => Some((parse(min)?, parse(max)?)),
        [one] => match one.split_once('/') {
            None => parse(one).map(|address| (address, address)),
            Some((address, mask)) => {
                // Digits alone: the library takes a sign, too.
                let mask =
                    values::parse_u64(mask).and_then(|mask| u32::try_from(mask).ok()).filter(|&mask| mask <= bits)?;
                let host = if mask == 0 && bits == 128 { u128::MAX } else { (1u128 << (bits - mask)) - 1 };
                let address = parse(address)?;
                Some((address & !host, address | host))
            }
        },
        _ => None,
    }
}
