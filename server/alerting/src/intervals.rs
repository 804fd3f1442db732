//! Time intervals: when routes are muted or active, in Alertmanager's grammar.

use chrono::{DateTime, Datelike, NaiveDateTime, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use quiver_types::time::calendar::MONTH_NAMES;
use quiver_yaml::problem::{Code, Problems};
use quiver_yaml::{Fields, Node, NodeKind, pointer};

/// A span of time that comes again. A part that is absent holds for all times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TimeInterval {
    /// Minutes of the day, the end excluded.
    pub times: Option<Vec<MinuteRange>>,
    /// Days of the week, 0 is Sunday.
    pub weekdays: Option<Vec<Range>>,
    /// Days of the month; negative ones count from its end.
    pub days_of_month: Option<Vec<Range>>,
    /// Months, 1 is January.
    pub months: Option<Vec<Range>>,
    /// Calendar years, like 2026.
    pub years: Option<Vec<Range>>,
    /// Where all of it is read; absent: UTC.
    pub location: Option<Tz>,
}

/// Minutes of a day, the end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinuteRange {
    /// First minute, from 0 at midnight.
    pub start: u32,
    /// Minute behind the last; 1440 is the end of the day.
    pub end: u32,
}

/// Numbers, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First, included.
    pub begin: i64,
    /// Last, included.
    pub end: i64,
}

impl Range {
    fn holds(self, value: i64) -> bool {
        self.begin <= value && value <= self.end
    }
}

const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// Says whether one of the parts holds; absent: all do.
fn any<T: Copy>(parts: Option<&Vec<T>>, holds: impl Fn(T) -> bool) -> bool {
    parts.is_none_or(|parts| parts.iter().any(|part| holds(*part)))
}

impl TimeInterval {
    /// Says whether it holds a time, in nanoseconds since 1970.
    pub fn contains(&self, at_ns: i64) -> bool {
        let utc = DateTime::<Utc>::from_timestamp_nanos(at_ns);
        let local: NaiveDateTime = match self.location {
            Some(zone) => zone.from_utc_datetime(&utc.naive_utc()).naive_local(),
            None => utc.naive_utc(),
        };
        let minute = local.hour() * 60 + local.minute();
        let days = i64::from(local.num_days_in_month());
        let day = i64::from(local.day());
        let in_month = |range: Range| {
            let from_end = |d: i64| if d < 0 { days + d + 1 } else { d };
            let begin = from_end(range.begin);
            // A range that begins behind the end of a short month is not in it at all.
            begin <= days && Range { begin: begin.max(-days), end: from_end(range.end).min(days) }.holds(day)
        };
        any(self.times.as_ref(), |range| range.start <= minute && minute < range.end)
            && any(self.days_of_month.as_ref(), in_month)
            && any(self.months.as_ref(), |range| range.holds(i64::from(local.month())))
            && any(self.weekdays.as_ref(), |range| range.holds(i64::from(local.weekday().num_days_from_sunday())))
            && any(self.years.as_ref(), |range| range.holds(i64::from(local.year())))
    }

    /// Reads an entry of `time_intervals`; what is wrong is added to `problems`.
    pub fn read(node: &Node, path: &str, problems: &mut Problems) -> Self {
        let mut out = Self::default();
        let Some(mut fields) = Fields::new(node, path, problems) else { return out };
        out.times = fields.list("times", problems).map(|items| {
            let path = fields.path_of("times");
            items.iter().enumerate().filter_map(|(i, n)| MinuteRange::read(n, &pointer(&path, i), problems)).collect()
        });
        out.weekdays = ranges(&mut fields, "weekdays", problems, weekday);
        out.days_of_month = ranges(&mut fields, "days_of_month", problems, day_of_month);
        out.months = ranges(&mut fields, "months", problems, month);
        out.years = ranges(&mut fields, "years", problems, year);
        if let Some(name) = fields.text("location", problems).filter(|name| !name.is_empty()) {
            match name.as_str() {
                // The service has no zone of its own.
                "UTC" | "Local" => out.location = Some(Tz::UTC),
                name => match name.parse() {
                    Ok(zone) => out.location = Some(zone),
                    Err(_) => {
                        fields.problem("location", Code::InvalidValue, format!("unknown time zone {name}"), problems);
                    }
                },
            }
        }
        fields.finish(problems);
        out
    }
}

