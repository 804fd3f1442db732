//! Series lines: `name{label="value"} items…`, and histogram literals.

use quiver_types::histogram::CUSTOM_SCHEMA;
use quiver_types::{Histogram, LabelSet, ResetHint, Span, stale_nan};

/// A float or a histogram.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Float.
    Float(f64),
    /// Native histogram.
    Histogram(Box<Histogram>),
}

/// One slot of a series line: nothing, or a value; `hinted` when the literal names a counter reset hint.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// The value.
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

/// Reads the labels at the start of a line; gives the rest, and whether `@st` followed.
pub fn labels(line: &str) -> Result<(LabelSet, bool, &str), String> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut rest = line;
    let name_len = rest.find(|c: char| c == '{' || c == '@' || c.is_whitespace()).unwrap_or(rest.len());
    if name_len > 0 {
        pairs.push(("__name__".into(), rest[..name_len].into()));
        rest = &rest[name_len..];
    }
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner.trim_start();
        while !rest.starts_with('}') {
            let (name, after) = if rest.starts_with(['"', '\'']) {
                quoted(rest)?
            } else {
                let len = rest.find(|c: char| c == '=' || c == ',' || c == '}' || c.is_whitespace());
                let len = len.ok_or_else(|| format!("labels do not end: {line}"))?;
                (rest[..len].to_owned(), &rest[len..])
            };
            rest = after.trim_start();
            if let Some(after) = rest.strip_prefix('=') {
                let (value, after) = quoted(after.trim_start())?;
                pairs.push((name, value));
                rest = after.trim_start();
            } else {
                pairs.push(("__name__".into(), name));
            }
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
            if rest.is_empty() {
                return Err(format!("labels do not end: {line}"));
            }
        }
        rest = &rest[1..];
    }
    let (starts, rest) = rest.strip_prefix("@st").map_or((false, rest), |r| (true, r));
    let set = LabelSet::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    Ok((set, starts, rest.trim_start()))
}

/// Reads a quoted text with Go escapes; gives the rest.
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
pub fn items(mut text: &str) -> Result<Vec<Slot>, String> {
    let mut slots = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return Ok(slots);
        }
        if text.starts_with("{{") {
            text = histogram_item(text, &mut slots)?;
            continue;
        }
        let len = text.find(char::is_whitespace).unwrap_or(text.len());
        float_item(&text[..len], &mut slots)?;
        text = &text[len..];
    }
}

fn repeat_suffix(text: &str) -> Result<(usize, &str), String> {
    let Some(rest) = text.strip_prefix('x') else { return Ok((0, text)) };
    let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let times = rest[..len].parse().map_err(|_| format!("bad repetition: {text}"))?;
    Ok((times, &rest[len..]))
}

fn float_item(item: &str, slots: &mut Vec<Slot>) -> Result<(), String> {
    if let Some(rest) = item.strip_prefix('_') {
        let (times, rest) = repeat_suffix(rest)?;
        if !rest.is_empty() {
            return Err(format!("bad item: {item}"));
        }
        slots.extend(std::iter::repeat_n(Slot::empty(), times.max(1)));
        return Ok(());
    }
    let (start, rest) = number(item).ok_or_else(|| format!("bad item: {item}"))?;
    if rest.is_empty() {
        slots.push(Slot::float(start));
        return Ok(());
    }
    if rest.starts_with('x') {
        let (times, rest) = repeat_suffix(rest)?;
        if !rest.is_empty() {
            return Err(format!("bad item: {item}"));
        }
        slots.extend(std::iter::repeat_n(Slot::float(start), times + 1));
        return Ok(());
    }
    let (sign, rest) = match rest.split_at(1) {
        ("+", rest) => (1.0, rest),
        ("-", rest) => (-1.0, rest),
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
    slots.push(Slot::float(value));
    for _ in 0..times {
        value += sign * delta;
        slots.push(Slot::float(value));
    }
    Ok(())
}

/// Reads a number (or `stale`, or a duration in seconds) at the start of a text.
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
    if bytes.get(end).is_some_and(|b| b"smhdwy".contains(b)) {
        let len = body.find(|c: char| !(c.is_ascii_digit() || "smhdwy".contains(c))).unwrap_or(body.len());
        let ms = duration_ms(&body[..len]).ok()?;
        return Some((signed(ms as f64 / 1000.0), &body[len..]));
    }
    Some((signed(body[..end].parse().ok()?), &body[end..]))
}

