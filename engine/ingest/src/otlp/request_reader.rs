//! Reads an `ExportMetricsServiceRequest` in place: resource, scope, metric, and passes each data point to `convert`.
//! Fields of a message may come in any order, and points may come before the temporality that they need, so each
//! level is scanned twice: for its own fields, and for its list.

use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use quiver_types::SeriesId;
use quiver_types::metrics::MetricMetadata;

use super::delta::{ClassicSum, DeltaState};
use super::fixed_labels::FixedLabels;
use super::labels::{Attributes, PointLabels};
use super::names::{self, NameKind};
use super::points::{ExponentialPoint, HistogramPoint, NumberPoint, SummaryPoint};
use super::resource::{Resource, push_attributes, scope_labels};
use super::{DeltaMode, Fault};
use crate::context::Context;
use crate::decoded::{DecodedMetrics, Sink};
use crate::error::Result;
use crate::labels::TEXT_MAX_BYTES;
use crate::rejection::Reason;
use crate::wire::{BYTES, Reader, VARINT, WireError, each, tag};

/// Decodes an `ExportMetricsServiceRequest`.
pub(crate) fn decode(body: &[u8], ctx: &Context<'_>) -> Result<DecodedMetrics> {
    let mut walker = Walker::new(body.len(), ctx);
    each(body, 1, &[1], |resource| walker.resource(resource))?;
    Ok(walker.sink.finish())
}

/// Properties that the points of a metric have in common.
#[derive(Debug, Default)]
pub(super) struct Metric {
    /// The Prometheus name, with unit and suffix.
    pub(super) name: String,
    /// A hash that identifies the name.
    pub(super) key: SeriesId,
    /// Why none of its points can be stored.
    pub(super) blocked: Option<Reason>,
    /// Whether points are deltas to be accumulated.
    pub(super) accumulate: bool,
    /// Whether points are deltas to be stored as they are.
    pub(super) raw_delta: bool,
}

/// The state of reading, and buffers that are reused for all points.
pub(super) struct Walker<'a, 'c> {
    pub(super) sink: Sink,
    pub(super) ctx: &'c Context<'c>,
    pub(super) delta: LazyDelta<'c>,
    pub(super) labels: PointLabels<'a>,
    /// Labels of the current resource and scope.
    pub(super) fixed: FixedLabels,
    pub(super) classic: ClassicSum,
    /// A buffer for numbers as text.
    pub(super) number_text: String,
    /// The canonical labels of an unknown series.
    pub(super) canonical: Vec<u8>,
    /// The newest time of a point in the current resource.
    newest_ns: u64,
    /// Why the current resource or scope cannot be stored.
    blocked: Option<Reason>,
    /// What is wrong with the histogram that was refused last.
    pub(super) wrong: &'static str,
    seen_metadata: HashSet<u64, FixedState>,
    number_point: NumberPoint<'a>,
    histogram_point: HistogramPoint<'a>,
    exponential_point: ExponentialPoint<'a>,
    summary_point: SummaryPoint<'a>,
}

/// The delta sums, which are locked at the first delta point.
#[derive(Debug)]
pub(super) struct LazyDelta<'c> {
    state: &'c Mutex<DeltaState>,
    guard: Option<MutexGuard<'c, DeltaState>>,
}

