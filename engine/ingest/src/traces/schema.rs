//! `ExportTraceServiceRequest` as tables, for the JSON path.
//!
//! Source: opentelemetry-proto 1.x, `trace/v1`, `collector/trace/v1`.

use crate::otlp::schema::{KEY_VALUE, Message, RESOURCE, SCOPE, ValueKind, list, one};

pub(crate) static TRACES_REQUEST: Message =
    Message { fields: &[list("resourceSpans", 1, ValueKind::Message(&RESOURCE_SPANS))] };

static RESOURCE_SPANS: Message = Message {
    fields: &[
        one("resource", 1, ValueKind::Message(&RESOURCE)),
        list("scopeSpans", 2, ValueKind::Message(&SCOPE_SPANS)),
        one("schemaUrl", 3, ValueKind::Text),
    ],
};

static SCOPE_SPANS: Message = Message {
    fields: &[
        one("scope", 1, ValueKind::Message(&SCOPE)),
        list("spans", 2, ValueKind::Message(&SPAN)),
        one("schemaUrl", 3, ValueKind::Text),
    ],
};

const KIND: ValueKind = ValueKind::Enum(&[
    "SPAN_KIND_UNSPECIFIED",
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
]);

static SPAN: Message = Message {
    fields: &[
        list("attributes", 9, ValueKind::Message(&KEY_VALUE)),
        one("traceId", 1, ValueKind::Id),
        one("spanId", 2, ValueKind::Id),
        one("traceState", 3, ValueKind::Text),
        one("parentSpanId", 4, ValueKind::Id),
        one("name", 5, ValueKind::Text),
        one("kind", 6, KIND),
        one("startTimeUnixNano", 7, ValueKind::Fixed64),
        one("endTimeUnixNano", 8, ValueKind::Fixed64),
        one("droppedAttributesCount", 10, ValueKind::Uint32),
        list("events", 11, ValueKind::Message(&EVENT)),
        one("droppedEventsCount", 12, ValueKind::Uint32),
        list("links", 13, ValueKind::Message(&LINK)),
        one("droppedLinksCount", 14, ValueKind::Uint32),
        one("status", 15, ValueKind::Message(&STATUS)),
        one("flags", 16, ValueKind::Fixed32),
    ],
};

static EVENT: Message = Message {
    fields: &[
        one("timeUnixNano", 1, ValueKind::Fixed64),
        one("name", 2, ValueKind::Text),
        list("attributes", 3, ValueKind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 4, ValueKind::Uint32),
    ],
};

static LINK: Message = Message {
    fields: &[
        one("traceId", 1, ValueKind::Id),
        one("spanId", 2, ValueKind::Id),
        one("traceState", 3, ValueKind::Text),
        list("attributes", 4, ValueKind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 5, ValueKind::Uint32),
        one("flags", 6, ValueKind::Fixed32),
    ],
};

static STATUS: Message = Message {
    fields: &[
        one("message", 2, ValueKind::Text),
        one("code", 3, ValueKind::Enum(&["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"])),
    ],
};
