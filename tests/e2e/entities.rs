//! The effects of configuration on telemetry, and entities beyond the common contract.

mod business;
mod effects;
mod model;
mod postgres;
pub(crate) mod resources;
mod resources_csv;
mod segments;
