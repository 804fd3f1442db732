//! `options(name=value, ...)` before the filter of a query.

use super::Parser;
use crate::ast::Options;
use crate::error::Result;

const NAMES: &[&str] = &[
    "concurrency",
    "parallel_readers",
    "ignore_global_time_filter",
    "time_offset",
    "global_filter",
    "allow_partial_response",
];

impl Parser<'_> {
    pub(crate) fn options(&mut self) -> Result<Options> {
        let mut options = Options::default();
        if self.skip("options") {
            self.in_parens(|parser| parser.option(&mut options))?;
        }
        Ok(options)
    }

    fn option(&mut self, options: &mut Options) -> Result<()> {
        let at = self.next;
        let name = self.token().text.to_ascii_lowercase();
        if !NAMES.contains(&name.as_str()) {
            return Err(self.unknown(at, "option", NAMES.iter().copied()));
        }
        self.advance();
        self.expect("=")?;
        match name.as_str() {
            "concurrency" => options.concurrency = Some(self.count("a number")?).filter(|&n| n > 0),
            "parallel_readers" => options.parallel_readers = Some(self.count("a number")?).filter(|&n| n > 0),
            "ignore_global_time_filter" => options.ignore_global_time_filter = Some(self.boolean()?),
            "time_offset" => options.time_offset = Some(self.duration("a duration")?),
            "global_filter" => {
                self.expect("(")?;
                options.global_filter = Some(Box::new(self.filter_or(None)?));
                self.expect(")")?;
            }
            _ => options.allow_partial_response = Some(self.boolean()?),
        }
        Ok(())
    }

    fn boolean(&mut self) -> Result<bool> {
        let at = self.next;
        let text = self.argument("`true` or `false`")?;
        match text.as_str() {
            "true" | "1" | "t" | "T" | "TRUE" | "True" => Ok(true),
            "false" | "0" | "f" | "F" | "FALSE" | "False" => Ok(false),
            _ => Err(self.fault_at(at, format!("`true` or `false` expected, got `{text}`"))),
        }
    }
}
