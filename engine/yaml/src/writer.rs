//! Writes values as YAML: blocks, with texts quoted wherever a reader could take them for something else.

use std::fmt::Write as _;

use serde_json::Value;

/// Writes a document.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (i, (key, inner)) in map.iter().enumerate() {
                if i > 0 {
                    indent(depth, out);
                }
                out.push_str(&scalar(key));
                out.push(':');
                nested(inner, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    indent(depth, out);
                }
                out.push_str("- ");
                // The item stands behind its dash, and what follows stands below it.
                block(item, depth + 1, out);
                if !out.ends_with('\n') {
                    out.push('\n');
                }
            }
        }
        Value::Object(_) => out.push_str("{}\n"),
        Value::Array(_) => out.push_str("[]\n"),
        Value::String(text) => out.push_str(&scalar(text)),
        other => out.push_str(&other.to_string()),
    }
}

fn nested(value: &Value, depth: usize, out: &mut String) {
    let is_block = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        out.push('\n');
        indent(depth + 1, out);
        block(value, depth + 1, out);
    } else {
        out.push(' ');
        block(value, depth, out);
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Writes a text, plain where nobody can read it otherwise.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if plain {
        return text.to_owned();
    }
    // A text of JSON is one of YAML, too, but for what YAML refuses, or takes for the end of a line.
    let mut out = String::with_capacity(text.len() + 2);
    for c in Value::from(text).to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::read;

    #[test]
    fn shapes() {
        let value = json!({"a": 1, "b": [{"c": "x y", "d": []}, "e", [1, 2]], "f": {"g": {}}, "yes": "no", "h": ""});
        let text = write(&value);
        assert_eq!(
            text,
            "a: 1\nb:\n  - c: \"x y\"\n    d: []\n  - e\n  - - 1\n    - 2\nf:\n  g: {}\nh: \"\"\n\"yes\": \"no\"\n"
        );
        assert_eq!(read(&text).expect("valid")[0].to_json(), value);
    }

    #[test]
    fn what_ends_lines_is_escaped() {
        let value = json!("a\u{2028}b\u{85}c\u{7f}\u{feff}\u{ffff}é");
        let text = write(&value);
        assert_eq!(text, "\"a\\u2028b\\u0085c\\u007f\\ufeff\\uffffé\"\n");
        assert_eq!(read(&text).expect("valid")[0].to_json(), value);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any_text().prop_map(Value::from),
            (-1000i64..1000).prop_map(Value::from),
            proptest::bool::ANY.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(any_text(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z]{1,5}", "[ -~]{0,12}", "\\PC{0,6}", Just("1.50".to_owned()), Just("~".to_owned())]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in values()) {
            let text = write(&value);
            let nodes = read(&text).map_err(|e| TestCaseError::fail(format!("{e}: {text}")))?;
            prop_assert_eq!(nodes[0].to_json(), value, "{}", text);
        }
    }

    #[test]
    fn nothing_and_lists_in_lists() {
        let check = |value: Value, expected: &str| {
            assert_eq!(write(&value), expected);
            assert_eq!(read(expected).expect("valid")[0].to_json(), value, "{expected}");
        };
        check(json!(null), "null\n");
        check(json!({}), "{}\n");
        check(json!([]), "[]\n");
        check(json!([[], {}, [[]]]), "- []\n- {}\n- - []\n");
        check(json!([[1, 2], [3]]), "- - 1\n  - 2\n- - 3\n");
        check(json!({"a": {"b": {"c": [{"d": null}]}}}), "a:\n  b:\n    c:\n      - d: null\n");
        check(json!([{"a": [1]}, {"b": {}}]), "- a:\n    - 1\n- b: {}\n");
    }

    #[test]
    fn words_that_readers_take_for_something_else_stay_texts() {
        let words = [
            "true",
            "True",
            "FALSE",
            "yes",
            "No",
            "ON",
            "off",
            "null",
            "Null",
            "NULL",
            "~",
            "y",
            "N",
            "",
            " ",
            " a",
            "a ",
            "1",
            "-1",
            "+1",
            "0x1f",
            "1e3",
            ".5",
            ".inf",
            ".NaN",
            "1_000",
            "012",
            "2024-01-01",
            "1:30",
            "<<",
            "=",
            "-",
            "- a",
            "a: b",
            "a:",
            ":a",
            "a #b",
            "#a",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`a",
            "? a",
            "[a",
            "{a",
            "a,b",
            "'",
            "\"",
            "\\",
            "\t",
            "a\tb",
            "a\nb",
            "\r\n",
            "\u{1f}",
            "---",
            "...",
            "é",
            "日本",
            "a/b.c-d_e",
            "NaN",
            "inf",
        ];
        for word in words {
            let value = json!({"key": word, "list": [word, {word: word}]});
            let text = write(&value);
            let found = read(&text).unwrap_or_else(|e| panic!("{word:?}: {e}: {text}"));
            assert_eq!(found[0].to_json(), value, "{word:?}: {text}");
        }
    }

    #[test]
    fn numbers_come_back_to_the_bit() {
        let numbers = [0.1, -0.0, 1.0, 1e15, 1e16, 1e300, 5e-324, f64::MAX, -123_456.789, 1.0 / 3.0];
        for number in numbers {
            let text = write(&json!([number]));
            let found = read(&text).expect("valid")[0].to_json();
            assert_eq!(found[0].as_f64().map(f64::to_bits), Some(number.to_bits()), "{text}");
        }
        let whole = json!([i64::MIN, i64::MAX, u64::MAX, 0]);
        assert_eq!(read(&write(&whole)).expect("valid")[0].to_json(), whole);
    }
}
