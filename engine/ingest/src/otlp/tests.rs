//! OTLP metrics, as protobuf made by `opentelemetry-proto` and as JSON: the series made from each kind of point.

use std::collections::BTreeMap;
use std::sync::Mutex;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint, exemplar,
    exponential_histogram_data_point::Buckets, metric::Data, number_data_point::Value,
    summary_data_point::ValueAtQuantile,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use prost::Message;
use quiver_types::label::Pairs;
use quiver_types::{Span, is_stale};

use super::*;
use crate::context::{Context, Limits};
use crate::decoded::DecodedMetrics;
use crate::formats::{otlp_json, otlp_metrics};
use crate::fuzz;

mod resources;

const S: u64 = 1_000_000_000;

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.into())) };
    KeyValue { key: key.into(), value: Some(value), ..KeyValue::default() }
}

fn number(seconds: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        time_unix_nano: seconds * S,
        start_time_unix_nano: S,
        value: Some(Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric { name: name.into(), unit: unit.into(), description: "Help".into(), data: Some(data), ..Metric::default() }
}

fn sum(temporality: i32, is_monotonic: bool, data_points: Vec<NumberDataPoint>) -> Data {
    Data::Sum(Sum { data_points, aggregation_temporality: temporality, is_monotonic })
}

const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

fn request(resource: &[(&str, &str)], metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: "lib".into(),
        version: "1.2".into(),
        attributes: vec![attribute("k.x", "v")],
        ..InstrumentationScope::default()
    };
    let attributes = resource.iter().map(|(k, v)| attribute(k, v)).collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: "url".into() }],
            schema_url: String::new(),
        }],
    }
}

/// A receiver that keeps its state between requests.
#[derive(Default)]
struct Receiver {
    options: OtlpOptions,
    delta: Mutex<DeltaState>,
}

impl Receiver {
    fn decode(&self, request: &ExportMetricsServiceRequest) -> DecodedMetrics {
        let ctx =
            Context { limits: Limits::default(), otlp: &self.options, delta: &self.delta, now_ms: 0, sender: None };
        let decoded = otlp_metrics::decode(&request.encode_to_vec(), &ctx).unwrap();
        fuzz::check(&decoded.batch);
        decoded
    }

    fn json(&self, text: &str) -> crate::Result<DecodedMetrics> {
        let ctx =
            Context { limits: Limits::default(), otlp: &self.options, delta: &self.delta, now_ms: 0, sender: None };
        let decoded = otlp_json::decode(text.as_bytes(), &ctx)?;
        fuzz::check(&decoded.batch);
        Ok(decoded)
    }
}

fn name_of(canonical: &[u8]) -> String {
    let all: BTreeMap<&str, &str> = Pairs::new(canonical).collect();
    let others: Vec<String> = all.iter().filter(|(n, _)| **n != "__name__").map(|(n, v)| format!("{n}={v}")).collect();
    format!("{}{{{}}}", all["__name__"], others.join(","))
}

/// Shows samples as `name{labels} value time`; stale markers as `stale`.
fn rows(decoded: &DecodedMetrics) -> Vec<String> {
    let b = &decoded.batch;
    let row = |i: usize| {
        let value = if is_stale(b.values[i]) { "stale".to_owned() } else { b.values[i].to_string() };
        format!("{} {value} {}", name_of(b.labels(b.sample_series[i])), b.ts[i])
    };
    (0..b.ts.len()).map(row).collect()
}

const SERVICE: [(&str, &str); 2] = [("service.name", "shop"), ("service.namespace", "ns")];

