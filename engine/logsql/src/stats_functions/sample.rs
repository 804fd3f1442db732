//! The values of a group, stored by kind: a number takes eight bytes, strings share one buffer.

use datafusion::common::Result;
use quiver_types::logs::{write_float, write_int};

use super::state_bytes::{Reader, put_text, put_u64};
use crate::kernels::columns::Value;
use crate::kernels::values::{Rank, compare_ranked, rank, rank_of_float, rank_of_int};

/// `SplitMix64`: the same rows give the same numbers.
#[derive(Debug, Default)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// The next number, with equally random bits.
    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Single bits of random numbers.
struct Coins<'a> {
    random: &'a mut Random,
    bits: u64,
    left: u32,
}

impl Coins<'_> {
    /// 0 or 1.
    #[inline]
    fn toss(&mut self) -> usize {
        if self.left == 0 {
            (self.bits, self.left) = (self.random.draw(), u64::BITS);
        }
        let coin = self.bits & 1;
        self.bits >>= 1;
        self.left -= 1;
        coin as usize
    }

    /// Of each pair of `count` places one, in order; the last of an odd number only as often.
    fn of_pairs(&mut self, count: usize, mut keep: impl FnMut(usize)) {
        for first in (0..count & !1).step_by(2) {
            keep(first + self.toss());
        }
        if count % 2 == 1 && self.toss() == 1 {
            keep(count - 1);
        }
    }

    /// Keeps one value of each pair.
    fn halve<T: Copy>(&mut self, values: &mut Vec<T>) {
        let (count, mut kept) = (values.len(), 0);
        self.of_pairs(count, |place| {
            values[kept] = values[place];
            kept += 1;
        });
        values.truncate(kept);
    }
}

/// Values in no order.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// How many are missing, or empty.
    empty: usize,
    ints: Vec<i64>,
    floats: Vec<f64>,
    /// All others behind each other, and where each ends.
    texts: String,
    ends: Vec<usize>,
}

impl Sample {
    /// Number of values.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.empty + self.ints.len() + self.floats.len() + self.ends.len()
    }

    /// Bytes that the values take.
    pub(super) fn bytes(&self) -> usize {
        (self.ints.len() + self.floats.len() + self.ends.len()) * size_of::<u64>() + self.texts.len()
    }

    /// Adds a value.
    #[inline]
    pub(super) fn push(&mut self, value: Value<'_>) {
        match value {
            Value::Empty => self.empty += 1,
            Value::Int(value) => self.ints.push(value),
            Value::Float(value) => self.floats.push(value),
            Value::Text(text) => self.push_text(text),
        }
    }

    fn push_text(&mut self, text: &str) {
        self.texts.push_str(text);
        self.ends.push(self.texts.len());
    }

    fn each_text(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.texts[std::mem::replace(&mut start, *end)..*end])
    }

    /// Adds the values of another.
    pub(super) fn append(&mut self, other: &Self) {
        self.empty += other.empty;
        self.ints.extend_from_slice(&other.ints);
        self.floats.extend_from_slice(&other.floats);
        let before = self.texts.len();
        self.texts.push_str(&other.texts);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    /// Keeps half of the values, each with the same chance.
    pub(super) fn halve(&mut self, random: &mut Random) {
        let mut coins = Coins { random, bits: 0, left: 0 };
        self.empty = self.empty / 2 + if self.empty % 2 == 1 { coins.toss() } else { 0 };
        coins.halve(&mut self.ints);
        coins.halve(&mut self.floats);
        let all = std::mem::take(self);
        (self.empty, self.ints, self.floats) = (all.empty, all.ints, all.floats);
        coins.of_pairs(all.ends.len(), |place| {
            let start = place.checked_sub(1).map_or(0, |before| all.ends[before]);
            self.push_text(&all.texts[start..all.ends[place]]);
        });
    }

    /// Writes all values.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let numbers = 4 + self.ints.len() + self.floats.len();
        out.reserve(numbers * size_of::<u64>() + self.ends.len() * size_of::<u32>() + self.texts.len());
        put_u64(out, self.empty as u64);
        put_u64(out, self.ints.len() as u64);
        self.ints.iter().for_each(|value| put_u64(out, *value as u64));
        put_u64(out, self.floats.len() as u64);
        self.floats.iter().for_each(|value| put_u64(out, value.to_bits()));
        put_u64(out, self.ends.len() as u64);
        self.each_text().for_each(|text| put_text(out, text));
    }

    /// Reads what [`Self::encode`] wrote.
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self> {
        let mut sample = Self { empty: usize::try_from(from.u64()?).unwrap_or(usize::MAX), ..Self::default() };
        sample.ints.extend(from.u64s()?.map(|value| value as i64));
        sample.floats.extend(from.u64s()?.map(f64::from_bits));
        for _ in 0..from.u64()? {
            sample.push_text(from.text()?);
        }
        Ok(sample)
    }

    /// Writes the value that is at this place in the order of all of them; there are more.
    pub(super) fn write_nth(mut self, index: usize, out: &mut String) {
        // Nothing is less than what is missing.
        let Some(index) = index.checked_sub(self.empty) else { return };
        let others = (!self.ints.is_empty(), !self.floats.is_empty(), !self.ends.is_empty());
        match others {
            (true, false, false) => write_int(*self.ints.select_nth_unstable(index).1, out),
            (false, true, false) => {
                // Minus zero equals zero.
                let order = |a: &f64, b: &f64| (a + 0.0).total_cmp(&(b + 0.0));
                write_float(*self.floats.select_nth_unstable_by(index, order).1, out);
            }
            _ => {
                let mut ranked = self.ranked();
                let order = |a: &Ranked<'_>, b: &Ranked<'_>| compare_ranked((a.0, text(a.1)), (b.0, text(b.1)));
                write(ranked.select_nth_unstable_by(index, order).1.1, out);
            }
        }
    }

    /// All values that are not empty, as they are compared.
    fn ranked(&self) -> Vec<Ranked<'_>> {
        let ints = self.ints.iter().map(|value| (rank_of_int(*value), Value::Int(*value)));
        let floats = self.floats.iter().map(|value| (rank_of_float(*value), Value::Float(*value)));
        ints.chain(floats).chain(self.each_text().map(|text| (rank(text), Value::Text(text)))).collect()
    }
}

