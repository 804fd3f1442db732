//! `fields`: only some fields stay.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::TIME;

use super::pipe::{At, Output, Pipe, PipeKind};
use crate::ast::FieldPattern;
use crate::ops::project::{ProjectStep, fields_shape};
use crate::parser::names::or_all;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::patterns;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `fields a, b*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields(pub Vec<FieldPattern>);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["fields", "keep"], doc: "Keeps some fields of each row, and no others.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let fields = parser.with_commas(Parser::field_pattern)?;
    Ok(Fields(or_all(fields)).into())
}

impl Display for Fields {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "fields {}", patterns(&self.0))
    }
}

impl PipeKind for Fields {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = Needs::default();
        for pattern in &self.0 {
            match pattern {
                FieldPattern::Name(name) if after.has(name) => needs.add(name),
                FieldPattern::Name(_) => {}
                FieldPattern::Prefix(prefix) => {
                    needs.names.extend(after.names.iter().filter(|name| name.starts_with(prefix.as_str())).cloned());
                    for own in &after.prefixes {
                        if own.starts_with(prefix.as_str()) {
                            needs.prefixes.insert(own.clone());
                        } else if prefix.starts_with(own.as_str()) {
                            needs.prefixes.insert(prefix.clone());
                        }
                    }
                    needs.unneeded.extend(after.unneeded.iter().cloned());
                }
            }
        }
        needs
    }

    fn mentions(&self) -> Vec<String> {
        self.0.iter().filter_map(FieldPattern::name).map(str::to_owned).collect()
    }

    fn keeps_time(&self) -> bool {
        self.0.iter().any(|field| field.matches(TIME))
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_time()
    }

    fn follows(&self) -> bool {
        true
    }

    fn output(&self) -> Output<'_> {
        match self.0.as_slice() {
            [FieldPattern::Name(name)] => Output::One(name),
            _ => Output::Others,
        }
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        columns.keep(self, |name| self.0.iter().any(|field| field.matches(name)))
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        let output = fields_shape(&rows.shape, &self.0);
        ProjectStep { fields: self.0.clone(), delete: false, input: rows.shape.clone(), output }.plan(rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("fields a, b*", "fields a, b*"),
            ("keep a", "fields a"),
            ("fields a, *", "fields *"),
            ("fields 'a b'", "fields \"a b\""),
        ]);
        refuses(&[("fields", "a field name expected"), ("fields a,", "a field name expected")]);
        gives("fields a, b*", &["a=1 b=2 bc=3 d=4", "d=4"], &["a=1 b=2 bc=3", ""]);
    }
}
