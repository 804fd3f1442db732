//! The field-handling parameters that every log endpoint takes, as query parameter or header.
//!
//! The query string wins over the header; the two are not merged. Lists are separated by commas.

use std::sync::Arc;

use quiver_types::logs::{MSG, STREAM, STREAM_ID, TIME};

use crate::error::{Error, Result};

/// A parameter: its name in the query string, and its names as header.
pub type Parameter = (&'static str, [&'static str; 2]);

/// The parameters of every log endpoint.
pub const PARAMETERS: [Parameter; 7] = [
    ("_time_field", ["logs-time-field", "vl-time-field"]),
    ("_msg_field", ["logs-msg-field", "vl-msg-field"]),
    ("_stream_fields", ["logs-stream-fields", "vl-stream-fields"]),
    ("ignore_fields", ["logs-ignore-fields", "vl-ignore-fields"]),
    ("extra_fields", ["logs-extra-fields", "vl-extra-fields"]),
    ("decolorize_fields", ["logs-decolorize-fields", "vl-decolorize-fields"]),
    ("preserve_json_keys", ["logs-preserve-json-keys", "vl-preserve-json-keys"]),
];

/// A parameter of aggregators' pushes: lines that are JSON objects are not parsed.
pub const KEEP_MESSAGES: Parameter =
    ("disable_message_parsing", ["logs-disable-message-parsing", "vl-loki-disable-message-parsing"]);

/// Another one of theirs: what the names of fields of lines that are JSON objects begin with, so that they are not taken
/// for labels.
pub const MESSAGE_PREFIX: Parameter =
    ("message_fields_prefix", ["logs-message-fields-prefix", "vl-loki-message-fields-prefix"]);

/// What VictoriaLogs reads and does not store. Refused, as storing is what its sender does not want.
const DEBUG: Parameter = ("debug", ["logs-debug", "vl-debug"]);

/// Most entries of a list: each is held against each name, and many against each row.
const ENTRIES_MAX: usize = 256;

/// How the fields of a request are handled.
#[derive(Debug, Clone, Default)]
pub struct FieldOptions {
    /// Fields that may hold the time, of which the first present one counts; `None` for the format's default.
    pub time: Option<Vec<String>>,
    /// Fields that may hold the message, of which the first non-empty one counts; `None` for the format's default.
    pub msg: Option<Vec<String>>,
    /// Fields that make up the stream, sorted; `None` for the format's default.
    pub stream: Option<Vec<String>>,
    /// Fields to drop; an entry that ends in `*` is a prefix.
    pub ignore: Vec<String>,
    /// Fields that are added to each row.
    pub extra: Vec<(String, String)>,
    /// Fields that name the service of a row, the first non-empty one counts (`identity-and-access` 4.1).
    pub service: Arc<[String]>,
    /// Whether lines of an aggregator that are JSON objects are not parsed.
    pub keep_messages: bool,
    /// What the names of fields of such lines begin with.
    pub message_prefix: String,
    /// Fields to strip of ANSI escape sequences; an entry that ends in `*` is a prefix.
    pub decolorize: Vec<String>,
    /// Fields whose objects stay JSON.
    pub preserve: Vec<String>,
    /// The message of rows without one; if empty, they get none.
    pub default_msg: Arc<str>,
}

