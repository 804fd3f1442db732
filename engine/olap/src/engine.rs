//! `OlapEngine`: plans and answers requests over one snapshot.

mod bucket_results;
mod cached_rows;
mod rollup_results;
mod table_versions;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use quiver_query::rows::{Answer, RowSender, Rows};
use quiver_query::tables::models::ModelPlan;
use quiver_query::tables::{DomainAccess, TableSnapshot, Tables};
use quiver_query::{
    AnswerStarted, Explain, Keeper, PlanRecorder, QueryContext, QueryEngine, QueryReservation, Rules, from_datafusion,
};
use quiver_types::{Error, ErrorKind};
use serde_json::Value;

use crate::drill_down;
use crate::error::OlapResult;
use crate::explain;
use crate::metadata::ModelListOptions;
use crate::model::catalog::Catalog;
use crate::model_lists::{Lists, ModelList};
use crate::plan::sources::{Scope, has_own_rows};
use crate::plan::{MemberExprs, Planner, QueryPlans, Sources, Tree, exemplars};
use crate::query::Query;
use crate::query::request::Request;
use crate::rollup::{self, AllPieces, Parts, Rollups, UsedRollup};
use crate::sql_text;

pub(crate) use bucket_results::HIDDEN;
use rollup_results::SelectedRollup;
pub use table_versions::Basis;

/// Whether groups of closed time buckets and whole results are cached for later queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultCaching {
    /// Results are cached until a query needs their memory.
    On,
    /// Every query reads its rows.
    Off,
}

/// Plans and runs analytics queries over tables.
#[derive(Debug)]
pub struct OlapEngine {
    engine: Arc<QueryEngine>,
    tables: Arc<dyn Tables>,
    catalog: ArcSwap<Catalog>,
    lists: Lists,
    rollups: Rollups,
    pieces: AllPieces,
    cache: ResultCaching,
}

/// Rows of a query.
#[derive(Debug)]
pub struct ResultSet {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Types of the columns.
    pub schema: SchemaRef,
    /// The rows in order, split anywhere; all batches have `schema`.
    pub batches: Vec<RecordBatch>,
    /// Number of groups, if asked for.
    pub total: Option<i64>,
    /// Sample spans behind the rows, if asked for.
    pub exemplars: Option<Box<ResultSet>>,
    /// The rollup that they came from; `None`: raw rows.
    pub used: Option<UsedRollup>,
    /// The time buckets that they were made from, if those are cached.
    pub parts: Option<Parts>,
    /// The reservation for the rows.
    pub memory: Arc<QueryReservation>,
}

/// The rows behind a measure.
#[derive(Debug)]
pub struct DrillDownResult {
    /// The query that gives them.
    pub request: Request,
    /// What `request` answers.
    pub rows: ResultSet,
    /// Links to traces and logs of the same service and time.
    pub links: Value,
}

/// Buckets are evicted first: they are cheap to read again, where rollups are expensive to rebuild.
impl Keeper for OlapEngine {
    fn let_go(&self) -> bool {
        self.pieces.let_go() || self.rollups.let_go()
    }
}

impl OlapEngine {
    /// Creates an engine for the models of a catalog, whose rows are in `tables`.
    pub fn new(engine: Arc<QueryEngine>, tables: Arc<dyn Tables>, catalog: Catalog, cache: ResultCaching) -> Arc<Self> {
        let catalog = ArcSwap::from_pointee(catalog);
        let room = engine.kept_bytes_max();
        let (rollups, pieces) = (Rollups::new(room), AllPieces::new(room));
        let made = Arc::new(Self { engine, tables, catalog, lists: Lists::default(), rollups, pieces, cache });
        made.engine.asks(Arc::downgrade(&made) as Weak<dyn Keeper>);
        made
    }

    /// The current models.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Replaces the models.
    pub fn replace(&self, catalog: Catalog) {
        self.catalog.store(Arc::new(catalog));
    }

    /// The encoded list of models that a caller sees.
    pub fn list(&self, access: &DomainAccess, wanted: &ModelListOptions) -> Arc<ModelList> {
        self.lists.of(&self.catalog.load(), access, wanted)
    }

    /// Pins what is visible now.
    pub fn snapshot(&self) -> Arc<dyn TableSnapshot> {
        self.tables.snapshot()
    }

