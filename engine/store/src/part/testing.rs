//! Parts for tests.

use super::{NameFilter, PartId, PartMeta, PartOrigin, Place};

/// Makes the entry of a compacted part of a table in the store: one row at the beginning of 1970, and no files.
pub(crate) fn part_meta(id: u128, table: &str) -> PartMeta {
    PartMeta {
        id: PartId::from_u128(id),
        table: table.to_owned(),
        day: 0,
        level: 0,
        place: Place::Store,
        min_ts: 0,
        max_ts: 0,
        rows: 1,
        bytes: 1,
        series: 1,
        services: Vec::new(),
        services_all: false,
        names: NameFilter::default(),
        has_histograms: false,
        window: 0,
        origin: PartOrigin::Compacted { compaction_id: PartId::nil(), replaced: Vec::new() },
        files: Vec::new(),
    }
}
