//! Extracts parts of a statement that are statements themselves, and keeps their positions.

use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

/// Whether a token is this word, without quotes.
pub(super) fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// The index of the matching closing parenthesis.
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

/// The byte offset of a line and column.
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

/// The same text with blanks in place of its characters, except for line breaks.
pub(super) fn blank(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' })
}

/// A part of a text, preceded by blanks, so that positions in errors are those in the whole text.
pub(super) fn part(text: &str, from: usize, to: usize) -> Option<String> {
    Some(blank(text.get(..from)?).chain(text.get(from..to)?.chars()).collect())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn tokens_of(text: &str) -> Vec<TokenWithSpan> {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().unwrap();
        tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect()
    }

    #[test]
    fn brackets_are_closed_by_their_own() {
        let tokens = tokens_of("( a ( b ) c ) )");
        for (open, expected) in [(0, Some(6)), (2, Some(4)), (7, None)] {
            assert_eq!(closing(&tokens, open), expected, "{open}");
        }
        assert_eq!(closing(&tokens_of("( ( a )"), 0), None);
    }

    #[test]
    fn words_in_quotes_are_names() {
        let tokens = tokens_of("AS \"as\" 'as' assume");
        let found: Vec<bool> = tokens.iter().map(|token| is_word(&token.token, "as")).collect();
        assert_eq!(found, [true, false, false, false]);
    }

    #[test]
    fn places_are_letters_of_lines() {
        let text = "sélect\n  ü, b";
        let at = |line, column| offset(text, Location { line, column });
        assert_eq!((at(1, 1), at(1, 3), at(2, 1), at(2, 4)), (Some(0), Some(3), Some(8), Some(12)));
        // There are no positions after the end.
        assert_eq!((at(1, 9), at(2, 7), at(3, 1)), (None, None, None));
    }

    #[test]
    fn parts_stand_where_they_stood() {
        let text = "copy (\nselect ü) to stdout";
        let (from, to) = (text.find("select").unwrap(), text.find(')').unwrap());
        assert_eq!(part(text, from, to).unwrap(), "      \nselect ü");
        assert_eq!(part(text, 0, text.len()).as_deref(), Some(text));
        // Not within a character, and not after the end.
        let within = text.find('ü').unwrap() + 1;
        assert_eq!((part(text, 0, within), part(text, 3, text.len() + 1)), (None, None));
    }
}
