//! Applies a matcher to the values of a column, with one evaluator for each way in which values are stored. Used by the
//! store's scan and by the operators of the language, which select columns and rows in their own ways.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use arrow::array::{
    Array, FixedSizeBinaryArray, Float64Array, Int64Array, StringArray, StringViewArray, UInt32Array, make_view,
};
use arrow::buffer::BooleanBuffer;

use super::filter::{MatchHints, ValueMatcher};
use super::stored_field::{read_float, read_int, write_float, write_int};
use crate::hex::{read_hex, write_hex};

/// With at least this many values, they are looked up in a set instead of compared one by one.
const MANY_KEYS: usize = 16;
/// Number of integers whose results are cached.
const INTEGERS_KNOWN: usize = 4096;
/// A dictionary with this many times the column's entries is shared by many columns; hardly any entry is needed here.
const SHARED_BY: usize = 64;

/// The selected rows.
pub trait ChosenRows {
    /// Selects the rows whose value passes a test; a value is given by its index in the column.
    fn select(&self, passes: impl FnMut(usize) -> bool) -> BooleanBuffer;
}

/// All rows of a column with this number of values.
#[derive(Debug, Clone, Copy)]
pub struct AllRows(pub usize);

impl ChosenRows for AllRows {
    fn select(&self, passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
        BooleanBuffer::collect_bool(self.0, passes)
    }
}

/// A matcher that matches no missing value.
#[derive(Debug)]
pub struct IfPresent<'a>(pub &'a dyn ValueMatcher);

impl ValueMatcher for IfPresent<'_> {
    fn matches(&self, value: &str) -> bool {
        !value.is_empty() && self.0.matches(value)
    }

    fn hints(&self) -> MatchHints {
        self.0.hints()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// Number of leading bytes of a long text that its view contains, and their bit position.
const VIEW_PREFIX: usize = 4;
const VIEW_PREFIX_AT: u32 = 32;
/// Maximum length of a text that is completely inside its view.
pub(super) const VIEW_INLINE: usize = 12;

/// A matcher for the texts of a column.
#[derive(Debug)]
pub struct TextMatch<'a> {
    array: &'a StringViewArray,
    matcher: &'a dyn ValueMatcher,
    /// Whether a missing value matches; `None` if there are none.
    missing: Option<bool>,
    /// Mask and value for bits of the view (length and first bytes), which are checked first, because the text itself
    /// is elsewhere in memory.
    view: (u128, u128),
    /// Whether these bits decide the result.
    decided: bool,
}

impl<'a> TextMatch<'a> {
    /// Prepares the matcher for a column.
    pub fn new(array: &'a StringViewArray, matcher: &'a dyn ValueMatcher) -> Self {
        let missing = array.nulls().filter(|n| n.null_count() > 0).map(|_| matcher.matches(""));
        let MatchHints { exact, starts, .. } = matcher.hints();
        if let Some([only]) = exact.as_deref() {
            let is_inline = only.len() <= VIEW_INLINE;
            let mask = if is_inline { u128::MAX } else { u128::from(u64::MAX) };
            let view = (mask, make_view(only.as_bytes(), 0, 0) & mask);
            return Self { array, matcher, missing, view, decided: is_inline && matcher.matches(only) };
        }
        let (mut mask, mut begin) = (0, 0);
        // A text may be empty instead of missing, and then starts with nothing.
        let starts = starts.filter(|_| !matcher.matches("")).unwrap_or_default();
        for (i, byte) in (0..).zip(starts.bytes().take(VIEW_PREFIX)) {
            mask |= u128::from(u8::MAX) << (VIEW_PREFIX_AT + 8 * i);
            begin |= u128::from(byte) << (VIEW_PREFIX_AT + 8 * i);
        }
        Self { array, matcher, missing, view: (mask, begin), decided: false }
    }

    /// Tells whether the views alone decide, so that each value costs next to nothing.
    pub fn looks_at_views_alone(&self) -> bool {
        self.decided
    }

