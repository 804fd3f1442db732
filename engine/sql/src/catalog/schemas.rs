//! Schemas that there are, and the numbers by which the catalog knows what stands in them.

use quiver_query::tables::models::OLAP_SCHEMA;
use quiver_query::tables::{PUBLIC_SCHEMA, QUIVER_SCHEMA};

/// Name of the schema that has PostgreSQL's catalog.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// The schema of tables about tables.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// The number of a schema.
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

/// Schemas with tables, in the order in which a name without one is looked up; in the last two it is not.
pub(crate) const SCHEMAS: [&str; 5] = [PG_CATALOG, PUBLIC_SCHEMA, QUIVER_SCHEMA, OLAP_SCHEMA, INFORMATION_SCHEMA];

/// The number of a table or function: out of its name, so that it is the same in each statement and for each caller.
pub(crate) fn number(parts: &[&str]) -> i64 {
    let mut hash: u32 = 0x811c_9dc5;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    // Above those that PostgreSQL keeps for itself, below what an `int4` holds.
    i64::from(hash >> 2) + 16_384
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_come_out_of_names() {
        // Clients keep them.
        assert_eq!((number(&["public", "hosts"]), number(&["quiver", "logs"])), (527_811_066, 475_823_044));
        let parts: [&[&str]; 6] = [&["a", "b"], &["b", "a"], &["ab"], &["a", "", "b"], &[""], &[]];
        let numbers: BTreeSet<i64> = parts.iter().map(|parts| number(parts)).collect();
        assert_eq!(numbers.len(), parts.len());
        assert!(numbers.iter().all(|number| (16_384..1 << 31).contains(number)));
        assert_eq!(SCHEMAS.map(schema_oid).into_iter().collect::<BTreeSet<_>>().len(), SCHEMAS.len());
    }
}
