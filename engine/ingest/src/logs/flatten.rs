//! JSON objects → fields: nested names joined by dots, lists as compact JSON, numbers as written.
//!
//! An object whose names would become too long, or that stands too deep, becomes a field of its own: its compact JSON. It is
//! read a second time for that, and a third time if the same holds of the object that it stands in. Where that adds up, the
//! member of the row that all of it stands in becomes one field.

use super::json::{Cursor, JsonFault};
use super::names::{MESSAGE_ROOT, ROOT, TOO_LONG};
use super::rows::{ReadAgain, Rows};

/// Objects nested deeper than this stay JSON.
const DEPTH_MAX: u32 = 100;
/// How often what is read may be read again, before no object within it is split any more.
const AGAIN_MAX: usize = 3;

/// Why an object was not flattened.
enum Stop {
    /// It is not JSON.
    Fault(JsonFault),
    /// A name is too long, or the object too deep.
    TooLong,
}

impl From<JsonFault> for Stop {
    fn from(fault: JsonFault) -> Self {
        Self::Fault(fault)
    }
}

impl Rows {
    /// Adds the members of the next object.
    ///
    /// # Errors
    ///
    /// It is no object. Fields that were added already stay; the caller rolls the row back.
    pub(crate) fn object(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonFault> {
        self.object_below(json, ROOT)
    }

    /// As [`Self::object`] for a message, whose names get the prefix that the request asks for.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn message_object(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonFault> {
        self.object_below(json, MESSAGE_ROOT)
    }

    fn object_below(&mut self, json: &mut Cursor<'_>, root: u32) -> Result<(), JsonFault> {
        self.again = ReadAgain { start: json.pos, bytes: 0 };
        match self.members(json, root, 0) {
            Ok(()) => Ok(()),
            Err(Stop::Fault(fault)) => Err(fault),
            // Names of the top level are cut, and never too long.
            Err(Stop::TooLong) => Err(json.fault("nested too deeply")),
        }
    }

    fn members(&mut self, json: &mut Cursor<'_>, parent: u32, depth: u32) -> Result<(), Stop> {
        json.expect(b'{', "expected an object")?;
        if depth > DEPTH_MAX {
            return Err(Stop::TooLong);
        }
        let (mut last, mut first) = (0, true);
        while json.next_key(first)? {
            first = false;
            if self.is_lost() {
                // The row will be dropped, and it may have millions of names, so these are not stored.
                json.text_rest()?;
                json.expect(b':', "expected `:`")?;
                json.skip()?;
                continue;
            }
            last = self.key(json, parent, last)?;
            self.member(json, last, depth)?;
        }
        Ok(())
    }

    /// Reads a key, from behind its opening quote, and the colon. `last` is the previous key in the same object, or
    /// 0.
    #[inline]
    pub(crate) fn key(&mut self, json: &mut Cursor<'_>, parent: u32, last: u32) -> Result<u32, JsonFault> {
        let key = if let Some((key, len)) = self.names.guess(parent, last, json.rest()) {
            json.pos += len + 1;
            key
        } else {
            let text = json.text_rest()?.text();
            self.names.key(parent, last, &text)
        };
        json.expect(b':', "expected `:`")?;
        Ok(key)
    }

    /// Adds the next value under a key of the top level.
    pub(crate) fn first_level_member(&mut self, json: &mut Cursor<'_>, key: u32) -> Result<(), JsonFault> {
        self.again = ReadAgain { start: json.pos, bytes: 0 };
        match self.member(json, key, 0) {
            Ok(()) => Ok(()),
            Err(Stop::Fault(fault)) => Err(fault),
            Err(Stop::TooLong) => Err(json.fault("nested too deeply")),
        }
    }

    fn member(&mut self, json: &mut Cursor<'_>, key: u32, depth: u32) -> Result<(), Stop> {
        if self.is_lost() {
            json.skip()?;
            return Ok(());
        }
        let name = self.names.name_of(key);
        if name == TOO_LONG {
            return Err(Stop::TooLong);
        }
        match json.peek() {
            b'"' => {
                json.pos += 1;
                let text = json.text_rest()?;
                if text.escaped {
                    self.add_with(name, |out| {
                        text.append(out);
                        Ok::<_, JsonFault>(())
                    })?;
                } else {
                    self.add(name, text.raw);
                }
            }
            b'{' if self.names.list[name as usize].preserved => self.add_with(name, |out| json.compact(out))?,
            b'{' => {
                let (start, mark) = (json.pos, self.mark());
                match self.members(json, key, depth + 1) {
                    // Each level above may find the same.
                    Err(Stop::TooLong) if depth > 0 && self.again.bytes > AGAIN_MAX * (json.pos - self.again.start) => {
                        return Err(Stop::TooLong);
                    }
                    Err(Stop::TooLong) => {
                        self.take_back(mark);
                        json.pos = start;
                        self.add_with(name, |out| json.compact(out))?;
                        self.again.bytes += json.pos - start;
                    }
                    other => other?,
                }
            }
            b'[' => self.add_with(name, |out| json.compact(out))?,
            _ => {
                let text = json.literal()?;
                self.add(name, if text == "null" { "" } else { text });
            }
        }
        Ok(())
    }
}
