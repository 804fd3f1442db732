//! The tables of all models that a query needs. They are found before planning, in one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, TableReference};
use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use quiver_query::tables::models::ModelRows;
use quiver_query::tables::{DomainAccess, PUBLIC_SCHEMA, QUIVER_SCHEMA, TableEntry, TableRequest, TableSnapshot};
use quiver_query::{Names, QueryContext};
use quiver_types::Domain;
use quiver_types::tables::usage::QUERY_LOG;

use super::references::MemberReferences;
use super::{guarded_rows, model_error, select_text};
use crate::error::OlapResult;
use crate::model::catalog::{Catalog, MemberKind};
use crate::model::{MemberId, Model, Reads, Source};
use crate::query::Query;

/// What a query is planned over, for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) tables: &'a Arc<dyn TableSnapshot>,
    pub(crate) access: &'a DomainAccess,
    pub(crate) ctx: &'a QueryContext,
}

/// Plans of the rows of models, each named like its model.
#[derive(Debug, Default)]
pub struct Sources {
    plans: BTreeMap<String, LogicalPlan>,
    /// The SQL of the models whose rows are a SELECT, for this query.
    pub(crate) selects: BTreeMap<String, String>,
    /// Models whose rows are made of more than the caller himself may read.
    guarded: BTreeSet<String>,
}

impl Sources {
    /// Sources with the given rows in the place of a model's.
    pub(crate) fn of_rows(model: &str, rows: Arc<dyn TableProvider>) -> OlapResult<Self> {
        let plan = LogicalPlanBuilder::scan(TableReference::bare(model), provider_as_source(rows), None)?.build()?;
        Ok(Self { plans: BTreeMap::from([(model.to_owned(), plan)]), ..Self::default() })
    }

    /// Whether a model's rows are made of more than the caller himself may read.
    pub(crate) fn is_guarded(&self, model: &str) -> bool {
        self.guarded.contains(model)
    }

    /// The plan of a model's rows.
    pub(crate) fn plan(&self, model: &str) -> OlapResult<LogicalPlan> {
        self.plans.get(model).cloned().ok_or_else(|| model_error(format!("model `{model}` is not part of the query")))
    }

