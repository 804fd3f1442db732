//! What a change asks of the rest of the server: rules that only it can check, and secrets that only it can seal.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::family::Family;
use crate::problem::{FieldError, Result};

/// An entity of a family that composes a whole, its secrets put back.
#[derive(Debug, Clone)]
pub struct ComponentEntity {
    /// Name of the family.
    pub family: &'static str,
    /// Id of the entity.
    pub id: String,
    /// Fields of the entity as they are going to be.
    pub body: Map<String, Value>,
}

/// Makes of a secret what may be stored.
#[async_trait]
pub trait Sealer: Send + Sync {
    /// Says what is wrong with a secret.
    fn check(&self, family: &Family, field: &str, secret: &str, body: &Map<String, Value>) -> Option<FieldError>;

    /// Gives what is stored for it: a hash.
    ///
    /// # Errors
    /// When too many are made at once.
    async fn seal(&self, family: &Family, field: &str, secret: &str) -> Result<String>;
}

/// Rules of a family that only the service knows: whether an expression parses.
pub trait Checks: Send + Sync {
    /// Adds what is wrong with a body whose fields are right one by one.
    fn check(&self, family: &Family, body: &Map<String, Value>, errors: &mut Vec<FieldError>);

    /// Gives the places of secrets within a body, as JSON Pointers: they are encrypted, and shown as `<secret>`.
    fn secrets(&self, family: &Family, body: &Map<String, Value>) -> Vec<String> {
        let _ = (family, body);
        Vec::new()
    }

    /// Gives the interval of groups of rules that name none.
    fn group_interval(&self) -> String {
        "1m".to_owned()
    }

    /// Says what is wrong with the whole that the entities of all families make that `Family::composes`.
    ///
    /// # Errors
    /// `VALIDATION_FAILED`; `MANAGED_ENTITY` where the whole is given elsewhere.
    fn whole(&self, parts: &[ComponentEntity], changed: &[String]) -> Result<()> {
        let _ = (parts, changed);
        Ok(())
    }

    /// Refuses to have secrets sent elsewhere than before by who does not give them: `before` and `after` are all
    /// entities of the families of [`Self::whole`], `given` the secrets that the request contains.
    ///
    /// # Errors
    /// `VALIDATION_FAILED`.
    fn kept_secrets(
        &self,
        before: &[ComponentEntity],
        after: &[ComponentEntity],
        changed: &[String],
        given: &BTreeSet<String>,
    ) -> Result<()> {
        let _ = (before, after, changed, given);
        Ok(())
    }
}

/// Nothing more to ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoChecks;

impl Checks for NoChecks {
    fn check(&self, _: &Family, _: &Map<String, Value>, _: &mut Vec<FieldError>) {}
}
