//! `SqlEngine`: from a statement to rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, Statement as SqlStatement, Visitor};
use datafusion::sql::sqlparser::tokenizer::Location;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_query::rows::{Answer, RowSender, Rows};
use quiver_query::tables::models::{Models, OLAP_SCHEMA};
use quiver_query::tables::{DomainAccess, TableEntry, TableRequest, TableSnapshot, Tables};
use quiver_query::{Explain, Names, PlanRecorder, QueryContext, QueryEngine, Rules};
use quiver_types::{Error, Result};

use crate::catalog::{Catalog, VisibleTables};
use crate::column_references::{ColumnReferences, expand_wildcards, wanted};
use crate::dialect;
use crate::error::{of_planner, of_run};
use crate::map_columns;
use crate::missing_rights;
use crate::models;
use crate::names::parts;
use crate::nesting::few_levels;
use crate::operator_chains::few_steps;
use crate::parse::{Param, Params, Read, ReadStatement, parse};
use crate::plain_calls;
use crate::plan_checks;
use crate::select_limits::few_values;
use crate::session::Session;
use crate::statement_walk::walk;
use crate::table_functions::{self, CallRows, Languages};

mod describe;
mod missing_columns;
mod output_names;
mod plan_printing;
mod time_zones;

pub use describe::{StatementDescription, plan_columns};
use missing_columns::{MissingColumn, TableNames};
pub use output_names::output_name;
use output_names::shown_names;
use time_zones::{in_zone, shown, zone_of, zones_of};

/// Estimated most bytes of memory that parsing and planning take per byte of a statement.
const TEXT_FACTOR: usize = 64;

/// A statement to run or explain.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The statement as it was sent.
    pub text: String,
    /// Values of its parameters.
    pub params: Params,
    /// Most rows of the result; `None`: all.
    pub limit: Option<usize>,
    /// Time zone of times in the result; `None`: UTC.
    pub time_zone: Option<String>,
    /// Give the plan instead of rows.
    pub explain: Option<Explain>,
    /// What it may ask about its connection.
    pub session: Session,
}

/// Plans and runs statements over the tables, models and languages of the product.
#[derive(Debug, Clone)]
pub struct SqlEngine {
    engine: Arc<QueryEngine>,
    tables: Arc<dyn Tables>,
    models: Arc<dyn Models>,
    languages: Arc<dyn Languages>,
}

/// A parsed statement, with the rows of its table functions.
#[derive(Clone)]
struct Ready {
    query: Query,
    explain: Option<Explain>,
    /// For `explain`: records the plans whose rows planning needs.
    noted: Option<Arc<PlanRecorder>>,
    calls: Vec<(table_functions::TableFunctionCall, Vec<RecordBatch>)>,
    session: Session,
    /// As in the request.
    limit: Option<usize>,
    /// Time zone of times in the result; `None`: UTC.
    zone: Option<Arc<str>>,
}

/// A translated query, and what its calls of table functions mean.
struct NamedQuery<'s> {
    query: Query,
    names: Names<'s>,
    session: &'s Session,
}

impl SqlEngine {
    /// Makes the engine.
    pub fn new(
        engine: Arc<QueryEngine>,
        tables: Arc<dyn Tables>,
        models: Arc<dyn Models>,
        languages: Arc<dyn Languages>,
    ) -> Self {
        Self { engine, tables, models, languages }
    }

    /// Lists the tables that a caller may name, models last.
    pub fn tables(&self, access: &DomainAccess) -> Vec<TableEntry> {
        self.listed(&*self.tables.snapshot(), access)
    }

    fn listed(&self, snapshot: &dyn TableSnapshot, access: &DomainAccess) -> Vec<TableEntry> {
        let mut listed = snapshot.list(access);
        listed.extend(self.models.list(access));
        listed
    }

    /// What a statement may name: listed once, since each of its steps looks names up.
    fn catalog(&self, snapshot: &dyn TableSnapshot, access: &DomainAccess, session: &Session) -> Catalog {
        Catalog::new(self.listed(snapshot, access), session)
    }

