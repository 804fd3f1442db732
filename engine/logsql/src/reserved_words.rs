//! Words that must be quoted to stand for plain text: names of pipes, functions and filters, and words that begin with
//! one of them. The printer quotes them.

use std::fmt::{self, Display, Formatter};

use crate::lexer::{is_word_char, quote};
use crate::parser::{calls, stats};
use crate::pipes::PIPES;
use crate::print::Word;

/// Words that mean something of themselves at the place of a word.
const RESERVED: &[&str] = &[
    "and",
    "or",
    "not",
    "by",
    "as",
    "if",
    "from",
    "fields",
    "limit",
    "offset",
    "with",
    "options",
    "default",
    "result_prefix",
    "keep_original_fields",
    "skip_empty_results",
    "drop_duplicates",
    "filter",
    "now",
    "inf",
    "nan",
    "xor",
];

impl Display for Word<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = self.0;
        let plain = !text.is_empty() && text.chars().all(is_word_char) && !is_reserved(text);
        if plain { f.write_str(text) } else { f.write_str(&quote(text)) }
    }
}

fn is_reserved(text: &str) -> bool {
    let mut known = RESERVED.iter().copied().chain(calls::names()).chain(PIPES.names()).chain(stats::names());
    known.any(|known| known.eq_ignore_ascii_case(text))
}