/// Reads a duration, possibly signed.
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
pub fn start_items(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut slots = Vec::new();
    for item in text.split_whitespace() {
        if let Some(rest) = item.strip_prefix('_') {
            let (times, _) = repeat_suffix(rest)?;
            slots.extend(std::iter::repeat_n(None, times.max(1)));
            continue;
        }
        let (body, times) = item.rsplit_once('x').map_or(Ok((item, 0)), |(b, n)| {
            n.parse::<usize>().map(|n| (b, n)).map_err(|_| format!("bad item: {item}"))
        })?;
        let split = body[1..].find(['+', '-']).map(|i| i + 1);
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

fn histogram_item<'a>(text: &'a str, slots: &mut Vec<Slot>) -> Result<&'a str, String> {
    let (first, hinted, rest) = histogram(text)?;
    let slot = |h: &Histogram| Slot { value: Some(Value::Histogram(Box::new(h.clone()))), hinted };
    if rest.starts_with('x') {
        let (times, rest) = repeat_suffix(rest)?;
        slots.extend(std::iter::repeat_n(slot(&first), times + 1));
        return Ok(rest);
    }
    let sign = match rest.as_bytes().first() {
        Some(b'+') => 1.0,
        Some(b'-') => -1.0,
        _ => {
            slots.push(slot(&first));
            return Ok(rest);
        }
    };
    let (delta, _, rest) = histogram(&rest[1..])?;
    let (times, rest) = repeat_suffix(rest)?;
    let mut running = first;
    slots.push(slot(&running));
    for _ in 0..times {
        running = add(&running, &delta, sign)?;
        slots.push(slot(&running));
    }
    Ok(rest)
}

/// Reads one `{{…}}`; gives whether a hint was written, and the rest.
fn histogram(text: &str) -> Result<(Histogram, bool, &str), String> {
    let fault = || format!("bad histogram: {text}");
    let body = text.strip_prefix("{{").ok_or_else(fault)?;
    let end = body.find("}}").ok_or_else(fault)?;
    let rest = &body[end + 2..];
    let mut fields = body[..end].trim();
    let mut h = Histogram { float: true, ..Histogram::default() };
    let (mut offset, mut n_offset) = (0, 0);
    let (mut buckets, mut n_buckets) = (Vec::new(), Vec::new());
    let mut hinted = false;
    while !fields.is_empty() {
        let (name, after) = fields.split_once(':').ok_or_else(fault)?;
        let (value, after) = if let Some(list) = after.strip_prefix('[') {
            list.split_once(']').ok_or_else(fault)?
        } else {
            after.split_once(char::is_whitespace).unwrap_or((after, ""))
        };
        let number = || parse_number(value).ok_or_else(fault);
        let list =
            || value.split_whitespace().map(|v| parse_number(v).ok_or_else(fault)).collect::<Result<Vec<_>, _>>();
        match name.trim() {
            "schema" => h.schema = value.parse().map_err(|_| fault())?,
            "count" => h.count = number()?,
            "sum" => h.sum = number()?,
            "z_bucket" => h.zero_count = number()?,
            "z_bucket_w" => h.zero_threshold = number()?,
            "offset" => offset = value.parse().map_err(|_| fault())?,
            "n_offset" => n_offset = value.parse().map_err(|_| fault())?,
            "buckets" => buckets = list()?,
            "n_buckets" => n_buckets = list()?,
            "custom_values" => h.custom_bounds = list()?,
            "counter_reset_hint" => {
                hinted = true;
                h.reset_hint = match value {
                    "unknown" => ResetHint::Unknown,
                    "reset" => ResetHint::Reset,
                    "not_reset" => ResetHint::NotReset,
                    "gauge" => ResetHint::Gauge,
                    _ => return Err(fault()),
                };
            }
            _ => return Err(fault()),
        }
        fields = after.trim_start();
    }
    let spans = |offset: i32, counts: &[f64]| {
        if counts.is_empty() { vec![] } else { vec![Span { offset, length: counts.len() as u32 }] }
    };
    h.positive_spans = spans(offset, &buckets);
    h.negative_spans = spans(n_offset, &n_buckets);
    (h.positive, h.negative) = (buckets, n_buckets);
    Ok((h, hinted, rest))
}

