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

/// `a [as] b`, `a* [as] b*`.
fn pair(parser: &mut Parser<'_>) -> Result<PatternPair> {
    let at = parser.next;
    let source = parser.field_pattern()?;
    parser.skip("as");
    let target = parser.field_pattern()?;
    match (&source, &target) {
        (FieldPattern::Name(_), FieldPattern::Name(_)) | (FieldPattern::Prefix(_), FieldPattern::Prefix(_)) => {
            Ok(PatternPair { source, target })
        }
        _ => Err(parser.fault_at(at, "either both names end in `*` or none")),
    }
}

pub(super) fn set_stream_fields(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let fields =
        if parser.is("(") { parser.patterns_in_parens()? } else { or_all(parser.with_commas(Parser::field_pattern)?) };
    Ok(Pipe::SetStreamFields { fields, condition })
}
