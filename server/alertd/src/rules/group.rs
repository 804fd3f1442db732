//! The groups of rules that run here: their source, the owner whose rights they use, and their status.

use std::sync::Arc;
use std::time::Duration;

use quiver_alerting::rules::{Engine, EvaluationSettings, Group, RuleGroup};
use quiver_types::{Millis, Rights};

/// How rules run.
#[derive(Debug, Clone)]
pub struct RuleSettings {
    /// Interval of groups that name none.
    pub interval_ms: Millis,
    /// Time between two reports of an alert to the router.
    pub resend_delay_ms: Millis,
    /// How long alerts of a rule that fails are kept alive.
    pub error_hold_ms: Millis,
    /// Groups that are evaluated at once; rules of one group that run beside each other count as groups.
    pub concurrent_max: usize,
    /// What templates of rules know of this service.
    pub setting: EvaluationSettings,
}

/// A group as its engine sees it: whose rights and which limits its queries have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupContext {
    /// File or namespace that the group stands in.
    pub file: String,
    /// Name of the group.
    pub group: String,
    /// Time from one evaluation of the group to the next.
    pub interval: Duration,
    /// Longest run of one query.
    pub timeout: Duration,
    /// What queries of each rule may see; a rule without any sees nothing.
    pub rights: Vec<Rights>,
    /// By whom each rule has them, as a subject; none or empty: nobody who could lose them.
    pub editors: Vec<String>,
    /// Labels that all series must have which its queries read.
    pub extra_labels: Vec<(String, String)>,
}

/// Makes engines: queries with the rights and bounds of a group, and writing.
pub trait Engines: Send + Sync + std::fmt::Debug {
    /// Makes the engine of one evaluation.
    fn engine(&self, asker: &GroupContext) -> Arc<dyn Engine + Send + Sync>;
}

/// A group and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// File or namespace.
    pub file: String,
    /// The group as it was read.
    pub group: RuleGroup,
    /// Whose rights the queries of each rule have: those of the last editors of stored rules; rules of files are the
    /// operator's.
    pub rights: Vec<Rights>,
    /// Who those editors are, as subjects; none for files.
    pub editors: Vec<String>,
    /// Ids of stored rules; none for those of files.
    pub ids: Vec<String>,
}

impl Source {
    /// A group of a file: its rules see everything.
    pub fn of_file(file: impl Into<String>, group: RuleGroup) -> Self {
        let rights = vec![Rights::full(); group.rules.len()];
        Self { file: file.into(), group, rights, editors: Vec::new(), ids: Vec::new() }
    }
}

/// A group as it was after its last evaluation.
#[derive(Debug, Clone)]
pub struct GroupView {
    /// File or namespace.
    pub file: String,
    /// The group with its rules and their alerts.
    pub group: Group,
    /// Whose rights the queries of each rule have.
    pub rights: Arc<[Rights]>,
    /// When it was evaluated last.
    pub last_evaluation: Option<Millis>,
    /// How long that took.
    pub evaluation_time: Duration,
    /// Number of evaluations that were left out because the one before still ran.
    pub missed: u64,
}
