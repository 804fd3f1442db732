//! Fuzz targets: arbitrary bytes for each parser. None may panic or exceed a memory limit, and the batches they return
//! must satisfy the invariants that the store relies on.

use std::sync::{Arc, Mutex};

use quiver_types::label::Pairs;
use quiver_types::logs::{STREAM, STREAM_ID, TIME};
use quiver_types::spans::read_spans;
use quiver_types::{Access, LogsBatch, MetricsBatch, SeriesId};

use crate::content_encoding::{self, Encoding};
use crate::context::{Context, Limits};
use crate::exposition::{ExpositionDecoder, ExpositionOptions};
use crate::formats::{Format, otlp_json, otlp_metrics, remote_write, remote_write2};
use crate::logs::saas::UrlFields;
use crate::logs::{self, DecodedLogs, FieldOptions, Journal, JsonLines, LogsContext, LogsLimits};
use crate::otlp::{DeltaMode, DeltaState, OtlpOptions, PromotedAttributes};
use crate::traces::{self, TraceContext, TraceFormat};

/// A target: its name, and what reads bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets by name.
pub const TARGETS: &[Target] = &[
    ("remote_write", fuzz_remote_write),
    ("remote_write2", fuzz_remote_write2),
    ("otlp_metrics", fuzz_otlp_metrics),
    ("otlp_json", fuzz_otlp_json),
    ("otlp_traces", fuzz_otlp_traces),
    ("otlp_traces_json", fuzz_otlp_traces_json),
    ("zipkin", fuzz_zipkin),
    ("zipkin_proto", fuzz_zipkin_proto),
    ("trace1", fuzz_trace1),
    ("exposition", fuzz_exposition),
    ("codec", fuzz_codec),
    ("inflate", fuzz_inflate),
    ("logs_lines", fuzz_logs_lines),
    ("logs_bulk", fuzz_logs_bulk),
    ("logs_push_json", fuzz_logs_push_json),
    ("logs_push", fuzz_logs_push),
    ("logs_saas", fuzz_logs_saas),
    ("logs_events", fuzz_logs_events),
    ("logs_event_lines", fuzz_logs_event_lines),
    ("logs_journal", fuzz_logs_journal),
    ("logs_otlp", fuzz_logs_otlp),
    ("logs_otlp_json", fuzz_logs_otlp_json),
];

/// Remote write 1.0, decompressed.
pub fn fuzz_remote_write(body: &[u8]) {
    decode(&remote_write::FORMAT, body);
}

/// Remote write 2.0, decompressed.
pub fn fuzz_remote_write2(body: &[u8]) {
    decode(&remote_write2::FORMAT, body);
}

/// OTLP metrics, protobuf.
pub fn fuzz_otlp_metrics(body: &[u8]) {
    decode(&otlp_metrics::FORMAT, body);
}

/// OTLP metrics, JSON.
pub fn fuzz_otlp_json(body: &[u8]) {
    decode(&otlp_json::FORMAT, body);
}

/// OTLP spans, protobuf.
pub fn fuzz_otlp_traces(body: &[u8]) {
    decode_spans(TraceFormat::Otlp, body);
}

/// OTLP spans, JSON.
pub fn fuzz_otlp_traces_json(body: &[u8]) {
    decode_spans(TraceFormat::OtlpJson, body);
}

/// Zipkin v2, JSON.
pub fn fuzz_zipkin(body: &[u8]) {
    decode_spans(TraceFormat::Zipkin, body);
}

/// Zipkin v2, protobuf.
pub fn fuzz_zipkin_proto(body: &[u8]) {
    decode_spans(TraceFormat::ZipkinProto, body);
}

/// The internal JSON of a trace.
pub fn fuzz_trace1(body: &[u8]) {
    decode_spans(TraceFormat::Internal, body);
}

