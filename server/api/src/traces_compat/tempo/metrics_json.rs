//! Results of metrics in JSON and as messages, written series by series and sample by sample.

use quiver_traces::JsonWriter;
use quiver_traces::traceql::{FieldValue, MetricExemplar, MetricSeries};
use quiver_types::spans::hex;

use super::messages::{LIST, put_whole};
use super::values::{put_pair, write_double, write_pairs};
use crate::encode::protobuf::{put_double, put_message};

/// Most bytes of an encoded sample: header, a double, milliseconds.
const SAMPLE_BYTES: usize = 2 + 9 + 11;

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

impl Steps {
    /// One step that holds the whole range, with its sample at the end.
    pub(super) fn whole(end: i64, by: f64) -> Self {
        // The number for a whole range stands at 0, where a step as long as this begins.
        Self { first: 0, last: 0, step: end, by, none: None }
    }
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

    /// The value of the step that begins behind a time.
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

    /// Labels of an exemplar that its series tells; names of figures are none of a span.
    fn span_labels(&self) -> impl Iterator<Item = (&str, &FieldValue)> {
        labels(self.one).filter(|(key, _)| !key.starts_with("__") && *key != "p")
    }

    /// The value of an exemplar: its own, else that of its step.
    fn exemplar_value(&self, exemplar: &MetricExemplar) -> f64 {
        let of_step = || self.known(exemplar.at).map(|value| value / self.steps.by);
        exemplar.value.or_else(of_step).unwrap_or_default()
    }

    /// Most bytes of the encoded samples.
    pub(super) fn samples_bytes(&self) -> usize {
        let Steps { first, last, .. } = self.steps;
        SAMPLE_BYTES * usize::try_from(last.saturating_sub(first)).unwrap_or_default().saturating_add(1)
    }

    /// Appends it as a message (`TimeSeries`).
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_message(out, LIST, |out| {
            labels(self.one).for_each(|(key, value)| put_pair(out, 1, key, value));
            for (at, value) in self.samples() {
                put_message(out, 2, |out| {
                    put_double(out, 1, value);
                    put_whole(out, 2, at as u64);
                });
            }
            for exemplar in self.exemplars {
                put_message(out, 4, |out| {
                    put_pair(out, 1, TRACE_ID, &trace_of(exemplar));
                    self.span_labels().for_each(|(key, value)| put_pair(out, 1, key, value));
                    put_double(out, 2, self.exemplar_value(exemplar));
                    put_whole(out, 3, millis_of(exemplar) as u64);
                });
            }
        });
    }

    /// Writes it as an object.
    fn write(&self, w: &mut JsonWriter<'_>) {
        w.object(|w| {
            if !self.exemplars.is_empty() {
                w.key("exemplars").array(|w| self.exemplars.iter().for_each(|one| self.write_exemplar(one, w)));
            }
            write_pairs("labels", labels(self.one), w);
            w.key("samples").array(|w| {
                for (at, value) in self.samples() {
                    if w.is_closed() {
                        return;
                    }
                    w.object(|w| {
                        w.key("timestampMs").quoted(at);
                        w.key("value");
                        write_double(value, w);
                    });
                }
            });
        });
    }

    fn write_exemplar(&self, exemplar: &MetricExemplar, w: &mut JsonWriter<'_>) {
        let trace = trace_of(exemplar);
        w.object(|w| {
            write_pairs("labels", std::iter::once((TRACE_ID, &trace)).chain(self.span_labels()), w);
            w.key("value");
            write_double(self.exemplar_value(exemplar), w);
            w.key("timestampMs").quoted(millis_of(exemplar));
        });
    }
}

/// Takes series with their samples, and so many exemplars of all of them together.
pub(super) fn with_exemplars(
    series: &[MetricSeries],
    exemplars: usize,
    steps: Steps,
) -> impl Iterator<Item = SeriesJson<'_>> {
    let mut left = exemplars;
    series.iter().map(move |one| {
        let shown = SeriesJson::of(one, left, steps);
        left -= shown.exemplars.len();
        shown
    })
}

/// Leaves only so many series, and says so in Tempo's words where there are more.
pub(super) fn cut(series: &mut Vec<MetricSeries>, most: usize) -> Option<String> {
    let is_more = series.len() > most;
    series.truncate(most);
    is_more.then(|| format!("Response exceeds maximum series limit of {most}, a partial response is returned."))
}

