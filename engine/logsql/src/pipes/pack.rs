//! `pack_json`, `pack_logfmt`: fields packed into one, as a JSON object or as pairs `a=b`.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::{MSG, TIME};

use super::pipe::{At, Pipe, PipeKind};
use super::syntax::{result, unless};
use crate::ast::FieldPattern;
use crate::error::Result;
use crate::ops::pack::{PackFormat, PackStep};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::patterns;
use crate::required_fields::Needs;

/// `pack_json [fields (a, b)] [as f]`, `pack_logfmt [fields (a, b)] [as f]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    packing: PackFormat,
    /// Which fields; all when empty.
    pub fields: Vec<FieldPattern>,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] = &[
    PipeDef { names: &["pack_json"], doc: "Makes a JSON object of fields.", parse: |p| parse(p, PackFormat::Json) },
    PipeDef { names: &["pack_logfmt"], doc: "Makes pairs `a=b` of fields.", parse: |p| parse(p, PackFormat::Logfmt) },
];

fn parse(parser: &mut Parser<'_>, packing: PackFormat) -> Result<Pipe> {
    let fields = if parser.skip("fields") { parser.in_parens(Parser::field_pattern)? } else { Vec::new() };
    let fields = if fields.iter().any(FieldPattern::is_all) { Vec::new() } else { fields };
    Ok(Pack { packing, fields, to: result(parser)? }.into())
}

impl Display for Pack {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.packing {
            PackFormat::Json => "pack_json",
            PackFormat::Logfmt => "pack_logfmt",
        })?;
        if !self.fields.is_empty() {
            write!(f, " fields ({})", patterns(&self.fields))?;
        }
        f.write_str(&unless(&self.to, MSG, "as"))
    }
}

impl PipeKind for Pack {
    fn before(&self, after: &Needs) -> Needs {
        PackStep::before(&self.fields, &self.to, after)
    }

    fn mentions(&self) -> Vec<String> {
        PackStep::mentions(&self.fields, &self.to)
    }

    fn keeps_time(&self) -> bool {
        self.to != TIME
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_time()
    }

    fn follows(&self) -> bool {
        true
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        PackStep::plan(self.packing, &self.fields, &self.to, rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn json() {
        reads(&[("pack_json", "pack_json"), ("pack_json fields (a, b*) x", "pack_json fields (a, b*) as x")]);
        refuses(&[("pack_json fields a", "`(` expected")]);
        gives(
            "pack_json fields (b, a) as x | fields x",
            &["a=1 b='\"'", "a=2"],
            &[r#"x=`{"b":"\"","a":"1"}`"#, r#"x='{"a":"2"}'"#],
        );
        gives("pack_json as x | fields x", &["a=1 b=2"], &[r#"x='{"a":"1","b":"2"}'"#]);
    }

    #[test]
    fn pairs() {
        reads(&[("pack_logfmt", "pack_logfmt"), ("pack_logfmt fields (a, *) as x", "pack_logfmt as x")]);
        refuses(&[("pack_logfmt fields a", "`(` expected")]);
        gives("pack_logfmt fields (b, a) as x | fields x", &["a=1 b='x y'"], &[r#"x='b="x y" a=1'"#]);
    }
}
