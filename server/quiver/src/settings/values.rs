//! Types of settings in the notation of users: sizes, durations.

use std::time::Duration;

use quiver_types::time::duration;
use serde::{Deserialize, Deserializer};
use toml::Value;

/// A number of bytes, written `512MiB`, `20GiB` or plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// A span of time, written `15s`, `10m`, `30d`; `none` where a setting allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Option<Duration>);

/// A text that is never shown, since it contains a password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedText(pub String);

impl std::fmt::Debug for RedactedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.shown())
    }
}

impl<'de> Deserialize<'de> for RedactedText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Value::deserialize(d)? {
            Value::String(text) => Ok(Self(text)),
            // An error of the parser would show the value.
            _ => Err(serde::de::Error::custom("expected a text in quotes")),
        }
    }
}

impl SettingValue for RedactedText {
    fn shown(&self) -> serde_json::Value {
        if self.0.is_empty() { "".into() } else { "<secret>".into() }
    }
}

/// A duration for one signal; empty: that of all signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnSpan(pub Option<Span>);

impl Size {
    fn parse(text: &str) -> Option<Self> {
        let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let factor = match &text[at..] {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1u64 << 40,
            _ => return None,
        };
        Some(Self(text[..at].parse::<u64>().ok()?.checked_mul(factor)?))
    }
}

impl Span {
    fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self(None));
        }
        let ms = duration::parse(text).ok().filter(|ms| *ms >= 0)?;
        Some(Self(Some(Duration::from_millis(ms as u64))))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = text_or_number(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a size such as `512MiB`")))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = text_or_number(d)?;
        let bad = || serde::de::Error::custom(format!("`{text}` is not a span of time such as `15s`, `30d` or `none`"));
        Self::parse(&text).ok_or_else(bad)
    }
}

impl<'de> Deserialize<'de> for OwnSpan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = text_or_number(d)?;
        if text.is_empty() {
            return Ok(Self(None));
        }
        let bad = || serde::de::Error::custom(format!("`{text}` is not a span of time such as `30d`, `none` or empty"));
        Span::parse(&text).map(|span| Self(Some(span))).ok_or_else(bad)
    }
}

/// An error of the parser in one line, with the types of values as users know them.
pub(super) fn in_words(error: &str) -> String {
    // It says in a line of its own in which section it is.
    let line = error.trim_end().replace('\n', " ");
    let words = [
        ("expected usize", "expected a whole number, zero or more"),
        ("expected u64", "expected a whole number, zero or more"),
        ("expected a sequence", "expected a list such as `[\"a\", \"b\"]`"),
        ("expected a boolean", "expected `true` or `false`"),
        ("expected struct OidcIssuer", "expected a table with `issuer` and `audiences`"),
        ("unknown field", "unknown setting"),
        ("missing field", "missing setting"),
    ];
    words.iter().fold(line, |line, (theirs, ours)| line.replace(theirs, ours))
}

/// Where a file is no TOML, and why; without the line itself, which may hold a password.
pub(super) fn place_and_reason(error: &toml::de::Error, text: &str) -> String {
    let reason = error.message().trim_end().replace('\n', " ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return reason };
    let line = line_of(text, before.len());
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {line}, column {column}: {reason}")
}

/// The line, from 1 on, in which a byte of a text is.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

fn text_or_number<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// A value in the notation of users.
pub(super) trait SettingValue {
    /// The value as JSON.
    fn shown(&self) -> serde_json::Value;
}

macro_rules! shown_as_it_is {
    ($($type:ty),*) => {
        $(impl SettingValue for $type {
            fn shown(&self) -> serde_json::Value {
                self.clone().into()
            }
        })*
    };
}

shown_as_it_is!(String, bool, usize, u64, Vec<String>);

impl SettingValue for Size {
    fn shown(&self) -> serde_json::Value {
        let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let unit = units.into_iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        unit.map_or_else(|| self.0.to_string(), |(name, bytes)| format!("{}{name}", self.0 / bytes)).into()
    }
}

impl SettingValue for Span {
    fn shown(&self) -> serde_json::Value {
        let Some(span) = self.0 else { return "none".into() };
        let ms = span.as_millis();
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
        let unit = units.into_iter().find(|(_, unit_ms)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms));
        unit.map_or_else(|| format!("{ms}ms"), |(name, unit_ms)| format!("{}{name}", ms / unit_ms)).into()
    }
}

