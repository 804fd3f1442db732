//! Attribute keys and their values.

pub(crate) mod hashes;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::Result as DataFusionResult;
use datafusion::functions_aggregate::expr_fn::{bit_or, sum};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, SortExpr, cast, ident, lit, when};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_query::QueryContext;
use quiver_types::spans::{Place, SpanColumn, SpanFilter, SpanRequest, TAG_VALUES_MAX, TagRequest, tag_kind_name};

use super::TagRow;
use crate::columns::{Columns, columns};
use crate::engine::{TraceError, TracesEngine};
use crate::plan::{ListOptions, ascending, built, functions, int, named, rows, shown_service, status_word};
use crate::traceql::fields::scope_name;

/// Names of properties that every span has.
pub const INTRINSICS: [&str; 7] =
    ["name", "service", "kind", "status", "statusMessage", "instrumentation:name", "instrumentation:version"];

/// The intrinsic that a span may have several of: the names of its events.
pub const EVENT_NAME: &str = "event:name";

/// Whether a key is an attribute or an intrinsic.
#[derive(Debug, Clone)]
pub enum KeyOf {
    /// An attribute, at one place or at any.
    Attribute(Option<Place>, String),
    /// One of [`INTRINSICS`], or [`EVENT_NAME`].
    Intrinsic(String),
}

