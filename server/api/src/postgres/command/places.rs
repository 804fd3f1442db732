//! Parts of a statement that are statements themselves, at the places where they stand in it.

use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

/// Whether a token is a word that is not in quotes.
pub(super) fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// Where the bracket is that closes another one.
pub(super) fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The byte at a line and column.
pub(super) fn offset(text: &str, place: Location) -> Option<usize> {
    let (mut line, mut column) = (1, 1);
    for (at, letter) in text.char_indices() {
        if (line, column) == (place.line, place.column) {
            return Some(at);
        }
        (line, column) = if letter == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    None
}

/// The same lines with nothing on them.
pub(super) fn blank(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' })
}

/// A part of a text with blanks before it: errors in it tell places in the whole.
pub(super) fn part(text: &str, from: usize, to: usize) -> Option<String> {
    Some(blank(text.get(..from)?).chain(text.get(from..to)?.chars()).collect())
}
