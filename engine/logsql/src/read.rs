//! From texts to queries and filters in normal form: the parser with all pipes that there are.

use crate::ast::{Filter, Query};
use crate::error::Result;
use crate::normal;
use crate::parser::Parser;
use crate::pipes::PIPES;

/// Reads a query.
///
/// # Errors
/// `Invalid`, with the position and, for names, what may have been meant.
pub fn parse(text: &str) -> Result<Query> {
    let mut parser = Parser::new(text, PIPES)?;
    let query = parser.query()?;
    parser.expect_end()?;
    Ok(normal::query(query))
}

/// Reads a filter alone, as `extra_filters` have it. The empty text is no filter.
///
/// # Errors
/// As [`parse`].
pub fn parse_filter(text: &str) -> Result<Option<Filter>> {
    let mut parser = Parser::new(text, PIPES)?;
    if parser.at_end() {
        return Ok(None);
    }
    let filter = parser.filter_or(None)?;
    parser.skip(";");
    parser.expect_end()?;
    Ok(Some(normal::filter(filter)))
}