#[test]
fn gauges_and_sums() {
    let r = Receiver::default();
    let check = |m: Metric, expected: &[&str]| {
        let decoded = r.decode(&request(&SERVICE, vec![m.clone()]));
        assert_eq!(rows(&decoded), expected, "{m:?}");
    };
    let mut point = number(5, 1.5);
    point.attributes = vec![attribute("http.method", "GET"), attribute("1x", "y"), attribute("job", "mine")];
    check(
        metric("mem.use", "By", Data::Gauge(Gauge { data_points: vec![point] })),
        &["mem_use_bytes{http_method=GET,job=ns/shop,key_1x=y} 1.5 5000"],
    );
    check(metric("req", "1", sum(CUMULATIVE, true, vec![number(5, 2.0)])), &["req_total{job=ns/shop} 2 5000"]);
    check(metric("queue", "1", sum(CUMULATIVE, false, vec![number(5, 2.0)])), &["queue{job=ns/shop} 2 5000"]);
    let int = NumberDataPoint { value: Some(Value::AsInt(-7)), ..number(5, 0.0) };
    check(metric("g", "", Data::Gauge(Gauge { data_points: vec![int] })), &["g{job=ns/shop} -7 5000"]);
    let stale = NumberDataPoint { value: None, flags: 1, ..number(6, 0.0) };
    check(metric("g", "", Data::Gauge(Gauge { data_points: vec![stale] })), &["g{job=ns/shop} stale 6000"]);
    let decoded = r.decode(&request(&SERVICE, vec![metric("req", "s", sum(CUMULATIVE, true, vec![number(5, 2.0)]))]));
    assert_eq!(decoded.batch.start_ts, [1000]);
    let m = &decoded.batch.metadata[0];
    assert_eq!([&m.metric[..], &m.metric_type, &m.help, &m.unit], ["req_seconds_total", "counter", "Help", "seconds"]);
}

#[test]
fn resources_and_scopes() {
    let gauge = || metric("g", "", Data::Gauge(Gauge { data_points: vec![number(5, 1.0), number(9, 2.0)] }));
    let resource =
        [("service.name", "shop"), ("service.instance.id", "i1"), ("host.name", "h"), ("cloud.region", "eu")];
    let r = Receiver::default();
    let expected = ["g{instance=i1,job=shop} 1 5000", "g{instance=i1,job=shop} 2 9000"];
    let info = "target_info{cloud_region=eu,host_name=h,instance=i1,job=shop} 1 9000";
    let decoded = r.decode(&request(&resource, vec![gauge()]));
    assert_eq!(rows(&decoded), [expected[0], expected[1], info]);
    assert_eq!(rows(&r.decode(&request(&resource[..2], vec![gauge()]))), expected, "nothing beside the identity");
    let no_identity = ["g{} 1 5000", "g{} 2 9000", "target_info{cloud_region=eu,host_name=h} 1 9000"];
    assert_eq!(rows(&r.decode(&request(&resource[2..], vec![gauge()]))), no_identity);
    let options = OtlpOptions {
        scope_labels: true,
        promoted: PromotedAttributes::of(&["host.name".into(), "absent".into()]),
        ..OtlpOptions::default()
    };
    let r = Receiver { options, ..Receiver::default() };
    let scope = "otel_scope_k_x=v,otel_scope_name=lib,otel_scope_schema_url=url,otel_scope_version=1.2";
    let decoded = r.decode(&request(&resource, vec![gauge()]));
    assert_eq!(rows(&decoded)[0], format!("g{{host_name=h,instance=i1,job=shop,{scope}}} 1 5000"));
    assert_eq!(rows(&decoded)[2], info, "no scope labels there");
}

fn histogram_point(seconds: u64, counts: &[u64], bounds: &[f64]) -> HistogramDataPoint {
    HistogramDataPoint {
        time_unix_nano: seconds * S,
        start_time_unix_nano: S,
        count: counts.iter().sum(),
        sum: Some(10.0),
        bucket_counts: counts.to_vec(),
        explicit_bounds: bounds.to_vec(),
        ..HistogramDataPoint::default()
    }
}

fn histogram(temporality: i32, data_points: Vec<HistogramDataPoint>) -> Metric {
    metric("lat", "ms", Data::Histogram(Histogram { data_points, aggregation_temporality: temporality }))
}

