//! Rolls up spans: counts per minute of services, operations and instances, and of calls.

mod calls;
mod columns;
mod counter;
mod names;
mod rollup_rows;

use std::collections::VecDeque;

use arrow::array::{AsArray, RecordBatch};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use self::calls::{Child, ParentCandidate};
use self::columns::{Columns, Row, missing};
use self::counter::KeyedCounts;
use self::names::Names;
use super::{Counts, EdgeKind, HOUR_MINUTES, instance_name};
use crate::spans::{Attributes, FirstReport};
use crate::tables::spans::minute_of;
use crate::{Error, Result};

pub use self::columns::rollup_columns;

/// Most operations, and most instances, over all hours. Further ones are not counted; queries then read the spans.
pub(super) const LISTED_MAX: usize = 50_000;
/// Resource attributes that name an instance, in order of preference.
const INSTANCE_KEYS: [&str; 3] = ["service.instance.id", "k8s.pod.name", "host.name"];

impl Counts {
    #[inline]
    fn add(&mut self, one: &Weight) {
        self.count(one);
        self.durations.add(one.bucket, 1);
    }

    /// Adds all but the duration.
    #[inline]
    fn count(&mut self, one: &Weight) {
        self.spans += 1;
        self.errors += u64::from(one.error);
        self.seen = (self.seen.0.min(one.start), self.seen.1.max(one.start));
        self.speaks(one.protocol);
    }

    fn take_out(&mut self, one: &Weight) {
        self.spans = self.spans.saturating_sub(1);
        self.errors = self.errors.saturating_sub(u64::from(one.error));
        self.durations.remove(one.bucket, 1);
    }
}

/// What one span adds to counts.
#[derive(Debug, Clone, Copy)]
struct Weight {
    start: i64,
    error: bool,
    bucket: u16,
    protocol: u8,
}

impl Weight {
    #[inline]
    fn report(&self, received: i64) -> FirstReport {
        (received, self.start, self.bucket, self.error)
    }
}

type Map<K, V> = HashMap<K, V, FixedState>;
/// Minute, caller, called, sort.
type EdgeKey = (i64, u32, u32, EdgeKind);

/// Builds roll-ups from spans.
#[derive(Debug, Default)]
pub struct RollupBuilder {
    names: Names,
    instances_of: Map<Vec<u8>, u32>,
    /// Too many operations, too many instances.
    unlisted: [bool; 2],
    nodes: KeyedCounts<(i64, u32)>,
    edges: Map<EdgeKey, Counts>,
    operations: KeyedCounts<(i64, u32, u32, u8)>,
    instances: KeyedCounts<(i64, u32, u32)>,
    known: Map<u64, ParentCandidate>,
    /// Of shared ids whose two halves are known: when the counted report of the called half was received, and what it adds.
    halves: Map<u64, (i64, Weight)>,
    waiting: Map<u64, Vec<Child>>,
    /// Spans counted as calls of a caller that they do not answer themselves: a called half may yet claim them.
    crossed: Map<u64, Vec<Child>>,
    /// Minute and key of what is in `known`, and of what waits, when spans come in order.
    order: Option<VecDeque<(i64, u64, u64)>>,
    open: Vec<Child>,
}

impl RollupBuilder {
    /// Makes a builder for spans in order of their minutes: it forgets those whose relatives must have been seen.
    pub fn in_order() -> Self {
        Self { order: Some(VecDeque::new()), ..Self::default() }
    }

