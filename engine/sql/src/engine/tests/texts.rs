//! Texts and patterns, as PostgreSQL has them.

use super::{answers_are, gives, is_refused, refuses};

#[test]
fn positions_and_parts_of_texts() {
    gives(&[
        ("concat('a', 1.50, null) || concat_ws('-', -2.0, 'b')", "a1.50-2.0-b"),
        ("'x' || 1.50 || 'y' || 2", "x1.50y2"),
        ("format('%s %L', 1.50, 0.10)", "1.50 '0.10'"),
        ("quote_literal(1.50)", "'1.50'"),
        ("length('größe')", "5"),
        ("char_length('')", "0"),
        ("octet_length('größe')", "7"),
        ("bit_length('ab')", "16"),
        ("upper('straße x')", "STRASSE X"),
        ("lower('ÄB')", "äb"),
        ("initcap('hello wORLD-of 3things')", "Hello World-Of 3things"),
        ("position('c' in 'abc')", "3"),
        ("position('x' in 'abc')", "0"),
        ("position('' in 'abc')", "1"),
        ("strpos('größe', 'ß')", "4"),
        ("left('abcde', 2)", "ab"),
        ("left('abcde', -2)", "abc"),
        ("left('ab', 5)", "ab"),
        ("left('ab', -5)", ""),
        ("right('abcde', 2)", "de"),
        ("right('abcde', -2)", "cde"),
        ("right('äöü', 2)", "öü"),
        ("substr('abcdef', 3)", "cdef"),
        ("substr('abcdef', 3, 2)", "cd"),
        ("substring('abcdef' from 0 for 3)", "ab"),
        ("substring('abcdef' from -1 for 4)", "ab"),
        ("substring('abcdef' from 9)", ""),
        ("substring('foobar' from 'o(.)b')", "o"),
        ("substring('foobar' from 'z')", "NULL"),
        ("overlay('Txxxxas' placing 'hom' from 2 for 4)", "Thomas"),
        ("overlay('abcdef' placing 'X' from 3)", "abXdef"),
        ("split_part('a,b,c', ',', 2)", "b"),
        ("split_part('a,b,c', ',', 4)", ""),
        ("split_part('a,b,c', ',', -1)", "c"),
        ("reverse('abñ')", "ñba"),
        ("repeat('ab', 3)", "ababab"),
        ("repeat('ab', 0)", ""),
        ("repeat('ab', -1)", ""),
        ("ascii('ä')", "228"),
        ("ascii('')", "0"),
        ("chr(228)", "ä"),
    ]);
}

