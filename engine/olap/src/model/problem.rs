//! What is wrong with files of models, as it is told.

use std::sync::Arc;

use quiver_yaml::problem::Place;

use super::Model;

/// What is wrong with a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{place}: {}{message}", member.as_ref().map(|m| format!("`{m}`: ")).unwrap_or_default())]
pub struct ModelProblem {
    /// Path of the file, or the name of a built-in one.
    pub file: String,
    /// Line and column in it.
    pub place: Place,
    /// `Model.member`, or the model.
    pub member: Option<String>,
    /// What is wrong, with a suggestion where one is near.
    pub message: String,
}

impl ModelProblem {
    /// Tells of a member of a model, or of the model.
    pub(super) fn new(model: &Model, place: Place, member: Option<&str>, message: String) -> Self {
        Self::of(&model.file, &model.common.name, place, member, message)
    }

    /// Tells of a member of what has this name in a file, or of all of it.
    pub(super) fn of(file: &Arc<str>, owner: &str, place: Place, member: Option<&str>, message: String) -> Self {
        let member = Some(member.map_or_else(|| owner.to_owned(), |m| format!("{owner}.{m}")));
        Self { file: file.to_string(), place, member, message }
    }
}
