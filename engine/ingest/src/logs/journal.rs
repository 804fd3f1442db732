//! The export format of systemd's journal, in pieces of any size: entries of fields, each of them a line `NAME=value`,
//! or, for values with line breaks, a line `NAME`, their length in 8 bytes, and the value. An empty line ends an entry.

use memchr::memchr;
use quiver_types::logs::RecordMarks;

use super::names::NONE;
use super::options::{Defaults, FieldOptions};
use super::row_counts::DropReason;
use super::rows::Rows;
use super::time::Stamp;
use super::{LogsContext, LogsLimits, lossy};
use crate::error::{Error, Result};

/// Fields that make up the stream where no parameter names others, sorted.
const STREAM_FIELDS: [&str; 3] = ["_HOSTNAME", "_MACHINE_ID", "_SYSTEMD_UNIT"];
/// Levels in words, by their number in `PRIORITY`.
const LEVELS: [&str; 8] = ["emerg", "alert", "critical", "error", "warning", "notice", "info", "debug"];
/// The time of an entry, in microseconds.
const TIME_FIELD: &str = "__REALTIME_TIMESTAMP";
/// Longest name of a field in a journal.
const NAME_BYTES_MAX: usize = 64;
/// More fields than so many times those of a row are not kept: equal names count once there, and some are left out.
const FIELDS_FACTOR: usize = 2;
/// Bytes of the length before a value.
const LENGTH_BYTES: usize = size_of::<u64>();

/// What is passed over of a field that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skipping {
    Nothing,
    /// All up to the end of the line.
    Line,
    /// So many bytes.
    Bytes(u64),
}

/// What some bytes begin with.
#[derive(Debug, PartialEq, Eq)]
enum Next<'a> {
    /// The beginning of a field, whose first so many bytes have no line break.
    Part(usize),
    /// The end of an entry.
    End,
    /// A field of so many bytes.
    Field { name: &'a [u8], value: &'a [u8], bytes: usize },
    /// A line that is too long.
    LongLine,
    /// A value that is too long: it has so many bytes with its line break, and stands behind others.
    LongValue { behind: usize, bytes: u64 },
    /// A value whose length is wrong.
    Broken,
}

/// Reads what comes next, of which the first `searched` bytes have no line break.
fn next(bytes: &[u8], searched: usize, bytes_max: usize) -> Next<'_> {
    let Some(found) = memchr(b'\n', &bytes[searched..]) else {
        return if bytes.len() > bytes_max { Next::LongLine } else { Next::Part(bytes.len()) };
    };
    let line = &bytes[..searched + found];
    if line.is_empty() {
        return Next::End;
    }
    if line.len() > bytes_max {
        // Its end is known, and passed over with it.
        return Next::LongLine;
    }
    let behind = line.len() + 1;
    if let Some(at) = memchr(b'=', line) {
        return Next::Field { name: &line[..at], value: &line[at + 1..], bytes: behind };
    }
    let Some(length) = bytes[behind..].first_chunk::<LENGTH_BYTES>() else { return Next::Part(line.len()) };
    let (length, start) = (u64::from_le_bytes(*length), behind + LENGTH_BYTES);
    let Some(end) = usize::try_from(length).ok().filter(|length| *length <= bytes_max).map(|length| start + length)
    else {
        return Next::LongValue { behind: start, bytes: length.saturating_add(1) };
    };
    match bytes.get(end) {
        None => Next::Part(line.len()),
        Some(b'\n') => Next::Field { name: line, value: &bytes[start..end], bytes: end + 1 },
        Some(_) => Next::Broken,
    }
}

/// Whether a name is one of a journal: capital letters, digits and `_`, not a digit first.
fn is_name(name: &[u8]) -> bool {
    let fits = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
    name.len() <= NAME_BYTES_MAX && name.first().is_some_and(|b| !b.is_ascii_digit()) && name.iter().all(fits)
}

/// Reads a time in microseconds, of whatever size: clocks that were not set yet begin in 1970. 0 and nothing are none.
fn micros(text: &[u8]) -> Option<Stamp> {
    if matches!(text, b"" | b"0" | b"-") {
        return Some(Stamp::Arrival);
    }
    let micros: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(Stamp::of(i128::from(micros) * 1_000))
}

