//! Whom to notify of what, and when: groups with their timers, muting, the notification log.
//!
//! All of it is a state over a clock that is passed in: `groups` says which groups are due, `stages` which of their
//! alerts are muted, `log` whether an integration must be notified and of which alerts, `message` what its templates
//! see. Times are nanoseconds since 1970.

mod alert;
mod groups;
mod log;
mod message;
mod silence_index;
mod stages;

pub use alert::Alert;
pub use groups::{Dispatcher, Flush, GroupView, Timers};
pub use log::{Decision, Entry, LogKey, NotificationLog, Reason, Said};
pub use message::MessageData;
pub use silence_index::Silenced;
pub use stages::{Muted, Muting, Passed};
