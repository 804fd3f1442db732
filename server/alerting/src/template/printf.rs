//! `printf` as in Go's `fmt`: verbs, flags, width, precision, and the output for arguments of the wrong type.

use super::value::{ListKind, MapKind, Value, go_syntax};
use crate::text::{binary, general, hexadecimal, is_printable, quote, quote_char, with_precision};
use std::fmt::Write as _;

/// Largest width or precision; larger ones are reduced to it.
const WIDTH_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "the flags of Go's `fmt`")]
struct Flags {
    minus: bool,
    plus: bool,
    /// Whether fields of structs are printed with their names.
    names: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// Formats arguments; `make` accounts for bytes before they are allocated.
pub(super) fn format(
    form: &str,
    args: &[Value],
    mut make: impl FnMut(usize) -> Result<(), String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = form.chars().peekable();
    let (mut next, mut reordered) = (0, false);
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut flags = Flags::default();
        while let Some(c) = chars.peek() {
            match c {
                '-' => (flags.minus, flags.zero) = (true, false),
                '+' => flags.plus = true,
                '#' => flags.sharp = true,
                ' ' => flags.space = true,
                '0' => flags.zero = !flags.minus,
                _ => break,
            }
            chars.next();
        }
        let mut bad_index = false;
        index(&mut chars, &mut next, &mut reordered, &mut bad_index, args.len());
        flags.width = number(&mut chars, args, &mut next, &mut out, "%!(BADWIDTH)", &mut flags.minus);
        if chars.peek() == Some(&'.') {
            chars.next();
            index(&mut chars, &mut next, &mut reordered, &mut bad_index, args.len());
            let mut negative = false;
            let given = number(&mut chars, args, &mut next, &mut out, "%!(BADPREC)", &mut negative);
            flags.precision = if negative { None } else { Some(given.unwrap_or(0)) };
        }
        index(&mut chars, &mut next, &mut reordered, &mut bad_index, args.len());
        let Some(verb) = chars.next() else {
            out.push_str("%!(NOVERB)");
            break;
        };
        make(16)?;
        match (verb, args.get(next)) {
            ('%', _) => out.push('%'),
            (verb, _) if bad_index => {
                let _ = write!(out, "%!{verb}(BADINDEX)");
            }
            (verb, None) => {
                let _ = write!(out, "%!{verb}(MISSING)");
            }
            (verb, Some(arg)) => {
                next += 1;
                make(room(arg, flags))?;
                let text = formatted(verb, arg, flags);
                make(text.len())?;
                out.push_str(&text);
            }
        }
    }
    if !reordered && next < args.len() {
        let extra: Vec<String> = args[next..]
            .iter()
            .map(|a| if *a == Value::Nil { "<nil>".to_owned() } else { format!("{}={}", a.type_name(), a.printed()) })
            .collect();
        let _ = write!(out, "%!(EXTRA {})", extra.join(", "));
    }
    Ok(out)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Parses an explicit argument index `[n]`, from 1, if there is one.
fn index(chars: &mut Chars<'_>, next: &mut usize, reordered: &mut bool, bad: &mut bool, count: usize) {
    if chars.peek() != Some(&'[') {
        return;
    }
    chars.next();
    *reordered = true;
    let digits: String = std::iter::from_fn(|| chars.next_if(|c| *c != ']')).collect();
    let closed = chars.next() == Some(']');
    match digits.parse::<usize>() {
        Ok(n) if closed && (1..=count).contains(&n) => *next = n - 1,
        _ => *bad = true,
    }
}

/// Parses a width or precision, which may be an argument.
fn number(
    chars: &mut Chars<'_>,
    args: &[Value],
    next: &mut usize,
    out: &mut String,
    bad: &str,
    negative: &mut bool,
) -> Option<usize> {
    if chars.next_if_eq(&'*').is_some() {
        let given = match args.get(*next) {
            Some(Value::Int(n)) => Some(*n),
            Some(Value::Uint(n)) => i64::try_from(*n).ok(),
            _ => None,
        };
        *next += 1;
        let size = given.filter(|n| n.unsigned_abs() <= 1_000_000);
        let Some(size) = size else {
            out.push_str(bad);
            return None;
        };
        *negative |= size < 0;
        return Some((size.unsigned_abs() as usize).min(WIDTH_MAX));
    }
    let digits: String = std::iter::from_fn(|| chars.next_if(char::is_ascii_digit)).collect();
    digits.parse::<usize>().ok().map(|n| n.min(WIDTH_MAX))
}

fn pad(text: String, flags: Flags, zeros: bool) -> String {
    let missing = flags.width.unwrap_or(0).saturating_sub(text.chars().count());
    if missing == 0 {
        return text;
    }
    if flags.minus {
        return text + &" ".repeat(missing);
    }
    if zeros && flags.zero {
        let sign = text.starts_with(['+', '-', ' ']);
        let (sign, digits) = text.split_at(usize::from(sign));
        return format!("{sign}{}{digits}", "0".repeat(missing));
    }
    " ".repeat(missing) + &text
}

/// Pads a string, which has no sign.
fn pad_text(text: String, flags: Flags) -> String {
    let missing = flags.width.unwrap_or(0).saturating_sub(text.chars().count());
    if flags.zero && missing > 0 { "0".repeat(missing) + &text } else { pad(text, flags, false) }
}

/// Most bytes that width and precision may add to a value, since each part of it is padded by itself.
fn room(arg: &Value, flags: Flags) -> usize {
    let width = flags.width.unwrap_or(0);
    match arg {
        Value::List(list) => room_of_all(list.items.iter(), flags),
        Value::Map(map) => room_of_all(map.entries.values(), flags),
        Value::Struct(fields) => room_of_all(fields.fields.iter().map(|(_, _, value)| value), flags),
        Value::Int(_) | Value::Uint(_) | Value::Float(_) | Value::Duration(_) | Value::Named(..) => {
            width.max(flags.precision.unwrap_or(0))
        }
        _ => width,
    }
}

fn room_of_all<'a>(parts: impl Iterator<Item = &'a Value>, flags: Flags) -> usize {
    // A name may precede each part.
    let width = flags.width.unwrap_or(0);
    parts.fold(0, |sum: usize, part| sum.saturating_add(width).saturating_add(room(part, flags)))
}