    /// Tells whether the value at an index matches.
    #[inline]
    pub fn matches(&self, at: usize) -> bool {
        match self.missing {
            Some(missing) if self.array.is_null(at) => missing,
            _ => {
                let (mask, view) = self.view;
                self.array.views()[at] & mask == view && (self.decided || self.matcher.matches(self.array.value(at)))
            }
        }
    }
}

/// Matches dictionary-encoded texts, testing each entry once.
pub fn match_coded(
    keys: &UInt32Array,
    texts: &StringArray,
    matcher: &dyn ValueMatcher,
    rows: &impl ChosenRows,
) -> BooleanBuffer {
    let missing = matcher.matches("");
    let nulls = keys.nulls().filter(|n| n.null_count() > 0);
    let is_missing = |at: usize| nulls.is_some_and(|n| n.is_null(at));
    let asked = |code: usize| if texts.is_null(code) { missing } else { matcher.matches(texts.value(code)) };
    if texts.len() / SHARED_BY > keys.len() {
        return rows.select(|at| if is_missing(at) { missing } else { asked(keys.value(at) as usize) });
    }
    // 0: not tested yet.
    let mut known = vec![0u8; texts.len()];
    rows.select(|at| {
        if is_missing(at) {
            return missing;
        }
        let code = keys.value(at) as usize;
        if known[code] == 0 {
            known[code] = 1 + u8::from(asked(code));
        }
        known[code] == 2
    })
}

/// Values that are stored as something else than text.
pub trait TypedValues {
    /// A value for comparisons and lookups.
    type Key: Eq + Hash;

    /// Whether filters treat all their texts as numbers.
    const NUMBERS: bool = true;

    /// Tells whether the value at an index is missing.
    fn is_missing(&self, at: usize) -> bool;

    /// The value as a number, if the texts are numbers.
    fn number(&self, at: usize) -> f64;

    /// The value, if typically few distinct values occur in many rows: codes, ports, sizes.
    fn integer(&self, _at: usize) -> Option<i64> {
        None
    }

    /// Appends the text of a value.
    fn write(&self, at: usize, out: &mut String);

    /// Parses a text; `None` if no value of this type has it.
    fn read(&self, text: &str) -> Option<Self::Key>;

    /// The value at a place.
    fn key(&self, at: usize) -> Self::Key;

    /// Tells whether the value at an index equals this one.
    fn is(&self, at: usize, key: &Self::Key) -> bool;
}

/// Matches typed values: by number if that decides, by lookup if the matcher lists exact values, otherwise by text.
pub fn match_typed<V: TypedValues>(values: &V, matcher: &dyn ValueMatcher, rows: &impl ChosenRows) -> BooleanBuffer {
    let MatchHints { exact, number, number_decides, .. } = matcher.hints();
    let missing = matcher.matches("");
    let number = number.filter(|_| V::NUMBERS);
    if let Some(range) = number.filter(|_| number_decides) {
        return rows.select(|at| {
            // Compared even if missing, to avoid a branch.
            let value = values.number(at);
            let within = range.min <= value && value <= range.max;
            if values.is_missing(at) { missing } else { within }
        });
    }
    if let Some(texts) = exact {
        let wanted: Vec<V::Key> =
            texts.iter().filter(|text| matcher.matches(text)).filter_map(|text| values.read(text)).collect();
        if wanted.len() >= MANY_KEYS {
            let wanted: HashSet<V::Key> = wanted.into_iter().collect();
            return rows.select(|at| if values.is_missing(at) { missing } else { wanted.contains(&values.key(at)) });
        }
        return rows.select(
            |at| {
                if values.is_missing(at) { missing } else { wanted.iter().any(|key| values.is(at, key)) }
            },
        );
    }
    let mut buffer = String::new();
    let mut known: HashMap<i64, bool> = HashMap::new();
    let mut asked = |at: usize| {
        buffer.clear();
        values.write(at, &mut buffer);
        matcher.matches(&buffer)
    };
    rows.select(|at| {
        if values.is_missing(at) {
            return missing;
        }
        if let Some(range) = number {
            let value = values.number(at);
            if value < range.min || range.max < value {
                return false;
            }
        }
        match values.integer(at) {
            Some(value) if known.len() < INTEGERS_KNOWN => *known.entry(value).or_insert_with(|| asked(at)),
            _ => asked(at),
        }
    })
}

