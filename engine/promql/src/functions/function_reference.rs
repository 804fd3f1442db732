//! Functions in plans. They are serialized by name, and looked up in the registry when a plan is read.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use super::definition::{FunctionDef, Kernel, ScalarKernel};
use super::elementwise::ElementwiseKernel;
use super::lookup;

/// The kernel of a function, with the function's name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedKernel<K> {
    /// Name in the registry.
    pub(crate) name: &'static str,
    pub(crate) kernel: K,
}

pub(crate) trait KernelKind: Copy {
    /// The kernel, if it is of this kind.
    fn of(kernel: &Kernel) -> Option<Self>;
}

impl KernelKind for ElementwiseKernel {
    fn of(kernel: &Kernel) -> Option<Self> {
        if let Kernel::Elementwise(kernel) = kernel { Some(*kernel) } else { None }
    }
}

impl KernelKind for ScalarKernel {
    fn of(kernel: &Kernel) -> Option<Self> {
        if let Kernel::Scalar(kernel) = kernel { Some(*kernel) } else { None }
    }
}

impl<K> Serialize for NamedKernel<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de, K: KernelKind> Deserialize<'de> for NamedKernel<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let function = registered(deserializer)?;
        let kernel = K::of(&function.kernel).ok_or_else(|| other_kind::<D>(function))?;
        Ok(Self { name: function.name, kernel })
    }
}

/// A function of a range vector, for `#[serde(with = …)]`.
pub(crate) mod of_range {
    use serde::{Deserializer, Serializer};

    use super::{FunctionDef, Kernel, other_kind, registered};

    /// Serializes the name.
    pub(crate) fn serialize<S: Serializer>(function: &FunctionDef, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(function.name)
    }

    /// Finds the range function with this name in the registry; any other name is an error.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static FunctionDef, D::Error> {
        let function = registered(deserializer)?;
        if matches!(function.kernel, Kernel::Range(_)) { Ok(function) } else { Err(other_kind::<D>(function)) }
    }
}

fn registered<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static FunctionDef, D::Error> {
    let name = String::deserialize(deserializer)?;
    lookup(&name).ok_or_else(|| D::Error::custom(format_args!("there is no function `{name}`")))
}

fn other_kind<'de, D: Deserializer<'de>>(function: &FunctionDef) -> D::Error {
    D::Error::custom(format_args!("function `{}` is of another kind", function.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::FUNCTIONS;

    #[derive(Debug, serde::Deserialize)]
    struct Range(#[serde(with = "of_range")] &'static FunctionDef);

    /// Each function is read as what it is, and as nothing else.
    #[test]
    fn functions_are_found_by_kind() {
        for function in FUNCTIONS {
            let bytes = postcard::to_allocvec(function.name).expect("written");
            let found = [
                postcard::from_bytes::<Range>(&bytes).is_ok_and(|range| std::ptr::eq(range.0, function)),
                postcard::from_bytes::<NamedKernel<ElementwiseKernel>>(&bytes).is_ok_and(|f| f.name == function.name),
                postcard::from_bytes::<NamedKernel<ScalarKernel>>(&bytes).is_ok_and(|f| f.name == function.name),
            ];
            let expected = match function.kernel {
                Kernel::Range(_) => [true, false, false],
                Kernel::Elementwise(_) => [false, true, false],
                Kernel::Scalar(_) => [false, false, true],
                Kernel::Special(_) => [false; 3],
            };
            assert_eq!(found, expected, "{}", function.name);
        }
        let unknown = postcard::to_allocvec("nonexistent").expect("written");
        assert!(postcard::from_bytes::<Range>(&unknown).is_err());
    }
}
