//! Models of analytics in statements: each is a table of schema `olap`, whose measures are used through `MEASURE(…)`
//! only.
//!
//! A SELECT whose `FROM` has only models is split in two (`select`): its dimensions, measures and conditions on rows go
//! to the compiler of models, and the rest of it reads the resulting table. If a model is joined with other tables, it
//! stands for the table of its rows (`joined_models`). `columns` resolves names in a SELECT, `members` marks them in
//! the tree. `model_rows` reads the rows of a model, for SQL text that analytics has printed.
//!
//! Nothing here computes a measure: joins, rights and measures are those of any analytics query.

mod columns;
mod joined_models;
pub(crate) mod members;
mod select;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{DFSchema, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::{Expr as Ast, Query, SetExpr, Visitor, VisitorMut};
use quiver_query::tables::models::{MODEL_ROWS, ModelMember, ModelSelect, Models, OLAP_SCHEMA};
use quiver_query::{Names, QueryContext};
use quiver_types::{Error, Result};

use crate::catalog::{Catalog, VisibleTables};
use crate::error::of_planner;
use crate::names::{TableName, normal};
use crate::statement_walk::{walk, walk_mut};
use crate::table_functions;
use members::{DIMENSION_MARK, dimension_of};

/// What is asked of models in place of one table of a statement.
#[derive(Debug, Default)]
struct ModelTableSpec {
    /// Name of the table that stands in the statement.
    table: String,
    models: Vec<String>,
    /// Columns over dimensions, by name.
    columns: Vec<(String, Ast)>,
    measures: Vec<(String, ModelMember)>,
    filters: Vec<Ast>,
}

/// What finding models in a statement needs.
pub(crate) struct Finder<'f> {
    pub(crate) catalog: &'f Catalog,
    pub(crate) models: &'f dyn Models,
    /// Whether a function is an aggregate.
    pub(crate) aggregates: &'f (dyn Fn(&str) -> bool + Sync),
}

/// Tables that stand for models in a statement: columns by name.
pub(crate) type ModelColumns = BTreeMap<TableName, Vec<String>>;

/// Puts tables in the place of models; gives what the compiler is asked for each, by the name of the table.
///
/// # Errors
/// Invalid: a measure stands where none may, a name means nothing or two things.
pub(crate) fn cut_out(query: &mut Query, finder: &Finder<'_>, names: &Names<'_>) -> Result<Vec<(String, ModelSelect)>> {
    let asked = found(query, finder)?.into_iter();
    asked.map(|asked| planned(&asked, finder, names).map(|select| (asked.table, select))).collect()
}

/// Compiles what [`cut_out`] gave; gives the plans of the tables. `texts` takes what printing needs; none: the plan is not
/// printed.
///
/// # Errors
/// Those of compiling.
pub(crate) async fn compile(
    asked: Vec<(String, ModelSelect)>,
    models: &dyn Models,
    seen: VisibleTables<'_>,
    mut texts: Option<&mut BTreeMap<String, String>>,
    ctx: &QueryContext,
) -> Result<Vec<(String, LogicalPlan)>> {
    let mut made = Vec::new();
    for (table, mut select) in asked {
        select.marks_values = texts.is_some();
        let compiled = models.select(&select, seen.snapshot, seen.access, ctx).await?;
        if let Some(texts) = &mut texts {
            texts.extend(compiled.texts);
        }
        made.push((table, compiled.plan));
    }
    Ok(made)
}

/// Adds the tables of models to the names of a statement; gives their columns.
pub(crate) fn named(compiled: Vec<(String, LogicalPlan)>, names: &mut Names<'_>) -> ModelColumns {
    let mut made = ModelColumns::new();
    for (table, plan) in compiled {
        let columns = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        names.add(Some(OLAP_SCHEMA), &table, Arc::new(ViewTable::new(plan, None)));
        made.insert((Some(OLAP_SCHEMA.to_owned()), table), columns);
    }
    made
}

/// Adds rows of models that a statement calls for (`model_rows`) to its names.
///
/// # Errors
/// Invalid: a call that means nothing; a model or column is not there, or not for the caller. Those of reading tables.
pub(crate) async fn resolve_rows(
    query: &Query,
    models: &dyn Models,
    names: &mut Names<'_>,
    seen: VisibleTables<'_>,
    ctx: &QueryContext,
) -> Result<()> {
    for (args, rows) in table_functions::of_models(query, names)? {
        let plan = models.rows(&rows, seen.snapshot, seen.access, ctx).await?;
        names.add_call(MODEL_ROWS, &args, Arc::new(ViewTable::new(plan, None)));
    }
    Ok(())
}