#[test]
fn classic_histograms() {
    let r = Receiver::default();
    let check = |point: HistogramDataPoint, expected: &[&str]| {
        let decoded = r.decode(&request(&[], vec![histogram(CUMULATIVE, vec![point.clone()])]));
        assert_eq!(rows(&decoded), expected, "{point:?} {:?}", decoded.rejected);
    };
    let name = "lat_milliseconds";
    let all = [
        format!("{name}_sum{{}} 10 5000"),
        format!("{name}_count{{}} 6 5000"),
        format!("{name}_bucket{{le=0.5}} 1 5000"),
        format!("{name}_bucket{{le=5}} 3 5000"),
        format!("{name}_bucket{{le=+Inf}} 6 5000"),
    ];
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    check(histogram_point(5, &[1, 2, 3], &[0.5, 5.0]), &all);
    check(HistogramDataPoint { sum: None, ..histogram_point(5, &[1, 2, 3], &[0.5, 5.0]) }, &all[1..]);
    let count_only = HistogramDataPoint { count: 6, sum: None, ..histogram_point(5, &[], &[]) };
    check(count_only, &[all[1], all[4]]);
    let infinite = histogram_point(5, &[1, 2, 3, 0], &[0.5, 5.0, f64::INFINITY]);
    check(infinite, &all);
    let stale = HistogramDataPoint { flags: 1, sum: None, ..histogram_point(5, &[0, 0], &[1.0]) };
    check(
        stale,
        &[
            "lat_milliseconds_sum{} stale 5000",
            "lat_milliseconds_count{} stale 5000",
            "lat_milliseconds_bucket{le=1} stale 5000",
            "lat_milliseconds_bucket{le=+Inf} stale 5000",
        ],
    );
    let refused = |point: HistogramDataPoint| {
        let decoded = r.decode(&request(&[], vec![histogram(CUMULATIVE, vec![point])]));
        assert_eq!((decoded.samples, decoded.rejected[0].reason), (0, Reason::InvalidHistogram));
        decoded.rejected[0].example.clone()
    };
    assert_eq!(refused(histogram_point(5, &[1, 2], &[0.5, 5.0])), format!("bounds and buckets do not match: {name}"));
    let not_ascending = format!("bounds are not ascending: {name}");
    assert_eq!(refused(histogram_point(5, &[1, 2, 3], &[5.0, 5.0])), not_ascending);
    assert_eq!(refused(histogram_point(5, &[1, 2, 3], &[1.0, f64::NAN])), not_ascending);
}

#[test]
fn custom_bucket_histograms() {
    let options = OtlpOptions { native_custom_buckets: true, ..OtlpOptions::default() };
    let r = Receiver { options, ..Receiver::default() };
    let point = histogram_point(5, &[0, 2, 3], &[0.5, 5.0]);
    let decoded = r.decode(&request(&[], vec![histogram(CUMULATIVE, vec![point])]));
    let h = &decoded.batch.histograms[0];
    assert_eq!((h.ts, h.start_ts, name_of(decoded.batch.labels(h.series))), (5000, 1000, "lat_milliseconds{}".into()));
    let h = &h.histogram;
    assert_eq!((h.schema, &h.custom_bounds[..], &h.positive[..]), (-53, &[0.5, 5.0][..], &[2.0, 3.0][..]));
    assert_eq!((h.count, h.sum, &h.positive_spans[..]), (5.0, 10.0, &[Span { offset: 1, length: 2 }][..]));
    // A point may have a count and a sum only.
    let point = HistogramDataPoint { count: 4, ..histogram_point(5, &[], &[]) };
    let decoded = r.decode(&request(&[], vec![histogram(CUMULATIVE, vec![point])]));
    let h = &decoded.batch.histograms[0].histogram;
    assert_eq!((h.schema, h.custom_bounds.len(), &h.positive[..], h.count), (-53, 0, &[4.0][..], 4.0));
}

fn exponential_point(seconds: u64, scale: i32, offset: i32, counts: &[u64]) -> ExponentialHistogramDataPoint {
    ExponentialHistogramDataPoint {
        time_unix_nano: seconds * S,
        start_time_unix_nano: S,
        count: counts.iter().sum::<u64>() + 1,
        sum: Some(10.0),
        scale,
        zero_count: 1,
        positive: Some(Buckets { offset, bucket_counts: counts.to_vec() }),
        ..ExponentialHistogramDataPoint::default()
    }
}

fn exponential(temporality: i32, data_points: Vec<ExponentialHistogramDataPoint>) -> Metric {
    let data = ExponentialHistogram { data_points, aggregation_temporality: temporality };
    metric("lat", "s", Data::ExponentialHistogram(data))
}

