//! Lists services, operations and instances. If there are no conditions besides the time window, whole hours come from
//! roll-ups, and only the spans of the hours at its ends are read.
//!
//! Each list is one plan: spans and roll-ups are grouped, combined and grouped again. If a roll-up indicates that an
//! hour has too many names to be counted ([`UNLISTED`]), the plan is repeated over spans only.
//!
//! The names of all services are known from the catalog's description of each part, a few dozen rows. Their plan is
//! only a scan, and our code merges them, as planning the grouping and sorting would take several times as long as
//! everything else.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, UInt8Type};
use datafusion::error::Result as DataFusionResult;
use datafusion::functions::expr_fn::lower;
use datafusion::functions_aggregate::expr_fn::{count, max, min, sum};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, ident, lit};
use futures::future::BoxFuture;
use quiver_query::{QueryContext, give_way};
use quiver_types::spans::{
    RollupRequest, RollupRows, SpanColumn, SpanFilter, SpanRequest, TextTest, UNLISTED, instance_parts,
};
use quiver_types::tables::spans::{MINUTE_NS, minute_of};

use super::sketch::{Sketch, aggregate};
use super::{InstanceRow, OperationRow, ServiceRow};
use crate::columns::columns;
use crate::engine::{Reader, TraceError, TracesEngine};
use crate::plan::{ListOptions, ascending, built, failed, functions, int, named, rows, shown_service, union};
use crate::resource::shown;

/// The unbounded window: spans are not filtered by their start.
const ALWAYS: (i64, i64) = (i64::MIN, i64::MAX);

/// What is read from roll-ups, and the filters of the spans that are read in addition.
struct Sources {
    rollup: Option<RollupRequest>,
    spans: Vec<SpanFilter>,
}

impl Sources {
    /// Splits a window.
    fn split(range: (i64, i64), conditions: &[SpanFilter], request: fn(i64, i64) -> RollupRequest) -> Self {
        if !conditions.is_empty() {
            return Self::spans(range, conditions);
        }
        // The minutes completely within the window; whole hours of these come from roll-ups.
        let first = minute_of(range.0.saturating_add(MINUTE_NS - 1));
        let last = minute_of(range.1.saturating_add(1)) - 1;
        let request = request(first, last);
        let Some(hours) = request.bounds() else { return Self::spans(range, conditions) };
        let (from, to) = (hours.0.saturating_mul(MINUTE_NS), (hours.1 + 1).saturating_mul(MINUTE_NS));
        let mut spans = Vec::new();
        if range.0 < from {
            spans.push(SpanFilter::Starts(range.0, from - 1));
        }
        if to <= range.1 {
            spans.push(SpanFilter::Starts(to, range.1));
        }
        Self { rollup: Some(request), spans }
    }

    /// Reads spans only.
    fn spans(range: (i64, i64), conditions: &[SpanFilter]) -> Self {
        let starts = if range == ALWAYS { SpanFilter::All } else { SpanFilter::Starts(range.0, range.1) };
        Self { rollup: None, spans: vec![conditions.iter().cloned().fold(starts, SpanFilter::and)] }
    }
}

/// Whether rows of operations have a sketch of the durations of their spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durations {
    Sketch,
    Skip,
}

type Plan = DataFusionResult<LogicalPlanBuilder>;

/// 1 if a roll-up row stands for names that were not counted.
fn unlisted() -> Expr {
    max(cast(ident("sort").eq(lit(UNLISTED)), DataType::Int64)).alias("unlisted")
}

/// 0: rows of spans never do.
fn listed() -> Expr {
    max(lit(0i64)).alias("unlisted")
}

fn service_of_rollup() -> DataFusionResult<Expr> {
    Ok(shown_service(cast(ident("service"), DataType::Utf8View))?.alias("service"))
}

fn service_of_span() -> DataFusionResult<Expr> {
    Ok(shown_service(ident("service"))?.alias("service"))
}

