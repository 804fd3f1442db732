//! Stack traces and messages of errors: `app_frames(s)`, `top_app_frame(s)`, `first_frame_file(s)`, `fingerprint(type, frames)`,
//! `fold_text(t)`.

use super::database_statements::hash;
use super::text_functions::Texts;

/// Frames that name an error; those below hardly differ between its causes.
const FRAMES_MAX: usize = 50;

/// How frames of runtimes and libraries begin, or what they hold.
const FOREIGN_STARTS: &[&str] = &[
    "java.",
    "javax.",
    "jakarta.",
    "jdk.",
    "sun.",
    "com.sun.",
    "kotlin.",
    "kotlinx.",
    "scala.",
    "groovy.",
    "clojure.",
    "org.apache.",
    "org.springframework.",
    "org.hibernate.",
    "org.jboss.",
    "org.eclipse.",
    "io.netty.",
    "io.grpc.",
    "io.opentelemetry.",
    "reactor.",
    "System.",
    "Microsoft.",
    "runtime.",
    "net/http.",
    "node:",
    "[internal function]",
    "std::",
    "core::",
];
const FOREIGN_PARTS: &[&str] = &[
    "node_modules/",
    "(node:",
    "(internal/",
    "site-packages/",
    "dist-packages/",
    "lib/python",
    "<frozen ",
    "/pkg/mod/",
    "/usr/local/go/src/",
    "/rustc/",
    "/gems/",
    "/vendor/",
];

/// The frames of a stack trace, the innermost first, without places within a file.
fn frames(stack: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut innermost_last = false;
    for line in stack.lines() {
        let text = line.trim();
        let text = text.strip_prefix("from ").unwrap_or(text);
        let frame = if let Some(frame) = text.strip_prefix("at ") {
            frame
        } else if text.starts_with("File \"") {
            innermost_last = true;
            text
        } else if line.starts_with('\t') && text.contains(".go:") || text.contains(".rb:") || is_numbered(text) {
            text
        } else {
            continue;
        };
        found.push(without_numbers(frame));
        if found.len() >= FRAMES_MAX && !innermost_last {
            break;
        }
    }
    if innermost_last {
        found.reverse();
    }
    found
}

/// `#0 …`, `0: …`: frames of PHP and Rust.
fn is_numbered(text: &str) -> bool {
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let hashed = text.strip_prefix('#').is_some_and(|rest| digits(rest) > 0);
    hashed || digits(text) > 0 && text[digits(text)..].starts_with(": ")
}

/// A frame without numbers of lines, frames and addresses, which change with each build.
fn without_numbers(frame: &str) -> String {
    let frame = match frame.split_once(": ") {
        Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => frame.trim_start_matches('#').trim_start_matches(|c: char| c.is_ascii_digit()).trim_start(),
    };
    let frame = frame.split(" +0x").next().unwrap_or(frame);
    let mut out = String::with_capacity(frame.len());
    let mut chars = frame.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ':' && chars.peek().is_some_and(char::is_ascii_digit) {
            while chars.peek().is_some_and(char::is_ascii_digit) {
                chars.next();
            }
        } else {
            out.push(c);
        }
    }
    // `, line 17, in f` of Python, `Cart.cs:line 17` of .NET.
    if let Some((before, after)) = out.split_once(", line ").or_else(|| out.split_once(":line ")) {
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
        out = format!("{before}{after}");
    }
    // `Cart.php(17): add()` of PHP.
    if let Some((place, call)) = out.split_once("): ")
        && let Some((file, line)) = place.rsplit_once('(')
        && !line.is_empty()
        && line.bytes().all(|b| b.is_ascii_digit())
    {
        out = format!("{file}: {call}");
    }
    out
}

fn is_foreign(frame: &str) -> bool {
    let name = frame.strip_prefix("async ").unwrap_or(frame);
    FOREIGN_STARTS.iter().any(|start| name.starts_with(start)) || FOREIGN_PARTS.iter().any(|part| name.contains(part))
}

fn own_frames(stack: &str) -> impl Iterator<Item = String> {
    frames(stack).into_iter().filter(|frame| !is_foreign(frame))
}

/// `app_frames(s)`: frames outside of runtimes and libraries, one a line, the innermost first.
pub(super) fn app_frames(texts: &Texts<'_>) -> Option<String> {
    let own: Vec<String> = own_frames(texts[0]?).take(FRAMES_MAX).collect();
    (!own.is_empty()).then(|| own.join("\n"))
}

