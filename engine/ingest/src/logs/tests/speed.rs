//! How fast the decoders are: `cargo test --release -p quiver-ingest speed -- --ignored --nocapture`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use super::context;
use crate::logs::bulk::Bulk;
use crate::logs::{JsonLines, otlp, push, saas};
use crate::wire::put_bytes;

const ROWS: usize = 100_000;
const ROUNDS: usize = 5;

/// A row as JSON members, its time and its message: an access line, ids, numbers, a few labels.
fn row(i: usize) -> (String, String, String) {
    let mix = |salt: u64| {
        let n = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n ^ (n >> 29)
    };
    let message = format!(
        "10.{}.{}.{} - - \"GET /api/v1/items/{} HTTP/1.1\" 200 {} upstream deadline token session {:x}",
        mix(1) % 256,
        mix(2) % 256,
        mix(3) % 256,
        mix(4) % 10_000,
        mix(5) % 100_000,
        mix(6)
    );
    let app = ["cart", "checkout", "payment", "catalog", "search"][i / 1000 % 5];
    let members = format!(
        "\"namespace\":\"shop\",\"app\":\"{app}\",\"pod\":\"{app}-{:05x}\",\"level\":\"info\",\"trace_id\":\"{:016x}{:016x}\",\
         \"span_id\":\"{:016x}\",\"user_id\":\"u{}\",\"status\":{},\"bytes\":{},\"duration_ms\":{}.{}",
        i / 1000 % 120,
        mix(7),
        mix(8),
        mix(9),
        mix(10) % 100_000,
        200 + mix(11) % 5 * 100,
        mix(12) % 100_000,
        mix(13) % 1000,
        mix(14) % 10
    );
    (members, format!("2025-03-10T09:46:40.{:09}Z", i * 7), message)
}

fn measure(name: &str, bytes: usize, mut run: impl FnMut() -> u64) {
    assert_eq!(run(), ROWS as u64, "{name}");
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        run();
        best = best.min(began.elapsed().as_secs_f64());
    }
    let line = format!(
        "{name}: {:.2} s per million rows, {:.0} rows/s, {:.0} MB/s, {} B/row",
        best * 1e6 / ROWS as f64,
        ROWS as f64 / best,
        bytes as f64 / best / 1e6,
        bytes / ROWS
    );
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}

#[test]
#[ignore = "a measurement"]
fn logs_speed() {
    let ctx = context(&[("_stream_fields", "namespace,app,pod")]);
    let (mut lines, mut bulk, mut list) = (String::new(), String::new(), String::from("["));
    let (mut push_json, mut push_proto) = (String::from("{\"streams\":["), Vec::new());
    let mut otlp_proto = Vec::new();
    for i in 0..ROWS {
        let (members, time, message) = row(i);
        let escaped = message.replace('"', "\\\"");
        let _ = writeln!(lines, "{{\"_time\":\"{time}\",\"_msg\":\"{escaped}\",{members}}}");
        let _ = writeln!(bulk, "{{\"create\":{{}}}}\n{{\"_time\":\"{time}\",\"_msg\":\"{escaped}\",{members}}}");
        let separator = if i == 0 { "" } else { "," };
        let _ = write!(list, "{separator}{{\"timestamp\":\"{time}\",\"message\":\"{escaped}\",{members}}}");
        let pairs = members
            .split(',')
            .filter_map(|m| m.split_once(':'))
            .map(|(n, v)| (n.trim_matches('"'), v.trim_matches('"')));
        let pairs: Vec<(&str, &str)> = pairs.collect();
        // A stream of a hundred entries each.
        if i % 100 == 0 {
            let separator = if i == 0 { "" } else { "]}," };
            let _ =
                write!(push_json, "{separator}{{\"stream\":{{\"app\":\"a\",\"pod\":\"p{}\"}},\"values\":[", i / 1000);
        }
        let separator = if i % 100 == 0 { "" } else { "," };
        let metadata: Vec<String> = pairs.iter().map(|(n, v)| format!("\"{n}\":\"{v}\"")).collect();
        let _ = write!(
            push_json,
            "{separator}[\"{}\",\"{escaped}\",{{{}}}]",
            1_741_600_000_000_000_000 + i,
            metadata.join(",")
        );
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, &[0x08, 0x80, 0xea, 0xba, 0xbe, 0x06]);
        put_bytes(&mut entry, 2, message.as_bytes());
        let mut record = vec![0x09];
        record.extend_from_slice(&(1_741_600_000_000_000_000 + i as u64).to_le_bytes());
        record.extend([0x10, 9]);
        let text = |value: &str| {
            let mut out = Vec::new();
            put_bytes(&mut out, 1, value.as_bytes());
            out
        };
        put_bytes(&mut record, 5, &text(&message));
        for (name, value) in pairs {
            let mut pair = Vec::new();
            put_bytes(&mut pair, 1, name.as_bytes());
            put_bytes(&mut pair, 2, value.as_bytes());
            put_bytes(&mut entry, 3, &pair);
            let mut pair = Vec::new();
            put_bytes(&mut pair, 1, name.as_bytes());
            put_bytes(&mut pair, 2, &text(value));
            put_bytes(&mut record, 6, &pair);
        }
        let mut stream = Vec::new();
        put_bytes(&mut stream, 1, b"{app=\"a\",pod=\"p\"}");
        put_bytes(&mut stream, 2, &entry);
        put_bytes(&mut push_proto, 1, &stream);
        let mut scope = Vec::new();
        put_bytes(&mut scope, 2, &record);
        let mut resource = Vec::new();
        put_bytes(&mut resource, 2, &scope);
        put_bytes(&mut otlp_proto, 1, &resource);
    }
    list.push(']');
    push_json.push_str("]}]}");
    measure("json lines", lines.len(), || {
        let mut decoder = JsonLines::new(&ctx);
        for piece in lines.as_bytes().chunks(64 << 10) {
            decoder.feed(piece);
            decoder.rows.take_full();
        }
        decoder.finish();
        decoder.rows.report.rows
    });
    measure("bulk", bulk.len(), || {
        let mut decoder = Bulk::new(&ctx);
        for piece in bulk.as_bytes().chunks(64 << 10) {
            decoder.feed(piece).expect("good");
            decoder.take_full();
        }
        decoder.finish().expect("good");
        decoder.report().rows
    });
    let url = saas::UrlFields::default();
    measure("saas", list.len(), || saas::decode(list.as_bytes(), &url, &ctx).expect("good").report.rows);
    let ctx = context(&[]);
    measure("push, JSON", push_json.len(), || push::decode_json(push_json.as_bytes(), &ctx).expect("good").report.rows);
    measure("push, protobuf", push_proto.len(), || push::decode_protobuf(&push_proto, &ctx).expect("good").report.rows);
    measure("otlp", otlp_proto.len(), || otlp::decode(&otlp_proto, &ctx).expect("good").report.rows);
}