/// Decodes, and checks what the store and its readers rely on.
fn decode_spans(format: TraceFormat, body: &[u8]) {
    let access = Access::full();
    let ctx = TraceContext {
        body_bytes_max: 1 << 20,
        batch_bytes_max: 4 << 20,
        now_ns: 1_700_000_000_000_000_000,
        earliest_ns: 1,
        latest_ns: i64::MAX,
        access: &access,
    };
    let Ok(decoded) = traces::decode(format, None, body, &ctx, &mut |_| true) else { return };
    assert!(decoded.batch.is_sound(), "spans refer to contexts that are there");
    let mut spans = Vec::new();
    read_spans(&decoded.batch.flat(), &mut spans).expect("a batch has all columns");
    assert_eq!(spans.len(), decoded.batch.len(), "no span is lost");
    for span in &spans {
        assert!(span.start > 0 && span.end >= span.start, "times are in order");
        assert!(span.trace_id != [0; 16] && span.span_id != [0; 8], "ids are there");
        let keys: Vec<&str> = span.attributes.iter().map(|(key, _)| key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b) && !keys.contains(&"error"), "keys are sorted and unique");
        span.attributes.iter().for_each(|(_, value)| drop(value.text()));
    }
}

/// Exposition text, in one piece and cut in two: the outcome must be the same.
pub fn fuzz_exposition(body: &[u8]) {
    for open_metrics in [false, true] {
        let run = |chunks: &[&[u8]]| {
            let options = ExpositionOptions { open_metrics, now_ms: 1, ..ExpositionOptions::default() };
            let mut decoder = ExpositionDecoder::new(options);
            for chunk in chunks {
                decoder.feed(chunk).expect("inputs are small");
            }
            let decoded = decoder.finish().expect("inputs are small");
            check(&decoded.batch);
            (decoded.samples, decoded.batch.label_bytes, decoded.rejected)
        };
        let (head, tail) = body.split_at(body.len() / 2);
        assert_eq!(run(&[body]), run(&[head, tail]), "chunks change nothing");
    }
}

/// All encodings, with a small limit.
pub fn fuzz_codec(body: &[u8]) {
    for encoding in [Encoding::Snappy, Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
        if let Ok(out) = content_encoding::decompress(encoding, body, 1 << 20, &mut |_| true) {
            assert!(out.len() <= 1 << 20, "the limit holds");
        }
    }
}

/// All encodings in two pieces, with a small buffer.
pub fn fuzz_inflate(body: &[u8]) {
    for encoding in [Encoding::Snappy, Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
        let mut inflate = content_encoding::Inflate::new(encoding, 1 << 20);
        let (head, tail) = body.split_at(body.len() / 2);
        let mut buffer = [0; 512];
        let mut drain = |inflate: &mut content_encoding::Inflate| {
            while let Ok(Some(len)) = inflate.read(&mut buffer) {
                if len == 0 {
                    break;
                }
            }
        };
        for piece in [head, tail] {
            if inflate.push(bytes::Bytes::copy_from_slice(piece)).is_err() {
                return;
            }
            drain(&mut inflate);
        }
        if inflate.end(&mut |_| true).is_ok() {
            drain(&mut inflate);
        }
    }
}

/// Contexts with and without parameters.
fn log_contexts() -> [LogsContext; 2] {
    let context = |options| LogsContext {
        options: Arc::new(options),
        limits: LogsLimits { batch_bytes: 1 << 12, total_bytes_max: 4 << 20, ..LogsLimits::default() },
        now_ns: 1_700_000_000_000_000_000,
        future_max_ns: 1_800_000_000_000_000_000,
        sender: None,
    };
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let options = FieldOptions {
        time: Some(names(&["t", "time.at", "_time"])),
        msg: Some(names(&["message", "a.b", "x"])),
        stream: Some(names(&["app", "env", "host.name"])),
        ignore: names(&["ig*", "x"]),
        extra: vec![("env".to_owned(), "e".to_owned())],
        service: Arc::from(names(&["service.name", "app"])),
        keep_messages: true,
        message_prefix: String::new(),
        decolorize: names(&["", "c*"]),
        preserve: names(&["a"]),
        default_msg: "none".into(),
    };
    let service = Arc::from(names(&["app"]));
    let prefixed = FieldOptions { service, message_prefix: "in.".to_owned(), ..FieldOptions::default() };
    [context(prefixed), context(options)]
}

fn check_batches(batches: &[LogsBatch]) {
    batches.iter().for_each(check_logs);
}

