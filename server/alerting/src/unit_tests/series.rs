//! Series lines: `name{label="value"} items…`, and histogram literals.

use std::collections::BTreeMap;

use quiver_types::histogram::CUSTOM_SCHEMA;
use quiver_types::{Histogram, LabelSet, ResetHint, Span, stale_nan};

/// A float or a histogram.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A float, also a staleness mark.
    Float(f64),
    /// A native histogram, `{{schema:0 sum:1 count:1 buckets:[1]}}` in a series line.
    Histogram(Box<Histogram>),
}

/// One slot of a series line: nothing, or a value; `hinted` when the literal names a counter reset hint.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// The value; none: `_`, no sample at this time.
    pub value: Option<Value>,
    /// Whether a hint was written.
    pub hinted: bool,
}

impl Slot {
    fn empty() -> Self {
        Self { value: None, hinted: false }
    }

    fn float(v: f64) -> Self {
        Self { value: Some(Value::Float(v)), hinted: false }
    }
}

/// How much of a series is wanted, and how much may be made of it: a few characters stand for any number of samples.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Slots from the first one; what comes behind them is read, not kept.
    pub slots: usize,
    /// Numbers that samples may hold together.
    pub numbers: usize,
}

impl Room {
    const UNBOUNDED: Self = Self { slots: usize::MAX, numbers: usize::MAX };

    /// Appends a slot a number of times.
    fn put(&mut self, slots: &mut Vec<Slot>, slot: &Slot, times: usize) -> Result<(), String> {
        let times = times.min(self.slots.saturating_sub(slots.len()));
        let numbers = match &slot.value {
            Some(Value::Histogram(h)) => 16 + h.positive.len() + h.negative.len() + h.custom_bounds.len(),
            _ => 1,
        };
        let left = times.checked_mul(numbers).and_then(|wanted| self.numbers.checked_sub(wanted));
        self.numbers = left.ok_or("the series have too many samples")?;
        slots.extend(std::iter::repeat_n(slot.clone(), times));
        Ok(())
    }
}

/// Words that begin something else than a series.
const NO_NAMES: [&str; 8] = ["nan", "inf", "on", "ignoring", "group_left", "group_right", "bool", "atan2"];

/// Cuts a name of letters, digits, `_` and `also` at the start of a text.
fn identifier(text: &str, also: char) -> Option<(&str, &str)> {
    let len = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == also)).unwrap_or(text.len());
    let (name, rest) = text.split_at(len);
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, rest))
}

/// Reads the labels at the start of a line; gives the rest, and whether `@st` followed.
///
/// # Errors
/// A name, a quoted value or a bracket of another form.
pub fn labels(line: &str) -> Result<(LabelSet, bool, &str), String> {
    let mut pairs: BTreeMap<String, String> = BTreeMap::new();
    let (metric, mut rest) = identifier(line, ':').unwrap_or(("", line));
    if NO_NAMES.iter().any(|word| metric.eq_ignore_ascii_case(word)) {
        return Err(format!("`{metric}` is no name of a series: {line}"));
    }
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner.trim_start();
        while !rest.starts_with('}') {
            if rest.is_empty() {
                return Err(format!("labels do not end: {line}"));
            }
            let is_quoted = rest.starts_with(['"', '\'', '`']);
            let (name, after) = if is_quoted {
                quoted(rest)?
            } else {
                let (name, after) = identifier(rest, '_').ok_or_else(|| format!("no name of a label: {rest}"))?;
                (name.to_owned(), after)
            };
            let after = after.trim_start();
            let (name, value, after) = match after.strip_prefix('=') {
                Some(after) => {
                    let (value, after) = quoted(after.trim_start())?;
                    (name, value, after.trim_start())
                }
                // Alone in quotes, it is the name of the series.
                None if is_quoted => ("__name__".to_owned(), name, after),
                None => return Err(format!("a label without a value: {line}")),
            };
            if pairs.contains_key(&name) {
                return Err(format!("label `{name}` is given more than once: {line}"));
            }
            pairs.insert(name, value);
            rest = match after.strip_prefix(',') {
                Some(after) => after.trim_start(),
                None if after.starts_with('}') => after,
                None => return Err(format!("labels do not end: {line}")),
            };
        }
        rest = &rest[1..];
    }
    if !metric.is_empty() {
        pairs.insert("__name__".to_owned(), metric.to_owned());
    }
    let (starts, rest) = rest.strip_prefix("@st").map_or((false, rest), |r| (true, r));
    let set = LabelSet::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    Ok((set, starts, rest.trim_start()))
}

