//! Fields of protobuf messages that the decoders' writer (`quiver_ingest::wire`) has no need of.

use quiver_ingest::wire::{FIXED64, VARINT, put_bytes, put_varint, tag};

/// Appends a number; 0 is left out, as absent fields are 0.
pub(crate) fn put_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(tag(field, VARINT)));
        put_varint(out, value);
    }
}

/// Appends a zigzag number.
pub(crate) fn put_sint(out: &mut Vec<u8>, field: u32, value: i64) {
    put_uint(out, field, zigzag(value));
}

/// Appends a double, 0 too.
pub(crate) fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_varint(out, u64::from(tag(field, FIXED64)));
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a text under a field.
pub(crate) fn put_text(out: &mut Vec<u8>, field: u32, text: &str) {
    put_bytes(out, field, text.as_bytes());
}

/// Appends a message that a function writes.
pub(crate) fn put_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    put_bytes(out, field, &message);
}

/// Appends a packed list of doubles, unless it is empty.
pub(crate) fn put_doubles(out: &mut Vec<u8>, field: u32, values: &[f64]) {
    if !values.is_empty() {
        put_message(out, field, |packed| values.iter().for_each(|v| packed.extend_from_slice(&v.to_le_bytes())));
    }
}

/// Appends a packed list of zigzag numbers, unless it is empty.
pub(crate) fn put_sints(out: &mut Vec<u8>, field: u32, values: impl Iterator<Item = i64>) {
    let mut packed = Vec::new();
    values.for_each(|v| put_varint(&mut packed, zigzag(v)));
    if !packed.is_empty() {
        put_bytes(out, field, &packed);
    }
}

fn zigzag(value: i64) -> u64 {
    (value as u64) << 1 ^ (value >> 63) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let mut out = Vec::new();
        put_uint(&mut out, 1, 0);
        put_uint(&mut out, 1, 300);
        put_sint(&mut out, 2, -2);
        put_text(&mut out, 3, "ab");
        put_sints(&mut out, 4, [1, -1].into_iter());
        put_doubles(&mut out, 5, &[]);
        put_double(&mut out, 6, 1.0);
        let expected = [8, 0xac, 2, 16, 3, 26, 2, b'a', b'b', 34, 2, 2, 1, 49, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        assert_eq!(out, expected);
    }
}
