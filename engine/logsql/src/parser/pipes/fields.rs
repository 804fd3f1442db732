//! Pipes that keep, drop and rename fields.

use crate::ast::{FieldPattern, PatternPair, Pipe};
use crate::error::Result;
use crate::parser::Parser;
use crate::parser::names::or_all;

pub(super) fn fields(parser: &mut Parser<'_>) -> Result<Pipe> {
    let fields = parser.with_commas(Parser::field_pattern)?;
    Ok(Pipe::Fields(or_all(fields)))
}

pub(super) fn delete(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.with_commas(Parser::field_pattern).map(Pipe::Delete)
}

pub(super) fn copy(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.with_commas(pair).map(Pipe::Copy)
}

pub(super) fn rename(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.with_commas(pair).map(Pipe::Rename)
}

/// `a [as] b`, `a* [as] b*`; `a* [as] b` gives all of the group one name, and in `a [as] b*` the star is part of it.
fn pair(parser: &mut Parser<'_>) -> Result<PatternPair> {
    let source = parser.field_pattern()?;
    parser.skip("as");
    let target = match (&source, parser.field_pattern()?) {
        (FieldPattern::Name(_), FieldPattern::Prefix(prefix)) => FieldPattern::Name(format!("{prefix}*")),
        (_, target) => target,
    };
    Ok(PatternPair { source, target })
}

pub(super) fn set_stream_fields(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let fields =
        if parser.is("(") { parser.patterns_in_parens()? } else { or_all(parser.with_commas(Parser::field_pattern)?) };
    Ok(Pipe::SetStreamFields { fields, condition })
}