    /// The session that plans are made with.
    pub fn session(&self) -> &SessionState {
        self.engine.relational()
    }

    /// Plans a query over a snapshot.
    ///
    /// # Errors
    /// Those of the query; missing tables.
    pub fn plan<'a>(
        &'a self,
        catalog: &'a Catalog,
        query: &'a Query,
        tables: &'a Arc<dyn TableSnapshot>,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, OlapResult<QueryPlans>> {
        async move { self.planned(Scope { catalog, tables, access, ctx }, query, &MemberExprs::new(), false).await }
            .boxed()
    }

    /// Plans a query, some of whose members are expressions.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub(crate) async fn planned(
        &self,
        scope: Scope<'_>,
        query: &Query,
        given: &MemberExprs,
        marks_values: bool,
    ) -> OlapResult<QueryPlans> {
        let Scope { catalog, access, ctx, .. } = scope;
        // Between the queries of a request is the only place where it can be cancelled or time out, since nothing else
        // here waits.
        tokio::task::yield_now().await;
        ctx.check("query planning")?;
        let mut members = query.members();
        members.extend(exemplars::members(catalog, query));
        let state = self.engine.relational();
        let sources = Sources::find(scope, &members, query, state).await?;
        let caller = ctx.query().asked.caller.as_str();
        let mut planned =
            Planner { catalog, state, sources: &sources, access, caller, given, marks_values }.plan(query)?;
        planned.selects = sources.selects;
        Ok(planned)
    }

    /// Says whether the result depends on the caller himself and not only on his rights, because some rows are his
    /// own.
    pub fn has_own_rows(&self, catalog: &Catalog, request: &Request, access: &DomainAccess) -> bool {
        request.queries.iter().any(|query| has_own_rows(catalog, query, &query.members(), access))
    }

    /// Runs all queries of a request over one snapshot.
    ///
    /// # Errors
    /// Those of planning and running.
    pub fn load<'a>(
        self: &'a Arc<Self>,
        catalog: &'a Arc<Catalog>,
        request: &'a Request,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, OlapResult<Vec<ResultSet>>> {
        async move {
            let tables = self.snapshot();
            let mut planned = Vec::new();
            for query in &request.queries {
                let chosen = self.chosen(catalog, query, &tables, access).1;
                let parted = if chosen.is_none() { self.parted(catalog, query, &tables, access).ok() } else { None };
                planned.push((self.plan(catalog, query, &tables, access, ctx).await?, chosen, parted));
            }
            let (this, inner, planned) = (Arc::clone(self), ctx.clone(), Arc::new(planned));
            let work = move || {
                let (this, inner, planned) = (Arc::clone(&this), inner.clone(), Arc::clone(&planned));
                async move {
                    let mut sets = Vec::new();
                    for (raw, chosen, parted) in planned.iter() {
                        if let Some(chosen) = chosen
                            && let Ok((plan, used, parts)) = this.rolled(chosen, &inner).await?
                        {
                            sets.push(ResultSet { used: Some(used), parts, ..this.run(&plan, &inner).await? });
                        } else if let Some(parted) = parted
                            && let Ok((plan, parts)) = this.over_parts(parted, &inner).await?
                        {
                            sets.push(ResultSet { parts: Some(parts), ..this.run(&plan, &inner).await? });
                        } else {
                            sets.push(this.run(raw, &inner).await?);
                        }
                    }
                    Ok(sets)
                }
            };
            Ok(Box::pin(self.engine.run_anew(ctx, &AnswerStarted::default(), work)).await?)
        }
        .boxed()
    }

    /// Runs the only query of a request; gives the column names, and rows as they are found, without total and
    /// exemplars.
    ///
    /// # Errors
    /// Those of planning, and of running up to the first rows; the rows carry the others.
    pub fn rows<'a>(
        self: &'a Arc<Self>,
        catalog: &'a Catalog,
        request: &'a Request,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, OlapResult<(Vec<String>, Rows)>> {
        async move {
            let tables = self.snapshot();
            let planned = self.plan(catalog, &request.queries[0], &tables, access, ctx).await?;
            let (this, inner, columns, plan) = (Arc::clone(self), ctx.clone(), planned.columns, planned.rows);
            let work = move |out: RowSender| {
                let (this, inner, plan, tables) = (Arc::clone(&this), inner.clone(), plan.clone(), Arc::clone(&tables));
                async move {
                    // Keeps the snapshot alive until the last row.
                    let _tables = tables;
                    let rows = this.stream(&plan, &inner).await?;
                    let schema = rows.schema();
                    out.rows(rows, schema, Ok, from_datafusion, &inner).await
                }
            };
            match Rows::run(&self.engine, ctx, work).await? {
                Answer::Rows(rows) => Ok((columns, rows)),
                Answer::Plan(_) => Err(Error::internal("a query gave its plan instead of rows").into()),
            }
        }
        .boxed()
    }

    /// Finds the rows behind a measure in a row of a result.
    ///
    /// # Errors
    /// Those of [`drill_down::query`], of planning and running.
    pub fn drill<'a>(
        self: &'a Arc<Self>,
        catalog: &'a Arc<Catalog>,
        request: &'a Request,
        asked: &'a drill_down::DrillDownRequest,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, OlapResult<DrillDownResult>> {
        async move {
            let (query, measure) = drill_down::choose(catalog, request, asked)?;
            let tables = self.snapshot();
            let whole = self.plan(catalog, query, &tables, access, ctx).await?;
            let shown = drill_down::query(catalog, query, &measure, asked, whole.tree.as_ref())?;
            let mut planned = self.plan(catalog, &shown, &tables, access, ctx).await?;
            let model = catalog.find(&measure).map(|f| f.model.common.name.clone()).unwrap_or_default();
            let mut query = shown.clone();
            if planned.tree.as_ref().is_some_and(|tree| tree.is_multiplied(catalog, &model)) {
                query = drill_down::by_key(catalog, &shown, &model);
                planned = self.plan(catalog, &query, &tables, access, ctx).await?;
                // Parts of the key that queries cannot name are not shown.
                query.dimensions.retain(|id| catalog.find(id).is_some_and(|found| catalog.is_public(&found)));
                planned.keep(|name| query.columns().iter().any(|c| c == name))?;
            }
            let links = drill_down::links(catalog, &query, &measure);
            let rows = self.answered(planned, ctx).await?;
            Ok(DrillDownResult { request: Request::of(query), rows, links })
        }
        .boxed()
    }

    /// Finds the values of a dimension with how many rows have them, the most frequent first.
    ///
    /// # Errors
    /// Those of planning and running.
    pub fn values<'a>(
        self: &'a Arc<Self>,
        catalog: &'a Arc<Catalog>,
        query: &'a Query,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, OlapResult<ResultSet>> {
        async move {
            let tables = self.snapshot();
            let state = self.engine.relational();
            let scope = Scope { catalog, tables: &tables, access, ctx };
            let sources = Sources::find(scope, &query.members(), query, state).await?;
            let given = MemberExprs::new();
            let caller = ctx.query().asked.caller.as_str();
            let planner =
                Planner { catalog, state, sources: &sources, access, caller, given: &given, marks_values: false };
            let planned = planner.values(query)?;
            Ok(self.answered(planned, ctx).await?)
        }
        .boxed()
    }

    /// Runs a query, and anew where others held its memory.
    fn answered<'a>(
        self: &'a Arc<Self>,
        planned: QueryPlans,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, quiver_types::Result<ResultSet>> {
        let (this, inner, planned) = (Arc::clone(self), ctx.clone(), Arc::new(planned));
        let work = move || {
            let (this, inner, planned) = (Arc::clone(&this), inner.clone(), Arc::clone(&planned));
            async move { this.run(&planned, &inner).await }
        };
        async move { self.engine.run_anew(ctx, &AnswerStarted::default(), work).await }.boxed()
    }

    async fn run(&self, planned: &QueryPlans, ctx: &QueryContext) -> quiver_types::Result<ResultSet> {
        let memory = Arc::new(self.engine.collected("rows of an answer", ctx));
        let (schema, batches) = self.collect(&planned.rows, ctx, &memory).await?;
        let total = match &planned.total {
            None => None,
            Some(plan) => {
                let (_, counted) = self.collect(plan, ctx, &memory).await?;
                counted.first().map(|b| b.column(0).as_primitive::<Int64Type>().value(0))
            }
        };
        let exemplars = match &planned.exemplars {
            None => None,
            Some(inner) => {
                let (schema, batches) = self.collect(&inner.rows, ctx, &memory).await?;
                let (columns, memory) = (inner.columns.clone(), Arc::clone(&memory));
                let (total, exemplars, used, parts) = (None, None, None, None);
                Some(Box::new(ResultSet { columns, schema, batches, total, exemplars, used, parts, memory }))
            }
        };
        let columns = planned.columns.clone();
        Ok(ResultSet { columns, schema, batches, total, exemplars, used: None, parts: None, memory })
    }

    async fn collect(
        &self,
        plan: &LogicalPlan,
        ctx: &QueryContext,
        memory: &QueryReservation,
    ) -> quiver_types::Result<(SchemaRef, Vec<RecordBatch>)> {
        let mut stream = self.stream(plan, ctx).await?;
        let schema = stream.schema();
        let (mut batches, mut rows) = (Vec::new(), 0_u64);
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(from_datafusion)?;
            ctx.check("query execution")?;
            rows += batch.num_rows() as u64;
            if rows > ctx.limits.rows_max {
                let text = format!("the answer has more than {} rows", ctx.limits.rows_max);
                return Err(Error::new(ErrorKind::LimitExceeded, text));
            }
            memory.add(batch.get_array_memory_size())?;
            batches.push(batch);
        }
        Ok((schema, batches))
    }

    /// Starts a plan. To be called within a run of the engine.
    ///
    /// # Errors
    /// Those of planning; the stream carries those of running.
    pub async fn stream(
        &self,
        plan: &LogicalPlan,
        ctx: &QueryContext,
    ) -> quiver_types::Result<SendableRecordBatchStream> {
        self.engine.execute(plan, ctx, Rules::Relational).await
    }

    /// Prints the plan of each query of a request as SQL text; nothing is executed.
    ///
    /// # Errors
    /// Those of planning; a plan that cannot be written as SQL.
    pub fn sql<'a>(
        self: &'a Arc<Self>,
        catalog: &'a Arc<Catalog>,
        request: &'a Request,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, OlapResult<Vec<Value>>> {
        async move {
            let tables = self.snapshot();
            let mut planned = Vec::new();
            for query in &request.queries {
                let scope = Scope { catalog, tables: &tables, access, ctx };
                planned.push((query.clone(), self.planned(scope, query, &MemberExprs::new(), true).await?));
            }
            let catalog = Arc::clone(catalog);
            // On the engine's threads, whose stacks are large enough for nested plans.
            let work = async move {
                let print = |(query, plan): &(Query, QueryPlans)| {
                    sql_text::print(plan, &catalog).map(|text| sql_text::answer(query, plan, &text))
                };
                Ok(planned.iter().map(print).collect::<OlapResult<Vec<_>>>())
            };
            Box::pin(self.engine.run(ctx, work)).await?
        }
        .boxed()
    }

    /// Prints the plan of a statement over models.
    ///
    /// # Errors
    /// A plan that SQL has no words for.
    pub fn sql_of_statement<'a>(
        self: &'a Arc<Self>,
        planned: ModelPlan,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, OlapResult<Value>> {
        async move {
            let catalog = self.catalog();
            let work = async move { Ok(sql_text::print_statement(&planned, &catalog)) };
            Box::pin(self.engine.run(ctx, work)).await?
        }
        .boxed()
    }

    /// Shows how a query runs.
    ///
    /// # Errors
    /// Those of planning and running.
    pub fn explain<'a>(
        self: &'a Arc<Self>,
        catalog: &'a Arc<Catalog>,
        query: &'a Query,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
        explain: Explain,
    ) -> BoxFuture<'a, OlapResult<Value>> {
        async move {
            let tables = self.snapshot();
            let planned = self.plan(catalog, query, &tables, access, ctx).await?;
            let scope = Scope { catalog, tables: &tables, access, ctx };
            let printed = self.planned(scope, query, &MemberExprs::new(), true).await?;
            // Plans that read rollups and buckets are shown as children.
            let inner = ctx.clone().explaining(Some(PlanRecorder::new(explain))).planning();
            let (this, raw, models) = (Arc::clone(self), planned.rows.clone(), Arc::clone(catalog));
            let (candidates, chosen) = self.chosen(catalog, query, &tables, access);
            // A plan over cached buckets reveals which ones are cached. A caller from whom rows are hidden is shown the
            // plan over rows instead, and only that buckets are used.
            let sees_all = access.is_full_everywhere();
            let hides = !sees_all && matches!(chosen, Some(SelectedRollup::Buckets(_)));
            let parted = if sees_all {
                self.parted(catalog, query, &tables, access)
            } else if hides {
                Err(HIDDEN.to_owned())
            } else {
                Err(self.hidden(catalog, query, &tables))
            };
            let work = async move {
                // Without SQL text, if the plan cannot be written as SQL.
                let text = sql_text::print(&printed, &models).ok();
                // The plan shown must be the one that runs, so missing rollups are built here, too.
                let rolled = match &chosen {
                    Some(chosen) if hides => Some((chosen.id(), Err(HIDDEN.to_owned()))),
                    Some(chosen) => Some((chosen.id(), this.rolled(chosen, &inner).await?)),
                    None => None,
                };
                let parts = match (&rolled, &parted) {
                    (Some((_, Ok(_))), _) => Err("it comes from a rollup".to_owned()),
                    (_, Ok(parted)) => this.over_parts(parted, &inner).await?,
                    (_, Err(reason)) => Err(reason.clone()),
                };
                let outcome =
                    rolled.as_ref().map(|(id, made)| (*id, made.as_ref().err().filter(|_| !hides).map(String::as_str)));
                let rollup = rollup::shown(&candidates, outcome);
                let buckets = rollup::shown_parts(match &rolled {
                    Some((_, Ok((_, _, Some(parts))))) => Ok(parts),
                    _ => parts.as_ref().map(|(_, parts)| parts),
                });
                let plan = match (&rolled, &parts) {
                    (Some((_, Ok((plan, _, _)))), _) | (_, Ok((plan, _))) => &plan.rows,
                    _ => &raw,
                };
                let mut shown = this.engine.explain(plan, &inner, Rules::Relational, explain).await?;
                (shown["rollup"], shown["buckets"]) = (rollup, buckets);
                Ok((shown, text))
            };
            let (mut shown, text) = Box::pin(self.engine.run(ctx, work)).await?;
            for (name, own) in [("logicalPlan", "logical"), ("physicalPlan", "physical")] {
                shown[name] = shown[own].clone();
            }
            shown["sql"] = text.map(|t| serde_json::json!([t.text, t.params])).into();
            shown["pruning"] = explain::pruning(&shown["totals"]);
            let tree = planned.tree.as_ref();
            shown["root"] = tree.map(|t| t.root.clone()).into();
            let edge = |(from, to): &(String, String)| serde_json::json!({"from": from, "to": to});
            shown["joinTree"] = tree.map(|t| t.edges.iter().map(edge).collect::<Vec<_>>()).into();
            let multiplied =
                |t: &Tree| t.models().filter(|m| t.is_multiplied(catalog, m)).map(str::to_owned).collect::<Vec<_>>();
            shown["multiplied"] = tree.map(multiplied).unwrap_or_default().into();
            shown["rights"] = explain::rights(catalog, tree, access, &ctx.query().asked.caller);
            Ok(shown)
        }
        .boxed()
    }
}

/// The models and views that a request uses, without repeats.
pub fn models(request: &Request) -> String {
    let names = request.queries.iter().flat_map(Query::members).map(|id| id.model);
    names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// Records how a query was answered.
pub fn note_served(sets: &[ResultSet], ctx: &QueryContext) {
    let served = &ctx.query().served;
    let used = sets.iter().filter_map(|set| set.used.as_ref());
    let rollups: BTreeSet<&str> = used.map(|used| used.id.as_str()).collect();
    if !rollups.is_empty() {
        let _ = served.rollups.set(rollups.into_iter().collect::<Vec<_>>().join(", "));
    }
    let is_partial = sets.iter().filter_map(|set| set.parts.as_ref()).any(|parts| parts.kept > 0);
    let _ = served.kept.set(if is_partial { "partial" } else { "miss" });
}
