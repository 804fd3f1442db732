//! Time filters: what stands behind `_time:`.

use quiver_types::Error;

use super::Parser;
use crate::ast::{Filter, TimeFilter, TimePoint};
use crate::error::Result;
use crate::kernels::values::parse_unix;
use crate::literal::{parse_duration, parse_duration_or_seconds, parse_span};

const DAY_NS: i64 = 86_400_000_000_000;

/// What a bound names: first and last moment.
type Span = (TimePoint, TimePoint);

impl Parser<'_> {
    /// What stands behind `_time:`.
    pub(crate) fn time_filter(&mut self) -> Result<Filter> {
        if self.is("day_range") && self.after_next().is_any(&["(", "["]) {
            self.advance();
            return self.day_range().map(Filter::Time);
        }
        if self.is("week_range") && self.after_next().is_any(&["(", "["]) {
            self.advance();
            return self.week_range().map(Filter::Time);
        }
        if self.is("offset") {
            return self.until_offset().map(Filter::Time);
        }
        let (start, end, mut text) = if self.is_any(&["(", "["]) { self.time_range()? } else { self.time_side()? };
        let offset_ns = self.time_offset(&mut text)?;
        Ok(Filter::Time(TimeFilter::Range { start, end, offset_ns, text }))
    }

    /// `offset d` alone: all that is older than `d`.
    fn until_offset(&mut self) -> Result<TimeFilter> {
        let mut text = String::new();
        let offset_ns = self.time_offset(&mut text)?;
        let text = text.trim_start().to_owned();
        Ok(TimeFilter::Range { start: TimePoint::At(i64::MIN), end: TimePoint::Now(0), offset_ns, text })
    }

    /// `offset d`, if it stands here; adds it to the text.
    fn time_offset(&mut self, text: &mut String) -> Result<i64> {
        if !self.skip("offset") {
            return Ok(0);
        }
        let offset = self.duration("a duration after `offset`")?;
        text.push_str(" offset ");
        text.push_str(&offset.text);
        Ok(offset.value)
    }

    /// Reads `[a, b)`, with either bracket at either end; both ends that it gives are included.
    fn time_range(&mut self) -> Result<(TimePoint, TimePoint, String)> {
        let open = if self.skip("[") { '[' } else { self.expect("(").map(|()| '(')? };
        let (first, first_text) = self.bound()?;
        self.expect(",")?;
        let (last, last_text) = self.bound()?;
        let close = if self.skip("]") { ']' } else { self.expect(")").map(|()| ')')? };
        let start = if open == '[' { first.0 } else { shift(first.0, 1) };
        let end = if close == ']' { last.1 } else { shift(last.0, -1) };
        Ok((start, end, format!("{open}{first_text},{last_text}{close}")))
    }

    /// A time, a duration, or a comparison with one.
    fn time_side(&mut self) -> Result<(TimePoint, TimePoint, String)> {
        const LEAST: TimePoint = TimePoint::At(i64::MIN);
        const GREATEST: TimePoint = TimePoint::At(i64::MAX);
        let op = match () {
            () if self.skip("=") => "=",
            () if self.skip(">") => {
                if self.is("=") {
                    ">="
                } else {
                    ">"
                }
            }
            () if self.skip("<") => {
                if self.is("=") {
                    "<="
                } else {
                    "<"
                }
            }
            () => "",
        };
        if op.len() == 2 {
            self.advance();
        }
        let at = self.next;
        let text = self.time_word()?;
        let printed = format!("{op}{text}");
        if let Some(ns) = parse_duration(&text).map(i64::saturating_abs) {
            // Ages: `>5m` is older than five minutes, and so is `>-5m`.
            let (start, end) = match op {
                ">" => (LEAST, TimePoint::Now(-ns - 1)),
                ">=" => (LEAST, TimePoint::Now(-ns)),
                "<" => (TimePoint::Now(1 - ns), TimePoint::Now(0)),
                _ => (TimePoint::Now(-ns), TimePoint::Now(0)),
            };
            return Ok((start, end, printed));
        }
        if text.starts_with('-') {
            // Seconds back from now are ages only as bounds of a range.
            return Err(self.no_time(at, &text));
        }
        let span = self.bound_value(at, &text)?;
        let (start, end) = match op {
            ">" => (shift(span.0, 1), GREATEST),
            ">=" => (span.0, GREATEST),
            "<" => (LEAST, shift(span.0, -1)),
            "<=" => (LEAST, span.1),
            _ => span,
        };
        Ok((start, end, printed))
    }

    fn time_word(&mut self) -> Result<String> {
        self.argument("a time or duration")
    }

    fn bound(&mut self) -> Result<(Span, String)> {
        let at = self.next;
        let text = self.time_word()?;
        Ok((self.bound_value(at, &text)?, text))
    }

    /// Reads a bound: a time, a Unix time, `now`, `now-5m`, a duration back from now.
    fn bound_value(&self, at: usize, text: &str) -> Result<Span> {
        moment(text).ok_or_else(|| self.no_time(at, text))
    }

    fn no_time(&self, at: usize, text: &str) -> Error {
        let hint = if text.contains('.') && text.contains('T') && parse_span(&format!("{text}Z")).is_some() {
            "; a time with a fraction needs a zone such as `Z`"
        } else {
            ""
        };
        self.fault_at(at, format!("`{text}` is no time or duration{hint}"))
    }

    fn day_range(&mut self) -> Result<TimeFilter> {
        let open = if self.skip("[") { '[' } else { self.expect("(").map(|()| '(')? };
        let (first, first_text) = self.clock()?;
        self.expect(",")?;
        let (last, last_text) = self.clock()?;
        let close = if self.skip("]") { ']' } else { self.expect(")").map(|()| ')')? };
        let mut text = format!("day_range{open}{first_text}, {last_text}{close}");
        let offset_ns = self.time_offset(&mut text)?;
        let start_ns = first + i64::from(open == '(');
        let end_ns = last.min(DAY_NS - 1) - i64::from(close == ')');
        Ok(TimeFilter::DayRange { start_ns, end_ns, offset_ns, text })
    }

    /// `hh:mm` or `hh:mm:ss`: nanoseconds of the day.
    fn clock(&mut self) -> Result<(i64, String)> {
        let at = self.next;
        let text = self.argument("a time of the day")?;
        let mut seconds = 0;
        let mut parts = 0;
        for part in text.split(':') {
            let valid = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            let value: i64 = part.parse().ok().filter(|_| valid).unwrap_or(i64::MAX);
            if value > if parts == 0 { 24 } else { 59 } {
                parts = 0;
                break;
            }
            seconds += value * [3600, 60, 1].get(parts).copied().unwrap_or(0);
            parts += 1;
        }
        if !(2..=3).contains(&parts) || seconds > 86_400 {
            return Err(self.fault_at(at, format!("a time of the day such as `08:30` expected, got `{text}`")));
        }
        Ok((seconds * 1_000_000_000, text))
    }

    fn week_range(&mut self) -> Result<TimeFilter> {
        let open = if self.skip("[") { '[' } else { self.expect("(").map(|()| '(')? };
        let (first, first_text) = self.weekday()?;
        self.expect(",")?;
        let (last, last_text) = self.weekday()?;
        let close = if self.skip("]") { ']' } else { self.expect(")").map(|()| ')')? };
        let mut text = format!("week_range{open}{first_text}, {last_text}{close}");
        let offset_ns = self.time_offset(&mut text)?;
        // Saturday is before Sunday as well as after it.
        let first_day = (first + u8::from(open == '(')) % 7;
        let last_day = (last + 7 - u8::from(close == ')')) % 7;
        Ok(TimeFilter::WeekRange { first_day, last_day, offset_ns, text })
    }

    fn weekday(&mut self) -> Result<(u8, String)> {
        const DAYS: &[&str] = &["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
        let at = self.next;
        let text = self.argument("a day of the week")?;
        let lower = text.to_ascii_lowercase();
        let day = DAYS.iter().position(|day| *day == lower || day[..3] == lower);
        let day = day.ok_or_else(|| self.fault_at(at, format!("a day of the week expected, got `{text}`")))?;
        Ok((day as u8, text))
    }
}

