//! Stream selectors: `{a="b",c=~"d|e" or f in ("g", "h")}`.

use super::Parser;
use crate::ast::{StreamFilter, StreamMatch, StreamOp};
use crate::error::Result;

/// What every value matches.
const ANY: &str = ".*";

impl Parser<'_> {
    pub(crate) fn stream_filter(&mut self) -> Result<StreamFilter> {
        self.expect("{")?;
        let mut groups = Vec::new();
        if self.skip("}") {
            return Ok(StreamFilter { groups });
        }
        loop {
            groups.push(self.stream_group()?);
            if self.skip("}") {
                return Ok(StreamFilter { groups });
            }
            if !self.skip("or") {
                return Err(self.unexpected("`,`, `or` or `}`"));
            }
        }
    }

    fn stream_group(&mut self) -> Result<Vec<StreamMatch>> {
        let mut all = vec![self.stream_match()?];
        while self.skip(",") {
            if self.is("}") {
                break;
            }
            all.push(self.stream_match()?);
        }
        Ok(all)
    }

    fn stream_match(&mut self) -> Result<StreamMatch> {
        const OPS: &[&str] = &["=", "!=", "=~", "!~", "{", "}", ",", "(", ")", "|", "\"", "'", "`"];
        if self.at_end() || (!self.token().quoted && !self.token().is_word()) {
            return Err(self.unexpected("a label name"));
        }
        let label = self.join(|token| token.is_any(OPS));
        let op = if self.skip("=") {
            StreamOp::Equal(self.stream_value()?)
        } else if self.skip("!=") {
            StreamOp::NotEqual(self.stream_value()?)
        } else if self.skip("=~") {
            StreamOp::Regexp(self.stream_regexp()?)
        } else if self.skip("!~") {
            StreamOp::NotRegexp(self.stream_regexp()?)
        } else if self.skip("in") {
            self.stream_list()?.map_or_else(|| StreamOp::Regexp(ANY.to_owned()), StreamOp::In)
        } else if self.skip("not_in") {
            self.stream_list()?.map_or_else(|| StreamOp::NotRegexp(ANY.to_owned()), StreamOp::NotIn)
        } else {
            return Err(self.unexpected("`=`, `!=`, `=~`, `!~`, `in` or `not_in`"));
        };
        Ok(StreamMatch { label, op })
    }

    /// `(a, b)`; `(*)` is every value.
    fn stream_list(&mut self) -> Result<Option<Vec<String>>> {
        if self.any_value() {
            return Ok(None);
        }
        self.in_parens(|parser| parser.argument("a value")).map(Some)
    }

    fn stream_value(&mut self) -> Result<String> {
        self.word_until_brace("a label value")
    }

    fn stream_regexp(&mut self) -> Result<String> {
        let at = self.next;
        let text = self.word_until_brace("a regular expression")?;
        self.check_regexp(at, &text)?;
        Ok(text)
    }

    fn word_until_brace(&mut self, what: &str) -> Result<String> {
        // A quote within a word has lost its other one.
        if self.is("}") { Err(self.unexpected(what)) } else { self.word(what, &["}", "\"", "'", "`"]) }
    }
}