impl SettingValue for OwnSpan {
    fn shown(&self) -> serde_json::Value {
        self.0.map_or_else(|| "".into(), |span| span.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::super::LoadedSettings;
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let url = "postgres://me:hunter2@db/quiver";
        let given = [("QUIVER_CONFIG__DATABASE_URL".to_owned(), url.to_owned())];
        let loaded = LoadedSettings::load(None, given.into_iter(), &[]).unwrap();
        assert_eq!(loaded.settings.config.database_url.0, url);
        assert!(!format!("{:?}{loaded:?}", loaded.settings).contains("hunter2"));
        assert!(!format!("{:?}", loaded.settings.listed()).contains("hunter2"));
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("7B", Some(7)),
            ("1KiB", Some(1024)),
            ("64MiB", Some(64 << 20)),
            ("20GiB", Some(20 << 30)),
            ("3TiB", Some(3 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216TiB", None),
            ("", None),
            ("KiB", None),
            ("-1", None),
            ("1.5GiB", None),
            ("1 GiB", None),
            (" 1", None),
            ("1kb", None),
            ("1KB", None),
            ("1mib", None),
            ("1M", None),
            ("0x10", None),
        ] {
            assert_eq!(Size::parse(text), expected.map(Size), "{text}");
        }
    }

    #[test]
    fn spans() {
        let ms = |ms: u64| Some(Span(Some(Duration::from_millis(ms))));
        for (text, expected) in [
            ("none", Some(Span(None))),
            ("0", ms(0)),
            ("0s", ms(0)),
            ("15s", ms(15_000)),
            ("1h30m", ms(5_400_000)),
            ("30d", ms(2_592_000_000)),
            ("250ms", ms(250)),
            ("", None),
            ("None", None),
            ("15", None),
            ("1.5s", None),
            ("-1s", None),
            ("15 s", None),
            ("1s1h", None),
            ("300y", None),
        ] {
            assert_eq!(Span::parse(text), expected, "{text}");
        }
    }

    /// A value that is shown is parsed as the same value.
    #[test]
    fn shown_as_they_are_written() {
        for (bytes, shown) in [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1024, "1KiB"),
            (1536, "1536"),
            (1 << 20, "1MiB"),
            (3 << 30, "3GiB"),
            (1 << 40, "1TiB"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(Size(bytes).shown(), shown, "{bytes}");
            assert_eq!(Size::parse(shown), Some(Size(bytes)), "{bytes}");
        }
        for (ms, shown) in [
            (0, "0ms"),
            (1, "1ms"),
            (1500, "1500ms"),
            (60_000, "1m"),
            (90_000, "90s"),
            (7_200_000, "2h"),
            (86_400_000, "1d"),
        ] {
            let span = Span(Some(Duration::from_millis(ms)));
            assert_eq!(span.shown(), shown, "{ms}");
            assert_eq!(Span::parse(shown), Some(span), "{ms}");
        }
        assert_eq!((Span(None).shown(), OwnSpan(None).shown()), ("none".into(), "".into()));
        assert_eq!(OwnSpan(Some(Span(None))).shown(), "none");
        assert_eq!(
            (RedactedText(String::new()).shown(), RedactedText("x".to_owned()).shown()),
            ("".into(), "<secret>".into())
        );
    }

    /// In a file a size need not be quoted; the error for an invalid one names the setting and the value.
    #[test]
    fn read_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            let path = dir.path().join("quiver.toml");
            std::fs::write(&path, text).unwrap();
            LoadedSettings::load(Some(&path), std::iter::empty(), &[])
        };
        let loaded = load("[http]\nbody_max = 4096\nkeep_alive = '5m'\n[store]\nretention_logs = ''\n").unwrap();
        assert_eq!(loaded.settings.http.body_max, Size(4096));
        assert_eq!(loaded.settings.http.keep_alive, Span(Some(Duration::from_mins(5))));
        assert_eq!(loaded.settings.store.retention_logs, OwnSpan(None));
        for (text, part) in [
            ("[http]\nbody_max = -1\n", "`-1` is not a size such as `512MiB`"),
            ("[http]\nbody_max = 1.5\n", "`1.5` is not a size"),
            ("[http]\nbody_max = true\n", "`true` is not a size"),
            ("[http]\nkeep_alive = 5\n", "`5` is not a span of time such as `15s`, `30d` or `none`"),
            ("[store]\nretention_logs = 'long'\n", "`long` is not a span of time such as `30d`, `none` or empty"),
            ("[http]\nconnections_max = 'many'\n", "expected a whole number, zero or more in `http.connections_max`"),
            ("[query]\nrows_max = -1\n", "expected a whole number, zero or more in `query.rows_max`"),
            ("[http]\ncors_origins = '*'\n", "expected a list such as `[\"a\", \"b\"]` in `http.cors_origins`"),
            ("[log]\naccess = 1\n", "expected `true` or `false` in `log.access`"),
            ("[http]\nlisten = 5\n", "listen"),
            ("[http]\nlistn = 'x'\n", "unknown setting `listn`"),
            ("[[auth.oidc]]\nissuer = 'https://a'\n", "missing setting `audiences`"),
            ("http = 5\n", "`http` is a section"),
            ("[htp]\n", "unknown section `htp`"),
            ("listen = 'x'\n", "unknown section `listen`; sections are `http`, `tls`, "),
        ] {
            let told = load(text).unwrap_err().to_string();
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
