//! Silences (`config-api` 2.8). The alert router stores them; this is their schema, and who may change them.

use quiver_types::{Domain, Right};

use crate::family::Family;
use crate::fields::{Field, FieldKind};

/// Silences; stored by the alert router, not with the other entities.
pub const SILENCES: Family = Family {
    name: "silences",
    path: "/rulesapi/silences",
    domain: Domain::Alerts,
    write: Right::Operate,
    has_name: false,
    title: "comment",
    own_paths: true,
    fields: &[
        Field::required("matchers", FieldKind::Json),
        Field::open("startsAt", FieldKind::Time, "null"),
        Field::required("endsAt", FieldKind::Time),
        Field::open("comment", FieldKind::Prose { max: 4000 }, "\"\""),
        Field::read_only("state", FieldKind::Word(&["active", "pending", "expired"]), "null"),
    ],
    unique: &[],
    ..Family::BASE
};
