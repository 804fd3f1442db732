//! The serialization of an operator: its kind, then its content. `encoding` reads it.

use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StepOperator;

/// An operator that can be serialized.
pub(crate) trait Form: StepOperator + Serialize + DeserializeOwned {
    /// Name of the type, which identifies its serialized form.
    const KIND: &'static str;
}

/// Serializes an operator: its kind, then its content.
pub(crate) fn body<T: Form>(operator: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(&(T::KIND, operator)).map_err(unwritten)
}

/// The error if something cannot be serialized.
pub(super) fn unwritten(error: postcard::Error) -> DataFusionError {
    internal_datafusion_err!("an operator of steps cannot be written: {error}")
}

/// Serialization of a list of few numbers, for `#[serde(with = …)]`.
pub(crate) mod few {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use smallvec::SmallVec;

    /// Serializes it like any list.
    pub(crate) fn serialize<S: Serializer>(numbers: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
        numbers.serialize(serializer)
    }

    /// Deserializes any list of row numbers.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SmallVec<[u32; 2]>, D::Error> {
        Vec::<u32>::deserialize(deserializer).map(|numbers| SmallVec::from_slice(&numbers))
    }
}
