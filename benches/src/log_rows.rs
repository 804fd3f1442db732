//! Log rows that look like those of a shop: a few streams, messages with words of Zipf's frequencies, ids of high
//! cardinality, numbers. The same seed gives the same rows.

use quiver_types::logs::MSG;
use quiver_types::{LabelSet, LogsBatch};
use std::fmt::Write as _;

/// Rows of the data set.
pub const ROWS: usize = 1_000_000;
/// Rows of a batch.
pub const BATCH: usize = 5_000;
/// Time of the first row, Unix nanoseconds; a row each 10 ms.
pub const START: i64 = 1_748_736_000_000_000_000;

const APPS: [&str; 8] = ["cart", "checkout", "payment", "catalog", "search", "auth", "edge", "mail"];
const LEVELS: [&str; 8] = ["info", "info", "info", "info", "debug", "warn", "warn", "error"];
const NAMES: [&str; 8] = [MSG, "app", "level", "status", "duration_ms", "trace_id", "client_ip", "path"];

/// A small generator: what quality it has is of no matter.
#[derive(Debug, Clone)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    /// Small numbers are common, as the words of a language are.
    fn zipf(&mut self, n: u64) -> u64 {
        let unit = self.below(1 << 30) as f64 / f64::from(1 << 30);
        ((n as f64).powf(unit) - 1.0) as u64
    }
}

/// The trace id of a row that has one.
pub fn trace_id(row: usize) -> String {
    format!("{:032x}", (row as u128 / 4 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// The rows from `first` on.
pub fn batch(first: usize, rows: usize) -> LogsBatch {
    let mut numbers = Numbers(0x9e37_79b9 ^ (first as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut batch = LogsBatch { services: APPS.map(Into::into).to_vec(), ..LogsBatch::default() };
    batch.names = NAMES.map(Into::into).to_vec();
    for pod in 0..96 {
        let (app, pod) = (APPS[pod % APPS.len()], format!("{}-{pod:02x}", APPS[pod % APPS.len()]));
        batch.push_stream(LabelSet::from_pairs([("app", app), ("pod", &pod)]).canonical());
    }
    for row in first..first + rows {
        let stream = numbers.below(96) as u32;
        let app = stream % APPS.len() as u32;
        let duration = numbers.zipf(4_000_000);
        let mut message = format!("request {} took {duration} us:", numbers.below(1 << 24));
        for _ in 0..8 {
            let _ = write!(message, " w{}", numbers.zipf(20_000));
        }
        batch.push_field(0, &message);
        batch.push_field(1, APPS[app as usize]);
        batch.push_field(2, LEVELS[numbers.below(8) as usize]);
        batch.push_field(3, if numbers.below(20) == 0 { "500" } else { "200" });
        batch.push_field(4, &(duration as f64 / 1000.0).to_string());
        if row % 4 < 3 {
            batch.push_field(5, &trace_id(row));
        }
        batch.push_field(6, &format!("10.{}.{}.7", numbers.below(4), numbers.below(250)));
        batch.push_field(7, &format!("/api/v1/item/{}", numbers.zipf(5000)));
        batch.end_row(
            START + row as i64 * 10_000_000,
            stream,
            app,
            quiver_types::logs::RecordMarks { severity: 9, observed: 0 },
        );
    }
    batch
}