type Ranked<'a> = (Rank, Value<'a>);

/// The text that ranks among texts.
fn text(value: Value<'_>) -> &str {
    if let Value::Text(text) = value { text } else { "" }
}

fn write(value: Value<'_>, out: &mut String) {
    match value {
        Value::Empty => {}
        Value::Int(value) => write_int(value, out),
        Value::Float(value) => write_float(value, out),
        Value::Text(text) => out.push_str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[Value<'_>]) -> Sample {
        let mut sample = Sample::default();
        for value in values {
            sample.push(*value);
        }
        sample
    }

    fn again(sample: &Sample) -> Sample {
        let mut bytes = Vec::new();
        sample.encode(&mut bytes);
        let mut reader = Reader(&bytes);
        let read = Sample::read(&mut reader).expect("whole");
        assert!(reader.is_empty());
        assert!(Sample::read(&mut Reader(&bytes[..bytes.len() - 1])).is_err());
        read
    }

    fn in_order(sample: &Sample) -> Vec<String> {
        let nth = |index| {
            let mut out = String::new();
            again(sample).write_nth(index, &mut out);
            out
        };
        (0..sample.len()).map(nth).collect()
    }

    #[test]
    fn values_of_each_kind_come_back_in_order() {
        use Value::{Empty, Float, Int, Text};
        let all = [Text("b"), Int(i64::MAX), Float(-0.5), Empty, Text("é"), Int(7), Text("1KB"), Empty, Float(1e15)];
        assert_eq!(
            in_order(&of(&all)),
            ["", "", "-0.5", "7", "1KB", "1000000000000000", "9223372036854775807", "b", "é"]
        );
        assert_eq!(in_order(&of(&[Int(3), Empty, Int(-2)])), ["", "-2", "3"]);
        assert_eq!(in_order(&of(&[Float(0.5), Float(-1.5), Float(0.25)])), ["-1.5", "0.25", "0.5"]);
        assert_eq!(in_order(&of(&[Text("x10"), Text("x9")])), ["x9", "x10"]);
        let mut both = of(&all[..4]);
        both.append(&of(&all[4..]));
        assert_eq!(in_order(&both), in_order(&of(&all)));
        assert_eq!(of(&[Int(1), Float(0.5), Text("abc"), Empty]).bytes(), 3 * 8 + 3);
    }

    /// Over many turns each value is kept in half of them, that without a partner as well.
    #[test]
    fn each_value_is_kept_as_often() {
        let texts: Vec<String> = (0..5).map(|i| format!("t{i}")).collect();
        let mut random = Random::default();
        let mut kept = std::collections::BTreeMap::<String, usize>::new();
        for _ in 0..2000 {
            let mut sample = Sample { empty: 1, ..Sample::default() };
            for (i, text) in texts.iter().enumerate() {
                sample.push(Value::Int(i as i64));
                sample.push(Value::Float(i as f64 + 0.5));
                sample.push(Value::Text(text));
            }
            sample.halve(&mut random);
            assert!((6..=10).contains(&sample.len()), "{}", sample.len());
            let empty = std::mem::take(&mut sample.empty);
            *kept.entry("none".to_owned()).or_default() += empty;
            for value in in_order(&sample) {
                *kept.entry(value).or_default() += 1;
            }
        }
        assert_eq!(kept.len(), 16);
        assert!(kept.values().all(|times| (900..1100).contains(times)), "{kept:?}");
    }

    #[test]
    fn counts_beyond_what_is_there_are_errors() {
        for words in [vec![0, u64::MAX], vec![0, 0, 1 << 61], vec![0, 0, 0, u64::MAX], vec![0]] {
            let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
            let error = Sample::read(&mut Reader(&bytes)).expect_err("cut off").to_string();
            assert!(error.contains("a state of `stats` is cut off"), "{error}");
        }
    }
}
