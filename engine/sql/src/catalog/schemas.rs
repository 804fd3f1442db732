//! The schemas, and the OIDs of the objects in them.

use quiver_query::tables::models::OLAP_SCHEMA;
use quiver_query::tables::{PUBLIC_SCHEMA, QUIVER_SCHEMA};

/// The schema of PostgreSQL's catalog.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// The schema of the standard's information views.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

pub(crate) fn schema_oid(schema: &str) -> i64 {
    match schema {
        PG_CATALOG => 11,
        PUBLIC_SCHEMA => 2200,
        INFORMATION_SCHEMA => 13_000,
        QUIVER_SCHEMA => 13_100,
        OLAP_SCHEMA => 13_200,
        other => number(&[other]),
    }
}

/// All schemas with tables. The first ones are the search path, in its order; the last two are not part of it.
pub(crate) const SCHEMAS: [&str; 5] = [PG_CATALOG, PUBLIC_SCHEMA, QUIVER_SCHEMA, OLAP_SCHEMA, INFORMATION_SCHEMA];

/// The OID of a table or function: a hash of its name, so that it is the same in each statement and for each caller.
pub(crate) fn number(parts: &[&str]) -> i64 {
    let mut hash: u32 = 0x811c_9dc5;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    // Above the range that PostgreSQL reserves, and within an `int4`.
    i64::from(hash >> 2) + 16_384
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_come_out_of_names() {
        // Clients store OIDs, so they must not change.
        assert_eq!((number(&["public", "hosts"]), number(&["quiver", "logs"])), (527_811_066, 475_823_044));
        let parts: [&[&str]; 6] = [&["a", "b"], &["b", "a"], &["ab"], &["a", "", "b"], &[""], &[]];
        let numbers: BTreeSet<i64> = parts.iter().map(|parts| number(parts)).collect();
        assert_eq!(numbers.len(), parts.len());
        assert!(numbers.iter().all(|number| (16_384..1 << 31).contains(number)));
        assert_eq!(SCHEMAS.map(schema_oid).into_iter().collect::<BTreeSet<_>>().len(), SCHEMAS.len());
    }
}
