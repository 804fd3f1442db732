//! Durations as texts, as answers of Tempo have them.

/// Writes a duration as Go does: the largest unit below a second, or hours, minutes and seconds.
pub(super) fn go_text(nanos: i64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let sign = if nanos < 0 { "-" } else { "" };
    match nanos.unsigned_abs() {
        0 => "0s".to_owned(),
        all @ 1..1_000 => format!("{sign}{all}ns"),
        all @ 1_000..1_000_000 => format!("{sign}{}µs", decimal(all, 1_000)),
        all @ 1_000_000..SECOND => format!("{sign}{}ms", decimal(all, 1_000_000)),
        all => {
            let (hours, minutes) = (all / (3_600 * SECOND), all / (60 * SECOND) % 60);
            let seconds = decimal(all % (60 * SECOND), SECOND);
            match (hours, minutes) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Writes a number of parts of a unit, which is a power of ten, as one of units.
fn decimal(parts: u64, unit: u64) -> String {
    let (whole, rest) = (parts / unit, parts % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    format!("{whole}.{rest:0digits$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (nanos, expected) in [
            (0, "0s"),
            (400, "400ns"),
            (1_500, "1.5µs"),
            (480_123_456, "480.123456ms"),
            (269_250_000, "269.25ms"),
            (1_000_000_000, "1s"),
            (-61_050_000_000, "-1m1.05s"),
            (3_600_500_000_000, "1h0m0.5s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(go_text(nanos), expected);
        }
    }
}