/// The fields of an entry so far. They become a row at its end, since the rows before it may be stored at any time.
#[derive(Debug, Default)]
struct Entry {
    /// Names and values, one after the other.
    bytes: Vec<u8>,
    /// Where the name and the value of each field end there.
    ends: Vec<(usize, usize)>,
    /// Why it will be dropped.
    fault: Option<DropReason>,
    /// Whether it has begun.
    is_open: bool,
    /// Whether it has a field of a journal.
    is_read: bool,
}

impl Entry {
    fn add(&mut self, name: &[u8], value: &[u8], limits: &LogsLimits) {
        self.is_open = true;
        if !is_name(name) {
            return;
        }
        self.is_read = true;
        if self.bytes.len() + name.len() + value.len() > limits.row_bytes_max {
            self.lose(DropReason::LargeRow);
        } else if self.ends.len() >= FIELDS_FACTOR * limits.fields_max {
            self.lose(DropReason::TooManyFields);
        }
        if self.fault.is_none() {
            self.bytes.extend_from_slice(name);
            let end = self.bytes.len();
            self.bytes.extend_from_slice(value);
            self.ends.push((end, self.bytes.len()));
        }
    }

    /// Drops it as a whole.
    fn lose(&mut self, why: DropReason) {
        (self.is_open, self.is_read) = (true, true);
        self.fault.get_or_insert(why);
    }

    /// Adds its fields to a row; returns its time, unless a parameter names the field with that.
    fn write(&self, rows: &mut Rows, times_are_named: bool) -> Stamp {
        let (mut start, mut time) = (0, Stamp::Arrival);
        for (middle, end) in &self.ends {
            let (name, value) = (lossy(&self.bytes[start..*middle]), &self.bytes[*middle..*end]);
            start = *end;
            if rows.is_lost() {
                break;
            }
            if name == TIME_FIELD && !times_are_named {
                match micros(value) {
                    Some(read) => time = read,
                    None => rows.lose(DropReason::BadTime),
                }
                continue;
            }
            let number = rows.field_name(&name);
            // Names with two `_` are of the journal itself, such as the place of an entry in it.
            if name.starts_with("__") && rows.names.list[number as usize].time == NONE {
                continue;
            }
            if name == "PRIORITY"
                && let [digit @ b'0'..=b'7'] = value
            {
                let level = rows.field_name("level");
                rows.add_plain(level, LEVELS[usize::from(digit - b'0')]);
            }
            rows.add(number, &lossy(value));
        }
        time
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        (self.fault, self.is_open, self.is_read) = (None, false, false);
    }
}

/// Decodes entries of a journal.
#[derive(Debug)]
pub struct Journal {
    /// The rows so far.
    pub rows: Rows,
    /// What has arrived of the current field.
    tail: Vec<u8>,
    /// How many bytes of that have no line break.
    searched: usize,
    skipping: Skipping,
    limits: LogsLimits,
    /// Number of the current entry, from 1.
    number: u64,
    entry: Entry,
    /// Whether a parameter names the fields that may hold the time.
    times_are_named: bool,
}

impl Journal {
    /// Begins a request.
    pub fn new(ctx: &LogsContext) -> Self {
        let mut options = FieldOptions::clone(&ctx.options);
        options.stream.get_or_insert_with(|| Vec::from(STREAM_FIELDS.map(str::to_owned)));
        let ctx = LogsContext { options: options.into(), ..ctx.clone() };
        Self {
            rows: Rows::new(&ctx, Defaults::JOURNAL),
            tail: Vec::new(),
            searched: 0,
            skipping: Skipping::Nothing,
            limits: ctx.limits,
            number: 1,
            entry: Entry::default(),
            times_are_named: ctx.options.time.is_some(),
        }
    }