#[test]
fn exponential_histograms() {
    let r = Receiver::default();
    let decode = |point| r.decode(&request(&[], vec![exponential(CUMULATIVE, vec![point])]));
    let decoded = decode(exponential_point(5, 3, -1, &[1, 0, 2]));
    let h = &decoded.batch.histograms[0].histogram;
    assert_eq!((h.schema, h.zero_threshold, h.zero_count, h.count, h.sum), (3, 1e-128, 1.0, 4.0, 10.0));
    assert_eq!((&h.positive_spans[..], &h.positive[..]), (&[Span { offset: 0, length: 3 }][..], &[1.0, 0.0, 2.0][..]));
    // Scale 10 → 8: four buckets become one. OTLP bucket 3 is the last one of Prometheus bucket 1 there.
    let decoded = decode(exponential_point(5, 10, 3, &[1, 2, 3, 4, 5]));
    let h = &decoded.batch.histograms[0].histogram;
    assert_eq!((h.schema, &h.positive_spans[..]), (8, &[Span { offset: 1, length: 2 }][..]));
    assert_eq!(h.positive, [1.0, 14.0]);
    assert_eq!(decode(exponential_point(5, -5, 0, &[1])).rejected[0].reason, Reason::InvalidHistogram);
    assert_eq!(decode(exponential_point(5, i32::MIN, 0, &[1])).rejected[0].reason, Reason::InvalidHistogram);
    assert_eq!(decode(exponential_point(5, i32::MAX, i32::MAX, &[1, 1])).batch.histograms[0].histogram.schema, 8);
    assert_eq!(decode(exponential_point(5, 8, i32::MAX, &[1, 1])).rejected[0].reason, Reason::InvalidHistogram);
    let wrong = ExponentialHistogramDataPoint { count: 77, ..exponential_point(5, 3, 0, &[1]) };
    let told = |point| decode(point).rejected[0].example.clone();
    assert!(told(wrong).starts_with("buckets do not add up to the count: "));
    assert!(told(exponential_point(5, -5, 0, &[1])).starts_with("scale is less than -4: "));
    assert!(told(exponential_point(5, 8, i32::MAX, &[1, 1])).starts_with("bucket index out of range: "));
    let stale = ExponentialHistogramDataPoint { flags: 1, ..exponential_point(5, 3, 0, &[]) };
    assert!(decode(stale).batch.histograms[0].histogram.is_stale());
}

#[test]
fn summaries() {
    let quantile = |quantile, value| ValueAtQuantile { quantile, value };
    let point = SummaryDataPoint {
        time_unix_nano: 5 * S,
        count: 3,
        sum: 6.5,
        quantile_values: vec![quantile(0.5, 2.0), quantile(1.0, 4.0)],
        ..SummaryDataPoint::default()
    };
    let data = Data::Summary(Summary { data_points: vec![point] });
    let decoded = Receiver::default().decode(&request(&[], vec![metric("rpc", "", data)]));
    let expected = ["rpc_sum{} 6.5 5000", "rpc_count{} 3 5000", "rpc{quantile=0.5} 2 5000", "rpc{quantile=1} 4 5000"];
    assert_eq!(rows(&decoded), expected);
    assert_eq!(decoded.batch.metadata[0].metric_type, "summary");
}

#[test]
fn delta_sums() {
    let r = Receiver::default();
    let send = |points: &[(u64, f64)]| {
        let points = points
            .iter()
            .map(|&(seconds, v)| NumberDataPoint { start_time_unix_nano: (seconds - 1) * S, ..number(seconds, v) });
        r.decode(&request(&[], vec![metric("req", "", sum(DELTA, true, points.collect()))]))
    };
    let decoded = send(&[(5, 2.0), (6, 3.0)]);
    assert_eq!(rows(&decoded), ["req_total{} 2 5000", "req_total{} 5 6000"]);
    assert_eq!(decoded.batch.start_ts, [4000, 4000]);
    assert_eq!(rows(&send(&[(6, 3.0), (8, 1.0)])), ["req_total{} 5 6000", "req_total{} 6 8000"], "a repeat, and on");
    let late = send(&[(7, 9.0)]);
    assert_eq!((late.samples, late.rejected[0].reason), (0, Reason::LateDelta));
    let options = OtlpOptions { delta: DeltaMode::Raw, ..OtlpOptions::default() };
    let raw = Receiver { options, ..Receiver::default() };
    let metrics = vec![metric("req", "", sum(DELTA, true, vec![number(5, 2.0), number(6, 3.0)]))];
    let decoded = raw.decode(&request(&[], metrics));
    assert_eq!(rows(&decoded), ["req_total{} 2 5000", "req_total{} 3 6000"]);
    assert_eq!(decoded.batch.start_ts, [1000, 1000]);
}

