//! Cached results of range queries, kept exactly as long as they are true.
//!
//! The value of a step depends on the samples in a few stretches of time around it ([`dependence`]). A result is cached
//! with the version of its snapshot. When the same query comes again, or one that overlaps it on the same steps, the
//! source says what has been written since; all steps before the first one affected are taken from the cache, and the
//! rest is evaluated on the new snapshot. So late data is visible at once, without guesses such as "do not cache the
//! last five minutes". Only results without annotations and native histograms are cached, and only of expressions whose
//! steps do not depend on the range of the query.

mod dependence;
mod entries;
mod stitch;

pub(crate) use dependence::{Dependence, dependence};
pub(crate) use entries::{Entry, Key};
pub(crate) use stitch::{Piece, stitch};

pub use entries::{ResultCache, ResultCacheStats};
