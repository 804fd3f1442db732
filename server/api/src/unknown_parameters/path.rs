//! Texts in paths. Extractors answer a path that is no UTF-8 text in a form of their own, so families of routes look at it
//! before them.

/// The bytes that a text of a path stands for.
pub(crate) fn decoded(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| text[at] == b'%').and_then(|h| std::str::from_utf8(h).ok());
        let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
        bytes.push(byte.unwrap_or(text[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    bytes
}

/// Whether a path stands for UTF-8 text.
pub(crate) fn is_text(path: &str) -> bool {
    !path.contains('%') || std::str::from_utf8(&decoded(path)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (path, expected) in [
            ("/traces/1", true),
            ("/traces/%41", true),
            ("/traces/%e2%82%ac", true),
            ("/traces/%ff", false),
            ("/traces/%e2%82/x", false),
            // No escapes.
            ("/traces/%", true),
            ("/traces/%f", true),
            ("/traces/%zz", true),
            ("/traces/\u{20ac}", true),
        ] {
            assert_eq!(is_text(path), expected, "{path}");
        }
        assert_eq!(decoded("a%FFb%20%"), b"a\xffb %");
    }
}
