//! From texts to queries and filters in normal form: the parser with all pipes that there are.

use crate::ast::{Filter, Query};
use crate::error::Result;
use crate::normal_form;
use crate::parser::{Parser, Regexps};
use crate::pipes::PIPES;

/// Reads a query.
///
/// # Errors
/// `Invalid`, with the position and, for names, what may have been meant.
pub fn parse(text: &str) -> Result<Query> {
    parse_among(text, &mut Regexps::default())
}

/// Reads a query that is one of several texts: their regular expressions count together.
///
/// # Errors
/// As [`parse`].
pub fn parse_among(text: &str, regexps: &mut Regexps) -> Result<Query> {
    let mut parser = Parser::new(text, PIPES)?;
    std::mem::swap(&mut parser.regexps, regexps);
    let query = parser.query()?;
    parser.expect_end()?;
    std::mem::swap(&mut parser.regexps, regexps);
    Ok(normal_form::query(query))
}

/// Reads a filter alone, as `extra_filters` have it. The empty text is no filter.
///
/// # Errors
/// As [`parse`].
pub fn parse_filter(text: &str) -> Result<Option<Filter>> {
    parse_filter_among(text, &mut Regexps::default())
}

/// Like [`parse_filter`], for one of several texts.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_filter_among(text: &str, regexps: &mut Regexps) -> Result<Option<Filter>> {
    let mut parser = Parser::new(text, PIPES)?;
    if parser.at_end() {
        return Ok(None);
    }
    std::mem::swap(&mut parser.regexps, regexps);
    let filter = parser.filter_or(None)?;
    parser.skip(";");
    parser.expect_end()?;
    std::mem::swap(&mut parser.regexps, regexps);
    Ok(Some(normal_form::filter(filter)))
}
