//! Values of settings as users write them: sizes, spans of time.

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

/// A text that nobody is shown: it holds a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.shown())
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self)
    }
}

impl Shown for Hidden {
    fn shown(&self) -> serde_json::Value {
        if self.0.is_empty() { "".into() } else { "<secret>".into() }
    }
}

/// A span of time of one signal; empty where it is that of all.
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

fn text_or_number<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// A value as a user would write it.
pub(super) trait Shown {
    /// Gives the value as JSON.
    fn shown(&self) -> serde_json::Value;
}

macro_rules! shown_as_it_is {
    ($($type:ty),*) => {
        $(impl Shown for $type {
            fn shown(&self) -> serde_json::Value {
                self.clone().into()
            }
        })*
    };
}

shown_as_it_is!(String, bool, usize, u64, Vec<String>);

impl Shown for Size {
    fn shown(&self) -> serde_json::Value {
        let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let unit = units.into_iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        unit.map_or_else(|| self.0.to_string(), |(name, bytes)| format!("{}{name}", self.0 / bytes)).into()
    }
}

impl Shown for Span {
    fn shown(&self) -> serde_json::Value {
        let Some(span) = self.0 else { return "none".into() };
        let ms = span.as_millis();
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
        let unit = units.into_iter().find(|(_, unit_ms)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms));
        unit.map_or_else(|| format!("{ms}ms"), |(name, unit_ms)| format!("{}{name}", ms / unit_ms)).into()
    }
}

impl Shown for OwnSpan {
    fn shown(&self) -> serde_json::Value {
        self.0.map_or_else(|| "".into(), |span| span.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Loaded;

    #[test]
    fn passwords_are_not_shown() {
        let url = "postgres://me:hunter2@db/quiver";
        let given = [("QUIVER_CONFIG__DATABASE_URL".to_owned(), url.to_owned())];
        let loaded = Loaded::load(None, given.into_iter(), &[]).unwrap();
        assert_eq!(loaded.settings.config.database_url.0, url);
        assert!(!format!("{:?}{loaded:?}", loaded.settings).contains("hunter2"));
        assert!(!format!("{:?}", loaded.settings.listed()).contains("hunter2"));
    }
}
