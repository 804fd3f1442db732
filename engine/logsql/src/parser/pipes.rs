//! Pipes: one line each in [`PIPES`], the reading of each in a file of its family.

mod fields;
mod rows;
pub(crate) mod sets;
mod unpack;
mod whole;

use super::Parser;
use super::stats;
use crate::ast::Pipe;
use crate::error::Result;

/// A pipe: its names, the canonical one first, and how it is read (the name is already taken).
struct PipeDef {
    names: &'static [&'static str],
    parse: fn(&mut Parser<'_>) -> Result<Pipe>,
}

const fn pipe(names: &'static [&'static str], parse: fn(&mut Parser<'_>) -> Result<Pipe>) -> PipeDef {
    PipeDef { names, parse }
}

/// All pipes.
const PIPES: &[PipeDef] = &[
    pipe(&["block_stats"], |_| Ok(Pipe::BlockStats)),
    pipe(&["blocks_count"], whole::blocks_count),
    pipe(&["coalesce"], rows::coalesce),
    pipe(&["collapse_nums"], rows::collapse_nums),
    pipe(&["copy", "cp"], fields::copy),
    pipe(&["decolorize"], rows::decolorize),
    pipe(&["delete", "del", "rm", "drop"], fields::delete),
    pipe(&["drop_empty_fields"], rows::drop_empty_fields),
    pipe(&["extract"], rows::extract),
    pipe(&["extract_regexp"], rows::extract_regexp),
    pipe(&["facets"], whole::facets),
    pipe(&["field_names"], whole::field_names),
    pipe(&["field_values"], whole::field_values),
    pipe(&["fields", "keep"], fields::fields),
    pipe(&["filter", "where"], |p| p.filter_or(None).map(Pipe::Filter)),
    pipe(&["first"], sets::first),
    pipe(&["format"], rows::format),
    pipe(&["generate_sequence"], whole::generate_sequence),
    pipe(&["hash"], rows::hash),
    pipe(&["join"], whole::join),
    pipe(&["json_array_concat"], rows::json_array_concat),
    pipe(&["json_array_len"], rows::json_array_len),
    pipe(&["last"], sets::last),
    pipe(&["len"], rows::len),
    pipe(&["limit", "head"], sets::limit),
    pipe(&["math", "eval"], rows::math),
    pipe(&["offset", "skip"], |p| p.count("a number of rows").map(Pipe::Offset)),
    pipe(&["pack_json"], unpack::pack_json),
    pipe(&["pack_logfmt"], unpack::pack_logfmt),
    pipe(&["query_stats"], |_| Ok(Pipe::QueryStats)),
    pipe(&["rename", "mv"], fields::rename),
    pipe(&["replace"], rows::replace),
    pipe(&["replace_regexp"], rows::replace_regexp),
    pipe(&["running_stats"], |p| sets::window_stats(p, true)),
    pipe(&["sample"], whole::sample),
    pipe(&["set_stream_fields"], fields::set_stream_fields),
    pipe(&["sort", "order"], sets::sort),
    pipe(&["split"], rows::split),
    pipe(&["stats"], sets::stats),
    pipe(&["stream_context"], whole::stream_context),
    pipe(&["time_add"], rows::time_add),
    pipe(&["top"], sets::top),
    pipe(&["total_stats"], |p| sets::window_stats(p, false)),
    pipe(&["union"], |p| Ok(Pipe::Union(Box::new(p.query_or_rows()?)))),
    pipe(&["uniq"], sets::uniq),
    pipe(&["unpack_json"], unpack::unpack_json),
    pipe(&["unpack_logfmt"], unpack::unpack_logfmt),
    pipe(&["unpack_syslog"], unpack::unpack_syslog),
    pipe(&["unpack_words"], unpack::unpack_words),
    pipe(&["unroll"], rows::unroll),
];

/// Gives the names of all pipes, aliases too.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PIPES.iter().flat_map(|pipe| pipe.names.iter().copied())
}

/// Reads one pipe. What is no pipe by name is `stats` (a call of one of its functions) or `filter`.
pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let token = parser.token();
    let def = PIPES.iter().find(|pipe| token.is_any(pipe.names));
    // `len:5` and `format-x` are filters.
    let after = parser.after_next();
    let is_filter =
        after.is(":") || (!after.spaced && after.is_any(&["-", "*", "/"]) && parser.next + 2 < parser.tokens.len());
    if let Some(def) = def.filter(|_| !is_filter) {
        parser.advance();
        return (def.parse)(parser);
    }
    if !is_filter && parser.at_stats() {
        return sets::stats(parser);
    }
    if parser.at_pipe_end() {
        return Err(parser.unexpected("a pipe"));
    }
    let begin = parser.next;
    match parser.filter_or(None) {
        Ok(filter) if parser.at_pipe_end() => Ok(Pipe::Filter(filter)),
        other => {
            let token = &parser.tokens[begin];
            if token.is_word() && !parser.tokens[begin + 1].is(":") {
                let known = names().chain(stats::names());
                return Err(parser.unknown(begin, "pipe", known));
            }
            other.map(Pipe::Filter)
        }
    }
}
