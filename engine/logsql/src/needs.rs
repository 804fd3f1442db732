//! Which fields a place in a query needs: found by walking its pipes backwards.

use std::collections::BTreeSet;

use crate::ast::FieldPattern;

/// A set of fields: named ones, and groups by prefix but for some names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Fields by name.
    pub(crate) names: BTreeSet<String>,
    /// Groups by prefix; the empty prefix is all fields.
    pub(crate) prefixes: BTreeSet<String>,
    /// Names in groups that are known not to be needed.
    pub(crate) unneeded: BTreeSet<String>,
}

impl Needs {
    /// All fields.
    pub(crate) fn all() -> Self {
        Self { prefixes: BTreeSet::from([String::new()]), ..Self::default() }
    }

    /// These fields.
    pub(crate) fn of<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Whether no field is needed.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// Whether fields are needed that are not named.
    pub(crate) fn open(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Whether the field is needed.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name) || self.in_group(name) && !self.unneeded.contains(name)
    }

    fn in_group(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Whether any field of the group is needed.
    pub(crate) fn has_any(&self, prefix: &str) -> bool {
        self.names.iter().any(|name| name.starts_with(prefix))
            || self.prefixes.iter().any(|own| own.starts_with(prefix) || prefix.starts_with(own.as_str()))
    }

    pub(crate) fn add(&mut self, name: &str) {
        self.unneeded.remove(name);
        self.names.insert(name.to_owned());
    }

    pub(crate) fn add_all<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        names.into_iter().for_each(|name| self.add(name));
    }

    pub(crate) fn add_pattern(&mut self, pattern: &FieldPattern) {
        match pattern {
            FieldPattern::Name(name) => self.add(name),
            FieldPattern::Prefix(prefix) => {
                self.prefixes.insert(prefix.clone());
                self.unneeded.retain(|name| !name.starts_with(prefix.as_str()));
            }
        }
    }

    pub(crate) fn add_needs(&mut self, other: &Self) {
        let kept: BTreeSet<String> = self.unneeded.iter().filter(|name| !other.has(name)).cloned().collect();
        let more = other.unneeded.iter().filter(|name| !self.has(name)).cloned();
        self.unneeded = more.chain(kept).collect();
        self.names.extend(other.names.iter().cloned());
        self.prefixes.extend(other.prefixes.iter().cloned());
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.names.remove(name);
        if self.in_group(name) {
            self.unneeded.insert(name.to_owned());
        }
    }

    pub(crate) fn remove_pattern(&mut self, pattern: &FieldPattern) {
        match pattern {
            FieldPattern::Name(name) => self.remove(name),
            FieldPattern::Prefix(prefix) => {
                self.names.retain(|name| !name.starts_with(prefix.as_str()));
                self.prefixes.retain(|own| !own.starts_with(prefix.as_str()));
            }
        }
    }
}
