//! A seeded mutation loop over all targets, from bodies that reach deep into each parser.
//!
//! A second by default; `QUIVER_FUZZ_SECONDS=20 QUIVER_FUZZ_SEED=7` for more, per target. A failure prints the seed and
//! the input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use prost::Message;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::TARGETS;
use crate::formats::testproto as proto;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Bodies from which mutation starts.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    match target {
        "remote_write" => {
            let mut request = proto::scrape(2);
            request.timeseries[0].histograms = vec![proto::histogram(1)];
            let labels = proto::labels(&[("trace_id", "abc")]);
            request.timeseries[0].exemplars = vec![proto::Exemplar { labels, value: 1.0, timestamp: 1 }];
            request.metadata = vec![proto::MetricMetadata { kind: 1, metric_family_name: "m".into(), ..Default::default() }];
            vec![request.encode_to_vec(), proto::scrape(1).encode_to_vec()]
        }
        "remote_write2" => {
            let series = proto::TimeSeries2 {
                labels_refs: vec![1, 2, 3, 4],
                samples: vec![proto::Sample { value: 1.0, timestamp: 1, start_timestamp: 1 }],
                histograms: vec![proto::histogram(1)],
                exemplars: vec![proto::Exemplar2 { labels_refs: vec![3, 4], value: 1.0, timestamp: 1 }],
                metadata: Some(proto::Metadata2 { kind: 3, help_ref: 3, unit_ref: 4 }),
                created_timestamp: 1,
            };
            let symbols = ["", "__name__", "m", "a", "b"].map(str::to_owned).to_vec();
            vec![proto::Request2 { symbols, timeseries: vec![series.clone(), series] }.encode_to_vec()]
        }
        "otlp_metrics" => vec![crate::otlp::tests::everything().encode_to_vec()],
        "otlp_json" => vec![crate::otlp::tests::EVERYTHING_JSON.as_bytes().to_vec()],
        "otlp_traces" => {
            let json = crate::traces::tests::EVERYTHING_JSON.as_bytes();
            vec![crate::traces::tests::to_protobuf(json)]
        }
        "otlp_traces_json" => vec![crate::traces::tests::EVERYTHING_JSON.as_bytes().to_vec()],
        "zipkin" => vec![crate::traces::tests::ZIPKIN_JSON.as_bytes().to_vec()],
        "zipkin_proto" => vec![crate::traces::tests::zipkin_proto()],
        "trace1" => vec![crate::traces::tests::TRACE1_JSON.as_bytes().to_vec()],
        "exposition" => vec![
            b"# TYPE a counter\n# HELP a b\\n\na_total{b=\"c\\\"\",d=\"e\"} 1 2 # {t=\"u\"} 3 4\n{\"x.y\",z=\"\"} NaN\n# EOF".to_vec(),
        ],
        "logs_lines" => vec![
            br#"{"_time":"2025-03-10T09:46:40.5Z","_msg":"a \"b\" \u00e9\ud83d\ude00","n":2.50,"o":{"k":{"z":"v"}},"arr":[1, "x",{"q":null}]}
{"t":1741600000,"message":"m","app":"a","host":{"name":"h"},"igx":true,"_stream":"{a=\"b\"}","app":"c"}

{"time":{"at":"2025-03-10 09:46:40+01:00"},"x":"y","":"e","a":{"b":"-","":{}}}"#
                .to_vec(),
        ],
        "logs_bulk" => vec![
            br#"{"create":{"_index":"i"}}
{"_msg":"m","_time":"2025-03-10"}
{"delete":{"_id":"1"}}
{"index":{}}
{"a":{"b":[1,2]}}
"#
            .to_vec(),
        ],
        "logs_push_json" => vec![
            br#"{"streams":[{"stream":{"app":"x","e":"p"},"values":[["1741600000000000000","l"],["1","{\"a\":1}",{"k":"v"}]]}]}"#
                .to_vec(),
        ],
        "logs_push" => {
            let entry = b"\x12\x17\x0a\x06\x08\x80\xea\xba\xbe\x06\x12\x05hello\x1a\x06\x0a\x01k\x12\x01v";
            let mut stream = vec![];
            crate::wire::put_bytes(&mut stream, 1, br#"{app="x", e="p\n"}"#);
            stream.extend_from_slice(entry);
            let mut body = vec![];
            crate::wire::put_bytes(&mut body, 1, &stream);
            vec![body]
        }
        "logs_saas" => vec![
            br#"[{"ddsource":"n","ddtags":"env:prod,x,:y,a:b:c","message":{"message":"m"},"timestamp":1741600000000,"o":{"a":[1]}},{"message":"z"}]"#
                .to_vec(),
        ],
        "logs_events" => vec![
            br#"{"time":1741600000.5,"host":"h","event":"a","fields":{"x":"y"}}{"event":{"message":"b","o":[1]}} {"event":null}"#
                .to_vec(),
        ],
        "logs_event_lines" => vec![b"a\r\n{\"b\":1}\n\n c".to_vec()],
        "logs_journal" => vec![
            b"__REALTIME_TIMESTAMP=1741600000000000\nPRIORITY=4\nMESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n_HOSTNAME=h\n\nMESSAGE=m\n__X=y\n\nN=1"
                .to_vec(),
        ],
        "logs_otlp" => vec![crate::logs::otlp_example().encode_to_vec()],
        "logs_otlp_json" => vec![
            br#"{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"stringValue":"b"}}]},"scopeLogs":[{"scope":{"name":"l"},
"logRecords":[{"timeUnixNano":"5","severityNumber":9,"body":{"kvlistValue":{"values":[{"key":"k","value":{"arrayValue":{"values":[{"intValue":"1"}]}}}]}},
"traceId":"0102","attributes":[{"key":"x","value":{"doubleValue":0.5}}]}]}]}]}"#
                .to_vec(),
        ],
        _ => vec![
            snap::raw::Encoder::new().compress_vec(&[7; 500]).unwrap(),
            zstd::stream::encode_all(&[7; 500][..], 1).unwrap(),
            vec![0x78, 0x9c, 0x4b, 0x4c, 0x04, 0x02, 0x00, 0x02, 0x49, 0x01, 0x24],
            vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x4c, 4, 2, 0],
        ],
    }
}

