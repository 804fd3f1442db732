//! What the binary does. Start at `command` (what `main` runs), `wiring` (builds all components) and `server` (the life
//! of a server); `settings` and `reload` are its configuration, `demo` the demo.

pub mod alerting;
pub mod analytics;
pub mod codec_loop;
pub mod command;
pub mod configuration_backup;
pub mod demo;
pub mod identity;
pub mod issuers;
pub mod memory;
pub mod notify;
pub mod preflight;
pub mod process;
pub mod reload;
pub mod remote;
pub mod rules;
pub mod server;
pub mod settings;
pub mod sql;
mod sql_languages;
pub mod stop;
pub mod telemetry;
mod warm_up;
pub mod wiring;
