//! Results from time buckets: groups of some are cached and still valid, those of the others are read (`olap-api.md`
//! 7).

use std::sync::Arc;

use arrow::array::RecordBatch;
use quiver_query::QueryContext;
use quiver_query::tables::{DomainAccess, QUIVER_SCHEMA, SnapshotVersion, TableRequest, TableSnapshot};
use quiver_types::{ErrorKind, MillisRange};

use super::{OlapEngine, ResultCaching};
use crate::dates::SECOND_NS;
use crate::error::{OlapError, OlapResult};
use crate::model::catalog::Catalog;
use crate::plan::sources::Scope;
use crate::plan::{MemberExprs, Planner, QueryPlans, Sources};
use crate::query::Query;
use crate::rollup::{Admission, BucketBatch, BucketedQuery, CachedRollup, Parts, Pieces, StorableRollup, bytes_of};

/// Above this number, separate reads are merged into one.
const READINGS_MAX: usize = 3;
/// How long a query reads raw rows after its groups could not be cached, for example because there are too many.
const REFUSED_NS: i64 = 600 * SECOND_NS;
const MILLI_NS: i64 = 1_000_000;
/// Text of `explain` for callers who may not see all rows: which buckets are cached would tell when others' rows were
/// written.
pub(crate) const HIDDEN: &str =
    "buckets serve it: which are kept, and the plan over them, is shown to who may see all rows";

/// A query that is answered from buckets, and what that needs.
#[derive(Debug)]
pub(super) struct BucketEvaluation {
    of: BucketedQuery,
    key: String,
    place: Arc<futures::lock::Mutex<Pieces>>,
    moment: SnapshotVersion,
    catalog: Arc<Catalog>,
    tables: Arc<dyn TableSnapshot>,
    access: DomainAccess,
}

impl BucketEvaluation {
    /// The query whose groups are cached for each bucket.
    pub(super) fn held(&self) -> &StorableRollup {
        &self.of.held
    }

    /// Whether groups from an earlier moment are still valid within a part of the range.
    fn holds(&self, since: &SnapshotVersion, (start, end): (i64, i64)) -> bool {
        let of = &self.of;
        let (access, columns) = (&self.access, &of.columns);
        let request = TableRequest { schema: Some(QUIVER_SCHEMA), name: of.table, columns, access, typed_by: access };
        let range = MillisRange::new(start.div_euclid(MILLI_NS), (end - 1).div_euclid(MILLI_NS));
        self.tables.is_unchanged(&request, since, range) == Some(true)
    }
}

impl OlapEngine {
    /// The reason if buckets cannot be cached.
    pub(super) fn may_keep(&self) -> Result<(), String> {
        if self.cache == ResultCaching::On {
            Ok(())
        } else {
            Err("results are not kept (`query.result_cache` is 0)".to_owned())
        }
    }

    /// Prepares answering a query from buckets; the error is the reason if that is impossible.
    pub(super) fn parted(
        &self,
        catalog: &Arc<Catalog>,
        query: &Query,
        tables: &Arc<dyn TableSnapshot>,
        access: &DomainAccess,
    ) -> Result<BucketEvaluation, String> {
        self.may_keep()?;
        let of = BucketedQuery::of(catalog, query, self.engine.relational(), tables.as_ref())?;
        self.parted_of(of, catalog, tables, access, Admission::SecondUse)
    }

    /// The text for callers who may not see all rows: that buckets serve a query, or the reason why not, if the query
    /// itself shows it.
    pub(super) fn hidden(&self, catalog: &Arc<Catalog>, query: &Query, tables: &Arc<dyn TableSnapshot>) -> String {
        let serve = || -> Result<(), String> {
            self.may_keep()?;
            BucketedQuery::of(catalog, query, self.engine.relational(), tables.as_ref())?;
            Ok(())
        };
        serve().err().unwrap_or_else(|| HIDDEN.to_owned())
    }

    /// Like [`Self::parted`] for known buckets.
    pub(super) fn parted_of(
        &self,
        of: BucketedQuery,
        catalog: &Arc<Catalog>,
        tables: &Arc<dyn TableSnapshot>,
        access: &DomainAccess,
        admission: Admission,
    ) -> Result<BucketEvaluation, String> {
        let columns = &of.columns;
        let request = TableRequest { schema: Some(QUIVER_SCHEMA), name: of.table, columns, access, typed_by: access };
        let unknown = "changes of its rows are not known";
        let moment = tables.moment().ok_or(unknown)?;
        tables.is_unchanged(&request, &moment, MillisRange::new(0, 0)).ok_or(unknown)?;
        let key = of.key(catalog, access);
        let place = self.pieces.place(&key, catalog.version, admission).ok_or("it comes for the first time")?;
        let (catalog, tables, access) = (Arc::clone(catalog), Arc::clone(tables), access.clone());
        Ok(BucketEvaluation { of, key, place, moment, catalog, tables, access })
    }

