//! Labels of all series of a resource and its scopes: `job` and `instance`, promoted attributes, labels of the scope.
//! They are built once per resource and scope; points merge the sorted list into their own labels.

use std::collections::HashSet;

use super::fixed_labels::{FixedLabel, FixedLabels};
use super::labels::Attributes;
use super::{Fault, any_value, names};
use crate::labels::TEXT_MAX_BYTES;
use crate::rejection::Reason;
use crate::wire::{Reader, WireError};

/// Resource attributes that become `job` and `instance`.
const IDENTITY: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];
/// What the labels of a scope begin with.
const SCOPE_PREFIX: &str = "otel_scope_";
/// The labels of a scope that are none of its attributes.
const SCOPE_FIELDS: [&str; 3] = ["name", "version", "schema_url"];
/// Most attributes of a scope.
const SCOPE_ATTRIBUTES_MAX: usize = 1000;

/// Names of the resource attributes that become labels of each series.
#[derive(Debug, Clone, Default)]
pub struct PromotedAttributes {
    names: HashSet<String>,
    prefixes: Vec<String>,
}

impl PromotedAttributes {
    /// Parses a list of names; a final `*` makes an entry a prefix.
    pub fn of(list: &[String]) -> Self {
        let mut out = Self::default();
        for name in list {
            match name.strip_suffix('*') {
                Some(prefix) => out.prefixes.push(prefix.to_owned()),
                None => drop(out.names.insert(name.clone())),
            }
        }
        out
    }

    fn has(&self, key: &str) -> bool {
        self.names.contains(key) || self.prefixes.iter().any(|prefix| key.starts_with(&**prefix))
    }
}

/// The labels that a resource gives.
#[derive(Debug, Default)]
pub(super) struct Resource<'a> {
    /// Labels of its series.
    pub(super) of_series: FixedLabels,
    /// Labels of its `target_info` in addition to the attributes.
    pub(super) of_info: FixedLabels,
    /// Attributes of its `target_info`; empty if there is none.
    pub(super) info: Attributes<'a>,
}

impl<'a> Resource<'a> {
    /// Reads the attributes of a resource, each key once. `job`, `instance` and promoted attributes become labels of
    /// every series. `target_info` has the others as well, except those in `job` and `instance`, unless they are
    /// promoted, so that both name the same service.
    pub(super) fn read(mut attributes: Attributes<'a>, promoted: &PromotedAttributes) -> Result<Self, Fault> {
        attributes.keep_last()?;
        let identity = identity(&attributes)?;
        let mut labels = promoted_labels(&attributes, promoted)?;
        let of_info = FixedLabels::new(identity.iter().cloned());
        labels.extend(identity);
        if labels.iter().map(|l| l.name.len() + l.value.len()).sum::<usize>() > TEXT_MAX_BYTES {
            return Err(Reason::LongLabel.into());
        }
        let is_identity = |key: &[u8]| IDENTITY.iter().any(|id| id.as_bytes() == key);
        if attributes.keys().all(is_identity) {
            attributes.clear();
        }
        attributes.retain(|key| !is_identity(key) || std::str::from_utf8(key).is_ok_and(|key| promoted.has(key)));
        Ok(Self { of_series: FixedLabels::new(labels), of_info, info: attributes })
    }
}

/// The labels `job` and `instance`.
fn identity(attributes: &Attributes<'_>) -> Result<Vec<FixedLabel>, Fault> {
    let [name, namespace, instance] = IDENTITY.map(|key| attributes.get(key));
    let namespace = namespace?;
    let job = name?.map(|name| namespace.map_or(name.clone(), |namespace| format!("{namespace}/{name}")));
    let labels = [("job", job), ("instance", instance?)];
    let label =
        |(name, value): (&str, Option<String>)| Some(FixedLabel { name: name.into(), value: value?, wins: true });
    Ok(labels.into_iter().filter_map(label).collect())
}

