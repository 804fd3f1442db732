//! `delete`: some fields go.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::TIME;

use super::pipe::{At, Pipe, PipeKind};
use crate::ast::FieldPattern;
use crate::ops::project::{ProjectStep, delete_shape};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::patterns;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `delete a, b*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete(pub Vec<FieldPattern>);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["delete", "del", "rm", "drop"], doc: "Leaves out some fields of each row.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.with_commas(Parser::field_pattern).map(|fields| Delete(fields).into())
}

impl Display for Delete {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "delete {}", patterns(&self.0))
    }
}

impl PipeKind for Delete {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        self.0.iter().for_each(|pattern| needs.remove_pattern(pattern));
        needs
    }

    fn mentions(&self) -> Vec<String> {
        self.0.iter().filter_map(FieldPattern::name).map(str::to_owned).collect()
    }

    fn keeps_time(&self) -> bool {
        !self.0.iter().any(|field| field.matches(TIME))
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_time()
    }

    fn follows(&self) -> bool {
        true
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        columns.keep(self, |name| !self.0.iter().any(|field| field.matches(name)))
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        let output = delete_shape(&rows.shape, &self.0);
        ProjectStep { fields: self.0.clone(), delete: true, input: rows.shape.clone(), output }.plan(rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("delete a, b*", "delete a, b*"), ("rm a", "delete a"), ("drop a", "delete a"), ("del *", "delete *")]);
        refuses(&[("delete", "a field name expected"), ("delete a b", "`|` or the end of the pipe")]);
        gives("delete a, b*", &["a=1 b=2 bc=3 d=4"], &["d=4"]);
    }
}
