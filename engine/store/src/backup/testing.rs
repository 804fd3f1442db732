//! Manifests for tests.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::manifest::Manifest;
use crate::layout::STORE_FORMAT;
use crate::part::{FileMeta, NameFilter, PartId, PartMeta, PartOrigin, Place};

/// Makes the entry of a part with these files.
pub(super) fn part(id: PartId, files: Vec<FileMeta>) -> PartMeta {
    PartMeta {
        id,
        table: "metrics".to_owned(),
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
        origin: PartOrigin::Compacted { compaction_id: Uuid::nil(), replaced: Vec::new() },
        files,
    }
}

/// Makes a manifest of parts, which an older build wrote: it does not say what it lacks.
pub(super) fn manifest_of(parts: Vec<PartMeta>) -> Manifest {
    Manifest {
        format: STORE_FORMAT,
        installation: Uuid::from_u128(1),
        commit: 7,
        made_ms: 1,
        trusted_ms: None,
        version: "1".to_owned(),
        parts,
        lacking: None,
        files: BTreeMap::new(),
        attached: BTreeMap::new(),
    }
}
