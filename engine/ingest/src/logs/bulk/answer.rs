//! The response to a bulk request, generated in pieces while it is sent: a hundred bytes for each of perhaps millions
//! of actions are never in memory at once.

use std::fmt::Write;

use super::{Action, DropReason, Outcome};

const PIECE_BYTES: usize = 64 * 1024;
/// Possible results of each action.
const OUTCOMES: u8 = DropReason::ALL.len() as u8 + 2;

/// Action and result, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item(u8);

impl Item {
    pub(super) fn of(action: Action, outcome: Outcome) -> Self {
        let outcome = match outcome {
            Outcome::Taken => 0,
            Outcome::Unsupported => 1,
            Outcome::Dropped(why) => 2 + why as u8,
        };
        Self(action as u8 * OUTCOMES + outcome)
    }

    fn is_taken(self) -> bool {
        self.0.is_multiple_of(OUTCOMES)
    }

    pub(super) fn is_forbidden(self) -> bool {
        self.0 % OUTCOMES == 2 + DropReason::Service as u8
    }

    /// The text of each possible item.
    fn texts() -> Vec<String> {
        let mut texts = Vec::new();
        for (word, _) in Action::ALL {
            // Every stored row is a new document, whichever of the two actions was used; the reference implementation
            // says so, too.
            texts.push("{\"create\":{\"status\":201}}".to_owned());
            let unsupported = format!("`{word}` is not supported: logs are only added");
            texts.push(failed(word, 400, "illegal_argument_exception", &unsupported));
            texts.extend(DropReason::ALL.map(|why| match why {
                DropReason::Service => failed(word, 403, "security_exception", why.text()),
                _ => failed(word, 400, "document_parsing_exception", why.text()),
            }));
        }
        texts
    }
}

fn failed(word: &str, status: u16, kind: &str, reason: &str) -> String {
    format!("{{\"{word}\":{{\"status\":{status},\"error\":{{\"type\":\"{kind}\",\"reason\":\"{reason}\"}}}}}}")
}

/// An iterator over the pieces of a response.
#[derive(Debug)]
pub struct BulkAnswer {
    items: Vec<Item>,
    texts: Vec<String>,
    /// How many items have been written; one more than there are means that the end has been written, too.
    written: usize,
    took_ms: u64,
}

impl BulkAnswer {
    pub(super) fn new(items: Vec<Item>, took_ms: u64) -> Self {
        Self { items, texts: Item::texts(), written: 0, took_ms }
    }

    /// An upper bound on the bytes of the response.
    pub fn bytes_max(&self) -> usize {
        let text = |item: &Item| self.texts[usize::from(item.0)].len() + 1;
        PIECE_BYTES + self.items.iter().map(text).sum::<usize>()
    }

    fn head(&self) -> String {
        let errors = self.items.iter().any(|item| !item.is_taken());
        format!("{{\"took\":{},\"errors\":{errors},\"items\":[", self.took_ms)
    }
}

impl Iterator for BulkAnswer {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.written > self.items.len() {
            return None;
        }
        let mut out = if self.written == 0 { self.head() } else { String::with_capacity(PIECE_BYTES + 256) };
        while let Some(item) = self.items.get(self.written) {
            if out.len() >= PIECE_BYTES {
                return Some(out);
            }
            let separator = if self.written == 0 { "" } else { "," };
            let _ = write!(out, "{separator}{}", self.texts[usize::from(item.0)]);
            self.written += 1;
        }
        out.push_str("]}");
        self.written = self.items.len() + 1;
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole() {
        let all = |n: usize| -> Vec<Item> {
            let outcomes = [Outcome::Taken, Outcome::Unsupported, Outcome::Dropped(DropReason::TooNew)];
            (0..n).map(|i| Item::of(Action::ALL[i % 4].1, outcomes[i % 3])).collect()
        };
        for n in [0, 1, 5, 10_000] {
            let answer = BulkAnswer::new(all(n), 7);
            let bytes_max = answer.bytes_max();
            let pieces: Vec<String> = answer.collect();
            assert!(pieces.iter().all(|p| p.len() < PIECE_BYTES + 256));
            let whole = pieces.concat();
            assert!(whole.len() <= bytes_max, "{} {bytes_max}", whole.len());
            let whole: serde_json::Value = serde_json::from_str(&whole).expect("valid JSON");
            let items = whole["items"].as_array().expect("items");
            assert_eq!((items.len(), &whole["took"], &whole["errors"]), (n, &7.into(), &(n > 1).into()));
            for (i, item) in items.iter().enumerate() {
                let (word, status) = if i % 3 == 0 { ("create", 201) } else { (Action::ALL[i % 4].0, 400) };
                assert_eq!(item[word]["status"], status, "{item}");
            }
        }
    }

    #[test]
    fn every_item_has_its_text() {
        let texts = Item::texts();
        for (word, action) in Action::ALL {
            for why in DropReason::ALL {
                let text = &texts[usize::from(Item::of(action, Outcome::Dropped(why)).0)];
                assert!(text.contains(word) && text.contains(why.text()), "{text}");
            }
        }
    }
}
