//! `unpack_json`, `unpack_logfmt`: what a text names itself, the members of a JSON object or pairs `a=b`, become fields.

use std::fmt::{self, Display, Formatter};

use super::pipe::{At, Pipe, PipeKind};
use super::unpack::{Unpack, UnpackFormat};
use crate::ast::Filter;
use crate::error::Result;
use crate::ops::unpack::Format;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::series_columns::{StatsColumns, refused};

/// `unpack_json [if (f)] [from f] [fields (..)] ..`, `unpack_logfmt [if (f)] [from f] [fields (..)] ..`
#[derive(Debug, Clone, PartialEq)]
pub struct UnpackNamed {
    is_json: bool,
    /// Source and results.
    pub unpack: Unpack,
}

pub(super) const DEFS: &[PipeDef] = &[
    PipeDef {
        names: &["unpack_json"],
        doc: "Makes fields of the members of a JSON object.",
        parse: |p| parse(p, UnpackFormat::Json),
    },
    PipeDef {
        names: &["unpack_logfmt"],
        doc: "Makes fields of the pairs `a=b` in a text.",
        parse: |p| parse(p, UnpackFormat::Logfmt),
    },
];

fn parse(parser: &mut Parser<'_>, of: UnpackFormat) -> Result<Pipe> {
    let mut unpack = Unpack::parse_source(parser)?;
    unpack.parse_results(parser, of)?;
    Ok(UnpackNamed { is_json: of == UnpackFormat::Json, unpack }.into())
}

impl Display for UnpackNamed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.unpack.text(if self.is_json { "unpack_json" } else { "unpack_logfmt" }, ""))
    }
}

impl PipeKind for UnpackNamed {
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

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        let fields = &self.unpack.fields;
        if !self.is_json || fields.is_empty() || fields.iter().any(|field| field.name().is_none()) {
            return Err(refused(format!("`{self}` cannot stand behind `stats` here: name its `fields`")));
        }
        columns.add_parts(self, &self.unpack.from, self.unpack.targets())
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let format = if self.is_json { Format::Json } else { Format::Logfmt };
        self.unpack.plan(self, format, rows, at)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn json() {
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

    /// Breaks if a message that is not JSON is lost because JSON messages are unpacked.
    #[test]
    fn a_text_that_is_no_object_stays() {
        let texts = ["_msg='a text' x=7", "_msg=[1] x=7", "_msg='{\"_msg\":\"m\",\"x\":1}'", "_msg='{bad' x=7"];
        gives(
            "unpack_json fields (_msg, x) | fields _msg, x",
            &texts,
            &["_msg='a text'", "_msg=[1]", "_msg=m x=1", ""],
        );
        let pipe = "unpack_json a fields (x) result_prefix p_ | fields p_x";
        gives(pipe, &["a=text p_x=7", "a='{\"y\":1}' p_x=7", "a='{' p_x=7", "p_x=7"], &["p_x=7", "", "", "p_x=7"]);
        let pipe = "unpack_json a fields (x) result_prefix p_ skip_empty_results | fields p_x";
        gives(pipe, &["a='{\"y\":1}' p_x=7"], &["p_x=7"]);
    }

    #[test]
    fn pairs() {
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
        // What is compared in a message does not take its place.
        gives("unpack_logfmt | fields _msg", &["_msg='if a == 1 b=2'"], &["_msg='if a == 1 b=2'"]);
        gives("unpack_logfmt a result_prefix p_ | fields p_", &["a='x=1 =z'"], &["p_=z"]);
        gives("unpack_logfmt a | fields _msg", &["a='_msg=x' _msg=y"], &["_msg=x"]);
    }
}
