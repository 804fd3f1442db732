//! OTLP requests with spans: a fixed rule from trace numbers to traces of eight spans over four services, some 300 bytes
//! each.

use quiver_ingest::wire::{put_bytes, put_varint};

/// Spans of a trace.
pub const SPANS: usize = 8;
/// The first start, Unix nanoseconds: 2025-03-10 00:00 UTC.
pub const START: i64 = 1_741_564_800_000_000_000;
const SERVICES: [&str; 22] = [
    "web", "gateway", "cart", "checkout", "payment", "catalog", "search", "shipping", "orders", "mail", "users", "ads",
    "stock", "price", "tax", "quote", "risk", "geo", "media", "login", "audit", "bill",
];

fn mix(n: u64, salt: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n ^ (n >> 29)
}

/// Gives the id of a trace.
pub fn trace_id(trace: u64) -> [u8; 16] {
    (u128::from(mix(trace, 1)) << 64 | u128::from(mix(trace, 2) | 1)).to_be_bytes()
}

fn fixed(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn int(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3);
    put_varint(out, value);
}

fn attribute(out: &mut Vec<u8>, number: u32, key: &str, value: &str) {
    let (mut any, mut pair) = (Vec::new(), Vec::new());
    put_bytes(&mut any, 1, value.as_bytes());
    put_bytes(&mut pair, 1, key.as_bytes());
    put_bytes(&mut pair, 2, &any);
    put_bytes(out, number, &pair);
}

fn span(trace: u64, i: u64, start: i64) -> Vec<u8> {
    let id = |i: u64| (mix(trace * 8 + i, 3) | 1).to_be_bytes();
    let mut out = Vec::with_capacity(320);
    put_bytes(&mut out, 1, &trace_id(trace));
    put_bytes(&mut out, 2, &id(i));
    if i > 0 {
        put_bytes(&mut out, 4, &id(i - 1));
    }
    let route = format!("GET /api/v1/{}", ["items", "cart", "users/{id}", "orders"][(mix(trace, i) % 4) as usize]);
    put_bytes(&mut out, 5, route.as_bytes());
    int(&mut out, 6, if i.is_multiple_of(2) { 2 } else { 3 });
    let start = start + i as i64 * 2_000_000;
    fixed(&mut out, 7, start as u64);
    fixed(&mut out, 8, start as u64 + mix(trace, i + 10) % 200_000_000);
    attribute(&mut out, 9, "http.route", &route);
    attribute(&mut out, 9, "user.id", &format!("u{}", mix(trace, 20) % 50_000));
    attribute(&mut out, 9, "client.address", &format!("10.0.{}.{}", mix(trace, 21) % 256, mix(trace, 22) % 256));
    attribute(&mut out, 9, "http.request.method", "GET");
    if mix(trace, i + 30).is_multiple_of(100) {
        let mut status = Vec::new();
        int(&mut status, 3, 2);
        put_bytes(&mut out, 15, &status);
    }
    out
}

/// Gives a request with some traces, one every `step_ns` from the first on.
pub fn request(from: u64, traces: u64, step_ns: i64) -> Vec<u8> {
    let mut by_service: Vec<Vec<Vec<u8>>> = vec![Vec::new(); SERVICES.len()];
    for trace in from..from + traces {
        for i in 0..SPANS as u64 {
            let service = (mix(trace, 40) + i / 2) as usize % SERVICES.len();
            by_service[service].push(span(trace, i, START + trace as i64 * step_ns));
        }
    }
    let mut out = Vec::new();
    for (service, spans) in SERVICES.iter().zip(by_service).filter(|(_, s)| !s.is_empty()) {
        let (mut resource, mut scope, mut block) = (Vec::new(), Vec::new(), Vec::new());
        attribute(&mut resource, 1, "service.name", service);
        attribute(&mut resource, 1, "host.name", &format!("{service}-{}", from / 1_000 % 3));
        for s in &spans {
            put_bytes(&mut scope, 2, s);
        }
        put_bytes(&mut block, 1, &resource);
        put_bytes(&mut block, 2, &scope);
        put_bytes(&mut out, 1, &block);
    }
    out
}