/// Reads a quoted text with Go escapes; gives the rest.
///
/// # Errors
/// It does not end, or holds an escape that Go does not know.
pub fn quoted(text: &str) -> Result<(String, &str), String> {
    let quote = text.chars().next().filter(|c| "\"'`".contains(*c)).ok_or_else(|| format!("no quoted text: {text}"))?;
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        if c == quote {
            return Ok((out, &text[i + 1..]));
        }
        if c != '\\' || quote == '`' {
            out.push(c);
            continue;
        }
        let (_, escaped) = chars.next().ok_or("an escape that ends")?;
        let mut hex = |digits: usize| -> Result<char, String> {
            let code: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
            u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).ok_or_else(|| format!("bad escape: {code}"))
        };
        out.push(match escaped {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'x' => hex(2)?,
            'u' => hex(4)?,
            'U' => hex(8)?,
            other => other,
        });
    }
    Err(format!("a quoted text that does not end: {text}"))
}

/// Reads items into slots.
///
/// # Errors
/// An item of another form, or more of them than [`Room`] has.
pub fn items(text: &str) -> Result<Vec<Slot>, String> {
    let mut room = Room::UNBOUNDED;
    items_within(text, &mut room)
}

/// Reads items into slots, as far as there is room.
///
/// # Errors
/// An item of another form, or more of them than there is room for.
pub fn items_within(mut text: &str, room: &mut Room) -> Result<Vec<Slot>, String> {
    let mut slots = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return Ok(slots);
        }
        if text.starts_with("{{") {
            text = histogram_item(text, &mut slots, room)?;
            continue;
        }
        let len = text.find(char::is_whitespace).unwrap_or(text.len());
        float_item(&text[..len], &mut slots, room)?;
        text = &text[len..];
    }
}

fn repeat_suffix(text: &str) -> Result<(usize, &str), String> {
    let Some(rest) = text.strip_prefix('x') else { return Ok((0, text)) };
    let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let times = rest[..len].parse().map_err(|_| format!("bad repetition: {text}"))?;
    Ok((times, &rest[len..]))
}

/// Reads how many slots are left out behind a `_`: `_x0` is none.
fn gap(text: &str) -> Result<(usize, &str), String> {
    if text.starts_with('x') { repeat_suffix(text) } else { Ok((1, text)) }
}

fn float_item(item: &str, slots: &mut Vec<Slot>, room: &mut Room) -> Result<(), String> {
    if let Some(rest) = item.strip_prefix('_') {
        let (times, rest) = gap(rest)?;
        if !rest.is_empty() {
            return Err(format!("bad item: {item}"));
        }
        return room.put(slots, &Slot::empty(), times);
    }
    let (start, rest) = number(item).ok_or_else(|| format!("bad item: {item}"))?;
    if rest.is_empty() {
        return room.put(slots, &Slot::float(start), 1);
    }
    if rest.starts_with('x') {
        let (times, rest) = repeat_suffix(rest)?;
        if !rest.is_empty() {
            return Err(format!("bad item: {item}"));
        }
        return room.put(slots, &Slot::float(start), times.saturating_add(1));
    }
    let (sign, rest) = match (rest.strip_prefix('+'), rest.strip_prefix('-')) {
        (Some(rest), _) => (1.0, rest),
        (_, Some(rest)) => (-1.0, rest),
        _ => return Err(format!("bad item: {item}")),
    };
    // One sign, a number, and how often: a step without `x` is none.
    let delta = if rest.starts_with(['+', '-']) { None } else { number(rest) };
    let (delta, rest) = delta.filter(|(_, rest)| rest.starts_with('x')).ok_or_else(|| format!("bad item: {item}"))?;
    let (times, rest) = repeat_suffix(rest)?;
    if !rest.is_empty() {
        return Err(format!("bad item: {item}"));
    }
    let mut value = start;
    room.put(slots, &Slot::float(value), 1)?;
    for _ in 0..times {
        if slots.len() >= room.slots {
            break;
        }
        value += sign * delta;
        room.put(slots, &Slot::float(value), 1)?;
    }
    Ok(())
}

