//! Models of analytics as tables of schema `olap`: what SQL asks of whoever compiles them.
//!
//! SQL and analytics stand beside each other and do not know each other. A SELECT over models is cut here: dimensions of a
//! row, groups, measures and the condition on rows go to the compiler of models and come back as a plan; what is computed
//! over its columns stays with SQL.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::logical_expr::{Expr, LogicalPlan};
use futures::future::BoxFuture;
use quiver_types::Result;

use super::snapshot::{DomainAccess, TableEntry, TableSnapshot};
use crate::context::QueryContext;

/// Schema of models.
pub const OLAP_SCHEMA: &str = "olap";
/// The table function that gives rows of one model: see [`ModelRows`].
pub const MODEL_ROWS: &str = "model_rows";
/// Key in the metadata of a column that is a measure.
const MEASURE: &str = "quiver.measure";

/// Makes a column a measure: statements name it in `MEASURE(…)` alone.
#[must_use]
pub fn as_measure(column: Field) -> Field {
    column.with_metadata([(MEASURE.to_owned(), String::new())].into())
}

/// Whether a column of a table is a measure.
pub fn is_measure(column: &Field) -> bool {
    column.metadata().contains_key(MEASURE)
}

/// A member of a model or view, by both names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelMember {
    /// Name of the model or view.
    pub model: String,
    /// Name of the member within it.
    pub member: String,
}

/// What a SELECT asks of models. Its expressions speak of dimensions as columns whose relation is named like the model.
#[derive(Debug, Clone)]
pub struct ModelSelect {
    /// The models of its `FROM`, which are joined as they say themselves.
    pub models: Vec<String>,
    /// Columns of the plan over dimensions, each by its name; where there are measures, rows are grouped by them.
    pub columns: Vec<(String, Expr)>,
    /// Columns of the plan that are measures, each by its name. None: one row of the plan is one row of the models.
    pub measures: Vec<(String, ModelMember)>,
    /// Conditions on rows, all of which must hold.
    pub filters: Vec<Expr>,
    /// Whether values of the caller say so, for a plan that is printed.
    pub marks_values: bool,
}

/// The rows or groups of a SELECT.
#[derive(Debug, Clone)]
pub struct ModelPlan {
    /// Gives the columns that are asked for, in no order of rows.
    pub plan: LogicalPlan,
    /// Texts of the models in it whose rows are a SELECT, for whoever prints it.
    pub texts: BTreeMap<String, String>,
}

/// Rows of one model, as a statement asks for them: `model_rows('Calls', from, to, 'service_name', …)`. Texts of plans read
/// them where a caller does not see the tables that the model is made of as the model does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRows {
    /// Name of the model, which queries need not be able to name.
    pub model: String,
    /// What `range_start()` and `range_end()` are in its SELECT, in ns; none: so far apart that no row lies beyond.
    pub range_ns: Option<(i64, i64)>,
    /// Columns of its table or SELECT: such that members speak of which queries may name.
    pub columns: Vec<String>,
}

/// The compiler of models, as SQL sees it.
pub trait Models: Send + Sync + Debug {
    /// Lists the models that a caller may name, with the members that he may name. Types are those that models declare:
    /// what a number is made of shows when it is read.
    fn list(&self, access: &DomainAccess) -> Vec<TableEntry>;

    /// Whether a name that is not listed is a dimension all the same: attributes and labels are more than a list can hold.
    fn finds(&self, model: &str, member: &str) -> bool;

    /// Compiles a SELECT with the caller's rights, over tables of one moment.
    ///
    /// # Errors
    /// Invalid: a model or member is not there, or not for the caller; no joins lead to all models. Those of reading tables.
    fn select<'a>(
        &'a self,
        select: &'a ModelSelect,
        tables: &'a Arc<dyn TableSnapshot>,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<ModelPlan>>;

    /// Plans the rows of a model that the caller may see, whatever he sees of the tables behind it.
    ///
    /// # Errors
    /// Invalid: a model or column is not there, or not for the caller. Those of reading tables.
    fn rows<'a>(
        &'a self,
        rows: &'a ModelRows,
        tables: &'a Arc<dyn TableSnapshot>,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<LogicalPlan>>;
}
