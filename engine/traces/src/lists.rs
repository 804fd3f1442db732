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
use quiver_query::QueryContext;
use quiver_types::spans::{SpanFilter, SpanRequest, kind_name};
use serde_json::{Value, json};

use crate::columns::{Columns, columns};
use crate::engine::{TraceError, TracesEngine};
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

impl ServiceRow {
    /// Gives the row as JSON.
    pub fn to_json(&self) -> Value {
        json!({"name": self.name, "operations": self.operations, "instances": self.instances, "spans": self.spans,
            "errors": self.errors, "lastSeen": self.last_seen.to_string()})
    }
}

impl OperationRow {
    /// Gives the row as JSON.
    pub fn to_json(&self) -> Value {
        let [p50, p95, p99] = self.quantiles;
        json!({"service": self.service, "name": self.name, "kind": kind_name(self.kind), "spans": self.spans,
            "errors": self.errors, "p50": p50, "p95": p95, "p99": p99})
    }
}

impl InstanceRow {
    /// Gives the row as JSON.
    pub fn to_json(&self) -> Value {
        let [service, instance, version, host, pod] = &self.names;
        json!({"service": service, "instance": instance, "version": version, "host": host, "pod": pod,
            "spans": self.spans, "errors": self.errors, "firstSeen": self.seen.0.to_string(),
            "lastSeen": self.seen.1.to_string()})
    }
}

impl TagRow {
    /// Gives the row as JSON.
    pub fn to_json(&self) -> Value {
        json!({"key": self.key, "scope": self.scope, "type": self.kind, "spans": self.spans,
            "cardinality": self.cardinality})
    }
}

impl TracesEngine {
    /// Lists the names of the other sides of calls, in order.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn remote_names(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
    ) -> Result<Vec<String>, TraceError> {
        let filter = filter.and(SpanFilter::Kinds(vec![3, 4]));
        self.read(ctx, move |reader| async move {
            let request = SpanRequest { filter, columns: columns(&["attributes"], &[]) };
            let scan = LogicalPlanBuilder::from(reader.plan(&request)?);
            let plan = scan.project(vec![functions::remote(ident("attributes")).alias("name")]).and_then(|names| {
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
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks where a time of the answer is a number, which clients read as a double.
    #[test]
    fn rows_have_their_times_as_texts() {
        let service = ServiceRow { name: "a".to_owned(), last_seen: i64::MAX, spans: 2, ..ServiceRow::default() };
        assert_eq!(
            service.to_json(),
            json!({"name": "a", "operations": 0, "instances": 0, "spans": 2, "errors": 0,
                "lastSeen": "9223372036854775807"})
        );
        let names = ["a", "i", "v", "h", "p"].map(str::to_owned);
        let instance = InstanceRow { names, spans: 1, errors: 1, seen: (-1, 5) };
        assert_eq!(
            instance.to_json(),
            json!({"service": "a", "instance": "i", "version": "v", "host": "h", "pod": "p", "spans": 1, "errors": 1,
                "firstSeen": "-1", "lastSeen": "5"})
        );
        let operation = |kind: u8| {
            let (service, name) = ("a".to_owned(), "GET".to_owned());
            OperationRow { service, name, kind, spans: 1, errors: 0, quantiles: [1, 2, 3] }.to_json()
        };
        assert_eq!((&operation(2)["kind"], &operation(0)["kind"]), (&json!("server"), &json!("")));
        assert_eq!((&operation(2)["p50"], &operation(2)["p99"]), (&json!(1), &json!(3)));
    }
}
