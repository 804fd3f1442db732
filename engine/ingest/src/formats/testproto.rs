//! Remote write messages for prost, against which the decoders are tested. Field numbers as in Prometheus 3.14
//! `prompb/types.proto` and `prompb/io/prometheus/write/v2/types.proto`.

#![allow(missing_docs, reason = "the names are those of the protocol")]
#![allow(unreachable_pub, reason = "prost derives public items")]

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
    /// Version 2.0 only.
    #[prost(int64, tag = "3")]
    pub start_timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub value: f64,
    #[prost(int64, tag = "3")]
    pub timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub count_int: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub count_float: Option<f64>,
    #[prost(double, tag = "3")]
    pub sum: f64,
    #[prost(sint32, tag = "4")]
    pub schema: i32,
    #[prost(double, tag = "5")]
    pub zero_threshold: f64,
    #[prost(uint64, optional, tag = "6")]
    pub zero_count_int: Option<u64>,
    #[prost(double, optional, tag = "7")]
    pub zero_count_float: Option<f64>,
    #[prost(message, repeated, tag = "8")]
    pub negative_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "9")]
    pub negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    pub negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    pub positive_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "12")]
    pub positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    pub positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    pub reset_hint: i32,
    #[prost(int64, tag = "15")]
    pub timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    pub custom_values: Vec<f64>,
    /// Version 2.0 only.
    #[prost(int64, tag = "17")]
    pub start_timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "4")]
    pub histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MetricMetadata {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub metric_family_name: String,
    #[prost(string, tag = "4")]
    pub help: String,
    #[prost(string, tag = "5")]
    pub unit: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Exemplar2 {
    #[prost(uint32, repeated, tag = "1")]
    pub labels_refs: Vec<u32>,
    #[prost(double, tag = "2")]
    pub value: f64,
    #[prost(int64, tag = "3")]
    pub timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Metadata2 {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(uint32, tag = "3")]
    pub help_ref: u32,
    #[prost(uint32, tag = "4")]
    pub unit_ref: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries2 {
    #[prost(uint32, repeated, tag = "1")]
    pub labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub histograms: Vec<Histogram>,
    #[prost(message, repeated, tag = "4")]
    pub exemplars: Vec<Exemplar2>,
    #[prost(message, optional, tag = "5")]
    pub metadata: Option<Metadata2>,
    #[prost(int64, tag = "6")]
    pub created_timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Request2 {
    #[prost(string, repeated, tag = "4")]
    pub symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub timeseries: Vec<TimeSeries2>,
}

/// Makes labels from pairs.
pub fn labels(pairs: &[(&str, &str)]) -> Vec<Label> {
    pairs.iter().map(|(name, value)| Label { name: (*name).to_owned(), value: (*value).to_owned() }).collect()
}

/// Makes a series of one sample.
pub fn series(pairs: &[(&str, &str)], samples: &[(i64, f64)]) -> TimeSeries {
    let samples = samples.iter().map(|&(timestamp, value)| Sample { value, timestamp, start_timestamp: 0 });
    TimeSeries { labels: labels(pairs), samples: samples.collect(), ..TimeSeries::default() }
}

/// Makes an integer histogram: buckets 1 and 2, 4 and one negative.
pub fn histogram(timestamp: i64) -> Histogram {
    Histogram {
        count_int: Some(12),
        sum: 3.5,
        schema: 3,
        zero_threshold: 1e-3,
        zero_count_int: Some(1),
        positive_spans: vec![BucketSpan { offset: 1, length: 2 }, BucketSpan { offset: 1, length: 1 }],
        positive_deltas: vec![5, -2, -1],
        negative_spans: vec![BucketSpan { offset: -2, length: 1 }],
        negative_deltas: vec![1],
        reset_hint: 2,
        timestamp,
        ..Histogram::default()
    }
}

/// A request of 1.0 with `series` series of one sample and ten labels, as a node exporter sends them.
pub fn scrape(series: usize) -> WriteRequest {
    let one = |i: usize| {
        let cpu = i.to_string();
        let pairs = [
            ("__name__", "node_cpu_seconds_total"),
            ("cluster", "production-eu-west-1"),
            ("cpu", cpu.as_str()),
            ("datacenter", "eu-west-1b"),
            ("env", "production"),
            ("instance", "ip-10-20-30-40.eu-west-1.compute.internal:9100"),
            ("job", "node-exporter"),
            ("mode", "iowait"),
            ("region", "eu-west-1"),
            ("team", "infrastructure"),
        ];
        self::series(&pairs, &[(1_700_000_000_000 + i as i64, i as f64 * 0.5)])
    };
    WriteRequest { timeseries: (0..series).map(one).collect(), metadata: vec![] }
}
