//! OTLP metrics: a request as protobuf and as JSON decodes to the same batch; mutated ones give an error or a valid batch
//! within the limits.

use quiver_ingest::formats::{otlp_json, otlp_metrics};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::drive::Target;
use crate::protobuf::{
    Field, double, encode, encode_mutated, extreme, fixed, int, message, mutate_bytes, packed, packed_fixed, sint, text,
};
use crate::remote_write::decode;

const WORDS: &[&str] = &["http.requests", "cpu", "service.name", "job", "le", "1x", "grün", "a b", "\u{1f600}", "x/y"];

/// A body in one of the two forms, or a request in both.
#[derive(Debug)]
enum Case {
    Same { protobuf: Vec<u8>, json: Vec<u8> },
    Protobuf(Vec<u8>),
    Json(Vec<u8>),
}

/// Something in both forms.
struct Both<P> {
    protobuf: P,
    json: Value,
}

fn word(random: &mut StdRng) -> &'static str {
    WORDS.choose(random).expect("there are some")
}

/// A value of an attribute: a scalar, or now and then an array of values.
fn any_value(random: &mut StdRng, depth: usize) -> Both<Vec<Field>> {
    match random.random_range(0..if depth < 3 { 6 } else { 4 }) {
        0 => {
            let v: i64 = random.random_range(-1000..1000);
            Both { protobuf: vec![int(3, v as u64)], json: json!({"intValue": v.to_string()}) }
        }
        1 => Both { protobuf: vec![int(2, 1)], json: json!({"boolValue": true}) },
        2 => Both { protobuf: vec![double(4, 0.5)], json: json!({"doubleValue": 0.5}) },
        3 => {
            let v = word(random);
            Both { protobuf: vec![text(1, v)], json: json!({"stringValue": v}) }
        }
        4 => {
            let items: Vec<_> = (0..random.random_range(0..4)).map(|_| any_value(random, depth + 1)).collect();
            let json: Vec<&Value> = items.iter().map(|i| &i.json).collect();
            let json = json!({"arrayValue": {"values": json}});
            let items = items.into_iter().map(|i| message(1, i.protobuf)).collect();
            Both { protobuf: vec![message(5, items)], json }
        }
        _ => {
            let pairs = attributes(random, 1, depth + 1);
            Both { protobuf: vec![message(6, pairs.protobuf)], json: json!({"kvlistValue": {"values": pairs.json}}) }
        }
    }
}

fn attributes(random: &mut StdRng, number: u64, depth: usize) -> Both<Vec<Field>> {
    let (mut fields, mut json) = (Vec::new(), Vec::new());
    for i in 0..random.random_range(0..4) {
        let (key, value) = (format!("{}{i}", word(random)), any_value(random, depth));
        fields.push(message(number, vec![text(1, &key), message(2, value.protobuf)]));
        json.push(json!({"key": key, "value": value.json}));
    }
    Both { protobuf: fields, json: Value::Array(json) }
}

fn number_point(random: &mut StdRng) -> Both<Vec<Field>> {
    let nanos = random.random_range(1_000_000u64..2_000_000_000_000_000_000);
    let attributes = attributes(random, 7, 0);
    let mut fields = attributes.protobuf;
    fields.push(fixed(3, nanos));
    let mut json = json!({"timeUnixNano": nanos.to_string(), "attributes": attributes.json});
    if random.random_bool(0.5) {
        fields.push(fixed(2, nanos - 1_000_000));
        json["startTimeUnixNano"] = json!((nanos - 1_000_000).to_string());
    }
    if random.random_bool(0.5) {
        let v = f64::from(random.random_range(-1000..1000)) / 8.0;
        fields.push(double(4, v));
        json["asDouble"] = json!(v);
    } else {
        let v: i64 = random.random_range(-1000..1000);
        fields.push(fixed(6, v as u64));
        json["asInt"] = json!(v.to_string());
    }
    if random.random_bool(0.1) {
        fields.push(int(8, 1));
        json["flags"] = json!(1);
    }
    Both { protobuf: fields, json }
}

fn metric(random: &mut StdRng) -> Both<Vec<Field>> {
    let (name, unit) = (word(random), *["", "s", "By", "1", "{x}/min"].choose(random).expect("units"));
    let points: Vec<_> = (0..random.random_range(1..4)).map(|_| number_point(random)).collect();
    let json: Vec<&Value> = points.iter().map(|p| &p.json).collect();
    let mut body = json!({"name": name, "description": "Help.", "unit": unit});
    let is_sum = random.random_bool(0.5);
    let temporality = random.random_range(0..3);
    body[if is_sum { "sum" } else { "gauge" }] = if is_sum {
        json!({"dataPoints": json, "aggregationTemporality": temporality, "isMonotonic": true})
    } else {
        json!({"dataPoints": json})
    };
    let mut data: Vec<Field> = points.into_iter().map(|p| message(1, p.protobuf)).collect();
    if is_sum {
        data.extend([int(2, temporality), int(3, 1)]);
    }
    let fields = vec![text(1, name), text(2, "Help."), text(3, unit), message(if is_sum { 7 } else { 5 }, data)];
    Both { protobuf: fields, json: body }
}