/// Finds the models of a statement, and puts names of tables in their place.
fn found(query: &mut Query, finder: &Finder<'_>) -> Result<Vec<ModelTableSpec>> {
    if !finder.catalog.entries.iter().any(|entry| entry.schema == OLAP_SCHEMA) {
        return Ok(Vec::new());
    }
    let mut spoken = ColumnNameCollector(BTreeSet::new());
    let _ = walk(query, &mut spoken);
    let mut walk = Walk { finder, spoken: spoken.0, ctes: Vec::new(), found: Vec::new() };
    match walk_mut(query, &mut walk) {
        ControlFlow::Continue(()) => Ok(walk.found),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Last parts of all names of columns in a statement.
struct ColumnNameCollector(BTreeSet<String>);

impl Visitor for ColumnNameCollector {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Ast) -> ControlFlow<()> {
        match expr {
            Ast::Identifier(ident) => _ = self.0.insert(normal(ident)),
            Ast::CompoundIdentifier(idents) => self.0.extend(idents.last().map(normal)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Goes over the SELECTs of a statement, inner ones first.
struct Walk<'w> {
    finder: &'w Finder<'w>,
    spoken: BTreeSet<String>,
    ctes: Vec<String>,
    found: Vec<ModelTableSpec>,
}

impl VisitorMut for Walk<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        self.ctes.extend(ctes.map(|cte| normal(&cte.alias.name)));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let done = match &mut *query.body {
            SetExpr::Select(select) => self.select(select, query.order_by.as_mut()),
            other => self.selects(other),
        };
        done.map_or_else(|error| ControlFlow::Break(Box::new(error)), ControlFlow::Continue)
    }
}

impl Walk<'_> {
    /// The SELECTs of a set operation; their rows have no order of their own.
    fn selects(&mut self, body: &mut SetExpr) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, None),
            SetExpr::SetOperation { left, right, .. } => {
                self.selects(left)?;
                self.selects(right)
            }
            _ => Ok(()),
        }
    }

    /// A name for the next table; its number tells it from the others.
    fn next(&self) -> String {
        format!("__model_{}", self.found.len())
    }
}

/// What is asked, with its expressions as the planner reads them.
fn planned(asked: &ModelTableSpec, finder: &Finder<'_>, names: &Names<'_>) -> Result<ModelSelect> {
    let mut dimensions = Dimensions(BTreeSet::new());
    asked.columns.iter().map(|(_, expr)| expr).chain(&asked.filters).for_each(|expr| _ = walk(expr, &mut dimensions));
    let field = |(model, member): &(String, String)| {
        let listed = finder.catalog.find(&(Some(OLAP_SCHEMA.to_owned()), model.clone()));
        let field = listed.and_then(|entry| entry.columns.column_with_name(member)).map(|(_, field)| field.clone());
        // What is not listed is an attribute or a label.
        let field = field.unwrap_or_else(|| Field::new(member, arrow::datatypes::DataType::Utf8, true));
        (Some(TableReference::partial(DIMENSION_MARK, model.as_str())), Arc::new(field))
    };
    let fields = dimensions.0.iter().map(field).collect();
    let schema = DFSchema::new_with_metadata(fields, std::collections::HashMap::new()).map_err(of_planner)?;
    let planner = SqlToRel::new(names);
    let plan = |ast: &Ast| -> Result<Expr> {
        planner.sql_to_expr(ast.clone(), &schema, &mut PlannerContext::new()).map_err(of_planner)
    };
    Ok(ModelSelect {
        models: asked.models.clone(),
        columns: asked.columns.iter().map(|(name, ast)| Ok((name.clone(), plan(ast)?))).collect::<Result<_>>()?,
        measures: asked.measures.clone(),
        filters: asked.filters.iter().map(plan).collect::<Result<_>>()?,
        marks_values: false,
    })
}

/// Collects dimensions that are known to be some.
struct Dimensions(BTreeSet<(String, String)>);

impl Visitor for Dimensions {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Ast) -> ControlFlow<()> {
        if let Some(member) = dimension_of(expr) {
            self.0.insert((member.model, member.member));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests;
