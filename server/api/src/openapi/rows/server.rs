//! Operations about the server itself.

use super::{Errors, Group, JSON, OperationMethods, TEXT, row};

pub(super) const GROUPS: &[Group] = &[
    Group {
        tag: "server",
        at: &[""],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/health", "Says whether the server answers", "").gives("200", TEXT),
            row(OperationMethods::Get, "/health/live", "Says that the server lives", "").gives("200", TEXT),
            row(OperationMethods::Get, "/health/ready", "Says whether the server answers", "").gives("200", TEXT),
            row(OperationMethods::Get, "/-/healthy", "Says that the server lives", "").gives("200", TEXT),
            row(OperationMethods::Get, "/-/ready", "Says whether the server answers", "").gives("200", TEXT),
            row(OperationMethods::Get, "/ready", "Says whether the server answers", "").gives("200", TEXT),
            row(OperationMethods::Get, "/metrics", "Gives figures of the server itself", "").gives("200", TEXT),
            row(OperationMethods::Post, "/admin/flush", "Writes what is in memory into parts", "").gives("2XX", TEXT),
            row(OperationMethods::Post, "/admin/compact", "Merges parts", "force").gives("2XX", TEXT),
            row(OperationMethods::Post, "/admin/reload", "Reads the settings anew", "").gives("2XX", TEXT),
            row(OperationMethods::Post, "/admin/backup", "Makes a backup", "").takes(&[JSON]),
            row(OperationMethods::Get, "/admin/queries", "Lists queries that run", ""),
            row(OperationMethods::Delete, "/admin/queries/{id}", "Ends a query", "").gives("2XX", ""),
            row(OperationMethods::Post, "/admin/queries/{id}/cancel", "Ends a query", "").gives("2XX", ""),
        ],
    },
    Group {
        tag: "configuration",
        at: &["/platform-api"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Get, "/openapi.json", "Describes the API", ""),
            row(OperationMethods::Get, "/openapi.yaml", "Describes the API", "").gives("200", "application/yaml"),
        ],
    },
    Group {
        tag: "alerting",
        at: &["/rulesapi"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Get, "/swagger/openapi.json", "Describes the API of alerting", ""),
            row(OperationMethods::Get, "/swagger/openapi.yaml", "Describes the API of alerting", "")
                .gives("200", "application/yaml"),
            row(OperationMethods::Get, "/swagger", "Shows the API of alerting", "")
                .gives("200", "text/html; charset=utf-8"),
            row(OperationMethods::Get, "/swagger/", "Shows the API of alerting", "")
                .gives("200", "text/html; charset=utf-8"),
            row(OperationMethods::Get, "/swagger/doc.json", "Describes the API of alerting", ""),
            row(OperationMethods::Get, "/swagger/index.html", "Shows the API of alerting", "")
                .gives("200", "text/html; charset=utf-8"),
        ],
    },
];
