//! Errors about a body as a whole. Errors in single series, points or lines are listed in [`crate::DecodedMetrics::rejected`],
//! and the rest of the body is stored.

use quiver_types::ErrorKind;

use crate::wire::WireError;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A body that gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No format reads this path.
    #[error("no ingest format at `{0}`")]
    UnknownPath(String),
    /// The `Content-Type` is none of the path's formats.
    #[error("unsupported content type `{given}`; send {known}")]
    UnsupportedType {
        /// The `Content-Type` of the request.
        given: String,
        /// Those of the path.
        known: String,
    },
    /// The `Content-Encoding` is unknown, nested, or not one of the format's.
    #[error(
        "unsupported content encoding `{0}`; formats accept gzip, deflate and zstd, logs also snappy, remote write \
         snappy and zstd"
    )]
    UnsupportedEncoding(String),
    /// The body, or what it would become, is larger than allowed.
    #[error("{what} is larger than {limit_bytes} bytes")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it may be, in bytes.
        limit_bytes: usize,
    },
    /// There is no memory for what the body becomes, at the moment.
    #[error("the memory for bodies of requests is used up, try again later")]
    NoRoom,
    /// The body holds more of something than allowed.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The body does not decompress.
    #[error("body is not valid {encoding}: {source}")]
    Corrupt {
        /// Name of the encoding.
        encoding: &'static str,
        /// What the decompressor says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The body is not a protobuf message of the expected shape.
    #[error("invalid protobuf: {0}")]
    Protobuf(#[from] WireError),
    /// A parameter of the request is not valid.
    #[error("invalid parameter `{name}`: {what}, got `{value}`")]
    Parameter {
        /// Name of the parameter, as the request has it.
        name: &'static str,
        /// What is wrong.
        what: &'static str,
        /// The value of the parameter as it was given.
        value: String,
    },
    /// The body breaks a rule of its format.
    #[error("{0}")]
    Format(String),
    /// The body is not JSON of the expected shape.
    #[error("invalid JSON at offset {offset}: {what}")]
    Json {
        /// Byte of the body.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A field of the JSON has a value that it cannot have.
    #[error("invalid JSON at offset {offset}: `{field}`: {what}")]
    JsonField {
        /// Byte of the body, behind the value or at its beginning.
        offset: usize,
        /// Name of the field.
        field: &'static str,
        /// What was expected.
        what: &'static str,
    },
}

impl Error {
    /// Gives the kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownPath(_) => ErrorKind::NotFound,
            Self::UnsupportedType { .. } | Self::UnsupportedEncoding(_) => ErrorKind::Unsupported,
            Self::TooLarge { .. } | Self::TooMany { .. } => ErrorKind::TooLarge,
            Self::NoRoom => ErrorKind::Unavailable,
            Self::Corrupt { .. }
            | Self::Protobuf(_)
            | Self::Json { .. }
            | Self::JsonField { .. }
            | Self::Parameter { .. }
            | Self::Format(_) => ErrorKind::Invalid,
        }
    }
}

impl From<Error> for quiver_types::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.to_string()).with_source(error)
    }
}
