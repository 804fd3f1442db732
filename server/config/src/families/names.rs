//! Names of families, for those that read entities of each other.

/// Groups of rules.
pub(crate) const RULE_GROUPS: &str = "groups";
/// Rules.
pub(crate) const RULES: &str = "rules";
/// Classes of configuration items.
pub(crate) const CI_CLASSES: &str = "ci-classes";
/// Their subclasses.
pub(crate) const CI_SUBCLASSES: &str = "ci-subclasses";
/// Types of managed resources.
pub(crate) const RESOURCE_TYPES: &str = "resource-types";
/// Managed resources.
pub(crate) const RESOURCES: &str = "resources";
/// Types of their relationships.
pub(crate) const RELATIONSHIP_TYPES: &str = "relationship-types";
/// Relationships between resources.
pub(crate) const RELATIONSHIPS: &str = "resource-relationships";
/// Receivers of notifications.
pub(crate) const RECEIVERS: &str = "receivers";
/// Routes to them.
pub(crate) const ROUTES: &str = "routes";
/// Intervals that routes name.
pub(crate) const TIME_INTERVALS: &str = "time-intervals";
/// Rules by which alerts mute others.
pub(crate) const INHIBIT_RULES: &str = "inhibit-rules";
/// Templates of messages.
pub(crate) const TEMPLATES: &str = "templates";
/// Globals of the policy.
pub(crate) const POLICY_GLOBAL: &str = "global";
/// All that make the policy of notification.
pub(crate) const POLICY: [&str; 6] = [RECEIVERS, ROUTES, TIME_INTERVALS, INHIBIT_RULES, TEMPLATES, POLICY_GLOBAL];
