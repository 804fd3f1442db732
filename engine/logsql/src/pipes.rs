//! The pipes, which process rows one after the other.
//!
//! Everything about a pipe is in its own file: how it is parsed and printed, which fields it needs from the rows before
//! it, which plan nodes it becomes, what other parts of the language ask about it, and test cases for all of this. This
//! file lists each pipe with its module and its type, which also brings its names to the parser.

pub mod answer_order;
pub mod block_stats;
pub mod blocks_count;
pub mod coalesce;
pub mod collapse_nums;
pub mod copy;
pub mod decolorize;
pub mod deduplicate;
pub mod delete;
pub mod drop_empty_fields;
pub mod extract;
pub mod extract_regexp;
pub mod facets;
pub mod field_names;
pub mod field_values;
pub mod fields;
pub mod filter;
pub mod format;
pub mod generate_sequence;
pub mod hash;
pub mod join;
pub mod json_array_concat;
pub mod json_array_len;
pub mod len;
pub mod limit;
pub mod math;
pub mod offset;
pub mod pack;
pub(crate) mod pipe;
pub mod query_stats;
pub mod rename;
pub mod replace;
pub mod replace_regexp;
pub(crate) mod row_pipe;
pub mod rows;
pub mod sample;
pub mod set_stream_fields;
pub mod sort;
pub mod split;
pub mod stats;
pub mod stream_context;
pub mod stream_labels;
pub(crate) mod syntax;
#[cfg(test)]
pub(crate) mod testing;
pub mod time_add;
pub mod top;
pub mod top_groups;
pub mod union;
pub mod uniq;
pub mod unpack;
pub mod unpack_named;
pub mod unpack_syslog;
pub mod unpack_words;
pub mod unroll;
pub mod window_stats;

use pipe::{Pipe, PipeKind};

use crate::error::Result;
use crate::parser::{self, Parser, PipeDef, PipeTable};
use crate::step::StepReader;

/// Makes the lists of all pipes out of one line each.
macro_rules! pipes {
    ($($file:ident::$kind:ident,)*) => {
        /// How pipes are written, file by file.
        const DEFS: &[&[PipeDef]] = &[$($file::DEFS,)*];

        /// How the steps are read that are of one pipe alone, pipe by pipe.
        pub(crate) fn steps() -> impl Iterator<Item = &'static [StepReader]> {
            [$(<$file::$kind as PipeKind>::steps(),)*].into_iter()
        }
    };
}