/// The output for a verb that the value does not support: the value with the same flags.
fn bad_verb(verb: char, arg: &Value, flags: Flags) -> String {
    let shown = match arg {
        Value::Nil => return format!("%!{verb}(<nil>)"),
        Value::Duration(number) | Value::Named(_, number, _) => shown('v', &Value::Int(*number), flags),
        arg => shown('v', arg, flags),
    };
    format!("%!{verb}({}={shown})", arg.type_name())
}

fn formatted(verb: char, arg: &Value, mut flags: Flags) -> String {
    match (verb, arg) {
        ('T', arg) => return text('s', arg.type_name(), flags).unwrap_or_default(),
        ('v', Value::Nil) => return pad_text("<nil>".to_owned(), flags),
        // Integers have no other form, nor have floats with a given precision.
        ('v', Value::Int(_)) => (flags.sharp, flags.plus) = (false, false),
        ('v', Value::Float(_)) if flags.precision.is_some() => (flags.sharp, flags.plus) = (false, false),
        ('v', arg) if flags.sharp => return pad(go_syntax(arg), flags, false),
        // For this verb plus means field names, not signs.
        ('v', _) => (flags.names, flags.plus) = (flags.plus, false),
        _ => {}
    }
    let sign = if arg.is_pointer() { "&" } else { "" };
    if *arg == Value::Nil { bad_verb(verb, arg, flags) } else { sign.to_owned() + &shown(verb, arg, flags) }
}