/// Writes the response to a query over time, and why series are missing.
pub(super) fn write_range(
    series: &[MetricSeries],
    missing: Option<&str>,
    (exemplars, steps): (usize, Steps),
    w: &mut JsonWriter<'_>,
) {
    write_response(w, missing, |w| {
        for one in with_exemplars(series, exemplars, steps) {
            if w.is_closed() {
                return;
            }
            one.write(w);
        }
    });
}

/// Writes the response to a query of one value for the whole time range, and why series are missing.
pub(super) fn write_at_once(series: &[MetricSeries], missing: Option<&str>, by: f64, w: &mut JsonWriter<'_>) {
    write_response(w, missing, |w| {
        series.iter().filter_map(|one| SingleValue::of(one, by)).for_each(|one| one.write(w));
    });
}

fn write_response(w: &mut JsonWriter<'_>, missing: Option<&str>, series: impl FnOnce(&mut JsonWriter<'_>)) {
    w.object(|w| {
        w.key("metrics").object(|_| ());
        w.key("series").array(series);
        if let Some(reason) = missing {
            w.key("status").text("PARTIAL");
            w.key("message").text(reason);
        }
    });
}

/// A series with one value for the whole time range.
pub(super) struct SingleValue<'a> {
    one: &'a MetricSeries,
    value: f64,
}

impl<'a> SingleValue<'a> {
    /// `None`: it has no value.
    pub(super) fn of(one: &'a MetricSeries, by: f64) -> Option<Self> {
        Some(Self { one, value: one.points.first()?.1 / by })
    }

    /// Appends it as a message (`InstantSeries`).
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_message(out, LIST, |out| {
            labels(self.one).for_each(|(key, value)| put_pair(out, 1, key, value));
            put_double(out, 2, self.value);
        });
    }

    /// Writes it as an object.
    fn write(&self, w: &mut JsonWriter<'_>) {
        w.object(|w| {
            write_pairs("labels", labels(self.one), w);
            w.key("value");
            write_double(self.value, w);
        });
    }
}

/// The label of an exemplar that names its trace.
const TRACE_ID: &str = "trace:id";

/// Names and values of a series.
fn labels(series: &MetricSeries) -> impl Iterator<Item = (&str, &FieldValue)> {
    series.labels.iter().map(|(key, value)| (key.as_str(), value))
}

fn trace_of(exemplar: &MetricExemplar) -> FieldValue {
    FieldValue::Text(hex(&exemplar.trace))
}