/// Reads a time in any form: first and last moment of what it names.
pub(crate) fn moment(text: &str) -> Option<Span> {
    let relative = |ns: i64| (TimePoint::Now(ns), TimePoint::Now(ns));
    if let Some(rest) = text.strip_prefix("now") {
        return match rest.chars().next() {
            None => Some(relative(0)),
            Some('-') => parse_duration_or_seconds(rest).map(relative),
            Some('+') => parse_duration(&rest[1..]).map(relative),
            _ => None,
        };
    }
    if text.starts_with('-') {
        return parse_duration_or_seconds(text).map(relative);
    }
    let fraction_without_zone = text.contains('T') && text.contains('.') && {
        let clock = text.rsplit('T').next().unwrap_or_default();
        !clock.contains(['Z', '+', '-'])
    };
    if !fraction_without_zone && let Some(span) = parse_span(text) {
        return Some((TimePoint::At(span.start), TimePoint::At(span.end)));
    }
    if let Some(ns) = parse_unix(text) {
        return Some((TimePoint::At(ns), TimePoint::At(ns)));
    }
    parse_duration(text).map(|ns| relative(-ns.abs()))
}

fn shift(moment: TimePoint, by: i64) -> TimePoint {
    match moment {
        TimePoint::At(ns) => TimePoint::At(ns.saturating_add(by)),
        TimePoint::Now(ns) => TimePoint::Now(ns.saturating_add(by)),
    }
}
