//! Values and attributes of OTLP in both encodings, made of given keys and texts.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::protobuf::{Field, double, int, message, text};

/// One of a list.
pub(crate) fn pick<'a>(list: &[&'a str], random: &mut StdRng) -> &'a str {
    list.choose(random).expect("there are some")
}

/// What attributes are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) keys: &'static [&'static str],
    pub(crate) texts: &'static [&'static str],
}

impl Words {
    /// Makes an `AnyValue`.
    pub(crate) fn value(self, random: &mut StdRng, depth: usize) -> (Vec<Field>, Value) {
        match random.random_range(0..if depth < 3 { 6 } else { 4 }) {
            0 => {
                let v: i64 = random.random_range(-1000..1000);
                (vec![int(3, v as u64)], json!({"intValue": v.to_string()}))
            }
            1 => (vec![int(2, 1)], json!({"boolValue": true})),
            2 => (vec![double(4, 0.5)], json!({"doubleValue": 0.5})),
            3 => {
                let v = pick(self.texts, random);
                (vec![text(1, v)], json!({"stringValue": v}))
            }
            4 => {
                let (fields, json): (Vec<_>, Vec<_>) =
                    (0..random.random_range(0..4)).map(|_| self.value(random, depth + 1)).unzip();
                let fields = fields.into_iter().map(|f| message(1, f)).collect();
                (vec![message(5, fields)], json!({"arrayValue": {"values": json}}))
            }
            _ => {
                let (fields, json) = self.attributes(random, 1, depth + 1);
                (vec![message(6, fields)], json!({"kvlistValue": {"values": json}}))
            }
        }
    }

    /// Makes attributes as the fields of a number.
    pub(crate) fn attributes(self, random: &mut StdRng, number: u64, depth: usize) -> (Vec<Field>, Value) {
        let (mut fields, mut all) = (Vec::new(), Vec::new());
        for _ in 0..random.random_range(0..4) {
            let (key, (value, json)) = (pick(self.keys, random), self.value(random, depth));
            fields.push(message(number, vec![text(1, key), message(2, value)]));
            all.push(json!({"key": key, "value": json}));
        }
        (fields, Value::Array(all))
    }
}
