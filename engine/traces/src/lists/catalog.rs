//! Services, operations and instances. Of a window without other conditions the whole hours come from roll-ups, and only
//! the spans of the hours at its ends are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashSet;
use quiver_query::QueryContext;
use quiver_types::spans::{
    Attributes, Counts, RollupRequest, STATUS_ERROR, SpanFilter, UNLISTED, instance_name, instance_parts,
};
use quiver_types::tables::spans::{MINUTE_NS, minute_of};

use super::sketch::Sketch;
use super::{Columns, EntryRef, InstanceRow, OperationRow, ServiceRow, add_name, columns, instance_of, shown};
use crate::engine::{Reader, TraceError, TracesEngine};

/// Any time.
const ALWAYS: (i64, i64) = (i64::MIN, i64::MAX);

/// Service, name, kind.
type OperationKey = (String, String, u8);

#[derive(Default)]
struct Operation {
    errors: u64,
    last: i64,
    durations: Sketch,
}

/// Spans, errors, first and last start.
#[derive(Clone, Copy)]
struct Seen(u64, u64, i64, i64);

impl Default for Seen {
    fn default() -> Self {
        Self(0, 0, i64::MAX, i64::MIN)
    }
}

impl Seen {
    fn add(&mut self, other: Self) {
        *self = Self(self.0 + other.0, self.1 + other.1, self.2.min(other.2), self.3.max(other.3));
    }
}

/// What is asked of roll-ups, and the filters of the spans that are read beside.
fn split(
    range: (i64, i64),
    conditions: &[SpanFilter],
    request: fn(i64, i64) -> RollupRequest,
) -> (Option<RollupRequest>, Vec<SpanFilter>) {
    let whole = |range: (i64, i64)| {
        let starts = SpanFilter::Starts(range.0, range.1);
        conditions.iter().cloned().fold(starts, SpanFilter::and)
    };
    if !conditions.is_empty() {
        return (None, vec![whole(range)]);
    }
    // Minutes that lie in the window as a whole; hours of them come from roll-ups.
    let first = minute_of(range.0.saturating_add(MINUTE_NS - 1));
    let last = minute_of(range.1.saturating_add(1)) - 1;
    let request = request(first, last);
    let Some(hours) = request.bounds() else { return (None, vec![whole(range)]) };
    let (from, to) = (hours.0.saturating_mul(MINUTE_NS), (hours.1 + 1).saturating_mul(MINUTE_NS));
    let mut rest = Vec::new();
    if range.0 < from {
        rest.push(SpanFilter::Starts(range.0, from - 1));
    }
    if to <= range.1 {
        rest.push(SpanFilter::Starts(to, range.1));
    }
    (Some(request), rest)
}

/// What an operation takes in a list, with its durations; and an instance.
const OPERATION_BYTES: usize = 2048;
const INSTANCE_BYTES: usize = 256;

/// Gives the roll-up that answers a list of a window without other conditions, if there is a whole hour in it.
pub fn catalog_request(range: (i64, i64), request: fn(i64, i64) -> RollupRequest) -> Option<RollupRequest> {
    split(range, &[], request).0
}

impl Reader {
    async fn operation_map(
        &self,
        range: (i64, i64),
        conditions: &[SpanFilter],
    ) -> Result<BTreeMap<OperationKey, Operation>, TraceError> {
        let mut all: BTreeMap<OperationKey, Operation> = BTreeMap::new();
        let (request, mut rest) = split(range, conditions, RollupRequest::Operations);
        if let Some(request) = request {
            let mut unlisted = false;
            self.rollups(&request, |rows, n| {
                for row in (0..n).filter_map(|i| rows.row(i)) {
                    unlisted |= row.sort == UNLISTED;
                    let key = (shown(&row.service).to_owned(), row.peer, row.sort);
                    let of = all.entry(key).or_default();
                    of.errors += row.counts.errors;
                    of.last = of.last.max(row.counts.seen.1);
                    of.durations.merge(&row.counts.durations);
                }
            })
            .await?;
            if unlisted {
                all.clear();
                rest = vec![SpanFilter::Starts(range.0, range.1)];
            }
        }
        for filter in rest {
            let wanted = columns(&["name", "kind", "start", "end", "status"], &["service"]);
            self.scan(filter, wanted, |batch| {
                let c = Columns(batch);
                let (names, kinds, statuses) = (c.text("name")?, c.small("kind")?, c.small("status")?);
                let (starts, ends, services) = (c.times("start")?, c.times("end")?, c.view("service")?);
                for i in 0..batch.num_rows() {
                    let key = (shown(services.value(i)).to_owned(), names.value(i).to_owned(), kinds.value(i));
                    let of = match all.get_mut(&key) {
                        Some(of) => of,
                        None => {
                            self.collect(OPERATION_BYTES + 2 * (key.0.len() + key.1.len()))?;
                            all.entry(key).or_default()
                        }
                    };
                    of.errors += u64::from(statuses.value(i) == STATUS_ERROR);
                    of.last = of.last.max(starts.value(i));
                    of.durations.add(ends.value(i).saturating_sub(starts.value(i)));
                }
                Ok(true)
            })
            .await?;
        }
        Ok(all)
    }

