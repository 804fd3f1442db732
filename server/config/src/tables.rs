//! The tables of this crate, for backups of the configuration.

use quiver_database::Holds::{Bytes, Number, Text};
use quiver_database::{Holds, Schema, Table};

use crate::migrations::MIGRATIONS;

/// All tables of this crate; a test of the binary compares them with those that are made.
pub static SCHEMA: Schema = Schema { part: "entities", steps: MIGRATIONS, tables: TABLES };

/// The member of what nobody reads of an entity that holds encrypted secrets by their places.
pub(crate) const SECRETS: &str = "secrets";
/// The column with what nobody reads.
pub(crate) const SEALED: &str = "sealed";

const ENTITY_COLUMNS: &[(&str, Holds)] = &[
    ("family", Text),
    ("id", Text),
    ("owner", Text),
    ("version", Number),
    ("created_ms", Number),
    ("updated_ms", Number),
    ("created_by", Text),
    ("updated_by", Text),
    ("managed_by", Text),
    ("body", Text),
    (SEALED, Text),
    ("sort_text", Text),
];

/// All but the last one, by which entities are listed.
const DEPLOYED_COLUMNS: &[(&str, Holds)] = ENTITY_COLUMNS.split_at(ENTITY_COLUMNS.len() - 1).0;

const TABLES: &[Table] = &[
    Table { name: "entity", columns: ENTITY_COLUMNS, key: "family, id", sealed: false },
    Table { name: "deployed", columns: DEPLOYED_COLUMNS, key: "family, id", sealed: false },
    Table { name: "entity_count", columns: &[("family", Text), ("number", Number)], key: "family", sealed: false },
    Table { name: "pattern_bytes", columns: &[("family", Text), ("number", Number)], key: "family", sealed: false },
    Table {
        name: "entity_value",
        columns: &[("family", Text), ("owner", Text), ("field", Text), ("value", Text), ("id", Text)],
        key: "family, owner, field, value, id",
        sealed: false,
    },
    Table { name: "entity_value_of", columns: &[("family", Text), ("fields", Text)], key: "family", sealed: false },
    Table {
        name: "entity_text",
        columns: &[("family", Text), ("owner", Text), ("id", Text), ("words", Text)],
        key: "family, owner, id",
        sealed: false,
    },
    Table {
        name: "entity_key",
        columns: &[("family", Text), ("owner", Text), ("fields", Text), ("value", Text), ("id", Text)],
        key: "family, owner, fields, value",
        sealed: false,
    },
    Table {
        name: "entity_link",
        columns: &[("family", Text), ("id", Text), ("to_family", Text), ("to_id", Text), ("on_delete", Text)],
        key: "family, id, to_family, to_id",
        sealed: false,
    },
    Table {
        name: "entity_version",
        columns: &[
            ("family", Text),
            ("id", Text),
            ("version", Number),
            ("at_ms", Number),
            ("by_whom", Text),
            ("action", Text),
            ("owner", Text),
            ("body", Text),
        ],
        key: "family, id, version",
        sealed: false,
    },
    Table {
        name: "audit",
        columns: &[("number", Number), ("at_ms", Number), ("row", Text), ("prev_hash", Text), ("hash", Text)],
        key: "number",
        sealed: false,
    },
    Table { name: "audit_end", columns: &[("only_row", Number), ("number", Number)], key: "only_row", sealed: false },
    Table {
        name: "answered",
        columns: &[
            ("subject", Text),
            ("path", Text),
            ("name", Text),
            ("body_hash", Text),
            ("answer", Bytes),
            ("at_ms", Number),
        ],
        key: "subject, path, name",
        sealed: true,
    },
    Table {
        name: "revision",
        columns: &[("only_row", Number), ("number", Number), ("seen", Number)],
        key: "only_row",
        sealed: false,
    },
    Table {
        name: "service_alert",
        columns: &[("server", Text), ("service", Text), ("critical", Number), ("at_ms", Number)],
        key: "server, service",
        sealed: false,
    },
    Table {
        name: "job",
        columns: &[
            ("id", Text),
            ("kind", Text),
            ("domain", Text),
            ("state", Text),
            ("subject", Text),
            ("created_by", Text),
            ("created_ms", Number),
            ("started_ms", Number),
            ("finished_ms", Number),
            ("progress_ppm", Number),
            ("counters", Text),
            ("error", Text),
            ("params", Text),
            ("checkpoint", Text),
            ("server", Text),
            ("held_ms", Number),
        ],
        key: "id",
        sealed: false,
    },
];
