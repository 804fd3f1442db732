//! Case sensitivity of text comparisons.

use std::borrow::Cow;

/// Whether comparisons of texts are case-sensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// `A` and `a` differ.
    Sensitive,
    /// `A` and `a` are the same.
    Insensitive,
}

impl Case {
    /// Case counts unless it is ignored.
    pub(super) fn unless_ignored(is_ignored: bool) -> Self {
        if is_ignored { Self::Insensitive } else { Self::Sensitive }
    }

    /// Whether case is ignored.
    pub fn is_ignored(self) -> bool {
        self == Self::Insensitive
    }

    /// The flag that makes a regular expression compare in this way.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Sensitive => "",
            Self::Insensitive => "(?i)",
        }
    }

    /// A form of a text that is equal for texts which this takes for the same.
    pub(super) fn folded(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Sensitive => Cow::Borrowed(text),
            Self::Insensitive => Cow::Owned(text.to_lowercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Case;

    #[test]
    fn forms_and_flags() {
        let both = |case: Case| (case.folded("ÄGet").into_owned(), case.flag(), case.is_ignored());
        assert_eq!(both(Case::unless_ignored(false)), ("ÄGet".to_owned(), "", false));
        assert_eq!(both(Case::unless_ignored(true)), ("äget".to_owned(), "(?i)", true));
    }
}
