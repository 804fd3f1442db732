//! Pipes that order, cut, group and count rows.

use std::collections::HashSet;

use crate::ast::pipe::{Sort, SortForm, Stats, Top, Uniq, WindowCall, WindowFunc};
use crate::ast::{FieldPattern, Pipe};
use crate::error::Result;
use crate::parser::Parser;
use crate::parser::names::or_all;

/// Words that go on with the pipe, so that they cannot be fields without parentheses.
const CLAUSES: &[&str] = &["hits", "with", "limit", "rank", "partition", "filter", "offset"];

impl Parser<'_> {
    /// `(a desc, b asc)`.
    pub(in crate::parser) fn sort_fields(&mut self) -> Result<Vec<(String, bool)>> {
        self.in_parens(|parser| {
            let field = parser.field()?;
            let descending = parser.skip("desc");
            if !descending {
                parser.skip("asc");
            }
            Ok((field, descending))
        })
    }
}

fn unsorted(form: SortForm) -> Sort {
    Sort { form, by: Vec::new(), descending: false, offset: 0, limit: None, partition_by: Vec::new(), rank: None }
}

pub(super) fn sort(parser: &mut Parser<'_>) -> Result<Pipe> {
    let mut sort = unsorted(SortForm::Sort);
    sort_by(parser, &mut sort)?;
    let mut offset = None;
    while !parser.at_pipe_end() {
        if parser.skip("desc") {
            sort.descending = true;
        } else if parser.skip("asc") {
            sort.descending = false;
        } else if parser.is("limit") && sort.limit.is_none() {
            sort.limit = parser.limit()?;
        } else if offset.is_none() && parser.skip("offset") {
            offset = Some(parser.count("a number of rows after `offset`")?);
        } else if sort.partition_by.is_empty() && parser.skip("partition") {
            parser.skip("by");
            sort.partition_by = parser.fields_in_parens()?;
        } else if sort.rank.is_none() && parser.skip("rank") {
            sort.rank = Some(rank_name(parser)?);
        } else {
            return Err(parser.unexpected("`desc`, `offset`, `limit`, `partition by` or `rank`"));
        }
    }
    sort.offset = offset.unwrap_or(0);
    Ok(Pipe::Sort(sort))
}

fn sort_by(parser: &mut Parser<'_>, sort: &mut Sort) -> Result<()> {
    if parser.skip("by") || parser.is("(") {
        sort.by = parser.sort_fields()?;
    }
    Ok(())
}

/// The name of the column of positions: `rank [as] x`.
fn rank_name(parser: &mut Parser<'_>) -> Result<String> {
    let at_clause = !parser.is("as") && parser.is_any(&["limit", "offset", "partition", "desc", "asc", "hits"]);
    if at_clause { Ok("rank".to_owned()) } else { Ok(parser.as_name()?.unwrap_or_else(|| "rank".to_owned())) }
}

pub(super) fn first(parser: &mut Parser<'_>) -> Result<Pipe> {
    ends(parser, SortForm::First)
}

pub(super) fn last(parser: &mut Parser<'_>) -> Result<Pipe> {
    ends(parser, SortForm::Last)
}

fn ends(parser: &mut Parser<'_>, form: SortForm) -> Result<Pipe> {
    let mut sort = unsorted(form);
    let counted = !parser.at_pipe_end() && !parser.is_any(&["by", "(", "partition", "rank"]);
    sort.limit = Some(if counted { parser.count("a number of rows")? } else { 1 });
    sort_by(parser, &mut sort)?;
    if parser.skip("partition") {
        parser.skip("by");
        sort.partition_by = parser.fields_in_parens()?;
    }
    if parser.skip("rank") {
        sort.rank = Some(rank_name(parser)?);
    }
    Ok(Pipe::Sort(sort))
}

pub(super) fn limit(parser: &mut Parser<'_>) -> Result<Pipe> {
    if parser.at_pipe_end() { Ok(Pipe::Limit(10)) } else { parser.count("a number of rows").map(Pipe::Limit) }
}

/// `[by] (a, b)` or `[by] a, b`.
fn by_fields(parser: &mut Parser<'_>) -> Result<Vec<String>> {
    parser.skip("by");
    if parser.at_pipe_end() || parser.is_any(CLAUSES) {
        return Err(parser.unexpected("fields"));
    }
    parser.fields_anyhow()
}

pub(super) fn uniq(parser: &mut Parser<'_>) -> Result<Pipe> {
    let by = by_fields(parser)?;
    let mut uniq = Uniq { by, hits: None, limit: None, filter: None };
    while !parser.at_pipe_end() {
        if parser.is("with") || parser.is("hits") {
            if parser.skip("with") && !parser.is("hits") {
                return Err(parser.unexpected("`hits`"));
            }
            parser.advance();
            uniq.hits = Some(hits_name(&uniq.by));
        } else if uniq.limit.is_none() && parser.is("limit") {
            uniq.limit = parser.limit()?.filter(|&n| n > 0);
        } else if uniq.filter.is_none() && parser.skip("filter") {
            uniq.filter = Some(parser.argument("a text after `filter`")?);
        } else {
            return Err(parser.unexpected("`with hits`, `limit` or the end of the pipe"));
        }
    }
    Ok(Pipe::Uniq(uniq))
}

