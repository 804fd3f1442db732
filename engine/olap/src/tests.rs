//! Tests of the whole: the open cases over real tables, models, planner and engine.

mod drilled;
mod measures;
mod open_cases;
mod opened;
mod oracle;
mod parted;
mod printed;
mod rolled;
