//! Protobuf field writers that the decoders' writer (`quiver_ingest::wire`) does not have.

use quiver_ingest::wire::{FIXED64, VARINT, put_bytes, put_varint, tag};

/// Appends an integer; 0 is left out, as it is the default.
pub(crate) fn put_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(tag(field, VARINT)));
        put_varint(out, value);
    }
}

/// Appends a zigzag-encoded integer.
pub(crate) fn put_sint(out: &mut Vec<u8>, field: u32, value: i64) {
    put_uint(out, field, zigzag(value));
}

/// Appends a double, even 0.
pub(crate) fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_varint(out, u64::from(tag(field, FIXED64)));
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a string.
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

/// Appends a packed list of zigzag-encoded integers, unless it is empty.
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
    use quiver_ingest::wire::{BYTES, Reader};

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

    #[test]
    fn numbers_at_the_ends() {
        for (value, zigzagged) in
            [(1_i64, 2_u64), (-1, 1), (63, 126), (-64, 127), (64, 128), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)]
        {
            let (mut signed, mut plain) = (Vec::new(), Vec::new());
            put_sint(&mut signed, 1, value);
            put_uint(&mut plain, 1, zigzagged);
            assert_eq!(signed, plain, "{value}");
            let mut reader = Reader::new(&signed);
            assert_eq!(reader.tag(), Ok(tag(1, VARINT)));
            assert_eq!(reader.varint().map(quiver_ingest::wire::zigzag), Ok(value));
            assert!(reader.is_empty());
        }
        // 0 is the default.
        let mut out = Vec::new();
        put_sint(&mut out, 1, 0);
        put_uint(&mut out, 536_870_911, 0);
        put_sints(&mut out, 1, std::iter::empty());
        assert!(out.is_empty());
        // In a list it is written.
        put_sints(&mut out, 1, [0, 0].into_iter());
        assert_eq!(out, [10, 2, 0, 0]);
    }

    #[test]
    fn doubles_keep_all_their_bits() {
        let odd =
            [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::from_bits(0x7ff0_0000_0000_0002)];
        let mut packed = Vec::new();
        put_doubles(&mut packed, 3, &odd);
        let mut reader = Reader::new(&packed);
        assert_eq!(reader.tag(), Ok(tag(3, BYTES)));
        let mut bits = Vec::new();
        quiver_ingest::wire::fixed64s(&mut reader, BYTES, |raw| bits.push(raw)).expect("a list");
        assert_eq!(bits, odd.map(f64::to_bits));
        for value in odd {
            let mut one = Vec::new();
            put_double(&mut one, 3, value);
            let mut reader = Reader::new(&one);
            assert_eq!((reader.tag(), reader.fixed64()), (Ok(tag(3, FIXED64)), Ok(value.to_bits())), "0 stands, too");
        }
    }

    /// A length of at least 128 takes two bytes, on each level.
    #[test]
    fn messages_stand_in_messages() {
        for len in [0, 1, 127, 128, 300, 20_000] {
            let text = "x".repeat(len);
            let mut out = Vec::new();
            put_message(&mut out, 1, |outer| put_message(outer, 2, |inner| put_text(inner, 3, &text)));
            let mut left: &[u8] = &out;
            for field in [1, 2, 3] {
                let mut reader = Reader::new(left);
                assert_eq!(reader.tag(), Ok(tag(field, BYTES)), "{len}");
                left = reader.bytes().expect("bytes");
                assert!(reader.is_empty(), "{len}");
            }
            assert_eq!(left, text.as_bytes());
        }
    }
}