/// `top_app_frame(s)`: the innermost of them.
pub(super) fn top_app_frame(texts: &Texts<'_>) -> Option<String> {
    own_frames(texts[0]?).next()
}

/// `first_frame_file(s)`: the file of the innermost frame.
pub(super) fn first_frame_file(texts: &Texts<'_>) -> Option<String> {
    let frame = frames(texts[0]?).into_iter().next()?;
    file_of(&frame).filter(|file| !file.is_empty()).map(str::to_owned)
}

/// Where a frame says that it is: in parentheses at its end, or as its language has it.
fn file_of(frame: &str) -> Option<&str> {
    if let Some(rest) = frame.strip_prefix("File \"") {
        return rest.split('"').next();
    }
    // PHP and Ruby name the file before the function, .NET behind its arguments.
    if frame.starts_with("[internal function]") {
        return None;
    }
    if let Some((before, _)) = frame.split_once(".php: ") {
        return frame.get(..before.len() + ".php".len());
    }
    if let Some((file, _)) = frame.split_once(":in ") {
        return Some(file);
    }
    if let Some((_, file)) = frame.rsplit_once(") in ") {
        return Some(file);
    }
    match frame.rsplit_once('(') {
        Some((_, inner)) => Some(inner.trim_end_matches(')')),
        None => frame.rsplit(" in ").next(),
    }
}

/// `fingerprint(type, frames)`: a hash; none where both are NULL.
pub(super) fn fingerprint(texts: &Texts<'_>) -> Option<String> {
    let (kind, frames) = (texts[0], texts[1]);
    (kind.is_some() || frames.is_some()).then(|| hash(&[kind.unwrap_or_default(), frames.unwrap_or_default()]))
}