fn shown(verb: char, arg: &Value, flags: Flags) -> String {
    let known = match arg {
        Value::Nil => Some("<nil>".to_owned()),
        Value::Bool(value) => matches!(verb, 't' | 'v').then(|| pad_text(value.to_string(), flags)),
        Value::Int(value) => integer(verb, i128::from(*value), flags),
        Value::Uint(value) => integer(verb, i128::from(*value), flags),
        Value::Float(value) => float(verb, *value, flags),
        Value::Complex(real, imaginary) => complex(verb, (*real, *imaginary), flags),
        Value::Text(value) | Value::Safe(_, value) => text(verb, value, flags),
        Value::Duration(n) | Value::Named(_, n, _) if !has_text(verb) => integer(verb, i128::from(*n), flags),
        Value::Time(_) | Value::Duration(_) | Value::Named(..) | Value::Histogram(_) => {
            text(verb, &arg.printed(), flags)
        }
        // Such values have a string form of their own.
        Value::Map(map) if map.kind == MapKind::Labels && has_text(verb) => text(verb, &arg.printed(), flags),
        Value::List(list) if list.kind == ListKind::Pairs && has_text(verb) => text(verb, &arg.printed(), flags),
        Value::List(list) => {
            let items: Vec<String> = list.items.iter().map(|item| shown(verb, item, flags)).collect();
            Some(format!("[{}]", items.join(" ")))
        }
        Value::Map(map) => {
            let item = |(name, value): (&String, &Value)| {
                format!("{}:{}", shown(verb, &Value::text(name), flags), shown(verb, value, flags))
            };
            Some(format!("map[{}]", map.entries.iter().map(item).collect::<Vec<_>>().join(" ")))
        }
        Value::Struct(fields) => {
            let item = |(name, _, value): &(&'static str, &'static str, Value)| {
                let shown = shown(verb, value, flags);
                if flags.names { format!("{name}:{shown}") } else { shown }
            };
            Some(format!("{{{}}}", fields.fields.iter().map(item).collect::<Vec<_>>().join(" ")))
        }
    };
    known.unwrap_or_else(|| bad_verb(verb, arg, flags))
}

/// Whether a verb is for strings.
fn has_text(verb: char) -> bool {
    matches!(verb, 'v' | 's' | 'q' | 'x' | 'X')
}

fn signed(digits: &str, negative: bool, flags: Flags) -> String {
    let sign = match (negative, flags.plus, flags.space) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    };
    format!("{sign}{digits}")
}

fn integer(verb: char, value: i128, flags: Flags) -> Option<String> {
    let size = value.unsigned_abs();
    let (digits, prefix) = match verb {
        'd' | 'v' => (size.to_string(), ""),
        'b' => (format!("{size:b}"), "0b"),
        'o' | 'O' => (format!("{size:o}"), "0"),
        'x' => (format!("{size:x}"), "0x"),
        'X' => (format!("{size:X}"), "0X"),
        'c' | 'q' => return Some(pad_text(character(verb, value, flags), flags)),
        'U' => return Some(pad(code_point(value, flags), flags, false)),
        _ => return None,
    };
    let least = match (flags.precision, flags.width) {
        // Without digits there is neither a sign nor a prefix.
        (Some(0), _) if size == 0 => return Some(pad(String::new(), flags, false)),
        (Some(precision), _) => precision,
        // Zeros that fill the width count as digits, without the prefix; a sign replaces one.
        (None, Some(width)) if flags.zero && !flags.minus => {
            width.saturating_sub(usize::from(value < 0 || flags.plus || flags.space))
        }
        _ => 0,
    };
    let mut shown = format!("{digits:0>least$}");
    if flags.sharp && !(prefix == "0" && shown.starts_with('0')) {
        shown.insert_str(0, prefix);
    }
    if verb == 'O' {
        shown.insert_str(0, "0o");
    }
    Some(pad(signed(&shown, value < 0, flags), flags, false))
}

/// The character with a number, or its literal.
fn character(verb: char, value: i128, flags: Flags) -> String {
    let c = u32::try_from(value).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
    match verb {
        'c' => c.to_string(),
        _ if flags.plus => ascii(&quote_char(c)),
        _ => quote_char(c),
    }
}

