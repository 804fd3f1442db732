//! Values that keep the text they were written as.

use serde::{Deserialize, Serialize};

/// A value and its source text: `1h30m` and 5 400 000 000 000.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Literal<T> {
    /// What the text means.
    pub value: T,
    /// The text as written, without quotes.
    pub text: String,
}

impl<T> Literal<T> {
    /// A value with its text.
    pub fn new(value: T, text: impl Into<String>) -> Self {
        Self { value, text: text.into() }
    }
}

/// What a pipe that makes fields does where the row has the field already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Overwrite {
    /// The new value wins, also when it is empty.
    #[default]
    Always,
    /// `skip_empty_results`: an empty new value changes nothing.
    SkipEmpty,
    /// `keep_original_fields`: a non-empty old value stays.
    KeepOriginal,
}
