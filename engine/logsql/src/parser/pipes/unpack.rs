//! Pipes that pack fields into one and unpack one into fields.

use quiver_types::logs::MSG;

use super::rows::overwrite;
use crate::ast::{FieldPattern, Filter, Overwrite, Pipe, RowPipe, Unpack};
use crate::error::Result;
use crate::parser::Parser;

/// `[fields (a, b)] [as f]`.
fn packing(parser: &mut Parser<'_>) -> Result<(Vec<FieldPattern>, String)> {
    let fields = if parser.skip("fields") { parser.in_parens(Parser::field_pattern)? } else { Vec::new() };
    let fields = if fields.iter().any(FieldPattern::is_all) { Vec::new() } else { fields };
    Ok((fields, parser.as_name()?.unwrap_or_else(|| MSG.to_owned())))
}

pub(super) fn pack_json(parser: &mut Parser<'_>) -> Result<Pipe> {
    let (fields, to) = packing(parser)?;
    Ok(Pipe::Row { pipe: RowPipe::PackJson { fields, to }, condition: None })
}

pub(super) fn pack_logfmt(parser: &mut Parser<'_>) -> Result<Pipe> {
    let (fields, to) = packing(parser)?;
    Ok(Pipe::Row { pipe: RowPipe::PackLogfmt { fields, to }, condition: None })
}

/// `[if (f)] [[from] f]`.
fn source(parser: &mut Parser<'_>) -> Result<(Option<Filter>, Unpack)> {
    let condition = parser.condition()?;
    const NEXT: &[&str] =
        &["fields", "preserve_keys", "result_prefix", "keep_original_fields", "skip_empty_results", "offset"];
    let from = if parser.skip("from") || !parser.at_pipe_end() && !parser.is_any(NEXT) {
        parser.field()?
    } else {
        MSG.to_owned()
    };
    let unpack = Unpack {
        from,
        fields: Vec::new(),
        result_prefix: String::new(),
        preserve_keys: Vec::new(),
        overwrite: Overwrite::Always,
    };
    Ok((condition, unpack))
}

/// What may be said of the results.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Of {
    Syslog,
    Logfmt,
    Json,
}

/// `[fields (..)] [preserve_keys (..)] [result_prefix p] [keep_original_fields | skip_empty_results]`, in any order.
fn results(parser: &mut Parser<'_>, unpack: &mut Unpack, of: Of) -> Result<()> {
    while !parser.at_pipe_end() {
        if of > Of::Syslog && parser.skip("fields") {
            let fields = parser.in_parens(Parser::field_pattern)?;
            unpack.fields = if fields.iter().any(FieldPattern::is_all) { Vec::new() } else { fields };
        } else if of == Of::Json && parser.skip("preserve_keys") {
            unpack.preserve_keys = parser.fields_in_parens()?;
        } else if parser.skip("result_prefix") {
            unpack.result_prefix = parser.argument("a prefix")?;
            // The prefix may be written as the names that it makes.
            if parser.is_adjacent("*") {
                parser.advance();
            }
        } else if parser.is_any(&["keep_original_fields", "skip_empty_results"]) {
            unpack.overwrite = overwrite(parser);
        } else {
            return Err(parser.unexpected("`|` or the end of the pipe"));
        }
    }
    Ok(())
}

pub(super) fn unpack_json(parser: &mut Parser<'_>) -> Result<Pipe> {
    let (condition, mut unpack) = source(parser)?;
    results(parser, &mut unpack, Of::Json)?;
    Ok(Pipe::Row { pipe: RowPipe::UnpackJson(unpack), condition })
}

pub(super) fn unpack_logfmt(parser: &mut Parser<'_>) -> Result<Pipe> {
    let (condition, mut unpack) = source(parser)?;
    results(parser, &mut unpack, Of::Logfmt)?;
    Ok(Pipe::Row { pipe: RowPipe::UnpackLogfmt(unpack), condition })
}

pub(super) fn unpack_syslog(parser: &mut Parser<'_>) -> Result<Pipe> {
    let (condition, mut unpack) = source(parser)?;
    let offset = if parser.skip("offset") { Some(parser.duration("a duration after `offset`")?) } else { None };
    results(parser, &mut unpack, Of::Syslog)?;
    Ok(Pipe::Row { pipe: RowPipe::UnpackSyslog { unpack, offset }, condition })
}

pub(super) fn unpack_words(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    const NEXT: &[&str] = &["as", "drop_duplicates"];
    let from = if parser.skip("from") || !parser.at_pipe_end() && !parser.is_any(NEXT) {
        parser.field()?
    } else {
        MSG.to_owned()
    };
    let to = if parser.is("drop_duplicates") { None } else { parser.as_name()? };
    // The words take the place of the text unless said otherwise.
    let to = to.unwrap_or_else(|| from.clone());
    let pipe = RowPipe::UnpackWords { from, to, drop_duplicates: parser.skip("drop_duplicates") };
    Ok(Pipe::Row { pipe, condition })
}