#[test]
fn texts_are_filled_and_trimmed() {
    gives(&[
        ("lpad('hi', 5, 'xy')", "xyxhi"),
        ("lpad('hi', 5)", "   hi"),
        ("lpad('hello', 2)", "he"),
        ("rpad('hi', 5, 'xy')", "hixyx"),
        ("rpad('hello', 3, 'x')", "hel"),
        ("lpad('hi', 5, '')", "hi"),
        ("trim('  a b ')", "a b"),
        ("trim(both 'x' from 'xxaxx')", "a"),
        ("trim(leading 'xy' from 'yxabxy')", "abxy"),
        ("trim(trailing 'xy' from 'abxyx')", "ab"),
        ("btrim('xyabyx', 'xy')", "ab"),
        ("ltrim('zzzytest', 'xyz')", "test"),
        ("rtrim('testxxzx', 'xyz')", "test"),
        ("replace('aXbX', 'X', '--')", "a--b--"),
        ("replace('abc', '', 'x')", "abc"),
        ("translate('12345', '143', 'ax')", "a2x5"),
        ("concat_ws(',', 'a', null, 'b')", "a,b"),
        ("'a' || null", "NULL"),
        ("'a' || 1", "a1"),
        ("starts_with('alphabet', 'alph')", "true"),
        ("'alphabet' ^@ 'bet'", "false"),
        ("md5('abc')", "900150983cd24fb0d6963f7d28e17f72"),
        ("to_hex(255)", "ff"),
        ("quote_literal('it''s')", "'it''s'"),
        ("quote_ident('Ab')", r#""Ab""#),
        ("quote_ident('ab')", "ab"),
        ("quote_ident('select')", r#""select""#),
        ("quote_nullable(null) is null", "false"),
        ("format('%s is %s', 'a', 1)", "a is 1"),
        ("format('%2$s-%1$s', 'a', 'b')", "b-a"),
        ("format('%I.%I', 'Tab', 'col')", r#""Tab".col"#),
        ("format('%L', 'it''s')", "'it''s'"),
        ("format('%L', null) is null", "false"),
        ("format('%5s|%-5s|', 'a', 'b')", "    a|b    |"),
        ("format('100%%')", "100%"),
    ]);
}

#[test]
fn patterns_are_those_of_postgresql() {
    gives(&[
        ("'abc' like 'a%'", "true"),
        ("'abc' like '_b_'", "true"),
        ("'abc' like 'B%'", "false"),
        ("'abc' ilike 'A%'", "true"),
        (r"'a%c' like 'a\%c'", "true"),
        (r"'abc' like 'a\%c'", "false"),
        ("'a_c' like 'a!_c' escape '!'", "true"),
        ("'abc' not like '%d%'", "true"),
        ("null like 'a'", "NULL"),
        ("'abc' like any (array['x%', 'a%'])", "true"),
        ("'abc' like all (array['x%', 'a%'])", "false"),
        ("'abc' similar to '(a|b)bc'", "true"),
        ("'abc' similar to 'b'", "false"),
        ("'abc' similar to '%(b|d)%'", "true"),
        ("'abc' ~ 'b'", "true"),
        ("'ABC' ~ 'b'", "false"),
        ("'ABC' ~* 'b'", "true"),
        ("'abc' !~ '^a'", "false"),
        ("'abc' !~* 'X'", "true"),
        ("regexp_replace('foobarbaz', 'b..', 'X')", "fooXbaz"),
        ("regexp_replace('foobarbaz', 'b..', 'X', 'g')", "fooXX"),
        (r"regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g')", "fooXarYXazY"),
        ("regexp_replace('ABC', 'b', 'x', 'i')", "AxC"),
        (r"regexp_replace(E'a\nb', '^b', 'x', 'n')", "a\nx"),
        (r"regexp_replace(E'a\nb', 'a.', 'x')", "xb"),
        (r"regexp_replace(E'a\nb', 'a.', 'x', 'n')", "a\nb"),
        ("regexp_replace('a.b', '.b', 'x', 'q')", "ax"),
        ("regexp_replace('abc', '(b)', '$1${1}$$')", "a$1${1}$$c"),
        (r"regexp_replace('abc', '(b)', '\\1\0\10\&')", r"a\1\0b0bc"),
        (r"E'a\nb' ~ 'a.b'", "true"),
        (r"E'a\nb' ~ '(?p)a.b'", "false"),
        (r"E'a\nb' ~ '(?w)^b'", "true"),
        ("'A' ~* '(?c)a'", "false"),
        ("'a[b' ~ '[[]b$'", "true"),
        (r"'ab' ~ 'b\Z'", "true"),
        ("'abc' ~* any (array['B', 'x'])", "true"),
        ("'abc' ~ any (array['x', null])", "NULL"),
        ("'abc' !~ all (array['x', 'c'])", "false"),
        ("regexp_match('foobarbequebaz', '(bar)(beque)')", "{bar,beque}"),
        ("regexp_match('abc', 'x')", "NULL"),
        ("'it''s'\n  'b'", "it'sb"),
        ("quote_literal('')", "''"),
        ("quote_ident('')", "\"\""),
        ("regexp_matches('abc', 'b')", "{b}"),
        ("regexp_match('ab', '(x)?(b)')", "{NULL,b}"),
        ("(regexp_match('AB', '(x)|(b)', 'i'))[2]", "B"),
        (
            "(select string_agg(regexp_match(a, p)::text, ' ') from (values ('b', '(x)?(b)'), ('b', '(b)')) t(a, p))",
            "{NULL,b} {b}",
        ),
        ("regexp_match('ac', '(x)?(b)')", "NULL"),
        ("substring('ab' from '(x)?(b)')", "NULL"),
        ("regexp_count('ABCABCaxyz', 'A.', 1, 'i')", "3"),
        ("regexp_like('abc', 'B', 'i')", "true"),
        ("regexp_substr('number of your street', '[^ ]+', 1, 2)", "of"),
        ("regexp_instr('number of', 'o.')", "8"),
        ("regexp_instr('abcabc', 'b', 1, 2, 0)", "5"),
        ("regexp_instr('abcabc', 'b.', 1, 2, 1)", "7"),
        ("regexp_instr('abc', 'x', 1, 1, 1)", "0"),
        ("regexp_instr('ABC', '(b)(c)', 1, 1, 0, 'i', 2)", "3"),
        ("regexp_instr('abc', '(b)(c)', 1, 1, 1, '', 1)", "3"),
        (r"regexp_split_to_array('a1b22c', '\d+')", "{a,b,c}"),
        ("string_to_array('a,b,,c', ',')", r#"{a,b,"",c}"#),
        ("string_to_array('a,b', ',', 'b')", "{a,NULL}"),
        ("string_to_array('', ',')", "{}"),
        ("array_to_string(array[1, null, 3], ',')", "1,3"),
        ("array_to_string(array[1, null, 3], ',', '*')", "1,*,3"),
    ]);
}

#[test]
fn patterns_of_rows_are_known_by_types() {
    answers_are(&[
        (
            "select substring('foobar' from p::text), substring(s from 'o' || p), substring(s, ('x' || p)) \
             from (values ('foobar', '(.)b')) t (s, p)",
            &["o|o|-"],
        ),
        (
            "select substring(s from p), substring(s from n), substring(s, lower(p)), substring(s from length(p)), \
             substring(s from case when n > 1 then p end), substring(convert_to(s, 'UTF8') from n)::text \
             from (values ('foobar', 'o(.)b', 4)) t (s, p, n)",
            &["o|bar|o|ar|o|\\x626172"],
        ),
        (
            "select substring(s from p) as x, count(*) from (values ('ab', 'a.'), ('ac', '^.'), ('b', 'x')) t (s, p) \
             group by substring(s from p) order by x",
            &["a|1", "ab|1", "-|1"],
        ),
    ]);
    is_refused("select substr('foobar', p) from (values ('o.b')) t (p)", "No function matches");
    is_refused("select substring(5 from p) from (values ('o.b')) t (p)", "No function matches");
    is_refused("select substring('a' from p) from (values ('(')) t (p)", "regular expression");
}

#[test]
fn patterns_look_around_and_refer_to_groups() {
    gives(&[
        ("'foobar' ~ 'foo(?!bar)'", "false"),
        ("'FOObaz' ~* 'foo(?!bar)'", "true"),
        ("'foobar' !~ 'foo(?=bar)'", "false"),
        (r"'abab' ~ '^(ab)\1$'", "true"),
        (r"null::text ~ '(a)\1'", "NULL"),
        ("'it''s' ~ 's(?!'')'", "true"),
        (r"E'a\nb' ~ 'a(?=.b)'", "true"),
        (r"regexp_replace('a1b22', '(?<=[a-z])\d', '#', 'g')", "a#b#2"),
        (r"regexp_replace('aabbc', '(.)\1', '<\1>', 'g')", "<a><b>c"),
        (r"regexp_match('key=value', '(\w+)(?==)')", "{key}"),
        ("regexp_split_to_array('a1,2b,c', ',(?=[a-z])')", r#"{"a1,2b",c}"#),
        ("regexp_count('aXbXcX', 'X(?!$)')", "2"),
        (r"regexp_instr('price $42', '(?<=\$)\d+')", "8"),
        (r"regexp_substr('one two two', '(\w+) \1')", "two two"),
        ("regexp_like('Foo', '(?!b)foo', 'i')", "true"),
        (r"substring('user=bob;' from '(?<=user=)\w+')", "bob"),
    ]);
    answers_are(&[
        (
            r"select x ~ p from (values ('ab', 'a(?=b)'), ('ac', 'a(?=b)'), ('aa', '(a)\1')) v (x, p) order by x",
            &["true", "true", "false"],
        ),
        (r"select m[1] from (select regexp_matches('aa b cc', '(\w)\1', 'g') as m) t order by 1", &["a", "c"]),
    ]);
    refuses(&[
        (r"repeat('a', 100000) ~ '(a*)*\1b'", "steps"),
        (r"regexp_count(repeat('a', 100000), '(a|aa)+(?!a)b')", "(a|aa)+(?!a)b"),
        ("regexp_split_to_array(repeat('a', 100000), '(?=(?:.*x))a')", "steps"),
        (r"'a' ~ '\1(a)'", "no group 1"),
    ]);
}

#[test]
fn texts_behind_texts_are_no_names() {
    for statement in ["select 'a' 'b'", "select 1, E'a' 'b' from (values (1)) t(x)", "select (select 'a' 'b')"] {
        is_refused(statement, "write `||` between them");
    }
}
