//! Metrics results as JSON, written series by series and sample by sample: as `Value`s they would take many times
//! their size, and that memory would not be accounted.

use quiver_traces::traceql::{MetricExemplar, MetricSeries};
use quiver_types::spans::hex;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::messages::{EXEMPLAR, LABEL, LIST, put, put_whole};
use crate::encode::protobuf::{put_double, put_message};

/// Most bytes of an encoded sample: header, a double, milliseconds.
const SAMPLE_BYTES: usize = 2 + 9 + 11;

/// The response to a metrics query.
#[derive(Serialize)]
pub(super) struct Numbers<S> {
    metrics: Map<String, Value>,
    series: Vec<S>,
}

impl<S> Numbers<S> {
    pub(super) fn of(series: Vec<S>) -> Self {
        Self { metrics: Map::new(), series }
    }
}

/// The steps of a response in nanoseconds, and the conversion of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    /// Numbers of the first and the last step.
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) step: i64,
    /// The divisor of values.
    pub(super) by: f64,
    /// The value of a step without spans; `None`: it has no sample.
    pub(super) none: Option<f64>,
}

/// A series with its samples.
pub(super) struct SeriesJson<'a> {
    one: &'a MetricSeries,
    exemplars: &'a [MetricExemplar],
    steps: Steps,
}

impl<'a> SeriesJson<'a> {
    /// Begins a series with at most this many exemplars.
    pub(super) fn of(one: &'a MetricSeries, exemplars: usize, steps: Steps) -> Self {
        Self { one, exemplars: &one.exemplars[..one.exemplars.len().min(exemplars)], steps }
    }

    /// How many exemplars it has.
    pub(super) fn exemplars(&self) -> usize {
        self.exemplars.len()
    }

    /// The value of the step that begins at a time.
    fn known(&self, at: i64) -> Option<f64> {
        let points = &self.one.points;
        let found = points.binary_search_by_key(&at, |point| point.0).ok()?;
        Some(points[found].1)
    }
}

impl SeriesJson<'_> {
    /// The samples with their times in Unix milliseconds.
    fn samples(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        let Steps { first, last, step, by, none } = self.steps;
        // The time of a sample is the end of its step.
        (first..=last).filter_map(move |at| {
            let value = self.known(at.saturating_mul(step)).or(none).filter(|value| !value.is_nan())? / by;
            // The end of the last step may be out of range.
            Some(((at + 1).saturating_mul(step) / 1_000_000, value))
        })
    }

    /// The exemplars as JSON.
    fn told(&self) -> impl Iterator<Item = Value> + '_ {
        let sample = move |e: &MetricExemplar| self.known(e.at).map(|value| value / self.steps.by);
        self.exemplars.iter().map(move |e| exemplar(self.one, e, sample(e)))
    }

    /// Most bytes of the encoded samples.
    pub(super) fn samples_bytes(&self) -> usize {
        let Steps { first, last, .. } = self.steps;
        SAMPLE_BYTES * usize::try_from(last.saturating_sub(first)).unwrap_or_default().saturating_add(1)
    }

    /// Appends it as a message (`TimeSeries`).
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_message(out, LIST, |out| {
            put(out, 1, &LABEL, &labels(self.one));
            for (at, value) in self.samples() {
                put_message(out, 2, |out| {
                    put_double(out, 1, value);
                    put_whole(out, 2, at as u64);
                });
            }
            self.told().for_each(|one| put(out, 4, &EXEMPLAR, &one));
        });
    }
}

impl Serialize for SeriesJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        if !self.exemplars.is_empty() {
            map.serialize_entry("exemplars", &self.told().collect::<Vec<Value>>())?;
        }
        map.serialize_entry("labels", &labels(self.one))?;
        map.serialize_entry("samples", &Samples(self))?;
        map.end()
    }
}

/// The samples of a series.
struct Samples<'a>(&'a SeriesJson<'a>);

#[derive(Serialize)]
struct Sample {
    #[serde(rename = "timestampMs")]
    at: String,
    value: f64,
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.samples().map(|(at, value)| Sample { at: at.to_string(), value }))
    }
}