#[test]
fn delta_histograms() {
    let r = Receiver::default();
    let points = vec![histogram_point(5, &[1, 2], &[1.0]), histogram_point(6, &[3, 4], &[1.0])];
    let decoded = r.decode(&request(&[], vec![histogram(DELTA, points)]));
    let last = &rows(&decoded)[4..];
    let name = "lat_milliseconds";
    let expected = [
        format!("{name}_sum{{}} 20 6000"),
        format!("{name}_count{{}} 10 6000"),
        format!("{name}_bucket{{le=1}} 4 6000"),
        format!("{name}_bucket{{le=+Inf}} 10 6000"),
    ];
    assert_eq!(last, expected);
    let points = vec![exponential_point(5, 1, 0, &[1, 2]), exponential_point(6, 0, 0, &[4])];
    let decoded = r.decode(&request(&[], vec![exponential(DELTA, points)]));
    let h = &decoded.batch.histograms[1].histogram;
    assert_eq!((h.schema, &h.positive[..], h.count, h.zero_count), (0, &[7.0][..], 9.0, 2.0));
    assert_eq!(r.delta.lock().unwrap().len(), 2);
}

#[test]
fn refused_points() {
    let r = Receiver::default();
    let check = |m: Metric, reason: Reason, count: u64| {
        let good = metric("good", "", Data::Gauge(Gauge { data_points: vec![number(5, 1.0)] }));
        let decoded = r.decode(&request(&SERVICE, vec![m.clone(), good]));
        assert_eq!(rows(&decoded), ["good{job=ns/shop} 1 5000"], "{m:?}");
        assert_eq!((decoded.rejected[0].reason, decoded.rejected[0].count), (reason, count), "{m:?}");
        let partial = response::PartialSuccess::of(&decoded);
        assert_eq!(partial.rejected, count);
        assert!(partial.message.contains(reason.message()), "{}", partial.message);
    };
    let gauge =
        |point: NumberDataPoint| metric("g", "", Data::Gauge(Gauge { data_points: vec![point.clone(), point] }));
    check(gauge(number(0, 1.0)), Reason::ZeroTime, 2);
    check(gauge(NumberDataPoint { value: None, ..number(5, 1.0) }), Reason::NoValue, 2);
    check(gauge(NumberDataPoint { attributes: vec![attribute("..", "x")], ..number(5, 1.0) }), Reason::InvalidName, 2);
    check(metric("r", "", sum(0, true, vec![number(5, 1.0)])), Reason::NoTemporality, 1);
    check(metric("...", "", sum(CUMULATIVE, false, vec![number(5, 1.0)])), Reason::InvalidName, 1);
    check(histogram(7, vec![histogram_point(5, &[1], &[])]), Reason::NoTemporality, 1);
    let empty = Metric { data: None, ..metric("x", "", Data::Gauge(Gauge::default())) };
    assert!(r.decode(&request(&SERVICE, vec![empty])).rejected.is_empty());
}

