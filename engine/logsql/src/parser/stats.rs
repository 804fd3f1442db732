//! Stats functions: one line each in [`FUNCS`].

use super::Parser;
use super::names::{field_name, or_all};
use crate::ast::{FieldPattern, Filter, GroupBy, Literal, StatsCall, StatsFunc, TimeBucket};
use crate::error::Result;
use crate::kernels::values::parse_ipv4_mask;
use crate::lexer::Token;
use crate::literal::{parse_duration, parse_number};
use crate::print::stats::default_stats_name;

/// A stats function: its name, what it gives, and how its arguments are read (the name is already taken).
struct FuncDef {
    name: &'static str,
    doc: &'static str,
    parse: fn(&mut Parser<'_>) -> Result<StatsFunc>,
}

const fn func(name: &'static str, doc: &'static str, parse: fn(&mut Parser<'_>) -> Result<StatsFunc>) -> FuncDef {
    FuncDef { name, doc, parse }
}

/// All stats functions.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a path to a method of `Parser<'_>` is not general enough"
)]
const FUNCS: &[FuncDef] = &[
    func("any", "A value that is not empty.", |p| p.patterns_in_parens().map(StatsFunc::Any)),
    func("avg", "The mean of the values that are numbers.", |p| p.patterns_in_parens().map(StatsFunc::Avg)),
    func("count", "The number of rows, or of rows that have one of some fields.", |p| {
        p.patterns_in_parens().map(StatsFunc::Count)
    }),
    func("count_empty", "The number of rows that have none of some fields.", |p| {
        p.patterns_in_parens().map(StatsFunc::CountEmpty)
    }),
    func("count_uniq", "The number of different values, or combinations of values.", |p| {
        Ok(StatsFunc::CountUniq { fields: p.fields_in_parens()?, limit: p.limit()? })
    }),
    func(
        "count_uniq_hash",
        "The same by hashes of the values: less memory, and wrong where two hashes are equal.",
        |p| Ok(StatsFunc::CountUniqHash { fields: p.fields_in_parens()?, limit: p.limit()? }),
    ),
    func("count_uniq_hll", "Another name of `count_uniq_hash`, without a limit.", |p| {
        p.fields_in_parens().map(StatsFunc::CountUniqHll)
    }),
    func("field_max", "The value of a field in the row that has the greatest value of another.", |p| {
        p.two_fields().map(|(by, field)| StatsFunc::FieldMax { by, field })
    }),
    func("field_min", "The value of a field in the row that has the least value of another.", |p| {
        p.two_fields().map(|(by, field)| StatsFunc::FieldMin { by, field })
    }),
    func("histogram", "How many values lie in each bucket of a logarithmic scale.", |p| {
        p.only_field().map(StatsFunc::Histogram)
    }),
    func("json_values", "JSON objects of some fields, one for each row, in an order if one is asked for.", |p| {
        p.json_values()
    }),
    func("max", "The greatest value.", |p| p.patterns_in_parens().map(StatsFunc::Max)),
    func("median", "The value in the middle.", |p| p.patterns_in_parens().map(StatsFunc::Median)),
    func("min", "The least value.", |p| p.patterns_in_parens().map(StatsFunc::Min)),
    func("quantile", "The value at a place from 0 to 1 in the order of values.", |p| p.quantile()),
    func("rate", "The number of rows per second.", |p| p.rate()),
    func("rate_sum", "The sum of the values per second.", |p| p.patterns_in_parens().map(StatsFunc::RateSum)),
    func("row_any", "Some fields of one of the rows as a JSON object.", |p| {
        p.patterns_in_parens().map(StatsFunc::RowAny)
    }),
    func("row_max", "Some fields of the row that has the greatest value of a field, as a JSON object.", |p| {
        p.field_and_patterns().map(|(by, fields)| StatsFunc::RowMax { by, fields })
    }),
    func("row_min", "Some fields of the row that has the least value of a field, as a JSON object.", |p| {
        p.field_and_patterns().map(|(by, fields)| StatsFunc::RowMin { by, fields })
    }),
    func("stddev", "The standard deviation of the values that are numbers.", |p| {
        p.patterns_in_parens().map(StatsFunc::Stddev)
    }),
    func("sum", "The sum of the values that are numbers.", |p| p.patterns_in_parens().map(StatsFunc::Sum)),
    func("sum_len", "The sum of the lengths of the values in bytes.", |p| {
        p.patterns_in_parens().map(StatsFunc::SumLen)
    }),
    func("uniq_values", "The different values as a JSON array, in order.", |p| {
        Ok(StatsFunc::UniqValues { fields: p.patterns_in_parens()?, limit: p.limit()? })
    }),
    func("values", "All values as a JSON array.", |p| {
        Ok(StatsFunc::Values { fields: p.patterns_in_parens()?, limit: p.limit()? })
    }),
];

