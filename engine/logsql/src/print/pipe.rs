//! Canonical text of pipes.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::{MSG, TIME};

use super::{list, literal, patterns, word};
use crate::ast::pipe::{Facets, Join, Sort, SortForm, StreamContext, Top, Uniq, WindowCall};
use crate::ast::{Filter, MathExpr, Overwrite, PatternPair, Pipe, Query, RowPipe, Unpack};
use crate::lexer::quote;
use crate::parser::{math_func_name, window_func_name};

impl Display for Pipe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let pairs = |pairs: &[PatternPair]| list(pairs, |pair| format!("{} as {}", pair.source, pair.target));
        match self {
            Self::Fields(fields) => write!(f, "fields {}", patterns(fields)),
            Self::Delete(fields) => write!(f, "delete {}", patterns(fields)),
            Self::Copy(all) => write!(f, "copy {}", pairs(all)),
            Self::Rename(all) => write!(f, "rename {}", pairs(all)),
            Self::Filter(filter) => write!(f, "filter {filter}"),
            Self::Sort(sort) => write!(f, "{sort}"),
            Self::Limit(n) => write!(f, "limit {n}"),
            Self::Offset(n) => write!(f, "offset {n}"),
            Self::Uniq(uniq) => write!(f, "{uniq}"),
            Self::Top(top) => write!(f, "{top}"),
            Self::FieldNames { name, filter } => {
                f.write_str("field_names")?;
                if name != "name" {
                    write!(f, " as {}", word(name))?;
                }
                text_filter(f, filter.as_deref())
            }
            Self::FieldValues { field, limit, filter } => {
                write!(f, "field_values {}", word(field))?;
                text_filter(f, filter.as_deref())?;
                limit.map_or(Ok(()), |limit| write!(f, " limit {limit}"))
            }
            Self::Facets(facets) => write!(f, "{facets}"),
            Self::Stats(stats) => write!(f, "{stats}"),
            Self::WindowStats { running, by, calls } => {
                f.write_str(if *running { "running_stats" } else { "total_stats" })?;
                if !by.is_empty() {
                    write!(f, " by ({})", names(by))?;
                }
                write!(f, " {}", list(calls, |call| format!("{} as {}", window_call_text(call), word(&call.name))))
            }
            Self::Join(join) => write!(f, "{join}"),
            Self::Union(query) => write!(f, "union {}", query_or_rows(query)),
            Self::StreamContext(context) => write!(f, "{context}"),
            Self::Sample(n) => write!(f, "sample {n}"),
            Self::Rows(rows) => f.write_str(&rows_text(rows)),
            Self::GenerateSequence(n) => write!(f, "generate_sequence {n}"),
            Self::BlockStats => f.write_str("block_stats"),
            Self::BlocksCount(name) if name == "blocks_count" => f.write_str("blocks_count"),
            Self::BlocksCount(name) => write!(f, "blocks_count as {}", word(name)),
            Self::QueryStats => f.write_str("query_stats"),
            Self::SetStreamFields { fields, condition } => {
                write!(f, "set_stream_fields{} {}", condition_text(condition.as_ref()), patterns(fields))
            }
            Self::Row { pipe, condition } => row(f, pipe, &condition_text(condition.as_ref())),
        }
    }
}

fn text_filter(f: &mut Formatter<'_>, filter: Option<&str>) -> fmt::Result {
    filter.map_or(Ok(()), |text| write!(f, " filter {}", word(text)))
}

fn names(names: &[String]) -> String {
    list(names, |name| word(name))
}

fn condition_text(condition: Option<&Filter>) -> String {
    condition.map_or_else(String::new, |filter| format!(" if ({filter})"))
}

/// `keyword f`, or nothing when the field is the default one.
fn unless(field: &str, default: &str, keyword: &str) -> String {
    if field == default { String::new() } else { format!(" {keyword} {}", word(field)) }
}

fn overwrite_text(overwrite: Overwrite) -> &'static str {
    match overwrite {
        Overwrite::Always => "",
        Overwrite::SkipEmpty => " skip_empty_results",
        Overwrite::KeepOriginal => " keep_original_fields",
    }
}

fn limited(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| format!(" limit {limit}"))
}