/// Reads a number (or `stale`) at the start of a text. With a unit it is none: durations are expressions only.
fn number(text: &str) -> Option<(f64, &str)> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = |v: f64| if negative { -v } else { v };
    for (word, value) in [("stale", stale_nan()), ("nan", f64::NAN), ("inf", f64::INFINITY)] {
        let Some((start, rest)) = body.split_at_checked(word.len()) else { continue };
        // Numbers are in any case, `stale` is a word of its own.
        let is_it = if word == "stale" { start == word } else { start.eq_ignore_ascii_case(word) };
        // What goes on is another word: `Infx2`.
        if is_it && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            return Some((if word == "inf" { signed(value) } else { value }, rest));
        }
    }
    let bytes = body.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    if end == 0 {
        return None;
    }
    Some((signed(body[..end].parse().ok()?), &body[end..]))
}

/// Reads a duration, possibly signed.
///
/// # Errors
/// No duration.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    let fault = || format!("bad duration: {text}");
    let (negative, mut rest) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    rest = text.strip_prefix('+').unwrap_or(rest);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(fault());
    }
    let mut total = 0;
    while !rest.is_empty() {
        let len = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
        let amount: i64 = rest[..len].parse().map_err(|_| fault())?;
        rest = &rest[len..];
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let units = units.into_iter().chain([("w", 604_800_000), ("y", 31_536_000_000)]);
        let (unit, ms) = units.into_iter().find(|(u, _)| rest.starts_with(u)).ok_or_else(fault)?;
        total += amount * ms;
        rest = &rest[unit.len()..];
    }
    Ok(if negative { -total } else { total })
}

/// Reads the items of a `@st` line: signed durations relative to their sample.
///
/// # Errors
/// An item that is no duration.
pub fn start_items(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut slots = Vec::new();
    for item in text.split_whitespace() {
        if let Some(rest) = item.strip_prefix('_') {
            let (times, _) = gap(rest)?;
            slots.extend(std::iter::repeat_n(None, times));
            continue;
        }
        let (body, times) = item.rsplit_once('x').map_or(Ok((item, 0)), |(b, n)| {
            n.parse::<usize>().map(|n| (b, n)).map_err(|_| format!("bad item: {item}"))
        })?;
        let split = body.char_indices().skip(1).find(|(_, c)| matches!(c, '+' | '-')).map(|(i, _)| i);
        let (start, delta) = split.map_or((body, "0"), |i| body.split_at(i));
        let delta = duration_ms(delta.strip_prefix('+').unwrap_or(delta).trim_start_matches("--"))?;
        let mut value = duration_ms(start)?;
        slots.push(Some(value));
        for _ in 0..times {
            value += delta;
            slots.push(Some(value));
        }
    }
    Ok(slots)
}

fn histogram_item<'a>(text: &'a str, slots: &mut Vec<Slot>, room: &mut Room) -> Result<&'a str, String> {
    let (first, hinted, rest) = histogram(text)?;
    let slot = |h: &Histogram| Slot { value: Some(Value::Histogram(Box::new(h.clone()))), hinted };
    if rest.starts_with('x') {
        let (times, rest) = repeat_suffix(rest)?;
        room.put(slots, &slot(&first), times.saturating_add(1))?;
        return Ok(rest);
    }
    let sign = match rest.as_bytes().first() {
        Some(b'+') => 1.0,
        Some(b'-') => -1.0,
        _ => {
            room.put(slots, &slot(&first), 1)?;
            return Ok(rest);
        }
    };
    let (delta, _, rest) = histogram(&rest[1..])?;
    let (times, rest) = repeat_suffix(rest)?;
    let mut running = first;
    room.put(slots, &slot(&running), 1)?;
    for _ in 0..times {
        if slots.len() >= room.slots {
            break;
        }
        running = add(&running, &delta, sign)?;
        room.put(slots, &slot(&running), 1)?;
    }
    Ok(rest)
}

