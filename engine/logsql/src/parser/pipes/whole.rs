//! Pipes that look at all fields, at other queries, or at neighbours.

use super::rows;
use crate::ast::Pipe;
use crate::ast::pipe::{Facets, Join, StreamContext};
use crate::error::Result;
use crate::parser::Parser;

pub(super) fn blocks_count(parser: &mut Parser<'_>) -> Result<Pipe> {
    Ok(Pipe::BlocksCount(parser.as_name()?.unwrap_or_else(|| "blocks_count".to_owned())))
}

/// `filter s`, if it stands here.
fn text_filter(parser: &mut Parser<'_>) -> Result<Option<String>> {
    if parser.skip("filter") { parser.argument("a text after `filter`").map(Some) } else { Ok(None) }
}

pub(super) fn field_names(parser: &mut Parser<'_>) -> Result<Pipe> {
    let before = text_filter(parser)?;
    let name = if parser.is("filter") { None } else { parser.as_name()? };
    let name = name.unwrap_or_else(|| "name".to_owned());
    let filter = if before.is_some() { before } else { text_filter(parser)? };
    Ok(Pipe::FieldNames { name, filter })
}

pub(super) fn field_values(parser: &mut Parser<'_>) -> Result<Pipe> {
    let field = rows::source(parser)?;
    let filter = text_filter(parser)?;
    let limit = parser.limit()?.filter(|&n| n > 0);
    Ok(Pipe::FieldValues { field, limit, filter })
}

pub(super) fn facets(parser: &mut Parser<'_>) -> Result<Pipe> {
    let mut facets = Facets { limit: 10, max_values_per_field: 1000, max_value_len: 128, keep_const_fields: false };
    const OPTIONS: &[&str] = &["max_values_per_field", "max_value_len", "keep_const_fields"];
    if !parser.at_pipe_end() && !parser.is_any(OPTIONS) {
        facets.limit = parser.count("a number of values")?;
    }
    while !parser.at_pipe_end() {
        if parser.skip("max_values_per_field") {
            facets.max_values_per_field = parser.count("a number of values")?;
        } else if parser.skip("max_value_len") {
            facets.max_value_len = parser.count("a length")?;
        } else if parser.skip("keep_const_fields") {
            facets.keep_const_fields = true;
        } else {
            return Err(parser.unexpected("`max_values_per_field`, `max_value_len` or `keep_const_fields`"));
        }
    }
    Ok(Pipe::Facets(facets))
}

pub(super) fn join(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.skip_any(&["by", "on"]);
    let by = parser.fields_in_parens()?;
    let query = Box::new(parser.query_or_rows()?);
    let inner = parser.skip("inner");
    let mut prefix = String::new();
    if parser.skip("prefix") {
        prefix = parser.argument("a prefix")?;
        if parser.is_adjacent("*") {
            parser.advance();
        }
    }
    Ok(Pipe::Join(Join { by, query, inner, prefix }))
}

pub(super) fn sample(parser: &mut Parser<'_>) -> Result<Pipe> {
    above_0(parser).map(Pipe::Sample)
}

pub(super) fn generate_sequence(parser: &mut Parser<'_>) -> Result<Pipe> {
    above_0(parser).map(Pipe::GenerateSequence)
}

fn above_0(parser: &mut Parser<'_>) -> Result<u64> {
    let at = parser.next;
    match parser.count("a number greater than 0")? {
        0 => Err(parser.fault_at(at, "a number greater than 0 expected, got `0`")),
        n => Ok(n),
    }
}

pub(super) fn stream_context(parser: &mut Parser<'_>) -> Result<Pipe> {
    let at = parser.next;
    let mut context = StreamContext { before: None, after: None, time_window: None, within: Vec::new() };
    while !parser.at_pipe_end() {
        if context.before.is_none() && parser.skip("before") {
            context.before = Some(parser.count("a number of rows after `before`")?);
        } else if context.after.is_none() && parser.skip("after") {
            context.after = Some(parser.count("a number of rows after `after`")?);
        } else if context.time_window.is_none() && parser.skip("time_window") {
            context.time_window = Some(parser.duration("a duration after `time_window`")?);
        } else {
            return Err(parser.unexpected("`before N`, `after N` or `time_window d`"));
        }
    }
    if context.before.is_none() && context.after.is_none() {
        return Err(parser.fault_at(at.saturating_sub(1), "`stream_context` needs `before N` or `after N`"));
    }
    Ok(Pipe::StreamContext(context))
}
