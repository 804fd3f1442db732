//! Hostile span bodies: bombs, depth, long texts, unusual ids. Each is accepted or refused within a memory limit.

use quiver_ingest::Encoding;
use quiver_ingest::traces::{DecodedSpans, TraceContext, TraceFormat, decode};
use quiver_types::{Access, Error, ErrorKind};

use crate::drive::allocated_by;
use quiver_tests::bombs::packed;

const MIB: u64 = 1 << 20;
const IDS: &str = r#""traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","startTimeUnixNano":"1544712660000000000""#;

fn run(format: TraceFormat, encoding: Option<&str>, body: &[u8]) -> Result<DecodedSpans, Error> {
    let access = Access::full();
    let ctx = TraceContext {
        body_bytes_max: 64 << 20,
        batch_bytes_max: 128 << 20,
        now_ns: 1_700_000_000_000_000_000,
        earliest_ns: 1,
        latest_ns: i64::MAX,
        access: &access,
    };
    decode(format, encoding, body, &ctx, &mut |_| true).map_err(Error::from)
}

#[test]
fn bombs() {
    for (encoding, of) in [("gzip", Encoding::Gzip), ("zstd", Encoding::Zstd), ("deflate", Encoding::Deflate)] {
        let body = packed(of, &vec![b' '; 1 << 16], 2_000);
        for format in TraceFormat::ALL {
            let mut kind = None;
            let bytes = allocated_by(|| kind = run(format, Some(encoding), &body).err().map(|e| e.kind()));
            assert_eq!(kind, Some(ErrorKind::TooLarge), "{encoding} {format:?}");
            assert!(bytes < 256 * MIB, "{encoding} {format:?}: {bytes} bytes");
        }
    }
    for encoding in ["br", "identity;x", "snappyy"] {
        assert!(run(TraceFormat::OtlpJson, Some(encoding), b"{}").is_err(), "{encoding}");
    }
}

#[test]
fn depth() {
    let n = 1_000_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), (r#"{"arrayValue":{"values":["#, "]}}")] {
        let value = format!("{}1{}", open.repeat(n / open.len()), close.repeat(n / open.len()));
        let bodies = [
            format!(r#"{{"resourceSpans":{value}}}"#),
            format!(r#"{{"resourceSpans":[{{"unknown":{value}}}]}}"#),
            format!(
                r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{IDS},"attributes":[{{"key":"k","value":{value}}}]}}]}}]}}]}}"#
            ),
            format!(r#"[{{"traceId":"1","id":"2","tags":{value}}}]"#),
            format!(r#"{{"format":"trace/1","traceId":"1","spans":[{{"spanId":"2","tags":{value}}}]}}"#),
            value,
        ];
        for (i, body) in bodies.iter().enumerate() {
            for format in TraceFormat::ALL {
                let bytes = allocated_by(|| drop(run(format, None, body.as_bytes())));
                assert!(bytes < 256 * MIB, "{open} {i} {format:?}: {bytes} bytes");
            }
        }
    }
    // Values within values, as protobuf.
    let mut inner = Vec::new();
    for _ in 0..20_000 {
        let mut list = Vec::new();
        quiver_tests::bodies::field(&mut list, 1, &inner);
        inner.clear();
        quiver_tests::bodies::field(&mut inner, 5, &list);
    }
    let wrap = |number, inner: &[u8]| {
        let mut out = Vec::new();
        quiver_tests::bodies::field(&mut out, number, inner);
        out
    };
    let body = wrap(1, &wrap(2, &wrap(2, &wrap(9, &[wrap(1, b"k"), wrap(2, &inner)].concat()))));
    assert!(run(TraceFormat::Otlp, None, &body).is_err());
}

#[test]
fn texts() {
    let span = |more: &str| format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{IDS}{more}}}]}}]}}]}}"#);
    // 40 MiB in one value: the span is too large, the request is not.
    let long = span(&format!(r#","name":"{}""#, "x".repeat(40 << 20)));
    let mut taken = None;
    let bytes = allocated_by(|| taken = run(TraceFormat::OtlpJson, None, long.as_bytes()).ok());
    assert_eq!(taken.map(|d| (d.batch.len(), d.refused.len())), Some((0, 1)));
    assert!(bytes < 256 * MIB, "{bytes} bytes");
    // Doubled keys, half of a pair, a zero character.
    for (more, taken) in [
        (r#","name":"a","name":"b""#, true),
        (r#","name":"\ud800""#, true),
        (r#","name":"\u0000""#, true),
        (",\"name\":\"\u{1}\"", false),
    ] {
        let decoded = run(TraceFormat::OtlpJson, None, span(more).as_bytes());
        assert!(decoded.is_ok() || !taken, "{more}");
    }
    // Many names.
    let tags: Vec<String> = (0..200_000).map(|i| format!(r#"{{"key":"k{i}","value":{{"intValue":1}}}}"#)).collect();
    let wide = span(&format!(r#","attributes":[{}]"#, tags.join(",")));
    let bytes = allocated_by(|| drop(run(TraceFormat::OtlpJson, None, wide.as_bytes())));
    assert!(bytes < 256 * MIB, "{bytes} bytes");
}

#[test]
fn ids() {
    let taken = |format, body: String| run(format, None, body.as_bytes()).map(|d| d.batch.len());
    let otlp = |trace: &str, span: &str| {
        let body = format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{trace}","spanId":"{span}","startTimeUnixNano":"5"}}]}}]}}]}}"#
        );
        taken(TraceFormat::OtlpJson, body)
    };
    let (trace, span) = ("5B8EFFF798038103d269b633813fc60c", "EEE19b7ec3c1b174");
    assert_eq!(otlp(trace, span).expect("taken"), 1);
    for (trace, span) in [
        ("", span),
        ("5b8efff79803810", span),
        (&format!("{trace}0"), span),
        (&"0".repeat(32), span),
        (&"g".repeat(32), span),
        (&"é".repeat(16), span),
        (trace, ""),
        (trace, "12"),
        (trace, &"0".repeat(16)),
        (trace, "not hex digits!!"),
    ] {
        assert!(matches!(otlp(trace, span), Ok(0) | Err(_)), "{trace} {span}");
    }
    let zipkin = |trace: &str, span: &str| {
        taken(TraceFormat::Zipkin, format!(r#"[{{"traceId":"{trace}","id":"{span}","timestamp":5}}]"#))
    };
    assert_eq!(zipkin("A", "1").expect("padded"), 1);
    for (trace, span) in [("", "1"), ("0", "1"), ("g", "1"), ("1", ""), ("1", "0"), ("1", &"1".repeat(17))] {
        assert!(matches!(zipkin(trace, span), Ok(0) | Err(_)), "{trace} {span}");
    }
    assert!(matches!(zipkin(&"1".repeat(33), "1"), Ok(0) | Err(_)));
}
