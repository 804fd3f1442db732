//! `decolorize [f]`: leaves out ANSI escape sequences.

/// Writes a value without its control sequences.
pub fn decolorize(value: &str, out: &mut String) {
    out.extend(quiver_types::logs::without_colors(value));
}
