//! What the tests share: a real server process, remote-write bodies, answers, the script runner of `PromQL`.

pub mod body;
pub mod bombs;
pub mod chunks;
pub mod disk;
pub mod history;
pub mod load;
pub mod promqltest;
pub mod s3;
pub mod server;
mod shim;
pub mod socket;
pub mod threads;
