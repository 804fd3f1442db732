//! `unpack_logfmt`: pairs `a=b` of a text become fields.

use std::fmt::{self, Display, Formatter};

use super::unpack::{Of, Unpack};
use super::{At, Pipe, PipeDef, PipeKind};
use crate::ast::Filter;
use crate::error::Result;
use crate::needs::Needs;
use crate::ops::unpack::Format;
use crate::parser::Parser;
use crate::plan::Planned;

/// `unpack_logfmt [if (f)] [from f] [fields (..)] ..`
#[derive(Debug, Clone, PartialEq)]
pub struct UnpackLogfmt(pub Unpack);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["unpack_logfmt"], doc: "Makes fields of the pairs `a=b` in a text.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let mut unpack = Unpack::parse_source(parser)?;
    unpack.parse_results(parser, Of::Logfmt)?;
    Ok(UnpackLogfmt(unpack).into())
}

impl Display for UnpackLogfmt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text("unpack_logfmt", ""))
    }
}

impl PipeKind for UnpackLogfmt {
    fn before(&self, after: &Needs) -> Needs {
        self.0.before(after)
    }

    fn mentions(&self) -> Vec<String> {
        self.0.mentions()
    }

    fn keeps_rows(&self) -> bool {
        self.0.keeps_rows()
    }

    fn follows(&self) -> bool {
        true
    }

    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        self.0.condition.iter_mut().collect()
    }

    fn plan(&self, rows: Planned, at: At<'_>) -> Result<Planned> {
        self.0.plan(self, Format::Logfmt, rows, at)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("unpack_logfmt", "unpack_logfmt"),
            (
                "unpack_logfmt from a fields (b) skip_empty_results",
                "unpack_logfmt from a fields (b) skip_empty_results",
            ),
        ]);
        refuses(&[("unpack_logfmt preserve_keys (a)", "`|` or the end of the pipe expected")]);
        gives("unpack_logfmt a | delete a", &["a='x=1 y=\"b c\"'"], &["x=1 y='b c'"]);
        gives("unpack_logfmt a result_prefix p_ | fields p_x", &["a='x=1'"], &["p_x=1"]);
    }
}
