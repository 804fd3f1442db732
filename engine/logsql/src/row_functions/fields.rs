//! Names and values that an unpacker finds, in one buffer.

use quiver_types::logs::MSG;

/// A list of fields; cleared and filled again for each row without allocation.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    text: String,
    fields: Vec<FieldEnds>,
}

/// Where the name and the value of a field end in the buffer.
#[derive(Debug, Clone, Copy)]
struct FieldEnds {
    name_end: usize,
    value_end: usize,
    /// Position, in the list of wanted fields that an unpacker was given, of the one that wanted this field.
    wanted_by: Option<usize>,
}

impl Fields {
    /// Forgets all fields.
    pub fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    /// Appends a field. An empty name stands for the message.
    pub fn push(&mut self, name: &str, value: &str) {
        self.push_with(name, |out| out.push_str(value));
    }

    /// Appends a field whose value is written by a function.
    pub fn push_with(&mut self, name: &str, write: impl FnOnce(&mut String)) {
        self.push_wanted(None, name, write);
    }

    /// Like [`Fields::push_with`], with the place of what wanted the field, so that nobody has to look for it by the name again.
    pub fn push_wanted(&mut self, wanted_by: Option<usize>, name: &str, write: impl FnOnce(&mut String)) {
        self.text.push_str(name);
        let name_end = self.text.len();
        write(&mut self.text);
        self.fields.push(FieldEnds { name_end, value_end: self.text.len(), wanted_by });
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Forgets all fields after the first so many.
    pub fn truncate(&mut self, count: usize) {
        self.fields.truncate(count);
        self.text.truncate(self.fields.last().map_or(0, |f| f.value_end));
    }

    /// Gives names and values in the order in which they were found; a name may occur again.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.fields.len()).map(|i| self.at(i))
    }

    /// Gives the last value under a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        (0..self.fields.len()).rev().map(|i| self.at(i)).find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Gives the name and value of the field at a place below [`Fields::len`].
    pub fn at(&self, i: usize) -> (&str, &str) {
        let FieldEnds { name_end, value_end, .. } = self.fields[i];
        let start = self.start(i);
        let name = if name_end == start { MSG } else { &self.text[start..name_end] };
        (name, &self.text[name_end..value_end])
    }

    /// Says whether the field at a place below [`Fields::len`] was found without a name.
    pub fn is_nameless(&self, i: usize) -> bool {
        self.fields[i].name_end == self.start(i)
    }

    /// Gives the place of what wanted the field at a place below [`Fields::len`]; `None`: the unpacker was not told, or did not say.
    pub fn wanted_by(&self, i: usize) -> Option<usize> {
        self.fields[i].wanted_by
    }

    fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.fields[i - 1].value_end }
    }

    /// Appends the values under some names to as many texts; nothing where there is none.
    pub fn take(&self, names: &[String], out: &mut [String]) {
        for (name, out) in names.iter().zip(out) {
            out.push_str(self.get(name).unwrap_or(""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_one_row_after_another() {
        let mut fields = Fields::default();
        assert!(fields.is_empty() && fields.get("").is_none());
        // Buffers are used again.
        for _ in 0..2 {
            fields.clear();
            fields.push("a", "1");
            fields.push("", "m");
            fields.push_with("a", |out| out.push('2'));
            assert_eq!(fields.iter().collect::<Vec<_>>(), [("a", "1"), (MSG, "m"), ("a", "2")]);
            assert_eq!((fields.get("a"), fields.get(MSG), fields.get("x")), (Some("2"), Some("m"), None));
            assert_eq!([0, 1, 2].map(|i| fields.is_nameless(i)), [false, true, false]);
            fields.truncate(9);
            assert_eq!(fields.len(), 3);
            fields.push_wanted(Some(7), "b", |_| ());
            assert_eq!((fields.at(3), fields.wanted_by(3), fields.wanted_by(2)), (("b", ""), Some(7), None));
            fields.truncate(2);
            fields.push("é", "");
            assert_eq!((fields.get("a"), fields.get("é"), fields.at(2)), (Some("1"), Some(""), ("é", "")));
            let mut out = ["x".to_owned(), String::new(), String::new()];
            fields.take(&["a", "none", MSG].map(str::to_owned), &mut out);
            assert_eq!(out, ["x1", "", "m"]);
            fields.truncate(0);
            assert!(fields.is_empty());
        }
    }
}
