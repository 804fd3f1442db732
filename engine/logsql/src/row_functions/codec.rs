//! Encodings of the prefixes of `format`. Decoders give what is no encoding back as it is; bytes that make no text
//! become the replacement character.

use quiver_types::text::{form_decoded, push_base64};

/// A letter made capital, one for one.
pub(crate) fn upper(c: char) -> char {
    let mut capital = c.to_uppercase();
    match (capital.next(), capital.next()) {
        (Some(one), None) => one,
        // A letter whose upper case has several letters has no simple one.
        _ => c,
    }
}

/// A letter made small, one for one.
pub(crate) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

fn hex_digit(b: u8) -> Option<u8> {
    (b as char).to_digit(16).map(|d| d as u8)
}

fn push_bytes(bytes: &[u8], out: &mut String) {
    out.push_str(&String::from_utf8_lossy(bytes));
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn push_hex(byte: u8, out: &mut String) {
    out.push(HEX[usize::from(byte >> 4)] as char);
    out.push(HEX[usize::from(byte & 15)] as char);
}

/// Form encoding: a blank is `+`.
pub(crate) fn url_encode(text: &str, out: &mut String) {
    for b in text.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => out.push(b as char),
            b' ' => out.push('+'),
            _ => {
                out.push('%');
                push_hex(b, out);
            }
        }
    }
}

pub(crate) fn url_decode(text: &str, out: &mut String) {
    push_bytes(&form_decoded(text), out);
}

pub(crate) fn hex_encode(text: &str, out: &mut String) {
    text.bytes().for_each(|b| push_hex(b, out));
}

/// Pairs of hex digits; other pairs stay.
pub(crate) fn hex_decode(text: &str, out: &mut String) {
    let mut decoded = Vec::with_capacity(text.len());
    for pair in text.as_bytes().chunks(2) {
        match pair {
            [high, low] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => decoded.push(high << 4 | low),
                _ => decoded.extend_from_slice(pair),
            },
            _ => decoded.extend_from_slice(pair),
        }
    }
    push_bytes(&decoded, out);
}

/// A number of up to 16 hex digits.
pub(crate) fn hex_number(text: &str) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    let digits = text.len() <= 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if digits { u64::from_str_radix(text, 16).ok() } else { None }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn base64_encode(text: &str, out: &mut String) {
    push_base64(text.as_bytes(), out);
}

/// With padding, as the standard wants it. False, and nothing written: not of this encoding.
pub(crate) fn base64_decode(text: &str, out: &mut String) -> bool {
    // Line breaks do not count.
    let bytes: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !bytes.len().is_multiple_of(4) {
        return false;
    }
    let padding = bytes.iter().rev().take_while(|&&b| b == b'=').count();
    if padding > 2 {
        return false;
    }
    let mut decoded = Vec::with_capacity(bytes.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for &b in &bytes[..bytes.len() - padding] {
        let Some(digit) = BASE64.iter().position(|&d| d == b) else { return false };
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    push_bytes(&decoded, out);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        let run = |f: &dyn Fn(&str, &mut String), text: &str| {
            let mut out = String::new();
            f(text, &mut out);
            out
        };
        assert_eq!(run(&url_encode, "a b+йЫВ9&=/;"), "a+b%2B%D0%B9%D0%AB%D0%929%26%3D%2F%3B");
        assert_eq!(run(&url_decode, "a+b%2Bs%D0%B9%zz%4"), "a b+sй%zz%4");
        assert_eq!(run(&hex_encode, "aA oqDF"), "6141206F714446");
        for (text, want) in [("t3", "t3"), ("qwert", "qwert"), ("616", "a6"), ("d099", "Й")] {
            assert_eq!(run(&hex_decode, text), want);
        }
        for (text, want) in
            [("0", Some(0)), ("ff", Some(255)), ("", Some(0)), ("xy", None), ("00000000000000000", None)]
        {
            assert_eq!(hex_number(text), want);
        }
        for text in ["", "a", "ab", "abc", "abcd", "aцC"] {
            let encoded = run(&base64_encode, text);
            let mut back = String::new();
            assert!(base64_decode(&encoded, &mut back) && back == text, "{text} {encoded}");
        }
        assert!(!base64_decode("al", &mut String::new()) && !base64_decode("a===", &mut String::new()));
        assert_eq!((upper('ß'), upper('ц'), lower('İ')), ('ß', 'Ц', 'i'));
    }

    #[test]
    fn what_is_no_encoding_stays() {
        let run = |f: &dyn Fn(&str, &mut String), text: &str| {
            let mut out = String::new();
            f(text, &mut out);
            out
        };
        for (text, want) in
            [("%41%c3%a9", "Aé"), ("%%41", "%A"), ("%ff", "\u{fffd}"), ("%", "%"), ("%é1", "%é1"), ("", "")]
        {
            assert_eq!(run(&url_decode, text), want, "{text}");
        }
        for (text, want) in [("6Z61", "6Za"), ("ff", "\u{fffd}"), ("é", "é"), ("4", "4"), ("", "")] {
            assert_eq!(run(&hex_decode, text), want, "{text}");
        }
        for (text, want) in [
            ("", Some("")),
            ("YQ==", Some("a")),
            ("YWI=\r\n", Some("ab")),
            ("/+==", Some("\u{fffd}")),
            ("YQ", None),
            ("YQ=", None),
            ("Y Q=", None),
            ("YQ==YQ==", None),
            ("====", None),
            ("YWJ-", None),
            ("ééé", None),
        ] {
            let mut out = String::new();
            let done = base64_decode(text, &mut out);
            assert_eq!(done.then_some(out.as_str()), want, "{text}");
            assert!(done || out.is_empty(), "{text}");
        }
        for (text, want) in
            [("ffffffffffffffff", Some(u64::MAX)), ("FF", Some(255)), ("+1", None), ("0x1", None), ("é", None)]
        {
            assert_eq!(hex_number(text), want, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn encodings_read_back(text in ".{0,20}") {
            let (mut url, mut hex, mut base64) = (String::new(), String::new(), String::new());
            url_encode(&text, &mut url);
            hex_encode(&text, &mut hex);
            base64_encode(&text, &mut base64);
            let mut back = [String::new(), String::new(), String::new()];
            url_decode(&url, &mut back[0]);
            hex_decode(&hex, &mut back[1]);
            proptest::prop_assert!(base64_decode(&base64, &mut back[2]));
            proptest::prop_assert_eq!(back, [text.clone(), text.clone(), text]);
        }
    }
}
