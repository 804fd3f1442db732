//! Pipes over one row at a time that make fields from fields.

use quiver_types::logs::{MSG, TIME};

use crate::ast::{Filter, Overwrite, Pipe, RowPipe};
use crate::error::Result;
use crate::parser::Parser;
use crate::rowfn::{Extract, Format};

fn row(pipe: RowPipe, condition: Option<Filter>) -> Pipe {
    Pipe::Row { pipe, condition }
}

/// `from f`, if it stands here, else the message.
fn from(parser: &mut Parser<'_>) -> Result<String> {
    if parser.skip("from") { parser.field() } else { Ok(MSG.to_owned()) }
}

/// `at f`, if it stands here, else the message.
fn at(parser: &mut Parser<'_>) -> Result<String> {
    if parser.skip("at") { parser.field() } else { Ok(MSG.to_owned()) }
}

/// `as f`, if it stands here, else the message.
fn result(parser: &mut Parser<'_>) -> Result<String> {
    Ok(parser.as_name()?.unwrap_or_else(|| MSG.to_owned()))
}

/// `keep_original_fields` or `skip_empty_results`, if it stands here.
pub(super) fn overwrite(parser: &mut Parser<'_>) -> Overwrite {
    if parser.skip("keep_original_fields") {
        Overwrite::KeepOriginal
    } else if parser.skip("skip_empty_results") {
        Overwrite::SkipEmpty
    } else {
        Overwrite::Always
    }
}

/// A text that says how values are cut or made: anything up to a blank.
fn template(parser: &mut Parser<'_>, what: &str) -> Result<String> {
    if parser.at_pipe_end() {
        return Err(parser.unexpected(what));
    }
    Ok(parser.join(|token| token.is_any(&["|", ")", "("])))
}

pub(super) fn extract(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let pattern = template(parser, "a pattern such as `\"ip=<ip> \"`")?;
    Extract::new(&pattern).map_err(|fault| parser.fault_at(begin, fault))?;
    let from = from(parser)?;
    Ok(row(RowPipe::Extract { pattern, from, overwrite: overwrite(parser) }, condition))
}

pub(super) fn extract_regexp(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let pattern = template(parser, "a regular expression with named groups")?;
    let regex = parser.check_regexp(begin, &pattern)?;
    if regex.capture_names().flatten().next().is_none() {
        return Err(parser.fault_at(begin, format!("`{pattern}` has no named group such as `(?P<name>...)`")));
    }
    let from = from(parser)?;
    Ok(row(RowPipe::ExtractRegexp { pattern, from, overwrite: overwrite(parser) }, condition))
}

pub(super) fn format(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let text = template(parser, "a text such as `\"<host>:<port>\"`")?;
    Format::new(&text).map_err(|fault| parser.fault_at(begin, fault))?;
    let to = if parser.skip("as") { parser.field()? } else { MSG.to_owned() };
    Ok(row(RowPipe::Format { template: text, to, overwrite: overwrite(parser) }, condition))
}

pub(super) fn math(parser: &mut Parser<'_>) -> Result<Pipe> {
    let items = parser.with_commas(|parser| {
        let expr = parser.math(u8::MAX)?;
        let name = parser.as_name()?.unwrap_or_else(|| crate::print::math_name(&expr));
        Ok((expr, name))
    })?;
    Ok(row(RowPipe::Math(items), None))
}

/// `("a", "b")`.
fn two_texts(parser: &mut Parser<'_>) -> Result<(String, String)> {
    parser.expect("(")?;
    let old = parser.argument("the text to replace")?;
    parser.expect(",")?;
    let new = parser.argument("the new text")?;
    parser.close()?;
    Ok((old, new))
}

pub(super) fn replace(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let (old, new) = two_texts(parser)?;
    let at = at(parser)?;
    Ok(row(RowPipe::Replace { old, new, at, limit: parser.limit()?.filter(|&n| n > 0) }, condition))
}