    /// The plan of a query over its buckets; the error is the reason if there is none.
    pub(super) async fn over_parts(
        &self,
        parted: &BucketEvaluation,
        ctx: &QueryContext,
    ) -> quiver_types::Result<Result<(QueryPlans, Parts), String>> {
        let mut pieces = parted.place.lock().await;
        let now_ns = parted.of.inner.now_ns;
        if let Some((reason, since_ns)) = &pieces.refused
            && now_ns.saturating_sub(*since_ns) < REFUSED_NS
        {
            return Ok(Err(reason.clone()));
        }
        let made = Box::pin(self.pieced(parted, &mut pieces, ctx)).await;
        match made {
            Ok(made) => {
                self.pieces.account(&parted.key, pieces.bytes());
                Ok(Ok(made))
            }
            // This query has ended, so the next one tries again.
            Err(OlapError::Engine(e)) if matches!(e.kind, ErrorKind::Timeout | ErrorKind::Cancelled) => Err(e),
            Err(e) => {
                *pieces = Pieces::refused(e.to_string(), now_ns);
                Ok(Err(e.to_string()))
            }
        }
    }

    async fn pieced(
        &self,
        parted: &BucketEvaluation,
        pieces: &mut Pieces,
        ctx: &QueryContext,
    ) -> OlapResult<(QueryPlans, Parts)> {
        let (of, access, state) = (&parted.of, &parted.access, self.engine.relational());
        let catalog = Catalog::alone(&of.held.model, parted.catalog.version);
        let named = of.inner.members();
        let scope = Scope { catalog: &catalog, tables: &parted.tables, access, ctx };
        let sources = Sources::find(scope, &named, &of.inner, state).await?;
        pieces.of_types(sources.types());
        let mut found = Vec::new();
        let mut gaps: Vec<(i64, i64)> = Vec::new();
        for (bucket, part) in of.buckets() {
            let kept = if of.is_whole(bucket) { pieces.find(bucket, |since| parted.holds(since, part)) } else { None };
            if let Some(rows) = kept {
                found.push((bucket, rows));
                continue;
            }
            match gaps.last_mut() {
                Some(last) if last.1 == part.0 => last.1 = part.1,
                _ => gaps.push(part),
            }
        }
        if gaps.len() > READINGS_MAX
            && let (Some(first), Some(last)) = (gaps.first(), gaps.last())
        {
            gaps = vec![(first.0, last.1)];
            found.retain(|(bucket, _)| *bucket < gaps[0].0 || *bucket >= gaps[0].1);
        }
        let given = MemberExprs::new();
        // Buckets are shared by all callers with the same rights; none of their rows depend on the caller.
        let planner = Planner {
            catalog: &catalog,
            state,
            sources: &sources,
            access,
            caller: "",
            given: &given,
            marks_values: false,
        };
        let memory = self.engine.collected("rows of buckets", ctx);
        let column = of.inner.group_columns().len().saturating_sub(1);
        let kept = found.len();
        let mut batches: Vec<_> = found.into_iter().map(|(_, rows)| rows).collect();
        let mut schema = batches.first().map(RecordBatch::schema);
        for gap in gaps {
            let planned = planner.plan(&of.read(gap))?;
            let (types, rows) = self.collect(&planned.rows, ctx, &memory).await?;
            self.rollups.check(&rows)?;
            // The batches are concatenated, then sorted by bucket: two copies.
            memory.add(2 * bytes_of(&rows))?;
            let run = BucketBatch::new(&types, &rows, column, parted.moment.clone())?;
            batches.push(run.rows_from(of.range.0)?);
            schema.get_or_insert(types);
            if let Some(room) = self.engine.keep("groups of buckets", run.bytes()) {
                let closed = |(bucket, part): &(i64, (i64, i64))| {
                    let is_read = gap.0 <= part.0 && part.1 <= gap.1;
                    is_read && of.is_whole(*bucket) && part.1 <= of.inner.now_ns
                };
                pieces.keep(&Arc::new(run.with(room)), of.buckets().filter(closed).map(|(bucket, _)| bucket));
            }
        }
        let schema = schema.ok_or_else(|| quiver_types::Error::internal("buckets have no columns"))?;
        let rows = Arc::new(CachedRollup::new(&schema, batches, of.outer.now_ms(), memory)?);
        let planned = self.plan_over(&of.held, &of.outer, &parted.catalog, &rows)?;
        let read = of.buckets().count() - kept;
        Ok((planned, Parts { unit: of.unit.name.clone(), kept, read, rows }))
    }
}
