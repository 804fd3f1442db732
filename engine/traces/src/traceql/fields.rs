//! Fields: what of a span or its trace is looked at.

use std::fmt;

use quiver_types::spans::Place;

/// What of a span or its trace is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    /// An attribute; without a place that of the span, else that of the resource.
    Attribute(Option<Place>, String),
    /// What every span has.
    Intrinsic(Intrinsic),
}

/// What every span has beside its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intrinsic {
    Name,
    Duration,
    Status,
    StatusMessage,
    Kind,
    SpanId,
    ParentId,
    /// The left number of the parent; below 0 on a root.
    NestedSetParent,
    NestedSetLeft,
    NestedSetRight,
    /// Number of the spans right below.
    ChildCount,
    TraceId,
    RootName,
    RootService,
    TraceDuration,
    EventName,
    /// From the start of the span to the event.
    EventSince,
    LinkTraceId,
    LinkSpanId,
    ScopeName,
    ScopeVersion,
}

impl Intrinsic {
    /// Names, the short form first.
    const NAMES: &[(&str, Self)] = &[
        ("name", Self::Name),
        ("span:name", Self::Name),
        ("duration", Self::Duration),
        ("span:duration", Self::Duration),
        ("status", Self::Status),
        ("span:status", Self::Status),
        ("statusMessage", Self::StatusMessage),
        ("span:statusMessage", Self::StatusMessage),
        ("kind", Self::Kind),
        ("span:kind", Self::Kind),
        ("span:id", Self::SpanId),
        ("span:parentID", Self::ParentId),
        ("nestedSetParent", Self::NestedSetParent),
        ("nestedSetLeft", Self::NestedSetLeft),
        ("nestedSetRight", Self::NestedSetRight),
        ("span:childCount", Self::ChildCount),
        ("childCount", Self::ChildCount),
        ("trace:id", Self::TraceId),
        ("rootName", Self::RootName),
        ("trace:rootName", Self::RootName),
        ("rootServiceName", Self::RootService),
        ("trace:rootService", Self::RootService),
        ("traceDuration", Self::TraceDuration),
        ("trace:duration", Self::TraceDuration),
        ("event:name", Self::EventName),
        ("event:timeSinceStart", Self::EventSince),
        ("link:traceID", Self::LinkTraceId),
        ("link:spanID", Self::LinkSpanId),
        ("instrumentation:name", Self::ScopeName),
        ("instrumentation:version", Self::ScopeVersion),
    ];

    /// Finds the one that a name, short or long, stands for.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, intrinsic)| *intrinsic)
    }

    /// Its shortest name.
    pub(super) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Whether its values are numbers of nanoseconds.
    pub(super) fn is_duration(self) -> bool {
        matches!(self, Self::Duration | Self::TraceDuration | Self::EventSince)
    }

    /// Whether every span has a text of it, which may be empty.
    pub(super) fn is_text_of_all(self) -> bool {
        use Intrinsic::{Name, RootName, RootService, ScopeName, ScopeVersion, StatusMessage};
        matches!(self, Name | StatusMessage | RootName | RootService | ScopeName | ScopeVersion)
    }

    /// Whether its values are numbers.
    pub(super) fn is_number(self) -> bool {
        let others = [Self::NestedSetParent, Self::NestedSetLeft, Self::NestedSetRight, Self::ChildCount];
        self.is_duration() || others.contains(&self)
    }
}

/// Names of intrinsics that completion offers.
pub const INTRINSIC_NAMES: [&str; 25] = [
    "duration",
    "event:name",
    "event:timeSinceStart",
    "instrumentation:name",
    "instrumentation:version",
    "kind",
    "link:spanID",
    "link:traceID",
    "name",
    "rootName",
    "rootServiceName",
    "span:duration",
    "span:id",
    "span:kind",
    "span:name",
    "span:parentID",
    "span:status",
    "span:statusMessage",
    "status",
    "statusMessage",
    "trace:duration",
    "trace:id",
    "trace:rootName",
    "trace:rootService",
    "traceDuration",
];

/// What the name of a tag stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagName {
    /// An attribute; without a place that of the span, else that of the resource.
    Attribute(Option<Place>, String),
    /// What every span has, by its shortest name.
    Intrinsic(&'static str),
}

impl From<Field> for TagName {
    fn from(field: Field) -> Self {
        match field {
            Field::Attribute(place, key) => Self::Attribute(place, key),
            Field::Intrinsic(intrinsic) => Self::Intrinsic(intrinsic.name()),
        }
    }
}

impl Field {
    /// The name under which an answer has the value.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Attribute(_, key) => key,
            Self::Intrinsic(intrinsic) => intrinsic.name(),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(place, key) => write!(f, "{}.{key}", place.map_or("", scope_name)),
            Self::Intrinsic(intrinsic) => f.write_str(intrinsic.name()),
        }
    }
}

/// The word for a place in this language.
pub fn scope_name(place: Place) -> &'static str {
    if place == Place::Scope { "instrumentation" } else { place.name() }
}