pub(super) fn replace_regexp(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let (pattern, new) = two_texts(parser)?;
    parser.check_regexp(begin, &pattern)?;
    let at = at(parser)?;
    Ok(row(RowPipe::ReplaceRegexp { pattern, new, at, limit: parser.limit()?.filter(|&n| n > 0) }, condition))
}

pub(super) fn collapse_nums(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let at = at(parser)?;
    Ok(row(RowPipe::CollapseNums { at, prettify: parser.skip("prettify") }, condition))
}

/// The field of `f(x)` or `f x`.
pub(super) fn source(parser: &mut Parser<'_>) -> Result<String> {
    if !parser.skip("(") {
        return parser.field();
    }
    let field = parser.field()?;
    parser.close()?;
    Ok(field)
}

pub(super) fn json_array_len(parser: &mut Parser<'_>) -> Result<Pipe> {
    let from = source(parser)?;
    Ok(row(RowPipe::JsonArrayLen { from, to: result(parser)? }, None))
}

pub(super) fn len(parser: &mut Parser<'_>) -> Result<Pipe> {
    let from = source(parser)?;
    Ok(row(RowPipe::Len { from, to: result(parser)? }, None))
}

pub(super) fn hash(parser: &mut Parser<'_>) -> Result<Pipe> {
    let from = source(parser)?;
    Ok(row(RowPipe::Hash { from, to: result(parser)? }, None))
}

pub(super) fn decolorize(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    parser.skip("at");
    let field = if parser.at_pipe_end() { MSG.to_owned() } else { parser.field()? };
    Ok(row(RowPipe::Decolorize(field), condition))
}

pub(super) fn drop_empty_fields(_: &mut Parser<'_>) -> Result<Pipe> {
    Ok(row(RowPipe::DropEmptyFields, None))
}

pub(super) fn coalesce(parser: &mut Parser<'_>) -> Result<Pipe> {
    let begin = parser.next;
    let fields = parser.in_parens(Parser::field_pattern)?;
    if fields.is_empty() {
        return Err(parser.fault_at(begin, "at least one field expected"));
    }
    let default = if parser.skip("default") { parser.argument("a text after `default`")? } else { String::new() };
    Ok(row(RowPipe::Coalesce { fields, default, to: result(parser)? }, None))
}

/// `[from] f [as] r` behind a separator: the result goes where the source was unless said otherwise.
fn from_to(parser: &mut Parser<'_>) -> Result<(String, String)> {
    parser.skip("from");
    let from = if parser.at_pipe_end() || parser.is("as") { MSG.to_owned() } else { parser.field()? };
    let to = parser.as_name()?.unwrap_or_else(|| from.clone());
    Ok((from, to))
}

pub(super) fn split(parser: &mut Parser<'_>) -> Result<Pipe> {
    if parser.is_any(&["from", "as"]) {
        return Err(parser.unexpected("a separator"));
    }
    let separator = template(parser, "a separator")?;
    let (from, to) = from_to(parser)?;
    Ok(row(RowPipe::Split { separator, from, to }, None))
}

pub(super) fn json_array_concat(parser: &mut Parser<'_>) -> Result<Pipe> {
    // Without a separator the items stand side by side.
    let none = parser.at_pipe_end() || parser.is_any(&["from", "as"]);
    let separator = if none { String::new() } else { template(parser, "a separator")? };
    let (from, to) = from_to(parser)?;
    Ok(row(RowPipe::JsonArrayConcat { separator, from, to }, None))
}

pub(super) fn time_add(parser: &mut Parser<'_>) -> Result<Pipe> {
    let shift = parser.duration("a duration")?;
    let at = if parser.skip("at") { parser.field()? } else { TIME.to_owned() };
    Ok(row(RowPipe::TimeAdd { shift, at }, None))
}

pub(super) fn unroll(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    parser.skip("by");
    Ok(row(RowPipe::Unroll(parser.fields_anyhow()?), condition))
}