#[test]
fn points_outside_of_the_accepted_time() {
    let r = Receiver::default();
    let limits = Limits { earliest_ms: 4000, latest_ms: 6000, ..Limits::default() };
    let ctx = Context { limits, otlp: &r.options, delta: &r.delta, now_ms: 0, sender: None };
    let decode =
        |m: Metric| otlp_metrics::decode(&request(&[("host.name", "h")], vec![m]).encode_to_vec(), &ctx).unwrap();
    let points = [3, 5, 7].map(|time| histogram_point(time, &[1, 2], &[1.0])).to_vec();
    let decoded = decode(histogram(CUMULATIVE, points));
    let counts: Vec<_> = decoded.rejected.iter().map(|r| (r.reason, r.count)).collect();
    assert_eq!(counts, [(Reason::TooOld, 1), (Reason::TooNew, 1)]);
    assert_eq!(rows(&decoded).last().unwrap(), "target_info{host_name=h} 1 5000");
    // A refused delta leaves the sum alone.
    let decoded = decode(metric("d", "", sum(DELTA, true, vec![number(7, 9.0), number(5, 1.0)])));
    assert_eq!(rows(&decoded)[0], "d_total{} 1 5000");
}

#[test]
fn exemplars() {
    let exemplar = |value: f64, seconds: u64| Exemplar {
        value: Some(exemplar::Value::AsDouble(value)),
        time_unix_nano: seconds * S,
        trace_id: vec![0xab; 16],
        span_id: vec![0; 8],
        filtered_attributes: vec![attribute("user", "u1")],
    };
    let mut point = histogram_point(5, &[1, 2, 3], &[0.5, 5.0]);
    let long = Exemplar { filtered_attributes: vec![attribute("user", &"u".repeat(100))], ..exemplar(9.0, 0) };
    let none = Exemplar { value: None, ..exemplar(1.0, 1) };
    point.exemplars = vec![exemplar(0.5, 4), exemplar(3.0, 4), long, none];
    let decoded = Receiver::default().decode(&request(&[], vec![histogram(CUMULATIVE, vec![point])]));
    let b = &decoded.batch;
    let found: Vec<_> = b.exemplars.iter().map(|e| (name_of(b.labels(e.series)), e.ts, e.value)).collect();
    let bucket = |le: &str| format!("lat_milliseconds_bucket{{le={le}}}");
    assert_eq!(found, [(bucket("0.5"), 4000, 0.5), (bucket("5"), 4000, 3.0), (bucket("+Inf"), 5000, 9.0)]);
    let trace_id = "ab".repeat(16);
    let labels =
        |i: usize| Pairs::new(&b.exemplars[i].labels).map(|(n, v)| (n.to_owned(), v.to_owned())).collect::<Vec<_>>();
    assert_eq!(labels(0), [("trace_id".to_owned(), trace_id.clone()), ("user".to_owned(), "u1".to_owned())]);
    assert_eq!(labels(2), [("trace_id".to_owned(), trace_id)], "too long with attributes");
    assert_eq!((decoded.rejected[0].reason, decoded.rejected[0].count), (Reason::InvalidExemplar, 1));
    assert_eq!(response::PartialSuccess::of(&decoded).rejected, 0);
}

/// One of each kind, with exemplars and odd number forms.
pub(crate) const EVERYTHING_JSON: &str = r#" {"unknown": {"a":[1,{"b":null}]}, "resourceMetrics": [{
        "resource": {"attributes": [{"key":"service.name","value":{"stringValue":"shop"}}, {"key":"n","value":{"intValue":"42"}}]},
        "scopeMetrics": [{"scope": null, "metrics": [
            {"name":"req","unit":"1","sum":{"dataPoints":[
                {"asInt":"5","timeUnixNano":"5000000000","startTimeUnixNano":1000000000,
                 "attributes":[{"key":"list","value":{"arrayValue":{"values":[{"intValue":1},{"boolValue":true},{"doubleValue":0.1}]}}}],
                 "exemplars":[{"asDouble":1.5,"timeUnixNano":"4000000000","traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"eee19b7ec3c1b174"}]}],
                "aggregationTemporality":"AGGREGATION_TEMPORALITY_CUMULATIVE","isMonotonic":true}},
            {"name":"g","gauge":{"dataPoints":[{"asDouble":0.30000000000000004,"timeUnixNano":5e9},{"asDouble":"NaN","timeUnixNano":"6000000000"}]}},
            {"name":"h","histogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"5000000000","count":"3","sum":1,
                "bucketCounts":["1",2],"explicitBounds":[1.5]}]}},
            {"name":"e","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"5000000000","count":3,"sum":1,
                "scale":-1,"positive":{"offset":-2,"bucketCounts":["1","2"]}}]}}
        ]}]}]} "#;