/// A series with one value for the whole time range.
pub(super) struct Once<'a> {
    one: &'a MetricSeries,
    value: f64,
}

impl<'a> Once<'a> {
    /// `None`: it has no value.
    pub(super) fn of(one: &'a MetricSeries, by: f64) -> Option<Self> {
        Some(Self { one, value: one.points.first()?.1 / by })
    }

    /// Appends it as a message (`InstantSeries`).
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_message(out, LIST, |out| {
            put(out, 1, &LABEL, &labels(self.one));
            put_double(out, 2, self.value);
        });
    }
}

impl Serialize for Once<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        json!({"labels": labels(self.one), "value": self.value}).serialize(to)
    }
}

/// The labels of a series.
fn labels(series: &MetricSeries) -> Value {
    series.labels.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

/// An exemplar: a span behind a sample.
fn exemplar(series: &MetricSeries, one: &MetricExemplar, sample: Option<f64>) -> Value {
    let mut labels = vec![json!({"key": "trace:id", "value": {"stringValue": hex(&one.trace)}})];
    let own = series.labels.iter().filter(|(key, _)| !key.starts_with("__") && key != "p");
    labels.extend(own.map(|(key, value)| json!({"key": key, "value": value})));
    let value = one.value.or(sample).unwrap_or_default();
    json!({"labels": labels, "value": value, "timestampMs": one.start.div_euclid(1_000_000).to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would fail if the time range ended at the largest `i64`: the end of its last step overflows.
    #[test]
    fn the_last_step_may_end_beyond_all_times() {
        let one = MetricSeries { points: vec![(i64::MAX / 7 * 7, 4.0)], ..MetricSeries::default() };
        let step = i64::MAX / 7;
        let steps = Steps { first: 6, last: 7, step, by: 1.0, none: Some(0.0) };
        let samples: Vec<(i64, f64)> = SeriesJson::of(&one, 0, steps).samples().collect();
        assert_eq!(samples, [(7 * step / 1_000_000, 0.0), (i64::MAX / 1_000_000, 4.0)]);
    }

    /// Would fail if the time range began near the smallest `i64`: the beginning of its first step overflows.
    #[test]
    fn the_first_step_may_begin_before_all_times() {
        let one = MetricSeries { points: vec![(0, 4.0)], ..MetricSeries::default() };
        let step = i64::MAX / 2 + 1;
        let steps = Steps { first: -3, last: 0, step, by: 2.0, none: Some(1.0) };
        let samples: Vec<(i64, f64)> = SeriesJson::of(&one, 0, steps).samples().collect();
        let ms = |ns: i64| ns / 1_000_000;
        assert_eq!(samples, [(ms(i64::MIN), 0.5), (ms(-step), 0.5), (0, 0.5), (ms(step), 2.0)]);
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        let one = MetricSeries {
            labels: vec![("name".to_owned(), json!({"stringValue": "a"}))],
            points: vec![(10_000_000, 4.0), (30_000_000, f64::NAN)],
            exemplars: vec![MetricExemplar { trace: [1; 16], start: 12_000_000, at: 10_000_000, value: None }],
        };
        let steps = Steps { first: 1, last: 3, step: 10_000_000, by: 2.0, none: Some(0.0) };
        let write = |exemplars| {
            let shown = SeriesJson::of(&one, exemplars, steps);
            assert_eq!(shown.exemplars(), exemplars);
            serde_json::to_value(Numbers::of(vec![shown])).expect("JSON")
        };
        let mut message = Vec::new();
        SeriesJson::of(&one, 1, steps).put(&mut message);
        let pair = [10, 11, 10, 4, b'n', b'a', b'm', b'e', 18, 3, 10, 1, b'a'];
        // One message: first the labels, then a sample of 2 at 20 ms.
        assert_eq!((message[0], usize::from(message[1])), (10, message.len() - 2));
        assert_eq!(message[2..15], pair);
        assert_eq!(message[15..28], [18, 11, 9, 0, 0, 0, 0, 0, 0, 0, 0x40, 16, 20]);
        let mut message = Vec::new();
        Once::of(&one, 2.0).expect("a number").put(&mut message);
        assert_eq!(message[2..15], pair);
        assert_eq!(message[15..], [17, 0, 0, 0, 0, 0, 0, 0, 0x40]);
        let labels = json!([{"key": "name", "value": {"stringValue": "a"}}]);
        let samples = json!([{"timestampMs": "20", "value": 2.0}, {"timestampMs": "30", "value": 0.0}]);
        let plain = json!({"labels": labels, "samples": samples});
        assert_eq!(write(0), json!({"metrics": {}, "series": [plain]}));
        let told = &write(1)["series"][0]["exemplars"][0];
        assert_eq!(told["value"], json!(2.0));
        assert_eq!(told["timestampMs"], json!("12"));
        let once = Once::of(&one, 2.0).map(|once| serde_json::to_value(once).expect("JSON"));
        assert_eq!(once, Some(json!({"labels": labels, "value": 2.0})));
    }

    #[test]
    fn steps_without_spans_have_what_the_function_says() {
        let one = MetricSeries { points: vec![(0, 1.0), (20, f64::NAN), (30, 3.0)], ..MetricSeries::default() };
        let of = |none: Option<f64>, first: i64, last: i64| -> Vec<f64> {
            let steps = Steps { first, last, step: 10, by: 1.0, none };
            SeriesJson::of(&one, 0, steps).samples().map(|(_, value)| value).collect()
        };
        assert_eq!(of(Some(0.0), 0, 4), [1.0, 0.0, 3.0, 0.0], "NaN is none, where others have 0");
        assert_eq!(of(None, 0, 4), [1.0, 3.0]);
        assert!(of(None, 1, 1).is_empty());
        // A range that ends before it begins has no steps.
        assert!(of(Some(0.0), 1, 0).is_empty());
        let bytes = |first: i64, last: i64| {
            SeriesJson::of(&one, 0, Steps { first, last, step: 10, by: 1.0, none: None }).samples_bytes()
        };
        assert_eq!((bytes(0, 0), bytes(0, 4), bytes(5, 4)), (SAMPLE_BYTES, 5 * SAMPLE_BYTES, SAMPLE_BYTES));
    }

    #[test]
    fn exemplars_tell_of_their_span() {
        let labels =
            [("__name__", json!({"stringValue": "rate"})), ("p", json!({"doubleValue": 0.5})), ("a", json!(1))];
        let one = MetricSeries {
            labels: labels.map(|(key, value)| (key.to_owned(), value)).to_vec(),
            points: vec![(0, 6.0)],
            exemplars: [(Some(7.0), 0), (None, 0), (None, 10)]
                .map(|(value, at)| MetricExemplar { trace: [0xab; 16], start: -1, at, value })
                .to_vec(),
        };
        let steps = Steps { first: 0, last: 1, step: 10, by: 2.0, none: None };
        for asked in [0, 2, 9] {
            assert_eq!(SeriesJson::of(&one, asked, steps).exemplars(), asked.min(3));
        }
        let told: Vec<Value> = SeriesJson::of(&one, 3, steps).told().collect();
        // Its own value, else that of its step, else none.
        assert_eq!(
            told.iter().map(|one| one["value"].clone()).collect::<Vec<_>>(),
            [json!(7.0), json!(3.0), json!(0.0)]
        );
        let labels = json!([
            {"key": "trace:id", "value": {"stringValue": "ab".repeat(16)}}, {"key": "a", "value": 1},
        ]);
        assert_eq!(told[0]["labels"], labels, "names of figures are no labels of a span");
        assert_eq!(told[0]["timestampMs"], "-1", "a time before 1970 is rounded down");
        assert!(Once::of(&MetricSeries::default(), 1.0).is_none());
        assert_eq!(Once::of(&one, 4.0).map(|once| once.value), Some(1.5));
    }
}
