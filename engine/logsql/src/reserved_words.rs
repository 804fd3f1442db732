//! Words that must be quoted to stand for plain text: names of pipes, functions and filters, and words that begin with
//! one of them. The printer quotes them.

use std::fmt::{self, Display, Formatter};

use crate::lexer::{is_word_char, quote};
use crate::parser::{calls, stats};
use crate::pipes::PIPES;
use crate::print::{ArgumentName, Word};

/// Words that mean something of themselves wherever a word may stand.
const RESERVED: &[&str] = &["and", "or", "not", "by", "as", "if", "options", "now"];

/// Words that do so at the place of a word, but not among the arguments of a stats function.
const RESERVED_IN_PIPES: &[&str] = &[
    "from",
    "with",
    "default",
    "result_prefix",
    "keep_original_fields",
    "skip_empty_results",
    "drop_duplicates",
    "inf",
    "nan",
    "xor",
];

impl Display for Word<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        quoted_if(is_reserved(self.0) || is_one_of(self.0, RESERVED_IN_PIPES), self.0, f)
    }
}

impl Display for ArgumentName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        quoted_if(is_reserved(self.0), self.0, f)
    }
}

fn quoted_if(reserved: bool, text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let plain = !text.is_empty() && text.chars().all(is_word_char) && !reserved;
    if plain { f.write_str(text) } else { f.write_str(&quote(text)) }
}

fn is_one_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn is_reserved(text: &str) -> bool {
    let mut known = RESERVED.iter().copied().chain(calls::names()).chain(PIPES.names()).chain(stats::names());
    known.any(|known| known.eq_ignore_ascii_case(text))
}
