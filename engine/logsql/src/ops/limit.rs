//! `limit`, `offset` and `sample`: which of the rows at this place go on.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use futures::StreamExt;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::nodes::Open;
use crate::pieces::BatchMap;

/// Skips rows, then lets some through; reading stops with the last of them.
pub(crate) fn window(skip: u64, fetch: Option<u64>) -> Open {
    Arc::new(move |input, _| {
        let state = (input, usize::try_from(skip).unwrap_or(usize::MAX), fetch);
        futures::stream::try_unfold(state, |(mut input, mut skip, mut left)| async move {
            while left != Some(0) {
                let Some(batch) = input.next().await else { break };
                let batch = batch?;
                let rows = batch.num_rows();
                if rows <= skip {
                    skip -= rows;
                    continue;
                }
                let most = left.map_or(rows, |left| usize::try_from(left).unwrap_or(usize::MAX));
                let kept = batch.slice(skip, (rows - skip).min(most));
                left = left.map(|left| left - kept.num_rows() as u64);
                return Ok(Some((kept, (input, 0, left))));
            }
            Ok(None)
        })
        .boxed()
    })
}

/// Lets each row through with the chance of one in `n`.
pub(crate) fn sample(n: u64, seed: u64) -> BatchMap {
    let mut random = SmallRng::seed_from_u64(seed);
    Box::new(move |rows| {
        let mask: BooleanArray = (0..rows.num_rows()).map(|_| Some(random.random_range(0..n) == 0)).collect();
        Ok(filter_record_batch(&rows, &mask)?)
    })
}