    /// Runs a statement. Returns once the first rows have been found; the others follow as a stream.
    ///
    /// # Errors
    /// Invalid: the statement cannot be read or planned, or writes. Those of running.
    pub fn query<'a>(
        &'a self,
        request: Request,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Answer>> {
        async move {
            let memory = self.engine.collected("statement", ctx);
            memory.add(TEXT_FACTOR * request.text.len())?;
            ctx.keep(memory);
            let snapshot = self.tables.snapshot();
            let catalog = Arc::new(self.catalog(&*snapshot, access, &request.session));
            let seen = VisibleTables { snapshot: &snapshot, catalog: &catalog, access };
            let ready = self.ready(request, seen, ctx).await?;
            let (own, access, inner) = (self.clone(), access.clone(), ctx.clone());
            let work = move |out: RowSender| {
                let (own, ready, access, inner) = (own.clone(), ready.clone(), access.clone(), inner.clone());
                let (snapshot, catalog) = (Arc::clone(&snapshot), Arc::clone(&catalog));
                async move {
                    let seen = VisibleTables { snapshot: &snapshot, catalog: &catalog, access: &access };
                    Box::pin(own.run(ready, seen, &inner, out)).await
                }
            };
            Rows::run(&self.engine, ctx, work).await
        }
        .boxed()
    }

    /// Parses a statement and evaluates its table functions. These run as separate queries before the statement itself
    /// takes a place among the running ones, over the same data.
    async fn ready(&self, request: Request, seen: VisibleTables<'_>, ctx: &QueryContext) -> Result<Ready> {
        let of_request = |e: Error| Error::invalid(format!("`time_zone`: {}", e.message));
        let zone = request.time_zone.as_deref().map(zone_of).transpose().map_err(of_request)?;
        let limit = request.limit;
        let engine = Arc::clone(&self.engine);
        let catalog = Arc::clone(seen.catalog);
        let reading = ctx.another_run();
        let session = request.session.clone();
        // On the engine's threads, whose stacks are large enough for nested statements.
        let work = async move {
            let read = parse(&request.text, &request.params)?;
            let explain = match read.explain {
                Some(explained) if explained.analyze => Some(Explain::Analyze),
                Some(_) => Some(request.explain.unwrap_or(Explain::Plan)),
                None => request.explain,
            };
            let query = translated(&engine, read, &catalog, &request.session)?;
            let found = table_functions::find(&query, &Names::new(engine.relational()))?;
            Ok((query, explain, found))
        };
        let (query, explain, found) = self.engine.run(&reading, work).await?;
        let noted = explain.map(PlanRecorder::new);
        let ctx = &noting(ctx, noted.as_ref());
        let mut calls = Vec::new();
        for found in found {
            missing_rights::for_call(&found.call, seen.access)?;
            let mut rows = CallRows::new(self.engine.collected("rows of a table function", ctx));
            self.languages.call(&found.call, &**seen.snapshot, seen.access, ctx, &mut rows).await?;
            let (rows, memory) = rows.into_parts();
            ctx.keep(memory);
            calls.push((found, rows));
        }
        Ok(Ready { query, explain, noted, calls, session, limit, zone })
    }

    async fn run(&self, ready: Ready, seen: VisibleTables<'_>, ctx: &QueryContext, out: RowSender) -> Result<()> {
        let (explain, zone) = (ready.explain, ready.zone.clone());
        let ctx = &noting(ctx, ready.noted.as_ref());
        let plan = self.plan(ready, seen, ctx).await?;
        if let Some(explain) = explain {
            out.commit();
            return out.plan(self.engine.explain(&plan, ctx, Rules::Relational, explain).await?).await;
        }
        ctx.check("query planning")?;
        let rows = self.engine.execute(&plan, ctx, Rules::Relational).await?;
        let schema = shown_names(&in_zone(&rows.schema(), zone.as_ref()));
        let types = Arc::clone(&schema);
        out.rows(rows, schema, move |batch| shown(batch, &types), of_run, ctx).await
    }

