//! Translates statements from their common form to PostgreSQL's.

/// Functions that have another name here than in SQLite: what finds a text within another one, what makes lists of JSON.
const FUNCTIONS: [(&str, &str); 3] =
    [("instr(", "strpos("), ("json_group_array(", "json_agg("), ("json_array(", "json_build_array(")];

/// Numbers placeholders: `?` becomes `$1`, `$2` …, but for those within quotes; and calls functions by their names.
pub(crate) fn numbered(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    let (mut quote, mut count) = (None, 0_u32);
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        let called = FUNCTIONS.iter().find_map(|(from, to)| Some((*to, rest.strip_prefix(from)?)));
        if let (None, Some((function, behind))) = (quote, called) {
            out.push_str(function);
            rest = behind;
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == '?' => {
                count += 1;
                out.push('$');
                out.push_str(&count.to_string());
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

/// What a migration's words become. Texts are compared by code points in both databases, and numbers have 64 bits.
const WORDS: &[(&str, &str)] = &[
    ("INTEGER", "BIGINT"),
    ("TEXT", "TEXT COLLATE \"C\""),
    ("BLOB", "BYTEA"),
    // The writer of a row gives it its number: PostgreSQL's sequences have gaps.
    ("AUTOINCREMENT", ""),
    ("STRICT", ""),
];

/// Translates a migration. They are written for SQLite, in few words: tables, indexes, rows.
pub(crate) fn schema(sql: &str) -> String {
    let (mut out, mut word) = (String::with_capacity(sql.len() * 2), String::new());
    let flush = |word: &mut String, out: &mut String| {
        let found = WORDS.iter().find(|(from, _)| *from == word).map(|(_, to)| *to);
        out.push_str(found.unwrap_or(word.as_str()));
        word.clear();
    };
    for line in sql.lines() {
        let code = line.split_once("--").map_or(line, |(code, _)| code);
        // A table that is its own index: PostgreSQL has none of these.
        let code = code.replace(", WITHOUT ROWID", "");
        for c in code.chars() {
            if c.is_ascii_alphanumeric() || c == '_' {
                word.push(c);
            } else {
                flush(&mut word, &mut out);
                out.push(c);
            }
        }
        flush(&mut word, &mut out);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_get_numbers() {
        assert_eq!(numbered("SELECT a FROM t WHERE b = ? AND c <> '?' AND d = ?"), {
            "SELECT a FROM t WHERE b = $1 AND c <> '?' AND d = $2"
        });
        let sql = numbered("SELECT a FROM t WHERE instr(b, ?) > 0 AND c <> 'instr('");
        assert_eq!(sql, "SELECT a FROM t WHERE strpos(b, $1) > 0 AND c <> 'instr('");
        assert_eq!(numbered("json_group_array(json_array(a, b))"), "json_agg(json_build_array(a, b))");
    }

    #[test]
    fn columns_get_types() {
        let sql = "-- TEXT\nCREATE TABLE t (\n    n INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, -- BLOB\n    b BLOB\n) STRICT, WITHOUT ROWID;";
        let want = "\nCREATE TABLE t (\n    n BIGINT NOT NULL PRIMARY KEY , \n    b BYTEA\n) ;\n";
        assert_eq!(schema(sql), want);
    }

    #[test]
    fn quotes_keep_what_they_hold() {
        for (sql, expected) in [
            ("", ""),
            ("?", "$1"),
            ("?,?,?,?,?,?,?,?,?,?", "$1,$2,$3,$4,$5,$6,$7,$8,$9,$10"),
            ("\"a?\" = ?", "\"a?\" = $1"),
            ("\"a'b?\" = ?", "\"a'b?\" = $1"),
            ("'it''s ?' = ?", "'it''s ?' = $1"),
            ("'\"?' || ?", "'\"?' || $1"),
            ("ä = ? -- é", "ä = $1 -- é"),
            ("json_array(?, 'json_array(')", "json_build_array($1, 'json_array(')"),
            ("instr(instr(?), ?)", "strpos(strpos($1), $2)"),
            ("\"instr(\"", "\"instr(\""),
        ] {
            assert_eq!(numbered(sql), expected, "{sql}");
        }
    }

    #[test]
    fn words_are_whole_and_in_capitals() {
        for (sql, expected) in [
            ("", ""),
            ("a TEXT,", "a TEXT COLLATE \"C\",\n"),
            ("(BLOB)", "(BYTEA)\n"),
            ("-- INTEGER", "\n"),
            ("a INTEGER -- TEXT", "a BIGINT \n"),
            ("TEXTS INTEGER_ A_BLOB", "TEXTS INTEGER_ A_BLOB\n"),
            ("integer text blob", "integer text blob\n"),
            ("n INTEGER PRIMARY KEY AUTOINCREMENT", "n BIGINT PRIMARY KEY \n"),
            (") STRICT, WITHOUT ROWID;", ") ;\n"),
            ("a\r\nb", "a\nb\n"),
        ] {
            assert_eq!(schema(sql), expected, "{sql}");
        }
    }
}
