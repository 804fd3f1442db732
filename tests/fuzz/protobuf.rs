//! Protobuf messages as trees, so that mutations can keep the structure and break one thing in it: fields, wire types,
//! lengths, nesting. Then mutations of bytes: truncation, flipped bits, and broken snappy.

use quiver_tests::bodies::{compress, varint};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// A field of a message.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    number: u64,
    value: Value,
}

/// The value of a field.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// Makes a varint field.
pub(crate) fn int(number: u64, value: u64) -> Field {
    Field { number, value: Value::Varint(value) }
}

/// Makes a zigzag field.
pub(crate) fn sint(number: u64, value: i64) -> Field {
    int(number, ((value << 1) ^ (value >> 63)) as u64)
}

/// Makes a field of eight bytes.
pub(crate) fn fixed(number: u64, value: u64) -> Field {
    Field { number, value: Value::Fixed64(value) }
}

/// Makes a double.
pub(crate) fn double(number: u64, value: f64) -> Field {
    fixed(number, value.to_bits())
}

/// Makes a text.
pub(crate) fn text(number: u64, value: &str) -> Field {
    Field { number, value: Value::Bytes(value.as_bytes().to_vec()) }
}

/// Makes a message field.
pub(crate) fn message(number: u64, fields: Vec<Field>) -> Field {
    Field { number, value: Value::Message(fields) }
}

/// Makes a packed field of varints.
pub(crate) fn packed(number: u64, values: &[u64]) -> Field {
    let mut bytes = Vec::new();
    for v in values {
        varint(&mut bytes, *v);
    }
    Field { number, value: Value::Bytes(bytes) }
}

/// Makes a packed field of eight-byte values.
pub(crate) fn packed_fixed(number: u64, values: impl Iterator<Item = u64>) -> Field {
    Field { number, value: Value::Bytes(values.flat_map(u64::to_le_bytes).collect()) }
}

/// Most bytes of fields that are repeated together: what is larger than a server takes never comes to a decoder.
const REPEATED_MAX: usize = 32 << 20;

impl Value {
    /// Bytes of what it holds, about.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Message(fields) => fields.iter().map(|f| f.value.len() + 4).sum(),
            _ => 8,
        }
    }
}

/// A length that does not fit what follows.
struct Lie {
    /// Which of the lengths, counted while writing.
    at: usize,
    length: u64,
    seen: usize,
}

/// Writes a message.
pub(crate) fn encode(fields: &[Field]) -> Vec<u8> {
    write(fields, &mut Lie { at: usize::MAX, length: 0, seen: 0 })
}

fn write(fields: &[Field], lie: &mut Lie) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        let key = field.number << 3;
        match &field.value {
            Value::Varint(v) => {
                varint(&mut out, key);
                varint(&mut out, *v);
            }
            Value::Fixed64(v) => {
                varint(&mut out, key | 1);
                out.extend_from_slice(&v.to_le_bytes());
            }
            Value::Fixed32(v) => {
                varint(&mut out, key | 5);
                out.extend_from_slice(&v.to_le_bytes());
            }
            Value::Bytes(bytes) => write_bytes(&mut out, key, bytes, lie),
            Value::Message(inner) => {
                let bytes = write(inner, lie);
                write_bytes(&mut out, key, &bytes, lie);
            }
        }
    }
    out
}

fn write_bytes(out: &mut Vec<u8>, key: u64, bytes: &[u8], lie: &mut Lie) {
    varint(out, key | 2);
    varint(out, if lie.seen == lie.at { lie.length } else { bytes.len() as u64 });
    lie.seen += 1;
    out.extend_from_slice(bytes);
}

const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    7,
    127,
    128,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 53) + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Picks a number that likes to overflow something.
pub(crate) fn extreme(random: &mut StdRng) -> u64 {
    if random.random_bool(0.7) { *NUMBERS.choose(random).expect("there are some") } else { random.random() }
}