/// JSON lines, in one piece and in two: the outcome must be the same.
pub fn fuzz_logs_lines(body: &[u8]) {
    for ctx in log_contexts() {
        let run = |pieces: &[&[u8]]| {
            let mut lines = JsonLines::new(&ctx);
            for piece in pieces {
                lines.feed(piece);
            }
            lines.finish();
            let batches = lines.rows.take_all();
            check_batches(&batches);
            let rows = batches.iter().flat_map(|b| (0..b.len()).map(|i| format!("{:?}", b.row(i).collect::<Vec<_>>())));
            (rows.collect::<Vec<_>>(), lines.rows.report)
        };
        let (head, tail) = body.split_at(body.len() / 3);
        assert_eq!(run(&[body]), run(&[head, tail]), "pieces change nothing");
    }
}

/// Log records in the bulk format of a search engine.
pub fn fuzz_logs_bulk(body: &[u8]) {
    for ctx in log_contexts() {
        let mut bulk = logs::bulk::Bulk::new(&ctx);
        let whole = bulk.feed(body).and_then(|()| bulk.finish()).is_ok();
        check_batches(&bulk.take_all());
        if whole {
            let answer: String = bulk.into_answer(1).collect();
            assert!(serde_json::from_str::<serde_json::Value>(&answer).is_ok(), "the answer is JSON: {answer}");
        }
    }
}

fn whole(decode: impl Fn(&LogsContext) -> crate::Result<DecodedLogs>) {
    for ctx in log_contexts() {
        if let Ok(decoded) = decode(&ctx) {
            check_batches(&decoded.batches);
            let rows: usize = decoded.batches.iter().map(LogsBatch::len).sum();
            assert_eq!(rows as u64, decoded.report.rows, "rows are counted");
        }
    }
}

/// Push of an aggregator, JSON.
pub fn fuzz_logs_push_json(body: &[u8]) {
    whole(|ctx| logs::push::decode_json(body, ctx));
}

/// Push of an aggregator, protobuf.
pub fn fuzz_logs_push(body: &[u8]) {
    whole(|ctx| logs::push::decode_protobuf(body, ctx));
}

/// The SaaS intake.
pub fn fuzz_logs_saas(body: &[u8]) {
    let fields = vec![("service", "s".to_owned())];
    let url = UrlFields { ddtags: Some("a:b".to_owned()), fields, ..UrlFields::default() };
    whole(|ctx| logs::saas::decode(body, &url, ctx));
}

/// Events one after the other.
pub fn fuzz_logs_events(body: &[u8]) {
    whole(|ctx| logs::events::decode(body, ctx));
}

/// Lines that are events.
pub fn fuzz_logs_event_lines(body: &[u8]) {
    whole(|ctx| logs::events::decode_lines(body, [("host".to_owned(), "h".to_owned())], ctx));
}

/// Entries of a journal, in one piece and in two: the outcome must be the same.
pub fn fuzz_logs_journal(body: &[u8]) {
    for ctx in log_contexts() {
        let run = |pieces: &[&[u8]]| {
            let mut journal = Journal::new(&ctx);
            let read = pieces.iter().try_for_each(|piece| journal.feed(piece)).and_then(|()| journal.finish());
            let batches = journal.rows.take_all();
            check_batches(&batches);
            let rows = batches.iter().flat_map(|b| (0..b.len()).map(|i| format!("{:?}", b.row(i).collect::<Vec<_>>())));
            (rows.collect::<Vec<_>>(), read.is_ok(), journal.rows.report)
        };
        let (head, tail) = body.split_at(body.len() / 3);
        assert_eq!(run(&[body]), run(&[head, tail]), "pieces change nothing");
    }
}

/// OTLP logs, protobuf.
pub fn fuzz_logs_otlp(body: &[u8]) {
    whole(|ctx| logs::otlp::decode(body, ctx));
}

/// OTLP logs, JSON.
pub fn fuzz_logs_otlp_json(body: &[u8]) {
    whole(|ctx| logs::otlp::decode_json(body, 4 << 20, ctx));
}

fn decode(format: &Format, body: &[u8]) {
    let limits = Limits { body_bytes_max: 1 << 20, batch_bytes_max: 4 << 20, ..Limits::default() };
    for settings in 0..2 {
        let options = OtlpOptions {
            delta: if settings == 0 { DeltaMode::Accumulate } else { DeltaMode::Raw },
            native_custom_buckets: settings == 1,
            scope_labels: settings == 1,
            promoted: PromotedAttributes::of(&["host.*".to_owned()]),
        };
        let delta = Mutex::new(DeltaState::new(1 << 20, 1000));
        let ctx = Context { limits, otlp: &options, delta: &delta, now_ms: 1_700_000_000_000, sender: None };
        if let Ok(decoded) = (format.decode)(body, &ctx) {
            check(&decoded.batch);
        }
    }
}