impl TracesEngine {
    /// Lists attribute keys, most common first.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn tags(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        place: Option<Place>,
        listing: ListOptions,
    ) -> BoxFuture<'_, Result<Vec<TagRow>, TraceError>> {
        let request = TagRequest { filter, place, key: None };
        self.read(ctx, (request, listing), |reader, (request, listing)| async move {
            let counted = LogicalPlanBuilder::from(reader.tags_plan(&request)?);
            let plan = || {
                let sums = vec![
                    bit_or(ident("kinds")).alias("kinds"),
                    sum(int(ident("spans"))).alias("spans"),
                    hashes::count_hashes(ident("hashes")).alias("cardinality"),
                ];
                let scope = place_word(Place::name)?.alias("scope");
                let keys = counted.aggregate(vec![scope, ident("text").alias("key")], sums)?;
                let order = vec![spans_first(), ident("scope").sort(true, false), ident("key").sort(true, false)];
                named(keys, "key", listing.like.as_ref())?.sort_with_limit(order, listing.limit)
            };
            let mut rows = Vec::new();
            reader
                .list(&built(plan())?, |batch| {
                    let c = Columns(batch);
                    let (scopes, keys, kinds) = (c.text("scope")?, c.text("key")?, c.small("kinds")?);
                    let (spans, values) = (c.times("spans")?, c.sizes("cardinality")?);
                    rows.extend((0..batch.num_rows()).map(|i| TagRow {
                        key: keys.value(i).to_owned(),
                        scope: Place::ALL.map(Place::name).into_iter().find(|s| *s == scopes.value(i)).unwrap_or(""),
                        kind: tag_kind_name(kinds.value(i)),
                        spans: spans.value(i) as u64,
                        cardinality: values.value(i),
                    }));
                    Ok(())
                })
                .await?;
            Ok(rows)
        })
    }

    /// Attribute keys in alphabetical order.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn tag_names(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        place: Option<Place>,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<String>, TraceError>> {
        let request = TagRequest { filter, place, key: None };
        self.read(ctx, (request, limit), |reader, (request, limit)| async move {
            let counted = LogicalPlanBuilder::from(reader.tags_plan(&request)?);
            let keys = counted.aggregate([ident("text").alias("key")], Vec::<Expr>::new());
            let plan = keys.and_then(|keys| keys.sort_with_limit(ascending(["key"]), limit));
            let mut names = Vec::new();
            reader
                .list(&built(plan)?, |batch| {
                    names.extend(Columns(batch).text("key")?.iter().flatten().map(str::to_owned));
                    Ok(())
                })
                .await?;
            Ok(names)
        })
    }

    /// Attribute keys by scope, as TraceQL calls the places; both in order.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn tag_names_by_scope(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        place: Option<Place>,
    ) -> BoxFuture<'_, Result<Vec<(&'static str, String)>, TraceError>> {
        let request = TagRequest { filter, place, key: None };
        self.read(ctx, request, |reader, request| async move {
            let counted = LogicalPlanBuilder::from(reader.tags_plan(&request)?);
            let plan = place_word(scope_name).and_then(|scope| {
                let keys = vec![scope.alias("scope"), ident("text").alias("key")];
                counted.aggregate(keys, Vec::<Expr>::new())?.sort(ascending(["scope", "key"]))
            });
            let mut names = Vec::new();
            reader
                .list(&built(plan)?, |batch| {
                    let c = Columns(batch);
                    let (scopes, keys) = (c.text("scope")?, c.text("key")?);
                    names.extend((0..batch.num_rows()).map(|i| {
                        let scope = Place::ALL.map(scope_name).into_iter().find(|name| *name == scopes.value(i));
                        (scope.unwrap_or(""), keys.value(i).to_owned())
                    }));
                    Ok(())
                })
                .await?;
            Ok(names)
        })
    }

    /// Lists the values of a key with their counts, most common first.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn values<'a>(
        self: &'a Arc<Self>,
        ctx: &'a QueryContext,
        filter: SpanFilter,
        key: KeyOf,
        listing: ListOptions,
    ) -> BoxFuture<'a, Result<Vec<(String, u64)>, TraceError>> {
        async move {
            let rows = self.value_rows(ctx, filter, key, listing, false).await?;
            Ok(rows.into_iter().map(|(value, spans, _)| (value, spans)).collect())
        }
        .boxed()
    }

    /// Lists the values of a key with their types (bits of [`quiver_types::spans::tag_value_kind`]), most common first.
    /// Intrinsics are strings.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn typed_values<'a>(
        self: &'a Arc<Self>,
        ctx: &'a QueryContext,
        filter: SpanFilter,
        key: KeyOf,
        listing: ListOptions,
    ) -> BoxFuture<'a, Result<Vec<(String, u8)>, TraceError>> {
        async move {
            let rows = self.value_rows(ctx, filter, key, listing, true).await?;
            Ok(rows.into_iter().map(|(value, _, kinds)| (value, kinds)).collect())
        }
        .boxed()
    }

    async fn value_rows(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        key: KeyOf,
        listing: ListOptions,
        typed: bool,
    ) -> Result<Vec<(String, u64, u8)>, TraceError> {
        self.read(ctx, (filter, key, listing), move |reader, (filter, key, listing)| async move {
            let has_kinds = typed && matches!(key, KeyOf::Attribute(..));
            let plan = match key {
                KeyOf::Attribute(place, key) => {
                    let request = TagRequest { filter, place, key: Some(key) };
                    let counted = LogicalPlanBuilder::from(reader.tags_plan(&request)?);
                    let mut numbers = vec![sum(int(ident("spans"))).alias("spans")];
                    numbers.extend(has_kinds.then(|| bit_or(ident("kinds")).alias("kinds")));
                    counted.aggregate(vec![ident("text").alias("value")], numbers)
                }
                KeyOf::Intrinsic(name) => {
                    let columns = intrinsic_columns(&name);
                    let scan = LogicalPlanBuilder::from(reader.plan(&SpanRequest { filter, columns })?);
                    intrinsic(&name).and_then(|value| {
                        let (value, spans) = (value.alias("value"), vec![rows().alias("spans")]);
                        let counted = if name == EVENT_NAME {
                            let names = scan.project(vec![value])?.unnest_column("value")?;
                            names.aggregate(vec![ident("value")], spans)?
                        } else {
                            scan.aggregate(vec![value], spans)?
                        };
                        let text = cast(ident("value"), DataType::Utf8).alias("value");
                        counted.project(vec![text, ident("spans")])?.filter(ident("value").not_eq(lit("")))
                    })
                }
            };
            let limit = listing.limit.map_or(TAG_VALUES_MAX, |limit| limit.min(TAG_VALUES_MAX));
            let plan =
                plan.and_then(|values| in_order(named(values, "value", listing.like.as_ref())?, limit, &listing));
            let mut rows = Vec::new();
            reader
                .first_rows(&built(plan)?, limit, |batch| {
                    let c = Columns(batch);
                    let (values, spans) = (c.text("value")?, c.times("spans")?);
                    let kinds = if has_kinds { Some(c.small("kinds")?) } else { None };
                    let row = |i: usize| {
                        (values.value(i).to_owned(), spans.value(i) as u64, kinds.map_or(TEXT, |kinds| kinds.value(i)))
                    };
                    rows.extend((0..batch.num_rows()).map(row));
                    Ok(())
                })
                .await?;
            Ok(rows)
        })
        .await
    }
}