/// Changes a body at a few places: bytes set, bits flipped, pieces cut, doubled or moved.
fn mutate(body: &mut Vec<u8>, rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..=6) {
        if body.is_empty() {
            body.push(rng.random());
        }
        let at = rng.random_range(0..body.len());
        let len = rng.random_range(0..=(body.len() - at).min(40));
        match rng.random_range(0..7) {
            0 => body[at] = rng.random(),
            1 => body[at] ^= 1 << rng.random_range(0..8),
            2 => body[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            3 => drop(body.drain(at..at + len)),
            4 => body.insert(at, rng.random()),
            5 if body.len() < 10_000 => {
                let piece = body[at..at + len].to_vec();
                let to = rng.random_range(0..=body.len());
                body.splice(to..to, piece);
            }
            _ => body.truncate(at.max(1)),
        }
    }
}

#[test]
fn mutation_loop() {
    let seconds = Duration::from_millis(number("QUIVER_FUZZ_SECONDS", 0) * 1000).max(Duration::from_millis(300));
    let seed = number("QUIVER_FUZZ_SEED", 1);
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        let mut rng = StdRng::seed_from_u64(seed);
        let start = Instant::now();
        while start.elapsed() < seconds {
            let mut body = corpus[rng.random_range(0..corpus.len())].clone();
            mutate(&mut body, &mut rng);
            // What hangs by itself does so each time, whatever else the machine does.
            let ends = (0..4).any(|_| {
                let began = Instant::now();
                let outcome = catch_unwind(AssertUnwindSafe(|| target(&body)));
                assert!(outcome.is_ok(), "target {name}, seed {seed}: a panic on {body:x?}");
                began.elapsed() < Duration::from_secs(1)
            });
            assert!(ends, "target {name}, seed {seed}: a hang on {body:x?}");
        }
    }
}