fn total(name: &str) -> Expr {
    sum(ident(name)).alias(name)
}

fn latest(name: &str) -> Expr {
    max(ident(name)).alias(name)
}

impl Reader {
    fn rollup_rows(&self, request: Option<&RollupRequest>) -> Result<Option<LogicalPlanBuilder>, TraceError> {
        Ok(request.map(|request| self.rollup_plan(request)).transpose()?.map(LogicalPlanBuilder::from))
    }

    fn span_rows(&self, filters: &[SpanFilter], wanted: &[SpanColumn]) -> Result<Vec<LogicalPlanBuilder>, TraceError> {
        let scan = |filter: &SpanFilter| {
            let request = SpanRequest { filter: filter.clone(), columns: wanted.to_vec() };
            Ok(LogicalPlanBuilder::from(self.plan(&request)?))
        };
        filters.iter().map(scan).collect()
    }

    /// The names of all services, in order; `None` if roll-ups do not list them all.
    async fn all_services(&self) -> Result<Option<Vec<String>>, TraceError> {
        let plan = self.rollup_plan(&RollupRequest::Services)?;
        let (mut names, mut listed) = (BTreeSet::new(), true);
        self.run(&plan, |batch| {
            let rows = RollupRows::of(batch)?;
            for row in 0..batch.num_rows() {
                listed &= rows.sort(row) != UNLISTED;
                let name = shown(rows.names(row).0);
                if !names.contains(name) {
                    self.collect(2 * (size_of::<String>() + name.len()))?;
                    names.insert(name.to_owned());
                }
            }
            Ok(true)
        })
        .await?;
        Ok(listed.then(|| names.into_iter().collect()))
    }

    /// Plans `service`, `name`, `kind`, `spans`, `errors`, `last`, `unlisted`, and optionally `durations`.
    fn operations_plan(&self, sources: &Sources, durations: Durations) -> Result<LogicalPlanBuilder, TraceError> {
        let mut wanted = vec![SpanColumn::Text("name"), SpanColumn::Own("kind"), SpanColumn::Own("start")];
        wanted.extend([SpanColumn::Own("status"), SpanColumn::Context("service")]);
        if durations == Durations::Sketch {
            wanted.push(SpanColumn::Duration);
        }
        let rollups = self.rollup_rows(sources.rollup.as_ref())?;
        let spans = self.span_rows(&sources.spans, &wanted)?;
        let sketch = |of: fn(Expr) -> Expr, column: &str| {
            (durations == Durations::Sketch).then(|| of(ident(column)).alias("durations"))
        };
        let plan = || -> Plan {
            let rollups = rollups.map(|rows| -> Plan {
                let name = cast(ident("peer"), DataType::Utf8View).alias("name");
                let keys = vec![service_of_rollup()?, name, ident("sort").alias("kind")];
                let mut sums = vec![sum(int(ident("spans"))).alias("spans"), sum(int(ident("errors"))).alias("errors")];
                sums.extend([latest("last"), unlisted()]);
                sums.extend(sketch(aggregate::buckets, "durations"));
                rows.aggregate(keys, sums)
            });
            let spans = union(spans)?.map(|scan| -> Plan {
                let keys = vec![service_of_span()?, ident("name"), ident("kind")];
                let mut sums = vec![rows().alias("spans"), failed().alias("errors")];
                sums.extend([max(ident("start")).alias("last"), listed()]);
                sums.extend(sketch(aggregate::durations, "duration"));
                scan.aggregate(keys, sums)
            });
            let both = union([rollups, spans].into_iter().flatten().collect::<DataFusionResult<Vec<_>>>()?)?;
            let both = both.unwrap_or_else(|| LogicalPlanBuilder::empty(false));
            let mut sums = vec![total("spans"), total("errors"), latest("last"), latest("unlisted")];
            sums.extend(sketch(aggregate::sketches, "durations"));
            both.aggregate(["service", "name", "kind"].map(ident), sums)
        };
        Ok(plan().map_err(quiver_query::from_datafusion)?)
    }

