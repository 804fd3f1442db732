//! Models as SQL tables (`olap-api.md` 12.5): the names in them, and SELECTs over them.
//!
//! A SELECT becomes an ordinary analytics query: its dimensions, measures and ranges are those of the models, and
//! expressions of its own (`statement`) become dimensions and a segment of this one query. So joins, measures and
//! rights are compiled in one place.

mod statement;

use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, cast};
use futures::future::BoxFuture;
use quiver_query::QueryContext;
use quiver_query::tables::models::{ModelPlan, ModelRows, ModelSelect, Models, OLAP_SCHEMA, as_measure};
use quiver_query::tables::{DomainAccess, TableEntry, TableSnapshot};
use quiver_types::{Clock, Error, Result};

use crate::engine::OlapEngine;
use crate::error::{OlapError, OlapResult};
use crate::functions::instant_type;
use crate::model::catalog::{Catalog, MemberKind};
use crate::model::{DimensionType, MeasureType, MemberId};
use crate::plan::guarded_rows::unreadable;
use crate::plan::sources::Scope;
use crate::plan::{MemberExprs, Planner, Sources, column};
use crate::visibility::{may_name, sees};
use statement::{ModelQuery, unknown};

/// All that can be named of some version of the models.
#[derive(Debug, Default)]
struct ModelEntries {
    version: u64,
    entries: Vec<TableEntry>,
}

/// The models of an engine as tables.
#[derive(Debug)]
pub struct ModelTables {
    olap: Arc<OlapEngine>,
    /// Gives the time at which a statement is asked.
    clock: Arc<dyn Clock>,
    /// What was listed last: models change seldom, and each statement looks at them.
    listed: ArcSwap<ModelEntries>,
}

impl ModelTables {
    /// Makes those of an engine.
    pub fn new(olap: Arc<OlapEngine>, clock: Arc<dyn Clock>) -> Self {
        Self { olap, clock, listed: ArcSwap::default() }
    }

    fn all(&self, catalog: &Catalog) -> Arc<ModelEntries> {
        let listed = self.listed.load_full();
        if listed.version == catalog.version {
            return listed;
        }
        let entries = catalog.public_names().filter_map(|name| entry(catalog, name)).collect();
        let listed = Arc::new(ModelEntries { version: catalog.version, entries });
        self.listed.store(Arc::clone(&listed));
        listed
    }

    async fn compiled(
        &self,
        select: &ModelSelect,
        tables: &Arc<dyn TableSnapshot>,
        access: &DomainAccess,
        ctx: &QueryContext,
    ) -> OlapResult<ModelPlan> {
        let made = ModelQuery::of(self.olap.catalog(), select, access, self.now_ns())?;
        let scope = Scope { catalog: &made.catalog, tables, access, ctx };
        let planned = self.olap.planned(scope, &made.query, &made.given, select.marks_values).await?;
        let out = made.outputs.iter().map(|output| {
            let value = column(output.column.clone());
            // Wall time of UTC is the instant.
            let value = if output.is_wall { cast(value, instant_type()) } else { value };
            value.alias(output.name.clone())
        });
        let plan = LogicalPlanBuilder::from(planned.rows).project(out.collect::<Vec<_>>())?.build()?;
        Ok(ModelPlan { plan, texts: planned.selects })
    }

    async fn rows_of(
        &self,
        rows: &ModelRows,
        tables: &Arc<dyn TableSnapshot>,
        access: &DomainAccess,
        ctx: &QueryContext,
    ) -> OlapResult<LogicalPlan> {
        let catalog = self.olap.catalog();
        // Of hidden models, which lend members to others, who may not see any row gets none.
        let model = catalog.models.get(&rows.model).filter(|model| !model.is_public() || sees(model, access));
        let model = model.ok_or_else(|| unknown("model", &rows.model))?;
        if let Some(column) = unreadable(&catalog, model, &rows.columns) {
            return Err(unknown("column", &format!("{}.{column}", rows.model)).into());
        }
        let state = self.olap.session();
        let scope = Scope { catalog: &catalog, tables, access, ctx };
        let sources = Sources::of_model(scope, rows, state).await?;
        // Texts of members name functions and other models' columns, too.
        let table = sources.plan(&rows.model)?;
        let is_there = |column: &&String| table.schema().has_column_with_unqualified_name(column);
        if let Some(column) = rows.columns.iter().find(|column| !is_there(column)) {
            return Err(unknown("column", &format!("{}.{column}", rows.model)).into());
        }
        let given = MemberExprs::new();
        let caller = ctx.query().asked.caller.as_str();
        let planner =
            Planner { catalog: &catalog, state, sources: &sources, access, caller, given: &given, marks_values: false };
        planner.guarded(model, rows, self.now_ns())
    }

