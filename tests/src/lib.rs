//! What the tests share: a real server process, remote-write bodies, answers, the script runner of `PromQL`.

pub mod bodies;
pub mod bombs;
pub mod chunks;
pub mod disk;
pub mod held_server;
pub mod history;
pub mod load;
pub mod promqltest;
pub mod s3;
pub mod server;
mod shim;
pub mod socket;
pub mod threads;
pub mod time_limits;

use std::io::Write as _;

/// Says what a test leaves out, so that the summary of the run (`tests/tools/run.py`) repeats it. Written past the capture of
/// what tests print: nobody would see it of a test that passes.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Says whether plans are written and read by a second engine before they run: servers that tests start see the same
/// variable.
pub fn through_codec() -> bool {
    std::env::var("QUIVER_QUERY__THROUGH_CODEC").is_ok_and(|value| value == "true")
}