/// The promoted attributes as labels. Values of keys that map to one name are joined by `;` in key order.
fn promoted_labels(attributes: &Attributes<'_>, promoted: &PromotedAttributes) -> Result<Vec<FixedLabel>, Fault> {
    let mut labels: Vec<FixedLabel> = Vec::new();
    for (key, value) in attributes.iter() {
        // A key that is no valid text cannot be in the list; `target_info` refuses it.
        let Some(key) = std::str::from_utf8(key).ok().filter(|key| promoted.has(key)) else { continue };
        let (mut name, mut text) = (String::new(), String::new());
        any_value::push(value, &mut text)?;
        if text.is_empty() || !names::push_label_name(key, &mut name) {
            continue;
        }
        labels.push(FixedLabel { name, value: text, wins: false });
    }
    // The sort is stable, and attributes are in order of their keys.
    labels.sort_by(|a, b| a.name.cmp(&b.name));
    labels.dedup_by(|later, kept| {
        let is_same = later.name == kept.name;
        if is_same {
            kept.value.push(';');
            kept.value.push_str(&later.value);
        }
        is_same
    });
    Ok(labels)
}

/// The labels of a scope with a name; they take precedence over attributes.
pub(super) fn scope_labels(scope: &[u8], schema_url: &[u8]) -> Result<Vec<FixedLabel>, Fault> {
    let mut labels: Vec<FixedLabel> = Vec::new();
    let (mut name, mut version): (&[u8], &[u8]) = (b"", b"");
    let mut add = |label: String, value: String| labels.push(FixedLabel { name: label, value, wins: true });
    let mut r = Reader::new(scope);
    let mut attributes = 0;
    while !r.is_empty() {
        match r.tag()? {
            0x0a => name = r.bytes()?,
            0x12 => version = r.bytes()?,
            0x1a => {
                let (key, value) = any_value::key_value(r.bytes()?)?;
                let (mut label, mut text) = (String::new(), String::new());
                names::push_label_name(&format!("{SCOPE_PREFIX}{}", any_value::text(key)?), &mut label);
                any_value::push(value, &mut text)?;
                // Its own fields have these labels, even if they are empty.
                if !SCOPE_FIELDS.iter().any(|field| label.strip_prefix(SCOPE_PREFIX) == Some(*field)) {
                    add(label, text);
                }
                attributes += 1;
                if attributes > SCOPE_ATTRIBUTES_MAX {
                    return Err(Fault::Refused(Reason::TooManyLabels));
                }
            }
            other => r.skip(other, &[1, 2, 3])?,
        }
    }
    if name.is_empty() {
        return Ok(Vec::new());
    }
    for (field, value) in SCOPE_FIELDS.into_iter().zip([name, version, schema_url]) {
        add(format!("{SCOPE_PREFIX}{field}"), any_value::text(value)?.to_owned());
    }
    Ok(labels)
}

/// Reads the attributes of a `Resource` message.
pub(super) fn push_attributes<'a>(resource: &'a [u8], attributes: &mut Attributes<'a>) -> Result<(), WireError> {
    let mut r = Reader::new(resource);
    while !r.is_empty() {
        match r.tag()? {
            0x0a => attributes.push(any_value::key_value(r.bytes()?)?),
            other => r.skip(other, &[1])?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_list() {
        let list = ["host.name", "mysql.*", "k8s.pod*"].map(str::to_owned);
        let promoted = PromotedAttributes::of(&list);
        let check = |key: &str, expected| assert_eq!(promoted.has(key), expected, "{key}");
        check("host.name", true);
        check("host.name.x", false);
        check("host", false);
        check("mysql.", true);
        check("mysql.instance.endpoint", true);
        check("mysql", false);
        check("k8s.pod", true);
        check("k8s.pod.uid", true);
        assert!(PromotedAttributes::of(&["*".to_owned()]).has("any"));
        assert!(!PromotedAttributes::default().has(""));
    }
}
