//! `collapse_nums [prettify]`: numbers become `<N>`, so that messages of one kind become one text.

use crate::kernels::pattern::{is_number, number_may_follow};

/// Writes a value with its numbers collapsed; prettified, well-known groups of them get a name.
pub fn collapse_nums(value: &str, prettify: bool, out: &mut String) {
    if prettify {
        let mut collapsed = String::with_capacity(value.len());
        collapse(value, &mut collapsed);
        out.push_str(&name_groups(collapsed));
    } else {
        collapse(value, out);
    }
}

fn collapse(value: &str, out: &mut String) {
    let bytes = value.as_bytes();
    let (mut written, mut at) = (0, 0);
    let mut before: Option<char> = None;
    while let Some(&b) = bytes.get(at) {
        if !b.is_ascii_hexdigit() || before.is_some_and(|c| !number_may_follow(c)) {
            let c = if b.is_ascii() { b as char } else { value[at..].chars().next().unwrap_or(' ') };
            before = Some(c);
            at += c.len_utf8();
            continue;
        }
        let end = at + bytes[at..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let after = value[end..].chars().next();
        if is_number(&bytes[at..end], after) {
            out.push_str(&value[written..at]);
            out.push_str("<N>");
            written = end;
        }
        before = Some(bytes[end - 1] as char);
        at = end;
    }
    out.push_str(&value[written..]);
}

fn name_groups(collapsed: String) -> String {
    if !collapsed.contains("<N>") && !collapsed.contains("<DATE>") {
        return collapsed;
    }
    let plain = |rest: &str| rest.len();
    let mut text = collapsed;
    for (old, new, tail) in [
        ("<N>-<N>-<N>-<N>-<N>", "<UUID>", &plain as &dyn Fn(&str) -> usize),
        ("<N>.<N>.<N>.<N>", "<IP4>", &plain),
        ("<N>:<N>:<N>", "<TIME>", &after_fraction),
        ("<N>-<N>-<N>", "<DATE>", &plain),
        ("<N>/<N>/<N>", "<DATE>", &plain),
        ("<DATE>T<TIME>", "<DATETIME>", &after_zone),
        ("<DATE> <TIME>", "<DATETIME>", &after_zone),
    ] {
        text = replace(&text, old, new, tail);
    }
    text
}

/// Replaces all occurrences together with what `tail` leaves out of the text that follows: it gives the length that
/// stays.
fn replace(text: &str, old: &str, new: &str, tail: &dyn Fn(&str) -> usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(old) {
        out.push_str(&rest[..at]);
        out.push_str(new);
        let after = &rest[at + old.len()..];
        rest = &after[after.len() - tail(after)..];
    }
    out.push_str(rest);
    out
}

fn after_fraction(rest: &str) -> usize {
    rest.len() - if rest.starts_with(".<N>") || rest.starts_with(",<N>") { 4 } else { 0 }
}

fn after_zone(rest: &str) -> usize {
    let offset = rest.starts_with("-<N>:<N>") || rest.starts_with("+<N>:<N>");
    rest.len() - if offset { 8 } else { usize::from(rest.starts_with('Z')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prettify: bool, value: &str, want: &str) {
        let mut out = String::new();
        collapse_nums(value, prettify, &mut out);
        assert_eq!(out, want, "{value}");
    }

    #[test]
    fn plain() {
        check(false, "", "");
        check(false, "ad", "ad");
        check(false, "deadbeef", "<N>");
        check(false, "a b c d e f ad be:eac,dead beef ab", "a b c d e f ad be:eac,<N> <N> ab");
        check(false, "a.1Zfoo.2Tbar:34", "a.<N>Zfoo.<N>Tbar:<N>");
        check(false, "ЫВА123bar45.78", "ЫВА123bar45.<N>");
        check(false, "2024-12-25T10:20:30.123324+05:00 foo", "<N>-<N>-<N>T<N>:<N>:<N>.<N>+<N>:<N> foo");
        check(false, "0x1234 0XFEAD12", "0x<N> 0X<N>");
        check(false, "1.5ms v2 a_1 1_2", "<N>.<N>ms v<N> a_<N> <N>_<N>");
        check(false, "foo123_456_789 temp_23_1758_", "foo123_<N>_<N> temp_<N>_<N>_");
        check(false, "ЙЦ123ук 43μs", "ЙЦ<N>ук <N>μs");
        check(false, "default beefsteak abacus dead_letter", "default beefsteak abacus dead_letter");
        check(false, "12ab_x dead.letter 0xdead", "<N>_x <N>.letter 0x<N>");
    }

    #[test]
    fn pretty() {
        check(true, "foo", "foo");
        check(
            true,
            "35.191.193.225:51648 - 2edfed59-3e98-4073-bbb2-28d321ca71a7 - - [2024/12/08 15:21:02] 10.71.20.32 GET /foo 200",
            "<IP4>:<N> - <UUID> - - [<DATETIME>] <IP4> GET /foo <N>",
        );
        check(true, "E1208 15:21:02.748877 62 metric_reporter.go:182", "E1208 <TIME> <N> metric_reporter.go:<N>");
        check(true, "2024-12-08T15:22:32.342Z error x.go:101", "<DATETIME> error x.go:<N>");
        check(true, "2024-12-08 15:22:32,123 error", "<DATETIME> error");
        check(true, "2024-12-08 15:22:32.123+10:30 error", "<DATETIME> error");
        check(true, "2004-10-12T43:23:12Z abc:345", "<DATETIME> abc:<N>");
    }

    #[test]
    fn groups_that_have_a_name() {
        check(true, "1-2-3-4-5", "<UUID>");
        check(true, "1-2-3-4", "<DATE>-<N>");
        check(true, "1/2/3", "<DATE>");
        check(true, "1:2:3.x 1:2:3,4 1:2", "<TIME>.x <TIME> <N>:<N>");
        check(true, "1.2.3.4.5", "<IP4>.<N>");
        check(true, "2024-12-08T15:22:32+01", "<DATETIME>+<N>");
        check(true, "2024-12-08T15:22:32-01:30Z", "<DATETIME>Z");
        check(true, "2024/12/08 15:22:32Z.", "<DATETIME>.");
        check(true, "a <UUID> of <N>", "a <UUID> of <N>");
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_left_for_a_second_time(value in "([0-9a-fT:.xvsmhun_ é-]|dead|12){0,12}") {
            let mut once = String::new();
            collapse_nums(&value, false, &mut once);
            check(false, &once, &once);
        }
    }
}
