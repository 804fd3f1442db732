//! What the tests share: a real server process, remote-write bodies, answers, the script runner of `PromQL` and a
//! source in memory for it.

pub mod body;
pub mod memory_source;
pub mod memory_subject;
pub mod promqltest;
pub mod server;
