//! Rule files as data.

use std::collections::BTreeMap;

use quiver_types::Millis;

use quiver_yaml::problem::Place;

/// The language of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Language {
    /// `PromQL`, the language of rules that name none.
    #[default]
    Promql,
    /// `LogsQL`; a query that ends in `stats`.
    Logsql,
    /// A query of analytics as JSON, see `docs/analytics.md`.
    Olap,
}

impl Language {
    /// Reads the word of a rule; vmalert's words for the type of a group are read alike.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "promql" | "prometheus" => Some(Self::Promql),
            "logsql" | "vlogs" => Some(Self::Logsql),
            "olap" => Some(Self::Olap),
            _ => None,
        }
    }

    /// Gives the word for the type of a group whose rules are in it.
    pub fn group_type(self) -> &'static str {
        match self {
            Self::Promql => "prometheus",
            Self::Logsql => "vlogs",
            Self::Olap => "olap",
        }
    }

    /// Gives the word of a rule.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Promql => "promql",
            Self::Logsql => "logsql",
            Self::Olap => "olap",
        }
    }
}

/// The documents of a file, one after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleFile {
    /// All groups of all documents, in the order of the file.
    pub groups: Vec<RuleGroup>,
    /// What is accepted and has no effect, or may be meant otherwise.
    pub warnings: Vec<String>,
}

impl RuleFile {
    /// Gives the number of rules.
    pub fn rule_count(&self) -> usize {
        self.groups.iter().map(|g| g.rules.len()).sum()
    }
}

/// A group: rules that are evaluated together, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleGroup {
    /// Where it stands.
    pub place: Place,
    /// `namespace` of its document.
    pub namespace: Option<String>,
    /// Name; unlike that of any other group of the file.
    pub name: String,
    /// Time from one evaluation to the next; absent: that of the service.
    pub interval_ms: Option<Millis>,
    /// How far before the evaluation the queries look.
    pub query_offset_ms: Option<Millis>,
    /// Fixed phase within the interval; one below zero counts from its end.
    pub eval_offset_ms: Option<Millis>,
    /// Most alerts or series of a rule; 0: any number.
    pub limit: usize,
    /// Rules that may run at once.
    pub concurrency: Option<usize>,
    /// Language of its rules.
    pub language: Language,
    /// Added to each rule; the rule's own win.
    pub labels: BTreeMap<String, String>,
    /// vmalert's parameters of requests, kept for round trips; `extra_label` counts.
    pub params: BTreeMap<String, Vec<String>>,
    /// The rules, in the order in which they are evaluated.
    pub rules: Vec<Rule>,
}

/// A rule: an alert or a recorded metric, evaluated at each interval of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Where it stands.
    pub place: Place,
    /// What it makes.
    pub kind: RuleKind,
    /// Name of the alert or of the recorded metric.
    pub name: String,
    /// The expression as it is written, in `language`.
    pub expr: String,
    /// Where the expression stands.
    pub expr_place: Place,
    /// Language of the expression: the rule's own, else that of the group.
    pub language: Language,
    /// How long an alert is pending before it fires.
    pub for_ms: Millis,
    /// How long it fires on after the last hit.
    pub keep_firing_for_ms: Millis,
    /// Labels, those of the group included; templates in alerts.
    pub labels: BTreeMap<String, String>,
    /// Annotations by name, their values as templates.
    pub annotations: BTreeMap<String, String>,
    /// Whether it is evaluated.
    pub enabled: bool,
    /// Whether its label `service` gives way to one of the element.
    pub service_yields: bool,
}

/// What a rule makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// Alerts: one of each element that the expression gives.
    Alert,
    /// Samples of a series named like the rule, one of each element.
    Record,
}