/// Reads a list of intervals.
pub fn read_list(node: &Node, path: &str, problems: &mut Problems) -> Vec<TimeInterval> {
    match &node.kind {
        NodeKind::List(items) => {
            items.iter().enumerate().map(|(i, item)| TimeInterval::read(item, &pointer(path, i), problems)).collect()
        }
        NodeKind::Null => Vec::new(),
        _ => {
            problems.push(node.problem(path, Code::InvalidType, format!("wanted a list, got {}", node.kind_name())));
            Vec::new()
        }
    }
}

fn ranges(
    fields: &mut Fields<'_>,
    name: &'static str,
    problems: &mut Problems,
    parse: fn(&str) -> Result<Range, String>,
) -> Option<Vec<Range>> {
    let items = fields.list(name, problems)?;
    let path = fields.path_of(name);
    let mut out = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let parsed = match item.text() {
            Some(text) => parse(text),
            None => Err(format!("wanted a text, got {}", item.kind_name())),
        };
        match parsed {
            Ok(range) => out.push(range),
            Err(e) => problems.push(item.problem(&pointer(&path, i), Code::InvalidValue, e)),
        }
    }
    Some(out)
}

impl MinuteRange {
    /// Reads `{start_time, end_time}`.
    pub fn read(node: &Node, path: &str, problems: &mut Problems) -> Option<Self> {
        let mut fields = Fields::new(node, path, problems)?;
        let start = fields.text("start_time", problems).unwrap_or_default();
        let end = fields.text("end_time", problems).unwrap_or_default();
        fields.finish(problems);
        match Self::parse(&start, &end) {
            Ok(range) => Some(range),
            Err(e) => {
                problems.push(node.problem(path, Code::InvalidValue, e));
                None
            }
        }
    }

    /// Reads two times of a day.
    ///
    /// # Errors
    /// One is missing or no time, or the end does not come after the start.
    pub fn parse(start: &str, end: &str) -> Result<Self, String> {
        if start.is_empty() || end.is_empty() {
            return Err("both start and end times must be provided".to_owned());
        }
        let (start, end) = (minute(start)?, minute(end)?);
        if start >= end {
            return Err("start time cannot be equal or greater than end time".to_owned());
        }
        Ok(Self { start, end })
    }
}

fn minute(text: &str) -> Result<u32, String> {
    let invalid = || format!("couldn't parse timestamp {text}, invalid format");
    if text == "24:00" {
        return Ok(1440);
    }
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    let (hours, minutes) = text.split_once(':').filter(|(h, m)| digits(h) && digits(m)).ok_or_else(invalid)?;
    let (hours, minutes): (u32, u32) = (hours.parse().map_err(|_| invalid())?, minutes.parse().map_err(|_| invalid())?);
    if hours > 23 || minutes > 59 {
        return Err(invalid());
    }
    Ok(hours * 60 + minutes)
}

fn range(text: &str, member: impl Fn(&str) -> Result<i64, String>) -> Result<Range, String> {
    let text = text.to_lowercase();
    let Some((begin, end)) = text.split_once(':') else {
        let value = member(&text)?;
        return Ok(Range { begin: value, end: value });
    };
    if end.contains(':') {
        return Err(format!("couldn't parse range {text}, invalid format"));
    }
    Ok(Range { begin: member(begin)?, end: member(end)? })
}

fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", crate::text::quote(text)))
}

fn weekday(text: &str) -> Result<Range, String> {
    let name = |text: &str| {
        let day = DAYS.iter().position(|d| *d == text);
        day.map(|d| d as i64).ok_or_else(|| format!("{text} is not a valid weekday"))
    };
    let range = range(text, name)?;
    if range.begin > range.end {
        return Err("start day cannot be before end day".to_owned());
    }
    Ok(range)
}

