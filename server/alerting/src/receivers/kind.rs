//! What a kind of integration is, and an entry of a receiver of one: each kind is such a table in a file of its own, and
//! `receivers` lists them.

use quiver_yaml::Node;
use quiver_yaml::problem::{Code, Problems};

use crate::options::{OptionValue, Options, Schema};

/// A kind of integration.
#[derive(Debug)]
pub struct Kind {
    /// Its word in keys of groups, figures and history, like `webhook`.
    pub name: &'static str,
    /// The field of a receiver that lists them.
    pub field: &'static str,
    /// Whether it tells of ends unless it is said otherwise.
    pub sends_resolved: bool,
    /// Whether this service delivers it; others are checked and kept.
    pub is_delivered: bool,
    /// Whether an entry may be nothing, and then is all defaults.
    pub(super) may_be_empty: bool,
    /// Fields of an entry, with their defaults.
    pub schema: &'static Schema,
    /// What it takes from the globals, and what must stand there then.
    pub(super) inherit: fn(&mut Options, &Options) -> Result<(), String>,
}

/// One entry of a receiver.
#[derive(Debug, Clone)]
pub struct Integration {
    /// What it calls: a webhook, a mailbox, a chat.
    pub kind: &'static Kind,
    /// Its place among those of its kind.
    pub idx: usize,
    /// Its options, with what it inherits.
    pub options: Options,
}

impl PartialEq for Integration {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.name, self.idx, &self.options) == (other.kind.name, other.idx, &other.options)
    }
}

impl Integration {
    /// Reads an entry and gives it what it inherits.
    pub fn read(
        kind: &'static Kind,
        idx: usize,
        node: &Node,
        path: &str,
        global: &Options,
        problems: &mut Problems,
    ) -> Option<Self> {
        let before = problems.len();
        let mut options = if node.is_null() {
            if !kind.may_be_empty {
                problems.push(node.problem(path, Code::Required, format!("missing {} config", kind.name)));
                return None;
            }
            kind.schema.defaults()
        } else {
            kind.schema.read(node, path, problems)
        };
        if problems.len() == before
            && let Err(e) = (kind.inherit)(&mut options, global)
        {
            problems.push(node.problem(path, Code::Required, e));
        }
        Some(Self { kind, idx, options })
    }

    /// Says whether it tells of ends.
    pub fn send_resolved(&self) -> bool {
        match self.options.value("send_resolved") {
            Some(OptionValue::Truth(value)) => *value,
            _ => self.kind.sends_resolved,
        }
    }
}
