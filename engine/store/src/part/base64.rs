//! Base64 (RFC 4648 section 4, padded) for the few bytes that travel in JSON and in footers. No crate of the
//! workspace offers it, and it is two loops.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, &b| (w << 8) | u32::from(b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let code = ALPHABET[(word >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= chunk.len() { char::from(code) } else { '=' });
        }
    }
    out
}

/// Decodes; `None` for anything that [`encode`] does not give.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for (i, chunk) in text.chunks(4).enumerate() {
        let last = (i + 1) * 4 == text.len();
        let padding = if last { chunk.iter().rev().take_while(|&&b| b == b'=').count() } else { 0 };
        let mut word = 0u32;
        for &b in &chunk[..4 - padding] {
            word = (word << 6) | ALPHABET.iter().position(|&a| a == b)? as u32;
        }
        word <<= 6 * padding;
        if padding > 2 {
            return None;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe\xfd\xfc", "//79/A==")]
        {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        for bad in ["A", "====", "Zg=a", "Z!==", "Zm8=Zm8="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
