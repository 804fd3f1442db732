//! Hostile log bodies: bombs, depth, long texts, many names. Each is accepted or refused within a memory limit.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use quiver_ingest::content_encoding::Inflate;
use quiver_ingest::logs::{FieldOptions, JsonLines, LogsContext, LogsLimits, bulk, otlp, push, saas};
use quiver_ingest::{Encoding, Error};
use quiver_types::ErrorKind;

use crate::drive::allocated_by;
use quiver_tests::bombs::packed;

const MIB: u64 = 1 << 20;

fn context() -> LogsContext {
    LogsContext {
        options: Arc::new(FieldOptions::default()),
        limits: LogsLimits::default(),
        now_ns: 1,
        future_max_ns: i64::MAX,
        sender: None,
    }
}

/// Streams a body into the decoder of lines; gives rows taken and the outcome.
fn stream(encoding: Encoding, body: &[u8]) -> (u64, Result<(), Error>) {
    let (mut inflate, mut lines) = (Inflate::new(encoding, 64 << 20), JsonLines::new(&context()));
    let mut buffer = vec![0; 64 << 10];
    let mut run = || {
        let mut chunks = body.chunks(4096);
        loop {
            match chunks.next() {
                Some(chunk) => inflate.push(Bytes::copy_from_slice(chunk))?,
                None => inflate.end(&mut |_| true)?,
            }
            while let Some(len) = inflate.read(&mut buffer)? {
                if len == 0 {
                    lines.finish();
                    return Ok(());
                }
                lines.feed(&buffer[..len]);
                lines.rows.take_full();
            }
        }
    };
    let outcome = run();
    (lines.rows.report.rows, outcome)
}

#[test]
fn bombs() {
    let line = b"{\"_msg\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}\n".repeat(1000);
    for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
        for piece in [vec![0u8; 64 << 10], vec![b'\n'; 64 << 10], line.clone()] {
            let body = packed(encoding, &piece, 2000);
            let mut kind = None;
            let bytes = allocated_by(|| kind = stream(encoding, &body).1.err().map(|e| e.kind()));
            assert_eq!(kind, Some(ErrorKind::TooLarge), "{encoding:?}");
            // Allocated in all, freed included: batches that were handed on.
            assert!(bytes < 128 * MIB, "{encoding:?}: {bytes} bytes");
        }
    }
    // What states 4 GiB in seven bytes is no block of snappy.
    let (_, outcome) = stream(Encoding::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
    assert_eq!(outcome.expect_err("refused").kind(), ErrorKind::Invalid);
}

#[test]
fn depth() {
    let ctx = context();
    let million = 1_000_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"\":", "}"), ("[{\"a\":", "}]")] {
        let value = format!("{}1{}", open.repeat(million / 8), close.repeat(million / 8));
        let line = format!("{{\"_msg\":\"m\",\"d\":{value}}}");
        let bytes = allocated_by(|| {
            let mut lines = JsonLines::new(&LogsContext {
                limits: LogsLimits { line_bytes_max: 4 << 20, ..ctx.limits },
                ..ctx.clone()
            });
            lines.feed(line.as_bytes());
            lines.finish();
            let rows: usize = lines.rows.take_all().iter().map(quiver_types::LogsBatch::len).sum();
            assert_eq!(rows, 1, "{open}");
        });
        assert!(bytes < 64 * MIB, "{open}: {bytes} bytes");
        let _ = saas::decode(line.as_bytes(), &saas::UrlFields::default(), &ctx).expect("JSON");
        assert!(push::decode_json(format!("{{\"streams\":{value}}}").as_bytes(), &ctx).is_err());
        // An object of unknown members is a resource without attributes, however deep they are.
        let resource = format!("{{\"resourceLogs\":[{{\"resource\":{value}}}]}}");
        let decoded = otlp::decode_json(resource.as_bytes(), 64 << 20, &ctx);
        assert!(open.starts_with('{') || decoded.is_err());
        let mut bulk = bulk::Bulk::new(&ctx);
        assert!(bulk.feed(format!("{{\"create\":{}\n", open.repeat(30_000)).as_bytes()).is_err());
    }
    // Values within values, as protobuf.
    let mut message = Vec::new();
    for _ in 0..20_000 {
        let mut list = Vec::new();
        quiver_tests::bodies::field(&mut list, 1, &message);
        message.clear();
        quiver_tests::bodies::field(&mut message, 5, &list);
    }
    let wrap = |number, inner: &[u8]| {
        let mut out = Vec::new();
        quiver_tests::bodies::field(&mut out, number, inner);
        out
    };
    let body = wrap(1, &wrap(2, &wrap(2, &wrap(5, &message))));
    assert!(otlp::decode(&body, &ctx).is_err());
}

#[test]
fn names_and_texts() {
    let ctx = context();
    // Each row has names that no other has.
    let mut body = String::new();
    for i in 0..200_000 {
        let _ = writeln!(body, "{{\"_msg\":\"m\",\"n{i}\":1}}");
    }
    let bytes = allocated_by(|| {
        let mut lines = JsonLines::new(&ctx);
        for piece in body.as_bytes().chunks(64 << 10) {
            lines.feed(piece);
            lines.rows.take_full();
        }
    });
    assert!(bytes < 400 * MIB, "{bytes} bytes in all for {} bytes of names", body.len());
    // One record with two million names, and one text of 40 MiB.
    let names: Vec<String> = (0..2_000_000).map(|i| format!("\"n{i}\":1")).collect();
    let wide = format!("[{{{}}}]", names.join(","));
    let long = format!("[{{\"message\":\"{}\"}}]", "x".repeat(40 << 20));
    for body in [wide, long] {
        let bytes = allocated_by(|| {
            let decoded = saas::decode(body.as_bytes(), &saas::UrlFields::default(), &ctx).expect("JSON");
            assert_eq!((decoded.report.rows, decoded.report.dropped_count()), (0, 1));
        });
        assert!(bytes < 256 * MIB, "{bytes} bytes");
    }
    // A few bytes that stand for many: labels of a megabyte with each of a hundred thousand entries.
    let entries = vec!["[\"1\",\"x\"]"; 100_000].join(",");
    let body = format!("{{\"streams\":[{{\"stream\":{{\"a\":\"{}\"}},\"values\":[{entries}]}}]}}", "x".repeat(1 << 20));
    let mut kind = None;
    let bytes = allocated_by(|| kind = push::decode_json(body.as_bytes(), &ctx).err().map(|e| e.kind()));
    assert_eq!(kind, Some(ErrorKind::TooLarge));
    assert!(bytes < 512 * MIB, "{bytes} bytes");
}

#[test]
fn odd_texts() {
    let ctx = context();
    let mut lines = JsonLines::new(&ctx);
    lines.feed(
        b"{\"a\":\"\\ud800\",\"b\":\"\\u0000\",\"c\":\"\x00\",\"a\":\"2\"}\n\xff\xfe{\"x\":1}\n{\"_msg\":\"ok\"}\n",
    );
    lines.finish();
    let batches = lines.rows.take_all();
    let rows: Vec<Vec<(&str, &str)>> = (0..batches[0].len()).map(|i| batches[0].row(i).collect()).collect();
    assert_eq!(rows, [vec![("b", "\0"), ("c", "\0"), ("a", "2")], vec![("_msg", "ok")]]);
}