/// Reads one `{{…}}`; gives whether a hint was written, and the rest.
fn histogram(text: &str) -> Result<(Histogram, bool, &str), String> {
    let fault = || format!("bad histogram: {text}");
    let body = text.strip_prefix("{{").ok_or_else(fault)?;
    let end = body.find("}}").ok_or_else(fault)?;
    let rest = &body[end + 2..];
    let mut fields = body[..end].trim_end();
    let mut h = Histogram { float: true, ..Histogram::default() };
    let (mut offset, mut n_offset) = (0, 0);
    let (mut buckets, mut n_buckets) = (Vec::new(), Vec::new());
    let mut seen: Vec<String> = Vec::new();
    while !fields.is_empty() {
        let (name, after) = fields.split_once(':').ok_or_else(fault)?;
        let name = name.to_ascii_lowercase();
        if seen.contains(&name) {
            return Err(format!("duplicate key `{name}` in histogram: {text}"));
        }
        // A list ends at its bracket, anything else at a space; a space follows either.
        let len = if after.starts_with('[') { after.find(']').map(|i| i + 1) } else { after.find(char::is_whitespace) };
        let (value, after) = after.split_at(len.unwrap_or(after.len()));
        if !(after.is_empty() || after.starts_with(char::is_whitespace)) {
            return Err(fault());
        }
        let number = || literal_number(value).ok_or_else(fault);
        let list = || literal_list(value).ok_or_else(fault);
        let whole = || literal_whole(value).ok_or_else(fault);
        match name.as_str() {
            "schema" => h.schema = whole()?,
            "count" => h.count = number()?,
            "sum" => h.sum = number()?,
            "z_bucket" => h.zero_count = number()?,
            "z_bucket_w" => h.zero_threshold = number()?,
            "offset" => offset = whole()?,
            "n_offset" => n_offset = whole()?,
            "buckets" => buckets = list()?,
            "n_buckets" => n_buckets = list()?,
            "custom_values" => h.custom_bounds = list()?,
            "counter_reset_hint" => {
                h.reset_hint = match value.to_ascii_lowercase().as_str() {
                    "unknown" => ResetHint::Unknown,
                    "reset" => ResetHint::Reset,
                    "not_reset" => ResetHint::NotReset,
                    "gauge" => ResetHint::Gauge,
                    _ => return Err(fault()),
                };
            }
            _ => return Err(fault()),
        }
        seen.push(name);
        fields = after.trim_start();
    }
    let hinted = seen.iter().any(|name| name == "counter_reset_hint");
    let spans = |offset: i32, counts: &[f64]| {
        if counts.is_empty() { vec![] } else { vec![Span { offset, length: counts.len() as u32 }] }
    };
    h.positive_spans = spans(offset, &buckets);
    h.negative_spans = spans(n_offset, &n_buckets);
    (h.positive, h.negative) = (buckets, n_buckets);
    Ok((h, hinted, rest))
}

/// Reads a number of a histogram: only a minus stands before it, and it begins with a digit or is a word.
fn literal_number(text: &str) -> Option<f64> {
    let body = text.strip_prefix('-').unwrap_or(text);
    if body.starts_with(['+', '.']) || body == "stale" {
        return None;
    }
    number(text).and_then(|(v, rest)| rest.is_empty().then_some(v))
}

/// Reads `[1 2 3]`: at least one number, and none but a last space is free.
fn literal_list(text: &str) -> Option<Vec<f64>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    if inner.starts_with(char::is_whitespace) || inner.is_empty() {
        return None;
    }
    inner.split_whitespace().map(literal_number).collect()
}

/// Reads a whole number: digits, with a minus at most.
fn literal_whole(text: &str) -> Option<i32> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Gives the buckets of one side by index.
pub fn buckets(spans: &[Span], counts: &[f64]) -> Vec<(i32, f64)> {
    let mut out = Vec::with_capacity(counts.len());
    let mut next = 0;
    let mut counts = counts.iter();
    for span in spans {
        next = span.offset.wrapping_add(next);
        for _ in 0..span.length {
            if let Some(count) = counts.next() {
                out.push((next, *count));
            }
            next = next.wrapping_add(1);
        }
    }
    out
}

