//! The data model of rule files.

use std::collections::BTreeMap;

use quiver_types::Millis;

use quiver_yaml::problem::Place;

/// The language of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Language {
    /// `PromQL`, the default.
    #[default]
    Promql,
    /// `LogsQL`; the query must end in `stats`.
    Logsql,
    /// An analytics query as JSON, see `docs/analytics.md`.
    Olap,
}

impl Language {
    /// Parses the name of a language, or vmalert's name for a group type.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "promql" | "prometheus" => Some(Self::Promql),
            "logsql" | "vlogs" => Some(Self::Logsql),
            "olap" => Some(Self::Olap),
            _ => None,
        }
    }

    /// The group type of rules in this language.
    pub fn group_type(self) -> &'static str {
        match self {
            Self::Promql => "prometheus",
            Self::Logsql => "vlogs",
            Self::Olap => "olap",
        }
    }

    /// The name in rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Promql => "promql",
            Self::Logsql => "logsql",
            Self::Olap => "olap",
        }
    }
}

/// The documents of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleFile {
    /// All groups of all documents, in the order of the file.
    pub groups: Vec<RuleGroup>,
    /// Accepted things that have no effect, or may not mean what the author thinks.
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
    /// Its place in the file.
    pub place: Place,
    /// `namespace` of its document.
    pub namespace: Option<String>,
    /// Unique within the file.
    pub name: String,
    /// Evaluation interval; `None`: the default.
    pub interval_ms: Option<Millis>,
    /// How far the queries look before the time of the evaluation.
    pub query_offset_ms: Option<Millis>,
    /// Fixed offset within the interval; a negative one counts from its end.
    pub eval_offset_ms: Option<Millis>,
    /// Most alerts or series of a rule; 0: unlimited.
    pub limit: usize,
    /// Most rules evaluated at once.
    pub concurrency: Option<usize>,
    /// Default language of its rules.
    pub language: Language,
    /// Added to each rule, unless the rule sets them itself.
    pub labels: BTreeMap<String, String>,
    /// Request parameters of vmalert, kept for export; only `extra_label` has an effect.
    pub params: BTreeMap<String, Vec<String>>,
    /// The rules, in the order in which they are evaluated.
    pub rules: Vec<Rule>,
}

/// A rule: an alert or a recorded metric, evaluated at each interval of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its place in the file.
    pub place: Place,
    /// Whether it records series or raises alerts.
    pub kind: RuleKind,
    /// Name of the alert or of the recorded metric.
    pub name: String,
    /// The expression as written, in `language`.
    pub expr: String,
    /// The place of the expression in the file.
    pub expr_place: Place,
    /// The rule's own language, or else that of its group.
    pub language: Language,
    /// How long an alert is pending before it fires.
    pub for_ms: Millis,
    /// How long it keeps firing after the expression last returned it.
    pub keep_firing_for_ms: Millis,
    /// Labels, including those of the group; in alerting rules they are templates.
    pub labels: BTreeMap<String, String>,
    /// Annotations by name; the values are templates.
    pub annotations: BTreeMap<String, String>,
    /// Whether it is evaluated.
    pub enabled: bool,
    /// Whether a `service` label of an element takes precedence over that of the rule.
    pub service_yields: bool,
}

/// What a rule produces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// Alerts, one for each element of the result.
    Alert,
    /// Samples of the series named by the rule, one for each element of the result.
    Record,
}