    /// Names and types of all columns: some types depend on the data.
    pub(crate) fn types(&self) -> String {
        let types = |plan: &LogicalPlan| {
            let fields = plan.schema().fields().iter();
            fields.map(|field| format!("{} {}", field.name(), field.data_type())).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.plans.iter().map(|(name, plan)| (name, types(plan))).collect();
        format!("{all:?}")
    }

    /// The columns of a model.
    pub(crate) fn schema(&self, model: &str) -> OlapResult<DFSchemaRef> {
        let plan = self.plans.get(model);
        plan.map(|p| Arc::clone(p.schema()))
            .ok_or_else(|| model_error(format!("model `{model}` is not part of the query")))
    }

    /// Finds the tables of all models that the members need.
    ///
    /// # Errors
    ///
    /// Missing tables; errors in a model's SELECT.
    pub(crate) async fn find(
        scope: Scope<'_>,
        members: &[MemberId],
        query: &Query,
        state: &SessionState,
    ) -> OlapResult<Self> {
        let Scope { catalog, tables, access, ctx } = scope;
        let reached = MemberReferences::of(catalog, members, &query.hints);
        let columns = reached.identifiers(catalog);
        let bounds = Bounds::of(&reached, catalog, query);
        let shown = if access.is_full_everywhere() { Vec::new() } else { tables.list(access) };
        let finder = Finder { tables, state, access, ctx, columns: &columns, bounds, shown: &shown };
        let mut plans = BTreeMap::new();
        let (mut selects, mut guarded) = (BTreeMap::new(), BTreeSet::new());
        for name in &reached.models {
            let model = catalog.model(name);
            let mut rows = finder.rows(model).await?;
            let is_guarded = rows.is_guarded && !access.is_full_everywhere();
            if is_guarded {
                guarded.insert(name.clone());
            }
            let is_long = rows.text.as_ref().is_some_and(|text| text.len() > guarded_rows::SELECT_BYTES_MAX);
            if is_long || is_guarded {
                let columns = guarded_rows::columns(catalog, model, &rows.plan, &reached.spoken_of(catalog, name));
                selects.insert(name.clone(), guarded_rows::text(model, &columns, bounds.told_to(model)));
                rows.plan = guarded_rows::narrowed(rows.plan, columns)?;
            } else {
                selects.extend(rows.text.map(|text| (name.clone(), text)));
            }
            let plan = LogicalPlanBuilder::from(rows.plan).alias(TableReference::bare(name.as_str()))?.build()?;
            plans.insert(name.clone(), plan);
        }
        Ok(Self { plans, selects, guarded })
    }

    /// Finds the tables of one model for some of its columns, with its SELECT between two instants.
    ///
    /// # Errors
    ///
    /// As [`Self::find`].
    pub(crate) async fn of_model(scope: Scope<'_>, rows: &ModelRows, state: &SessionState) -> OlapResult<Self> {
        let Scope { catalog, tables, access, ctx } = scope;
        let mut reached = MemberReferences::default();
        reached.add_model(catalog, &rows.model);
        let mut columns = reached.identifiers(catalog);
        columns.extend(rows.columns.iter().cloned());
        let range = rows.range_ns.unwrap_or(Bounds::OPEN);
        let bounds = Bounds { traces: range, browsers: range };
        let finder = Finder { tables, state, access, ctx, columns: &columns, bounds, shown: &[] };
        let found = finder.rows(catalog.model(&rows.model)).await?;
        let plan = LogicalPlanBuilder::from(found.plan).alias(TableReference::bare(rows.model.as_str()))?.build()?;
        let guarded = found.is_guarded.then(|| rows.model.clone()).into_iter().collect();
        Ok(Self { plans: BTreeMap::from([(rows.model.clone(), plan)]), guarded, ..Self::default() })
    }
}

/// The rows of a model.
struct Rows {
    plan: LogicalPlan,
    /// The SQL of its SELECT, if it has one.
    text: Option<String>,
    /// Whether it reads a table that the caller may not name, or of which he himself sees other rows.
    is_guarded: bool,
}

/// Tables that show a caller his own rows if he may not see all of their domain.
const OWN: [(&str, Domain); 2] = [(QUERY_LOG.name, Domain::System), ("audit_log", Domain::Audit)];

/// Whether a query's rows depend on the caller and not just on his rights, because some are his own.
pub(crate) fn has_own_rows(catalog: &Catalog, query: &Query, members: &[MemberId], access: &DomainAccess) -> bool {
    let own: Vec<&str> = OWN.iter().filter(|(_, domain)| !access.is_full(*domain)).map(|(name, _)| *name).collect();
    let reached = MemberReferences::of(catalog, members, &query.hints);
    let mut models = reached.models.iter().filter_map(|name| catalog.models.get(name));
    models.any(|model| {
        let of_table = match &model.source {
            Some(Source::Table(_, table)) => own.iter().any(|name| table.eq_ignore_ascii_case(name)),
            Some(Source::Select(sql)) => {
                let sql = sql.to_ascii_lowercase();
                own.iter().any(|name| sql.contains(name))
            }
            None => false,
        };
        of_table || model.row_right.as_ref().is_some_and(|right| right.own.is_some())
    })
}

/// A table that a query reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    /// The schema, if one is given.
    pub(crate) schema: Option<String>,
    /// Name of the table.
    pub(crate) name: String,
    /// Whether the operator's tables are found regardless of the caller's rights.
    pub(crate) is_guarded: bool,
}

/// The tables and columns that a query reads; `None` if its rows depend on more than these.
pub(crate) fn reads(
    catalog: &Catalog,
    query: &Query,
    members: &[MemberId],
    state: &SessionState,
) -> Option<(Vec<Read>, Vec<String>)> {
    let reached = MemberReferences::of(catalog, members, &query.hints);
    let has_range = query.times.iter().any(|entry| entry.range.is_some());
    let is_steady = |text: &str| {
        let without = if has_range { text.replace("range_", "") } else { text.to_owned() };
        crate::model::template::is_steady(&without)
    };
    for id in &reached.members {
        let templates: Vec<_> = match catalog.find(id)?.kind {
            MemberKind::Dimension(d) => d.templates().collect(),
            MemberKind::Measure(m) if !has_range && (m.rolling_window.is_some() || !m.time_shift.is_empty()) => {
                return None;
            }
            MemberKind::Measure(m) => m.templates().collect(),
            MemberKind::Segment(s) => vec![&s.sql],
        };
        if !templates.iter().all(|template| is_steady(&template.text)) {
            return None;
        }
    }
    let mut reads = Vec::new();
    for name in &reached.models {
        let model = catalog.models.get(name)?;
        let joins = model.joins.iter().map(|join| &join.sql);
        if !joins.chain(model.rows.iter().map(|rows| &rows.sql)).all(|template| is_steady(&template.text))
            || matches!(&model.source, Some(Source::Select(sql)) if !is_steady(sql))
        {
            return None;
        }
        let is_guarded = model.row_right.is_some();
        reads.extend(tables_of(model, state)?.into_iter().map(|(schema, name)| Read { schema, name, is_guarded }));
    }
    Some((reads, reached.identifiers(catalog)))
}