    async fn plan(&self, ready: Ready, seen: VisibleTables<'_>, ctx: &QueryContext) -> Result<LogicalPlan> {
        let Ready { query, calls, session, limit, .. } = ready;
        let mut names = Names::new(self.engine.relational());
        for (found, rows) in calls {
            let schema = rows.first().map(RecordBatch::schema);
            let schema = schema.ok_or_else(|| Error::internal("a table function gave nothing"))?;
            let table = MemTable::try_new(schema, vec![rows]).map_err(quiver_query::from_datafusion)?;
            names.add_call(&found.name, &found.args, Arc::new(table));
        }
        let plan = self.plan_named(NamedQuery { query, names, session: &session }, seen, None, ctx).await?;
        match limit {
            None => Ok(plan),
            Some(limit) => LogicalPlanBuilder::from(plan)
                .limit(0, Some(limit))
                .and_then(LogicalPlanBuilder::build)
                .map_err(quiver_query::from_datafusion),
        }
    }

    /// Finds the tables of a query, and plans it. `texts`: see [`models::compile`].
    async fn plan_named(
        &self,
        named: NamedQuery<'_>,
        seen: VisibleTables<'_>,
        texts: Option<&mut BTreeMap<String, String>>,
        ctx: &QueryContext,
    ) -> Result<LogicalPlan> {
        let NamedQuery { mut query, mut names, session } = named;
        let VisibleTables { snapshot, catalog, access } = seen;
        let is_printed = texts.is_some();
        let aggregates = |name: &str| self.engine.relational().aggregate_functions().contains_key(name);
        let finder = models::Finder { catalog, models: &*self.models, aggregates: &aggregates };
        let cut = models::cut_out(&mut query, &finder, &names)?;
        let compiled = models::compile(cut, &*self.models, seen, texts, ctx).await?;
        let made = models::named(compiled, &mut names);
        if !is_printed {
            models::resolve_rows(&query, &*self.models, &mut names, seen, ctx).await?;
        }
        let fixed = |named: &_| made.get(named).cloned().or_else(|| catalog.fixed(named));
        let mut wanted: ColumnReferences = wanted(&query, &fixed);
        for (named, columns) in &mut wanted {
            let (schema, name) = named;
            if is_printed && !made.contains_key(&(schema.clone(), name.clone())) {
                return Err(Error::invalid(format!(
                    "`{name}` is no model, and a statement over models reads these alone"
                )));
            }
            if let Some(table) = catalog.about(named, session)? {
                columns.clear();
                names.add(schema.as_deref(), name, table);
                continue;
            }
            let Some(entry) = catalog.find(named).filter(|entry| entry.schema != OLAP_SCHEMA) else { continue };
            let asked: Vec<String> = columns.iter().cloned().collect();
            let request = TableRequest { schema: Some(entry.schema), name, columns: &asked, access, typed_by: access };
            if let Some(table) = snapshot.table(&request, ctx).await? {
                let given = table.schema();
                columns.retain(|column| given.column_with_name(column).is_some());
                names.add(schema.as_deref(), name, table);
            }
        }
        expand_wildcards(&mut query, &wanted, &fixed);
        // A statement that is only printed is shown as written.
        if !is_printed {
            dialect::leave_open(&mut query);
        }
        let (places, called) = (places_of(&query), TableNames::of(&query));
        let statement = DfStatement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
        let error = |error| {
            let Some(name) = missing(&error) else {
                let said = called.with_missing_table(MissingColumn::of(&error), of_planner(error));
                return if made.is_empty() { said } else { catalog.with_member(said) };
            };
            // Printing a statement needs no rights, so none is reported as missing.
            let lacks = || missing_rights::for_table(&name, &**snapshot, &*self.models);
            let unknown = || with_place(catalog.unknown(&name), &name, &places);
            // A table of that name may exist in another schema.
            let bare = name.rsplit('.').next().unwrap_or(&name);
            let is_seen = catalog.entries.iter().any(|entry| entry.name == bare);
            (!is_printed && !is_seen).then(lacks).flatten().unwrap_or_else(unknown)
        };
        let plan = names.plan_statement(statement).map_err(error)?;
        plan_checks::check(&plan)?;
        for field in plan.schema().fields() {
            zones_of(field.data_type())?;
        }
        Ok(plan)
    }
}

