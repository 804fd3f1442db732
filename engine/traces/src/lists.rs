//! Lists over many spans: services, operations, instances, tags and their values, the service graph, and the figures of
//! the search page. Each is a plan over a scan of just the columns that it needs. Where a file has a loop of its own
//! instead of a plan, it says why.

pub mod dependencies;
pub mod facets;
pub mod histogram;
pub mod rates;
pub mod services;
pub(crate) mod sketch;
pub mod tags;

use std::sync::Arc;

use datafusion::logical_expr::{Expr, LogicalPlanBuilder, ident};
use futures::future::BoxFuture;
use quiver_query::QueryContext;
use quiver_types::spans::{SpanFilter, SpanRequest};

use crate::columns::{Columns, columns};
use crate::engine::{TraceError, TracesEngine};
use crate::export::spanarray;
use crate::plan::{ascending, built, functions};

/// A service, with sums over those of its spans that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceRow {
    /// `service.name`; `unknown_service` when spans have none.
    pub name: String,
    /// Number of different names of its spans.
    pub operations: u64,
    /// Number of its instances; spans that name none count for none.
    pub instances: u64,
    /// Number of its spans.
    pub spans: u64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
    /// Start of its newest span, Unix nanoseconds.
    pub last_seen: i64,
}

/// Spans of one service with one name and one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationRow {
    /// `service.name`; `unknown_service` when spans have none.
    pub service: String,
    /// Name of its spans.
    pub name: String,
    /// Span kind from 0 (unset) to 5 (consumer), see [`quiver_types::spans::KIND_NAMES`].
    pub kind: u8,
    /// Number of its spans.
    pub spans: u64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
    /// Median, 95th and 99th percentile of their duration in nanoseconds.
    pub quantiles: [i64; 3],
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRow {
    /// Service, instance, version, host, pod; empty where the resource says nothing.
    pub names: [String; 5],
    /// Number of its spans.
    pub spans: u64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
    /// Start of the first and of the last span, Unix nanoseconds.
    pub seen: (i64, i64),
}

/// A key of attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagRow {
    /// Key without its scope: `http.method`, not `span.http.method`.
    pub key: String,
    /// Where it stands: `span`, `resource` and so on, as [`quiver_types::spans::Place`] names them.
    pub scope: &'static str,
    /// `string`, `number`, `bool`, `bytes`, `list`, `map`, or `mixed`.
    pub kind: &'static str,
    /// Spans that have it.
    pub spans: u64,
    /// Number of its values; counted up to a bound.
    pub cardinality: u64,
}

impl TracesEngine {
    /// Lists the names of the other sides of spans, in order.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn remote_names(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
    ) -> BoxFuture<'_, Result<Vec<String>, TraceError>> {
        let filter = filter.and(spanarray::may_have_remote());
        self.read(ctx, filter, |reader, filter| async move {
            let request = SpanRequest { filter, columns: columns(&["kind", "attributes"], &[]) };
            let scan = LogicalPlanBuilder::from(reader.plan(&request)?);
            let remote = functions::remote(ident("kind"), ident("attributes"));
            let plan = scan.project(vec![remote.alias("name")]).and_then(|names| {
                let said = names.filter(ident("name").is_not_null())?;
                said.aggregate([ident("name")], Vec::<Expr>::new())?.sort(ascending(["name"]))
            });
            let mut names = Vec::new();
            reader
                .list(&built(plan)?, |batch| {
                    let column = Columns(batch).text("name")?;
                    names.extend(column.iter().flatten().map(str::to_owned));
                    Ok(())
                })
                .await?;
            Ok(names)
        })
    }
}
