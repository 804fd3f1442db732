//! What the regular expressions of a query take when they are compiled: each filter compiles its own.

use quiver_types::matcher::{QUERY_REGEX_BYTES_MAX, REGEX_BYTES_MAX, compiled_bytes};

/// Most regular expressions of a query.
const REGEXPS_MAX: usize = 256;
/// So few cannot take too much, since each is bounded: they are not measured.
const FEW: usize = QUERY_REGEX_BYTES_MAX / REGEX_BYTES_MAX;

/// The regular expressions of all texts that make one query.
#[derive(Debug, Default)]
pub struct Regexps {
    count: usize,
    /// The first ones, while these are all.
    few: Vec<String>,
    /// Bytes of all, once they are more.
    measured: usize,
}

impl Regexps {
    /// Counts one that can be compiled.
    ///
    /// # Errors
    /// Why there are too many.
    pub(super) fn add(&mut self, pattern: &str) -> Result<(), String> {
        self.count += 1;
        if self.count > REGEXPS_MAX {
            return Err(format!("more than {REGEXPS_MAX} regular expressions"));
        }
        self.few.push(pattern.to_owned());
        if self.count > FEW {
            self.measured += self.few.drain(..).map(|pattern| compiled_bytes(&pattern)).sum::<usize>();
        }
        if self.measured > QUERY_REGEX_BYTES_MAX {
            return Err(format!("the regular expressions of a query take more than {QUERY_REGEX_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_ones_are_few() {
        let mut regexps = Regexps::default();
        let large = |n: usize| format!(r"x{n}\w{{15}}");
        let bytes = compiled_bytes(&large(0));
        assert!((100_000..REGEX_BYTES_MAX).contains(&bytes), "{bytes}");
        let fits = (0..REGEXPS_MAX).take_while(|n| regexps.add(&large(*n)).is_ok()).count();
        assert!((FEW..=QUERY_REGEX_BYTES_MAX / bytes + 1).contains(&fits), "{fits} of {bytes} bytes each");
        // The same one again is compiled again.
        let mut regexps = Regexps::default();
        let fits = (0..REGEXPS_MAX).take_while(|_| regexps.add(&large(0)).is_ok()).count();
        assert_eq!(fits, QUERY_REGEX_BYTES_MAX / bytes);
        let mut regexps = Regexps::default();
        assert!((0..REGEXPS_MAX).all(|n| regexps.add(&format!("a{n}.*b")).is_ok()));
        assert!(regexps.add("a").is_err());
    }
}
