//! `pack_json` and `pack_logfmt`: fields of a row as one text. Empty fields are left out.

use crate::kernels::values::push_json_string;
use quiver_types::logs::MSG;

fn name_of(name: &str) -> &str {
    if name.is_empty() { MSG } else { name }
}

/// Writes a JSON object.
pub fn pack_json<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>, out: &mut String) {
    out.push('{');
    let mut first = true;
    for (name, value) in fields.into_iter().filter(|f| !f.1.is_empty()) {
        if !std::mem::replace(&mut first, false) {
            out.push(',');
        }
        push_json_string(out, name_of(name));
        out.push(':');
        push_json_string(out, value);
    }
    out.push('}');
}

/// Writes `name=value name="quoted value"`.
pub fn pack_logfmt<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>, out: &mut String) {
    let mut first = true;
    for (name, value) in fields.into_iter().filter(|f| !f.1.is_empty()) {
        if !std::mem::replace(&mut first, false) {
            out.push(' ');
        }
        out.push_str(name_of(name));
        out.push('=');
        if value.bytes().any(|b| b <= b' ' || b == b'"' || b == b'\\') {
            push_json_string(out, value);
        } else {
            out.push_str(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |fields: &[(&str, &str)], json: &str, logfmt: &str| {
            let (mut a, mut b) = (String::new(), String::new());
            pack_json(fields.iter().copied(), &mut a);
            pack_logfmt(fields.iter().copied(), &mut b);
            assert_eq!((a.as_str(), b.as_str()), (json, logfmt));
        };
        check(&[], "{}", "");
        check(&[("foo", "bar"), ("x", ""), ("", "y=z")], r#"{"foo":"bar","_msg":"y=z"}"#, "foo=bar _msg=y=z");
        check(&[("a\nb", "  \u{1b}[32m ")], r#"{"a\nb":"  \u001b[32m "}"#, "a\nb=\"  \\u001b[32m \"");
        check(&[("a", "АБв")], r#"{"a":"АБв"}"#, "a=АБв");
        check(&[("u", "o'neil")], r#"{"u":"o\u0027neil"}"#, "u=o'neil");
    }
}