fn row(f: &mut Formatter<'_>, pipe: &RowPipe, condition: &str) -> fmt::Result {
    let from = |field: &str| unless(field, MSG, "from");
    let at = |field: &str| unless(field, MSG, "at");
    let to = |field: &str| unless(field, MSG, "as");
    match pipe {
        RowPipe::Extract { pattern, from: source, overwrite } => {
            write!(f, "extract{condition} {}{}{}", quote(pattern), from(source), overwrite_text(*overwrite))
        }
        RowPipe::ExtractRegexp { pattern, from: source, overwrite } => {
            write!(f, "extract_regexp{condition} {}{}{}", quote(pattern), from(source), overwrite_text(*overwrite))
        }
        RowPipe::Format { template, to: result, overwrite } => {
            write!(f, "format{condition} {}{}{}", word(template), to(result), overwrite_text(*overwrite))
        }
        RowPipe::Math(items) => {
            write!(f, "math {}", list(items, |(e, name)| format!("{} as {}", math_text(e), word(name))))
        }
        RowPipe::Replace { old, new, at: field, limit } => {
            write!(f, "replace{condition} ({}, {}){}{}", word(old), word(new), at(field), limited(*limit))
        }
        RowPipe::ReplaceRegexp { pattern, new, at: field, limit } => {
            write!(f, "replace_regexp{condition} ({}, {}){}{}", word(pattern), word(new), at(field), limited(*limit))
        }
        RowPipe::CollapseNums { at: field, prettify } => {
            write!(f, "collapse_nums{condition}{}{}", at(field), if *prettify { " prettify" } else { "" })
        }
        RowPipe::PackJson { fields, to: result } => write!(f, "pack_json{}{}", packed(fields), to(result)),
        RowPipe::PackLogfmt { fields, to: result } => write!(f, "pack_logfmt{}{}", packed(fields), to(result)),
        RowPipe::UnpackJson(unpack) => unpack_text(f, "unpack_json", condition, unpack, ""),
        RowPipe::UnpackLogfmt(unpack) => unpack_text(f, "unpack_logfmt", condition, unpack, ""),
        RowPipe::UnpackSyslog { unpack, offset } => {
            let offset = offset.as_ref().map_or_else(String::new, |d| format!(" offset {}", literal(&d.text)));
            unpack_text(f, "unpack_syslog", condition, unpack, &offset)
        }
        RowPipe::UnpackWords { from: source, to: result, drop_duplicates } => {
            let once = if *drop_duplicates { " drop_duplicates" } else { "" };
            write!(f, "unpack_words{condition}{}{}{once}", from(source), unless(result, source, "as"))
        }
        RowPipe::Unroll(fields) => write!(f, "unroll{condition} by ({})", names(fields)),
        RowPipe::JsonArrayLen { from: source, to: result } => {
            write!(f, "json_array_len({}){}", word(source), to(result))
        }
        RowPipe::JsonArrayConcat { separator, from: source, to: result } => {
            write!(f, "json_array_concat {}{}{}", quote(separator), from(source), unless(result, source, "as"))
        }
        RowPipe::Len { from: source, to: result } => write!(f, "len({}){}", word(source), to(result)),
        RowPipe::Hash { from: source, to: result } => write!(f, "hash({}){}", word(source), to(result)),
        RowPipe::Decolorize(field) if field == MSG => write!(f, "decolorize{condition}"),
        RowPipe::Decolorize(field) => write!(f, "decolorize{condition} {}", word(field)),
        RowPipe::DropEmptyFields => f.write_str("drop_empty_fields"),
        RowPipe::Coalesce { fields, default, to: result } => {
            let default = if default.is_empty() { String::new() } else { format!(" default {}", word(default)) };
            write!(f, "coalesce({}){default}{}", patterns(fields), to(result))
        }
        RowPipe::Split { separator, from: source, to: result } => {
            write!(f, "split {}{}{}", quote(separator), from(source), unless(result, source, "as"))
        }
        RowPipe::TimeAdd { shift, at: field } => {
            write!(f, "time_add {}{}", literal(&shift.text), unless(field, TIME, "at"))
        }
    }
}

fn packed(fields: &[crate::ast::FieldPattern]) -> String {
    if fields.is_empty() { String::new() } else { format!(" fields ({})", patterns(fields)) }
}

fn unpack_text(f: &mut Formatter<'_>, name: &str, condition: &str, unpack: &Unpack, offset: &str) -> fmt::Result {
    write!(f, "{name}{condition}{}{offset}", unless(&unpack.from, MSG, "from"))?;
    if !unpack.fields.is_empty() {
        write!(f, " fields ({})", patterns(&unpack.fields))?;
    }
    if !unpack.preserve_keys.is_empty() {
        write!(f, " preserve_keys ({})", names(&unpack.preserve_keys))?;
    }
    if !unpack.result_prefix.is_empty() {
        write!(f, " result_prefix {}", word(&unpack.result_prefix))?;
    }
    f.write_str(overwrite_text(unpack.overwrite))
}

/// `(query)`, or the rows that stand in its place.
fn query_or_rows(query: &Query) -> String {
    match query.pipes.as_slice() {
        [Pipe::Rows(rows)] => rows_text(rows),
        _ => format!("({query})"),
    }
}

