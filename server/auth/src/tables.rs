//! The tables of this crate, and which of their content backups of the configuration hold.

use quiver_database::Holds::{Bytes, Number, Text};
use quiver_database::{Schema, Table};

/// Steps that make the tables. Whoever owns the database applies them before [`crate::Auth::open`].
///
/// A copy holds no sessions: one that was ended since must not come back with it. People sign in again. Nor does it hold
/// guesses of the last minutes.
pub static SCHEMA: Schema = Schema { part: "auth", steps: MIGRATIONS, tables: TABLES };

const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_auth", include_str!("../../../schemas/auth/0001_auth.sql")),
    ("0002_session_ended", include_str!("../../../schemas/auth/0002_session_ended.sql")),
    ("0003_failure", include_str!("../../../schemas/auth/0003_failure.sql")),
];

const TABLES: &[Table] = &[Table {
    name: "signing_key",
    columns: &[
        ("kid", Text),
        ("modulus", Text),
        ("exponent", Text),
        ("sealed", Bytes),
        ("created_ms", Number),
        ("active_ms", Number),
        ("retired_ms", Number),
    ],
    key: "kid",
    sealed: true,
}];
