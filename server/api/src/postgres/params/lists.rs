//! Lists as parameters, in text and in binary form, and lists of lists.

use std::iter::Peekable;
use std::str::Chars;

use bytes::{Buf as _, Bytes};
use quiver_sql::{Param, PgType};

use super::{Fault, binary_text, checked, malformed};

/// Most values of a list, with those of the lists in it.
pub(super) const ITEMS_MAX: usize = 10_000;
/// How deep lists are in each other at most, as in PostgreSQL.
const DEPTH_MAX: usize = 6;

fn too_long() -> Fault {
    Fault::new("54000", format!("a list as parameter has at most {ITEMS_MAX} items"))
}

fn too_deep(depth: usize) -> Fault {
    Fault::new("54000", format!("number of array dimensions ({depth}) exceeds the maximum allowed ({DEPTH_MAX})"))
}

/// Parses the items of `{a,"b c",NULL}` or `{{a,b},{c,d}}`.
///
/// # Errors
/// It is no list, its lists are not equally long, or it is too long or too deep.
pub(super) fn text_items(value: &Bytes, item: &'static PgType) -> Result<Vec<Param>, Fault> {
    let text = std::str::from_utf8(value).map_err(|_| malformed(item))?.trim();
    let inner = text.strip_prefix('{').ok_or_else(|| malformed(item))?;
    let mut list = ListText { letters: inner.chars().peekable(), item, values: 0 };
    let items = list.items(1)?;
    if list.letters.next().is_some() {
        return Err(malformed(item));
    }
    shape(&items).ok_or_else(|| malformed(item))?;
    // As in PostgreSQL, a list that holds only empty lists is an empty list.
    Ok(if list.values == 0 { Vec::new() } else { items })
}

/// How many items the lists of each level have; `None` if they are not equally long.
fn shape(items: &[Param]) -> Option<Vec<usize>> {
    let inner = |param: &Param| match param {
        Param::List(items) => shape(items),
        _ => Some(Vec::new()),
    };
    let mut shapes = items.iter().map(inner);
    let first = match shapes.next() {
        Some(first) => first?,
        None => Vec::new(),
    };
    let are_equal = shapes.all(|shape| shape.as_ref() == Some(&first));
    are_equal.then(|| [vec![items.len()], first].concat())
}

/// What is left of the text of a list.
struct ListText<'t> {
    letters: Peekable<Chars<'t>>,
    item: &'static PgType,
    /// How many values there were.
    values: usize,
}

impl ListText<'_> {
    fn malformed(&self) -> Fault {
        malformed(self.item)
    }

    fn skip_blanks(&mut self) {
        while self.letters.next_if(|letter| letter.is_whitespace()).is_some() {}
    }

    /// Reads the items of a list, with the brace behind them.
    fn items(&mut self, depth: usize) -> Result<Vec<Param>, Fault> {
        if depth > DEPTH_MAX {
            return Err(too_deep(depth));
        }
        let mut items = Vec::new();
        self.skip_blanks();
        if self.letters.next_if_eq(&'}').is_some() {
            return Ok(items);
        }
        loop {
            self.skip_blanks();
            let is_list = self.letters.next_if_eq(&'{').is_some();
            items.push(if is_list { Param::List(self.items(depth + 1)?) } else { self.value()? });
            self.skip_blanks();
            match self.letters.next() {
                Some(',') => {}
                Some('}') => return Ok(items),
                _ => return Err(self.malformed()),
            }
        }
    }

    /// Reads a value, up to the comma or the brace behind it.
    fn value(&mut self) -> Result<Param, Fault> {
        let is_quoted = self.letters.next_if_eq(&'"').is_some();
        let (text, is_null) = if is_quoted { (self.quoted()?, false) } else { self.plain()? };
        let value = if is_null { None } else { Some(checked(&Bytes::from(text), self.item)?) };
        self.values += 1;
        if self.values > ITEMS_MAX { Err(too_long()) } else { Ok(Param::Typed(value, self.item)) }
    }

    fn escaped(&mut self) -> Result<char, Fault> {
        self.letters.next().ok_or_else(|| self.malformed())
    }

    fn quoted(&mut self) -> Result<String, Fault> {
        let mut text = String::new();
        loop {
            match self.escaped()? {
                '"' => return Ok(text),
                '\\' => text.push(self.escaped()?),
                other => text.push(other),
            }
        }
    }

    /// A value without quotes, and whether it is NULL. Blanks around it are ignored, but for escaped ones.
    fn plain(&mut self) -> Result<(String, bool), Fault> {
        // The end of the last escaped character: up to there blanks belong to the value, and it is not NULL.
        let (mut text, mut kept) = (String::new(), 0);
        while let Some(letter) = self.letters.next_if(|letter| !matches!(letter, ',' | '}')) {
            match letter {
                '"' | '{' => return Err(self.malformed()),
                '\\' => {
                    text.push(self.escaped()?);
                    kept = text.len();
                }
                other => text.push(other),
            }
        }
        text.truncate(text.trim_end().len().max(kept));
        if text.is_empty() {
            return Err(self.malformed());
        }
        let is_null = kept == 0 && text.eq_ignore_ascii_case("null");
        Ok((text, is_null))
    }
}

