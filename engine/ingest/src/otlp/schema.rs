//! The OTLP messages as tables, for the JSON path: key, number and kind of each field that the decoders read, and of
//! each integer beside them, which is checked as well.
//!
//! Source: opentelemetry-proto 1.x, `common/v1`, `resource/v1`, `metrics/v1`, `logs/v1`, `collector/…/v1`.

/// A message, by the fields that the decoders read.
#[derive(Debug)]
pub struct Message {
    /// Its fields; keys that are not here are skipped.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// Key in lowerCamelCase.
    pub name: &'static str,
    /// Number of the field on the wire.
    pub number: u32,
    /// Kind of its value.
    pub kind: Kind,
    /// Whether it is a list.
    pub repeated: bool,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A message within the message: an object in JSON.
    Message(&'static Message),
    /// A text in UTF-8.
    Text,
    /// Bytes, written in hex (ids).
    Hex,
    /// An id in hex. An invalid one becomes a single byte, so that only the message that contains it is refused.
    Id,
    /// Bytes, written in base64.
    Base64,
    /// A boolean.
    Bool,
    /// A varint of 32 bits: uint32.
    Uint32,
    /// A varint: uint64.
    Uint64,
    /// A varint with a sign: int64.
    Int64,
    /// A zigzag varint of 32 bits: sint32.
    Sint32,
    /// An enum: a number of 32 bits, or the name at that index.
    Enum(&'static [&'static str]),
    /// An unsigned integer of 8 bytes.
    Fixed64,
    /// A signed integer of 8 bytes.
    Sfixed64,
    /// An unsigned integer of 4 bytes.
    Fixed32,
    /// A double of 8 bytes; in JSON a number, or `"NaN"`, `"Infinity"`, `"-Infinity"`.
    Double,
}

pub(crate) const fn one(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, repeated: false }
}

pub(crate) const fn list(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, repeated: true }
}

/// The message `ExportMetricsServiceRequest`: what a request with metrics holds.
pub static METRICS_REQUEST: Message =
    Message { fields: &[list("resourceMetrics", 1, Kind::Message(&RESOURCE_METRICS))] };

/// The message `ExportLogsServiceRequest`: what a request with log records holds.
pub static LOGS_REQUEST: Message = Message { fields: &[list("resourceLogs", 1, Kind::Message(&RESOURCE_LOGS))] };

static RESOURCE_LOGS: Message = Message {
    fields: &[one("resource", 1, Kind::Message(&RESOURCE)), list("scopeLogs", 2, Kind::Message(&SCOPE_LOGS))],
};

static SCOPE_LOGS: Message =
    Message { fields: &[one("scope", 1, Kind::Message(&SCOPE)), list("logRecords", 2, Kind::Message(&LOG_RECORD))] };

static LOG_RECORD: Message = Message {
    fields: &[
        one("timeUnixNano", 1, Kind::Fixed64),
        one("observedTimeUnixNano", 11, Kind::Fixed64),
        one("severityNumber", 2, SEVERITY),
        one("severityText", 3, Kind::Text),
        one("body", 5, Kind::Message(&ANY_VALUE)),
        list("attributes", 6, Kind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 7, Kind::Uint32),
        one("flags", 8, Kind::Fixed32),
        one("traceId", 9, Kind::Hex),
        one("spanId", 10, Kind::Hex),
        one("eventName", 12, Kind::Text),
    ],
};

const SEVERITY: Kind = Kind::Enum(&[
    "SEVERITY_NUMBER_UNSPECIFIED",
    "SEVERITY_NUMBER_TRACE",
    "SEVERITY_NUMBER_TRACE2",
    "SEVERITY_NUMBER_TRACE3",
    "SEVERITY_NUMBER_TRACE4",
    "SEVERITY_NUMBER_DEBUG",
    "SEVERITY_NUMBER_DEBUG2",
    "SEVERITY_NUMBER_DEBUG3",
    "SEVERITY_NUMBER_DEBUG4",
    "SEVERITY_NUMBER_INFO",
    "SEVERITY_NUMBER_INFO2",
    "SEVERITY_NUMBER_INFO3",
    "SEVERITY_NUMBER_INFO4",
    "SEVERITY_NUMBER_WARN",
    "SEVERITY_NUMBER_WARN2",
    "SEVERITY_NUMBER_WARN3",
    "SEVERITY_NUMBER_WARN4",
    "SEVERITY_NUMBER_ERROR",
    "SEVERITY_NUMBER_ERROR2",
    "SEVERITY_NUMBER_ERROR3",
    "SEVERITY_NUMBER_ERROR4",
    "SEVERITY_NUMBER_FATAL",
    "SEVERITY_NUMBER_FATAL2",
    "SEVERITY_NUMBER_FATAL3",
    "SEVERITY_NUMBER_FATAL4",
]);

static RESOURCE_METRICS: Message = Message {
    fields: &[
        one("resource", 1, Kind::Message(&RESOURCE)),
        list("scopeMetrics", 2, Kind::Message(&SCOPE_METRICS)),
        one("schemaUrl", 3, Kind::Text),
    ],
};

pub(crate) static RESOURCE: Message = Message {
    fields: &[list("attributes", 1, Kind::Message(&KEY_VALUE)), one("droppedAttributesCount", 2, Kind::Uint32)],
};

pub(crate) static KEY_VALUE: Message =
    Message { fields: &[one("key", 1, Kind::Text), one("value", 2, Kind::Message(&ANY_VALUE))] };