impl TypedValues for Int64Array {
    type Key = i64;

    #[inline]
    fn is_missing(&self, at: usize) -> bool {
        self.is_null(at)
    }

    #[inline]
    fn number(&self, at: usize) -> f64 {
        self.value(at) as f64
    }

    #[inline]
    fn integer(&self, at: usize) -> Option<i64> {
        Some(self.value(at))
    }

    fn write(&self, at: usize, out: &mut String) {
        write_int(self.value(at), out);
    }

    fn read(&self, text: &str) -> Option<i64> {
        read_int(text)
    }

    #[inline]
    fn key(&self, at: usize) -> i64 {
        self.value(at)
    }

    #[inline]
    fn is(&self, at: usize, key: &i64) -> bool {
        self.value(at) == *key
    }
}

impl TypedValues for Float64Array {
    /// Bit patterns, because values with different texts differ in them.
    type Key = u64;

    #[inline]
    fn is_missing(&self, at: usize) -> bool {
        self.is_null(at)
    }

    #[inline]
    fn number(&self, at: usize) -> f64 {
        self.value(at)
    }

    fn write(&self, at: usize, out: &mut String) {
        write_float(self.value(at), out);
    }

    fn read(&self, text: &str) -> Option<u64> {
        read_float(text, &mut String::new()).map(f64::to_bits)
    }

    #[inline]
    fn key(&self, at: usize) -> u64 {
        self.value(at).to_bits()
    }

    #[inline]
    fn is(&self, at: usize, key: &u64) -> bool {
        self.value(at).to_bits() == *key
    }
}

impl TypedValues for FixedSizeBinaryArray {
    type Key = Vec<u8>;

    const NUMBERS: bool = false;

    #[inline]
    fn is_missing(&self, at: usize) -> bool {
        self.is_null(at)
    }

    #[inline]
    fn number(&self, _at: usize) -> f64 {
        f64::NAN
    }

    fn write(&self, at: usize, out: &mut String) {
        write_hex(self.value(at), out);
    }

    fn read(&self, text: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        read_hex(text, &mut bytes).then_some(bytes)
    }

    #[inline]
    fn key(&self, at: usize) -> Vec<u8> {
        self.value(at).to_vec()
    }

