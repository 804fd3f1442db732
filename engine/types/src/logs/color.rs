//! ANSI escape sequences in values, by which terminals show colors.

/// The pieces of a value between its control sequences (`ESC [`, parameters, intermediate bytes, a final byte).
pub fn without_colors(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.find("\u{1b}[") else {
            rest = None;
            return Some(text);
        };
        let bytes = &text.as_bytes()[at + 2..];
        let parameters = bytes.iter().take_while(|b| (0x30..=0x3f).contains(*b)).count();
        let middle = bytes[parameters..].iter().take_while(|b| (0x20..=0x2f).contains(*b)).count();
        let end = parameters + middle;
        let last = usize::from(bytes.get(end).is_some_and(|b| (0x30..=0x7e).contains(b)));
        rest = Some(&text[at + 2 + end + last..]);
        Some(&text[..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, want: &str| assert_eq!(without_colors(value).collect::<String>(), want, "{value:?}");
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