    /// The time at which a statement is asked.
    fn now_ns(&self) -> i64 {
        self.clock.now_ms().saturating_mul(1_000_000)
    }
}

impl Models for ModelTables {
    fn list(&self, access: &DomainAccess) -> Vec<TableEntry> {
        let catalog = self.olap.catalog();
        let all = self.all(&catalog);
        all.entries.iter().filter(|entry| may_name(&catalog, &entry.name, access)).cloned().collect()
    }

    fn finds(&self, model: &str, member: &str) -> bool {
        let catalog = self.olap.catalog();
        catalog.models.get(model).and_then(|m| m.open.as_ref()).is_some_and(|open| open.dimension(member).is_some())
    }

    fn select<'a>(
        &'a self,
        select: &'a ModelSelect,
        tables: &'a Arc<dyn TableSnapshot>,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<ModelPlan>> {
        Box::pin(async move { self.compiled(select, tables, access, ctx).await.map_err(plain) })
    }

    fn rows<'a>(
        &'a self,
        rows: &'a ModelRows,
        tables: &'a Arc<dyn TableSnapshot>,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<LogicalPlan>> {
        Box::pin(async move { self.rows_of(rows, tables, access, ctx).await.map_err(plain) })
    }
}

/// An error as statements have it.
fn plain(error: OlapError) -> Error {
    match error {
        OlapError::Query(wrong) => Error::invalid(wrong.message),
        OlapError::Engine(error) => error,
    }
}

/// A model or view as a table; none: it has no member that queries may name.
fn entry(catalog: &Catalog, name: &str) -> Option<TableEntry> {
    let of_model = catalog.models.get(name).map(|m| m.member_names().collect::<Vec<_>>());
    let of_view = || catalog.views.get(name).map(|v| v.members.iter().map(|m| m.common.name.as_str()).collect());
    // A view stands for the model of its name, as in queries.
    let members: Vec<&str> = if catalog.views.contains_key(name) { of_view() } else { of_model }?;
    let fields: Vec<Field> =
        members.iter().filter_map(|member| field(catalog, &MemberId::new(name, *member))).collect();
    let columns = Arc::new(Schema::new(fields));
    (!columns.fields().is_empty()).then(|| TableEntry { schema: OLAP_SCHEMA, name: name.to_owned(), columns })
}

/// A member as a column; none: it is a segment, or not for queries.
fn field(catalog: &Catalog, id: &MemberId) -> Option<Field> {
    let found = catalog.find(id).filter(|found| catalog.is_public(found))?;
    match found.kind {
        MemberKind::Dimension(dimension) => Some(Field::new(&id.member, dimension_type(dimension.ty), true)),
        MemberKind::Measure(measure) => Some(as_measure(Field::new(&id.member, measure_type(measure.ty), true))),
        MemberKind::Segment(_) => None,
    }
}

fn dimension_type(ty: DimensionType) -> DataType {
    match ty {
        DimensionType::String | DimensionType::Geo | DimensionType::Switch => DataType::Utf8,
        DimensionType::Number => DataType::Float64,
        DimensionType::Boolean => DataType::Boolean,
        DimensionType::Time => instant_type(),
    }
}

fn measure_type(ty: MeasureType) -> DataType {
    match ty {
        MeasureType::Count | MeasureType::CountDistinct | MeasureType::CountDistinctApprox => DataType::Int64,
        MeasureType::String => DataType::Utf8,
        MeasureType::Boolean => DataType::Boolean,
        MeasureType::Time => instant_type(),
        _ => DataType::Float64,
    }
}