/// Checks what the store relies on.
///
/// # Panics
/// When a decoder broke the contract of [`MetricsBatch`].
pub fn check(batch: &MetricsBatch) {
    let samples = batch.ts.len();
    assert!(batch.values.len() == samples && batch.sample_series.len() == samples, "columns are equally long");
    assert!(batch.start_ts.is_empty() || batch.start_ts.len() == samples, "start times are all or none");
    let series = batch.sample_series.iter().copied();
    let series =
        series.chain(batch.histograms.iter().map(|h| h.series)).chain(batch.exemplars.iter().map(|e| e.series));
    assert!(series.into_iter().all(|s| (s as usize) < batch.series.len()), "series numbers are known");
    for (i, series) in batch.series.iter().enumerate() {
        let labels = batch.labels(i as u32);
        assert_eq!(series.id, SeriesId::of(labels), "the id is the hash");
        check_labels(labels);
        assert!(Pairs::new(labels).any(|(name, _)| name == "__name__"), "a series has a metric name");
    }
    batch.exemplars.iter().for_each(|e| check_labels(&e.labels));
    assert!(batch.metadata.iter().all(|m| !m.metric.is_empty()), "metadata names its metric");
}

/// Checks what the store relies on.
///
/// # Panics
/// When a decoder broke the contract of [`LogsBatch`].
pub fn check_logs(batch: &LogsBatch) {
    let (rows, fields) = (batch.len(), batch.field_names.len());
    assert!(rows == batch.row_streams.len() && rows == batch.row_services.len() && rows == batch.field_ends.len());
    assert!(batch.severity.is_empty() || batch.severity.len() == rows, "severities are all or none");
    assert!(batch.observed.is_empty() || batch.observed.len() == rows, "times of observation are all or none");
    assert_eq!(batch.field_ends.last().map_or(0, |e| *e as usize), fields, "rows hold all fields");
    assert_eq!(batch.value_ends.len(), fields, "fields have names and values");
    assert_eq!(batch.value_ends.last().map_or(0, |e| *e as usize), batch.values.len(), "fields hold all values");
    let mut names: Vec<&str> = batch.names.iter().map(|n| &**n).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|w| w[0] != w[1]), "names stand once");
    assert!(names.iter().all(|n| !n.is_empty() && ![TIME, STREAM, STREAM_ID].contains(n)), "names can be stored");
    assert!(batch.row_services.iter().all(|s| (*s as usize) < batch.services.len()), "services are known");
    for stream in 0..batch.streams.len() as u32 {
        assert_eq!(batch.streams[stream as usize].id, SeriesId::of(batch.labels(stream)), "the id is the hash");
        check_labels(batch.labels(stream));
    }
    for row in 0..rows {
        assert!((batch.row_streams[row] as usize) < batch.streams.len(), "streams are known");
        let mut names: Vec<&str> = batch.row(row).map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(!names.is_empty() && names.windows(2).all(|w| w[0] != w[1]), "names of a row are unique");
    }
    let mut start = 0;
    for end in &batch.value_ends {
        let value = &batch.values[start..*end as usize];
        assert!(!value.is_empty() && std::str::from_utf8(value).is_ok(), "values are text and not empty");
        start = *end as usize;
    }
}

/// Cuts text into lines as the line formats do; `ended`: the body came to its end.
pub fn lines(body: &[u8], ended: bool) -> Vec<String> {
    logs::cut_lines(body, ended)
}

fn check_labels(labels: &[u8]) {
    let mut again = Vec::with_capacity(labels.len());
    let mut last = "";
    for (i, (name, value)) in Pairs::new(labels).enumerate() {
        assert!(!name.is_empty() && !value.is_empty(), "no empty names and values");
        assert!(i == 0 || last < name, "names are sorted and unique");
        last = name;
        quiver_types::label::push_pair(&mut again, name, value);
    }
    assert_eq!(again, labels, "labels are canonical");
}

#[cfg(test)]
mod tests;
