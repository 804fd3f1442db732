//! Converts data points to series, samples and native histograms. A refused point leaves nothing behind: validation
//! comes first, then labels, then the sum of a delta series, then storing.

use std::fmt::Write;

use quiver_types::histogram::CUSTOM_SCHEMA;
use quiver_types::{Histogram, ResetHint, SeriesId, hex, is_stale, stale_nan};

use super::delta::{ClassicSum, Sum};
use super::points::{Buckets, Common, ExponentialPoint, HistogramPoint, NumberPoint, SummaryPoint};
use super::request_reader::{Metric, Walker};
use super::{Fault, any_value};
use crate::decoded::Sink;
use crate::error::Result;
use crate::histogram::{self, SCHEMA_MAX, SpanBuilder};
use crate::label_cache;
use crate::labels::{EXEMPLAR_MAX_CHARS, LabelBuilder};
use crate::rejection::Reason;
use crate::wire::{BYTES, FIXED64, Reader, each, tag};

/// Zero threshold of exponential histograms that give none (Prometheus' default).
const ZERO_THRESHOLD: f64 = 1e-128;

type Outcome = Result<(), Fault>;

impl<'a> Walker<'a, '_> {
    /// Refuses the histogram at hand.
    fn invalid(&mut self, what: &'static str) -> Fault {
        self.wrong = what;
        Reason::InvalidHistogram.into()
    }

    /// Performs the checks common to all points, and takes the attributes.
    fn begin(&mut self, common: &mut Common<'a>, metric: &Metric) -> Outcome {
        self.labels.forget();
        if let Some(reason) = metric.blocked {
            return Err(reason.into());
        }
        if common.time_ns == 0 {
            return Err(Reason::ZeroTime.into());
        }
        // Checked here in addition to the store: such a point must not be added to a delta sum, or give its time to
        // `target_info`.
        let time_ms = (common.time_ns / 1_000_000) as i64;
        if time_ms < self.ctx.limits.earliest_ms {
            return Err(Reason::TooOld.into());
        }
        if time_ms > self.ctx.limits.latest_ms {
            return Err(Reason::TooNew.into());
        }
        self.labels.begin(&mut common.attributes, &self.fixed);
        Ok(())
    }

    /// Calls a function with the canonical labels and the id of a series of the current point. If labels cannot be
    /// stored, that fails at the first series of the point.
    #[inline]
    fn with_series<T>(
        &mut self,
        metric: &Metric,
        suffix: &str,
        extra: Option<(&str, &str)>,
        f: impl Fn(&mut Sink, &[u8], SeriesId) -> T,
    ) -> Result<T, Fault> {
        let Self { labels, sink, canonical, fixed, ctx, .. } = self;
        let key = labels.key(metric.key, suffix, extra);
        if let Some(out) = label_cache::KNOWN.with(key, |canonical, id| f(sink, canonical, id)) {
            return Ok(out);
        }
        labels.build(fixed)?;
        canonical.clear();
        labels.write_series(&metric.name, suffix, extra, canonical);
        let id = SeriesId::of(canonical);
        label_cache::KNOWN.insert(key, canonical, id, ctx.limits.known_labels_bytes_max);
        Ok(f(sink, canonical, id))
    }

    pub(super) fn series(&mut self, metric: &Metric, suffix: &str, extra: Option<(&str, &str)>) -> Result<u32, Fault> {
        Ok(self.with_series(metric, suffix, extra, Sink::push_known)???)
    }

    /// Adds a delta to the sum of its series; returns the sum and its start in ms. Sums are kept per series, whose
    /// labels identify the resource.
    fn accumulate(&mut self, common: &Common<'a>, metric: &Metric, delta: Sum) -> Result<(Sum, i64), Fault> {
        let id = self.with_series(metric, "", None, Sink::id_of)??;
        let now_ms = self.ctx.now_ms;
        let (sum, start_ns) = self.delta.get().add(id, common.start_ns, common.time_ns, now_ms, delta)?;
        Ok((sum.clone(), (start_ns / 1_000_000) as i64))
    }

    pub(super) fn number(&mut self, point: &mut NumberPoint<'a>, message: &'a [u8], metric: &Metric) -> Outcome {
        let stale = point.common.is_stale();
        let mut value = if stale { stale_nan() } else { point.value.ok_or(Reason::NoValue)? };
        self.begin(&mut point.common, metric)?;
        let mut start_ts = point.common.start_ts();
        if metric.accumulate && !stale {
            let (sum, sum_start_ts) = self.accumulate(&point.common, metric, Sum::Number(value))?;
            if let Sum::Number(sum) = sum {
                value = sum;
            }
            start_ts = sum_start_ts;
        }
        let ts = point.common.ts();
        let series = self.series(metric, "", None)?;
        self.sink.push_sample(series, ts, value, start_ts)?;
        self.exemplars(message, NumberPoint::EXEMPLARS, ts, |_| series)
    }

    pub(super) fn classic(&mut self, point: &mut HistogramPoint<'a>, message: &'a [u8], metric: &Metric) -> Outcome {
        let stale = point.common.is_stale();
        let buckets = point.counts.len();
        let ascending = point.bounds.is_sorted_by(|a, b| a < b) && point.bounds.iter().all(|b| !b.is_nan());
        if point.oversized {
            return Err(self.invalid("too many buckets"));
        }
        if !ascending {
            return Err(self.invalid("bounds are not ascending"));
        }
        if buckets != 0 && buckets != point.bounds.len() + 1 {
            return Err(self.invalid("bounds and buckets do not match"));
        }
        self.begin(&mut point.common, metric)?;
        let mut h = std::mem::take(&mut self.classic);
        h.bounds.clone_from(&point.bounds);
        h.counts.clear();
        h.counts.extend(point.counts.iter().map(|c| *c as f64));
        h.count = point.count as f64;
        h.sum = point.sum;
        // The last bucket is always +Inf, even if its bound is given.
        if h.bounds.last() == Some(&f64::INFINITY) {
            h.bounds.pop();
            let beyond = h.counts.pop().unwrap_or_default();
            h.counts.last_mut().into_iter().for_each(|last| *last += beyond);
        }
        let mut start_ts = point.common.start_ts();
        if metric.accumulate && !stale {
            let (sum, sum_start_ts) = self.accumulate(&point.common, metric, Sum::Classic(h))?;
            h = if let Sum::Classic(sum) = sum { sum } else { ClassicSum::default() };
            start_ts = sum_start_ts;
        }
        let result = if self.ctx.otlp.native_custom_buckets {
            self.push_custom(&point.common, &h, start_ts, message, metric)
        } else {
            self.push_classic(&point.common, &h, start_ts, message, metric)
        };
        self.classic = h;
        result
    }

    /// Stores a histogram as `_bucket{le}`, `_sum` and `_count`.
    fn push_classic(
        &mut self,
        common: &Common<'a>,
        h: &ClassicSum,
        start_ts: i64,
        message: &'a [u8],
        metric: &Metric,
    ) -> Outcome {
        let ts = common.ts();
        let stale = common.is_stale();
        let value = |v: f64| if stale { stale_nan() } else { v };
        // A stale marker for the histogram also ends its sum, which the collector's Prometheus receiver omits from
        // such points.
        if let Some(sum) = h.sum.or(stale.then_some(0.0)) {
            let series = self.series(metric, "_sum", None)?;
            self.sink.push_sample(series, ts, value(sum), start_ts)?;
        }
        let series = self.series(metric, "_count", None)?;
        self.sink.push_sample(series, ts, value(h.count), start_ts)?;
        let first = self.sink.next_series();
        let mut below = 0.0;
        let mut text = std::mem::take(&mut self.number_text);
        for (bound, count) in h.bounds.iter().zip(&h.counts) {
            below += count;
            text.clear();
            let _ = write!(text, "{bound}");
            let series = self.series(metric, "_bucket", Some(("le", &text)))?;
            self.sink.push_sample(series, ts, value(below), start_ts)?;
        }
        self.number_text = text;
        let last = self.series(metric, "_bucket", Some(("le", "+Inf")))?;
        self.sink.push_sample(last, ts, value(h.count), start_ts)?;
        self.exemplars(message, HistogramPoint::EXEMPLARS, ts, |v| {
            let bucket = h.bounds.partition_point(|bound| *bound < v) as u32;
            last.min(first + bucket)
        })
    }

    /// Stores a histogram as a native one with custom buckets.
    fn push_custom(
        &mut self,
        common: &Common<'a>,
        h: &ClassicSum,
        start_ts: i64,
        message: &'a [u8],
        metric: &Metric,
    ) -> Outcome {
        let native = if common.is_stale() {
            Histogram::stale()
        } else {
            let mut spans = SpanBuilder::default();
            // Without buckets, nothing is known of the observations but that there were some.
            let (counts, bounds) = if h.counts.is_empty() {
                (std::slice::from_ref(&h.count), &[][..])
            } else {
                (&h.counts[..], &h.bounds[..])
            };
            counts.iter().enumerate().for_each(|(i, count)| spans.push(i as i64, *count));
            let (positive_spans, positive) = spans.finish().ok_or(Reason::InvalidHistogram)?;
            Histogram {
                schema: CUSTOM_SCHEMA,
                count: h.count,
                sum: h.sum.unwrap_or_default(),
                positive_spans,
                positive,
                custom_bounds: bounds.to_vec(),
                reset_hint: if metric.raw_delta { ResetHint::Gauge } else { ResetHint::Unknown },
                ..Histogram::default()
            }
        };
        let ts = common.ts();
        let series = self.push_native(ts, native, start_ts, metric)?;
        self.exemplars(message, HistogramPoint::EXEMPLARS, ts, |_| series)
    }

    /// Stores a native histogram. Returns its series.
    fn push_native(&mut self, ts: i64, mut h: Histogram, start_ts: i64, metric: &Metric) -> Result<u32, Fault> {
        if !is_stale(h.sum) {
            histogram::check(&mut h).map_err(|what| self.invalid(what))?;
        }
        let series = self.series(metric, "", None)?;
        self.sink.push_histogram(series, ts, h, start_ts)?;
        Ok(series)
    }

    pub(super) fn exponential(
        &mut self,
        point: &mut ExponentialPoint<'a>,
        message: &'a [u8],
        metric: &Metric,
    ) -> Outcome {
        let stale = point.common.is_stale();
        if point.oversized {
            return Err(self.invalid("too many buckets"));
        }
        if point.scale < histogram::SCHEMA_MIN && !stale {
            return Err(self.invalid("scale is less than -4"));
        }
        let out_of_range = "bucket index out of range";
        let mut h = if stale { Histogram::stale() } else { native(point).ok_or_else(|| self.invalid(out_of_range))? };
        histogram::check(&mut h).map_err(|what| self.invalid(what))?;
        self.begin(&mut point.common, metric)?;
        let mut start_ts = point.common.start_ts();
        if metric.accumulate && !stale {
            let (sum, sum_start_ts) = self.accumulate(&point.common, metric, Sum::Native(h))?;
            h = if let Sum::Native(sum) = sum { sum } else { Histogram::default() };
            start_ts = sum_start_ts;
        }
        if metric.raw_delta {
            h.reset_hint = ResetHint::Gauge;
        }
        let ts = point.common.ts();
        let series = self.push_native(ts, h, start_ts, metric)?;
        self.exemplars(message, ExponentialPoint::EXEMPLARS, ts, |_| series)
    }

    pub(super) fn summary(&mut self, point: &mut SummaryPoint<'a>, metric: &Metric) -> Outcome {
        if point.oversized {
            return Err(self.invalid("too many quantiles"));
        }
        self.begin(&mut point.common, metric)?;
        let (ts, start_ts) = (point.common.ts(), point.common.start_ts());
        let stale = point.common.is_stale();
        let value = |v: f64| if stale { stale_nan() } else { v };
        let series = self.series(metric, "_sum", None)?;
        self.sink.push_sample(series, ts, value(point.sum), start_ts)?;
        let series = self.series(metric, "_count", None)?;
        self.sink.push_sample(series, ts, value(point.count as f64), start_ts)?;
        let mut text = std::mem::take(&mut self.number_text);
        for (quantile, v) in &point.quantiles {
            text.clear();
            let _ = write!(text, "{quantile}");
            let series = self.series(metric, "", Some(("quantile", &text)))?;
            self.sink.push_sample(series, ts, value(*v), start_ts)?;
        }
        self.number_text = text;
        Ok(())
    }

    /// Stores the exemplars of a point; `series` chooses the series by value.
    fn exemplars(&mut self, message: &'a [u8], field: u32, ts: i64, series: impl Fn(f64) -> u32) -> Outcome {
        each(message, field, &[], |exemplar| {
            match self.exemplar(exemplar, ts, &series) {
                // An invalid exemplar does not make its point invalid.
                Err(Fault::Refused(_)) => {
                    self.sink.charge(exemplar.len())?;
                    self.sink.reject(Reason::InvalidExemplar, 1, String::new);
                    Ok(())
                }
                other => other,
            }
        })
    }

    fn exemplar(&mut self, message: &'a [u8], point_ts: i64, series: impl Fn(f64) -> u32) -> Outcome {
        const TIME: u32 = tag(2, FIXED64);
        const AS_DOUBLE: u32 = tag(3, FIXED64);
        const SPAN_ID: u32 = tag(4, BYTES);
        const TRACE_ID: u32 = tag(5, BYTES);
        const AS_INT: u32 = tag(6, FIXED64);
        const ATTRIBUTES: u32 = tag(7, BYTES);
        let (mut time_ns, mut value) = (0, None);
        let (mut trace_id, mut span_id): (&[u8], &[u8]) = (b"", b"");
        let mut attributes: Vec<(&[u8], String)> = Vec::new();
        let mut chars = 0;
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                TIME => time_ns = r.fixed64()?,
                AS_DOUBLE => value = Some(r.double()?),
                AS_INT => value = Some(r.fixed64()? as i64 as f64),
                SPAN_ID => span_id = r.bytes()?,
                TRACE_ID => trace_id = r.bytes()?,
                ATTRIBUTES => {
                    let (key, raw) = any_value::key_value(r.bytes()?)?;
                    // Beyond the limit all attributes are dropped, so they need not be read.
                    if chars <= EXEMPLAR_MAX_CHARS {
                        let mut text = String::new();
                        any_value::push(raw, &mut text)?;
                        chars += any_value::text(key)?.chars().count() + text.chars().count();
                        attributes.push((key, text));
                    }
                }
                other => r.skip(other, &[2, 3, 4, 5, 6, 7])?,
            }
        }
        let value = value.ok_or(Reason::NoValue)?;
        let (trace_id, span_id) = (id_text(trace_id), id_text(span_id));
        let mut labels = LabelBuilder::default();
        for (name, id) in [("trace_id", &trace_id), ("span_id", &span_id)] {
            if !id.is_empty() {
                chars += name.len() + id.len();
                labels.push(name.as_bytes(), id.as_bytes());
            }
        }
        // It is worth storing without its attributes.
        if chars <= EXEMPLAR_MAX_CHARS {
            for (key, text) in &attributes {
                labels.push(key, text.as_bytes());
            }
        }
        let ts = if time_ns == 0 { point_ts } else { (time_ns / 1_000_000) as i64 };
        Ok(self.sink.push_exemplar(series(value), ts, value, &mut labels)?)
    }
}

