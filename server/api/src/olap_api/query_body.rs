//! Parses queries. In an `order` object the order of keys matters (`olap-api.md` 2), but maps do not preserve it:
//! such an object is parsed as the equivalent list of pairs.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

/// The member that holds such an object.
const ORDER: &str = "order";

/// Parses a request or a query.
///
/// # Errors
/// It is not valid JSON.
pub(crate) fn read(text: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = ValueSeed::Any.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// What is being parsed.
#[derive(Debug, Clone, Copy)]
enum ValueSeed {
    Any,
    Order,
}

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(Self::Any)? {
            list.push(value);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let (mut object, mut pairs) = (Map::new(), Vec::new());
        while let Some(key) = map.next_key::<String>()? {
            match self {
                Self::Any => {
                    let part = if key == ORDER { Self::Order } else { Self::Any };
                    let value = map.next_value_seed(part)?;
                    object.insert(key, value);
                }
                Self::Order => pairs.push(json!([key, map.next_value::<Value>()?])),
            }
        }
        Ok(match self {
            Self::Any => object.into(),
            Self::Order => pairs.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_go_by_their_keys() {
        let check = |text: &str, wanted: Value| assert_eq!(read(text.as_bytes()).unwrap(), wanted, "{text}");
        check(
            r#"{"query":{"order":{"B.b":"asc","A.a":"desc"}}}"#,
            json!({"query": {"order": [["B.b", "asc"], ["A.a", "desc"]]}}),
        );
        check(
            r#"[{"order":{"B.b":"asc"}},{"order":[["A.a","asc"]]}]"#,
            json!([{"order": [["B.b", "asc"]]}, {"order": [["A.a", "asc"]]}]),
        );
        check(r#"{"order":{}}"#, json!({"order": []}));
        let other = r#"{"b":[1,-2,0.5,"x",true,null],"a":{"z":{"y":"\u00e9"}},"order":null}"#;
        check(other, serde_json::from_str(other).unwrap());
        for text in ["", "{", "{} x", "[1,]", r#"{"order":{"a"}}"#, &"[".repeat(200)] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }

    /// Only `order` becomes a list of pairs; everything else is parsed as usual.
    #[test]
    fn all_else_is_read_as_usual() {
        for text in [
            "null",
            "-0.0",
            "1e300",
            "18446744073709551615",
            "-9223372036854775808",
            r#""\u0000\ud83d\ude00""#,
            r#"[[],{},[{"a":[]}]]"#,
            r#"{"a":1,"a":2}"#,
            r#" { "order" : null } "#,
            r#"{"order":"a","x":{"order":7}}"#,
            r#"{"orders":{"b":1,"a":2}}"#,
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes()).unwrap(), expected, "{text}");
        }
        for text in ["\u{feff}{}", "{} {}", "{'a':1}", "{\"a\":}", "nul", "[1 2]", "\"\u{1}\""] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(read(b"\"\xff\"").is_err(), "it is no UTF-8");
    }

    #[test]
    fn orders_keep_whatever_they_hold() {
        let check = |text: &str, wanted: Value| assert_eq!(read(text.as_bytes()).unwrap(), wanted, "{text}");
        check(
            r#"{"order":{"b":1,"a":{"y":2,"x":1},"c":null}}"#,
            json!({"order": [["b", 1], ["a", {"x": 1, "y": 2}], ["c", null]]}),
        );
        // A duplicate key yields two entries; it is refused later.
        check(r#"{"order":{"a":"asc","a":"desc"}}"#, json!({"order": [["a", "asc"], ["a", "desc"]]}));
        check(r#"{"x":[{"order":{"b":1}}]}"#, json!({"x": [{"order": [["b", 1]]}]}));
    }

    #[test]
    fn what_nests_too_deeply_is_refused() {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"{"order":"#, "}")] {
            let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert!(read(nested(100).as_bytes()).is_ok(), "{open}");
            assert!(read(nested(10_000).as_bytes()).is_err(), "{open}");
        }
    }
}
