//! `rename`: fields under other names.

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

/// `rename a as b, ..`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename(pub Vec<PatternPair>);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["rename", "mv"], doc: "Gives fields, or groups of fields, other names.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.with_commas(pair).map(|pairs| Rename(pairs).into())
}

impl Display for Rename {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "rename {}", pairs_text(&self.0))
    }
}

impl PipeKind for Rename {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        self.0.iter().rev().for_each(|pair| moved_needs(&mut needs, pair, Originals::Drop));
        needs
    }

    fn mentions(&self) -> Vec<String> {
        let fields = self.0.iter().flat_map(|pair| [&pair.source, &pair.target]);
        fields.filter_map(FieldPattern::name).map(str::to_owned).collect()
    }

    fn keeps_rows(&self) -> bool {
        !self.0.iter().any(|pair| pair.target.matches(TIME) || pair.source.matches(TIME))
    }

    fn follows(&self) -> bool {
        true
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        self.0.iter().try_for_each(|pair| columns.move_pair(self, pair, Originals::Drop))
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        CopyFieldsStep::plan(rows, self.0.clone(), Originals::Drop, self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("mv a b", "rename a as b"),
            ("rename a* as b*", "rename a* as b*"),
            ("mv user.* as usr.", "rename \"user.\"* as \"usr.\""),
        ]);
        refuses(&[("rename a", "a field name expected")]);
        gives("rename a as b", &["a=1 b=2 c=3", "b=2"], &["b=1 c=3", ""]);
        gives("rename a as b, b as c", &["a=1"], &["c=1"]);
        gives("rename http.* as h.*", &["http.path=/ x=1"], &["h.path=/ x=1"]);
    }
}