/// Appends an id in hex; ids of zeros or of a wrong length are skipped.
fn id_text(id: &[u8]) -> String {
    if id.len() <= 16 && id.iter().any(|b| *b != 0) { hex(id) } else { String::new() }
}

/// Converts an exponential point to a native histogram; scales finer than the store's are reduced.
///
/// `None` if the index of a bucket does not fit.
fn native(point: &ExponentialPoint<'_>) -> Option<Histogram> {
    let schema = point.scale.min(SCHEMA_MAX);
    let reduce_by = (i64::from(point.scale) - i64::from(schema)) as u32;
    let spans = |buckets: &Buckets| {
        let mut spans = SpanBuilder::default();
        for (i, count) in buckets.counts.iter().enumerate() {
            // OTLP bucket i covers (base^i, base^(i+1)], Prometheus bucket i (base^(i-1), base^i].
            let idx = i64::from(buckets.offset) + i as i64 + 1;
            spans.push(histogram::reduced_idx(idx, reduce_by), *count as f64);
        }
        spans.finish()
    };
    let (positive_spans, positive) = spans(&point.positive)?;
    let (negative_spans, negative) = spans(&point.negative)?;
    Some(Histogram {
        schema,
        zero_threshold: if point.zero_threshold == 0.0 { ZERO_THRESHOLD } else { point.zero_threshold },
        zero_count: point.zero_count as f64,
        count: point.count as f64,
        sum: point.sum.unwrap_or_default(),
        positive_spans,
        positive,
        negative_spans,
        negative,
        ..Histogram::default()
    })
}
