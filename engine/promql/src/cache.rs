//! Results of range queries, kept exactly as long as they are true.
//!
//! The value of a step rests on the samples of a few stretches of time beside it ([`dependence`]). A result is kept
//! with the version of the snapshot that gave it; when the query, or one that overlaps it on the same steps, comes
//! again, the source says what was written since, and every step before the first one that this touches is taken from
//! here. The rest is evaluated on the new snapshot and put beside it. So late data is seen at once, and nothing is
//! guessed ("the last five minutes"). Only results without annotations and native histograms are kept, and only of
//! expressions whose steps know nothing of the query's range.

mod dependence;
mod entries;
mod stitch;

pub(crate) use dependence::{Dependence, dependence};
pub(crate) use entries::{Entry, Key};
pub(crate) use stitch::{Piece, stitch};

pub use entries::{ResultCache, ResultCacheStats};
