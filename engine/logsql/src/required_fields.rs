//! Which fields a place in a query needs: found by walking its pipes backwards.

use std::collections::BTreeSet;

use crate::ast::field::FieldPattern;

/// A set of fields: named ones, and groups by prefix but for some names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Fields that are needed by name.
    pub(crate) names: BTreeSet<String>,
    /// Prefixes: all fields are needed whose names begin so; the empty prefix is all fields.
    pub(crate) prefixes: BTreeSet<String>,
    /// Names that begin with a prefix, but are known not to be needed.
    pub(crate) unneeded: BTreeSet<String>,
}

impl Needs {
    /// Needs all fields, whatever they are called.
    pub(crate) fn all() -> Self {
        Self { prefixes: BTreeSet::from([String::new()]), ..Self::default() }
    }

    /// Needs the fields of these names only.
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 7] = ["a", "ab", "abc", "b", "ba", "c", "_msg"];
    const GROUPS: [&str; 5] = ["", "a", "ab", "abc", "b"];

    /// What is done, and to which name or group.
    type Step = (u8, usize);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        vec((0..4_u8, 0..35_usize), 0..10)
    }

    /// Needs after some steps; the same as a set of names; whether these are all that is needed.
    fn applied(steps: &[Step]) -> (Needs, BTreeSet<&'static str>, bool) {
        let (mut needs, mut naive, mut is_exact) = (Needs::default(), BTreeSet::new(), true);
        for (step, at) in steps {
            let (name, group) = (NAMES[at % NAMES.len()], GROUPS[at % GROUPS.len()]);
            let pattern = FieldPattern::Prefix(group.to_owned());
            match step {
                0 => {
                    needs.add(name);
                    naive.insert(name);
                }
                1 => {
                    needs.add_pattern(&pattern);
                    naive.extend(NAMES.iter().filter(|name| name.starts_with(group)));
                }
                2 => {
                    needs.remove(name);
                    naive.remove(name);
                }
                _ => {
                    // A group within a wider one cannot be told apart from it: that asks for more, never for less.
                    is_exact = false;
                    needs.remove_pattern(&pattern);
                    naive.retain(|name| !name.starts_with(group));
                }
            }
        }
        (needs, naive, is_exact)
    }

    fn agree(needs: &Needs, naive: &BTreeSet<&str>, is_exact: bool) -> Result<(), TestCaseError> {
        for name in NAMES {
            let (found, expected) = (needs.has(name), naive.contains(name));
            prop_assert!(found || !expected, "{name} is needed: {needs:?}");
            prop_assert!(!is_exact || found == expected, "{name} is not needed: {needs:?}");
        }
        for group in GROUPS {
            let any = naive.iter().any(|name| name.starts_with(group));
            prop_assert!(needs.has_any(group) || !any, "some of {group}* are needed: {needs:?}");
        }
        prop_assert!(!needs.is_empty() || naive.is_empty());
        Ok(())
    }

    proptest! {
        /// Breaks if a field that is needed is not read: its values would be empty.
        #[test]
        fn nothing_that_is_needed_is_left_out(first in steps(), second in steps()) {
            let (mut needs, mut naive, is_exact) = applied(&first);
            agree(&needs, &naive, is_exact)?;
            let (other, more, is_exact_too) = applied(&second);
            needs.add_needs(&other);
            naive.extend(more);
            agree(&needs, &naive, is_exact && is_exact_too)?;
        }
    }

    #[test]
    fn all_but_some() {
        let mut needs = Needs::all();
        assert!(needs.open() && !needs.is_empty());
        needs.remove("a");
        assert!(!needs.has("a") && needs.has("ab"));
        needs.add_all(["a"]);
        assert!(needs.has("a"));
        needs.remove_pattern(&FieldPattern::all());
        assert!(needs.is_empty() && !needs.open());
        assert!(Needs::of(["x"]).has("x") && !Needs::of(["x"]).has("xy"));
    }
}
