//! Resolves the names of a statement for DataFusion's SQL planner: tables that were found for it, functions of the
//! session.
//!
//! The planner resolves tables synchronously, so whoever plans a statement looks them up first and adds them here.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, ScalarValue, TableReference, not_impl_err, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::planner::{ParserOptions, SqlToRel};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use quiver_types::{Error, Result};

use crate::current_query::statement_time;
use crate::error::from_datafusion;
use crate::relational::cancellation::goes_on_now;
use crate::relational::functional_dependencies::{Relations, removed};

/// The name of a table, with its schema if one is given.
type QualifiedName = (Option<String>, String);

/// The names that a statement may use. Its `Debug` form lists the tables.
pub struct Names<'s> {
    state: &'s SessionState,
    tables: HashMap<QualifiedName, Arc<dyn TableSource>>,
    calls: HashMap<String, Arc<dyn TableSource>>,
    relations: [Arc<dyn RelationPlanner>; 1],
}

impl std::fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("tables", &self.tables.keys()).finish_non_exhaustive()
    }
}

impl<'s> Names<'s> {
    /// Makes names with the functions of a session and no tables.
    pub fn new(state: &'s SessionState) -> Self {
        Self { state, tables: HashMap::new(), calls: HashMap::new(), relations: [Arc::new(Relations::Bare)] }
    }

    /// Adds a table under the name that the statement has for it.
    pub fn add(&mut self, schema: Option<&str>, name: &str, table: Arc<dyn TableProvider>) {
        self.tables.insert((schema.map(str::to_owned), name.to_owned()), provider_as_source(table));
    }

    /// Adds the result of a call of a table function, identified by its name and its planned arguments.
    pub fn add_call(&mut self, name: &str, args: &[Expr], table: Arc<dyn TableProvider>) {
        self.calls.insert(call_key(name, args), provider_as_source(table));
    }

    /// Plans a statement of the product's own.
    ///
    /// # Errors
    /// Internal: it cannot be read; those of the planner.
    pub fn plan(&self, statement: &str) -> Result<LogicalPlan> {
        let parsed = DFParser::parse_sql_with_dialect(statement, &PostgreSqlDialect {}).map_err(from_datafusion)?;
        let statement = parsed.into_iter().next().ok_or_else(|| Error::internal("an empty statement"))?;
        self.plan_statement(statement).map_err(from_datafusion)
    }

    /// Plans a parsed statement.
    ///
    /// # Errors
    /// Those of DataFusion's planner, with places where it knows them.
    pub fn plan_statement(&self, statement: Statement) -> DataFusionResult<LogicalPlan> {
        if let Ok(plan) = self.read(statement.clone()) {
            return removed(plan);
        }
        let (tables, calls) = (self.tables.clone(), self.calls.clone());
        let keyed = Self { state: self.state, tables, calls, relations: [Arc::new(Relations::Keyed)] };
        removed(keyed.read(statement)?)
    }

    fn read(&self, statement: Statement) -> DataFusionResult<LogicalPlan> {
        let options =
            ParserOptions { collect_spans: true, ..ParserOptions::from(&self.state.config().options().sql_parser) };
        SqlToRel::new_with_options(self, options).statement_to_plan(statement)
    }
}