/// Beyond this limit a list is sorted as a whole: a sort that keeps the first rows takes several times their memory.
const KEPT_ROWS_MAX: usize = 10_000;

/// Puts values into their order. Those that are wanted come first: the commonest, but of very many that come by name the first.
fn in_order(values: LogicalPlanBuilder, limit: usize, listing: &ListOptions) -> DataFusionResult<LogicalPlanBuilder> {
    let commonest = vec![spans_first(), ident("value").sort(true, false)];
    match (limit > KEPT_ROWS_MAX, listing.by_name) {
        (true, true) => values.sort(ascending(["value"])),
        (true, false) => values.sort(commonest),
        (false, true) => values.sort_with_limit(commonest, Some(limit))?.sort(ascending(["value"])),
        (false, false) => values.sort_with_limit(commonest, Some(limit)),
    }
}

/// The type bit of strings.
const TEXT: u8 = 1;

fn spans_first() -> SortExpr {
    ident("spans").sort(false, false)
}

/// Maps the number of a place to its name.
fn place_word(word: fn(Place) -> &'static str) -> DataFusionResult<Expr> {
    let mut words = when(ident("place").eq(lit(0u8)), lit(word(Place::ALL[0])));
    for (at, place) in Place::ALL.into_iter().enumerate().skip(1) {
        words = words.when(ident("place").eq(lit(at as u8)), lit(word(place)));
    }
    words.otherwise(lit(""))
}

fn intrinsic_columns(name: &str) -> Vec<SpanColumn> {
    match name {
        "service" => columns(&[], &["service"]),
        "kind" => columns(&["kind"], &[]),
        "status" => columns(&["status"], &[]),
        "statusMessage" => vec![SpanColumn::Text("status_message")],
        "instrumentation:name" => columns(&[], &["scope_name"]),
        "instrumentation:version" => columns(&[], &["scope_version"]),
        EVENT_NAME => columns(&["events"], &[]),
        _ => vec![SpanColumn::Text("name")],
    }
}

/// The displayed form of an intrinsic.
fn intrinsic(name: &str) -> DataFusionResult<Expr> {
    Ok(match name {
        "service" => shown_service(ident("service"))?,
        "kind" => functions::kind_word(ident("kind")),
        "status" => status_word()?,
        "statusMessage" => ident("status_message"),
        "instrumentation:name" => ident("scope_name"),
        "instrumentation:version" => ident("scope_version"),
        EVENT_NAME => functions::event_names(ident("events")),
        _ => ident("name"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks if a heap holds very many values, or few are not the commonest.
    #[test]
    fn few_values_are_kept_and_many_sorted() {
        let values =
            LogicalPlanBuilder::empty(true).project([lit("a").alias("value"), lit(1i64).alias("spans")]).unwrap();
        let shown = |limit: usize, by_name: bool| {
            let listing = ListOptions { by_name, ..ListOptions::default() };
            let plan = in_order(values.clone(), limit, &listing).unwrap().build().unwrap();
            let lines = plan.display_indent().to_string();
            lines.lines().filter(|line| line.contains("Sort:")).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        let (names, commonest) = ("Sort: value ASC NULLS LAST", "Sort: spans DESC NULLS LAST, value ASC NULLS LAST");
        assert_eq!(shown(KEPT_ROWS_MAX, false), [format!("{commonest}, fetch=10000")]);
        assert_eq!(shown(KEPT_ROWS_MAX, true), [names.to_owned(), format!("{commonest}, fetch=10000")]);
        assert_eq!(shown(KEPT_ROWS_MAX + 1, false), [commonest]);
        assert_eq!(shown(KEPT_ROWS_MAX + 1, true), [names]);
    }

    #[test]
    fn each_intrinsic_is_worked_out_of_the_columns_that_are_read() {
        for name in INTRINSICS.into_iter().chain([EVENT_NAME]) {
            let read: Vec<String> = intrinsic_columns(name).iter().map(SpanColumn::name).collect();
            let value = intrinsic(name).unwrap();
            let named: Vec<String> = value.column_refs().into_iter().map(|column| column.name.clone()).collect();
            assert_eq!(named, read, "{name}: {value}");
        }
    }
}