/// The column of the counts, which must not be one of the fields.
fn hits_name(by: &[String]) -> String {
    let mut name = "hits".to_owned();
    while by.contains(&name) {
        name.push('s');
    }
    name
}

pub(super) fn top(parser: &mut Parser<'_>) -> Result<Pipe> {
    let numeric = !parser.token().quoted && parser.token().text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let (limit, limit_text) =
        if numeric { parser.count("a number of rows").map(|n| (n, Some(n.to_string())))? } else { (10, None) };
    let by = by_fields(parser)?;
    let mut top = Top { hits: hits_name(&by), by, limit, limit_text, rank: None };
    while !parser.at_pipe_end() {
        if parser.skip("hits") {
            parser.skip("as");
            top.hits = parser.field()?;
        } else if top.rank.is_none() && parser.skip("rank") {
            top.rank = Some(rank_name(parser)?);
        } else {
            return Err(parser.unexpected("`hits as`, `rank` or the end of the pipe"));
        }
    }
    Ok(Pipe::Top(top))
}

pub(super) fn stats(parser: &mut Parser<'_>) -> Result<Pipe> {
    let by = if parser.skip("by") || parser.is("(") { parser.group_by()? } else { Vec::new() };
    let at = parser.next;
    let calls = parser.with_commas(Parser::stats_calls)?.concat();
    different(parser, at, calls.iter().map(|call| &call.name), by.iter().map(|by| &by.field))?;
    Ok(Pipe::Stats(Stats { by, calls }))
}

/// Results need names of their own.
fn different<'n>(
    parser: &Parser<'_>,
    at: usize,
    results: impl Iterator<Item = &'n String>,
    by: impl Iterator<Item = &'n String>,
) -> Result<()> {
    let by: HashSet<&String> = by.collect();
    let mut seen = HashSet::new();
    for name in results {
        if by.contains(name) {
            return Err(parser.fault_at(at, format!("`{name}` is a field of `by`, a result cannot have the same name")));
        }
        if !seen.insert(name) {
            return Err(parser.fault_at(at, format!("two results have the name `{name}`; give one another with `as`")));
        }
    }
    Ok(())
}

/// Values of so many rows are kept per group.
const WINDOW_OFFSET_MAX: usize = 1000;

const WINDOW_FUNCS: &[(&str, WindowFunc)] = &[
    ("count", WindowFunc::Count),
    ("first", WindowFunc::First),
    ("last", WindowFunc::Last),
    ("max", WindowFunc::Max),
    ("min", WindowFunc::Min),
    ("sum", WindowFunc::Sum),
];

/// Gives the name of a function of `running_stats` and `total_stats`.
pub(crate) fn window_func_name(func: WindowFunc) -> &'static str {
    WINDOW_FUNCS.iter().find(|(_, f)| *f == func).map_or("", |(name, _)| name)
}

pub(super) fn window_stats(parser: &mut Parser<'_>, running: bool) -> Result<Pipe> {
    let by = if parser.skip("by") || parser.is("(") { parser.in_parens(Parser::field)? } else { Vec::new() };
    let at = parser.next;
    let calls = parser.with_commas(|parser| {
        let at = parser.next;
        let Some(&(name, func)) = WINDOW_FUNCS.iter().find(|(name, _)| parser.is(name)) else {
            return Err(parser.unknown(at, "function", WINDOW_FUNCS.iter().map(|(name, _)| *name)));
        };
        parser.advance();
        let fields = or_all(parser.in_parens(Parser::field_pattern)?);
        if matches!(func, WindowFunc::First | WindowFunc::Last) && !matches!(*fields, [FieldPattern::Name(_)]) {
            return Err(parser.fault_at(at, format!("`{name}` takes one field")));
        }
        let mut offset = 0;
        if matches!(func, WindowFunc::First | WindowFunc::Last) && parser.skip("offset") {
            let at = parser.next;
            let rows = parser.count("a number of rows")?;
            offset = usize::try_from(rows).ok().filter(|&n| n <= WINDOW_OFFSET_MAX).ok_or_else(|| {
                parser.fault_at(at, format!("an offset of at most {WINDOW_OFFSET_MAX} rows expected, got `{rows}`"))
            })?;
        }
        let result = parser.as_name()?;
        let mut call = WindowCall { func, fields, offset, name: String::new() };
        call.name = result.unwrap_or_else(|| crate::print::window_call_text(&call));
        Ok(call)
    })?;
    different(parser, at, calls.iter().map(|call| &call.name), std::iter::empty())?;
    Ok(Pipe::WindowStats { running, by, calls })
}