    /// Plans `service`, `name`, `spans`, `errors`, `first`, `last`, `unlisted`; names are
    /// [`quiver_types::spans::instance_name`].
    fn instances_plan(&self, sources: &Sources) -> Result<LogicalPlanBuilder, TraceError> {
        let rollups = self.rollup_rows(sources.rollup.as_ref())?;
        let spans = self.span_rows(&sources.spans, &columns(&["start", "status"], &["service", "resource"]))?;
        let plan = || -> Plan {
            let rollups = rollups.map(|rows| -> Plan {
                let keys = vec![service_of_rollup()?, ident("peer").alias("name")];
                let mut sums = vec![sum(int(ident("spans"))).alias("spans"), sum(int(ident("errors"))).alias("errors")];
                sums.extend([min(ident("first")).alias("first"), latest("last"), unlisted()]);
                rows.aggregate(keys, sums)
            });
            let spans = union(spans)?.map(|scan| -> Plan {
                let keys = vec![service_of_span()?, functions::instance(ident("resource")).alias("name")];
                let mut sums = vec![rows().alias("spans"), failed().alias("errors")];
                sums.extend([min(ident("start")).alias("first"), max(ident("start")).alias("last"), listed()]);
                scan.aggregate(keys, sums)
            });
            let both = union([rollups, spans].into_iter().flatten().collect::<DataFusionResult<Vec<_>>>()?)?;
            let mut sums = vec![total("spans"), total("errors"), min(ident("first")).alias("first")];
            sums.extend([latest("last"), latest("unlisted")]);
            both.unwrap_or_else(|| LogicalPlanBuilder::empty(false)).aggregate(["service", "name"].map(ident), sums)
        };
        Ok(plan().map_err(quiver_query::from_datafusion)?)
    }

    /// Plans `service`, `operations`, `instances`, `spans`, `errors`, `last`, `unlisted`.
    fn services_plan(
        &self,
        operations: &Sources,
        instances: &Sources,
        listing: &ListOptions,
    ) -> Result<LogicalPlan, TraceError> {
        let operations = self.operations_plan(operations, Durations::Skip)?;
        let instances = self.instances_plan(instances)?;
        let plan = || -> Plan {
            // Several kinds may share a name.
            let all = ["spans", "errors"].map(total).into_iter().chain(["last", "unlisted"].map(latest));
            let by_name = operations.aggregate(["service", "name"].map(ident), all.clone())?;
            let names = count(ident("name")).alias("operations");
            let by_service = by_name.aggregate([ident("service")], all.chain([names]))?;
            let none = |name: &str| lit(0i64).alias(name);
            let operations = by_service.project(vec![
                ident("service"),
                ident("operations"),
                none("instances"),
                ident("spans"),
                ident("errors"),
                ident("last"),
                ident("unlisted"),
            ])?;
            // A name without an instance does not count as one, but its service is listed.
            let instance = functions::instance_part(ident("name")).alias("instance");
            let parts = instances.project(vec![ident("service"), instance, ident("unlisted")])?;
            let once = parts.aggregate(["service", "instance"].map(ident), vec![latest("unlisted")])?;
            let said = sum(cast(ident("instance").not_eq(lit("")), DataType::Int64)).alias("instances");
            let by_service = once.aggregate([ident("service")], vec![said, latest("unlisted")])?;
            let instances = by_service.project(vec![
                ident("service"),
                none("operations"),
                ident("instances"),
                none("spans"),
                none("errors"),
                none("last"),
                ident("unlisted"),
            ])?;
            let both = operations.union(instances.build()?)?;
            let sums = ["operations", "instances", "spans", "errors"].map(total).into_iter();
            let by_service = both.aggregate([ident("service")], sums.chain(["last", "unlisted"].map(latest)))?;
            let shown = by_service.project(vec![
                cast(ident("service"), DataType::Utf8).alias("service"),
                ident("operations"),
                ident("instances"),
                ident("spans"),
                ident("errors"),
                ident("last"),
                ident("unlisted"),
            ])?;
            sorted(shown, "service", ["service"], listing)
        };
        built(plan())
    }