/// Breaks a tree in one place.
fn mutate_tree(fields: &mut Vec<Field>, random: &mut StdRng) {
    if fields.is_empty() {
        fields.push(int(random.random_range(0..20), extreme(random)));
        return;
    }
    let at = random.random_range(0..fields.len());
    if let Value::Message(inner) = &mut fields[at].value
        && random.random_bool(0.8)
    {
        mutate_tree(inner, random);
        return;
    }
    match random.random_range(0..9) {
        0 => drop(fields.remove(at)),
        1 => {
            let copy = fields[at].clone();
            let times = if random.random_bool(0.1) && copy.value.len() * 300 <= REPEATED_MAX { 300 } else { 1 };
            fields.splice(at..at, std::iter::repeat_n(copy, times));
        }
        2 => {
            let other = random.random_range(0..fields.len());
            fields.swap(at, other);
        }
        3 => {
            fields[at].number = if random.random_bool(0.8) { random.random_range(0..20) } else { extreme(random) >> 3 }
        }
        4 => fields[at].value = Value::Varint(extreme(random)),
        5 => fields[at].value = Value::Fixed32(extreme(random) as u32),
        6 => fields[at].value = Value::Fixed64(extreme(random)),
        7 => fields[at].value = Value::Bytes(odd_bytes(random)),
        _ => {
            let mut nested = fields[at].clone();
            for _ in 0..random.random_range(1..200) {
                nested = message(nested.number, vec![nested]);
            }
            fields[at] = nested;
        }
    }
}

fn odd_bytes(random: &mut StdRng) -> Vec<u8> {
    match random.random_range(0..5) {
        0 => Vec::new(),
        1 => vec![0xff, 0xfe, 0x80],
        2 => vec![b'x'; 1 << random.random_range(0..17)],
        3 => vec![0],
        _ => (0..random.random_range(0..40)).map(|_| random.random()).collect(),
    }
}

/// Breaks bytes in one place.
pub(crate) fn mutate_bytes(bytes: &mut Vec<u8>, random: &mut StdRng) {
    let at = random.random_range(0..=bytes.len());
    match random.random_range(0..5) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        2 => bytes.insert(at, random.random()),
        3 if at < bytes.len() => bytes[at] = *[0, 0x7f, 0x80, 0xff].choose(random).expect("there are some"),
        _ => {
            let end = random.random_range(at..=bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = random.random_range(0..=bytes.len());
            bytes.splice(to..to, copy);
        }
    }
}

/// Writes a message, broken in up to four places; trees more often than lengths, lengths more often than bytes.
pub(crate) fn encode_mutated(mut fields: Vec<Field>, random: &mut StdRng) -> Vec<u8> {
    for _ in 0..random.random_range(0..4) {
        mutate_tree(&mut fields, random);
    }
    let lie = random.random_bool(0.3);
    let at = if lie { random.random_range(0..40) } else { usize::MAX };
    let length = if random.random_bool(0.5) { random.random_range(0..300) } else { extreme(random) };
    let mut bytes = write(&fields, &mut Lie { at, length, seen: 0 });
    if random.random_bool(0.3) {
        (0..random.random_range(1..4)).for_each(|_| mutate_bytes(&mut bytes, random));
    }
    bytes
}

/// Compresses in snappy's block format, sometimes not as one should.
pub(crate) fn snappy_mutated(raw: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = compress(raw);
    match random.random_range(0..10) {
        // Another declared length before the same blocks.
        0 => {
            let rest = bytes.iter().position(|b| *b < 0x80).map_or(0, |at| at + 1);
            let mut other = Vec::new();
            varint(&mut other, extreme(random));
            other.extend_from_slice(&bytes[rest..]);
            bytes = other;
        }
        // What it declares is there, but it is all one byte.
        1 => bytes = compress(&vec![random.random(); random.random_range(0..4 << 20)]),
        2 => mutate_bytes(&mut bytes, random),
        _ => {}
    }
    bytes
}