pipes! {
    // `counted v by n limit N`, `series by (...)`: what requests put into queries; no pipe by name.
    answer_order::AnswerOrder,
    // `block_stats`: gives rows, columns and bytes of each batch
    block_stats::BlockStats,
    // `blocks_count [as x]`
    blocks_count::BlocksCount,
    // `coalesce(a, b) [default v] [as r]`
    coalesce::Coalesce,
    // `collapse_nums [at f]`: writes `<N>` in place of numbers
    collapse_nums::CollapseNums,
    // `copy a as b`
    copy::Copy,
    // `decolorize [f]`: takes ANSI escapes for colours out
    decolorize::Decolorize,
    // `deduplicate [by (...)]`
    deduplicate::Deduplicate,
    // `delete a, b*`
    delete::Delete,
    // `drop_empty_fields`: leaves out empty fields, and rows without others
    drop_empty_fields::DropEmptyFields,
    // `extract "p" [from f]`
    extract::Extract,
    // `extract_regexp "re" [from f]`
    extract_regexp::ExtractRegexp,
    // `facets [N]`: gives the most frequent values of each field
    facets::Facets,
    // `field_names`: gives the names of all fields, with counts of rows
    field_names::FieldNames,
    // `field_values f`: gives the values of a field, with counts of rows
    field_values::FieldValues,
    // `fields a, b*`
    fields::Fields,
    // `filter f`, `where f`: keeps rows that match
    filter::FilterRows,
    // `format "t" [as f]`
    format::Format,
    // `generate_sequence N`: gives rows whose message counts from 0
    generate_sequence::GenerateSequence,
    // `hash(f) as r`
    hash::HashOf,
    // `join by (...) (query)`, `join by (...) rows(...)`
    join::Join,
    // `json_array_concat "s" [from f] [as r]`
    json_array_concat::JsonArrayConcat,
    // `json_array_len(f) as r`
    json_array_len::JsonArrayLen,
    // `len(f) as r`
    len::Len,
    // `limit N`, `head N`: lets the first rows through
    limit::Limit,
    // `math e as r, ..`
    math::Math,
    // `offset N`, `skip N`: leaves out the first rows
    offset::Offset,
    // `others by (...) limit N as r`: what requests put into queries; no pipe by name.
    top_groups::Others,
    // `pack_json [fields (...)] [as r]`, `pack_logfmt [fields (...)] [as r]`
    pack::Pack,
    // `query_stats`: gives one row with what the query read
    query_stats::QueryStats,
    // `rename a as b`
    rename::Rename,
    // `replace ("a", "b")`
    replace::Replace,
    // `replace_regexp ("re", "b")`
    replace_regexp::ReplaceRegexp,
    // `rows({name:value, ..}, ..)`: what `join` and `union` may take instead of a query; the one pipe of that query.
    rows::Rows,
    // `sample N`: lets one of N rows through, by chance
    sample::Sample,
    // `set_stream_fields a, b`
    set_stream_fields::SetStreamFields,
    // `sort`, `first`, `last`
    sort::Sort,
    // `split "s" [from f] [as r]`
    split::Split,
    // `[stats] [by (...)] f(a) [as r], ..`
    stats::Stats,
    // `stream_context [before N] [after N]`: gives the rows around matches, too
    stream_context::StreamContext,
    // `stream_labels as r`: what requests put into queries; no pipe by name.
    stream_labels::StreamLabels,
    // `time_add d [at f]`
    time_add::TimeAdd,
    // `top N by (...)`
    top::Top,
    // `union (query)` or `union rows(...)`
    union::Union,
    // `uniq by (...)`
    uniq::Uniq,
    // `unpack_json [from f]`, `unpack_logfmt [from f]`
    unpack_named::UnpackNamed,
    // `unpack_syslog [offset d]`
    unpack_syslog::UnpackSyslog,
    // `unpack_words [from f] [as r]`: makes a JSON array of the words of a text
    unpack_words::UnpackWords,
    // `unroll by (a, b)`
    unroll::Unroll,
    // `running_stats [by (...)] f(a) [as r], ..`, `total_stats [by (...)] f(a) [as r], ..`
    window_stats::WindowStats,
}

/// The pipes as the parser knows them.
pub(crate) const PIPES: &PipeTable = &PipeTable { defs: DEFS, parse };

/// Names, canonical ones first, and documents of all pipes.
pub fn documents() -> Vec<(&'static [&'static str], &'static str)> {
    let mut all: Vec<_> = PIPES.defs().map(|def| (def.names, def.doc)).collect();
    all.sort_unstable();
    all
}

/// Names and documents of the functions of `stats`.
pub fn function_documents() -> Vec<(&'static str, &'static str)> {
    parser::stats::documents()
}

/// Reads one pipe. What is no pipe by name is `stats` (a call of one of its functions) or `filter`.
fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let token = parser.token();
    let def = PIPES.defs().find(|def| token.is_any(def.names));
    // `len:5` and `format-x` are filters.
    let after = parser.after_next();
    let is_filter =
        after.is(":") || (!after.spaced && after.is_any(&["-", "*", "/"]) && parser.next + 2 < parser.tokens.len());
    if let Some(def) = def.filter(|_| !is_filter) {
        parser.advance();
        return (def.parse)(parser);
    }
    if !is_filter && parser.at_stats() {
        return stats::parse(parser);
    }
    if parser.at_pipe_end() {
        return Err(parser.unexpected("a pipe"));
    }
    let begin = parser.next;
    match parser.filter_or(None) {
        Ok(filter) if parser.at_pipe_end() => {
            parser.count_reads_of(&filter)?;
            Ok(filter::FilterRows(filter).into())
        }
        other => {
            let token = &parser.tokens[begin];
            if token.is_word() && !parser.tokens[begin + 1].is(":") {
                let known = PIPES.names().chain(parser::stats::names());
                return Err(parser.unknown(begin, "pipe", known));
            }
            other.map(|filter| filter::FilterRows(filter).into())
        }
    }
}

#[cfg(test)]
mod tests;
