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
    pub kind: ValueKind,
    /// Whether it is a list.
    pub repeated: bool,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy)]
pub enum ValueKind {
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

pub(crate) const fn one(name: &'static str, number: u32, kind: ValueKind) -> Field {
    Field { name, number, kind, repeated: false }
}

pub(crate) const fn list(name: &'static str, number: u32, kind: ValueKind) -> Field {
    Field { name, number, kind, repeated: true }
}

/// The message `ExportMetricsServiceRequest`: what a request with metrics holds.
pub static METRICS_REQUEST: Message =
    Message { fields: &[list("resourceMetrics", 1, ValueKind::Message(&RESOURCE_METRICS))] };

/// The message `ExportLogsServiceRequest`: what a request with log records holds.
pub static LOGS_REQUEST: Message = Message { fields: &[list("resourceLogs", 1, ValueKind::Message(&RESOURCE_LOGS))] };

static RESOURCE_LOGS: Message = Message {
    fields: &[one("resource", 1, ValueKind::Message(&RESOURCE)), list("scopeLogs", 2, ValueKind::Message(&SCOPE_LOGS))],
};

static SCOPE_LOGS: Message = Message {
    fields: &[one("scope", 1, ValueKind::Message(&SCOPE)), list("logRecords", 2, ValueKind::Message(&LOG_RECORD))],
};

static LOG_RECORD: Message = Message {
    fields: &[
        one("timeUnixNano", 1, ValueKind::Fixed64),
        one("observedTimeUnixNano", 11, ValueKind::Fixed64),
        one("severityNumber", 2, SEVERITY),
        one("severityText", 3, ValueKind::Text),
        one("body", 5, ValueKind::Message(&ANY_VALUE)),
        list("attributes", 6, ValueKind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 7, ValueKind::Uint32),
        one("flags", 8, ValueKind::Fixed32),
        one("traceId", 9, ValueKind::Hex),
        one("spanId", 10, ValueKind::Hex),
        one("eventName", 12, ValueKind::Text),
    ],
};

const SEVERITY: ValueKind = ValueKind::Enum(&[
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
        one("resource", 1, ValueKind::Message(&RESOURCE)),
        list("scopeMetrics", 2, ValueKind::Message(&SCOPE_METRICS)),
        one("schemaUrl", 3, ValueKind::Text),
    ],
};

pub(crate) static RESOURCE: Message = Message {
    fields: &[
        list("attributes", 1, ValueKind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 2, ValueKind::Uint32),
    ],
};

pub(crate) static KEY_VALUE: Message =
    Message { fields: &[one("key", 1, ValueKind::Text), one("value", 2, ValueKind::Message(&ANY_VALUE))] };

static ANY_VALUE: Message = Message {
    fields: &[
        one("stringValue", 1, ValueKind::Text),
        one("boolValue", 2, ValueKind::Bool),
        one("intValue", 3, ValueKind::Int64),
        one("doubleValue", 4, ValueKind::Double),
        one("arrayValue", 5, ValueKind::Message(&ARRAY_VALUE)),
        one("kvlistValue", 6, ValueKind::Message(&KEY_VALUE_LIST)),
        one("bytesValue", 7, ValueKind::Base64),
    ],
};

static ARRAY_VALUE: Message = Message { fields: &[list("values", 1, ValueKind::Message(&ANY_VALUE))] };

static KEY_VALUE_LIST: Message = Message { fields: &[list("values", 1, ValueKind::Message(&KEY_VALUE))] };

static SCOPE_METRICS: Message = Message {
    fields: &[
        one("scope", 1, ValueKind::Message(&SCOPE)),
        list("metrics", 2, ValueKind::Message(&METRIC)),
        one("schemaUrl", 3, ValueKind::Text),
    ],
};

pub(crate) static SCOPE: Message = Message {
    fields: &[
        one("name", 1, ValueKind::Text),
        one("version", 2, ValueKind::Text),
        list("attributes", 3, ValueKind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 4, ValueKind::Uint32),
    ],
};

static METRIC: Message = Message {
    fields: &[
        one("name", 1, ValueKind::Text),
        one("description", 2, ValueKind::Text),
        one("unit", 3, ValueKind::Text),
        one("gauge", 5, ValueKind::Message(&GAUGE)),
        one("sum", 7, ValueKind::Message(&SUM)),
        one("histogram", 9, ValueKind::Message(&HISTOGRAM)),
        one("exponentialHistogram", 10, ValueKind::Message(&EXPONENTIAL_HISTOGRAM)),
        one("summary", 11, ValueKind::Message(&SUMMARY)),
    ],
};

const TEMPORALITY: ValueKind = ValueKind::Enum(&[
    "AGGREGATION_TEMPORALITY_UNSPECIFIED",
    "AGGREGATION_TEMPORALITY_DELTA",
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
]);

static GAUGE: Message = Message { fields: &[list("dataPoints", 1, ValueKind::Message(&NUMBER_POINT))] };

static SUM: Message = Message {
    fields: &[
        list("dataPoints", 1, ValueKind::Message(&NUMBER_POINT)),
        one("aggregationTemporality", 2, TEMPORALITY),
        one("isMonotonic", 3, ValueKind::Bool),
    ],
};

static HISTOGRAM: Message = Message {
    fields: &[
        list("dataPoints", 1, ValueKind::Message(&HISTOGRAM_POINT)),
        one("aggregationTemporality", 2, TEMPORALITY),
    ],
};

static EXPONENTIAL_HISTOGRAM: Message = Message {
    fields: &[
        list("dataPoints", 1, ValueKind::Message(&EXPONENTIAL_POINT)),
        one("aggregationTemporality", 2, TEMPORALITY),
    ],
};

static SUMMARY: Message = Message { fields: &[list("dataPoints", 1, ValueKind::Message(&SUMMARY_POINT))] };

static NUMBER_POINT: Message = Message {
    fields: &[
        list("attributes", 7, ValueKind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, ValueKind::Fixed64),
        one("timeUnixNano", 3, ValueKind::Fixed64),
        one("asDouble", 4, ValueKind::Double),
        one("asInt", 6, ValueKind::Sfixed64),
        list("exemplars", 5, ValueKind::Message(&EXEMPLAR)),
        one("flags", 8, ValueKind::Uint32),
    ],
};

static HISTOGRAM_POINT: Message = Message {
    fields: &[
        list("attributes", 9, ValueKind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, ValueKind::Fixed64),
        one("timeUnixNano", 3, ValueKind::Fixed64),
        one("count", 4, ValueKind::Fixed64),
        one("sum", 5, ValueKind::Double),
        list("bucketCounts", 6, ValueKind::Fixed64),
        list("explicitBounds", 7, ValueKind::Double),
        list("exemplars", 8, ValueKind::Message(&EXEMPLAR)),
        one("flags", 10, ValueKind::Uint32),
    ],
};

static EXPONENTIAL_POINT: Message = Message {
    fields: &[
        list("attributes", 1, ValueKind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, ValueKind::Fixed64),
        one("timeUnixNano", 3, ValueKind::Fixed64),
        one("count", 4, ValueKind::Fixed64),
        one("sum", 5, ValueKind::Double),
        one("scale", 6, ValueKind::Sint32),
        one("zeroCount", 7, ValueKind::Fixed64),
        one("positive", 8, ValueKind::Message(&BUCKETS)),
        one("negative", 9, ValueKind::Message(&BUCKETS)),
        one("flags", 10, ValueKind::Uint32),
        list("exemplars", 11, ValueKind::Message(&EXEMPLAR)),
        one("zeroThreshold", 14, ValueKind::Double),
    ],
};

static BUCKETS: Message =
    Message { fields: &[one("offset", 1, ValueKind::Sint32), list("bucketCounts", 2, ValueKind::Uint64)] };

static SUMMARY_POINT: Message = Message {
    fields: &[
        list("attributes", 7, ValueKind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, ValueKind::Fixed64),
        one("timeUnixNano", 3, ValueKind::Fixed64),
        one("count", 4, ValueKind::Fixed64),
        one("sum", 5, ValueKind::Double),
        list("quantileValues", 6, ValueKind::Message(&QUANTILE_VALUE)),
        one("flags", 8, ValueKind::Uint32),
    ],
};

static QUANTILE_VALUE: Message =
    Message { fields: &[one("quantile", 1, ValueKind::Double), one("value", 2, ValueKind::Double)] };

static EXEMPLAR: Message = Message {
    fields: &[
        list("filteredAttributes", 7, ValueKind::Message(&KEY_VALUE)),
        one("timeUnixNano", 2, ValueKind::Fixed64),
        one("asDouble", 3, ValueKind::Double),
        one("asInt", 6, ValueKind::Sfixed64),
        one("spanId", 4, ValueKind::Hex),
        one("traceId", 5, ValueKind::Hex),
    ],
};