/// Reduces an exponential bucket index to a coarser schema.
fn coarser(index: i32, from: i32, to: i32) -> i32 {
    (index.wrapping_sub(1) >> (from - to)).wrapping_add(1)
}

/// Upper bound of an exponential bucket; that of the one before it is its lower bound.
fn bound(index: f64, schema: i32) -> f64 {
    (index * (-f64::from(schema)).exp2()).exp2()
}

/// Says what the zero bucket holds, and how wide it is, when it is widened to a threshold or, where that lies within a bucket
/// with counts, to the bucket's end.
fn widened(h: &Histogram, threshold: f64) -> (f64, f64) {
    let mut wide = threshold;
    loop {
        let (mut count, before) = (h.zero_count, wide);
        for (spans, counts) in [(&h.positive_spans, &h.positive), (&h.negative_spans, &h.negative)] {
            for (index, own) in buckets(spans, counts) {
                let (lower, upper) = (bound(f64::from(index) - 1.0, h.schema), bound(f64::from(index), h.schema));
                if lower >= wide {
                    break;
                }
                count += own;
                if upper > wide && own != 0.0 {
                    wide = upper;
                }
            }
        }
        if wide <= before {
            return (count, wide);
        }
    }
}

/// Gives the counts of the zero buckets of two histograms at the width that both can have, and that width.
fn zero_buckets(a: &Histogram, b: &Histogram) -> (f64, f64, f64) {
    let (mut of_a, mut of_b) = ((a.zero_count, a.zero_threshold), (b.zero_count, b.zero_threshold));
    loop {
        if of_a.1 > of_b.1 {
            of_b = widened(b, of_a.1);
        } else if of_b.1 > of_a.1 {
            of_a = widened(a, of_b.1);
        } else {
            return (of_a.0, of_b.0, of_a.1);
        }
    }
}

fn add(a: &Histogram, b: &Histogram, sign: f64) -> Result<Histogram, String> {
    if (a.schema == CUSTOM_SCHEMA) != (b.schema == CUSTOM_SCHEMA) || (a.schema != CUSTOM_SCHEMA && b.schema < a.schema)
    {
        return Err("the second histogram of a series must not be coarser".into());
    }
    if let Some(h) = [a, b].into_iter().find(|h| h.schema != CUSTOM_SCHEMA && !(-4..=8).contains(&h.schema)) {
        return Err(format!("histogram has an invalid schema, got schema {}", h.schema));
    }
    let (zeros_a, zeros_b, wide) = zero_buckets(a, b);
    // What a zero bucket took in when it was widened is no bucket any more.
    let is_left = |h: &Histogram, index: i32| h.zero_threshold >= wide || bound(f64::from(index), h.schema) > wide;
    let side = |spans_a: &[Span], a_counts: &[f64], spans_b: &[Span], b_counts: &[f64]| {
        let mut sums: BTreeMap<i32, f64> =
            buckets(spans_a, a_counts).into_iter().filter(|(index, _)| is_left(a, *index)).collect();
        for (index, count) in buckets(spans_b, b_counts).into_iter().filter(|(index, _)| is_left(b, *index)) {
            let index = if a.schema == CUSTOM_SCHEMA { index } else { coarser(index, b.schema, a.schema) };
            *sums.entry(index).or_default() += sign * count;
        }
        let (mut spans, mut counts) = (Vec::<Span>::new(), Vec::new());
        let mut next = 0;
        for (index, count) in sums {
            match spans.last_mut() {
                Some(span) if index == next => span.length += 1,
                _ => spans.push(Span { offset: index.wrapping_sub(next), length: 1 }),
            }
            next = index.wrapping_add(1);
            counts.push(count);
        }
        (spans, counts)
    };
    let (positive_spans, positive) = side(&a.positive_spans, &a.positive, &b.positive_spans, &b.positive);
    let (negative_spans, negative) = side(&a.negative_spans, &a.negative, &b.negative_spans, &b.negative);
    Ok(Histogram {
        zero_threshold: wide,
        zero_count: zeros_a + sign * zeros_b,
        count: a.count + sign * b.count,
        sum: a.sum + sign * b.sum,
        positive_spans,
        positive,
        negative_spans,
        negative,
        ..a.clone()
    })
}

#[cfg(test)]
mod tests;
