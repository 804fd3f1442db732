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