/// `U+0041`, with `#` followed by the character. Negative numbers are taken as unsigned 64-bit ones.
fn code_point(value: i128, flags: Flags) -> String {
    let code = value & i128::from(u64::MAX);
    let least = flags.precision.unwrap_or(0).max(4);
    let c = u32::try_from(code).ok().and_then(char::from_u32).filter(|c| flags.sharp && is_printable(*c));
    let behind = c.map_or_else(String::new, |c| format!(" '{c}'"));
    format!("U+{code:0least$X}{behind}")
}

fn float(verb: char, value: f64, flags: Flags) -> Option<String> {
    let mut shown = match verb {
        'v' | 'g' => general(value, flags.precision, flags.sharp),
        'G' => general(value, flags.precision, flags.sharp).replace('e', "E"),
        'e' | 'f' | 'F' => with_precision(value, verb, flags.precision),
        'E' => with_precision(value, 'e', flags.precision).replace('e', "E"),
        'x' => hexadecimal(value, flags.precision),
        'X' => hexadecimal(value, flags.precision).to_ascii_uppercase(),
        'b' => binary(value),
        _ => return None,
    };
    if flags.sharp && matches!(verb, 'e' | 'E' | 'f' | 'F') && value.is_finite() && !shown.contains('.') {
        let at = shown.find(['e', 'E']).unwrap_or(shown.len());
        shown.insert(at, '.');
    }
    let (negative, digits) = match shown.strip_prefix(['-', '+']) {
        Some(digits) => (shown.starts_with('-'), digits),
        None => (false, shown.as_str()),
    };
    let infinite = !value.is_finite();
    // Go writes a plus before infinity unless a space is requested.
    let shown = if infinite && !negative && !value.is_nan() && !flags.space {
        format!("+{digits}")
    } else {
        signed(digits, negative, flags)
    };
    Some(pad(shown, flags, !infinite))
}

/// Both parts as numbers, the second one with its sign.
fn complex(verb: char, (real, imaginary): (f64, f64), flags: Flags) -> Option<String> {
    let (real, imaginary) = (float(verb, real, flags)?, float(verb, imaginary, Flags { plus: true, ..flags })?);
    Some(format!("({real}{imaginary}i)"))
}

/// Escapes non-ASCII characters of a quoted string.
fn ascii(quoted: &str) -> String {
    let mut out = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        match c as u32 {
            0..0x80 => out.push(c),
            code @ 0x80..0x1_0000 => {
                let _ = write!(out, "\\u{code:04x}");
            }
            code => {
                let _ = write!(out, "\\U{code:08x}");
            }
        }
    }
    out
}

