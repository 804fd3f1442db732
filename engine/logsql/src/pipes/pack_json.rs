//! `pack_json`: fields packed into one as a JSON object.

use std::fmt::{self, Display, Formatter};

use super::syntax::{packing, packing_text};
use super::{At, Pipe, PipeDef, PipeKind};
use crate::ast::FieldPattern;
use crate::error::Result;
use crate::needs::Needs;
use crate::ops::pack::{Packed, Packing};
use crate::parser::Parser;
use crate::plan::Planned;

/// `pack_json [fields (a, b)] [as f]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackJson {
    /// Which fields; all when empty.
    pub fields: Vec<FieldPattern>,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef { names: &["pack_json"], doc: "Makes a JSON object of fields.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let (fields, to) = packing(parser)?;
    Ok(PackJson { fields, to }.into())
}

impl Display for PackJson {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "pack_json{}", packing_text(&self.fields, &self.to))
    }
}

impl PipeKind for PackJson {
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
        Packed::plan(Packing::Json, &self.fields, &self.to, rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("pack_json", "pack_json"), ("pack_json fields (a, b*) x", "pack_json fields (a, b*) as x")]);
        refuses(&[("pack_json fields a", "`(` expected")]);
        gives(
            "pack_json fields (b, a) as x | fields x",
            &["a=1 b='\"'", "a=2"],
            &[r#"x=`{"b":"\"","a":"1"}`"#, r#"x='{"a":"2"}'"#],
        );
        gives("pack_json as x | fields x", &["a=1 b=2"], &[r#"x='{"a":"1","b":"2"}'"#]);
    }
}
