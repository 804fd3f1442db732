//! Names of fields: each is looked up by its text and classified by the request's parameters once, and then referred
//! to by number.
//!
//! Keys of JSON objects are looked up below the object that contains them, so nested names are joined once and not
//! once per row. Each key is first compared with the one that followed the previous key last time.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use quiver_types::logs::{MSG, STREAM, STREAM_ID, TIME};

use super::options::{Defaults, FieldOptions};

/// If there are more names than this at the end of a batch, all are forgotten.
const NAMES_MAX: usize = 20_000;
/// If there are more names than this, the current row is dropped: it alone has brought that many.
const NAMES_OF_ROW_MAX: usize = 2 * NAMES_MAX;
/// Approximate bytes of a name or key in memory.
const NAME_BYTES: usize = 128;
/// No index in a list.
pub(crate) const NONE: u16 = u16::MAX;
/// The number of `_msg`.
pub(crate) const MSG_NAME: u32 = 0;
/// The root object, which is the row itself.
pub(crate) const ROOT: u32 = 0;
/// The root object of a message that is parsed, whose names may have a prefix.
pub(crate) const MESSAGE_ROOT: u32 = 1;
/// A key whose name would be too long.
pub(crate) const TOO_LONG: u32 = u32::MAX;

/// A name and its classification by the parameters.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what the parameters say of a name, each for itself")]
pub(crate) struct Name {
    pub(crate) text: Arc<str>,
    /// Index in the parameters' lists of fields for the time, the message, the stream and the service.
    pub(crate) time: u16,
    pub(crate) msg: u16,
    pub(crate) stream: u16,
    pub(crate) service: u16,
    /// Dropped, unless the row's message or time is in this field.
    pub(crate) ignored: bool,
    /// Never stored: `_time`, `_stream`, `_stream_id`.
    pub(crate) reserved: bool,
    /// Whether it is `_stream`, and that is read.
    pub(crate) is_stream: bool,
    /// Whether its values are stripped of ANSI escape sequences; `may_be_colored` if the field may become a message
    /// that is.
    pub(crate) colored: bool,
    pub(crate) may_be_colored: bool,
    /// Whether an object under it stays JSON.
    pub(crate) preserved: bool,
    /// Whether adding a field of this name needs special handling.
    pub(crate) special: bool,
    /// The last batch that contained it, and its number there.
    pub(crate) batch: u32,
    pub(crate) in_batch: u32,
    /// The last row that contained it, and its index in that row.
    pub(crate) row: u32,
    pub(crate) place: u32,
}

/// A key at one place in the tree of objects.
#[derive(Debug)]
struct Key {
    parent: u32,
    text: Box<str>,
    /// The full name of the key; [`TOO_LONG`] if that would be too long.
    name: u32,
    /// The key that followed last time in the same object, and the first key of the object that is its value.
    next: u32,
    first_child: u32,
    /// Whether the key needs no escapes in JSON.
    plain: bool,
}

/// All names of a request.
#[derive(Debug)]
pub(crate) struct Names {
    options: Arc<FieldOptions>,
    defaults: Defaults,
    pub(crate) list: Vec<Name>,
    by_text: HashTable<u32>,
    keys: Vec<Key>,
    by_key: HashTable<u32>,
    hasher: RandomState,
    /// Counts how often all were forgotten: numbers of an earlier generation are invalid.
    pub(crate) generation: u32,
    /// How many names were cut to the maximum length.
    pub(crate) cut: u64,
}

impl Names {
    pub(crate) fn new(options: Arc<FieldOptions>, defaults: Defaults) -> Self {
        let mut names = Self {
            options,
            defaults,
            list: Vec::new(),
            by_text: HashTable::new(),
            keys: Vec::new(),
            by_key: HashTable::new(),
            hasher: RandomState::default(),
            generation: 0,
            cut: 0,
        };
        names.forget();
        names
    }

    /// Forgets all names if there are too many; returns whether it did. Only to be called between rows.
    pub(crate) fn bound(&mut self) -> bool {
        let full = self.is_full();
        if full {
            self.forget();
        }
        full
    }