fn text(verb: char, text: &str, flags: Flags) -> Option<String> {
    let cut = |text: &str| match flags.precision {
        Some(precision) => text.chars().take(precision).collect(),
        None => text.to_owned(),
    };
    let hex = |upper: bool| {
        let bytes = &text.as_bytes()[..flags.precision.unwrap_or(text.len()).min(text.len())];
        let digit = |b: &u8| if upper { format!("{b:02X}") } else { format!("{b:02x}") };
        let mark = if upper { "0X" } else { "0x" };
        let all: Vec<String> = bytes.iter().map(digit).collect();
        match (flags.sharp && !all.is_empty(), flags.space) {
            (true, true) => format!("{mark}{}", all.join(&format!(" {mark}"))),
            (true, false) => format!("{mark}{}", all.concat()),
            (false, true) => all.join(" "),
            (false, false) => all.concat(),
        }
    };
    let shown = match verb {
        's' | 'v' => cut(text),
        'q' => {
            let text: String = cut(text);
            let quotable = |c: char| c == '\t' || !matches!(c, '`' | '\u{7f}' | '\u{feff}') && c >= ' ';
            match (flags.sharp && text.chars().all(quotable), flags.plus) {
                (true, _) => format!("`{text}`"),
                (false, true) => ascii(&quote(&text)),
                (false, false) => quote(&text),
            }
        }
        'x' => hex(false),
        'X' => hex(true),
        _ => return None,
    };
    Some(pad_text(shown, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0x1.cp+01|0X1.CP+01|4503599627370496p-52|    -0x1p-01|0x1.0p+00";
    const SHARP: &str = "00A|1.00000|1.00000e+07|100.";
    const FLAGS_STAY: &str = "%!o(float64=2.50000)|%!q(float64=+1e+100)|%!d(bool=0000true)";
    const QUOTABLE: &str = "U+0000|U+0061 'a'|\"a\\nb\"|`a\tb`";
    const ASCII: &str = r#""\u00e9\U0001f642\""|"é"|'\u00e9'"#;

    fn check(form: &str, args: &[Value], expected: &str) {
        assert_eq!(format(form, args, |_| Ok(())).as_deref(), Ok(expected), "{form}");
    }

    #[test]
    fn integers_are_filled_before_they_have_a_prefix() {
        check("%#.5x|%#08x|%#.5b", &[5, 5, -5].map(Value::Int), "0x00005|0x00000005|-0b00101");
        check("%#o|%#.3o|%O|%#O", &[0, 5, 5, 5].map(Value::Int), "0|005|0o5|0o05");
        check("[%+.0d][%5.0d][% .0v][%#.0x]", &[0, 0, 0, 0].map(Value::Int), "[][     ][][]");
        check("%+06d|% 06d|%-06d|%+v|%#.3v", &[5, 5, 5, 5, 5].map(Value::Int), "+00005| 00005|5     |5|005");
        check("%U|%.5U|%#8.5U", &[-5, 5, 0x41].map(Value::Int), "U+FFFFFFFFFFFFFFFB|U+00005|U+00041 'A'");
    }

    #[test]
    fn floats_keep_their_point() {
        let values = [100.0, -1.5, 1e21, 2.0, f64::NAN].map(Value::Float);
        check("%#.0f|%#.0e|%#.0E|%#.1f|%#f", &values, "100.|-2.e+00|1.E+21|2.0|NaN");
        check("%#.3v|%+.0v", &[123_456_789.0, 100.0].map(Value::Float), "1.23e+08|1e+02");
    }

    #[test]
    fn verbs() {
        check("%d|%5d|%-5d|%05d|%+d", &[1, 2, 3, 4, 5].map(Value::Int), "1|    2|3    |00004|+5");
        check("%.2f|%8.3f|%e|%g", &[1.0, 2.5, 3.0, 1e7].map(Value::Float), "1.00|   2.500|3.000000e+00|1e+07");
        check("%s|%q|%x|%-4s|%.2s", &["a", "b\"", "c", "d", "efg"].map(Value::text), "a|\"b\\\"\"|63|d   |ef");
        check(
            "%v %v %t %T",
            &[Value::Nil, Value::Float(1.5), Value::Bool(true), Value::Uint(1)],
            "<nil> 1.5 true uint64",
        );
        check("%x %X %o %b %c %U", &[255, 255, 8, 5, 0x1f642, 0x41].map(Value::Int), "ff FF 10 101 🙂 U+0041");
        check("%v", &[Value::Duration(1_500_000_000)], "1.5s");
        check("%d", &[Value::Duration(3)], "3");
        let labels = || Value::text_map(MapKind::Labels, [("a", "b"), ("c", "d")]);
        check("%s|%q|%8.3v", &[labels(), labels(), labels()], "a=b, c=d|\"a=b, c=d\"|     a=b");
        check("%*d|%[1]d", &[Value::Int(4), Value::Int(7)], "   7|4");
        check("%6.2f%%", &[Value::Float(-1.0)], " -1.00%");
        check("%06.1f", &[Value::Float(-2.25)], "-002.2");
        check("%v", &[Value::Float(f64::INFINITY)], "+Inf");
        check("%x|%X|%b|%12x|%.1x", &[3.5, 3.5, 1.0, -0.5, 1.0].map(Value::Float), HEX);
        check("%#x|%# X|%05s|%03c", &["hé", "ab", "-a"].map(Value::text), "0x68c3a9|0X61 0X62|000-a|%!c(MISSING)");
        check(
            "%03c|%#g|%#g|%#.3g",
            &[Value::Int(65), Value::Float(1.0), Value::Float(1e7), Value::Float(100.0)],
            SHARP,
        );
        check("%+q|%q|%+q", &[Value::text("é🙂\""), Value::text("é"), Value::Int(0xe9)], ASCII);
    }

    #[test]
    fn parts_of_values() {
        let pair =
            || Value::fields("template.Pair", vec![("Name", "Name", Value::text("a")), ("N", "N", Value::Int(7))]);
        check("%v|%+v|%3v|%d", &[pair(), pair(), pair(), pair()], "{a 7}|{Name:a N:7}|{  a   7}|{%!d(string=a) 7}");
        check("%#v", &[pair()], "template.Pair{Name:\"a\", N:7}");
        let pointed = || Value::fields("*template.sample", vec![("Value", "Value", Value::Int(1))]);
        check(
            "%v|%+v|%#v|%T",
            &[(); 4].map(|()| pointed()),
            "&{1}|&{Value:1}|&template.sample{Value:1}|*template.sample",
        );
        check("%3v|%x|%q", &[(); 3].map(|()| Value::texts(["a", "b"])), "[  a   b]|[61 62]|[\"a\" \"b\"]");
        check("%+v|%+v|%+d", &[Value::Int(5), Value::Float(5.0), Value::Int(5)], "5|5|+5");
        check(
            "%d|%v",
            &[(); 2].map(|()| Value::list(ListKind::Any, vec![Value::Nil, Value::Int(1)])),
            "[<nil> 1]|[<nil> 1]",
        );
        let labels = || Value::text_map(MapKind::Labels, [("a", "b")]);
        check(
            "%d|%4t",
            &[labels(), labels()],
            "map[%!d(string=a):%!d(string=b)]|map[%!t(string=   a):%!t(string=   b)]",
        );
        check("%#U|%#U|%#q|%#q", &[Value::Int(0), Value::Int(97), Value::text("a\nb"), Value::text("a\tb")], QUOTABLE);
    }

    /// The width of each part is accounted before it is written.
    #[test]
    fn widths_are_counted() {
        let many = Value::list(ListKind::Any, vec![Value::Int(1); 1000]);
        let within = |form: &str, most: usize| {
            let mut made = 0;
            let count = |bytes: usize| {
                made += bytes;
                if made > most { Err("too much".to_owned()) } else { Ok(()) }
            };
            format(form, std::slice::from_ref(&many), count)
        };
        assert!(within("%9999d", 9_000_000).is_err());
        assert!(within("%.9999d", 9_000_000).is_err());
        assert!(within("%2d", 9_000).is_ok());
    }

    #[test]
    fn what_does_not_suit() {
        check("%d", &[Value::text("x")], "%!d(string=x)");
        check("%d %d", &[Value::Int(1)], "1 %!d(MISSING)");
        check("a", &[Value::Int(1), Value::text("b")], "a%!(EXTRA int=1, string=b)");
        check("%", &[], "%!(NOVERB)");
        check("%[5]d", &[Value::Int(1)], "%!d(BADINDEX)");
        check("%s", &[Value::Int(1)], "%!s(int=1)");
        check("%-4d|%05d", &["x", "é"].map(Value::text), "%!d(string=x   )|%!d(string=0000é)");
        check("%8.3f", &[Value::text("http")], "%!f(string=     htt)");
        check("%08.3f|%+.1e", &[2, 97].map(Value::Int), "%!f(int=     002)|%!e(int=+97)");
        check("%5t|%-5s|", &[3, 4].map(Value::Int), "%!t(int=    3)|%!s(int=4    )|");
        check("%#o|%+q|%08d", &[Value::Float(2.5), Value::Float(1e100), Value::Bool(true)], FLAGS_STAY);
        check("%t", &[Value::Duration(1_500_000_000)], "%!t(time.Duration=1500000000)");
    }
}
