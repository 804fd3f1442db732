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
        // Behind the end there is none.
        assert_eq!((at(1, 9), at(2, 7), at(3, 1)), (None, None, None));
    }

    #[test]
    fn parts_stand_where_they_stood() {
        let text = "copy (\nselect ü) to stdout";
        let (from, to) = (text.find("select").unwrap(), text.find(')').unwrap());
        assert_eq!(part(text, from, to).unwrap(), "      \nselect ü");
        assert_eq!(part(text, 0, text.len()).as_deref(), Some(text));
        // Not within a letter, and not behind the end.
        let within = text.find('ü').unwrap() + 1;
        assert_eq!((part(text, 0, within), part(text, 3, text.len() + 1)), (None, None));
    }
}