static ANY_VALUE: Message = Message {
    fields: &[
        one("stringValue", 1, Kind::Text),
        one("boolValue", 2, Kind::Bool),
        one("intValue", 3, Kind::Int64),
        one("doubleValue", 4, Kind::Double),
        one("arrayValue", 5, Kind::Message(&ARRAY_VALUE)),
        one("kvlistValue", 6, Kind::Message(&KEY_VALUE_LIST)),
        one("bytesValue", 7, Kind::Base64),
    ],
};

static ARRAY_VALUE: Message = Message { fields: &[list("values", 1, Kind::Message(&ANY_VALUE))] };

static KEY_VALUE_LIST: Message = Message { fields: &[list("values", 1, Kind::Message(&KEY_VALUE))] };

static SCOPE_METRICS: Message = Message {
    fields: &[
        one("scope", 1, Kind::Message(&SCOPE)),
        list("metrics", 2, Kind::Message(&METRIC)),
        one("schemaUrl", 3, Kind::Text),
    ],
};

pub(crate) static SCOPE: Message = Message {
    fields: &[
        one("name", 1, Kind::Text),
        one("version", 2, Kind::Text),
        list("attributes", 3, Kind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 4, Kind::Uint32),
    ],
};

static METRIC: Message = Message {
    fields: &[
        one("name", 1, Kind::Text),
        one("description", 2, Kind::Text),
        one("unit", 3, Kind::Text),
        one("gauge", 5, Kind::Message(&GAUGE)),
        one("sum", 7, Kind::Message(&SUM)),
        one("histogram", 9, Kind::Message(&HISTOGRAM)),
        one("exponentialHistogram", 10, Kind::Message(&EXPONENTIAL_HISTOGRAM)),
        one("summary", 11, Kind::Message(&SUMMARY)),
    ],
};

const TEMPORALITY: Kind = Kind::Enum(&[
    "AGGREGATION_TEMPORALITY_UNSPECIFIED",
    "AGGREGATION_TEMPORALITY_DELTA",
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
]);

static GAUGE: Message = Message { fields: &[list("dataPoints", 1, Kind::Message(&NUMBER_POINT))] };

static SUM: Message = Message {
    fields: &[
        list("dataPoints", 1, Kind::Message(&NUMBER_POINT)),
        one("aggregationTemporality", 2, TEMPORALITY),
        one("isMonotonic", 3, Kind::Bool),
    ],
};

static HISTOGRAM: Message = Message {
    fields: &[list("dataPoints", 1, Kind::Message(&HISTOGRAM_POINT)), one("aggregationTemporality", 2, TEMPORALITY)],
};

static EXPONENTIAL_HISTOGRAM: Message = Message {
    fields: &[list("dataPoints", 1, Kind::Message(&EXPONENTIAL_POINT)), one("aggregationTemporality", 2, TEMPORALITY)],
};

static SUMMARY: Message = Message { fields: &[list("dataPoints", 1, Kind::Message(&SUMMARY_POINT))] };

static NUMBER_POINT: Message = Message {
    fields: &[
        list("attributes", 7, Kind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, Kind::Fixed64),
        one("timeUnixNano", 3, Kind::Fixed64),
        one("asDouble", 4, Kind::Double),
        one("asInt", 6, Kind::Sfixed64),
        list("exemplars", 5, Kind::Message(&EXEMPLAR)),
        one("flags", 8, Kind::Uint32),
    ],
};

static HISTOGRAM_POINT: Message = Message {
    fields: &[
        list("attributes", 9, Kind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, Kind::Fixed64),
        one("timeUnixNano", 3, Kind::Fixed64),
        one("count", 4, Kind::Fixed64),
        one("sum", 5, Kind::Double),
        list("bucketCounts", 6, Kind::Fixed64),
        list("explicitBounds", 7, Kind::Double),
        list("exemplars", 8, Kind::Message(&EXEMPLAR)),
        one("flags", 10, Kind::Uint32),
    ],
};

static EXPONENTIAL_POINT: Message = Message {
    fields: &[
        list("attributes", 1, Kind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, Kind::Fixed64),
        one("timeUnixNano", 3, Kind::Fixed64),
        one("count", 4, Kind::Fixed64),
        one("sum", 5, Kind::Double),
        one("scale", 6, Kind::Sint32),
        one("zeroCount", 7, Kind::Fixed64),
        one("positive", 8, Kind::Message(&BUCKETS)),
        one("negative", 9, Kind::Message(&BUCKETS)),
        one("flags", 10, Kind::Uint32),
        list("exemplars", 11, Kind::Message(&EXEMPLAR)),
        one("zeroThreshold", 14, Kind::Double),
    ],
};

static BUCKETS: Message = Message { fields: &[one("offset", 1, Kind::Sint32), list("bucketCounts", 2, Kind::Uint64)] };

static SUMMARY_POINT: Message = Message {
    fields: &[
        list("attributes", 7, Kind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, Kind::Fixed64),
        one("timeUnixNano", 3, Kind::Fixed64),
        one("count", 4, Kind::Fixed64),
        one("sum", 5, Kind::Double),
        list("quantileValues", 6, Kind::Message(&QUANTILE_VALUE)),
        one("flags", 8, Kind::Uint32),
    ],
};

static QUANTILE_VALUE: Message = Message { fields: &[one("quantile", 1, Kind::Double), one("value", 2, Kind::Double)] };

static EXEMPLAR: Message = Message {
    fields: &[
        list("filteredAttributes", 7, Kind::Message(&KEY_VALUE)),
        one("timeUnixNano", 2, Kind::Fixed64),
        one("asDouble", 3, Kind::Double),
        one("asInt", 6, Kind::Sfixed64),
        one("spanId", 4, Kind::Hex),
        one("traceId", 5, Kind::Hex),
    ],
};
