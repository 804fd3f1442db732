//! PostgreSQL's encodings by their names and numbers, which lists of databases show. Here all texts are UTF-8.

/// The encodings in the order of their numbers, from 0.
const ENCODINGS: [&str; 42] = [
    "SQL_ASCII",
    "EUC_JP",
    "EUC_CN",
    "EUC_KR",
    "EUC_TW",
    "EUC_JIS_2004",
    "UTF8",
    "MULE_INTERNAL",
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "WIN1256",
    "WIN1258",
    "WIN866",
    "WIN874",
    "KOI8R",
    "WIN1251",
    "WIN1252",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "WIN1250",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1257",
    "KOI8U",
    "SJIS",
    "BIG5",
    "GBK",
    "UHC",
    "GB18030",
    "JOHAB",
    "SHIFT_JIS_2004",
];
/// The encoding of everything.
const UTF8: i64 = 6;

/// The name of an encoding; empty if no encoding has that number.
pub(super) fn name(number: i64) -> &'static str {
    usize::try_from(number).ok().and_then(|at| ENCODINGS.get(at)).copied().unwrap_or_default()
}

/// The number of an encoding; -1: there is none of that name. Case, and what is no letter or digit, does not matter.
pub(super) fn number(name: &str) -> i64 {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let asked = plain(name);
    if asked == "unicode" {
        return UTF8;
    }
    ENCODINGS.iter().position(|known| plain(known) == asked).map_or(-1, |at| at as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (at, known) in ENCODINGS.iter().enumerate() {
            assert_eq!((number(known), name(at as i64)), (at as i64, *known));
        }
        for (asked, expected) in [("utf-8", UTF8), ("Unicode", UTF8), ("latin 1", 8), ("", -1), ("utf9", -1)] {
            assert_eq!(number(asked), expected, "{asked}");
        }
        assert_eq!([name(-1), name(42)], ["", ""]);
    }
}