    /// By service and [`instance_name`].
    async fn instance_map(
        &self,
        range: (i64, i64),
        conditions: &[SpanFilter],
    ) -> Result<BTreeMap<(String, String), Seen>, TraceError> {
        let mut all: BTreeMap<(String, String), Seen> = BTreeMap::new();
        let (request, mut rest) = split(range, conditions, RollupRequest::Instances);
        if let Some(request) = request {
            let mut unlisted = false;
            self.rollups(&request, |rows, n| {
                for row in (0..n).filter_map(|i| rows.row(i)) {
                    unlisted |= row.sort == UNLISTED;
                    let Counts { spans, errors, seen: (first, last), .. } = row.counts;
                    let seen = Seen(spans, errors, first, last);
                    all.entry((shown(&row.service).to_owned(), row.peer)).or_default().add(seen);
                }
            })
            .await?;
            if unlisted {
                all.clear();
                rest = vec![SpanFilter::Starts(range.0, range.1)];
            }
        }
        for filter in rest {
            let wanted = columns(&["start", "status"], &["service", "resource"]);
            self.scan(filter, wanted, |batch| {
                let c = Columns(batch);
                let (starts, statuses) = (c.times("start")?, c.small("status")?);
                let (services, resources) = (c.view("service")?, c.bytes_view("resource")?);
                for i in 0..batch.num_rows() {
                    let resource = Attributes::from_bytes(resources.value(i));
                    let get = |key: &str| resource.get(key).map(|v| v.text().into_owned()).unwrap_or_default();
                    let (version, host, pod) = (get("service.version"), get("host.name"), get("k8s.pod.name"));
                    let name = instance_name([&instance_of(resources.value(i)), &version, &host, &pod]);
                    let (start, error) = (starts.value(i), statuses.value(i) == STATUS_ERROR);
                    let key = (shown(services.value(i)).to_owned(), name);
                    let of = match all.get_mut(&key) {
                        Some(of) => of,
                        None => {
                            self.collect(INSTANCE_BYTES + 2 * (key.0.len() + key.1.len()))?;
                            all.entry(key).or_default()
                        }
                    };
                    of.add(Seen(1, u64::from(error), start, start));
                }
                Ok(true)
            })
            .await?;
        }
        Ok(all)
    }
}