/// Schema (if given) and name of each table that a model reads.
fn tables_of(model: &Model, state: &SessionState) -> Option<Vec<(Option<String>, String)>> {
    Some(match model.source.as_ref()? {
        Source::Table(schema, name) => vec![(schema.clone(), name.clone())],
        Source::Select(sql) => {
            let dialect = state.config().options().sql_parser.dialect;
            let statement = state.sql_to_statement(sql, &dialect).ok()?;
            let found = state.resolve_table_references(&statement).ok()?;
            found.iter().map(|table| (table.schema().map(str::to_owned), table.table().to_owned())).collect()
        }
    })
}

/// A number for the rows of a model, made of the versions of its tables; `None` if they may change unnoticed.
pub(crate) fn version(
    model: &Model,
    tables: &dyn TableSnapshot,
    state: &SessionState,
    access: &DomainAccess,
) -> Option<String> {
    let named = tables_of(model, state)?;
    // With the rights by which the tables are found.
    let full = DomainAccess::full();
    let access = if model.row_right.is_some() { &full } else { access };
    let version = |(schema, name): &(Option<String>, String)| {
        let request = TableRequest { schema: Some(PUBLIC_SCHEMA), name, columns: &[], access, typed_by: access };
        let is_public = schema.as_deref().is_none_or(|s| s == PUBLIC_SCHEMA);
        let version = tables.version(&request).filter(|_| is_public)?;
        Some(format!("{name}@{version}"))
    };
    named.iter().map(version).collect::<Option<Vec<_>>>().map(|all| all.join(" "))
}

/// The values of `range_start()` and `range_end()` in SELECTs. Different signals have different times, so a query's
/// range only applies to models of its signal.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    traces: (i64, i64),
    browsers: (i64, i64),
}

impl Bounds {
    /// A range beyond which there are no rows.
    const OPEN: (i64, i64) = (i64::MIN / 2, i64::MAX / 2);

    fn of(reached: &MemberReferences, catalog: &Catalog, query: &Query) -> Self {
        let is_of_traces = |model: &Model| {
            let right = model.row_right.as_ref();
            right.is_some_and(|right| matches!(right.domain, Domain::Traces | Domain::Transactions))
        };
        // Other such models need all events (for example an application's first one), so this range does not apply to
        // them.
        let is_bounded = |model: &Model| {
            is_of_browsers(model) && matches!(&model.source, Some(Source::Select(sql)) if sql.contains("range_start()"))
        };
        let bounds = |is_of: &dyn Fn(&Model) -> bool| Self::between(reached, catalog, query, is_of);
        let browsers = if reached.reads_whole(catalog) { Self::OPEN } else { bounds(&is_bounded) };
        Self { traces: bounds(&is_of_traces), browsers }
    }

    /// The instants between which `range_start()` and `range_end()` let the SELECT of a model read: those of the
    /// query, unless a part of it reads beyond them. Models extend the range themselves to include related rows.
    fn between(
        reached: &MemberReferences,
        catalog: &Catalog,
        query: &Query,
        is_of: &dyn Fn(&Model) -> bool,
    ) -> (i64, i64) {
        let open = Self::OPEN;
        let looks_beyond = |id: &MemberId| match catalog.find(id).map(|f| f.kind) {
            Some(MemberKind::Dimension(d)) => d.sub_query && !d.propagate_range,
            Some(MemberKind::Measure(m)) => m.rolling_window.is_some() || !m.time_shift.is_empty(),
            _ => false,
        };
        let is_of = |id: &MemberId| catalog.find(id).is_some_and(|found| is_of(found.model));
        let ranges: Vec<_> = query.times.iter().filter_map(|t| Some((&t.member, t.range?))).collect();
        if ranges.iter().any(|(id, _)| !is_of(id)) || reached.members.iter().any(looks_beyond) {
            return open;
        }
        let instants = ranges.into_iter().map(|(_, range)| range.instants(query.tz));
        let hull = instants.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        hull.map_or(open, |(start, end)| (start.max(open.0), end.min(open.1)))
    }

    fn of_model(&self, model: &Model) -> (i64, i64) {
        if is_of_browsers(model) { self.browsers } else { self.traces }
    }

    /// The bounds for a model's SELECT; `None` if it does not use them, or they are open.
    fn told_to(&self, model: &Model) -> Option<(i64, i64)> {
        let asks = matches!(&model.source, Some(Source::Select(sql)) if sql.contains("range_"));
        asks.then(|| self.of_model(model)).filter(|bounds| *bounds != Self::OPEN)
    }
}

fn is_of_browsers(model: &Model) -> bool {
    model.row_right.as_ref().is_some_and(|right| right.domain == Domain::Rum)
}