/// Reads the items of a list in binary form: how deep it is, how many items the lists of each level have, and all values.
///
/// # Errors
/// Those of [`text_items`].
pub(super) fn binary_items(value: &Bytes, item: &'static PgType) -> Result<Vec<Param>, Fault> {
    let mut rest = value.clone();
    if rest.len() < 12 {
        return Err(malformed(item));
    }
    let (depth, _, _) = (rest.get_i32(), rest.get_i32(), rest.get_u32());
    let depth = usize::try_from(depth).map_err(|_| malformed(item))?;
    if depth > DEPTH_MAX {
        return Err(too_deep(depth));
    }
    if rest.len() < depth * 8 {
        return Err(malformed(item));
    }
    let lengths = (0..depth).map(|_| {
        let (length, _) = (rest.get_i32(), rest.get_i32());
        usize::try_from(length).map_err(|_| malformed(item))
    });
    let lengths = lengths.collect::<Result<Vec<usize>, Fault>>()?;
    let values = lengths.iter().try_fold(1_usize, |all, length| all.checked_mul(*length)).ok_or_else(too_long)?;
    let values = if depth == 0 { 0 } else { values };
    if values > ITEMS_MAX {
        return Err(too_long());
    }
    let mut items = Vec::new();
    for _ in 0..values {
        if rest.len() < 4 {
            return Err(malformed(item));
        }
        let len = rest.get_i32();
        let value = match usize::try_from(len) {
            Err(_) => None,
            Ok(len) if len <= rest.len() => Some(binary_text(&rest.split_to(len), item)?),
            Ok(_) => return Err(malformed(item)),
        };
        items.push(Param::Typed(value, item));
    }
    if rest.is_empty() { Ok(nested(items, &lengths)) } else { Err(malformed(item)) }
}

/// Values as lists of these lengths, from the outer ones to the inner ones.
fn nested(mut items: Vec<Param>, lengths: &[usize]) -> Vec<Param> {
    for length in lengths.iter().skip(1).rev().filter(|length| **length > 0) {
        let mut values = items.into_iter().peekable();
        items = Vec::new();
        while values.peek().is_some() {
            items.push(Param::List(values.by_ref().take(*length).collect()));
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use quiver_sql::pg_type;

    use super::*;

    /// A list as it is written, with its type's values in it.
    fn shown(items: &[Param]) -> String {
        let item = |param: &Param| match param {
            Param::List(items) => shown(items),
            Param::Typed(text, _) => text.clone().unwrap_or_else(|| "NULL".to_owned()),
            other => panic!("{other:?}"),
        };
        format!("{{{}}}", items.iter().map(item).collect::<Vec<_>>().join(","))
    }

    fn packed(lengths: &[i32], values: &[i32]) -> Bytes {
        let head = [i32::try_from(lengths.len()).unwrap(), 0, 23];
        let lengths = lengths.iter().flat_map(|length| [*length, 1]);
        let values = values.iter().flat_map(|value| [4, *value]);
        head.into_iter().chain(lengths).chain(values).flat_map(i32::to_be_bytes).collect()
    }

    #[test]
    fn lists_of_lists_are_read_from_texts() {
        let number = pg_type(23).unwrap();
        let read = |text: &str| text_items(&Bytes::from(text.to_owned()), number);
        for (text, expected) in [
            ("{{1,2},{3,4}}", "{{1,2},{3,4}}"),
            (" { { 1 , NULL } , {-3,\"4\"} } ", "{{1,NULL},{-3,4}}"),
            ("{{{1}},{{2}}}", "{{{1}},{{2}}}"),
            ("{{},{ }}", "{}"),
            ("{{{{{{1}}}}}}", "{{{{{{1}}}}}}"),
        ] {
            assert_eq!(
                read(text).map(|items| shown(&items)).map_err(|fault| fault.code),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
        for (text, code) in [
            ("{{1,2},{3}}", "22P02"),
            ("{{1},2}", "22P02"),
            ("{1,{2}}", "22P02"),
            ("{{1},{}}", "22P02"),
            ("{{1}", "22P02"),
            ("{{1}}}", "22P02"),
            ("{{1}{2}}", "22P02"),
            ("{{1},}", "22P02"),
            ("{{x}}", "22P02"),
            ("{{{{{{{1}}}}}}}", "54000"),
        ] {
            assert_eq!(read(text).map_err(|fault| fault.code).unwrap_err(), code, "{text}");
        }
        assert_eq!(read(&"{".repeat(100_000)).unwrap_err().code, "54000");
    }

    #[test]
    fn lists_of_lists_are_read_from_bytes() {
        let number = pg_type(23).unwrap();
        for (lengths, values, expected) in [
            (&[2, 2][..], &[1, 2, 3, 4][..], Ok("{{1,2},{3,4}}")),
            (&[2, 1, 2], &[1, 2, 3, 4], Ok("{{{1,2}},{{3,4}}}")),
            (&[0, 3], &[], Ok("{}")),
            (&[2, 0], &[], Ok("{}")),
            (&[2, 2], &[1, 2, 3], Err("22P02")),
            (&[2, 2], &[1, 2, 3, 4, 5], Err("22P02")),
            (&[2, -1], &[], Err("22P02")),
            (&[i32::MAX, i32::MAX, i32::MAX], &[], Err("54000")),
            (&[101, 100], &[], Err("54000")),
            (&[1, 1, 1, 1, 1, 1, 1], &[1], Err("54000")),
        ] {
            let found = binary_items(&packed(lengths, values), number);
            let found = found.map(|items| shown(&items)).map_err(|fault| fault.code);
            assert_eq!(found, expected.map(str::to_owned), "{lengths:?} {values:?}");
        }
    }
}