    #[inline]
    fn is(&self, at: usize, key: &Vec<u8>) -> bool {
        self.value(at) == key.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::NumberRange;
    use super::*;

    /// Takes some texts, or numbers of a range.
    #[derive(Debug)]
    struct Takes {
        texts: Vec<&'static str>,
        range: Option<(f64, f64)>,
        hints: MatchHints,
    }

    impl ValueMatcher for Takes {
        fn matches(&self, value: &str) -> bool {
            let within = |(min, max)| value.parse::<f64>().is_ok_and(|n| min <= n && n <= max);
            self.texts.contains(&value) || self.range.is_some_and(within)
        }

        fn hints(&self) -> MatchHints {
            self.hints.clone()
        }

        fn describe(&self) -> String {
            format!("{self:?}")
        }
    }

    /// No view holds it.
    const LONG: &str = "error of a device";

    /// The same matcher with and without each of its hints.
    fn matchers() -> Vec<Takes> {
        let exact = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
        let of = |texts: Vec<&'static str>, range, hints| Takes { texts, range, hints };
        let number = Some(NumberRange { min: 0.0, max: 7.0 });
        let few = vec!["7", "0.5", "07", "00ff", "error"];
        let mut many = few.clone();
        many.extend(["1", "2", "3", "4", "5", "6", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17"]);
        vec![
            of(few.clone(), None, MatchHints::default()),
            of(few.clone(), None, MatchHints { exact: exact(&few), ..MatchHints::default() }),
            of(vec!["error"], None, MatchHints { exact: exact(&["error"]), ..MatchHints::default() }),
            of(vec![LONG], None, MatchHints { exact: exact(&[LONG]), ..MatchHints::default() }),
            // Hints say what may match.
            of(vec![], None, MatchHints { exact: exact(&["error"]), ..MatchHints::default() }),
            of(many.clone(), None, MatchHints { exact: exact(&many), ..MatchHints::default() }),
            of(vec![""], None, MatchHints { starts: Some("e".to_owned()), ..MatchHints::default() }),
            of(vec!["error"], None, MatchHints { starts: Some("error".to_owned()), ..MatchHints::default() }),
            of(vec![], Some((0.0, 7.0)), MatchHints { number, number_decides: true, ..MatchHints::default() }),
            of(vec![], Some((0.0, 7.0)), MatchHints { number, ..MatchHints::default() }),
        ]
    }

    /// Checks that each matcher says of each value what it says of the text.
    fn check(texts: &[Option<&str>], ask: impl Fn(&dyn ValueMatcher, &AllRows) -> BooleanBuffer) {
        for matcher in matchers() {
            for matcher in [&matcher as &dyn ValueMatcher, &IfPresent(&matcher)] {
                let found = ask(matcher, &AllRows(texts.len()));
                let expected: Vec<bool> = texts.iter().map(|text| matcher.matches(text.unwrap_or(""))).collect();
                assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{matcher:?} {texts:?}");
            }
        }
    }

    #[test]
    fn texts() {
        let texts = [
            Some("error"),
            None,
            Some(""),
            Some("7"),
            Some("error 7"),
            Some("0.5"),
            Some("err"),
            Some("7"),
            Some(LONG),
            Some("error of a second"),
        ];
        let views = StringViewArray::from(texts.to_vec());
        check(&texts, |matcher, rows| {
            let texts = TextMatch::new(&views, matcher);
            rows.select(|at| texts.matches(at))
        });
        let keys = [Some(0), None, Some(4), Some(1), Some(2), Some(3), Some(5), Some(1), Some(6), Some(7)];
        let keys = UInt32Array::from(keys.to_vec());
        let entries = vec!["error", "7", "error 7", "0.5", "", "err", LONG, "error of a second"];
        check(&texts, |matcher, rows| match_coded(&keys, &StringArray::from(entries.clone()), matcher, rows));
        let shared: Vec<&str> = entries.iter().copied().chain(std::iter::repeat_n("x", 1000)).collect();
        check(&texts, |matcher, rows| match_coded(&keys, &StringArray::from(shared.clone()), matcher, rows));
    }

    #[test]
    fn typed_values() {
        let ints = Int64Array::from(vec![Some(7), None, Some(-1), Some(0), Some(8), Some(7)]);
        let texts = [Some("7"), None, Some("-1"), Some("0"), Some("8"), Some("7")];
        check(&texts, |matcher, rows| match_typed(&ints, matcher, rows));
        let floats = Float64Array::from(vec![Some(0.5), None, Some(-0.0), Some(7.0), Some(7.25)]);
        let texts = [Some("0.5"), None, Some("-0"), Some("7"), Some("7.25")];
        check(&texts, |matcher, rows| match_typed(&floats, matcher, rows));
        let bytes = [Some([0u8, 255]), None, Some([7, 7])].map(|b| b.map(|b| b.to_vec()));
        let ids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes.into_iter(), 2).expect("of one length");
        check(&[Some("00ff"), None, Some("0707")], |matcher, rows| match_typed(&ids, matcher, rows));
    }
}