fn rows_text(rows: &[Vec<(String, String)>]) -> String {
    let row = |row: &Vec<(String, String)>| {
        format!("{{{}}}", list(row, |(name, value)| format!("{}:{}", quote(name), quote(value))))
    };
    format!("rows({})", list(rows, row))
}

/// `a desc, b`.
pub(super) fn sort_fields(by: &[(String, bool)]) -> String {
    list(by, |(field, descending)| format!("{}{}", word(field), if *descending { " desc" } else { "" }))
}

fn rank_text(rank: Option<&String>) -> String {
    match rank.map(String::as_str) {
        None => String::new(),
        Some("rank") => " rank".to_owned(),
        Some(name) => format!(" rank as {}", word(name)),
    }
}

impl Display for Sort {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.form {
            SortForm::Sort => "sort",
            SortForm::First => "first",
            SortForm::Last => "last",
        })?;
        if self.form != SortForm::Sort && self.limit != Some(1) {
            write!(f, " {}", self.limit.unwrap_or(1))?;
        }
        if !self.by.is_empty() {
            write!(f, " by ({})", sort_fields(&self.by))?;
        }
        if self.descending {
            f.write_str(" desc")?;
        }
        if !self.partition_by.is_empty() {
            write!(f, " partition by ({})", names(&self.partition_by))?;
        }
        if self.offset > 0 {
            write!(f, " offset {}", self.offset)?;
        }
        if self.form == SortForm::Sort {
            f.write_str(&limited(self.limit))?;
        }
        f.write_str(&rank_text(self.rank.as_ref()))
    }
}

impl Display for Uniq {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "uniq by ({})", names(&self.by))?;
        if self.hits.is_some() {
            f.write_str(" with hits")?;
        }
        text_filter(f, self.filter.as_deref())?;
        f.write_str(&limited(self.limit))
    }
}

impl Display for Top {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("top")?;
        if self.limit != 10 {
            write!(f, " {}", self.limit)?;
        }
        write!(f, " by ({})", names(&self.by))?;
        if self.hits != "hits" {
            write!(f, " hits as {}", word(&self.hits))?;
        }
        f.write_str(&rank_text(self.rank.as_ref()))
    }
}

impl Display for Facets {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("facets")?;
        if self.limit != 10 {
            write!(f, " {}", self.limit)?;
        }
        if self.max_values_per_field != 1000 {
            write!(f, " max_values_per_field {}", self.max_values_per_field)?;
        }
        if self.max_value_len != 128 {
            write!(f, " max_value_len {}", self.max_value_len)?;
        }
        if self.keep_const_fields { f.write_str(" keep_const_fields") } else { Ok(()) }
    }
}

impl Display for Join {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "join by ({}) {}", names(&self.by), query_or_rows(&self.query))?;
        if self.inner {
            f.write_str(" inner")?;
        }
        if self.prefix.is_empty() { Ok(()) } else { write!(f, " prefix {}", word(&self.prefix)) }
    }
}

impl Display for StreamContext {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("stream_context")?;
        if let Some(before) = self.before {
            write!(f, " before {before}")?;
        }
        if let Some(after) = self.after {
            write!(f, " after {after}")?;
        }
        self.time_window.as_ref().map_or(Ok(()), |window| write!(f, " time_window {}", literal(&window.text)))
    }
}

/// `f(a, b)`.
pub(crate) fn window_call_text(call: &WindowCall) -> String {
    let text = format!("{}({})", window_func_name(call.func), patterns(&call.fields));
    if call.offset == 0 { text } else { format!("{text} offset {}", call.offset) }
}

/// An expression; an operator at the top stands in parentheses.
pub(crate) fn math_text(expr: &MathExpr) -> String {
    let text = operand(expr, u8::MAX);
    if matches!(expr, MathExpr::Binary { .. }) { format!("({text})") } else { text }
}

/// The name of a result that was given none: the expression without parentheses around it.
pub(crate) fn math_name(expr: &MathExpr) -> String {
    operand(expr, u8::MAX)
}

/// An expression as part of an operator that takes operators up to a rank without parentheses.
fn operand(expr: &MathExpr, loosest: u8) -> String {
    match expr {
        MathExpr::Number(number) => literal(&number.text),
        MathExpr::Field(name) => word(name),
        MathExpr::Negate(inner) => format!("-{}", operand(inner, 0)),
        MathExpr::Call { func, args } => {
            format!("{}({})", math_func_name(*func), list(args, |arg| operand(arg, u8::MAX)))
        }
        MathExpr::Binary { op, left, right } => {
            let (sign, rank) = op.text();
            let text = format!("{} {sign} {}", operand(left, rank), operand(right, rank - 1));
            if rank > loosest { format!("({text})") } else { text }
        }
    }
}