/// Makes the context record plans that run during planning, for `explain`.
fn noting(ctx: &QueryContext, noted: Option<&Arc<PlanRecorder>>) -> QueryContext {
    match noted {
        Some(noted) => ctx.clone().explaining(Some(Arc::clone(noted))).planning(),
        None => ctx.clone(),
    }
}

/// Gives the name of the missing table, if that is the error.
fn missing(error: &DataFusionError) -> Option<String> {
    let DataFusionError::Plan(text) = error.find_root() else { return None };
    let (name, _) = text.strip_prefix("table `")?.split_once("` not found")?;
    Some(name.to_owned())
}

/// The places where a query first names each of its tables.
fn places_of(query: &Query) -> BTreeMap<String, Location> {
    struct Finder(BTreeMap<String, Location>);
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
            let first = name.0.first().and_then(|part| part.as_ident());
            if let Some(at) = first.map(|ident| ident.span.start).filter(|at| at.line > 0) {
                self.0.entry(parts(name).join(".")).or_insert(at);
            }
            ControlFlow::Continue(())
        }
    }
    let mut finder = Finder(BTreeMap::new());
    let _ = walk(query, &mut finder);
    finder.0
}

/// Adds to the error about a missing table the place where it is named.
fn with_place(mut error: Error, name: &str, places: &BTreeMap<String, Location>) -> Error {
    if let Some(at) = places.get(name) {
        let named = format!("`{name}`");
        let placed = format!("{named} at line {}, column {}", at.line, at.column);
        error.message = error.message.replacen(&named, &placed, 1);
    }
    error
}

/// Gives the query of a statement in the dialect of DataFusion's planner.
fn translated(engine: &QueryEngine, read: Read, catalog: &Catalog, session: &Session) -> Result<Query> {
    let mut query = match read.statement {
        ReadStatement::Query(query) => *query,
        ReadStatement::ShowTables => own(SHOW_TABLES, Vec::new())?,
        ReadStatement::Describe(parts) => described(&parts, catalog)?,
    };
    let aggregates =
        |name: &str| engine.relational().aggregate_functions().contains_key(name) || dialect::makes_documents(name);
    let is_of_row = |name: &str| {
        let state = engine.relational();
        let is_plain = state.scalar_functions().contains_key(name) && !state.window_functions().contains_key(name);
        is_plain && !aggregates(name)
    };
    plain_calls::without_clauses(&query, &is_of_row)?;
    dialect::tell_apart(&mut query);
    // Checked before operators become function calls.
    few_steps(&query)?;
    few_values(&query)?;
    dialect::look_places_up(&mut query)?;
    dialect::name_outputs(&mut query)?;
    dialect::translate(&mut query, catalog, session, &aggregates)?;
    few_levels(&query)?;
    map_columns::widen_calls(&mut query)?;
    Ok(query)
}

const SHOW_TABLES: &str = "SELECT table_schema, table_name FROM information_schema.tables \
    WHERE table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY table_schema, table_name";
const DESCRIBE: &str = "SELECT column_name, data_type, is_nullable FROM information_schema.columns \
    WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position";

/// Parses a statement of our own that replaces the caller's.
fn own(text: &str, params: Vec<Param>) -> Result<Query> {
    match parse(text, &Params::positional(params))?.statement {
        ReadStatement::Query(query) => Ok(*query),
        other => Err(Error::internal(format!("no query: {other:?}"))),
    }
}

fn described(parts: &[String], catalog: &Catalog) -> Result<Query> {
    let named = match parts {
        [name] => (None, name.clone()),
        [.., schema, name] => (Some(schema.clone()), name.clone()),
        [] => return Err(Error::invalid("there is no table without a name")),
    };
    let entry = catalog.find(&named).ok_or_else(|| catalog.unknown(&named.1))?;
    own(DESCRIBE, vec![Param::Text(entry.schema.to_owned()), Param::Text(entry.name.clone())])
}

#[cfg(test)]
mod tests;
