//! `format "text <field> <q:field> .."`.

use std::borrow::Cow;
use std::fmt::Write;

use super::codec;
use super::output_limit::VALUE_LEN_MAX;
use super::template::{self, Step};
use crate::kernels::values::{
    parse_duration, parse_i64, parse_u64, parse_unix, push_duration, push_f64, push_ipv4, push_json_string,
    push_rfc3339,
};

/// A template of `format`, taken apart: texts, fields, and how their values are written.
#[derive(Debug, Clone)]
pub struct Format {
    steps: Vec<Step>,
}

impl Format {
    /// Reads a template. A prefix that is not known gives the value as it is.
    ///
    /// # Errors
    /// As [`template::parse`].
    pub fn new(template: &str) -> Result<Self, String> {
        Ok(Self { steps: template::parse(template)? })
    }

    /// The fields that are read, in the order of the template; one may stand twice.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|s| s.field.as_str()).filter(|f| !f.is_empty())
    }

    /// Writes a row. `values` gives the values of [`Format::fields`] by their place; empty for a missing one.
    pub fn apply<'a>(&self, values: impl Fn(usize) -> Cow<'a, str>, out: &mut String) {
        let mut place = 0;
        for step in &self.steps {
            if out.len() > VALUE_LEN_MAX {
                return;
            }
            out.push_str(&step.text);
            if !step.field.is_empty() {
                push(&step.option, &values(place), out);
                place += 1;
            }
        }
    }
}

/// Writes a value as its prefix says; a value that is not of the form that the prefix reads stays as it is.
fn push(option: &str, value: &str, out: &mut String) {
    let known = match option {
        "q" => {
            push_json_string(out, value);
            true
        }
        "uc" => {
            out.extend(value.chars().map(codec::upper));
            true
        }
        "lc" => {
            out.extend(value.chars().map(codec::lower));
            true
        }
        "time" => parse_unix(value).map(|ns| push_rfc3339(out, ns)).is_some(),
        "duration" => parse_i64(value).map(|ns| push_duration(out, ns)).is_some(),
        "duration_seconds" => parse_duration(value).map(|ns| push_f64(out, ns as f64 / 1e9)).is_some(),
        "ipv4" => parse_u64(value).and_then(|n| u32::try_from(n).ok()).map(|n| push_ipv4(out, n)).is_some(),
        "urlencode" => {
            codec::url_encode(value, out);
            true
        }
        "urldecode" => {
            codec::url_decode(value, out);
            true
        }
        "hexencode" => {
            codec::hex_encode(value, out);
            true
        }
        "hexdecode" => {
            codec::hex_decode(value, out);
            true
        }
        "base64encode" => {
            codec::base64_encode(value, out);
            true
        }
        "base64decode" => codec::base64_decode(value, out),
        "hexnumencode" => parse_u64(value).map(|n| write!(out, "{n:016X}")).is_some(),
        "hexnumdecode" => codec::hex_number(value).map(|n| write!(out, "{n}")).is_some(),
        _ => false,
    };
    if !known {
        out.push_str(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let check = |template: &str, fields: &[(&str, &str)], want: &str| {
            let format = Format::new(template).unwrap();
            let names: Vec<&str> = format.fields().collect();
            let mut out = String::new();
            let value = |i: usize| Cow::Borrowed(fields.iter().find(|f| f.0 == names[i]).map_or("", |f| f.1));
            format.apply(value, &mut out);
            assert_eq!(out, want, "{template}");
        };
        check("a<foo>aa<_msg>xx<a>x", &[("_msg", "foobar"), ("a", "b")], "aaafoobarxxbx");
        check("&lt;foo&gt;", &[], "<foo>");
        check(
            r#"{"foo":<q:foo>,"bar":"<bar>"}"#,
            &[("foo", "\"abc\""), ("bar", "x")],
            r#"{"foo":"\"abc\"","bar":"x"}"#,
        );
        check(
            "<uc:foo><lc:bar> <hexencode:foo> <hexdecode:baz> <hexnumencode:n> <hexnumdecode:hn> <urlencode:foo> <urldecode:y>",
            &[
                ("foo", "aцC"),
                ("bar", "aBП"),
                ("baz", "D099D0A6D0A3D09A"),
                ("n", "1234"),
                ("hn", "00000000000004D2"),
                ("y", "a+b%20d"),
            ],
            "AЦCabп 61D18643 ЙЦУК 00000000000004D2 1234 a%D1%86C a b d",
        );
        check(
            "<base64encode:foo>;<base64decode:bar>;<base64decode:baz>",
            &[("foo", "aцC"), ("bar", "YdGGQw=="), ("baz", "al")],
            "YdGGQw==;aцC;al",
        );
        check(
            "<ipv4:b> <time:t> <duration:d> <duration_seconds:e> <duration:x> <len:x>",
            &[("b", "513"), ("t", "37"), ("d", "37"), ("e", "246.998ms"), ("x", "foo")],
            "0.0.2.1 1970-01-01T00:00:37Z 37ns 0.246998s foo foo".replace("0.246998s", "0.246998").as_str(),
        );
    }

    #[test]
    fn values_that_prefixes_do_not_read_stay() {
        for (option, value, want) in [
            ("q", "é\"\n", r#""é\"\n""#),
            ("uc", "straße ǆ", "STRAßE Ǆ"),
            ("lc", "ÄİX", "äix"),
            ("time", "1.5", "1970-01-01T00:00:01.5Z"),
            ("time", "2024-01-01", "2024-01-01"),
            ("time", "", ""),
            ("duration", "-1500000000", "-1.5s"),
            ("duration", "0", "0"),
            ("duration", "1.5", "1.5"),
            ("duration_seconds", "1h", "3600"),
            ("duration_seconds", "-1ms", "-0.001"),
            ("duration_seconds", "90", "90"),
            ("ipv4", "4294967295", "255.255.255.255"),
            ("ipv4", "4294967296", "4294967296"),
            ("ipv4", "-1", "-1"),
            ("hexnumencode", "18446744073709551615", "FFFFFFFFFFFFFFFF"),
            ("hexnumencode", "-1", "-1"),
            ("hexnumdecode", "", "0"),
            ("hexnumdecode", "FF", "255"),
            ("hexnumdecode", "zz", "zz"),
            ("base64decode", "YQ", "YQ"),
            ("nosuch", "v", "v"),
            ("Q", "v", "v"),
        ] {
            let mut out = String::new();
            Format::new(&format!("[<{option}:a>]")).unwrap().apply(|_| Cow::Borrowed(value), &mut out);
            assert_eq!(out, format!("[{want}]"), "{option} of {value}");
        }
    }

    #[test]
    fn a_row_that_becomes_too_long_is_not_made_whole() {
        let value = "x".repeat(1 << 20);
        let format = Format::new(&"<a>".repeat(100)).unwrap();
        assert_eq!(format.fields().count(), 100);
        let mut out = String::new();
        format.apply(|_| Cow::Borrowed(value.as_str()), &mut out);
        assert_eq!(out.len(), VALUE_LEN_MAX + value.len());
    }
}
