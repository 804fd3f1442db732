//! Lines for people. Whoever reads them may have seen enough before the last one, as `head` has.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes a line to standard output.
///
/// # Errors
/// The reason, such as a full disk. A reader that has gone is no error.
pub(crate) fn say(line: impl Display) -> Result<(), String> {
    written(io::stdout().lock(), &line)
}

/// Writes a line to standard error. If that fails, the line is lost and only the exit code is left.
pub(crate) fn complain(line: impl Display) {
    let _ = written(io::stderr().lock(), &line);
}

fn written(mut out: impl Write, line: &dyn Display) -> Result<(), String> {
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("the output cannot be written: {e}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer on which every write fails with the same error.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn readers_that_go_away() {
        let mut text = Vec::new();
        assert_eq!(written(&mut text, &"a line"), Ok(()));
        assert_eq!(text, b"a line\n");
        assert_eq!(written(Failing(ErrorKind::BrokenPipe), &"x"), Ok(()));
        let full = written(Failing(ErrorKind::StorageFull), &"x").unwrap_err();
        assert!(full.starts_with("the output cannot be written: "), "{full}");
    }
}