fn day_of_month(text: &str) -> Result<Range, String> {
    let range = range(text, number)?;
    for day in [range.begin, range.end] {
        if day == 0 || !(-31..=31).contains(&day) {
            return Err(format!("{day} is not a valid day of the month: out of range"));
        }
    }
    let Range { begin, end } = range;
    if begin < 0 && end > 0 {
        return Err("end day must be negative if start day is negative".to_owned());
    }
    // Whether it is empty depends on the month; the shortest one decides.
    let at = |day: i64| if day < 0 { 28 + day } else { day };
    if at(begin) > at(end) {
        return Err(format!("end day {end} is always before start day {begin}"));
    }
    Ok(range)
}

fn month(text: &str) -> Result<Range, String> {
    let name = |text: &str| {
        let month = MONTH_NAMES.iter().position(|m| m.eq_ignore_ascii_case(text));
        month.map(|m| m as i64 + 1).map_or_else(|| number(text).map_err(|_| format!("{text} is not a valid month")), Ok)
    };
    let range = range(text, name)?;
    if range.begin > range.end {
        let name = |month: i64| {
            let known = usize::try_from(month - 1).ok().and_then(|m| MONTH_NAMES.get(m).copied());
            known.map_or_else(|| month.to_string(), str::to_lowercase)
        };
        return Err(format!("end month {} is before start month {}", name(range.end), name(range.begin)));
    }
    Ok(range)
}