impl FieldOptions {
    /// Reads the parameters; `query` and `header` look one up by name.
    ///
    /// # Errors
    /// Invalid: an entry of `extra_fields` without `=`, name or value, or with a name that rows cannot have; a list of too
    /// many entries; `disable_message_parsing` that is neither true nor false; a prefix that leaves no room for names;
    /// `debug`.
    pub fn read<'a>(
        query: impl Fn(&str) -> Option<&'a str>,
        header: impl Fn(&str) -> Option<&'a str>,
        service: &Arc<[String]>,
    ) -> Result<Self> {
        let value = |(parameter, names): Parameter| {
            let own = query(parameter).filter(|v| !v.is_empty());
            own.or_else(|| names.into_iter().find_map(&header)).filter(|v| !v.trim().is_empty())
        };
        if let Some(asked) = value(DEBUG)
            && switch(DEBUG.0, asked)?
        {
            let what = "rows are stored, not only shown; leave it out";
            return Err(Error::Parameter { name: DEBUG.0, what, value: crate::content_encoding::cut(asked) });
        }
        let prefix = value(MESSAGE_PREFIX).unwrap_or_default();
        if prefix.len() >= super::NAME_BYTES_MAX {
            let value = crate::content_encoding::cut(prefix);
            return Err(Error::Parameter { name: MESSAGE_PREFIX.0, what: "the prefix is too long", value });
        }
        let list = |i: usize| value(PARAMETERS[i]).map(|text| list(PARAMETERS[i].0, text)).transpose();
        let mut stream = list(2)?;
        if let Some(stream) = &mut stream {
            stream.sort_unstable();
            stream.dedup();
        }
        Ok(Self {
            time: list(0)?,
            msg: list(1)?,
            stream,
            ignore: list(3)?.unwrap_or_default(),
            extra: value(PARAMETERS[4]).map(extra).transpose()?.unwrap_or_default(),
            service: Arc::clone(service),
            message_prefix: prefix.to_owned(),
            keep_messages: value(KEEP_MESSAGES).map_or(Ok(false), |text| switch(KEEP_MESSAGES.0, text))?,
            decolorize: list(5)?.unwrap_or_default(),
            preserve: list(6)?.unwrap_or_default(),
            default_msg: Arc::default(),
        })
    }

    /// Whether fields of a name are dropped.
    pub(crate) fn ignores(&self, name: &str) -> bool {
        is_listed(&self.ignore, name)
    }

    /// Whether a stream keeps a label of a name that the input gives: its field is not dropped, and the request does not
    /// set it to another value.
    pub(crate) fn keeps_label(&self, name: &str) -> bool {
        let is_reserved = [TIME, STREAM, STREAM_ID].contains(&name);
        !is_reserved && !self.ignores(name) && !self.extra.iter().any(|(extra, _)| extra == name)
    }

    /// Whether values of a name are stripped of ANSI escape sequences.
    pub(crate) fn decolorizes(&self, name: &str) -> bool {
        is_listed(&self.decolorize, name)
    }
}

fn too_many(name: &'static str, text: &str) -> Error {
    Error::Parameter { name, what: "expected at most 256 entries", value: crate::content_encoding::cut(text) }
}

fn list(name: &'static str, text: &str) -> Result<Vec<String>> {
    let entries = text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned);
    let list: Vec<String> = entries.take(ENTRIES_MAX + 1).collect();
    if list.len() > ENTRIES_MAX { Err(too_many(name, text)) } else { Ok(list) }
}

/// Whether a list of names and prefixes has a name. Who drops a journal's `_*` does not mean the message: that takes
/// `_msg`, or `*`.
fn is_listed(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix) && (prefix.is_empty() || name != MSG),
        None => name == entry || entry.is_empty() && name == MSG,
    })
}

fn switch(name: &'static str, text: &str) -> Result<bool> {
    match text.trim() {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        other => {
            Err(Error::Parameter { name, what: "expected true or false", value: crate::content_encoding::cut(other) })
        }
    }
}

fn extra(text: &str) -> Result<Vec<(String, String)>> {
    let mut all: Vec<(String, String)> = Vec::new();
    for entry in text.split(',') {
        let bad = |what| Error::Parameter { name: "extra_fields", what, value: crate::content_encoding::cut(entry) };
        let (name, value) = entry.split_once('=').ok_or_else(|| bad("expected `name=value`"))?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            return Err(bad("name and value must not be empty"));
        }
        if [TIME, STREAM, STREAM_ID].contains(&name) {
            return Err(bad("this name is reserved"));
        }
        if name.len() > super::NAME_BYTES_MAX {
            return Err(bad("the name is too long"));
        }
        all.retain(|(known, _)| known != name);
        all.push((name.to_owned(), value.to_owned()));
        if all.len() > ENTRIES_MAX {
            return Err(too_many(PARAMETERS[4].0, text));
        }
    }
    Ok(all)
}

/// The defaults of a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    /// Fields that hold the time.
    pub(crate) time: &'static [&'static str],
    /// Fields that hold the message.
    pub(crate) msg: &'static [&'static str],
    /// Whether the input's field `_stream` gives the labels of the stream.
    pub(crate) reads_stream: bool,
    /// Whether a date without a time of day is accepted as time.
    pub(crate) dates: bool,
}

