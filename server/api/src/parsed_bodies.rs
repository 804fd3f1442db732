//! Limits the memory of parsed JSON and YAML bodies. As trees of values they take far more memory than as text: an object
//! of seven bytes becomes a node with room for eleven members.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use quiver_ingest::DecodeRoom;
use quiver_query::functions::json_tree_bytes;
use quiver_types::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

use crate::body_memory::BodyBudget;

/// Most bytes of the tree of one body.
const TREE_BYTES_MAX: usize = 192 << 20;
/// Nodes that a YAML text has at most, and what one of them takes, with its value.
const YAML_NODES_MAX: usize = quiver_yaml::NODES_MAX;
const YAML_NODE_BYTES: usize = 512;

/// The members of an object that was read, with the memory that was held for them.
pub(crate) struct HeldObject {
    members: Map<String, Value>,
    _room: Arc<dyn DecodeRoom>,
}

impl HeldObject {
    /// Keeps the memory for as long as the members are there.
    pub(crate) fn new(members: Map<String, Value>, room: Arc<dyn DecodeRoom>) -> Self {
        Self { members, _room: room }
    }
}

impl Deref for HeldObject {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.members
    }
}

impl DerefMut for HeldObject {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.members
    }
}

/// Holds the memory that a JSON text takes as a tree, before it is read, until what is given back is dropped.
///
/// # Errors
/// TooLarge: more than one body may take. Unavailable: there is not so much at the moment.
pub(crate) fn hold(bodies: &BodyBudget, text: &[u8]) -> Result<Arc<dyn DecodeRoom>> {
    held(bodies, json_tree_bytes(text), "JSON")
}

/// The same of a YAML text, as nodes that know their place and as the values that are made of them.
///
/// # Errors
/// As [`hold`].
pub(crate) fn hold_yaml(bodies: &BodyBudget, text: &[u8]) -> Result<Arc<dyn DecodeRoom>> {
    held(bodies, yaml_tree_bytes(text), "YAML")
}

/// The same of YAML texts that a body of another form brings, and that are read one after the other.
///
/// # Errors
/// As [`hold`].
pub(crate) fn hold_yaml_texts<'t>(
    bodies: &BodyBudget,
    texts: impl Iterator<Item = &'t str>,
) -> Result<Arc<dyn DecodeRoom>> {
    held(bodies, texts.map(|text| yaml_tree_bytes(text.as_bytes())).max().unwrap_or(0), "YAML")
}

fn count(text: &[u8], is_one: impl Fn(u8) -> bool) -> usize {
    text.iter().filter(|byte| is_one(**byte)).count()
}

fn yaml_tree_bytes(text: &[u8]) -> usize {
    // What may begin a node; beyond the most nodes the text is refused.
    let marks = count(text, |byte| matches!(byte, b'\n' | b':' | b',' | b'-' | b'[' | b'{'));
    // Each anchor may have a copy of nearly all of the text, and so may each place that names one.
    let copies = if text.contains(&b'&') { count(text, |byte| matches!(byte, b'&' | b'*')) } else { 0 };
    let copied = copies.saturating_mul(text.len()).min(quiver_yaml::COPIED_BYTES_MAX);
    2 * (text.len() + copied) + marks.min(YAML_NODES_MAX) * YAML_NODE_BYTES
}

