//! `copy`: fields under other names, too.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::TIME;

use super::pipe::{At, Pipe, PipeKind};
use super::syntax::{pair, pairs_text};
use crate::ast::{FieldPattern, Originals, PatternPair};
use crate::ops::project::{CopyFieldsStep, moved_needs};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `copy a as b, ..`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy(pub Vec<PatternPair>);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["copy", "cp"], doc: "Gives fields, or groups of fields, further names.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.with_commas(pair).map(|pairs| Copy(pairs).into())
}

impl Display for Copy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "copy {}", pairs_text(&self.0))
    }
}

impl PipeKind for Copy {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        self.0.iter().rev().for_each(|pair| moved_needs(&mut needs, pair, Originals::Keep));
        needs
    }

    fn mentions(&self) -> Vec<String> {
        let fields = self.0.iter().flat_map(|pair| [&pair.source, &pair.target]);
        fields.filter_map(FieldPattern::name).map(str::to_owned).collect()
    }

    fn keeps_rows(&self) -> bool {
        !self.0.iter().any(|pair| pair.target.matches(TIME))
    }

    fn follows(&self) -> bool {
        true
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        self.0.iter().try_for_each(|pair| columns.move_pair(self, pair, Originals::Keep))
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        CopyFieldsStep::plan(rows, self.0.clone(), Originals::Keep, self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("copy a b", "copy a as b"),
            ("cp a as b, c* as d*", "copy a as b, c* as d*"),
            ("copy a* as b", "copy a* as b"),
            ("copy a as b*", "copy a as \"b*\""),
        ]);
        refuses(&[("copy a", "a field name expected"), ("copy a as b c", "`|` or the end of the pipe")]);
        gives("copy a as b, b as c", &["a=1"], &["a=1 b=1 c=1"]);
        gives("copy http.* as h.*", &["http.path=/ x=1"], &["http.path=/ h.path=/ x=1"]);
        // Nothing is left of the name `a`.
        gives("copy a* as * | fields b, _msg", &["_msg=m a=1 ab=2"], &["_msg=m b=2"]);
        gives("copy a as b | fields b", &["a=1 b=2", "b=3"], &["b=1", ""]);
    }
}