    /// Adds the spans of a batch with [`rollup_columns`] (and any others).
    ///
    /// # Errors
    /// Internal: a column is missing or of another type.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = Columns::of(batch)?;
        let attributes = batch.column_by_name("attributes").and_then(|c| c.as_binary_opt::<i32>());
        let attributes = attributes.ok_or_else(|| missing("attributes"))?;
        let services = batch.column_by_name("service").and_then(|c| c.as_string_view_opt());
        let services = services.ok_or_else(|| missing("service"))?;
        let resources = batch.column_by_name("resource").and_then(|c| c.as_binary_view_opt());
        let mut service = (String::new(), self.names.number(""));
        let mut instance: Option<(&[u8], u32)> = None;
        for i in 0..batch.num_rows() {
            if services.value(i) != service.0 {
                service = (services.value(i).to_owned(), self.names.number(services.value(i)));
            }
            if let Some(resources) = resources.filter(|_| !self.unlisted[1]) {
                let bytes = resources.value(i);
                let number = match instance {
                    Some((known, number)) if known == bytes => number,
                    _ => self.instance(bytes),
                };
                instance = Some((bytes, number));
            }
            let row = columns.row(i, service.1, attributes.value(i));
            self.count(&row, columns.name(i), instance.map(|(_, number)| number));
            self.relate(&row, minute_of(row.start));
        }
        Ok(())
    }

    /// Adds spans that refer to contexts, as those of a [`crate::SpansBatch`] do; `of` says to which, and `attributes`
    /// gives those of a row. Without `calls` they only count: of their sides there are earlier reports elsewhere, whose calls
    /// are theirs.
    ///
    /// # Errors
    /// Internal: a column is missing or of another type, or there is no such context.
    pub fn push_spans<'b>(
        &mut self,
        spans: &'b RecordBatch,
        contexts: &RecordBatch,
        of: &[u32],
        attributes: impl Fn(usize) -> &'b [u8],
        calls: bool,
    ) -> Result<()> {
        let columns = Columns::of(spans)?;
        let services = contexts.column_by_name("service").and_then(|c| c.as_string_opt::<i32>());
        let resources = contexts.column_by_name("resource").and_then(|c| c.as_binary_opt::<i32>());
        let services = services.ok_or_else(|| missing("service"))?;
        let resources = resources.ok_or_else(|| missing("resource"))?;
        let mut known: Vec<Option<(u32, u32)>> = vec![None; contexts.num_rows()];
        for (i, &context) in of.iter().enumerate().take(spans.num_rows()) {
            let at = context as usize;
            let (service, instance) = match known.get(at).copied() {
                Some(Some(numbers)) => numbers,
                Some(None) => {
                    let instance = if self.unlisted[1] { 0 } else { self.instance(resources.value(at)) };
                    *known[at].insert((self.names.number(services.value(at)), instance))
                }
                None => return Err(Error::internal("a span refers to no context")),
            };
            let row = columns.row(i, service, attributes(i));
            self.count(&row, columns.name(i), Some(instance));
            if calls {
                self.relate(&row, minute_of(row.start));
            }
        }
        Ok(())
    }

    /// Counts a span without its calls.
    fn count(&mut self, row: &Row<'_>, name: Option<&str>, instance: Option<u32>) {
        let minute = minute_of(row.start);
        let hour = hour_of(minute);
        let weight = Weight { start: row.start, error: row.error, bucket: row.bucket, protocol: 0 };
        self.nodes.of(row.service, (minute, row.service)).add(&weight);
        if let Some(name) = name.filter(|_| !self.unlisted[0]) {
            let name = self.names.number(name);
            self.operations.of(name, (hour, row.service, name, row.kind)).add(&weight);
            if self.operations.len() > LISTED_MAX {
                self.operations = KeyedCounts::default();
                self.unlisted[0] = true;
            }
        }
        if let Some(number) = instance.filter(|_| !self.unlisted[1]) {
            self.instances.of(number, (hour, row.service, number)).count(&weight);
            if self.instances.len() > LISTED_MAX || self.instances_of.len() > LISTED_MAX {
                (self.instances, self.instances_of) = (KeyedCounts::default(), Map::default());
                self.unlisted[1] = true;
            }
        }
    }

    fn instance(&mut self, resource: &[u8]) -> u32 {
        if let Some(&known) = self.instances_of.get(resource) {
            return known;
        }
        let get = |wanted: &str| {
            let value = Attributes::read(resource).find(|(key, _)| *key == wanted);
            value.map(|(_, v)| v.text().into_owned()).unwrap_or_default()
        };
        let name = INSTANCE_KEYS.iter().map(|key| get(key)).find(|n| !n.is_empty()).unwrap_or_default();
        let (version, host, pod) = (get("service.version"), get("host.name"), get("k8s.pod.name"));
        let number = self.names.number(&instance_name([&name, &version, &host, &pod]));
        self.instances_of.insert(resource.to_vec(), number);
        number
    }
}

fn hour_of(minute: i64) -> i64 {
    minute.div_euclid(HOUR_MINUTES) * HOUR_MINUTES
}

#[cfg(test)]
mod tests;
