//! Queries as they are sent. An order that is an object goes by the order of its keys (`olap-api.md` 2), which objects in
//! memory do not keep: it is read as the list of pairs that says the same.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

/// The member of a query that is such an object.
const ORDER: &str = "order";

/// Reads a request or a query.
///
/// # Errors
/// It is no JSON.
pub(crate) fn read(text: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Part::Any.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// What is read.
#[derive(Debug, Clone, Copy)]
enum Part {
    Any,
    Order,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
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
}
