//! Services by name or pattern, as used in rights.

/// Longest name or pattern of a service in a triple, in bytes.
const SERVICE_BYTES_MAX: usize = 512;

/// The services of a right: one by name, those with a prefix (`cart*`), or all (`*`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Services(String);

impl Services {
    /// All services, including records without one.
    pub fn all() -> Self {
        Self("*".to_owned())
    }

    /// Reads a name or pattern; none when it cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        let body = text.strip_suffix('*').unwrap_or(text);
        let sane = !text.is_empty() && text.len() <= SERVICE_BYTES_MAX && !text.chars().any(char::is_control);
        (sane && !body.contains('*')).then(|| Self(text.to_owned()))
    }

    /// The name or pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Says whether these are all services.
    pub fn is_all(&self) -> bool {
        self.0 == "*"
    }

    /// The prefix that they share; `None` for a single service.
    pub fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    /// Says whether a service is among them; the empty name is no service, which only `*` covers.
    pub fn allows(&self, service: &str) -> bool {
        match self.prefix() {
            Some("") => true,
            Some(prefix) => !service.is_empty() && service.starts_with(prefix),
            None => self.0 == service,
        }
    }

    /// Says whether all of the others are among them.
    pub fn covers(&self, other: &Self) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(mine), Some(theirs)) => theirs.starts_with(mine),
            (None, Some(_)) => false,
            (_, None) => self.allows(&other.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_of_services() {
        for (text, name, expected) in [
            ("*", "", true),
            ("*", "a", true),
            ("a*", "", false),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("a", "A", false),
            ("é*", "été", true),
        ] {
            assert_eq!(Services::parse(text).expect(text).allows(name), expected, "{text} {name}");
        }
        let longest = "x".repeat(SERVICE_BYTES_MAX);
        assert!(Services::parse(&longest).is_some() && Services::parse(&format!("{longest}*")).is_none());
        for wrong in ["", "**", "a*b", "*a", "a\nb", "a\u{7f}"] {
            assert_eq!(Services::parse(wrong), None, "{wrong:?}");
        }
        assert!(Services::all().is_all() && !Services::parse("a*").is_some_and(|some| some.is_all()));
    }
}
