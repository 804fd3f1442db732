//! Manifests for tests.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::manifest::Manifest;
use crate::layout::STORE_FORMAT;
use crate::part::testing::part_meta;
use crate::part::{FileMeta, PartId, PartMeta};

/// Makes the entry of a part with these files.
pub(super) fn part(id: PartId, files: Vec<FileMeta>) -> PartMeta {
    PartMeta { id, files, ..part_meta(0, "metrics") }
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