/// A request with one of each kind.
pub(crate) fn everything() -> ExportMetricsServiceRequest {
    let mut point = histogram_point(5, &[1, 2], &[1.0]);
    point.exemplars = vec![Exemplar {
        value: Some(exemplar::Value::AsDouble(0.5)),
        time_unix_nano: S,
        trace_id: vec![0xab; 16],
        span_id: vec![1; 8],
        filtered_attributes: vec![attribute("user", "u1")],
    }];
    let quantile_values = vec![ValueAtQuantile { quantile: 0.5, value: 1.0 }];
    let summary = SummaryDataPoint { time_unix_nano: S, count: 3, quantile_values, ..SummaryDataPoint::default() };
    let resource = [SERVICE[0], SERVICE[1], ("host.name", "h"), ("service.instance.id", "i")];
    request(
        &resource,
        vec![
            histogram(CUMULATIVE, vec![point.clone()]),
            histogram(DELTA, vec![point]),
            exponential(DELTA, vec![exponential_point(5, 3, 0, &[1, 2]), exponential_point(6, 2, 0, &[1, 2])]),
            exponential(CUMULATIVE, vec![exponential_point(5, 11, -7, &[1, 0, 2])]),
            metric("g", "By/s", Data::Gauge(Gauge { data_points: vec![number(5, 1.0)] })),
            metric("r", "", sum(DELTA, true, vec![number(5, 1.0), number(6, 1.0)])),
            metric("s", "1", Data::Summary(Summary { data_points: vec![summary] })),
        ],
    )
}

#[test]
fn json() {
    let text = EVERYTHING_JSON;
    let decoded = Receiver::default().json(text).unwrap();
    let expected = [
        "req_total{job=shop,list=[1,true,0.1]} 5 5000",
        "g{job=shop} 0.30000000000000004 5000",
        "g{job=shop} NaN 6000",
        "h_sum{job=shop} 1 5000",
        "h_count{job=shop} 3 5000",
        "h_bucket{job=shop,le=1.5} 1 5000",
        "h_bucket{job=shop,le=+Inf} 3 5000",
        "target_info{job=shop,n=42} 1 6000",
    ];
    assert_eq!(rows(&decoded), expected);
    let e = &decoded.batch.exemplars[0];
    let labels: Vec<_> = Pairs::new(&e.labels).collect();
    assert_eq!(labels, [("span_id", "eee19b7ec3c1b174"), ("trace_id", "5b8efff798038103d269b633813fc60c")]);
    let h = &decoded.batch.histograms[0].histogram;
    assert_eq!((h.schema, &h.positive_spans[..]), (-1, &[Span { offset: -1, length: 2 }][..]));
}