/// Gives the names of all stats functions.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FUNCS.iter().map(|func| func.name)
}

/// Names and documents of all stats functions.
pub(crate) fn documents() -> Vec<(&'static str, &'static str)> {
    FUNCS.iter().map(|func| (func.name, func.doc)).collect()
}

impl Parser<'_> {
    /// Whether a stats function, `by`, or groups with a function behind them (`(host) count()`) stand here: such words
    /// must be quoted to be looked for.
    pub(crate) fn at_stats(&self) -> bool {
        let is_func = |token: &Token<'_>| token.is_word() && names().any(|name| token.is(name));
        let after_groups = || {
            let close = self.closing(self.next)?;
            Some(is_func(&self.tokens[close + 1]) && self.tokens.get(close + 2)?.is("("))
        };
        self.is("by") || is_func(self.token()) || self.is("(") && after_groups() == Some(true)
    }

    /// `f(...) [if (filter)] [as name]`, or `f(...) switch(case (filter) as name, .., default as name)`, which is a
    /// call for each case.
    pub(crate) fn stats_calls(&mut self) -> Result<Vec<StatsCall>> {
        let at = self.next;
        let Some(def) = FUNCS.iter().find(|func| self.is(func.name)) else {
            if self.at_end() || !self.token().is_word() {
                return Err(self.unexpected("a stats function"));
            }
            return Err(self.unknown(at, "stats function", names()));
        };
        self.advance();
        let func = (def.parse)(self)?;
        if self.skip("switch") {
            return self.cases(&func);
        }
        let condition = self.condition()?;
        let name = self.as_name()?;
        // One without a name gets one.
        if name.is_none() {
            self.count_field()?;
        }
        if !self.at_pipe_end() && !self.is(",") {
            return Err(self.unexpected("`,` or the end of the pipe"));
        }
        let mut call = StatsCall { func, condition, name: String::new() };
        call.name = name.unwrap_or_else(|| default_stats_name(&call));
        Ok(vec![call])
    }

    /// Cases do not exclude each other; `default` is for rows of which none is true.
    fn cases(&mut self, func: &StatsFunc) -> Result<Vec<StatsCall>> {
        let at = self.next;
        let cases = self.in_parens(|parser| {
            let condition = if parser.skip("default") {
                None
            } else if parser.skip_any(&["case", "if"]) {
                Some(parser.filter_in_parens()?)
            } else {
                return Err(parser.unexpected("`case` or `default`"));
            };
            parser.skip("as");
            Ok((condition, parser.field()?))
        })?;
        if cases.is_empty() || cases.iter().filter(|(condition, _)| condition.is_none()).count() > 1 {
            return Err(self.fault_at(at, "`switch` needs a `case` or a `default`, and has at most one `default`"));
        }
        let known: Vec<Filter> = cases.iter().filter_map(|(condition, _)| condition.clone()).collect();
        let none = || if known.is_empty() { Filter::All } else { Filter::Not(Box::new(Filter::Or(known.clone()))) };
        let call = |(condition, name): (Option<Filter>, String)| {
            let condition = Some(condition.unwrap_or_else(none));
            StatsCall { func: func.clone(), condition, name }
        };
        Ok(cases.into_iter().map(call).collect())
    }

    /// `(a[:step [offset d]], b)`.
    pub(crate) fn group_by(&mut self) -> Result<Vec<GroupBy>> {
        self.in_parens(|parser| {
            parser.count_field()?;
            let at = parser.next;
            let field = field_name(parser.word("a field name", &[":"])?);
            if parser.is_adjacent("*") {
                return Err(parser.fault_at(at, "one field expected, not a group"));
            }
            let bucket = if parser.skip(":") { Some(parser.bucket()?) } else { None };
            let mut offset = None;
            if bucket.is_some() && parser.skip("offset") {
                let at = parser.next;
                let text = parser.argument("an offset")?;
                let value = parse_number(&text)
                    .or_else(|| parse_duration(&text).map(|ns| ns as f64))
                    .ok_or_else(|| parser.fault_at(at, format!("an offset such as `2h` expected, got `{text}`")))?;
                offset = Some(Literal::new(value, text));
            }
            Ok(GroupBy { field, bucket, offset })
        })
    }

    fn bucket(&mut self) -> Result<TimeBucket> {
        let at = self.next;
        let text = self.argument("a bucket size")?;
        let named = |ns: f64| Ok(TimeBucket::Named(Literal::new(ns, text.to_ascii_lowercase())));
        match text.to_ascii_lowercase().as_str() {
            "nanosecond" => return named(1.0),
            "microsecond" => return named(1e3),
            "millisecond" => return named(1e6),
            "second" => return named(1e9),
            "minute" => return named(60e9),
            "hour" => return named(3600e9),
            "day" => return named(86_400e9),
            "week" => return Ok(TimeBucket::Week),
            "month" => return Ok(TimeBucket::Month),
            "year" => return Ok(TimeBucket::Year),
            _ => {}
        }
        if text.starts_with('/') {
            return parse_ipv4_mask(&text)
                .map(TimeBucket::Ipv4Mask)
                .ok_or_else(|| self.fault_at(at, format!("a mask from `/0` to `/32` expected, got `{text}`")));
        }
        match parse_number(&text) {
            Some(value) if value > 0.0 && value.is_finite() => Ok(TimeBucket::Step(Literal::new(value, text))),
            _ => Err(self.fault_at(at, format!("a bucket size such as `5m` or `100` expected, got `{text}`"))),
        }
    }

    fn rate(&mut self) -> Result<StatsFunc> {
        self.expect("(")?;
        self.expect(")")?;
        Ok(StatsFunc::Rate)
    }

    fn only_field(&mut self) -> Result<String> {
        let at = self.next;
        let mut fields = self.fields_in_parens()?;
        if fields.len() == 1 { Ok(fields.remove(0)) } else { Err(self.fault_at(at, "one field expected")) }
    }

    fn two_fields(&mut self) -> Result<(String, String)> {
        let at = self.next;
        match <[String; 2]>::try_from(self.fields_in_parens()?) {
            Ok([by, field]) => Ok((by, field)),
            Err(fields) => Err(self.fault_at(at, format!("two fields expected, got {}", fields.len()))),
        }
    }

    /// `(a, b*, c)`: one field, then a list that means all fields when it is empty.
    fn field_and_patterns(&mut self) -> Result<(String, Vec<FieldPattern>)> {
        let at = self.next;
        let mut all = self.in_parens(Self::field_pattern)?.into_iter();
        match all.next() {
            Some(FieldPattern::Name(by)) => Ok((by, or_all(all.collect()))),
            _ => Err(self.fault_at(at, "the field that is compared must come first")),
        }
    }

    fn quantile(&mut self) -> Result<StatsFunc> {
        self.expect("(")?;
        let at = self.next;
        let phi = self.number("a number from 0 to 1")?;
        if !(0.0..=1.0).contains(&phi.value) {
            return Err(self.fault_at(at, format!("a number from 0 to 1 expected, got `{}`", phi.text)));
        }
        let mut fields = Vec::new();
        while self.skip(",") {
            if self.is(")") {
                break;
            }
            fields.push(self.field_pattern()?);
        }
        self.expect(")")?;
        Ok(StatsFunc::Quantile { phi, fields: or_all(fields) })
    }

    fn json_values(&mut self) -> Result<StatsFunc> {
        let fields = self.patterns_in_parens()?;
        let mut sort = Vec::new();
        if self.skip_any(&["sort", "order"]) {
            self.skip("by");
            sort = self.sort_fields()?;
        }
        Ok(StatsFunc::JsonValues { fields, sort, limit: self.limit()? })
    }
}
