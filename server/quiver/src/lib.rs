//! The small library beside the binary: settings, wiring, the server's life, the demo.

pub mod demo;
pub mod memory;
pub mod process;
pub mod server;
pub mod settings;
pub mod telemetry;
pub mod wiring;