fn held(bodies: &BodyBudget, bytes: usize, form: &str) -> Result<Arc<dyn DecodeRoom>> {
    if bytes > TREE_BYTES_MAX {
        let text = format!("the body would take more than {TREE_BYTES_MAX} bytes of memory as {form}");
        return Err(Error::new(ErrorKind::TooLarge, text));
    }
    let room = bodies.decoding();
    if room.hold(bytes) {
        return Ok(room);
    }
    let text = "the memory for bodies of requests is used up, try again later";
    Err(Error::new(ErrorKind::Unavailable, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_are_large_trees() {
        let bodies = BodyBudget::new(1 << 20, 64 << 20);
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        let kind = |text: &str| hold(&bodies, text.as_bytes()).err().map(|e| e.kind);
        assert_eq!(kind(&list("{\"\":0}", 1 << 20)), Some(ErrorKind::TooLarge), "7 MiB");
        assert_eq!(kind(&list("0", 4 << 20)), Some(ErrorKind::TooLarge));
        assert_eq!(kind(&list("{\"labels\":{\"alertname\":\"a\",\"i\":\"1\"}}", 50_000)), None, "as many as are taken");
        assert_eq!(kind(&format!("[\"{}\"]", "x".repeat(16 << 20))), None, "texts are as long as they were");
        // What others hold is not there, until they are done.
        let small = list("{\"\":0}", 1 << 16);
        let held = hold(&bodies, small.as_bytes()).expect("room");
        assert_eq!(kind(&small), Some(ErrorKind::Unavailable));
        drop(held);
        assert_eq!(kind(&small), None);
    }

    #[test]
    fn nodes_of_yaml_are_held() {
        let bodies = BodyBudget::new(1 << 20, 64 << 20);
        let kind = |text: &str| hold_yaml(&bodies, text.as_bytes()).err().map(|e| e.kind);
        let keys = (0..100_000).map(|n| format!("k{n}:")).collect::<Vec<_>>().join("\n");
        let held = hold_yaml(&bodies, keys.as_bytes()).expect("room");
        // Less than a megabyte takes a hundred of them.
        assert_eq!(kind(&keys), Some(ErrorKind::Unavailable));
        assert_eq!(kind("items:\n- name: a\n"), None, "small ones have their own room");
        drop(held);
        assert_eq!(kind(&keys), None);
        assert_eq!(kind(&format!("a: {}", "x".repeat(16 << 20))), None, "texts are as long as they were");
    }

    #[test]
    fn copies_of_anchors_are_held() {
        let long = "x".repeat(100_000);
        let named = |times: usize| format!("a: &a {long}\nb: [{}]\n", "*a,".repeat(times));
        let bytes = |text: &str| yaml_tree_bytes(text.as_bytes());
        let once = bytes(&format!("a: {long}\n"));
        assert!(bytes(&named(10)) >= once + 2 * 11 * long.len());
        // No more than there can be.
        assert!(bytes(&named(10_000)) <= 2 * (200_000 + quiver_yaml::COPIED_BYTES_MAX) + 10_010 * YAML_NODE_BYTES);
        // A star alone multiplies, and names nothing.
        assert_eq!(bytes(&format!("a: {long}\nb: 1 * 2 * 3\n")), once + 2 * 13 + 2 * YAML_NODE_BYTES);
    }

    /// Texts within JSON count as the largest of them does alone.
    #[test]
    fn texts_within_other_bodies_are_held() {
        let bodies = BodyBudget::new(1 << 20, 64 << 20);
        let keys = |many: usize| (0..many).map(|n| format!("k{n}:")).collect::<Vec<_>>().join("\n");
        let (large, small) = (keys(100_000), keys(10));
        let (large, small) = (large.as_str(), small.as_str());
        let kind = |texts: &[&str]| hold_yaml_texts(&bodies, texts.iter().copied()).err().map(|e| e.kind);
        assert_eq!(kind(&[]), None);
        assert_eq!(kind(&[small; 100]), None);
        let held = hold_yaml_texts(&bodies, [small, large].into_iter()).expect("room");
        assert_eq!(kind(&[large]), Some(ErrorKind::Unavailable));
        drop(held);
        assert_eq!(kind(&[large, large]), None);
    }

    #[test]
    fn members_keep_their_memory() {
        let bodies = BodyBudget::new(1 << 20, 64 << 20);
        let text = format!("{{\"a\":[{}]}}", vec!["{\"\":0}"; 1 << 16].join(","));
        let room = hold(&bodies, text.as_bytes()).expect("room");
        let mut object = HeldObject::new(serde_json::from_str(&text).expect("JSON"), room);
        assert!(object.remove("b").is_none() && object.contains_key("a"));
        assert!(hold(&bodies, text.as_bytes()).is_err(), "another one has no room beside it");
        drop(object);
        assert!(hold(&bodies, text.as_bytes()).is_ok());
    }

    #[test]
    fn an_estimate_is_no_less_than_what_is_taken() {
        for item in
            ["0", "\"\"", "[]", "[0]", "{}", "{\"\":0}", "{\"a\":{\"b\":[null,1]}}", "{\"a\":1,\"b\":2,\"c\":\"d\"}"]
        {
            let value: Value = serde_json::from_str(item).expect("JSON");
            // Each item stands in a list that has doubled, with what comes behind it.
            let estimated = json_tree_bytes(item.as_bytes()) + 64;
            assert!(taken(&value) + size_of::<Value>() <= estimated, "{item}: {estimated}");
        }
    }

    /// Bytes behind a value: nodes of maps have room for eleven members, lists for four items at least.
    fn taken(value: &Value) -> usize {
        let of_value = size_of::<Value>();
        match value {
            Value::String(text) => text.len(),
            Value::Array(list) if list.is_empty() => 0,
            Value::Array(list) => {
                list.len().next_power_of_two().max(4) * of_value + list.iter().map(taken).sum::<usize>()
            }
            Value::Object(map) if map.is_empty() => 0,
            Value::Object(map) => {
                let nodes = map.len().div_ceil(6) * (16 + 11 * (size_of::<String>() + of_value));
                nodes + map.iter().map(|(name, value)| name.len() + taken(value)).sum::<usize>()
            }
            _ => 0,
        }
    }
}
