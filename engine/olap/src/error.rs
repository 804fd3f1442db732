//! Errors about a query or a model: the sub-code of `olap-api.md` 1, the place in the query, and the message.

use quiver_types::{Error, ErrorKind, brief_text};

/// Why a query is refused; the API shows the word as `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There is no query in the request.
    QueryRequired,
    /// The query is no JSON.
    BadJson,
    /// Nothing is asked for.
    EmptyQuery,
    /// A key that no query has.
    UnknownKey,
    /// A value of another type than the key wants.
    BadType,
    /// A model that is not there, or not for this caller.
    UnknownModel,
    /// A member that is not there, or not for this caller.
    UnknownMember,
    /// A measure where a dimension is wanted, and the like.
    WrongKind,
    /// An operator that is not there, or not for members of this type.
    UnknownOperator,
    /// An operator without its values.
    ValuesRequired,
    /// A value that cannot be what it must be.
    BadValue,
    /// Measures and dimensions in one branch of a filter.
    MixedCondition,
    /// A date range that cannot be read.
    BadDateRange,
    /// A granularity that the time dimension does not have.
    UnknownGranularity,
    /// A time dimension that is no time.
    NotTime,
    /// A time zone that is not known.
    UnknownTimezone,
    /// A limit or offset beyond its bounds.
    BadLimit,
    /// An order that cannot be followed.
    BadOrder,
    /// No joins lead from one model to all others.
    NoJoinPath,
    /// A rolling window without a date range.
    RangeRequired,
    /// Queries of a blend differ in granularity.
    BlendGranularity,
    /// Several queries without `queryType=multi`.
    MultiRequired,
}

impl Reason {
    /// Gives the word as the API shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueryRequired => "QUERY_REQUIRED",
            Self::BadJson => "BAD_JSON",
            Self::EmptyQuery => "EMPTY_QUERY",
            Self::UnknownKey => "UNKNOWN_KEY",
            Self::BadType => "BAD_TYPE",
            Self::UnknownModel => "UNKNOWN_MODEL",
            Self::UnknownMember => "UNKNOWN_MEMBER",
            Self::WrongKind => "WRONG_KIND",
            Self::UnknownOperator => "UNKNOWN_OPERATOR",
            Self::ValuesRequired => "VALUES_REQUIRED",
            Self::BadValue => "BAD_VALUE",
            Self::MixedCondition => "MIXED_CONDITION",
            Self::BadDateRange => "BAD_DATE_RANGE",
            Self::UnknownGranularity => "UNKNOWN_GRANULARITY",
            Self::NotTime => "NOT_TIME",
            Self::UnknownTimezone => "UNKNOWN_TIMEZONE",
            Self::BadLimit => "BAD_LIMIT",
            Self::BadOrder => "BAD_ORDER",
            Self::NoJoinPath => "NO_JOIN_PATH",
            Self::RangeRequired => "RANGE_REQUIRED",
            Self::BlendGranularity => "BLEND_GRANULARITY",
            Self::MultiRequired => "MULTI_REQUIRED",
        }
    }
}

/// What is wrong with a query.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// Which fault it is, for programs; the API shows it beside the message.
    pub reason: Reason,
    /// JSON pointer to the place within the query; empty: the query as a whole.
    pub pointer: String,
    /// What the caller reads.
    pub message: String,
}

impl QueryError {
    /// Makes an error.
    pub fn new(reason: Reason, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, pointer: brief_text(pointer.into()), message: brief_text(message.into()) }
    }
}

/// Why a query has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OlapError {
    /// The query is wrong.
    #[error("{0}")]
    Query(#[from] QueryError),
    /// The engine or a limit stopped it.
    #[error("{0}")]
    Engine(#[from] Error),
}

impl OlapError {
    /// Gives the kind that the status follows from.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Query(_) => ErrorKind::Invalid,
            Self::Engine(e) => e.kind,
        }
    }
}

impl From<datafusion::error::DataFusionError> for OlapError {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        Self::Engine(quiver_query::from_datafusion(error))
    }
}

/// Result of work on queries.
pub type OlapResult<T> = Result<T, OlapError>;
