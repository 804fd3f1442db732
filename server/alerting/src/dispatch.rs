//! Who is told what, and when: groups with their timers, what mutes, the log of what was told.
//!
//! All of it is a state over a clock that is passed in: `groups` says which groups are due, `stages` what of them may be
//! told, `log` whether an integration is told and of which alerts, `message` what its templates see. Times are nanoseconds
//! since 1970.

mod alert;
mod groups;
mod log;
mod message;
mod silenced;
mod stages;

pub use alert::Alert;
pub use groups::{Dispatcher, Flush, GroupView};
pub use log::{Decision, Entry, LogKey, NotificationLog, Reason, Said};
pub use message::message;
pub use silenced::Silenced;
pub use stages::{Muted, Muting, Passed};
