//! The regular expression functions evaluated row by row, with the results of DataFusion's: for strings that are long
//! for their pattern, since matching here stops with the query. One difference: where the search begins later in the
//! string, the text before is still seen. DataFusion's functions cut it off, so that `^` matched there.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanBuilder, Int64Array, Int64Builder, ListBuilder, StringViewBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use quiver_types::cancellation;
use quiver_types::matcher::{Places, WatchedRegex, affordable, builder, looks_around};
use regex::Regex;

use super::super::result_memory::BYTES_MAX;
use crate::error::to_datafusion;
use crate::relational::patterns::{Texts, ended, may_compile};

pub(super) const LIKE: &str = "regexp_like";
pub(super) const MATCH: &str = "regexp_match";
pub(super) const REPLACE: &str = "regexp_replace";
pub(super) const COUNT: &str = "regexp_count";
pub(super) const INSTR: &str = "regexp_instr";

/// Groups in a replacement as PostgreSQL writes them.
static GROUPS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\{1,2}(\d+)").expect("a fixed pattern"));

/// Calls a function for rows.
///
/// # Errors
/// What is no pattern, flag or place; the query has ended.
pub(super) fn call(name: &str, args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let [_, _, others @ ..] = args else { return exec_err!("`{name}` takes a text and a pattern") };
    let asked = RegexArgs::new(name, args, rows)?;
    let number = |at: usize, other: i64| Numbers::new(others.get(at), rows, other);
    let array: ArrayRef = match name {
        LIKE => {
            let mut out = BooleanBuilder::with_capacity(rows);
            asked.each(|_, found| {
                out.append_option(found.map(|(pattern, text)| pattern.regex.is_match(text)));
                Ok(())
            })?;
            Arc::new(out.finish())
        }
        MATCH => {
            let mut out = ListBuilder::new(StringViewBuilder::new());
            asked.each(|_, found| {
                let is_found = found.is_some_and(|(pattern, text)| pattern.groups(text, out.values()));
                out.append(is_found);
                Ok(())
            })?;
            Arc::new(out.finish())
        }
        REPLACE => {
            let [to, ..] = others else { return exec_err!("`{name}` takes a replacement") };
            let (to, mut out) = (Texts::new(to)?, StringViewBuilder::new());
            asked.each(|row, found| {
                out.append_option(found.zip(to.get(row)).map(|((pattern, text), to)| pattern.replaced(text, to)));
                Ok(())
            })?;
            Arc::new(out.finish())
        }
        COUNT => {
            let (from, mut out) = (number(0, 1)?, Int64Builder::with_capacity(rows));
            asked.each(|row, found| {
                let count = found.zip(from.get(row)).map(|((pattern, text), from)| pattern.count(name, text, from));
                out.append_option(count.transpose()?);
                Ok(())
            })?;
            Arc::new(out.finish())
        }
        INSTR => {
            let (from, which, group) = (number(0, 1)?, number(1, 1)?, number(3, 0)?);
            let mut out = Int64Builder::with_capacity(rows);
            asked.each(|row, found| {
                let place = match (found, from.get(row), which.get(row), group.get(row)) {
                    (Some((pattern, text)), Some(from), Some(which), Some(group)) => {
                        Some(pattern.place(name, text, from, which, group)?)
                    }
                    _ => None,
                };
                out.append_option(place);
                Ok(())
            })?;
            Arc::new(out.finish())
        }
        _ => return internal_err!("`{name}` looks for no regular expression"),
    };
    // What stopped work says is worth nothing.
    if cancellation::goes_on(0) { Ok(array) } else { ended() }
}

/// How many groups a replacement names, at most: `\1`, or `${1}`.
pub(crate) fn references(to: &str) -> i128 {
    (to.matches('\\').count() + to.matches("${").count()) as i128
}

