//! Operations about the server itself.

use super::{By, Errors, Group, JSON, TEXT, row};

pub(super) const GROUPS: &[Group] = &[
    Group {
        tag: "server",
        at: &[""],
        errors: Errors::Plain,
        rows: &[
            row(By::Get, "/health", "Says whether the server answers", "").gives("200", TEXT),
            row(By::Get, "/health/live", "Says that the server lives", "").gives("200", TEXT),
            row(By::Get, "/health/ready", "Says whether the server answers", "").gives("200", TEXT),
            row(By::Get, "/-/healthy", "Says that the server lives", "").gives("200", TEXT),
            row(By::Get, "/-/ready", "Says whether the server answers", "").gives("200", TEXT),
            row(By::Get, "/metrics", "Gives figures of the server itself", "").gives("200", TEXT),
            row(By::Post, "/admin/flush", "Writes what is in memory into parts", "").gives("2XX", TEXT),
            row(By::Post, "/admin/compact", "Merges parts", "force").gives("2XX", TEXT),
            row(By::Post, "/admin/reload", "Reads the settings anew", "").gives("2XX", TEXT),
            row(By::Post, "/admin/backup", "Makes a backup", "").takes(&[JSON]),
            row(By::Get, "/admin/queries", "Lists queries that run", ""),
            row(By::Delete, "/admin/queries/{id}", "Ends a query", "").gives("2XX", ""),
            row(By::Post, "/admin/queries/{id}/cancel", "Ends a query", "").gives("2XX", ""),
        ],
    },
    Group {
        tag: "configuration",
        at: &["/platform-api"],
        errors: Errors::Problem,
        rows: &[
            row(By::Get, "/openapi.json", "Describes the API", ""),
            row(By::Get, "/openapi.yaml", "Describes the API", "").gives("200", "application/yaml"),
        ],
    },
    Group {
        tag: "alerting",
        at: &["/rulesapi"],
        errors: Errors::Problem,
        rows: &[
            row(By::Get, "/swagger/openapi.json", "Describes the API of alerting", ""),
            row(By::Get, "/swagger/openapi.yaml", "Describes the API of alerting", "").gives("200", "application/yaml"),
            row(By::Get, "/swagger", "Shows the API of alerting", "").gives("200", "text/html; charset=utf-8"),
            row(By::Get, "/swagger/", "Shows the API of alerting", "").gives("200", "text/html; charset=utf-8"),
            row(By::Get, "/swagger/doc.json", "Describes the API of alerting", ""),
            row(By::Get, "/swagger/index.html", "Shows the API of alerting", "")
                .gives("200", "text/html; charset=utf-8"),
        ],
    },
];