fn request(random: &mut StdRng) -> Both<Vec<Field>> {
    let resource = attributes(random, 1, 0);
    let metrics: Vec<_> = (0..random.random_range(1..4)).map(|_| metric(random)).collect();
    let json: Vec<&Value> = metrics.iter().map(|m| &m.json).collect();
    let json = json!({"resourceMetrics": [{
        "resource": {"attributes": resource.json},
        "scopeMetrics": [{"scope": {"name": "lib", "version": "1"}, "metrics": json}],
    }]});
    let mut scope = vec![message(1, vec![text(1, "lib"), text(2, "1")])];
    scope.extend(metrics.into_iter().map(|m| message(2, m.protobuf)));
    Both { protobuf: vec![message(1, vec![message(1, resource.protobuf), message(2, scope)])], json }
}

/// What only broken requests carry: histograms of both kinds and summaries.
fn distributions(random: &mut StdRng) -> Vec<Field> {
    let time = || [fixed(2, 1_000_000), fixed(3, 5_000_000_000)];
    let mut classic: Vec<Field> = time().into();
    let bounds = [0.1f64, 1.0, 10.0];
    classic.extend([fixed(4, 10), double(5, 3.5), packed_fixed(6, [1, 2, 3, 4].into_iter())]);
    classic.push(packed_fixed(7, bounds.iter().map(|b| b.to_bits())));
    let mut native: Vec<Field> = time().into();
    native.extend([fixed(4, 12), double(5, 3.5), sint(6, random.random_range(-10..12)), fixed(7, 1)]);
    native.push(message(8, vec![sint(1, random.random_range(-5..5)), packed(2, &[1, 0, 2, 3])]));
    native.push(message(9, vec![sint(1, 0), packed(2, &[5])]));
    let mut summary: Vec<Field> = time().into();
    summary.extend([fixed(4, 3), double(5, 6.0), message(6, vec![double(1, 0.5), double(2, 2.0)])]);
    let metric = |name, number, point, temporality: bool| {
        let mut data = vec![message(1, point)];
        data.extend(temporality.then(|| int(2, 2)));
        message(2, vec![text(1, name), message(number, data)])
    };
    let metrics = vec![metric("c", 9, classic, true), metric("n", 10, native, true), metric("s", 11, summary, false)];
    vec![message(1, vec![message(2, metrics)])]
}

/// Breaks a JSON tree in one place.
fn mutate_json(value: &mut Value, random: &mut StdRng) {
    if random.random_bool(0.8) {
        let inner = match value {
            Value::Array(items) if !items.is_empty() => {
                let at = random.random_range(0..items.len());
                items.get_mut(at)
            }
            Value::Object(map) if !map.is_empty() => {
                let at = random.random_range(0..map.len());
                map.values_mut().nth(at)
            }
            _ => None,
        };
        if let Some(inner) = inner {
            return mutate_json(inner, random);
        }
    }
    *value = match random.random_range(0..8) {
        0 => Value::Null,
        1 => json!(extreme(random)),
        2 => json!(extreme(random).to_string()),
        3 => json!(-1.5e300),
        4 => json!("NaN"),
        5 => json!([value.take()]),
        6 => json!({"x": value.take()}),
        _ => (0..random.random_range(1..300)).fold(value.take(), |v, _| json!([v])),
    };
}

fn make(random: &mut StdRng) -> Case {
    let both = request(random);
    match random.random_range(0..6) {
        0 => Case::Same { protobuf: encode(&both.protobuf), json: both.json.to_string().into_bytes() },
        1 | 2 => Case::Protobuf(encode_mutated(both.protobuf, random)),
        3 => Case::Protobuf(encode_mutated(distributions(random), random)),
        _ => {
            let mut json = both.json;
            (0..random.random_range(0..4)).for_each(|_| mutate_json(&mut json, random));
            let mut body = json.to_string().into_bytes();
            (0..random.random_range(0..4)).for_each(|_| mutate_bytes(&mut body, random));
            Case::Json(body)
        }
    }
}

fn check(case: &Case) {
    match case {
        Case::Protobuf(body) => drop(decode(&otlp_metrics::FORMAT, None, body)),
        Case::Json(body) => drop(decode(&otlp_json::FORMAT, None, body)),
        Case::Same { protobuf, json } => {
            let a = decode(&otlp_metrics::FORMAT, None, protobuf).expect("a valid body");
            let b = decode(&otlp_json::FORMAT, None, json).expect("the same as JSON");
            assert_eq!(a.batch.label_bytes, b.batch.label_bytes);
            assert_eq!((&a.batch.sample_series, &a.batch.ts), (&b.batch.sample_series, &b.batch.ts));
            let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&a.batch.values), bits(&b.batch.values));
            assert_eq!((a.batch.start_ts, a.batch.metadata), (b.batch.start_ts, b.batch.metadata));
            assert_eq!(a.rejected, b.rejected);
        }
    }
}

#[test]
fn bodies() {
    let size = |case: &Case| match case {
        Case::Same { protobuf, json } => protobuf.len() + json.len(),
        Case::Protobuf(body) | Case::Json(body) => body.len(),
    };
    // Labels are built anew for each point, so a small body may work through many of them.
    let target = Target { name: "otlp_metrics", make, size, bytes_max: |_| 32 << 20 };
    assert!(target.run(check) > 0);
}