/// Its start in Unix milliseconds.
fn millis_of(exemplar: &MetricExemplar) -> i64 {
    exemplar.start.div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is written, as JSON.
    fn json_of(write: impl FnOnce(&mut JsonWriter<'_>)) -> Value {
        let mut w = JsonWriter::default();
        write(&mut w);
        serde_json::from_slice(&w.finish().expect("JSON")).expect("JSON")
    }

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
            labels: vec![("name".to_owned(), FieldValue::Text("a".to_owned()))],
            points: vec![(10_000_000, 4.0), (30_000_000, f64::NAN)],
            exemplars: vec![MetricExemplar { trace: [1; 16], start: 12_000_000, at: 10_000_000, value: None }],
        };
        let steps = Steps { first: 1, last: 3, step: 10_000_000, by: 2.0, none: Some(0.0) };
        let all = std::slice::from_ref(&one);
        let write = |exemplars| json_of(|w| write_range(all, None, (exemplars, steps), w));
        let mut message = Vec::new();
        SeriesJson::of(&one, 1, steps).put(&mut message);
        let pair = [10, 11, 10, 4, b'n', b'a', b'm', b'e', 18, 3, 10, 1, b'a'];
        // One message: first the labels, then a sample of 2 at 20 ms.
        assert_eq!((message[0], usize::from(message[1])), (10, message.len() - 2));
        assert_eq!(message[2..15], pair);
        assert_eq!(message[15..28], [18, 11, 9, 0, 0, 0, 0, 0, 0, 0, 0x40, 16, 20]);
        let mut message = Vec::new();
        SingleValue::of(&one, 2.0).expect("a number").put(&mut message);
        assert_eq!(message[2..15], pair);
        assert_eq!(message[15..], [17, 0, 0, 0, 0, 0, 0, 0, 0x40]);
        let labels = json!([{"key": "name", "value": {"stringValue": "a"}}]);
        let samples = json!([{"timestampMs": "20", "value": 2.0}, {"timestampMs": "30", "value": 0.0}]);
        let plain = json!({"labels": labels, "samples": samples});
        assert_eq!(write(0), json!({"metrics": {}, "series": [plain]}));
        let told = &write(1)["series"][0]["exemplars"][0];
        assert_eq!(told["value"], json!(2.0));
        assert_eq!(told["timestampMs"], json!("12"));
        let once = json_of(|w| write_at_once(all, None, 2.0, w));
        assert_eq!(once, json!({"metrics": {}, "series": [{"labels": labels, "value": 2.0}]}));
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
        let whole: Vec<(i64, f64)> = SeriesJson::of(&one, 0, Steps::whole(90_000_000, 0.5)).samples().collect();
        assert_eq!(whole, [(90, 2.0)], "one number stands at the end of its range");
        // A range that ends before it begins has no steps.
        assert!(of(Some(0.0), 1, 0).is_empty());
        let bytes = |first: i64, last: i64| {
            SeriesJson::of(&one, 0, Steps { first, last, step: 10, by: 1.0, none: None }).samples_bytes()
        };
        assert_eq!((bytes(0, 0), bytes(0, 4), bytes(5, 4)), (SAMPLE_BYTES, 5 * SAMPLE_BYTES, SAMPLE_BYTES));
    }

    #[test]
    fn series_that_are_missing_are_told() {
        let found = |most: usize| {
            let mut series = vec![MetricSeries { points: vec![(0, 1.0)], ..MetricSeries::default() }; 3];
            let missing = cut(&mut series, most);
            (series.len(), missing.is_some(), json_of(|w| write_at_once(&series, missing.as_deref(), 1.0, w)))
        };
        let (left, is_partial, answer) = found(2);
        assert_eq!((left, is_partial, &answer["status"]), (2, true, &json!("PARTIAL")));
        let text = "Response exceeds maximum series limit of 2, a partial response is returned.";
        assert_eq!((answer["message"].as_str(), answer["series"].as_array().map(Vec::len)), (Some(text), Some(2)));
        let (left, is_partial, answer) = found(3);
        assert_eq!((left, is_partial, answer.get("status"), answer.get("message")), (3, false, None, None));
        let steps = Steps { first: 0, last: 1, step: 10, by: 1.0, none: None };
        let answer = json_of(|w| write_range(&[], Some("why"), (0, steps), w));
        assert_eq!(answer, json!({"metrics": {}, "series": [], "status": "PARTIAL", "message": "why"}));
    }

    #[test]
    fn exemplars_tell_of_their_span() {
        let labels = [
            ("__name__", FieldValue::Text("rate".to_owned())),
            ("p", FieldValue::Double(0.5)),
            ("a", FieldValue::Int(1)),
        ];
        let one = MetricSeries {
            labels: labels.map(|(key, value)| (key.to_owned(), value)).to_vec(),
            points: vec![(0, 6.0)],
            exemplars: [(Some(7.0), 0), (None, 0), (None, 10)]
                .map(|(value, at)| MetricExemplar { trace: [0xab; 16], start: -1, at, value })
                .to_vec(),
        };
        let steps = Steps { first: 0, last: 1, step: 10, by: 2.0, none: None };
        for asked in [0, 2, 9] {
            assert_eq!(SeriesJson::of(&one, asked, steps).exemplars.len(), asked.min(3));
        }
        // Those of all series together.
        let twice = [one.clone(), one.clone()];
        let shown: Vec<usize> = with_exemplars(&twice, 4, steps).map(|one| one.exemplars.len()).collect();
        assert_eq!(shown, [3, 1]);
        let told = json_of(|w| SeriesJson::of(&one, 3, steps).write(w));
        let told = told["exemplars"].as_array().cloned().unwrap_or_default();
        // Its own value, else that of its step, else none.
        assert_eq!(
            told.iter().map(|one| one["value"].clone()).collect::<Vec<_>>(),
            [json!(7.0), json!(3.0), json!(0.0)]
        );
        let labels = json!([
            {"key": "trace:id", "value": {"stringValue": "ab".repeat(16)}}, {"key": "a", "value": {"intValue": "1"}},
        ]);
        assert_eq!(told[0]["labels"], labels, "names of figures are no labels of a span");
        assert_eq!(told[0]["timestampMs"], "-1", "a time before 1970 is rounded down");
        assert!(SingleValue::of(&MetricSeries::default(), 1.0).is_none());
        assert_eq!(SingleValue::of(&one, 4.0).map(|once| once.value), Some(1.5));
    }
}