/// Bytes that texts have more than before when something is put for what patterns find, up to more than a batch may have.
///
/// # Errors
/// As [`call`].
pub(crate) fn added(args: &[ColumnarValue], rows: usize) -> Result<i128> {
    let [_, _, to, ..] = args else { return Ok(0) };
    let (to, mut added) = (Texts::new(to)?, 0);
    RegexArgs::new(REPLACE, args, rows)?.each(|row, found| {
        let Some(((pattern, text), to)) = found.zip(to.get(row)) else { return Ok(()) };
        if added > BYTES_MAX {
            return Ok(());
        }
        let (to, references) = (GROUPS.replace_all(to, "$${$1}"), references(to));
        pattern.each(text, true, |places| {
            added += pattern.expanded(text, places, &to, references);
            added <= BYTES_MAX && pattern.is_global
        });
        Ok(())
    })?;
    if cancellation::goes_on(0) { Ok(added) } else { ended() }
}

/// Whole numbers of an argument, or what stands for one that is left out.
pub(crate) struct Numbers {
    numbers: Option<Int64Array>,
    other: i64,
}

impl Numbers {
    /// Takes those of an argument.
    ///
    /// # Errors
    /// It is no number.
    pub(crate) fn new(value: Option<&ColumnarValue>, rows: usize, other: i64) -> Result<Self> {
        let numbers = match value {
            None => None,
            Some(value) => Some(cast(&value.to_array(rows)?, &DataType::Int64)?.as_primitive::<Int64Type>().clone()),
        };
        Ok(Self { numbers, other })
    }

    /// The number of a row; `None`: it is NULL.
    pub(crate) fn get(&self, row: usize) -> Option<i64> {
        match &self.numbers {
            None => Some(self.other),
            Some(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
        }
    }
}

/// Texts, patterns and flags of rows.
struct RegexArgs<'a> {
    name: &'a str,
    texts: Texts,
    patterns: Texts,
    flags: Option<Texts>,
    rows: usize,
}

impl<'a> RegexArgs<'a> {
    fn new(name: &'a str, args: &[ColumnarValue], rows: usize) -> Result<Self> {
        let [texts, patterns, others @ ..] = args else {
            return exec_err!("`{name}` takes a text and a pattern");
        };
        let flags = others.get(match name {
            REPLACE | COUNT => 1,
            INSTR => 2,
            _ => 0,
        });
        let (texts, patterns) = (Texts::new(texts)?, Texts::new(patterns)?);
        Ok(Self { name, texts, patterns, flags: flags.map(Texts::new).transpose()?, rows })
    }

    /// Gives each row its pattern and text; `None`: it is NULL.
    fn each(&self, mut f: impl FnMut(usize, Option<(&CompiledPattern, &str)>) -> Result<()>) -> Result<()> {
        // Neighbouring rows mostly have the same pattern.
        let mut last: Option<((&str, Option<&str>), CompiledPattern)> = None;
        for row in 0..self.rows {
            let flags = self.flags.as_ref().and_then(|flags| flags.get(row));
            // To two of them NULL is no flags.
            let is_null = self.flags.is_some() && flags.is_none() && !matches!(self.name, LIKE | MATCH);
            let (Some(text), Some(pattern), false) = (self.texts.get(row), self.patterns.get(row), is_null) else {
                f(row, None)?;
                continue;
            };
            let known = if let Some(known) = last.take().filter(|(of, _)| *of == (pattern, flags)) {
                last.insert(known)
            } else {
                last.insert(((pattern, flags), CompiledPattern::new(self.name, pattern, flags)?))
            };
            f(row, Some((&known.1, text)))?;
            known.1.regex.outcome().map_err(to_datafusion)?;
        }
        Ok(())
    }
}

/// A pattern that was read with its flags.
struct CompiledPattern {
    regex: WatchedRegex,
    is_global: bool,
}

impl CompiledPattern {
    fn new(name: &str, pattern: &str, flags: Option<&str>) -> Result<Self> {
        let is_global = flags.is_some_and(|flags| flags.contains('g'));
        if is_global && name != REPLACE {
            return plan_err!("`{name}` looks for one place, it takes no flag `g`");
        }
        // As DataFusion writes them, whose answers and refusals these are.
        let written = flags.filter(|flags| match name {
            REPLACE => *flags != "g",
            COUNT | INSTR => !flags.is_empty(),
            _ => true,
        });
        let text = match written {
            Some(flags) => format!("(?{}){pattern}", flags.replace('g', "")),
            None => pattern.to_owned(),
        };
        may_compile(pattern)?;
        affordable(pattern).map_err(to_datafusion)?;
        if looks_around(&text) {
            let regex = WatchedRegex::looking(&text).map_err(to_datafusion)?;
            return Ok(Self { regex, is_global });
        }
        match builder(&text).build() {
            Ok(regex) => Ok(Self { regex: WatchedRegex::new(regex), is_global }),
            Err(error) => plan_err!("`{text}` is no regular expression: {error}"),
        }
    }

