//! `ExportTraceServiceRequest` as tables, for the JSON path.
//!
//! Source: opentelemetry-proto 1.x, `trace/v1`, `collector/trace/v1`.

use crate::otlp::schema::{KEY_VALUE, Kind, Message, RESOURCE, SCOPE, list, one};

pub(crate) static TRACES_REQUEST: Message =
    Message { fields: &[list("resourceSpans", 1, Kind::Message(&RESOURCE_SPANS))] };

static RESOURCE_SPANS: Message = Message {
    fields: &[
        one("resource", 1, Kind::Message(&RESOURCE)),
        list("scopeSpans", 2, Kind::Message(&SCOPE_SPANS)),
        one("schemaUrl", 3, Kind::Text),
    ],
};

static SCOPE_SPANS: Message = Message {
    fields: &[
        one("scope", 1, Kind::Message(&SCOPE)),
        list("spans", 2, Kind::Message(&SPAN)),
        one("schemaUrl", 3, Kind::Text),
    ],
};

const KIND: Kind = Kind::Enum(&[
    "SPAN_KIND_UNSPECIFIED",
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
]);

static SPAN: Message = Message {
    fields: &[
        list("attributes", 9, Kind::Message(&KEY_VALUE)),
        one("traceId", 1, Kind::Id),
        one("spanId", 2, Kind::Id),
        one("traceState", 3, Kind::Text),
        one("parentSpanId", 4, Kind::Id),
        one("name", 5, Kind::Text),
        one("kind", 6, KIND),
        one("startTimeUnixNano", 7, Kind::Fixed64),
        one("endTimeUnixNano", 8, Kind::Fixed64),
        one("droppedAttributesCount", 10, Kind::Uint32),
        list("events", 11, Kind::Message(&EVENT)),
        one("droppedEventsCount", 12, Kind::Uint32),
        list("links", 13, Kind::Message(&LINK)),
        one("droppedLinksCount", 14, Kind::Uint32),
        one("status", 15, Kind::Message(&STATUS)),
        one("flags", 16, Kind::Fixed32),
    ],
};

static EVENT: Message = Message {
    fields: &[
        one("timeUnixNano", 1, Kind::Fixed64),
        one("name", 2, Kind::Text),
        list("attributes", 3, Kind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 4, Kind::Uint32),
    ],
};

static LINK: Message = Message {
    fields: &[
        one("traceId", 1, Kind::Id),
        one("spanId", 2, Kind::Id),
        one("traceState", 3, Kind::Text),
        list("attributes", 4, Kind::Message(&KEY_VALUE)),
        one("droppedAttributesCount", 5, Kind::Uint32),
        one("flags", 6, Kind::Fixed32),
    ],
};

static STATUS: Message = Message {
    fields: &[
        one("message", 2, Kind::Text),
        one("code", 3, Kind::Enum(&["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"])),
    ],
};