impl LazyDelta<'_> {
    pub(super) fn get(&mut self) -> &mut DeltaState {
        // A panic elsewhere leaves each entry of the table consistent.
        self.guard.get_or_insert_with(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes of an entry of a set of hashes, half of which may be empty.
const SEEN_BYTES: usize = 2 * size_of::<u64>() + 2;

const GAUGE: u32 = tag(5, BYTES);
const SUM: u32 = tag(7, BYTES);
const HISTOGRAM: u32 = tag(9, BYTES);
const EXPONENTIAL_HISTOGRAM: u32 = tag(10, BYTES);
const SUMMARY: u32 = tag(11, BYTES);

impl<'a, 'c> Walker<'a, 'c> {
    fn new(body_bytes: usize, ctx: &'c Context<'c>) -> Self {
        Self {
            sink: Sink::new(body_bytes, ctx.limits.batch_bytes_max).of_sender(ctx.sender),
            ctx,
            delta: LazyDelta { state: ctx.delta, guard: None },
            labels: PointLabels::default(),
            fixed: FixedLabels::default(),
            classic: ClassicSum::default(),
            number_text: String::new(),
            canonical: Vec::new(),
            newest_ns: 0,
            blocked: None,
            wrong: "",
            seen_metadata: HashSet::default(),
            number_point: NumberPoint::default(),
            histogram_point: HistogramPoint::default(),
            exponential_point: ExponentialPoint::default(),
            summary_point: SummaryPoint::default(),
        }
    }

    fn resource(&mut self, message: &'a [u8]) -> Result<()> {
        let mut attributes = Attributes::default();
        each(message, 1, &[1], |resource| push_attributes(resource, &mut attributes))?;
        let mut resource = match Resource::read(attributes, &self.ctx.otlp.promoted) {
            Ok(resource) => resource,
            Err(Fault::Refused(reason)) => {
                self.blocked = Some(reason);
                Resource::default()
            }
            Err(Fault::Fatal(e)) => return Err(e),
        };
        self.newest_ns = 0;
        each(message, 2, &[2], |scope| self.scope(scope, &resource.of_series))?;
        if self.blocked.take().is_none() && self.newest_ns > 0 && !resource.info.is_empty() {
            self.fixed = resource.of_info;
            self.target_info(&mut resource.info)?;
        }
        Ok(())
    }

    /// Stores the `target_info` of a resource, at the newest time of its points.
    fn target_info(&mut self, attributes: &mut Attributes<'a>) -> Result<()> {
        const NAME: &str = "target_info";
        let metric = Metric { name: NAME.to_owned(), key: SeriesId::of(NAME.as_bytes()), ..Metric::default() };
        self.labels.begin(attributes, &self.fixed);
        match self.series(&metric, "", None) {
            Ok(series) => {
                self.sink.push_sample(series, (self.newest_ns / 1_000_000) as i64, 1.0, 0)?;
                self.metadata(NAME, "gauge", b"Target metadata", "")
            }
            Err(Fault::Fatal(e)) => Err(e),
            // The points have been stored, and `target_info` counts as none.
            Err(Fault::Refused(_)) => self.sink.charge(self.labels.bytes()),
        }
    }

    fn scope(&mut self, message: &'a [u8], resource: &FixedLabels) -> Result<()> {
        let blocked_before = self.blocked;
        self.fixed.clone_from(resource);
        if self.ctx.otlp.scope_labels {
            match self.scope_labels(message) {
                Ok(()) => {}
                Err(Fault::Refused(reason)) => self.blocked = self.blocked.or(Some(reason)),
                Err(Fault::Fatal(e)) => return Err(e),
            }
        }
        each(message, 2, &[2], |metric| self.metric(metric))?;
        self.blocked = blocked_before;
        Ok(())
    }

    /// Adds the labels of a scope to those of the resource.
    fn scope_labels(&mut self, message: &'a [u8]) -> Result<(), Fault> {
        let mut schema_url: &[u8] = b"";
        each(message, 3, &[], |url| {
            schema_url = url;
            Ok::<(), Fault>(())
        })?;
        each(message, 1, &[1], |scope| {
            let labels = scope_labels(scope, schema_url)?;
            if !labels.is_empty() {
                self.fixed = self.fixed.with(labels);
            }
            Ok(())
        })
    }

    fn metric(&mut self, message: &'a [u8]) -> Result<()> {
        let (mut name, mut help, mut unit): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        let mut data = None;
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                0x0a => name = r.bytes()?,
                0x12 => help = r.bytes()?,
                0x1a => unit = r.bytes()?,
                kind @ (GAUGE | SUM | HISTOGRAM | EXPONENTIAL_HISTOGRAM | SUMMARY) => data = Some((kind, r.bytes()?)),
                other => r.skip(other, &[1, 2, 3, 5, 7, 9, 10, 11])?,
            }
        }
        let Some((kind, data)) = data else { return Ok(()) };
        let (temporality, monotonic) = temporality(kind, data)?;
        let (name_kind, metric_type) = match kind {
            GAUGE => (NameKind::Gauge, "gauge"),
            SUM if monotonic => (NameKind::Counter, "counter"),
            SUM => (NameKind::Other, "gauge"),
            SUMMARY => (NameKind::Other, "summary"),
            _ => (NameKind::Other, "histogram"),
        };
        let is_delta = temporality == Temporality::Delta;
        let accumulate = is_delta && self.ctx.otlp.delta == DeltaMode::Accumulate;
        let raw_delta = is_delta && !accumulate;
        let mut metric = Metric { blocked: self.blocked, accumulate, raw_delta, ..Metric::default() };
        if temporality == Temporality::Unknown {
            metric.blocked = metric.blocked.or(Some(Reason::NoTemporality));
        }
        let unit = std::str::from_utf8(unit).unwrap_or_default();
        let translated = match std::str::from_utf8(name) {
            Err(_) => Err(Reason::InvalidUtf8),
            Ok(name) if name.len() + unit.len() > TEXT_MAX_BYTES => Err(Reason::LongLabel),
            Ok(name) => names::metric_name(name, unit, name_kind).ok_or(Reason::InvalidName),
        };
        match translated {
            Ok(translated) => {
                metric.key = SeriesId::of(translated.as_bytes());
                metric.name = translated;
            }
            Err(reason) => metric.blocked = metric.blocked.or(Some(reason)),
        }
        let mark = self.sink.mark();
        each(data, 1, &[1], |point| self.point(kind, point, &metric))?;
        // A sender that may write none of a metric's series may not write its metadata either.
        if metric.blocked.is_none() && (!self.sink.is_gated() || self.sink.mark() != mark) {
            let metric_type = if metric.raw_delta { "unknown" } else { metric_type };
            self.metadata(&metric.name, metric_type, help, &names::unit_name(unit))?;
        }
        Ok(())
    }

    fn point(&mut self, kind: u32, message: &'a [u8], metric: &Metric) -> Result<()> {
        // The scratch points are taken out while the walker works on them; their lists keep their space.
        let (result, time_ns) = match kind {
            HISTOGRAM => {
                let mut point = std::mem::take(&mut self.histogram_point);
                let result =
                    point.read(message).map_err(Fault::from).and_then(|()| self.classic(&mut point, message, metric));
                let time_ns = point.common.time_ns;
                self.histogram_point = point;
                (result, time_ns)
            }
            EXPONENTIAL_HISTOGRAM => {
                let mut point = std::mem::take(&mut self.exponential_point);
                let result = point
                    .read(message)
                    .map_err(Fault::from)
                    .and_then(|()| self.exponential(&mut point, message, metric));
                let time_ns = point.common.time_ns;
                self.exponential_point = point;
                (result, time_ns)
            }
            SUMMARY => {
                let mut point = std::mem::take(&mut self.summary_point);
                let result = point.read(message).map_err(Fault::from).and_then(|()| self.summary(&mut point, metric));
                let time_ns = point.common.time_ns;
                self.summary_point = point;
                (result, time_ns)
            }
            _ => {
                let mut point = std::mem::take(&mut self.number_point);
                let result =
                    point.read(message).map_err(Fault::from).and_then(|()| self.number(&mut point, message, metric));
                let time_ns = point.common.time_ns;
                self.number_point = point;
                (result, time_ns)
            }
        };
        match result {
            Ok(()) => {
                self.newest_ns = self.newest_ns.max(time_ns);
                Ok(())
            }
            Err(Fault::Fatal(e)) => Err(e),
            Err(Fault::Refused(reason)) => {
                self.sink.charge(self.labels.bytes())?;
                let wrong = std::mem::take(&mut self.wrong);
                let named = || if wrong.is_empty() { metric.name.clone() } else { format!("{wrong}: {}", metric.name) };
                self.sink.reject(reason, 1, named);
                Ok(())
            }
        }
    }

    /// Keeps metadata once per request.
    fn metadata(&mut self, name: &str, metric_type: &str, help: &[u8], unit: &str) -> Result<()> {
        use std::hash::BuildHasher;
        let hash = FixedState::default().hash_one((name, metric_type, help, unit));
        if !self.seen_metadata.insert(hash) {
            return Ok(());
        }
        self.sink.charge(SEEN_BYTES)?;
        let help = if help.len() > TEXT_MAX_BYTES { None } else { std::str::from_utf8(help).ok() };
        let Some(help) = help else {
            self.sink.reject(Reason::InvalidMetadata, 1, || name.to_owned());
            return Ok(());
        };
        self.sink.push_metadata(MetricMetadata {
            metric: name.to_owned(),
            metric_type: metric_type.to_owned(),
            help: help.to_owned(),
            unit: unit.to_owned(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temporality {
    /// The kind has none.
    None,
    Unknown,
    Delta,
    Cumulative,
}

/// Reads the temporality of a sum or histogram, and whether it is monotonic.
fn temporality(kind: u32, data: &[u8]) -> Result<(Temporality, bool), WireError> {
    const TEMPORALITY: u32 = tag(2, VARINT);
    const MONOTONIC: u32 = tag(3, VARINT);
    if matches!(kind, GAUGE | SUMMARY) {
        return Ok((Temporality::None, false));
    }
    let (mut temporality, mut monotonic) = (Temporality::Unknown, false);
    let mut r = Reader::new(data);
    while !r.is_empty() {
        match r.tag()? {
            TEMPORALITY => {
                temporality = match r.varint()? {
                    1 => Temporality::Delta,
                    2 => Temporality::Cumulative,
                    _ => Temporality::Unknown,
                }
            }
            MONOTONIC if kind == SUM => monotonic = r.varint()? != 0,
            tag => r.skip(tag, &[2])?,
        }
    }
    Ok((temporality, monotonic))
}
