//! Serialized forms of recursive types, such as a filter of filters: `#[serde(with = "quiver_types::nesting")]` on the
//! recursive fields.
//!
//! Deserialization recurses, and bytes from elsewhere must not overflow the stack. So the depth is limited, both when
//! reading and when writing.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};

/// Greatest depth that is followed. An expression of LogsQL may have 1024 operators, one within the other.
const LEVELS_MAX: usize = 1100;

thread_local! {
    static LEVELS: Cell<usize> = const { Cell::new(0) };
}

/// Counts one level until it is dropped.
struct Level;

/// The error for too many levels.
struct TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {LEVELS_MAX} levels of nesting")
    }
}

impl Level {
    fn enter() -> Result<Self, TooDeep> {
        let within = LEVELS.get();
        if within == LEVELS_MAX {
            return Err(TooDeep);
        }
        LEVELS.set(within + 1);
        Ok(Self)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        LEVELS.set(LEVELS.get() - 1);
    }
}

/// Serializes a field, one level below its owner.
///
/// # Errors
/// Those of the field; too many levels.
pub fn serialize<T: Serialize, S: Serializer>(field: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let _level = Level::enter().map_err(S::Error::custom)?;
    field.serialize(serializer)
}

/// Deserializes such a field.
///
/// # Errors
/// Those of the field; too many levels.
pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let _level = Level::enter().map_err(D::Error::custom)?;
    T::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Tree {
        Leaf,
        Not(#[serde(with = "super")] Box<Tree>),
        Any(#[serde(with = "super")] Vec<Tree>),
    }

    fn levels(count: usize) -> Tree {
        (0..count).fold(Tree::Leaf, |tree, _| Tree::Not(Box::new(tree)))
    }

    /// Runs on a stack as the threads of the server have it.
    fn on_a_stack(work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(work).expect("a thread");
        thread.join().expect("no level ends the stack");
    }

    #[test]
    fn levels_are_followed_so_far() {
        on_a_stack(|| {
            assert!(serde_json::to_value(levels(LEVELS_MAX)).is_ok());
            assert!(serde_json::to_value(levels(LEVELS_MAX + 1)).is_err());
            let wide = Tree::Any((0..=LEVELS_MAX).map(|_| levels(2)).collect());
            let written = serde_json::to_value(&wide).expect("neighbours are no levels");
            assert_eq!(Tree::deserialize(&written).expect("read"), wide);
        });
    }

    #[test]
    fn what_is_too_deep_is_an_error() {
        on_a_stack(|| {
            let within =
                |count: usize| (0..count).fold(serde_json::json!("Leaf"), |tree, _| serde_json::json!({ "Not": tree }));
            assert_eq!(Tree::deserialize(&within(LEVELS_MAX)).expect("read"), levels(LEVELS_MAX));
            let error = Tree::deserialize(&within(LEVELS_MAX + 1)).expect_err("one level more");
            assert!(error.to_string().contains("1100 levels"), "{error}");
            // A level that was left is free again.
            assert!(Tree::deserialize(&within(LEVELS_MAX)).is_ok());
        });
    }
}
