//! Decides whom to notify of what, and when: groups with their timers, muting, the notification log.
//!
//! All of it is state over a clock that is passed in: `groups` says which groups are due, `stages` which of their alerts
//! are muted, `notification_log` whether an integration must be notified and of which alerts, and `message` provides the
//! data for its templates. Times are Unix nanoseconds.

mod alert;
mod groups;
mod message;
mod notification_log;
mod silence_index;
mod stages;

pub use alert::Alert;
pub use groups::{Dispatcher, Flush, FlushOutcome, GroupView, Timers};
pub use message::{MessageData, are_templates};
pub use notification_log::{Decision, Entry, LogKey, NotificationLog, Reason, ReceiverData};
pub use silence_index::SilenceIndex;
pub use stages::{AlertMuter, FilteredAlerts, MuteReason};
