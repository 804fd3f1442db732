//! Parts that several pipes are written with: read and printed in one place.

use std::collections::HashSet;

use quiver_types::logs::MSG;

use crate::ast::{FieldPattern, Filter, Overwrite, PatternPair};
use crate::error::Result;
use crate::parser::Parser;
use crate::print::{list, word};

/// Words that go on with a pipe, so that they cannot be fields without parentheses.
const CLAUSES: &[&str] = &["hits", "with", "limit", "rank", "partition", "filter", "offset"];

/// `from f`, if it stands here, else the message.
pub(crate) fn from(parser: &mut Parser<'_>) -> Result<String> {
    if parser.skip("from") { parser.field() } else { Ok(MSG.to_owned()) }
}

/// `at f`, if it stands here, else the message.
pub(crate) fn at(parser: &mut Parser<'_>) -> Result<String> {
    if parser.skip("at") { parser.field() } else { Ok(MSG.to_owned()) }
}

/// `as f`, if it stands here, else the message.
pub(crate) fn result(parser: &mut Parser<'_>) -> Result<String> {
    Ok(parser.as_name()?.unwrap_or_else(|| MSG.to_owned()))
}

/// `keyword f`, or nothing where the field is the one that is meant anyway.
pub(crate) fn unless(field: &str, default: &str, keyword: &str) -> String {
    if field == default { String::new() } else { format!(" {keyword} {}", word(field)) }
}

/// The field of `f(x)` or `f x`.
pub(crate) fn source(parser: &mut Parser<'_>) -> Result<String> {
    if !parser.skip("(") {
        return parser.field();
    }
    let field = parser.field()?;
    parser.close()?;
    Ok(field)
}

/// `[from] f [as] r` behind a separator: the result goes where the source was unless said otherwise. A field must
/// follow `from`.
pub(crate) fn from_to(parser: &mut Parser<'_>) -> Result<(String, String)> {
    let named = parser.skip("from") || !(parser.at_pipe_end() || parser.is("as"));
    let from = if named { parser.field()? } else { MSG.to_owned() };
    let to = parser.as_name()?.unwrap_or_else(|| from.clone());
    Ok((from, to))
}

/// `keep_original_fields` or `skip_empty_results`, if it stands here.
pub(crate) fn overwrite(parser: &mut Parser<'_>) -> Overwrite {
    if parser.skip("keep_original_fields") {
        Overwrite::KeepOriginal
    } else if parser.skip("skip_empty_results") {
        Overwrite::SkipEmpty
    } else {
        Overwrite::Always
    }
}

pub(crate) fn overwrite_text(overwrite: Overwrite) -> &'static str {
    match overwrite {
        Overwrite::Always => "",
        Overwrite::SkipEmpty => " skip_empty_results",
        Overwrite::KeepOriginal => " keep_original_fields",
    }
}

/// A text that says how values are cut or made: anything up to a blank, or to a sign that needs quotes there. Such a
/// sign is no part of it without them: in `extract "<a>", ..` it would make quotes part of the pattern.
pub(crate) fn template(parser: &mut Parser<'_>, what: &str) -> Result<String> {
    const STOPS: &[&str] = &["(", ")", "[", "]", "|", ","];
    if parser.at_pipe_end() || parser.is_any(STOPS) {
        return Err(parser.unexpected(what));
    }
    Ok(parser.join(|token| token.is_any(STOPS)))
}

/// Reads `("a", "b")`, as `replace` has it.
pub(crate) fn two_texts(parser: &mut Parser<'_>) -> Result<(String, String)> {
    parser.expect("(")?;
    let old = parser.argument("the text to replace")?;
    parser.expect(",")?;
    let new = parser.argument("the new text")?;
    parser.close()?;
    Ok((old, new))
}

/// ` if (f)`, or nothing.
pub(crate) fn condition_text(condition: Option<&Filter>) -> String {
    condition.map_or_else(String::new, |filter| format!(" if ({filter})"))
}

/// `a [as] b`, `a* [as] b*`; `a* [as] b` gives all of the group one name, and in `a [as] b*` the star is part of it.
pub(crate) fn pair(parser: &mut Parser<'_>) -> Result<PatternPair> {
    let source = parser.field_pattern()?;
    parser.skip("as");
    let target = match (&source, parser.field_pattern()?) {
        (FieldPattern::Name(_), FieldPattern::Prefix(prefix)) => FieldPattern::Name(format!("{prefix}*")),
        (_, target) => target,
    };
    Ok(PatternPair { source, target })
}

pub(crate) fn pairs_text(pairs: &[PatternPair]) -> String {
    list(pairs, |pair| format!("{} as {}", pair.source, pair.target))
}

pub(crate) fn names(names: &[String]) -> String {
    list(names, |name| word(name))
}

/// ` limit N`, or nothing.
pub(crate) fn limited(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| format!(" limit {limit}"))
}

/// `filter s`, if it stands here.
pub(crate) fn text_filter(parser: &mut Parser<'_>) -> Result<Option<String>> {
    if parser.skip("filter") { parser.argument("a text after `filter`").map(Some) } else { Ok(None) }
}

pub(crate) fn text_filter_text(filter: Option<&str>) -> String {
    filter.map_or_else(String::new, |text| format!(" filter {}", word(text)))
}

/// `[by] (a, b)` or `[by] a, b`.
pub(crate) fn by_fields(parser: &mut Parser<'_>) -> Result<Vec<String>> {
    parser.skip("by");
    if parser.at_pipe_end() || parser.is_any(CLAUSES) {
        return Err(parser.unexpected("fields"));
    }
    parser.fields_anyhow()
}

/// The column of counts.
pub(crate) fn hits_name(by: &[String]) -> String {
    name_beside(by, "hits".to_owned())
}

/// The name of a column, which must not be one of the fields.
pub(crate) fn name_beside(by: &[String], mut name: String) -> String {
    while by.contains(&name) {
        name.push('s');
    }
    name
}

/// The name of the column of positions: `rank [as] x`.
pub(crate) fn rank_name(parser: &mut Parser<'_>) -> Result<String> {
    let at_clause = !parser.is("as") && parser.is_any(&["limit", "offset", "partition", "desc", "asc", "hits"]);
    if at_clause { Ok("rank".to_owned()) } else { Ok(parser.as_name()?.unwrap_or_else(|| "rank".to_owned())) }
}

pub(crate) fn rank_text(rank: Option<&str>) -> String {
    match rank {
        None => String::new(),
        Some("rank") => " rank".to_owned(),
        Some(name) => format!(" rank as {}", word(name)),
    }
}

/// A number that is not 0.
pub(crate) fn above_0(parser: &mut Parser<'_>) -> Result<u64> {
    let at = parser.next;
    match parser.count("a number greater than 0")? {
        0 => Err(parser.fault_at(at, "a number greater than 0 expected, got `0`")),
        n => Ok(n),
    }
}

/// Results need names of their own.
pub(crate) fn different<'n>(
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
