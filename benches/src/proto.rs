//! Bodies on the wire, made by `prost` from messages of its own: remote write 1.0 and 2.0, OTLP metrics. The same
//! messages decode as the peer that our decoders are measured beside.
//!
//! Source: Prometheus `prompb/types.proto` and `prompb/io/prometheus/write/v2/types.proto`, the fields in use here.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use crate::data::{METRIC, REQUEST_SERIES, labels, time_ms, value};

/// A label of remote write 1.0.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A sample of either version.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    /// Value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Unix milliseconds.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// A series of remote write 1.0.
#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    /// Labels.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Samples.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

/// A request of remote write 1.0.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// Series.
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

/// A series of remote write 2.0.
#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries2 {
    /// References into the symbols: name, value, name, value …
    #[prost(uint32, repeated, tag = "1")]
    pub labels_refs: Vec<u32>,
    /// Samples.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

/// A request of remote write 2.0.
#[derive(Clone, PartialEq, Message)]
pub struct Request2 {
    /// Symbols; the first is empty.
    #[prost(string, repeated, tag = "4")]
    pub symbols: Vec<String>,
    /// Series.
    #[prost(message, repeated, tag = "5")]
    pub timeseries: Vec<TimeSeries2>,
}

fn samples(series: usize, first_round: usize, rounds: usize) -> Vec<Sample> {
    let rounds = first_round..first_round + rounds;
    rounds.map(|r| Sample { value: value(series, r), timestamp: time_ms(r) }).collect()
}

fn snappy(raw: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(raw).expect("small enough")
}

/// Makes a body of remote write 1.0 of [`REQUEST_SERIES`] series.
pub fn remote_write(first_series: usize, first_round: usize, rounds: usize) -> Vec<u8> {
    let series = (first_series..first_series + REQUEST_SERIES).map(|n| TimeSeries {
        labels: labels(n).into_iter().map(|(name, value)| Label { name: name.to_owned(), value }).collect(),
        samples: samples(n, first_round, rounds),
    });
    snappy(&WriteRequest { timeseries: series.collect() }.encode_to_vec())
}

/// Makes a body of remote write 2.0 of [`REQUEST_SERIES`] series.
pub fn remote_write2(first_series: usize, first_round: usize, rounds: usize) -> Vec<u8> {
    let mut symbols = vec![String::new()];
    let mut known = std::collections::HashMap::new();
    let mut timeseries = Vec::new();
    for n in first_series..first_series + REQUEST_SERIES {
        let mut labels_refs = Vec::new();
        for text in labels(n).into_iter().flat_map(|(name, value)| [name.to_owned(), value]) {
            let next = symbols.len() as u32;
            labels_refs.push(*known.entry(text).or_insert_with_key(|text: &String| {
                symbols.push(text.clone());
                next
            }));
        }
        timeseries.push(TimeSeries2 { labels_refs, samples: samples(n, first_round, rounds) });
    }
    snappy(&Request2 { symbols, timeseries }.encode_to_vec())
}

fn attribute((key, value): (&str, String)) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value)) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// Makes an OTLP request of one counter with a point for each of [`REQUEST_SERIES`] series.
pub fn otlp(first_series: usize, round: usize) -> Vec<u8> {
    let point = |n: usize| NumberDataPoint {
        attributes: labels(n)
            .into_iter()
            .filter(|(name, _)| !matches!(*name, "__name__" | "job"))
            .map(attribute)
            .collect(),
        time_unix_nano: time_ms(round) as u64 * 1_000_000,
        value: Some(Value::AsDouble(value(n, round))),
        ..NumberDataPoint::default()
    };
    let data_points = (first_series..first_series + REQUEST_SERIES).map(point).collect();
    let sum = Sum { data_points, aggregation_temporality: 2, is_monotonic: true };
    let metric = Metric { name: METRIC.to_owned(), data: Some(Data::Sum(sum)), ..Metric::default() };
    let resource = Resource { attributes: vec![attribute(("service.name", "api".to_owned()))], ..Resource::default() };
    let scope_metrics = vec![ScopeMetrics { metrics: vec![metric], ..ScopeMetrics::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource: Some(resource), scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}