impl TracesEngine {
    /// Lists services in order of names, of the spans that start in a window (both ends included) and pass conditions.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn services(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
    ) -> Result<Vec<ServiceRow>, TraceError> {
        self.read(ctx, move |reader| async move {
            let mut all: BTreeMap<String, ServiceRow> = BTreeMap::new();
            let mut names: HashSet<(String, String)> = HashSet::new();
            for ((service, name, _), of) in reader.operation_map(range, &conditions).await? {
                let row = all.entry_ref_or_default(&service);
                row.spans += of.durations.count();
                row.errors += of.errors;
                row.last_seen = row.last_seen.max(of.last);
                row.operations += u64::from(names.insert((service, name)));
            }
            let mut instances: HashSet<(String, String)> = HashSet::new();
            for (service, name) in reader.instance_map(range, &conditions).await?.into_keys() {
                let instance = instance_parts(&name)[0].to_owned();
                let row = all.entry_ref_or_default(&service);
                row.instances += u64::from(!instance.is_empty() && instances.insert((service, instance)));
            }
            Ok(all.into_iter().map(|(name, row)| ServiceRow { name, ..row }).collect())
        })
        .await
    }

    /// Lists the names of services, in order.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn service_names(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
    ) -> Result<Vec<String>, TraceError> {
        self.read(ctx, move |reader| async move {
            let mut names: BTreeSet<String> = BTreeSet::new();
            let (request, mut rest) = match range == ALWAYS && conditions.is_empty() {
                true => (Some(RollupRequest::Services), Vec::new()),
                false => split(range, &conditions, RollupRequest::Operations),
            };
            if let Some(request) = request {
                let mut unlisted = false;
                reader
                    .rollups(&request, |rows, n| {
                        for i in 0..n {
                            unlisted |= rows.sort(i) == UNLISTED;
                            add_name(&mut names, shown(rows.names(i).0));
                        }
                    })
                    .await?;
                if unlisted {
                    names.clear();
                    rest = vec![SpanFilter::Starts(range.0, range.1)];
                }
            }
            for filter in rest {
                reader
                    .scan(filter, columns(&[], &["service"]), |batch| {
                        let services = Columns(batch).view("service")?;
                        (0..batch.num_rows()).for_each(|i| add_name(&mut names, shown(services.value(i))));
                        Ok(true)
                    })
                    .await?;
            }
            Ok(names.into_iter().collect())
        })
        .await
    }

    /// Lists operations in order of service, name, kind.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn operations(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
    ) -> Result<Vec<OperationRow>, TraceError> {
        self.read(ctx, move |reader| async move {
            let row = |((service, name, kind), mut of): (OperationKey, Operation)| OperationRow {
                service,
                name,
                kind,
                spans: of.durations.count(),
                errors: of.errors,
                quantiles: [0.5, 0.95, 0.99].map(|q| of.durations.quantile(q)),
            };
            Ok(reader.operation_map(range, &conditions).await?.into_iter().map(row).collect())
        })
        .await
    }

    /// Lists operations of one service, or of all, by name and kind; of any time.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn operation_names(
        self: &Arc<Self>,
        ctx: &QueryContext,
        service: Option<String>,
        kind: Option<u8>,
    ) -> Result<Vec<(String, u8)>, TraceError> {
        self.read(ctx, move |reader| async move {
            let wanted = |of: &str, sort: u8| {
                service.as_ref().is_none_or(|s| s == shown(of)) && kind.is_none_or(|kind| kind == sort)
            };
            let mut names: BTreeSet<(String, u8)> = BTreeSet::new();
            let mut add = |of: &str, name: &str, kind: u8| {
                // Most are known, and a look-up by parts needs no copy.
                if wanted(of, kind) {
                    names.insert((name.to_owned(), kind));
                }
            };
            let (request, mut rest) = split(ALWAYS, &[], RollupRequest::Operations);
            let mut unlisted = false;
            if let Some(request) = request {
                reader
                    .rollups(&request, |rows, n| {
                        for i in 0..n {
                            unlisted |= rows.sort(i) == UNLISTED;
                            let (of, name) = rows.names(i);
                            if rows.sort(i) != UNLISTED {
                                add(of, name, rows.sort(i));
                            }
                        }
                    })
                    .await?;
            }
            if unlisted {
                rest = vec![SpanFilter::All];
            }
            for filter in rest {
                reader
                    .scan(filter, columns(&["name", "kind"], &["service"]), |batch| {
                        let c = Columns(batch);
                        let (names, kinds, services) = (c.text("name")?, c.small("kind")?, c.view("service")?);
                        (0..batch.num_rows()).for_each(|i| add(services.value(i), names.value(i), kinds.value(i)));
                        Ok(true)
                    })
                    .await?;
            }
            Ok(names.into_iter().collect())
        })
        .await
    }

    /// Lists instances in order of service and name.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn instances(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
    ) -> Result<Vec<InstanceRow>, TraceError> {
        self.read(ctx, move |reader| async move {
            let row = |((service, name), seen): ((String, String), Seen)| {
                let [instance, version, host, pod] = instance_parts(&name).map(str::to_owned);
                let names = [service, instance, version, host, pod];
                InstanceRow { names, spans: seen.0, errors: seen.1, seen: (seen.2, seen.3) }
            };
            Ok(reader.instance_map(range, &conditions).await?.into_iter().map(row).collect())
        })
        .await
    }
}
