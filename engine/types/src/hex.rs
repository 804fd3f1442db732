//! Hexadecimal text of ids, hashes and byte literals. The crate `hex` can neither append to a string nor tell
//! lower-case digits from upper-case ones. Both are needed: a column is stored as bytes only if its texts can be
//! restored exactly.

/// Writes bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    write_hex(bytes, &mut out);
    out
}

/// Appends bytes to a text as lower-case hex digits.
pub fn write_hex(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().flat_map(|byte| PAIRS[usize::from(*byte)]).map(char::from));
}

/// Appends bytes to the bytes of a text as lower-case hex digits, for many.
pub fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + bytes.len() * 2, 0);
    let (pairs, _) = out[from..].as_chunks_mut::<2>();
    pairs.iter_mut().zip(bytes).for_each(|(pair, byte)| *pair = PAIRS[usize::from(*byte)]);
}

/// Digits of each byte.
const PAIRS: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut i = 0;
    while i < 256 {
        pairs[i] = [DIGITS[i >> 4], DIGITS[i & 15]];
        i += 1;
    }
    pairs
};

/// Values of lower-case hex digits; [`NO_DIGIT`] for all other bytes.
const HEX: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    table
};
const NO_DIGIT: u8 = 0x80;

/// Says whether there are pairs of lower-case hex digits and nothing else.
pub fn is_hex(text: &str) -> bool {
    let seen = text.bytes().fold(0, |seen, b| seen | HEX[b as usize]);
    text.len().is_multiple_of(2) && seen & NO_DIGIT == 0
}

/// Appends the bytes of lower-case hex digits; `false` (and nothing) when there is anything else.
pub fn read_hex(text: &str, out: &mut Vec<u8>) -> bool {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let before = out.len();
    let mut seen = 0;
    out.extend(pairs.iter().map(|&[high, low]| {
        let (high, low) = (HEX[high as usize], HEX[low as usize]);
        seen |= high | low;
        high << 4 | low
    }));
    let all = rest.is_empty() && seen & NO_DIGIT == 0;
    if !all {
        out.truncate(before);
    }
    all
}

/// Reads bytes of hex digits in any case; `None` for an odd number of them, or other characters.
pub fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// Reads an id of up to `2 * N` hex digits in any case, padded on the left; `None` for none, more, or other characters.
pub fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.is_empty() || text.len() > 2 * N {
        return None;
    }
    let mut out = [0u8; N];
    for (i, byte) in text.bytes().rev().enumerate() {
        let digit = char::from(byte).to_digit(16)? as u8;
        out[N - 1 - i / 2] |= digit << (4 * (i % 2));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_bytes() {
        let (mut text, mut bytes) = (String::from("x"), b"y".to_vec());
        write_hex(&[0, 255, 26], &mut text);
        push_hex(&[0, 255, 26], &mut bytes);
        assert_eq!((&*hex(&[0, 0xab, 0xff]), &*text, &*bytes), ("00abff", "x00ff1a", &b"y00ff1a"[..]));
    }

    #[test]
    fn what_is_read_is_written_again() {
        let mut bytes = Vec::new();
        assert!(read_hex("00ff", &mut bytes) && !read_hex("0F", &mut bytes) && is_hex("1a") && !is_hex("1"));
        assert_eq!(bytes, [0, 255]);
    }

    #[test]
    fn digits_in_any_case() {
        assert_eq!(hex_bytes("00ffAb"), Some(vec![0, 255, 0xab]));
        assert_eq!(["0", "0g", "é"].map(hex_bytes), [None, None, None]);
    }

    #[test]
    fn ids() {
        assert_eq!(parse_hex::<2>("aBc"), Some([0x0a, 0xbc]));
        assert_eq!(["", "12345", "zz"].map(parse_hex::<2>), [None, None, None]);
    }

    #[test]
    fn all_bytes_come_back() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let (text, mut bytes, mut pushed) = (hex(&all), Vec::new(), Vec::new());
        push_hex(&all, &mut pushed);
        assert!(read_hex(&text, &mut bytes) && is_hex(&text));
        assert_eq!((bytes, pushed), (all.clone(), text.clone().into_bytes()));
        assert_eq!((hex_bytes(&text), hex_bytes(&text.to_uppercase())), (Some(all.clone()), Some(all)));
        // Nothing is appended of what is none.
        let mut kept = vec![7];
        for wrong in ["0", "00f", "0G", "AB", "é", "0x", " 0", "00 "] {
            assert!(!read_hex(wrong, &mut kept) && !is_hex(wrong), "{wrong}");
            assert_eq!(kept, [7], "{wrong}");
        }
        assert!(read_hex("", &mut kept) && is_hex("") && hex_bytes("") == Some(Vec::new()));
    }

    #[test]
    fn short_ids_are_filled_up_on_the_left() {
        assert_eq!(parse_hex::<4>("1"), Some([0, 0, 0, 1]));
        assert_eq!(parse_hex::<4>("12345"), Some([0, 1, 0x23, 0x45]));
        assert_eq!(parse_hex::<4>("FFffFFff"), Some([0xff; 4]));
        assert_eq!(["é", "-1", "+1", " 1", "0x1", "123456789"].map(parse_hex::<4>), [None; 6]);
    }
}
