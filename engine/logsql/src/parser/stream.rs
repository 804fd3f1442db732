//! Stream selectors: `{a="b",c=~"d|e" or f in ("g", "h")}`.

use super::Parser;
use crate::ast::{StreamFilter, StreamMatch, StreamOp};
use crate::error::Result;

impl Parser<'_> {
    pub(super) fn stream_filter(&mut self) -> Result<StreamFilter> {
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
        if self.at_end() || (!self.token().quoted && !self.token().is_word()) {
            return Err(self.unexpected("a label name"));
        }
        const OPS: &[&str] = &["=", "!=", "=~", "!~", "}", ",", "(", ")", "|"];
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
            StreamOp::In(self.in_parens(|parser| parser.argument("a value"))?)
        } else if self.skip("not_in") {
            StreamOp::NotIn(self.in_parens(|parser| parser.argument("a value"))?)
        } else {
            return Err(self.unexpected("`=`, `!=`, `=~`, `!~`, `in` or `not_in`"));
        };
        Ok(StreamMatch { label, op })
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
        if self.is("}") { Err(self.unexpected(what)) } else { self.word(what, &["}"]) }
    }
}