    fn operations_list(&self, sources: &Sources, listing: &ListOptions) -> Result<LogicalPlan, TraceError> {
        let operations = self.operations_plan(sources, Durations::Sketch)?;
        let text = |name: &str| cast(ident(name), DataType::Utf8).alias(name);
        let plan = operations.project(vec![
            text("service"),
            text("name"),
            ident("kind"),
            ident("spans"),
            ident("errors"),
            ident("durations"),
            ident("unlisted"),
        ]);
        built(plan.and_then(|plan| sorted(plan, "name", ["service", "name", "kind"], listing)))
    }

    fn instances_list(&self, sources: &Sources, listing: &ListOptions) -> Result<LogicalPlan, TraceError> {
        let instances = self.instances_plan(sources)?;
        let service = cast(ident("service"), DataType::Utf8).alias("service");
        let columns = ["name", "spans", "errors", "first", "last", "unlisted"].map(ident);
        let plan = instances.project(std::iter::once(service).chain(columns));
        built(plan.and_then(|plan| sorted(plan, "name", ["service", "name"], listing)))
    }

    /// Runs a plan over sources; repeats it over spans only if the result shows that roll-ups are incomplete.
    async fn catalog<T: Send>(
        &self,
        sources: [Sources; 2],
        spans: impl Fn() -> Sources + Send + Sync,
        plan: impl Fn(&[Sources; 2]) -> Result<LogicalPlan, TraceError> + Send + Sync,
        row: impl Fn(&Fields<'_>, usize) -> T + Send + Sync,
    ) -> Result<Vec<T>, TraceError> {
        let of_rollups = plan(&sources)?;
        if let Some(rows) = self.listed(&of_rollups, &row).await? {
            return Ok(rows);
        }
        let of_spans = plan(&[spans(), spans()])?;
        Ok(self.listed(&of_spans, &row).await?.unwrap_or_default())
    }

    /// The rows of a plan; `None` if one of them stands for names that were not counted.
    async fn listed<T: Send>(
        &self,
        plan: &LogicalPlan,
        row: &(impl Fn(&Fields<'_>, usize) -> T + Sync),
    ) -> Result<Option<Vec<T>>, TraceError> {
        let (mut out, mut listed) = (Vec::new(), true);
        let memory = self
            .groups(plan, |batch| {
                let fields = Fields(batch);
                let unlisted = fields.int("unlisted");
                for i in 0..batch.num_rows() {
                    listed &= unlisted.is_none_or(|flags| flags.value(i) <= 0);
                    out.push(row(&fields, i));
                }
                Ok(())
            })
            .await?;
        if !listed {
            return Ok(None);
        }
        self.ctx.keep(memory);
        Ok(Some(out))
    }
}

/// Filters and sorts the rows of a list, and applies the limit.
fn sorted<const N: usize>(plan: LogicalPlanBuilder, name: &str, by: [&str; N], listing: &ListOptions) -> Plan {
    named(plan, name, listing.like.as_ref())?.sort_with_limit(ascending(by), listing.limit)
}

/// The service whose operations are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceName {
    /// Called so.
    Exact(String),
    /// Called so in lower case, as which it is given here.
    Lower(String),
}

impl ServiceName {
    /// Gives the filter of its spans.
    pub fn filter(&self) -> SpanFilter {
        SpanFilter::Service(match self {
            Self::Exact(name) => TextTest::Is(name.clone()),
            Self::Lower(name) => TextTest::Lower(name.clone()),
        })
    }

    /// Says whether a column of names (`Utf8`) has it.
    fn is(&self, column: Expr) -> Expr {
        match self {
            Self::Exact(name) => column.eq(lit(name.as_str())),
            Self::Lower(name) => lower(column).eq(lit(name.as_str())),
        }
    }
}

/// Columns of a list by name.
struct Fields<'b>(&'b RecordBatch);

impl Fields<'_> {
    fn int(&self, name: &str) -> Option<&arrow::array::Int64Array> {
        self.0.column_by_name(name)?.as_primitive_opt::<Int64Type>()
    }

