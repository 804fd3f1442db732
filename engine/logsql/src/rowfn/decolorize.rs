//! `decolorize [f]`: leaves out ANSI escape sequences.

/// Writes a value without its control sequences (`ESC [`, parameters, intermediate bytes, a final byte).
pub fn decolorize(value: &str, out: &mut String) {
    let mut rest = value;
    while let Some(at) = rest.find("\u{1b}[") {
        out.push_str(&rest[..at]);
        let bytes = &rest.as_bytes()[at + 2..];
        let parameters = bytes.iter().take_while(|b| (0x30..=0x3f).contains(*b)).count();
        let middle = bytes[parameters..].iter().take_while(|b| (0x20..=0x2f).contains(*b)).count();
        let end = parameters + middle;
        let last = usize::from(bytes.get(end).is_some_and(|b| (0x30..=0x7e).contains(b)));
        rest = &rest[at + 2 + end + last..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, want: &str| {
            let mut out = String::new();
            decolorize(value, &mut out);
            assert_eq!(out, want, "{value:?}");
        };
        check("", "");
        check("FooBar", "FooBar");
        check("\u{1b}[mfoo\u{1b}[1;31mERROR bar\u{1b}[10;5H", "fooERROR bar");
        check("foo\u{1b}[2Jbar", "foobar");
        check("foo\u{1b}[\u{1}", "foo\u{1}");
        check("a\u{1b}P 1;2;3 qabc\u{1b}\\", "a\u{1b}P 1;2;3 qabc\u{1b}\\");
        check("x\u{1b}[", "x");
        check("x\u{1b}[é", "xé");
    }
}
