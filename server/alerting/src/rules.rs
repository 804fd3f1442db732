//! Rules: their model and checks, reading them from YAML, and the evaluation of a group over a clock that is passed in.
//!
//! Rules query through [`Engine`] and have expressions checked by [`Expressions`]: this crate knows no language and no
//! store.

mod alert;
mod check;
mod documents;
mod engine;
mod evaluation;
mod group;
mod memory;
mod model;
mod restore;
mod resumption;
mod rule_files;
mod variables;

pub use alert::{ActiveAlert, AlertState};
pub use check::{Expressions, ParsedExpr, duplicates};
pub use documents::documents;
pub use engine::{Element, ElementValue, Engine, NewestSample, Reads, RuleSample};
pub use evaluation::{ERROR_TEMPLATE, EvaluationSettings, show_pairs};
pub use group::{Cycle, Group, Health, OutgoingAlert, RuleStatus};
pub use memory::Room;
pub use model::{Language, Rule, RuleFile, RuleGroup, RuleKind};
pub use restore::StoredAlert;
pub use resumption::{GRACE_MS, OUTAGE_MAX_MS};
pub use rule_files::{OWN_FIELDS, read, read_own, read_with};