fn parse_number(text: &str) -> Option<f64> {
    number(text).and_then(|(v, rest)| rest.is_empty().then_some(v))
}

/// Gives the buckets of one side by index.
pub fn buckets(spans: &[Span], counts: &[f64]) -> Vec<(i32, f64)> {
    let mut out = Vec::with_capacity(counts.len());
    let mut next = 0;
    let mut counts = counts.iter();
    for span in spans {
        next += span.offset;
        for _ in 0..span.length {
            if let Some(count) = counts.next() {
                out.push((next, *count));
            }
            next += 1;
        }
    }
    out
}

/// Reduces an exponential bucket index to a coarser schema.
fn coarser(index: i32, from: i32, to: i32) -> i32 {
    ((index - 1) >> (from - to)) + 1
}

fn add(a: &Histogram, b: &Histogram, sign: f64) -> Result<Histogram, String> {
    if (a.schema == CUSTOM_SCHEMA) != (b.schema == CUSTOM_SCHEMA) || (a.schema != CUSTOM_SCHEMA && b.schema < a.schema)
    {
        return Err("the second histogram of a series must not be coarser".into());
    }
    let side = |spans_a: &[Span], a_counts: &[f64], spans_b: &[Span], b_counts: &[f64]| {
        let mut sums: std::collections::BTreeMap<i32, f64> = buckets(spans_a, a_counts).into_iter().collect();
        for (index, count) in buckets(spans_b, b_counts) {
            let index = if a.schema == CUSTOM_SCHEMA { index } else { coarser(index, b.schema, a.schema) };
            *sums.entry(index).or_default() += sign * count;
        }
        let (mut spans, mut counts) = (Vec::<Span>::new(), Vec::new());
        let mut next = 0;
        for (index, count) in sums {
            match spans.last_mut() {
                Some(span) if index == next => span.length += 1,
                _ => spans.push(Span { offset: index - next, length: 1 }),
            }
            next = index + 1;
            counts.push(count);
        }
        (spans, counts)
    };
    let (positive_spans, positive) = side(&a.positive_spans, &a.positive, &b.positive_spans, &b.positive);
    let (negative_spans, negative) = side(&a.negative_spans, &a.negative, &b.negative_spans, &b.negative);
    Ok(Histogram {
        zero_count: a.zero_count + sign * b.zero_count,
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
mod tests {
    use super::*;

    #[test]
    fn floats() {
        let check = |text: &str, expected: &[f64]| {
            let got: Vec<f64> = items(text)
                .unwrap()
                .into_iter()
                .map(|s| match s.value {
                    Some(Value::Float(v)) => v,
                    _ => -999.0,
                })
                .collect();
            assert_eq!(got, expected, "{text}");
        };
        check("1 _ -1.5 1e3", &[1.0, -999.0, -1.5, 1e3]);
        check("0+10x2 5-1x1 3x2", &[0.0, 10.0, 20.0, 5.0, 4.0, 3.0, 3.0, 3.0]);
        check("_x2 5m 0x2 -Inf", &[-999.0, -999.0, 300.0, 0.0, 0.0, 0.0, f64::NEG_INFINITY]);
        check("0.1E+2 .5", &[10.0, 0.5]);
        for bad in ["1+1", "1-1 2", "1++1x2", "1--1x2", "Infx2", "1+NaNx2", "stalex2", "Stale", "1+1x", "1+1x-1"] {
            assert!(items(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn histograms_and_labels() {
        let (set, starts, rest) = labels(r#"m{a="b", "c d"="\"x"}@st 1"#).unwrap();
        assert_eq!((set.metric(), set.get("c d"), starts, rest), ("m", "\"x", true, "1"));
        assert_eq!(labels(r#"{"a.b", c="d"} 1"#).unwrap().0.metric(), "a.b");
        let slots = items("{{schema:0 count:3 buckets:[1 2] counter_reset_hint:gauge}}+{{buckets:[1]}}x1 _").unwrap();
        assert_eq!(slots.len(), 3);
        let Some(Value::Histogram(h)) = &slots[1].value else { panic!() };
        assert_eq!((h.positive.as_slice(), slots[0].hinted), (&[2.0, 2.0][..], true));
        assert_eq!(
            start_items("_ -30s-1mx2 -1ms").unwrap(),
            [None, Some(-30_000), Some(-90_000), Some(-150_000), Some(-1)]
        );
    }
}