    /// Whether there are too many.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len().max(self.keys.len()) > NAMES_MAX
    }

    /// Whether there are so many that even the current row must be dropped.
    #[inline]
    pub(crate) fn is_overfull(&self) -> bool {
        self.list.len().max(self.keys.len()) > NAMES_OF_ROW_MAX
    }

    /// Approximate bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        (self.list.len() + self.keys.len()) * NAME_BYTES
    }

    fn forget(&mut self) {
        self.list.clear();
        self.by_text.clear();
        self.keys.clear();
        self.by_key.clear();
        self.generation += 1;
        let number = self.find("");
        debug_assert_eq!(number, MSG_NAME, "the message is the first name");
        for root in [ROOT, MESSAGE_ROOT] {
            debug_assert_eq!(self.keys.len(), root as usize, "the roots are the first keys");
            self.keys.push(Key {
                parent: ROOT,
                text: "".into(),
                name: MSG_NAME,
                next: 0,
                first_child: 0,
                plain: false,
            });
        }
    }

    /// The number of a name. The empty name is the message.
    pub(crate) fn find(&mut self, text: &str) -> u32 {
        let text = if text.is_empty() { MSG } else { text };
        let hash = self.hasher.hash_one(text);
        let Self { list, by_text, .. } = self;
        if let Some(&number) = by_text.find(hash, |&n| *list[n as usize].text == *text) {
            return number;
        }
        self.insert(hash, text)
    }

    #[cold]
    fn insert(&mut self, hash: u64, text: &str) -> u32 {
        let number = self.list.len() as u32;
        let name = self.judge(text);
        self.list.push(name);
        let Self { list, by_text, hasher, .. } = self;
        by_text.insert_unique(hash, number, |&n| hasher.hash_one(&*list[n as usize].text));
        number
    }

    fn judge(&self, text: &str) -> Name {
        let o = &self.options;
        let place = |given: Option<&[String]>, default: &[&str]| {
            let found = match given {
                Some(list) => list.iter().position(|t| t == text),
                None => default.iter().position(|t| *t == text),
            };
            found.map_or(NONE, |i| i as u16)
        };
        let time = place(o.time.as_deref(), self.defaults.time);
        let msg = place(o.msg.as_deref(), self.defaults.msg);
        let ignored = o.ignores(text);
        let reserved = [TIME, STREAM, STREAM_ID].contains(&text);
        let colored = o.decolorizes(text);
        // As the sender of the message knows it.
        let within_message = text.strip_prefix(o.message_prefix.as_str());
        Name {
            text: text.into(),
            time,
            msg,
            stream: place(o.stream.as_deref(), &[]),
            service: place(Some(&o.service), &[]),
            ignored,
            reserved,
            is_stream: text == STREAM && self.defaults.reads_stream && o.stream.is_none(),
            colored,
            may_be_colored: colored || msg != NONE && o.decolorizes(MSG),
            preserved: o.preserve.iter().any(|name| name == text || within_message == Some(name.as_str())),
            special: time != NONE || msg != NONE || ignored || reserved,
            batch: 0,
            in_batch: 0,
            row: 0,
            place: 0,
        }
    }

    /// The name that a key stands for.
    #[inline]
    pub(crate) fn name_of(&self, key: u32) -> u32 {
        self.keys[key as usize].name
    }

    pub(crate) fn key_text(&self, key: u32) -> &str {
        &self.keys[key as usize].text
    }

    /// The key that is likely to come next and the length of its text, if `rest` (from behind the opening quote)
    /// begins with it and a closing quote. `last` is the previous key in the same object, or 0.
    #[inline]
    pub(crate) fn guess(&self, parent: u32, last: u32, rest: &[u8]) -> Option<(u32, usize)> {
        let guess = if last == 0 { self.keys[parent as usize].first_child } else { self.keys[last as usize].next };
        if guess == 0 {
            return None;
        }
        let key = &self.keys[guess as usize];
        let text = key.text.as_bytes();
        let fits = key.plain && rest.len() > text.len() && rest[text.len()] == b'"' && &rest[..text.len()] == text;
        fits.then_some((guess, text.len()))
    }

    /// Finds a key below an object, and remembers that it followed `last`.
    pub(crate) fn key(&mut self, parent: u32, last: u32, text: &str) -> u32 {
        let hash = self.hasher.hash_one((parent, text));
        let Self { keys, by_key, .. } = self;
        let same = |&k: &u32| {
            let key = &keys[k as usize];
            key.parent == parent && *key.text == *text
        };
        let found = match by_key.find(hash, same) {
            Some(&found) => found,
            None => self.insert_key(hash, parent, text),
        };
        if last == 0 {
            self.keys[parent as usize].first_child = found;
        } else {
            self.keys[last as usize].next = found;
        }
        found
    }

    #[cold]
    fn insert_key(&mut self, hash: u64, parent: u32, text: &str) -> u32 {
        let name = self.join(parent, text);
        let number = self.keys.len() as u32;
        let plain = !text.bytes().any(|b| matches!(b, b'"' | b'\\'));
        self.keys.push(Key { parent, text: text.into(), name, next: 0, first_child: 0, plain });
        let Self { keys, by_key, hasher, .. } = self;
        by_key.insert_unique(hash, number, |&k| {
            let key = &keys[k as usize];
            hasher.hash_one((key.parent, &*key.text))
        });
        number
    }

    fn join(&mut self, parent: u32, text: &str) -> u32 {
        let max = super::NAME_BYTES_MAX;
        let prefixed;
        let text: &str = if parent == MESSAGE_ROOT {
            prefixed = format!("{}{text}", self.options.message_prefix);
            &prefixed
        } else {
            text
        };
        if matches!(parent, ROOT | MESSAGE_ROOT) {
            if text.len() <= max {
                return self.find(text);
            }
            self.cut += 1;
            return self.find(&text[..text.floor_char_boundary(max)]);
        }
        let above = self.keys[parent as usize].name;
        // A parent key with an empty name adds neither text nor dot.
        let above = if self.keys[parent as usize].text.is_empty() && above == MSG_NAME {
            ""
        } else {
            &*self.list[above as usize].text
        };
        if above.is_empty() {
            return if text.len() > max { TOO_LONG } else { self.find(text) };
        }
        if above.len() + 1 + text.len() > max {
            return TOO_LONG;
        }
        let joined = format!("{above}.{text}");
        self.find(&joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_names() {
        let options = FieldOptions { service: Arc::from(["service".to_owned()]), ..FieldOptions::default() };
        let mut names = Names::new(Arc::new(options), Defaults::LINES);
        let a = names.key(ROOT, 0, "a");
        let ab = names.key(a, 0, "b");
        let dotted = names.key(ROOT, a, "a.b");
        assert_eq!(names.name_of(ab), names.name_of(dotted));
        assert_eq!(&*names.list[names.name_of(ab) as usize].text, "a.b");
        assert_eq!(names.guess(ROOT, 0, b"a\":1"), Some((a, 1)));
        assert_eq!(names.guess(ROOT, a, b"a.b\""), Some((dotted, 3)));
        assert_eq!(names.guess(ROOT, a, b"a.b"), None);
        assert_eq!(names.guess(ROOT, dotted, b"x\""), None);
        let quoted = names.key(ROOT, 0, "q\\");
        assert_eq!(names.guess(ROOT, 0, b"q\\\""), None, "{quoted}");
        assert_eq!(names.find(""), MSG_NAME);
        let long = "é".repeat(100);
        let long_key = names.key(ROOT, 0, &long);
        assert_eq!(names.list[names.name_of(long_key) as usize].text.len(), 128);
        let below = names.key(a, 0, &long);
        assert_eq!((names.name_of(below), names.cut), (TOO_LONG, 1));
        let service = names.find("service") as usize;
        assert_eq!((names.list[service].service, names.list[service].special), (0, false));
    }
}