    fn number(&self, name: &str, row: usize) -> i64 {
        self.int(name).map_or(0, |column| column.value(row))
    }

    fn count(&self, name: &str, row: usize) -> u64 {
        self.number(name, row).max(0) as u64
    }

    fn small(&self, name: &str, row: usize) -> u8 {
        let column = self.0.column_by_name(name).and_then(|c| c.as_primitive_opt::<UInt8Type>());
        column.map_or(0, |column| column.value(row))
    }

    fn text(&self, name: &str, row: usize) -> &str {
        let column = self.0.column_by_name(name).and_then(|c| c.as_string_opt::<i32>());
        column.map_or("", |column| column.value(row))
    }

    fn sketch(&self, name: &str, row: usize) -> Sketch {
        let column = self.0.column_by_name(name).and_then(|c| c.as_binary_opt::<i32>());
        column.map_or_else(Sketch::default, |column| Sketch::read(column.value(row)))
    }
}

impl TracesEngine {
    /// Lists services by name, from the spans that start in a window (inclusive) and match conditions.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn services(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
        listing: ListOptions,
    ) -> BoxFuture<'_, Result<Vec<ServiceRow>, TraceError>> {
        self.read(ctx, (range, conditions, listing), |reader, (range, conditions, listing)| async move {
            let sources = [
                Sources::split(range, &conditions, RollupRequest::Operations),
                Sources::split(range, &conditions, RollupRequest::Instances),
            ];
            let row = |of: &Fields<'_>, i: usize| ServiceRow {
                name: of.text("service", i).to_owned(),
                operations: of.count("operations", i),
                instances: of.count("instances", i),
                spans: of.count("spans", i),
                errors: of.count("errors", i),
                last_seen: of.number("last", i),
            };
            let plan = |[operations, instances]: &[Sources; 2]| reader.services_plan(operations, instances, &listing);
            reader.catalog(sources, || Sources::spans(range, &conditions), plan, row).await
        })
    }

    /// Lists the names of services, in order.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn service_names(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
    ) -> BoxFuture<'_, Result<Vec<String>, TraceError>> {
        self.look_up(ctx, (range, conditions), |reader, (range, conditions)| async move {
            let all = range == ALWAYS && conditions.is_empty();
            if all && let Some(names) = reader.all_services().await? {
                return Ok(names);
            }
            // Grouping names is more than a lookup, so yield first.
            give_way().await;
            let sources = || {
                if all {
                    Sources::spans(range, &conditions)
                } else {
                    Sources::split(range, &conditions, RollupRequest::Operations)
                }
            };
            let plan = |[sources, _]: &[Sources; 2]| {
                let rollups = reader.rollup_rows(sources.rollup.as_ref())?;
                let spans = reader.span_rows(&sources.spans, &columns(&[], &["service"]))?;
                let plan = || -> Plan {
                    let rollups =
                        rollups.map(|rows| rows.aggregate(vec![service_of_rollup()?], vec![unlisted()])).transpose()?;
                    let spans = union(spans)?;
                    let spans =
                        spans.map(|rows| rows.aggregate(vec![service_of_span()?], vec![listed()])).transpose()?;
                    let both = union([rollups, spans].into_iter().flatten())?;
                    let both = both.unwrap_or_else(|| LogicalPlanBuilder::empty(false));
                    let once = both.aggregate([ident("service")], vec![latest("unlisted")])?;
                    let service = cast(ident("service"), DataType::Utf8).alias("service");
                    once.project(vec![service, ident("unlisted")])?.sort(ascending(["service"]))
                };
                built(plan())
            };
            let row = |of: &Fields<'_>, i: usize| of.text("service", i).to_owned();
            reader.catalog([sources(), sources()], || Sources::spans(range, &conditions), plan, row).await
        })
    }

    /// Lists operations by service, name, kind.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn operations(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
        listing: ListOptions,
    ) -> BoxFuture<'_, Result<Vec<OperationRow>, TraceError>> {
        self.read(ctx, (range, conditions, listing), |reader, (range, conditions, listing)| async move {
            let sources = || Sources::split(range, &conditions, RollupRequest::Operations);
            let row = |of: &Fields<'_>, i: usize| {
                let mut durations = of.sketch("durations", i);
                OperationRow {
                    service: of.text("service", i).to_owned(),
                    name: of.text("name", i).to_owned(),
                    kind: of.small("kind", i),
                    spans: of.count("spans", i),
                    errors: of.count("errors", i),
                    quantiles: [0.5, 0.95, 0.99].map(|q| durations.quantile(q)),
                }
            };
            let plan = |[sources, _]: &[Sources; 2]| reader.operations_list(sources, &listing);
            reader.catalog([sources(), sources()], || Sources::spans(range, &conditions), plan, row).await
        })
    }

    /// Lists operations of one service, or of all, by name and kind; over all time.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn operation_names(
        self: &Arc<Self>,
        ctx: &QueryContext,
        service: Option<ServiceName>,
        kind: Option<u8>,
    ) -> BoxFuture<'_, Result<Vec<(String, u8)>, TraceError>> {
        self.read(ctx, (service, kind), |reader, (service, kind)| async move {
            let sources = || Sources::split(ALWAYS, &[], RollupRequest::Operations);
            let plan = |[sources, _]: &[Sources; 2]| {
                let operations = reader.operations_plan(sources, Durations::Skip)?;
                // Rows for names that were not counted belong to no service.
                let plan = || -> Plan {
                    let text = |name: &str| cast(ident(name), DataType::Utf8).alias(name);
                    let rows =
                        operations.project(vec![text("service"), text("name"), ident("kind"), ident("unlisted")])?;
                    let is = |found: Expr| found.or(ident("unlisted").gt(lit(0i64)));
                    let of_service = service.as_ref().map(|service| is(service.is(ident("service"))));
                    let of_kind = kind.map(|kind| is(ident("kind").eq(lit(kind))));
                    let conditions = of_service.into_iter().chain(of_kind);
                    let rows = conditions.into_iter().try_fold(rows, LogicalPlanBuilder::filter)?;
                    let once = rows.aggregate(["name", "kind"].map(ident), vec![latest("unlisted")])?;
                    once.sort(ascending(["name", "kind"]))
                };
                built(plan())
            };
            let row = |of: &Fields<'_>, i: usize| (of.text("name", i).to_owned(), of.small("kind", i));
            reader.catalog([sources(), sources()], || Sources::spans(ALWAYS, &[]), plan, row).await
        })
    }

    /// Lists instances by service and name.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn instances(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
        listing: ListOptions,
    ) -> BoxFuture<'_, Result<Vec<InstanceRow>, TraceError>> {
        self.read(ctx, (range, conditions, listing), |reader, (range, conditions, listing)| async move {
            let sources = || Sources::split(range, &conditions, RollupRequest::Instances);
            let row = |of: &Fields<'_>, i: usize| {
                let [instance, version, host, pod] = instance_parts(of.text("name", i)).map(str::to_owned);
                InstanceRow {
                    names: [of.text("service", i).to_owned(), instance, version, host, pod],
                    spans: of.count("spans", i),
                    errors: of.count("errors", i),
                    seen: (of.number("first", i), of.number("last", i)),
                }
            };
            let plan = |[sources, _]: &[Sources; 2]| reader.instances_list(sources, &listing);
            reader.catalog([sources(), sources()], || Sources::spans(range, &conditions), plan, row).await
        })
    }
}

#[cfg(test)]
mod tests;