fn call_key(name: &str, args: &[Expr]) -> String {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    format!("{name}({})", args.join(","))
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> DataFusionResult<Arc<dyn TableSource>> {
        // Checked per table, since the planner joins each table to all before it, which may have thousands of columns.
        goes_on_now()?;
        let key = (name.schema().map(str::to_owned), name.table().to_owned());
        if let Some(table) = self.tables.get(&key) {
            Ok(Arc::clone(table))
        } else {
            plan_err!("table `{name}` not found")
        }
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> DataFusionResult<Arc<dyn TableSource>> {
        if let Some(table) = self.calls.get(&call_key(name, &args)) {
            return Ok(Arc::clone(table));
        }
        let Some(function) = self.state.table_functions().get(name) else {
            return plan_err!("there is no table function `{name}`");
        };
        // The function accepts only literals, so constant expressions are folded to literals first.
        let now = Some(statement_time());
        let simplifier = ExprSimplifier::new(SimplifyContext::builder().with_query_execution_start_time(now).build());
        let simple = |arg: Expr| simplifier.simplify(simplifier.coerce(arg, &DFSchema::empty())?);
        // The function accepts only 64-bit numbers, and NULL without a type.
        let wide = |arg: Expr| -> DataFusionResult<Expr> {
            Ok(match arg {
                Expr::Literal(value, metadata) if value.data_type().is_integer() => {
                    let wide = if value.is_null() { ScalarValue::Null } else { value.cast_to(&DataType::Int64)? };
                    Expr::Literal(wide, metadata)
                }
                other => other,
            })
        };
        let args = args.into_iter().map(|arg| simple(arg).and_then(wide)).collect::<DataFusionResult<Vec<_>>>()?;
        Ok(provider_as_source(function.create_table_provider_with_args(TableFunctionArgs::new(&args, self.state))?))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> DataFusionResult<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        None
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn get_file_type(
        &self,
        ext: &str,
    ) -> DataFusionResult<Arc<dyn datafusion::common::file_options::file_type::FileType>> {
        not_impl_err!("files of type `{ext}`: statements only read tables")
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::catalog::MemTable;
    use datafusion::logical_expr::lit;
    use quiver_types::ErrorKind;

    use super::*;
    use crate::testing::{answered, engine};

    fn table(column: &str) -> Arc<dyn TableProvider> {
        let schema = Arc::new(Schema::new(vec![Field::new(column, DataType::Int64, true)]));
        Arc::new(MemTable::try_new(schema, vec![vec![]]).unwrap())
    }

    #[tokio::test]
    async fn tables_are_told_apart_by_their_schemas() {
        let engine = engine();
        let mut names = Names::new(engine.relational());
        names.add(None, "t", table("bare"));
        names.add(Some("s"), "t", table("within"));
        names.add(None, "Big T", table("quoted"));
        names.add_call("picked", &[lit("a"), lit(1_i64)], table("called"));
        let column = |statement: &str| {
            names
                .plan(statement)
                .map(|plan| plan.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>())
        };
        for (statement, expected) in [
            ("select * from t", vec!["bare"]),
            ("select * from T", vec!["bare"]),
            ("select * from s.t", vec!["within"]),
            ("select * from \"Big T\"", vec!["quoted"]),
            ("select * from picked('a', 1)", vec!["called"]),
            ("select a.bare, b.within from t as a, s.t as b", vec!["bare", "within"]),
            ("with t as (select 1 as own) select * from t", vec!["own"]),
        ] {
            assert_eq!(column(statement).unwrap(), expected, "{statement}");
        }
        for statement in [
            "select * from x.t",
            "select * from big",
            "select * from picked('a', 2)",
            "select * from picked('a')",
            "select from where",
            "",
        ] {
            assert_eq!(column(statement).unwrap_err().kind, ErrorKind::Internal, "{statement}");
        }
        let parsed = DFParser::parse_sql_with_dialect("select * from x.t", &PostgreSqlDialect {}).unwrap();
        let error = names.plan_statement(parsed.into_iter().next().unwrap()).unwrap_err().to_string();
        assert!(error.contains("table `x.t` not found"), "{error}");
        let shown = format!("{names:?}");
        assert!(shown.contains("Big T"), "it shows itself as its tables: {shown}");
    }

    #[tokio::test]
    async fn series_take_numbers_however_they_are_written() {
        for (call, expected) in [
            ("generate_series(1, 3)", vec!["1", "2", "3"]),
            ("generate_series(1::smallint, 2 + 1)", vec!["1", "2", "3"]),
            ("generate_series(-1, 1::int)", vec!["-1", "0", "1"]),
            ("generate_series(3, 1, -1)", vec!["3", "2", "1"]),
        ] {
            let statement = format!("select value from {call}");
            assert_eq!(answered(&statement).await.unwrap(), expected, "{statement}");
        }
    }
}