    /// Reads a piece of the body.
    ///
    /// # Errors
    /// Invalid: a value does not end where its length says.
    pub fn feed(&mut self, data: &[u8]) -> Result<()> {
        let data = self.skip(data);
        let mut tail = std::mem::take(&mut self.tail);
        tail.extend_from_slice(data);
        let mut read = 0;
        let outcome = loop {
            match next(&tail[read..], self.searched, self.limits.line_bytes_max) {
                Next::Part(searched) => {
                    self.searched = searched;
                    break Ok(());
                }
                Next::End => {
                    self.end_entry();
                    read += 1;
                }
                Next::Field { name, value, bytes } => {
                    self.entry.add(name, value, &self.limits);
                    read += bytes;
                }
                Next::LongLine => {
                    self.entry.lose(DropReason::LongLine);
                    self.skipping = Skipping::Line;
                    read = tail.len() - self.skip(&tail[read..]).len();
                }
                Next::LongValue { behind, bytes } => {
                    self.entry.lose(DropReason::LongLine);
                    self.skipping = Skipping::Bytes(bytes);
                    read = tail.len() - self.skip(&tail[read + behind..]).len();
                }
                Next::Broken => break Err(self.fault("a value does not end where its length says")),
            }
            self.searched = 0;
        };
        tail.drain(..read);
        self.tail = tail;
        outcome
    }

    /// Reads the last field and entry, which need not end in line breaks.
    ///
    /// # Errors
    /// Invalid: the body ends within a value.
    pub fn finish(&mut self) -> Result<()> {
        if !self.tail.is_empty() {
            self.feed(b"\n")?;
        }
        if !self.tail.is_empty() || matches!(self.skipping, Skipping::Bytes(_)) {
            return Err(self.fault("the body ends within a value"));
        }
        self.end_entry();
        Ok(())
    }

    /// Bytes in memory besides those of rows.
    pub fn kept_bytes(&self) -> usize {
        self.tail.capacity() + self.entry.bytes.capacity() + self.entry.ends.capacity() * size_of::<(usize, usize)>()
    }

