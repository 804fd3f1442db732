//! How an operator is written: its kind, then all that it holds. `written` reads it again.

use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StepOperator;

/// An operator that is written.
pub(crate) trait Form: StepOperator + Serialize + DeserializeOwned {
    /// The name of the type, by which its bodies are known.
    const KIND: &'static str;
}

/// Writes an operator: its kind, then all that it holds.
pub(crate) fn body<T: Form>(operator: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(&(T::KIND, operator)).map_err(unwritten)
}

/// The error of what cannot be written.
pub(super) fn unwritten(error: postcard::Error) -> DataFusionError {
    internal_datafusion_err!("an operator of steps cannot be written: {error}")
}

/// A list of a few numbers, for `#[serde(with = …)]`.
pub(crate) mod few {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use smallvec::SmallVec;

    /// Writes it as any list.
    pub(crate) fn serialize<S: Serializer>(numbers: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
        numbers.serialize(serializer)
    }

    /// Reads any list of row numbers.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SmallVec<[u32; 2]>, D::Error> {
        Vec::<u32>::deserialize(deserializer).map(|numbers| SmallVec::from_slice(&numbers))
    }
}
