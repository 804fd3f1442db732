//! The open conformance cases over real tables, models, planner and engine.

mod drill_down;
mod entities;
mod fan_out;
mod measures;
mod null_members;
mod open_cases;
mod open_dimensions;
mod oracle;
mod rollups;
mod sql_text;
mod views;
