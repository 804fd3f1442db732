//! `unpack_json`: the members of a JSON object become fields.

use std::fmt::{self, Display, Formatter};

use super::unpack::{Of, Unpack};
use super::{At, Pipe, PipeDef, PipeKind};
use crate::ast::Filter;
use crate::error::Result;
use crate::needs::Needs;
use crate::ops::unpack::Format;
use crate::parser::Parser;
use crate::plan::Planned;

/// `unpack_json [if (f)] [from f] [fields (..)] ..`
#[derive(Debug, Clone, PartialEq)]
pub struct UnpackJson(pub Unpack);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["unpack_json"], doc: "Makes fields of the members of a JSON object.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let mut unpack = Unpack::parse_source(parser)?;
    unpack.parse_results(parser, Of::Json)?;
    Ok(UnpackJson(unpack).into())
}

impl Display for UnpackJson {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text("unpack_json", ""))
    }
}

impl PipeKind for UnpackJson {
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
        self.0.plan(self, Format::Json, rows, at)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("unpack_json", "unpack_json"),
            (
                "unpack_json a result_prefix p_* fields (b, c*) preserve_keys (d) keep_original_fields",
                "unpack_json from a fields (b, c*) preserve_keys (d) result_prefix p_ keep_original_fields",
            ),
            ("unpack_json if (a:b) from c fields (*)", "unpack_json if (a:b) from c"),
        ]);
        refuses(&[("unpack_json a b", "`|` or the end of the pipe expected"), ("unpack_json fields", "`(` expected")]);
        gives("unpack_json a | delete a", &["a='{\"x\":1,\"y\":{\"z\":\"t\"}}' x=0"], &["x=1 y.z=t"]);
        gives("unpack_json a preserve_keys (y) | fields y", &["a='{\"y\":{\"z\":1}}'"], &["y='{\"z\":1}'"]);
        gives("unpack_json a fields (x, y) | stats count(x) n", &["a='{\"x\":1}' b=2", "a=no"], &["n=1"]);
        gives("unpack_json a fields (x) | stats by (a) count(x) n", &["a='{\"x\":1}'"], &["a='{\"x\":1}' n=1"]);
        gives("unpack_json a fields (x) result_prefix p_ | fields p*", &["a='{\"x\":1,\"y\":2}'"], &["p_x=1"]);
        gives("unpack_json if (b:1) a | fields x", &["a='{\"x\":1}' b=1", "a='{\"x\":1}'"], &["x=1", ""]);
        gives("unpack_json a keep_original_fields | fields x", &["a='{\"x\":1}' x=7"], &["x=7"]);
    }
}
