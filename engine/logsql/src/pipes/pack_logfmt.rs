//! `pack_logfmt`: fields packed into one as pairs `a=b`.

use std::fmt::{self, Display, Formatter};

use super::syntax::{packing, packing_text};
use super::{At, Pipe, PipeDef, PipeKind};
use crate::ast::FieldPattern;
use crate::error::Result;
use crate::needs::Needs;
use crate::ops::pack::{Packed, Packing};
use crate::parser::Parser;
use crate::plan::Planned;

/// `pack_logfmt [fields (a, b)] [as f]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackLogfmt {
    /// Which fields; all when empty.
    pub fields: Vec<FieldPattern>,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef { names: &["pack_logfmt"], doc: "Makes pairs `a=b` of fields.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let (fields, to) = packing(parser)?;
    Ok(PackLogfmt { fields, to }.into())
}

impl Display for PackLogfmt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "pack_logfmt{}", packing_text(&self.fields, &self.to))
    }
}

impl PipeKind for PackLogfmt {
    fn before(&self, after: &Needs) -> Needs {
        Packed::before(&self.fields, &self.to, after)
    }

    fn mentions(&self) -> Vec<String> {
        Packed::mentions(&self.fields, &self.to)
    }

    fn keeps_time(&self) -> bool {
        self.to != quiver_types::logs::TIME
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_time()
    }

    fn follows(&self) -> bool {
        true
    }

    fn plan(&self, rows: Planned, _: At<'_>) -> Result<Planned> {
        Packed::plan(Packing::Logfmt, &self.fields, &self.to, rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("pack_logfmt", "pack_logfmt"), ("pack_logfmt fields (a, *) as x", "pack_logfmt as x")]);
        refuses(&[("pack_logfmt fields a", "`(` expected")]);
        gives("pack_logfmt fields (b, a) as x | fields x", &["a=1 b='x y'"], &[r#"x='b="x y" a=1'"#]);
    }
}
