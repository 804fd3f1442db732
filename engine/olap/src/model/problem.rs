//! Problems in model files, as they are reported.

use std::sync::Arc;

use quiver_yaml::problem::Place;

use super::Model;

/// What is wrong with a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{} {}{message}", behind_file(*place), member.as_ref().map(|m| format!("`{m}`: ")).unwrap_or_default())]
pub struct ModelProblem {
    /// Path of the file, or the name of a built-in one.
    pub file: String,
    /// Line and column in it; of a file or folder that cannot be read: zero.
    pub place: Place,
    /// `Model.member`, or the model.
    pub member: Option<String>,
    /// The problem, with a suggestion if there is a similar name.
    pub message: String,
}

/// The place in a file; nothing where all of it is meant.
fn behind_file(place: Place) -> String {
    if place == Place::default() { String::new() } else { format!("{place}:") }
}

impl ModelProblem {
    /// A problem with a member of a model, or with the model itself.
    pub(super) fn new(model: &Model, place: Place, member: Option<&str>, message: String) -> Self {
        Self::of(&model.file, &model.common.name, place, member, message)
    }

    /// A problem with a member of `owner`, the name of a model or view in a file, or with all of it.
    pub(super) fn of(file: &Arc<str>, owner: &str, place: Place, member: Option<&str>, message: String) -> Self {
        let member = Some(member.map_or_else(|| owner.to_owned(), |m| format!("{owner}.{m}")));
        Self { file: file.to_string(), place, member, message }
    }
}