struct Finder<'a> {
    tables: &'a Arc<dyn TableSnapshot>,
    state: &'a SessionState,
    access: &'a DomainAccess,
    ctx: &'a QueryContext,
    columns: &'a [String],
    bounds: Bounds,
    /// Tables that the caller may name.
    shown: &'a [TableEntry],
}

impl Finder<'_> {
    /// Finds the tables of a model.
    async fn rows(&self, model: &Model) -> OlapResult<Rows> {
        match &model.source {
            Some(Source::Table(schema, table)) => self.table(model, schema.as_deref(), table).await,
            Some(Source::Select(sql)) => self.select(model, sql).await,
            None => Err(model_error(format!("model `{}` has no rows", model.common.name))),
        }
    }

    /// Looks in `public`, then in `quiver`. Rows of the operator's tables depend on the rights of the model alone. Types
    /// of columns depend on the services that the caller sees in the model's domain, also where other rows are read.
    /// Returns whether the caller's own statement would find another table, or none.
    async fn provider(
        &self,
        model: &Model,
        schema: Option<&str>,
        name: &str,
    ) -> OlapResult<Option<(Arc<dyn TableProvider>, bool)>> {
        let full = DomainAccess::full();
        let seen = model.row_right.as_ref().map(|right| DomainAccess::of(|_| self.access.get(right.domain)));
        for of in [PUBLIC_SCHEMA, QUIVER_SCHEMA] {
            if schema.is_some_and(|s| s != of) {
                continue;
            }
            let reads = model.row_right.as_ref().map(|right| right.reads);
            let is_guarded = of == PUBLIC_SCHEMA && reads.is_some() || reads == Some(Reads::All);
            // Callers with full access are limited by their segments only.
            let reads_more = is_guarded && !self.access.is_full_everywhere();
            let access = if reads_more { &full } else { self.access };
            let typed_by = seen.as_ref().filter(|_| reads_more).unwrap_or(self.access);
            let request = TableRequest { schema: Some(of), name, columns: self.columns, access, typed_by };
            if let Some(found) = self.tables.table(&request, self.ctx).await? {
                let is_shown = self.shown.iter().any(|entry| entry.schema == of && entry.name == name);
                // A model without rights has no rows for which that would matter.
                return Ok(Some((found, is_guarded || reads.is_some() && !is_shown)));
            }
        }
        Ok(None)
    }

    async fn table(&self, model: &Model, schema: Option<&str>, name: &str) -> OlapResult<Rows> {
        let found = self.provider(model, schema, name).await?;
        let (found, is_guarded) = found.ok_or_else(|| {
            model_error(format!("there is no table `{name}`, of which `{}` is made", model.common.name))
        })?;
        let plan = LogicalPlanBuilder::scan(TableReference::bare(name), provider_as_source(found), None)?.build()?;
        Ok(Rows { plan, text: None, is_guarded })
    }

    async fn select(&self, model: &Model, sql: &str) -> OlapResult<Rows> {
        let wrong = |e: datafusion::error::DataFusionError| {
            model_error(format!("`sql` of model `{}` cannot be planned: {}", model.common.name, e.strip_backtrace()))
        };
        let dialect = self.state.config().options().sql_parser.dialect;
        let instant = |ns: i64| format!("arrow_cast({ns}, 'Timestamp(Nanosecond, Some(\"UTC\"))')");
        let (start, end) = self.bounds.of_model(model);
        let sql = sql.replace("range_start()", &instant(start)).replace("range_end()", &instant(end));
        let statement = self.state.sql_to_statement(&sql, &dialect).map_err(wrong)?;
        let mut names = Names::new(self.state);
        let fixed = self.tables.list(&DomainAccess::full());
        let (mut more, mut is_guarded) = (select_text::HiddenColumns::new(), false);
        for reference in self.state.resolve_table_references(&statement).map_err(wrong)? {
            let found = self.provider(model, reference.schema(), reference.table()).await?;
            if let Some((found, guards)) = found {
                is_guarded |= guards;
                let named = (reference.schema().unwrap_or_default().to_owned(), reference.table().to_owned());
                if let Some(entry) = fixed.iter().find(|entry| entry.name == named.1) {
                    let is_found = |name: &&String| entry.columns.column_with_name(name).is_none();
                    let columns = found.schema();
                    let columns = columns.fields().iter().map(|f| f.name()).filter(is_found).cloned();
                    more.insert(named, columns.collect());
                }
                names.add(reference.schema(), reference.table(), found);
            }
        }
        let text = select_text::written(&statement, &more);
        let plan = names.plan_statement(statement).map_err(wrong)?;
        if !matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Statement(_) | LogicalPlan::Copy(_))
        {
            return Ok(Rows { plan, text: Some(text), is_guarded });
        }
        Err(model_error(format!("`sql` of model `{}` is no SELECT", model.common.name)))
    }
}
