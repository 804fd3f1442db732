//! Models of analytics as tables of schema `olap`: the interface between SQL and the compiler of models, which do not
//! depend on each other. A SELECT over models is split: its dimensions, groups, measures and row conditions go to the
//! compiler, which returns a plan; SQL computes the rest over the plan's columns.

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
/// The table function that returns rows of one model: see [`ModelRows`].
pub const MODEL_ROWS: &str = "model_rows";
/// Metadata key of columns that are measures.
const MEASURE: &str = "quiver.measure";

/// Marks a column as a measure, which statements can only use in `MEASURE(…)`.
#[must_use]
pub fn as_measure(column: Field) -> Field {
    column.with_metadata([(MEASURE.to_owned(), String::new())].into())
}

/// Whether a column of a table is a measure.
pub fn is_measure(column: &Field) -> bool {
    column.metadata().contains_key(MEASURE)
}

/// A member of a model or view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelMember {
    /// Name of the model or view.
    pub model: String,
    /// Name of the member within it.
    pub member: String,
}

/// The part of a SELECT that the compiler of models plans. In its expressions, dimensions are columns whose relation
/// is the model's name.
#[derive(Debug, Clone)]
pub struct ModelSelect {
    /// The models in its `FROM`, which are joined as they define.
    pub models: Vec<String>,
    /// Named columns of the plan over dimensions. If there are measures, they are the grouping keys.
    pub columns: Vec<(String, Expr)>,
    /// Named columns of the plan that are measures. If empty, the plan has one row per row of the models.
    pub measures: Vec<(String, ModelMember)>,
    /// Conditions on rows, all of which must hold.
    pub filters: Vec<Expr>,
    /// Whether literals from the caller's rights are marked, for a plan that is printed.
    pub marks_values: bool,
}

/// The compiled part of a SELECT.
#[derive(Debug, Clone)]
pub struct ModelPlan {
    /// Returns the requested columns; the order of rows is not defined.
    pub plan: LogicalPlan,
    /// For models in the plan that are defined by a SELECT, its text, to print the plan.
    pub texts: BTreeMap<String, String>,
}

/// Rows of one model in a statement: `model_rows('Calls', from, to, 'service_name', …)`. Printed plans contain this
/// where the caller may not read the tables that the model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRows {
    /// Name of the model, which may be one that queries cannot name.
    pub model: String,
    /// The values of `range_start()` and `range_end()` in its SELECT, in ns; `None` for a range that contains all
    /// rows.
    pub range_ns: Option<(i64, i64)>,
    /// Columns of its table or SELECT. They must be used by members that queries may name.
    pub columns: Vec<String>,
}

/// The compiler of models as SQL uses it.
pub trait Models: Send + Sync + Debug {
    /// Lists the models and members that a caller may name. Types are the declared ones: the exact type of a number
    /// is only known when it is read.
    fn list(&self, access: &DomainAccess) -> Vec<TableEntry>;

    /// Whether a name that is not listed is a dimension, such as an attribute or a label, which are too many to list.
    fn finds(&self, model: &str, member: &str) -> bool;

    /// Compiles a SELECT with the caller's rights, over tables of one moment.
    ///
    /// # Errors
    ///
    /// Invalid: a model or member does not exist or is not visible to the caller, or no joins connect all models.
    /// Those of reading tables.
    fn select<'a>(
        &'a self,
        select: &'a ModelSelect,
        tables: &'a Arc<dyn TableSnapshot>,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<ModelPlan>>;

    /// Plans the rows of a model that the caller may see, even if he may not read the tables behind it.
    ///
    /// # Errors
    ///
    /// Invalid: a model or column does not exist or is not visible to the caller. Those of reading tables.
    fn rows<'a>(
        &'a self,
        rows: &'a ModelRows,
        tables: &'a Arc<dyn TableSnapshot>,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<LogicalPlan>>;
}