    /// Goes through all places of a text, as long as the function says so.
    fn each(&self, text: &str, has_groups: bool, f: impl FnMut(&Places) -> bool) {
        self.each_from(text, 0, has_groups, f);
    }

    /// The same from a place on, which is no beginning of the text.
    fn each_from(&self, text: &str, from: usize, has_groups: bool, f: impl FnMut(&Places) -> bool) {
        // That there is none is found in less time.
        if self.regex.may_match(text) {
            let mut places = if has_groups { self.regex.group_places() } else { self.regex.match_places() };
            self.regex.each_from(text, from, &mut places, f);
        }
    }

    /// Gives what the groups of the first place hold, NULL where one takes no part, or all of it where there are none, and
    /// says whether there is one.
    fn groups(&self, text: &str, out: &mut StringViewBuilder) -> bool {
        let groups = self.regex.regex().captures_len();
        let mut is_found = false;
        self.each(text, true, |places| {
            for group in usize::from(groups > 1)..groups {
                out.append_option(places.get(group).map(|(from, to)| &text[from..to]));
            }
            is_found = true;
            false
        });
        is_found
    }

    fn replaced(&self, text: &str, to: &str) -> String {
        let to = GROUPS.replace_all(to, "$${$1}");
        let (mut out, mut from) = (String::new(), 0);
        self.each(text, to.contains('$'), |places| {
            let Some((start, end)) = places.get(0) else { return false };
            out.push_str(&text[from..start]);
            self.regex.expand(text, places, &to, &mut out);
            from = end;
            self.is_global
        });
        out.push_str(&text[from..]);
        out
    }

    /// Bytes that are put in the place of one match; not made where they are too many by themselves.
    fn expanded(&self, text: &str, places: &Places, to: &str, references: i128) -> i128 {
        let width = places.get(0).map_or(0, |(from, to)| (to - from) as i128);
        let most = width * references + to.len() as i128;
        if most > BYTES_MAX {
            return most;
        }
        let mut made = String::new();
        self.regex.expand(text, places, to, &mut made);
        (made.len() as i128 - width).max(0)
    }

    fn count(&self, name: &str, text: &str, from: i64) -> Result<i64> {
        let Some(from) = beginning(name, text, from)? else { return Ok(0) };
        let mut count = 0;
        self.each_from(text, from, false, |_| {
            count += 1;
            true
        });
        Ok(count)
    }

    /// Gives at which letter a place begins, or a group of the first one, from 1; 0: there is none.
    fn place(&self, name: &str, text: &str, from: i64, which: i64, group: i64) -> Result<i64> {
        if which < 1 {
            return exec_err!("`{name}` counts places from 1");
        }
        let Some(from) = beginning(name, text, from)? else { return Ok(0) };
        let group = usize::try_from(group).unwrap_or(0);
        // The group of another place cannot be asked for.
        let (mut left, mut found) = (if group > 0 { 1 } else { which }, None);
        self.each_from(text, from, group > 0, |places| {
            left -= 1;
            if left == 0 {
                found = places.get(group);
            }
            left > 0
        });
        Ok(found.map_or(0, |(start, _)| text[..start].chars().count() as i64 + 1))
    }
}

/// Where the letter of a number begins, from 1, or the end of the text; `None`: it has fewer.
fn beginning(name: &str, text: &str, from: i64) -> Result<Option<usize>> {
    if from < 1 {
        return exec_err!("`{name}` counts letters from 1");
    }
    Ok(letter(text, usize::try_from(from - 1).unwrap_or(usize::MAX)))
}

/// Where a letter begins, counted from 0, or the end of the text; `None`: it has fewer.
pub(crate) fn letter(text: &str, at: usize) -> Option<usize> {
    text.char_indices().map(|(begin, _)| begin).chain([text.len()]).nth(at)
}

#[cfg(test)]
mod tests;