#[test]
fn bad_json() {
    let r = Receiver::default();
    let check = |text: &str| assert!(r.json(text).is_err(), "{}", &text[..text.len().min(200)]);
    for text in
        ["", "[]", "1", "{", "{}x", "{\"resourceMetrics\":1}", "{\"resourceMetrics\":[1]}", "{\"resourceMetrics\":{}}"]
    {
        check(text);
    }
    let point = |fields: &str| {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"g","gauge":{{"dataPoints":[{{{fields}}}]}}}}]}}]}}]}}"#
        )
    };
    assert_eq!(r.json(&point(r#""asInt":"1","timeUnixNano":"5000000000""#)).unwrap().samples, 1);
    assert_eq!(r.json(&point(r#""asDouble":null,"timeUnixNano":"1""#)).unwrap().rejected[0].reason, Reason::NoValue);
    for fields in [
        r#""asInt":1.5"#,
        r#""asInt":"x""#,
        r#""asInt":"9223372036854775808""#,
        r#""asInt":1,"attributes":[{"key":"k","value":{"intValue":18446744073709551615}}]"#,
        r#""asDouble":"x""#,
        r#""asDouble":1e999"#,
        r#""timeUnixNano":true"#,
        r#""timeUnixNano":"99999999999999999999""#,
        r#""attributes":[{"key":5}]"#,
        r#""attributes":[null]"#,
        r#""asDouble":{}"#,
        r#""exemplars":[{"traceId":"xyz"}]"#,
    ] {
        check(&point(fields));
    }
    let deep = format!("{}{}", "{\"resourceMetrics\":[".repeat(100_000), "]}".repeat(100_000));
    assert_eq!(r.json(&deep).unwrap().samples, 0, "unknown keys are skipped however deep");
    let nested = |depth: usize| {
        let value =
            format!("{}{}{}", r#"{"arrayValue":{"values":["#.repeat(depth), r#"{"intValue":1}"#, "]}}".repeat(depth));
        point(&format!(r#""asInt":1,"timeUnixNano":"5000000000","attributes":[{{"key":"k","value":{value}}}]"#))
    };
    assert_eq!(r.json(&nested(10)).unwrap().samples, 1);
    check(&nested(30));
    check(&nested(100_000));
    let unknown = point(&format!("\"other\":{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    assert_eq!(r.json(&unknown).unwrap().rejected[0].reason, Reason::NoValue);
}

#[test]
fn cut_anywhere() {
    let metrics = vec![
        histogram(CUMULATIVE, vec![histogram_point(5, &[1, 2], &[1.0])]),
        exponential(DELTA, vec![exponential_point(5, 3, 0, &[1, 2])]),
        metric("g", "", Data::Gauge(Gauge { data_points: vec![number(5, 1.0)] })),
    ];
    let body = request(&SERVICE, metrics).encode_to_vec();
    for len in 1..body.len() {
        fuzz::fuzz_otlp_metrics(&body[..len]);
    }
    let r = Receiver::default();
    let ctx = Context { limits: Limits::default(), otlp: &r.options, delta: &r.delta, now_ms: 0, sender: None };
    assert!(otlp_metrics::decode(&body[..body.len() - 1], &ctx).is_err());
    assert!(otlp_metrics::decode(&[0x08, 1], &ctx).is_err(), "wrong wire type");
}

#[test]
fn amplification_is_bounded() {
    let resource = [("service.name", &*"x".repeat(1 << 20))];
    let gauge = |time| metric("g", "", Data::Gauge(Gauge { data_points: vec![number(time, 1.0); 500] }));
    let r = Receiver::default();
    let ctx = Context { limits: Limits::default(), otlp: &r.options, delta: &r.delta, now_ms: 0, sender: None };
    let check = |m: Metric| {
        let body = request(&resource, vec![m]).encode_to_vec();
        let kind = otlp_metrics::decode(&body, &ctx).unwrap_err().kind();
        assert_eq!(kind, quiver_types::ErrorKind::TooLarge);
    };
    check(gauge(5));
    let mut late = vec![number(9, 1.0)];
    late.extend(vec![number(5, 1.0); 500]);
    check(metric("d", "", sum(DELTA, true, late)));
    // Points without labels of their own are cheap to refuse, however many.
    let zero = request(&resource, vec![gauge(0)]).encode_to_vec();
    assert_eq!(otlp_metrics::decode(&zero, &ctx).unwrap().rejected[0].count, 500);
}

proptest! {
    #[test]
    fn mutated_bodies(flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), delta in any::<bool>()) {
        let temporality = if delta { DELTA } else { CUMULATIVE };
        let mut body = request(&SERVICE, vec![
            histogram(temporality, vec![histogram_point(5, &[1, 2], &[1.0])]),
            exponential(temporality, vec![exponential_point(5, 3, 0, &[1, 2]), exponential_point(6, 2, 0, &[1, 2])]),
            metric("g", "By/s", Data::Gauge(Gauge { data_points: vec![number(5, 1.0)] })),
            metric("r", "", sum(temporality, true, vec![number(5, 1.0), number(6, 1.0)])),
        ]).encode_to_vec();
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] = byte;
        }
        fuzz::fuzz_otlp_metrics(&body);
    }

    #[test]
    fn any_text(text in "[{}\\[\\]\",:a-z0-9\\\\.\n #=_+-]{0,60}") {
        fuzz::fuzz_otlp_json(text.as_bytes());
        fuzz::fuzz_exposition(text.as_bytes());
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for (_, target) in fuzz::TARGETS { target(&bytes); }
    }
}
