//! What the binary does. Start at `command` (what `main` runs), `wiring` (builds all components) and `server` (the life
//! of a server); `settings` and `reload` are its configuration, `demo` the demo.

pub mod alerting;
pub mod analytics;
pub mod codec_loop;
pub mod command;
pub mod configuration_backup;
pub mod control_group;
pub mod demo;
pub mod identity;
pub mod issuers;
pub mod memory;
pub mod preflight;
pub mod process_info;
pub mod program_pages;
pub mod reload;
pub mod rules;
pub mod server;
pub mod server_client;
pub mod settings;
pub mod shutdown;
pub mod sql;
mod sql_languages;
pub mod systemd;
pub mod telemetry;
mod terminal;
mod warm_up;
pub mod wiring;