/// `fold_text(t)`: a message whose numbers, hexadecimal tokens and quoted texts are `?`.
pub(super) fn fold_text(texts: &Texts<'_>) -> Option<String> {
    let mut out = String::new();
    let mut quote = None;
    for word in texts[0]?.split_inclusive(|c: char| !c.is_alphanumeric() && c != '-' && c != '_') {
        let end = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
        let sign = &word[end.len()..];
        if quote.is_none() {
            out.push_str(if end.bytes().any(|b| b.is_ascii_digit()) { "?" } else { end });
        }
        match (quote, sign.chars().next()) {
            (None, Some(c @ ('\'' | '"' | '`'))) if c != '\'' || end.is_empty() => {
                quote = Some(c);
                out.push('?');
            }
            (Some(open), Some(c)) if open == c => quote = None,
            (None, _) => out.push_str(sign),
            _ => {}
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JAVA: &str = "java.lang.IllegalStateException: no\n\tat java.base/java.util.X.y(X.java:1)\n\tat \
                        org.springframework.A.b(A.java:7)\n\tat shop.Cart.add(Cart.java:12)\n\tat shop.Main.run(Main.java:3)";
    const PYTHON: &str = "Traceback (most recent call last):\n  File \"app/main.py\", line 3, in run\n    f()\n  File \
                          \"/usr/lib/python3/site-packages/x.py\", line 9, in g\nValueError: no";

    #[test]
    fn frames_of_the_application() {
        let own = app_frames(&[Some(JAVA)]).unwrap();
        assert!(own.ends_with("shop.Cart.add(Cart.java)\nshop.Main.run(Main.java)"), "{own}");
        assert_eq!(top_app_frame(&[Some(PYTHON)]).as_deref(), Some("File \"app/main.py\", in run"));
        assert_eq!(first_frame_file(&[Some("E\n    at f (src/a.js:1:2)")]).as_deref(), Some("src/a.js"));
        assert_eq!(app_frames(&[Some("no stack")]), None);
    }

    /// Of each language what stands for a frame, its file, and the same error once its lines have moved.
    #[test]
    fn frames_have_no_lines() {
        let check = |stack: &str, own: &str, file: Option<&str>| {
            assert_eq!(app_frames(&[Some(stack)]).as_deref(), Some(own), "{stack}");
            assert_eq!(first_frame_file(&[Some(stack)]).as_deref(), file, "{stack}");
            let moved = stack.replace("12", "347").replace('7', "99");
            assert_eq!(app_frames(&[Some(&moved)]).as_deref(), Some(own), "{moved}");
        };
        check(
            "E: no\n\tat shop.Cart.add(Cart.java:12)\n\tat java.base/java.lang.Thread.run(Thread.java:7)",
            "shop.Cart.add(Cart.java)",
            Some("Cart.java"),
        );
        check(
            "E: no\n    at add (/app/src/cart.js:12:7)\n    at async run (/app/main.js:7:1)\n    at node:internal/x:7:1",
            "add (/app/src/cart.js)\nasync run (/app/main.js)",
            Some("/app/src/cart.js"),
        );
        check(
            "#0 /app/src/Cart.php(12): Shop\\Cart->add()\n#1 [internal function]: run(Object)\n#2 /app/vendor/x.php(7): y()",
            "/app/src/Cart.php: Shop\\Cart->add()",
            Some("/app/src/Cart.php"),
        );
        check(
            "E: no\n   at Shop.Cart.Add(Int32 x, String y) in C:\\app\\Cart.cs:line 12\n   at System.Threading.X.Run()",
            "Shop.Cart.Add(Int32 x, String y) in C:\\app\\Cart.cs",
            Some("C:\\app\\Cart.cs"),
        );
        check(
            "/app/cart.rb:12:in `add'\n\tfrom /app/main.rb:7:in `<main>'\n\tfrom /x/gems/y.rb:7:in `z'",
            "/app/cart.rb:in `add'\n/app/main.rb:in `<main>'",
            Some("/app/cart.rb"),
        );
        check(
            "goroutine 1 [running]:\nmain.add(0x12)\n\t/app/cart.go:12 +0x1d\n\t/root/go/pkg/mod/y/z.go:7 +0x2",
            "/app/cart.go",
            Some("/app/cart.go"),
        );
        check(
            "Traceback:\n  File \"/x/site-packages/y.py\", line 7, in z\n  File \"/app/cart.py\", line 12, in add\nE: no",
            "File \"/app/cart.py\", in add",
            Some("/app/cart.py"),
        );
    }

    #[test]
    fn what_is_no_stack_has_no_frames() {
        for text in ["", "no stack", "at", "12 apples", "#", ": x", "\tnothing.go"] {
            assert_eq!(app_frames(&[Some(text)]), None, "{text}");
            assert_eq!((top_app_frame(&[Some(text)]), first_frame_file(&[Some(text)])), (None, None), "{text}");
        }
        let foreign = "E\n\tat java.util.X.y(X.java:1)\n\tat org.springframework.A.b(A.java:7)";
        assert_eq!((app_frames(&[Some(foreign)]), top_app_frame(&[Some(foreign)])), (None, None));
        assert_eq!(first_frame_file(&[Some(foreign)]).as_deref(), Some("X.java"));
        assert_eq!(first_frame_file(&[Some("#0 [internal function]: run(Object)")]), None);
    }

    #[test]
    fn deep_stacks_are_cut() {
        let lines: Vec<String> =
            (0..200).map(|i| format!("\tat shop.F{}.run(F.java:{i})", char::from(b'a' + i % 26))).collect();
        let own = app_frames(&[Some(&lines.join("\n"))]).expect("frames");
        assert_eq!(own.lines().count(), FRAMES_MAX);
        assert!(own.starts_with("shop.Fa.run(F.java)\nshop.Fb.run"), "{own}");
        // Python has the innermost at the end, so all of them are read.
        let lines: Vec<String> = (0..200).map(|i| format!("File \"/app/f{i}.py\", line {i}, in f")).collect();
        assert_eq!(first_frame_file(&[Some(&lines.join("\n"))]).as_deref(), Some("/app/f199.py"));
    }

    #[test]
    fn fingerprints() {
        let moved = JAVA.replace(":12)", ":99)");
        let of = |stack: &str| fingerprint(&[Some("E"), app_frames(&[Some(stack)]).as_deref()]);
        assert_eq!(of(JAVA), of(&moved), "a line that moved is the same error");
        assert_ne!(fingerprint(&[Some("E"), None]), fingerprint(&[Some("F"), None]));
        assert_eq!(fingerprint(&[None, None]), None);
    }

    #[test]
    fn messages_are_folded() {
        let check = |text, expected: &str| assert_eq!(fold_text(&[Some(text)]).as_deref(), Some(expected), "{text}");
        check("order 17 of user 9f3c is gone", "order ? of user ? is gone");
        check("cannot find `shop cart` here", "cannot find ? here");
        check("it's over", "it's over");
        check("", "");
        check("a 'quoted 17' and \"another\" end", "a ? and ? end");
        check("unclosed \"text 17", "unclosed ?");
        check("key=abc-12, other=x", "key=?, other=x");
        check("größe 12µ, 7ß", "größe ?, ?");
        check("a1\nb2", "?\n?");
    }
}
