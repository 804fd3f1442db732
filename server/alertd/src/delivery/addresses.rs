//! Parses address lists of mail headers (RFC 5322, section 3.4). It is as lenient as Go's parser: non-ASCII names,
//! comments, groups, empty entries and host names with `_` are accepted, so a policy that works in Alertmanager works
//! here.

use std::net::IpAddr;

/// Gives the addresses of a list, in order: without names and comments, those of groups too. A quoted local part keeps its
/// quotes, as the talk with a mail server wants it.
///
/// # Errors
/// Why it is no such list.
pub(super) fn addresses(text: &str) -> Result<Vec<String>, String> {
    if text.contains(|c: char| c.is_control() && c != '\t') {
        return Err("a control character".to_owned());
    }
    let mut parser = Parser { rest: text };
    let mut out = Vec::new();
    loop {
        parser.rest = parser.rest.trim_start_matches([' ', '\t', ',']);
        if parser.rest.is_empty() {
            return if out.is_empty() { Err("no address".to_owned()) } else { Ok(out) };
        }
        parser.entry(&mut out, false)?;
        parser.skip_comments()?;
        if !parser.rest.is_empty() && !parser.rest.starts_with(',') {
            return Err(parser.expected("a comma"));
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn expected(&self, what: &str) -> String {
        format!("expected {what} at {:?}", self.rest)
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Cuts off what comes before a place.
    fn cut(&mut self, at: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(at);
        self.rest = rest;
        text
    }

    /// Reads one address, with or without a name, or a group of them.
    fn entry(&mut self, out: &mut Vec<String>, in_group: bool) -> Result<(), String> {
        self.skip_space();
        let begin = self.rest;
        if let Ok(address) = self.address() {
            out.push(address);
            return Ok(());
        }
        self.rest = begin;
        if !begin.starts_with('<') {
            self.name()?;
        }
        if !in_group && self.take(':') {
            return self.group(out);
        }
        if !self.take('<') {
            return Err(format!("no address in {begin:?}"));
        }
        out.push(self.address()?);
        if self.take('>') { Ok(()) } else { Err(self.expected("`>`")) }
    }

    /// Reads the members of a group, up to its `;`.
    fn group(&mut self, out: &mut Vec<String>) -> Result<(), String> {
        self.skip_space();
        while !self.take(';') {
            self.entry(out, true)?;
            self.skip_comments()?;
            if !self.take(',') && !self.rest.starts_with(';') {
                return Err(self.expected("a comma or `;`"));
            }
        }
        Ok(())
    }

    /// Reads `local@domain` of RFC 5322; the local part may be quoted.
    fn address(&mut self) -> Result<String, String> {
        self.skip_space();
        let local = if self.rest.starts_with('"') { self.quoted()? } else { self.dotted()? };
        if local == "\"\"" || !self.take('@') {
            return Err(self.expected("`@` behind a local part"));
        }
        self.skip_space();
        let domain = if self.rest.starts_with('[') { self.literal()? } else { self.dotted()? };
        Ok(format!("{local}@{domain}"))
    }

    /// Reads the words of a name.
    fn name(&mut self) -> Result<(), String> {
        let begin = self.rest;
        loop {
            self.skip_space();
            if self.rest.starts_with('"') {
                self.quoted()?;
            } else if self.word().is_empty() {
                break;
            }
        }
        if self.rest.len() < begin.len() { Ok(()) } else { Err(self.expected("an address")) }
    }

    fn word(&mut self) -> &'a str {
        self.cut(self.rest.find(|c: char| " \t()<>[]:;@\\,\"".contains(c)).unwrap_or(self.rest.len()))
    }

    /// Reads a word whose dots stand between others.
    fn dotted(&mut self) -> Result<&'a str, String> {
        let word = self.word();
        let is_sound = word.split('.').all(|part| !part.is_empty());
        if is_sound { Ok(word) } else { Err(format!("misplaced dot or nothing in {word:?}")) }
    }

    /// Reads a quoted text, its quotes with it.
    fn quoted(&mut self) -> Result<&'a str, String> {
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return Ok(self.cut(at + 1)),
                '\\' => {
                    chars.next();
                }
                _ => {}
            }
        }
        Err(self.expected("the end of a quoted text"))
    }

    /// Reads an address of a host in brackets.
    fn literal(&mut self) -> Result<&'a str, String> {
        let Some(end) = self.rest.find(']') else { return Err(self.expected("`]`")) };
        let text = self.cut(end + 1);
        let host = &text[1..end];
        let is_host = host.strip_prefix("IPv6:").unwrap_or(host).parse::<IpAddr>().is_ok();
        if is_host { Ok(text) } else { Err(format!("{text} is no address of a host")) }
    }

    fn skip_comments(&mut self) -> Result<(), String> {
        loop {
            self.skip_space();
            if !self.rest.starts_with('(') {
                return Ok(());
            }
            self.comment()?;
        }
    }

    /// Reads a comment, which may hold others.
    fn comment(&mut self) -> Result<(), String> {
        let mut depth = 0_usize;
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                '\\' => {
                    chars.next();
                }
                _ => {}
            }
            if depth == 0 {
                self.cut(at + 1);
                return Ok(());
            }
        }
        Err(self.expected("the end of a comment"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Debian's Alertmanager takes and refuses them, but for the two that Go's next releases have mended: it drops the
    /// quotes of a local part, and knows no hosts in brackets.
    #[test]
    fn lists() {
        let check = |text: &str, expected: &[&str]| {
            let got = addresses(text);
            assert_eq!(got.as_deref().ok().unwrap_or_default(), expected, "{text}: {got:?}");
        };
        check("a@b.example", &["a@b.example"]);
        check("root@localhost", &["root@localhost"]);
        check(" a@b.example , c@d.example ", &["a@b.example", "c@d.example"]);
        check(",a@b.example,, c@d.example, ", &["a@b.example", "c@d.example"]);
        check("Täm Ops <a@b.example>", &["a@b.example"]);
        check("\"Last, First\" <a@b.example>, x@y.example", &["a@b.example", "x@y.example"]);
        check("=?utf-8?q?J=C3=B6rg?= <a@b.example>", &["a@b.example"]);
        check("Ops Team. <a@b.example>", &["a@b.example"]);
        check("<a@b.example>", &["a@b.example"]);
        check("a@my_host.example (on (night) call)", &["a@my_host.example"]);
        check("a@b.example (one), c@d.example", &["a@b.example", "c@d.example"]);
        check("list: a@b.example, B <c@d.example>;, e@f.example", &["a@b.example", "c@d.example", "e@f.example"]);
        check("\"a b\"@c.example", &["\"a b\"@c.example"]);
        check("a@[127.0.0.1]", &["a@[127.0.0.1]"]);
        check("dörte@bücher.example", &["dörte@bücher.example"]);
        check("a+b=c!#$%&'*/?^`{|}~@x.example", &["a+b=c!#$%&'*/?^`{|}~@x.example"]);
        for text in [
            "",
            " , ",
            "nobody",
            "a@",
            "@b",
            "a b@c",
            ".a@b",
            "a.@b",
            "a..b@c",
            "a@b.",
            "<a@b",
            "a@b>",
            "a@b c@d",
            "a@b; c@d",
            "\"\"@b",
            "\"a@b",
            "a@b (c",
            "a@[x]",
            "a@[127.0.0.1",
            "(c) a@b",
            "Ops a@b.example",
            "x <a@b> y",
            "g: a@b",
            "a@b\n",
            "a@b\r\nRCPT TO:<c@d>",
            "a@b <c@d>",
        ] {
            check(text, &[]);
        }
    }
}