    /// Passes over what is left of a field that is too long; returns what follows.
    fn skip<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let (len, left) = match self.skipping {
            Skipping::Nothing => return data,
            Skipping::Line => match memchr(b'\n', data) {
                Some(at) => (at + 1, Skipping::Nothing),
                None => (data.len(), Skipping::Line),
            },
            Skipping::Bytes(bytes) => {
                let len = usize::try_from(bytes).unwrap_or(usize::MAX).min(data.len());
                let left = bytes - len as u64;
                (len, if left == 0 { Skipping::Nothing } else { Skipping::Bytes(left) })
            }
        };
        self.skipping = left;
        &data[len..]
    }

    fn fault(&self, what: &str) -> Error {
        Error::Format(format!("entry {}: {what}", self.number))
    }

    fn end_entry(&mut self) {
        let Self { rows, entry, number, times_are_named, .. } = self;
        if !entry.is_open {
            return;
        }
        let mut time = Stamp::Arrival;
        match entry.fault {
            Some(why) => rows.lose(why),
            None if !entry.is_read => rows.lose(DropReason::Unreadable),
            None => time = entry.write(rows, *times_are_named),
        }
        entry.clear();
        let why = rows.end(time, RecordMarks::default()).err();
        if let (Some(why), None) = (why, &rows.report.first_fault) {
            let text = if why == DropReason::Unreadable { "no field of a journal" } else { why.text() };
            rows.report.first_fault = Some(format!("entry {number}: {text}"));
        }
        *number += 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Report;
    use super::super::tests::{NOW, context, rows_of};
    use super::*;

    const T0: i64 = 1_729_698_775_704_404_000;

    /// The rows of a body, and its counts; cut into pieces of any size it must give the same.
    fn read(query: &[(&str, &str)], body: &[u8]) -> Result<(Vec<Value>, Report)> {
        let decode = |piece: usize| -> Result<(Vec<Value>, Report)> {
            let mut journal = Journal::new(&context(query));
            body.chunks(piece).try_for_each(|piece| journal.feed(piece))?;
            journal.finish()?;
            Ok((rows_of(&journal.rows.take_all()), journal.rows.report))
        };
        let whole = decode(body.len().max(1));
        let told = |outcome: &Result<(Vec<Value>, Report)>| match outcome {
            Ok(read) => Ok(read.clone()),
            Err(e) => Err(e.to_string()),
        };
        for piece in [1, 2, 7, 100] {
            assert_eq!(told(&decode(piece)), told(&whole), "by {piece}");
        }
        whole
    }

    fn check(body: &[u8], expected: &[Value]) {
        let (rows, report) = read(&[], body).expect("entries");
        assert_eq!((&rows[..], report.dropped_count()), (expected, 0), "{}", body.escape_ascii());
    }

    /// A field with its length before it.
    fn binary(name: &str, value: &[u8]) -> Vec<u8> {
        [name.as_bytes(), b"\n", &(value.len() as u64).to_le_bytes(), value, b"\n"].concat()
    }

    #[test]
    fn entries() {
        let time = b"__REALTIME_TIMESTAMP=1729698775704404\n";
        check(b"", &[]);
        check(b"\n\n", &[]);
        check(&[&time[..], b"MESSAGE=a=b\n\n"].concat(), &[json!({"_time": T0, "_msg": "a=b"})]);
        let two = [&time[..], b"PRIORITY=3\nMESSAGE=one\n\n\n", time, b"MESSAGE=two\nN=1\nN=2"].concat();
        let second = json!({"_time": T0, "_msg": "two", "N": "2"});
        check(&two, &[json!({"_time": T0, "_msg": "one", "level": "error", "PRIORITY": "3"}), second]);
        let place = b"__CURSOR=s=e0;i=1\n__SEQNUM=7\n_PID=5\nPRIORITY=9\n\n__CURSOR=x\n\n";
        check(&[&time[..], place].concat(), &[json!({"_time": T0, "_PID": "5", "PRIORITY": "9"})]);
    }

    /// The unit of an entry's time does not follow from its size: where a clock was not set yet, it is a small number.
    #[test]
    fn times_are_microseconds() {
        let given = |time: &str, query: &[(&str, &str)]| {
            let (rows, report) =
                read(query, format!("__REALTIME_TIMESTAMP={time}\nMESSAGE=m\n\n").as_bytes()).expect(time);
            (rows.first().map(|row| row["_time"].clone()), report.dropped().collect::<Vec<_>>())
        };
        for (time, expected) in [
            ("5000000", 5_000_000_000),
            ("1741600001", 1_741_600_001_000),
            ("1729698775704404", T0),
            ("-5", -5_000),
            ("0", NOW),
            ("", NOW),
        ] {
            assert_eq!(given(time, &[]), (Some(json!(expected)), vec![]), "{time}");
        }
        for time in ["x", "1.5", "2025-03-10T00:00:00Z", "99999999999999999999"] {
            assert_eq!(given(time, &[]), (None, vec![(DropReason::BadTime, 1)]), "{time}");
        }
        assert_eq!(given("9223372036854775807", &[]), (None, vec![(DropReason::TooNew, 1)]));
        assert_eq!(given("5", &[("_time_field", "AT")]), (Some(json!(NOW)), vec![]), "another field has the time");
    }

    #[test]
    fn values_with_line_breaks() {
        let time = b"__REALTIME_TIMESTAMP=1729698775704404\n";
        let values: [(&[u8], &str); 4] =
            [(b"foo\nbar\n\n\n=", "foo\nbar\n\n\n="), (b"x\n", "x\n"), (b"\n", "\n"), (b"a\xffb", "a\u{fffd}b")];
        for (value, expected) in values {
            let body = [&time[..], &binary("MESSAGE", value), b"_PID=1\n\n"].concat();
            check(&body, &[json!({"_time": T0, "_msg": expected, "_PID": "1"})]);
        }
        check(&[&time[..], &binary("MESSAGE", b""), b"_PID=1\n"].concat(), &[json!({"_time": T0, "_PID": "1"})]);
        for broken in [
            [&time[..], b"MESSAGE\n\x02\0\0\0\0\0\0\0abc\n\n"].concat(),
            [&time[..], b"MESSAGE\n\x09\0\0\0\0\0\0\0abc"].concat(),
            [&time[..], b"MESSAGE\n\x09\0"].concat(),
            [&time[..], b"MESSAGE\n\x09\0\0\0\0\0\0"].concat(),
            [&time[..], b"MESSAGE\n\xff\xff\xff\xff\xff\xff\xff\xffabc\n\n"].concat(),
            [&time[..], b"MESSAGE"].concat(),
        ] {
            let error = read(&[], &broken).expect_err("it is broken").to_string();
            assert!(error.contains("entry 1: ") && error.contains("a value"), "{error}");
        }
    }

    #[test]
    fn streams_and_parameters() {
        let body = b"_HOSTNAME=h\n_SYSTEMD_UNIT=u\nMESSAGE=m\n__REALTIME_TIMESTAMP=1729698775704404\nTEXT=t\nAT=1741600000\n\n";
        let fields = json!({"_HOSTNAME": "h", "_SYSTEMD_UNIT": "u", "_msg": "m", "TEXT": "t", "AT": "1741600000"});
        let row = |time: i64, stream: Value, without: &str| {
            let mut row = fields.clone();
            let of_row = row.as_object_mut().expect("an object");
            of_row.remove(without);
            of_row.insert("_time".into(), json!(time));
            of_row.insert("_stream".into(), stream);
            row
        };
        let labels = json!({"_HOSTNAME": "h", "_SYSTEMD_UNIT": "u"});
        check(body, &[row(T0, labels.clone(), "")]);
        let given = |query: &[(&str, &str)]| read(query, body).expect("an entry").0;
        assert_eq!(given(&[("_stream_fields", "TEXT")]), [row(T0, json!({"TEXT": "t"}), "")]);
        assert_eq!(given(&[("_time_field", "AT")]), [row(1_741_600_000_000_000_000, labels, "AT")]);
        let renamed = &given(&[("_msg_field", "TEXT")])[0];
        assert_eq!((&renamed["_msg"], &renamed["MESSAGE"], &renamed["TEXT"]), (&json!("t"), &json!("m"), &Value::Null));
    }

    /// Breaks if a body that is not a journal is accepted, or an entry that is too long takes others with it.
    #[test]
    fn entries_that_are_dropped() {
        let (rows, report) = read(&[], b"{\"a\":\"b=c\"}\n1A=x\n=y\n\na=1\n").expect("lines");
        assert!(rows.is_empty() && report.all_faulty(), "{report:?}");
        assert_eq!(report.first_fault.as_deref(), Some("entry 1: no field of a journal"));
        let long = "x".repeat((256 << 10) + 1);
        let name = "N".repeat(65);
        for field in [format!("MESSAGE={long}\n").into_bytes(), binary("MESSAGE", long.as_bytes())] {
            let body = [&b"A=1\n"[..], &field, b"B=2\n\n", format!("A=3\n{name}=4\n\n").as_bytes()].concat();
            let mut journal = Journal::new(&context(&[]));
            body.chunks(5000).for_each(|piece| journal.feed(piece).expect("entries"));
            journal.finish().expect("the end of an entry");
            let rows = rows_of(&journal.rows.take_all());
            assert_eq!(rows.iter().map(|row| &row["A"]).collect::<Vec<_>>(), [&json!("3")]);
            let dropped: Vec<_> = journal.rows.report.dropped().collect();
            assert_eq!(dropped, [(DropReason::LongLine, 1)]);
            assert!(journal.kept_bytes() < 1 << 20, "what is passed over is not kept");
        }
    }

    /// Rows are stored while an entry arrives, which must not become a part of them.
    #[test]
    fn rows_may_be_taken_at_any_time() {
        let body = [&b"A=1\nB=2\n\nA=3\n"[..], &binary("B", b"4\n"), b"C=5\n\nA=6\n"].concat();
        let (expected, _) = read(&[], &body).expect("entries");
        let (mut journal, mut rows) = (Journal::new(&context(&[])), Vec::new());
        for byte in &body {
            journal.feed(&[*byte]).expect("an entry");
            rows.extend(rows_of(&journal.rows.take_all()));
        }
        journal.finish().expect("the end");
        rows.extend(rows_of(&journal.rows.take_all()));
        assert_eq!(rows, expected);
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn entries_are_bounded() {
        let (many, large) = ("A=1\n".repeat(2001), format!("A={}\n", "x".repeat(200 << 10)).repeat(11));
        for (body, why) in [(many, DropReason::TooManyFields), (large, DropReason::LargeRow)] {
            let mut journal = Journal::new(&context(&[]));
            journal.feed(body.as_bytes()).expect("fields");
            journal.finish().expect("the end");
            assert_eq!(journal.rows.report.dropped().collect::<Vec<_>>(), [(why, 1)]);
        }
        assert_eq!(read(&[], "A=1\n".repeat(2000).as_bytes()).expect("an entry").0.len(), 1, "equal names count once");
    }

    #[test]
    fn names() {
        for (name, expected) in [
            ("", false),
            ("a", false),
            ("1", false),
            ("_", true),
            ("X", true),
            ("Xa", false),
            ("X_09", true),
            ("A B", false),
        ] {
            assert_eq!(is_name(name.as_bytes()), expected, "{name}");
        }
    }
}
