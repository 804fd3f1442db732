//! `printf` as Go's `fmt` does it: verbs, flags, width, precision, and what it says of arguments that do not suit.

use super::value::{ListKind, MapKind, Value, go_syntax};
use crate::text::{binary, general, hexadecimal, quote, quote_char, with_precision};

/// Widest field.
const WIDTH_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// Formats arguments; `make` is told of the bytes before they are there.
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
        make(flags.width.unwrap_or(0).saturating_add(16))?;
        match (verb, args.get(next)) {
            ('%', _) => out.push('%'),
            (verb, _) if bad_index => out += &format!("%!{verb}(BADINDEX)"),
            (verb, None) => out += &format!("%!{verb}(MISSING)"),
            (verb, Some(arg)) => {
                next += 1;
                let text = one(verb, arg, flags);
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
        out += &format!("%!(EXTRA {})", extra.join(", "));
    }
    Ok(out)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Reads `[n]`.
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

/// Reads a width or precision, which may be an argument.
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

/// Pads a text: it has no sign.
fn pad_text(text: String, flags: Flags) -> String {
    let missing = flags.width.unwrap_or(0).saturating_sub(text.chars().count());
    if flags.zero && missing > 0 { "0".repeat(missing) + &text } else { pad(text, flags, false) }
}

fn bad_verb(verb: char, arg: &Value) -> String {
    match arg {
        Value::Nil => format!("%!{verb}(<nil>)"),
        arg => format!("%!{verb}({}={})", arg.type_name(), arg.printed()),
    }
}

fn one(verb: char, arg: &Value, flags: Flags) -> String {
    match (verb, arg) {
        ('T', arg) => return pad(arg.type_name().to_owned(), flags, false),
        ('v', Value::Nil) => return pad("<nil>".to_owned(), flags, false),
        ('v', arg) if flags.sharp => return pad(go_syntax(arg), flags, false),
        _ => {}
    }
    match arg {
        Value::Nil => bad_verb(verb, arg),
        Value::Bool(value) if matches!(verb, 't' | 'v') => pad(value.to_string(), flags, false),
        Value::Int(value) => integer(verb, i128::from(*value), flags).unwrap_or_else(|| bad_verb(verb, arg)),
        Value::Uint(value) => integer(verb, i128::from(*value), flags).unwrap_or_else(|| bad_verb(verb, arg)),
        Value::Float(value) => float(verb, *value, flags).unwrap_or_else(|| bad_verb(verb, arg)),
        Value::Text(value) | Value::Safe(_, value) => text(verb, value, flags).unwrap_or_else(|| bad_verb(verb, arg)),
        Value::Time(_) | Value::Duration(_) | Value::Named(..) | Value::Histogram(_) => {
            let number = match arg {
                Value::Duration(n) | Value::Named(_, n, _) if !matches!(verb, 'v' | 's' | 'q' | 'x' | 'X') => Some(*n),
                _ => None,
            };
            let shown = match number {
                Some(number) => integer(verb, i128::from(number), flags),
                None => text(verb, &arg.printed(), flags),
            };
            shown.unwrap_or_else(|| bad_verb(verb, arg))
        }
        // They say themselves how they are written.
        Value::Map(map) if map.kind == MapKind::Labels && has_text(verb) => {
            text(verb, &arg.printed(), flags).unwrap_or_else(|| bad_verb(verb, arg))
        }
        Value::List(list) if list.kind == ListKind::Pairs && has_text(verb) => {
            text(verb, &arg.printed(), flags).unwrap_or_else(|| bad_verb(verb, arg))
        }
        Value::List(list) if !matches!(verb, 'v') || flags.plus => {
            let items: Vec<String> = list.items.iter().map(|item| one(verb, item, flags)).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Map(map) if !matches!(verb, 'v') || flags.plus => {
            let key = |name: &str| text(verb, name, flags).unwrap_or_else(|| bad_verb(verb, &Value::text(name)));
            let items: Vec<String> =
                map.entries.iter().map(|(name, value)| format!("{}:{}", key(name), one(verb, value, flags))).collect();
            format!("map[{}]", items.join(" "))
        }
        Value::List(_) | Value::Map(_) => pad(arg.printed(), flags, false),
        Value::Struct(_) if matches!(verb, 'v' | 's') => {
            let mut out = String::new();
            arg.print(&mut out, flags.plus);
            pad(out, flags, false)
        }
        Value::Bool(_) | Value::Struct(_) => bad_verb(verb, arg),
    }
}

/// Says whether a verb is one of texts.
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
    let digits = match verb {
        'd' | 'v' => size.to_string(),
        'b' if flags.sharp => format!("{size:#b}"),
        'b' => format!("{size:b}"),
        'o' if flags.sharp => format!("0{size:o}"),
        'o' => format!("{size:o}"),
        'O' => format!("{size:#o}"),
        'x' if flags.sharp => format!("{size:#x}"),
        'x' => format!("{size:x}"),
        'X' if flags.sharp => format!("0X{size:X}"),
        'X' => format!("{size:X}"),
        'c' | 'q' | 'U' => {
            let c = u32::try_from(value).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
            let shown = match verb {
                'c' => c.to_string(),
                'q' if flags.plus => ascii(&quote_char(c)),
                'q' => quote_char(c),
                _ if flags.sharp => format!("U+{size:04X} '{c}'"),
                _ => format!("U+{size:04X}"),
            };
            return Some(if verb == 'U' { pad(shown, flags, false) } else { pad_text(shown, flags) });
        }
        _ => return None,
    };
    let mut flags = flags;
    let digits = match flags.precision {
        Some(0) if size == 0 => String::new(),
        Some(precision) => {
            flags.zero = false;
            format!("{digits:0>precision$}")
        }
        None => digits,
    };
    Some(pad(signed(&digits, value < 0, flags), flags, true))
}

fn float(verb: char, value: f64, flags: Flags) -> Option<String> {
    let shown = match verb {
        'v' | 'g' => general(value, flags.precision, flags.sharp && verb == 'g'),
        'G' => general(value, flags.precision, flags.sharp).replace('e', "E"),
        'e' | 'f' | 'F' => with_precision(value, verb, flags.precision),
        'E' => with_precision(value, 'e', flags.precision).replace('e', "E"),
        'x' => hexadecimal(value, flags.precision),
        'X' => hexadecimal(value, flags.precision).to_ascii_uppercase(),
        'b' => binary(value),
        _ => return None,
    };
    let (negative, digits) = match shown.strip_prefix(['-', '+']) {
        Some(digits) => (shown.starts_with('-'), digits),
        None => (false, shown.as_str()),
    };
    let infinite = !value.is_finite();
    // Go writes a plus before infinity when nothing else stands there.
    let shown = if infinite && !negative && !value.is_nan() && !flags.space {
        format!("+{digits}")
    } else {
        signed(digits, negative, flags)
    };
    Some(pad(shown, flags, !infinite))
}

/// Escapes of a quoted text what is not ASCII.
fn ascii(quoted: &str) -> String {
    let mut out = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        match c as u32 {
            0..0x80 => out.push(c),
            code @ 0x80..0x1_0000 => out += &format!("\\u{code:04x}"),
            code => out += &format!("\\U{code:08x}"),
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
            match (flags.sharp && !text.contains('`'), flags.plus) {
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
    const ASCII: &str = r#""\u00e9\U0001f642\""|"é"|'\u00e9'"#;

    fn check(form: &str, args: &[Value], expected: &str) {
        assert_eq!(format(form, args, |_| Ok(())).as_deref(), Ok(expected), "{form}");
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
    fn what_does_not_suit() {
        check("%d", &[Value::text("x")], "%!d(string=x)");
        check("%d %d", &[Value::Int(1)], "1 %!d(MISSING)");
        check("a", &[Value::Int(1), Value::text("b")], "a%!(EXTRA int=1, string=b)");
        check("%", &[], "%!(NOVERB)");
        check("%[5]d", &[Value::Int(1)], "%!d(BADINDEX)");
        check("%s", &[Value::Int(1)], "%!s(int=1)");
    }
}
