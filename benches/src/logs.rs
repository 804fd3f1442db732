//! Bodies with logs: a fixed rule from row numbers to an access line, ids and numbers, some 440 bytes as JSON.

use std::fmt::Write;

use quiver_ingest::wire::{put_bytes, put_varint};

/// Rows of a body.
pub const ROWS: usize = 10_000;

fn mix(row: usize, salt: u64) -> u64 {
    let n = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n ^ (n >> 29)
}

/// A row: its message and its other fields.
fn row(i: usize) -> (String, Vec<(&'static str, String)>) {
    let m = |salt| mix(i, salt);
    let message = format!(
        "10.{}.{}.{} - - GET /api/v1/items/{} HTTP/1.1 200 {} upstream deadline token session {:x}",
        m(1) % 256,
        m(2) % 256,
        m(3) % 256,
        m(4) % 10_000,
        m(5) % 100_000,
        m(6)
    );
    let app = ["cart", "checkout", "payment", "catalog", "search"][i / 1000 % 5];
    let fields = vec![
        ("namespace", "shop".to_owned()),
        ("app", app.to_owned()),
        ("pod", format!("{app}-{:05x}", i / 1000 % 120)),
        ("level", "info".to_owned()),
        ("trace_id", format!("{:016x}{:016x}", m(7), m(8))),
        ("span_id", format!("{:016x}", m(9))),
        ("user_id", format!("u{}", m(10) % 100_000)),
        ("status", (200 + m(11) % 5 * 100).to_string()),
        ("bytes", (m(12) % 100_000).to_string()),
        ("duration_ms", format!("{}.{}", m(13) % 1000, m(14) % 10)),
    ];
    (message, fields)
}

fn members(fields: &[(&str, String)]) -> String {
    fields.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect::<Vec<_>>().join(",")
}

/// JSON lines; with `action`, each behind an action line of bulk.
pub fn lines(action: bool) -> Vec<u8> {
    let mut out = String::new();
    for i in 0..ROWS {
        let (message, fields) = row(i);
        let action = if action { "{\"create\":{}}\n" } else { "" };
        writeln!(
            out,
            "{action}{{\"_time\":\"2025-03-10T09:46:40.{i:09}Z\",\"_msg\":\"{message}\",{}}}",
            members(&fields)
        )
        .expect("memory");
    }
    out.into_bytes()
}

/// A list of records for the SaaS intake.
pub fn saas() -> Vec<u8> {
    let records = (0..ROWS).map(|i| {
        let (message, fields) = row(i);
        format!("{{\"timestamp\":{},\"message\":\"{message}\",{}}}", 1_741_600_000_000 + i, members(&fields))
    });
    format!("[{}]", records.collect::<Vec<_>>().join(",")).into_bytes()
}

/// A push as JSON: streams of a hundred entries, fields as metadata.
pub fn push_json() -> Vec<u8> {
    let streams = (0..ROWS / 100).map(|stream| {
        let entries = (stream * 100..(stream + 1) * 100).map(|i| {
            let (message, fields) = row(i);
            format!("[\"{}\",\"{message}\",{{{}}}]", 1_741_600_000_000_000_000 + i, members(&fields))
        });
        format!(
            "{{\"stream\":{{\"app\":\"a\",\"pod\":\"p{stream}\"}},\"values\":[{}]}}",
            entries.collect::<Vec<_>>().join(",")
        )
    });
    format!("{{\"streams\":[{}]}}", streams.collect::<Vec<_>>().join(",")).into_bytes()
}

/// The same as protobuf, not compressed.
pub fn push_protobuf() -> Vec<u8> {
    let mut body = Vec::new();
    for stream in 0..ROWS / 100 {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, format!("{{app=\"a\",pod=\"p{stream}\"}}").as_bytes());
        for i in stream * 100..(stream + 1) * 100 {
            let (line, fields) = row(i);
            let mut time = vec![0x08];
            put_varint(&mut time, 1_741_600_000);
            time.push(0x10);
            put_varint(&mut time, i as u64);
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, &time);
            put_bytes(&mut entry, 2, line.as_bytes());
            for (name, value) in fields {
                let mut pair = Vec::new();
                put_bytes(&mut pair, 1, name.as_bytes());
                put_bytes(&mut pair, 2, value.as_bytes());
                put_bytes(&mut entry, 3, &pair);
            }
            put_bytes(&mut message, 2, &entry);
        }
        put_bytes(&mut body, 1, &message);
    }
    body
}

/// An OTLP request: resources of a hundred records, fields as attributes.
pub fn otlp() -> Vec<u8> {
    let text = |value: &str| {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, value.as_bytes());
        out
    };
    let pair = |name: &str, value: &str| {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, name.as_bytes());
        put_bytes(&mut out, 2, &text(value));
        out
    };
    let mut body = Vec::new();
    for resource in 0..ROWS / 100 {
        let mut attributes = Vec::new();
        put_bytes(&mut attributes, 1, &pair("service.name", &format!("shop-{resource}")));
        let mut scope = Vec::new();
        for i in resource * 100..(resource + 1) * 100 {
            let (message, fields) = row(i);
            let mut record = vec![0x09];
            record.extend_from_slice(&(1_741_600_000_000_000_000 + i as u64).to_le_bytes());
            record.extend([0x10, 9]);
            put_bytes(&mut record, 5, &text(&message));
            for (name, value) in fields {
                put_bytes(&mut record, 6, &pair(name, &value));
            }
            put_bytes(&mut scope, 2, &record);
        }
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &attributes);
        put_bytes(&mut message, 2, &scope);
        put_bytes(&mut body, 1, &message);
    }
    body
}
