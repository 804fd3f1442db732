//! `unpack_syslog`: the parts of a message of syslog become fields.

use std::fmt::{self, Display, Formatter};

use super::pipe::{At, Pipe, PipeKind};
use super::unpack::{Unpack, UnpackFormat};
use crate::ast::{Filter, Literal};
use crate::error::Result;
use crate::ops::unpack::Format;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::literal;
use crate::required_fields::Needs;
use crate::row_functions::SyslogContext;

/// `unpack_syslog [if (f)] [from f] [offset d] ..`
#[derive(Debug, Clone, PartialEq)]
pub struct UnpackSyslog {
    /// Source and results; `fields` is empty.
    pub unpack: Unpack,
    /// Zone of times without one, nanoseconds; the server's when absent.
    pub offset: Option<Literal<i64>>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["unpack_syslog"], doc: "Makes fields of the parts of a message of syslog.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let mut unpack = Unpack::parse_source(parser)?;
    let offset = if parser.skip("offset") { Some(parser.duration("a duration after `offset`")?) } else { None };
    unpack.parse_results(parser, UnpackFormat::Syslog)?;
    Ok(UnpackSyslog { unpack, offset }.into())
}

impl Display for UnpackSyslog {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let offset = self.offset.as_ref().map_or_else(String::new, |d| format!(" offset {}", literal(&d.text)));
        f.write_str(&self.unpack.text("unpack_syslog", &offset))
    }
}

impl PipeKind for UnpackSyslog {
    fn before(&self, after: &Needs) -> Needs {
        self.unpack.before(after)
    }

    fn mentions(&self) -> Vec<String> {
        self.unpack.mentions()
    }

    fn keeps_rows(&self) -> bool {
        self.unpack.keeps_rows()
    }

    fn follows(&self) -> bool {
        true
    }

    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        self.unpack.condition.iter_mut().collect()
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let zone_ns = self.offset.as_ref().map_or(0, |offset| offset.value);
        let format = Format::Syslog(SyslogContext { now_ns: at.scope.now_ns, zone_ns });
        self.unpack.plan(self, format, rows, at)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("unpack_syslog", "unpack_syslog"),
            ("unpack_syslog a offset 2h result_prefix s_", "unpack_syslog from a offset 2h result_prefix s_"),
        ]);
        refuses(&[
            ("unpack_syslog fields (a)", "`|` or the end of the pipe"),
            ("unpack_syslog offset x", "a duration"),
        ]);
        gives(
            "unpack_syslog a | fields hostname, app_name, severity, message",
            &["a='<165>1 2023-06-03T17:42:32.123Z web nginx 12 - - hello'"],
            &["hostname=web app_name=nginx severity=5 message=hello"],
        );
    }
}