fn year(text: &str) -> Result<Range, String> {
    let range = range(text, number)?;
    if range.begin > range.end {
        return Err(format!("end year {} is before start year {}", range.end, range.begin));
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::parse_time;
    use quiver_yaml as yaml;

    fn read(text: &str) -> Result<Vec<TimeInterval>, String> {
        let mut problems = Problems::default();
        let node = yaml::read(text).expect(text).remove(0);
        let intervals = read_list(&node, "", &mut problems);
        problems.or(intervals).map_err(|p| p.to_string())
    }

    fn holds(text: &str, times: &[&str], others: &[&str]) {
        let intervals = read(text).expect(text);
        let at = |t: &str| i64::try_from(parse_time("02 Jan 06 15:04 -0700", t).expect(t).nanos()).expect(t);
        let holds = |t: &str| intervals.iter().any(|i| i.contains(at(t)));
        for t in times {
            assert!(holds(t), "{text} {t}");
        }
        for t in others {
            assert!(!holds(t), "{text} {t}");
        }
    }

    #[test]
    fn held_times() {
        holds(
            "- {weekdays: ['Monday:friday'], times: [{start_time: '09:00', end_time: '17:00'}], location: Australia/Sydney}",
            &["06 Apr 21 13:00 +1000"],
            &["06 Apr 21 13:00 +0000"],
        );
        holds("- {days_of_month: ['-1']}", &["29 Feb 20 23:05 +0000"], &["28 Feb 20 23:05 +0000"]);
        holds(
            "- {days_of_month: ['30:31'], months: [february, '6']}",
            &["30 Jun 20 00:00 +0000"],
            &["29 Feb 20 00:00 +0000"],
        );
        holds("- {years: ['2020:2021', '2030']}", &["01 Jan 30 00:00 +0000"], &["01 Jan 29 00:00 +0000"]);
        holds("- {weekdays: []}", &[], &["01 Jan 29 00:00 +0000"]);
        holds("- {}", &["01 Jan 29 00:00 +0000"], &[]);
    }

    #[test]
    fn refused() {
        let check = |text: &str, expected: &str| {
            let told = read(text).expect_err(text);
            assert!(told.contains(expected), "{told}");
        };
        check("- {times: [{start_time: '00:00', end_time: '99:99'}]}", "couldn't parse timestamp 99:99");
        check("- {times: [{start_time: '17:31', end_time: '17:31'}]}", "start time cannot be equal");
        check("- {times: [{start_time: '14:03'}]}", "both start and end");
        check("- {weekdays: ['friday:monday']}", "start day cannot be before end day");
        check("- {weekdays: ['1:3']}", "1 is not a valid weekday");
        check("- {days_of_month: ['0']}", "0 is not a valid day");
        check("- {days_of_month: ['-15:5']}", "end day must be negative");
        check("- {days_of_month: ['10:-25']}", "end day -25 is always before start day 10");
        check("- {months: ['december:january']}", "end month january is before start month december");
        check("- {months: ['martius:june']}", "martius is not a valid month");
        check("- {years: ['2020:2010']}", "end year 2010");
        check("- {location: Mars}", "unknown time zone Mars");
        check("- {weekday: [monday]}", "1:4: unknown field `weekday`");
    }

    #[test]
    fn borders_of_times() {
        let day = "- {times: [{start_time: '09:00', end_time: '17:00'}]}";
        holds(
            day,
            &["06 Apr 21 09:00 +0000", "06 Apr 21 16:59 +0000", "06 Apr 21 12:30 +0330"],
            &["06 Apr 21 08:59 +0000", "06 Apr 21 17:00 +0000", "06 Apr 21 12:29 +0330"],
        );
        let two = "- {times: [{start_time: '00:00', end_time: '06:00'}, {start_time: '22:30', end_time: '24:00'}]}";
        holds(
            two,
            &["06 Apr 21 00:00 +0000", "06 Apr 21 05:59 +0000", "06 Apr 21 22:30 +0000", "06 Apr 21 23:59 +0000"],
            &["06 Apr 21 06:00 +0000", "06 Apr 21 22:29 +0000"],
        );
        holds("- {times: []}", &[], &["06 Apr 21 00:00 +0000"]);
        // One of several intervals is enough, all parts of one must hold.
        let either = "- {weekdays: [monday], months: [april]}\n- {years: ['2021']}";
        holds(either, &["06 Apr 21 00:00 +0000", "04 Apr 22 00:00 +0000"], &["05 Apr 22 00:00 +0000"]);
    }

    #[test]
    fn borders_of_days() {
        let check = |days: &str, times: &[&str], others: &[&str]| {
            holds(&format!("- {{days_of_month: [{days}]}}"), times, others);
        };
        check("'1:3'", &["01 Jan 23 00:00 +0000", "03 Jan 23 23:59 +0000"], &["31 Dec 22 23:59 +0000"]);
        check("'1:-1'", &["01 Feb 23 00:00 +0000", "28 Feb 23 00:00 +0000", "31 Jan 23 00:00 +0000"], &[]);
        check("'-7:-1'", &["23 Feb 20 00:00 +0000", "29 Feb 20 00:00 +0000"], &["22 Feb 20 23:59 +0000"]);
        check("'-31'", &["01 Jan 23 00:00 +0000"], &["02 Jan 23 00:00 +0000", "01 Feb 23 00:00 +0000"]);
        // What a month has not is cut off, and what lies behind its end is not in it.
        check("'25:31'", &["28 Feb 23 00:00 +0000"], &["24 Feb 23 00:00 +0000", "01 Mar 23 00:00 +0000"]);
        check("'31'", &["31 Jan 23 00:00 +0000"], &["30 Apr 23 00:00 +0000", "28 Feb 23 00:00 +0000"]);
        check("'27:-1'", &["27 Feb 23 00:00 +0000", "31 Mar 23 00:00 +0000"], &["26 Feb 23 00:00 +0000"]);
        check("1, '15'", &["01 Jan 23 00:00 +0000", "15 Jan 23 00:00 +0000"], &["02 Jan 23 00:00 +0000"]);
    }

    #[test]
    fn words_of_days_and_months() {
        let check = |text: &str, times: &[&str], others: &[&str]| holds(&format!("- {{{text}}}"), times, others);
        check("weekdays: [SUNDAY]", &["01 Jan 23 00:00 +0000"], &["02 Jan 23 00:00 +0000"]);
        check("weekdays: ['sunday:saturday']", &["01 Jan 23 00:00 +0000", "07 Jan 23 00:00 +0000"], &[]);
        check("weekdays: [saturday, sunday]", &["31 Dec 22 00:00 +0000"], &["30 Dec 22 00:00 +0000"]);
        check("months: ['march:May']", &["31 Mar 23 00:00 +0000", "01 May 23 00:00 +0000"], &["01 Jun 23 00:00 +0000"]);
        check("months: ['1:3']", &["28 Feb 23 00:00 +0000"], &["01 Apr 23 00:00 +0000"]);
        check("months: [2]", &["28 Feb 23 00:00 +0000"], &["01 Mar 23 00:00 +0000"]);
        check("years: ['2022:2023', 2025]", &["31 Dec 22 23:59 +0000"], &["01 Jan 24 00:00 +0000"]);
    }

    /// A day begins where the interval is read, in summer an hour earlier.
    #[test]
    fn zones() {
        let check = |text: &str, times: &[&str], others: &[&str]| holds(&format!("- {{{text}}}"), times, others);
        let tuesday = "weekdays: [tuesday], location: America/New_York";
        check(tuesday, &["07 Apr 21 03:59 +0000", "06 Apr 21 04:00 +0000"], &["07 Apr 21 04:00 +0000"]);
        let nine = "times: [{start_time: '09:00', end_time: '09:01'}], location: Europe/Berlin";
        check(nine, &["15 Jan 23 08:00 +0000", "15 Jul 23 07:00 +0000"], &["15 Jul 23 08:00 +0000"]);
        check("years: ['2024'], location: Pacific/Auckland", &["31 Dec 23 11:00 +0000"], &["31 Dec 23 10:59 +0000"]);
        check("months: [march], location: UTC", &["31 Mar 23 23:59 +0000"], &["01 Apr 23 00:00 +0000"]);
        check("months: [march], location: ''", &["31 Mar 23 23:59 +0000"], &["01 Apr 23 00:00 +0000"]);
    }

    #[test]
    fn refused_as_alertmanager_does() {
        let check = |text: &str, expected: &str| {
            let told = read(&format!("- {{{text}}}")).expect_err(text);
            assert!(told.ends_with(expected), "{text}: {told}");
        };
        for time in ["9:00", "24:01", "23:60", "0900", "09:0", "09:00:00", " 09:00", "-1:00", "ab:cd", "+9:00"] {
            let text = format!("times: [{{start_time: '{time}', end_time: '24:00'}}]");
            check(&text, &format!("couldn't parse timestamp {time}, invalid format"));
        }
        check(
            "times: [{start_time: '24:00', end_time: '24:00'}]",
            "start time cannot be equal or greater than end time",
        );
        check(
            "times: [{start_time: '09:00', end_time: '08:59'}]",
            "start time cannot be equal or greater than end time",
        );
        check("times: [{end_time: '14:03'}]", "both start and end times must be provided");
        check("times: [~]", "both start and end times must be provided");
        check("times: [{start: '14:03'}]", "both start and end times must be provided");
        check("weekdays: [mon]", "mon is not a valid weekday");
        check("weekdays: ['monday:']", " is not a valid weekday");
        check("weekdays: ['monday:friday:sunday']", "couldn't parse range monday:friday:sunday, invalid format");
        check("weekdays: [[monday]]", "wanted a text, got a list");
        check("weekdays: monday", "`monday` is not a list");
        check("days_of_month: ['32']", "32 is not a valid day of the month: out of range");
        check("days_of_month: ['-50:-20']", "-50 is not a valid day of the month: out of range");
        check("days_of_month: ['1:50']", "50 is not a valid day of the month: out of range");
        check("days_of_month: ['5:4']", "end day 4 is always before start day 5");
        check("days_of_month: ['-1:-2']", "end day -2 is always before start day -1");
        check("days_of_month: ['28:-1']", "end day -1 is always before start day 28");
        check("days_of_month: [one]", "strconv.Atoi: parsing \"one\": invalid syntax");
        check("months: [jan]", "jan is not a valid month");
        check("months: ['march:junius']", "junius is not a valid month");
        check("months: ['15:13']", "end month 13 is before start month 15");
        check("years: ['2022:2020']", "end year 2020 is before start year 2022");
        check("years: ['twenty']", "strconv.Atoi: parsing \"twenty\": invalid syntax");
        check("location: europe/berlin2", "unknown time zone europe/berlin2");
        // All that is wrong is told at once.
        let told = read("- {weekdays: [mon], months: [jan]}\n- {years: [x]}").expect_err("three");
        assert_eq!(told.lines().count(), 3, "{told}");
        assert!(read("a: 1").expect_err("no list").contains("wanted a list, got a mapping"));
        assert_eq!(read("[]"), Ok(Vec::new()));
    }
}