impl Defaults {
    /// JSON lines: `_time` and `_msg`.
    pub(crate) const LINES: Self = Self { time: &[TIME], msg: &[MSG], reads_stream: true, dates: false };
    /// The bulk format: like JSON lines, and dates are accepted.
    pub(crate) const BULK: Self = Self { dates: true, ..Self::LINES };
    /// The SaaS intake: `timestamp` and `message`.
    pub(crate) const SAAS: Self = Self { time: &["timestamp"], msg: &["message"], ..Self::LINES };
    /// The journal of systemd, which has times of its own.
    pub(crate) const JOURNAL: Self = Self { time: &[], msg: &["MESSAGE"], reads_stream: false, dates: false };
    /// Events of Splunk's collector: `time`, and `event` or a part of it.
    pub(crate) const EVENTS: Self = Self {
        time: &["time"],
        msg: &["event", "event.log", "event.line", "event.message"],
        reads_stream: false,
        dates: false,
    };
    /// Formats whose records have a time and a message apart from fields.
    pub(crate) const RECORDS: Self = Self { time: &[], msg: &[MSG], reads_stream: false, dates: false };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &[(&str, &str)], header: &[(&str, &str)]) -> Result<FieldOptions> {
        let find = |list: &[(&str, &str)], name: &str| {
            list.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned().leak() as &'static str)
        };
        FieldOptions::read(|n| find(query, n), |n| find(header, n), &Arc::from([]))
    }

    #[test]
    fn parameters() {
        let options = read(
            &[("_stream_fields", "host,app , app"), ("extra_fields", "a=b=c,d=e"), ("_msg_field", "")],
            &[
                ("logs-stream-fields", "x"),
                ("logs-msg-field", "message,msg"),
                ("logs-ignore-fields", "a*,b"),
                ("vl-decolorize-fields", "c*"),
            ],
        );
        let options = options.unwrap();
        assert_eq!(options.stream.as_deref(), Some(&["app".to_owned(), "host".to_owned()][..]));
        assert_eq!(options.msg.as_deref(), Some(&["message".to_owned(), "msg".to_owned()][..]));
        assert_eq!(options.time, None);
        assert!(!options.keep_messages && options.decolorizes("c1") && !options.decolorizes("m"));
        assert_eq!(options.extra, [("a".to_owned(), "b=c".to_owned()), ("d".to_owned(), "e".to_owned())]);
        for (name, ignored) in [("a", true), ("abc", true), ("b", true), ("bc", false), ("c", false)] {
            assert_eq!(options.ignores(name), ignored, "{name}");
        }
        for bad in ["a", "=b", "a=", "a=b,", "_time=1", "a=b,c"] {
            let error = read(&[("extra_fields", bad)], &[]).unwrap_err();
            assert_eq!(error.kind(), quiver_types::ErrorKind::Invalid, "{bad}");
        }
        assert!(read(&[], &[("vl-loki-disable-message-parsing", "1")]).unwrap().keep_messages);
        assert!(!read(&[(KEEP_MESSAGES.0, "0")], &[("vl-loki-disable-message-parsing", "1")]).unwrap().keep_messages);
        assert!(read(&[(KEEP_MESSAGES.0, "x")], &[]).is_err());
    }

    #[test]
    fn prefixes_leave_room_for_names() {
        let prefix = |text: &str| read(&[(MESSAGE_PREFIX.0, text)], &[("vl-loki-message-fields-prefix", "h.")]);
        assert_eq!(prefix("q.").unwrap().message_prefix, "q.");
        assert_eq!(prefix("").unwrap().message_prefix, "h.");
        let error = prefix(&"p".repeat(128)).unwrap_err().to_string();
        let shown = "p".repeat(100);
        let expected = format!("invalid parameter `message_fields_prefix`: the prefix is too long, got `{shown}`");
        assert_eq!(error, expected);
    }

    #[test]
    fn lists_and_switches() {
        let texts = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let options = read(
            &[("_time_field", " ts ,, time,"), ("preserve_json_keys", "a.b"), ("decolorize_fields", ",")],
            &[("vl-time-field", "x"), ("logs-preserve-json-keys", "c")],
        )
        .unwrap();
        assert_eq!(options.time, Some(texts(&["ts", "time"])));
        assert_eq!((options.preserve, options.decolorize.len()), (texts(&["a.b"]), 0));
        // The product's own header names take precedence.
        let options = read(&[], &[("vl-ignore-fields", "a"), ("logs-ignore-fields", "b")]).unwrap();
        assert_eq!((options.ignore, options.stream), (texts(&["b"]), None));
        let options = read(&[("_stream_fields", " , ")], &[]).unwrap();
        assert_eq!(options.stream, Some(Vec::new()), "a list of nothing is a list");
        for (text, expected) in
            [("1", true), (" TRUE ", true), ("t", true), ("0", false), ("F", false), ("False", false)]
        {
            assert_eq!(read(&[(KEEP_MESSAGES.0, text)], &[]).unwrap().keep_messages, expected, "{text}");
        }
        for bad in ["yes", "on", "2", "tRUE", "1 0"] {
            let error = read(&[(KEEP_MESSAGES.0, bad)], &[]).unwrap_err().to_string();
            let expected = format!("invalid parameter `disable_message_parsing`: expected true or false, got `{bad}`");
            assert_eq!(error, expected);
        }
        let all = FieldOptions { ignore: texts(&[""]), decolorize: texts(&["*"]), ..FieldOptions::default() };
        assert!(all.ignores(MSG) && !all.ignores("a") && all.decolorizes("a") && all.decolorizes(""));
        assert!(all.decolorizes(MSG));
        let underscored = FieldOptions { ignore: texts(&["_*", "_msg*"]), ..FieldOptions::default() };
        assert!(underscored.ignores("_PID") && underscored.ignores("_msg2") && !underscored.ignores(MSG));
    }

    /// Callers who ask for it expect that nothing is stored.
    #[test]
    fn trying_without_storing_is_refused() {
        for (query, header) in
            [(&[("debug", "1")][..], &[][..]), (&[("debug", "true")], &[]), (&[], &[("vl-debug", "1")])]
        {
            let error = read(query, header).unwrap_err();
            assert_eq!(error.kind(), quiver_types::ErrorKind::Invalid);
            assert!(error.to_string().starts_with("invalid parameter `debug`: rows are stored"), "{error}");
        }
        for value in ["0", "false", ""] {
            assert!(read(&[("debug", value)], &[]).is_ok(), "{value}");
        }
        assert!(read(&[("debug", "yes")], &[]).is_err());
    }

    /// Thousands of them fit in a head, and would be gone through for each name or row.
    #[test]
    fn lists_end_somewhere() {
        for (name, entry) in PARAMETERS.map(|(name, _)| (name, if name == "extra_fields" { "=1" } else { "" })) {
            let listed = |count: usize| (0..count).map(|n| format!("f{n}{entry}")).collect::<Vec<_>>().join(",");
            assert!(read(&[(name, &listed(256))], &[]).is_ok(), "{name}");
            let error = read(&[(name, &listed(257))], &[]).unwrap_err();
            assert_eq!(error.kind(), quiver_types::ErrorKind::Invalid, "{name}");
            assert!(
                error.to_string().starts_with(&format!("invalid parameter `{name}`: expected at most 256")),
                "{error}"
            );
        }
    }

    #[test]
    fn fields_that_each_row_gets() {
        let extra = |text: &str| read(&[("extra_fields", text)], &[]).map(|options| options.extra);
        let pairs =
            |list: &[(&str, &str)]| list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
        assert_eq!(extra(" a = 1 ,b==, a=2").unwrap(), pairs(&[("b", "="), ("a", "2")]), "the last one counts");
        assert_eq!(extra("_msg=x").unwrap(), pairs(&[("_msg", "x")]));
        let longest = "n".repeat(128);
        assert_eq!(extra(&format!("{longest}=1")).unwrap()[0].0, longest);
        let check = |text: &str, what: &str, value: &str| {
            let error = extra(text).unwrap_err().to_string();
            assert_eq!(error, format!("invalid parameter `extra_fields`: {what}, got `{value}`"));
        };
        check("a=1,b", "expected `name=value`", "b");
        check("a=1,", "expected `name=value`", "");
        check(" =1", "name and value must not be empty", " =1");
        check("a= ", "name and value must not be empty", "a= ");
        check("_stream_id=1", "this name is reserved", "_stream_id=1");
        check("x=1,_stream =1", "this name is reserved", "_stream =1");
        check(&format!("{longest}n=1"), "the name is too long", &"n".repeat(100));
    }
}
