//! Columns of tables that a statement does not have: `u.a` where no `FROM` has a `u`. The planner tells that a column is not
//! there; clients are told which of the two it is, as by PostgreSQL.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{Query, TableAlias, TableFactor, Visitor};
use quiver_types::Error;

use crate::error::{NO_COLUMN, NO_TABLE};
use crate::names::{normal, parts};
use crate::statement_walk::walk;

/// Names of the tables of a query and its subqueries, and their aliases.
#[derive(Default)]
pub(super) struct TableNames(HashSet<String>);

impl TableNames {
    /// Those of a query.
    pub(super) fn of(query: &Query) -> Self {
        let mut called = Self::default();
        let _ = walk(query, &mut called);
        called
    }

    /// Says of a column that is not there that its table is not, where that is so; `said` is made of the planner's error.
    pub(super) fn with_missing_table(&self, missing: Option<MissingColumn>, mut said: Error) -> Error {
        let Some(MissingColumn { table, column }) = missing.filter(|missing| !self.0.contains(&missing.table)) else {
            return said;
        };
        let (from, to) =
            (format!("{NO_COLUMN} `{column}`"), format!("{NO_TABLE} `{table}` in the `FROM` for `{column}`"));
        said.message = said.message.replacen(&from, &to, 1);
        said
    }
}

impl Visitor for TableNames {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, .. } | TableFactor::Function { name, .. } = factor {
            self.0.extend(parts(name).pop());
        }
        self.0.extend(alias_of(factor).map(|alias| normal(&alias.name)));
        ControlFlow::Continue(())
    }
}

fn alias_of(factor: &TableFactor) -> Option<&TableAlias> {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_ref(),
        _ => None,
    }
}

/// A column with the table that it is written with.
pub(super) struct MissingColumn {
    table: String,
    column: String,
}

impl MissingColumn {
    /// The one that an error of the planner is about; none: it is about something else.
    pub(super) fn of(error: &DataFusionError) -> Option<Self> {
        let DataFusionError::SchemaError(inner, _) = error.find_root() else { return None };
        let SchemaError::FieldNotFound { field, .. } = &**inner else { return None };
        let table = field.relation.as_ref()?.table().to_owned();
        Some(Self { table, column: field.flat_name() })
    }
}
