//! The time that retention uses. A machine that boots with a wrong clock must not lose its data, so the wall clock is
//! trusted only while it advances in step with the monotonic clock, starting from a time that was trusted before.
//!
//! The trusted time is stored in the file `CLOCK` of the data directory; without the file, the time of the newest
//! commit or sample in the store is used. A wall clock that is more than a day ahead (it jumped, or the store was off
//! for long) is compared with the monotonic clock for hours. It is trusted if it kept in step and samples with its time
//! kept arriving from senders. Until then the time continues from the last trusted one.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use quiver_types::Millis;
use quiver_types::time::DAY_MS;

use crate::error::{Context, Result, chain, io_error};
use crate::layout::sync_dir;
use crate::metrics::METRICS;

/// Maximum accepted difference between the wall clock and the expected time.
pub(crate) const LEAP_MAX: Millis = DAY_MS;
/// How far ahead of the clock the newest sample may be to count.
const SAMPLES_AHEAD: Millis = 2 * DAY_MS;
/// How far the trusted time advances before it is written again.
const WRITE_EVERY: Millis = 10 * 60_000;
/// How often a distrusted clock is logged.
const SAY_EVERY: Duration = Duration::from_hours(1);

/// The clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    /// The wall clock.
    pub(super) wall: Millis,
    /// The monotonic clock.
    pub(super) elapsed: Duration,
    /// Time of the newest sample that a sender wrote.
    pub(super) newest: Option<Millis>,
}

/// A wall clock that differs from the expected time.
#[derive(Debug, Clone, Copy)]
struct Leap {
    wall: Millis,
    since: Duration,
    /// When it was last logged.
    said: Option<Duration>,
}

/// The newest time that senders wrote. What the server writes itself (results of rules, records of its use) bears the time
/// of its own clock, and would confirm any.
#[derive(Debug, Default)]
pub(crate) struct SentTimes(AtomicI64);

impl SentTimes {
    /// Gives the newest of some times, of those that the clock allows.
    pub(crate) fn newest_of(times: impl Iterator<Item = Millis>, wall: Millis) -> Option<Millis> {
        let latest = wall.saturating_add(SAMPLES_AHEAD);
        times.filter(|&ts| ts <= latest).max()
    }

    /// Notes what a sender wrote, by a clock. A time that this one does not allow was noted while it was ahead; kept as the
    /// newest, it would hide all that comes.
    pub(crate) fn note(&self, newest: Option<Millis>, wall: Millis) {
        if let Some(newest) = newest {
            let newer = |old| Some(Self::newest_of([old, newest].into_iter(), wall).unwrap_or(newest));
            // It always gives one, so it never fails.
            let _ = self.0.fetch_update(Relaxed, Relaxed, newer);
        }
    }

    /// Gives the newest one, if the clock allows it.
    pub(super) fn newest(&self, wall: Millis) -> Option<Millis> {
        Self::newest_of(std::iter::once(self.0.load(Relaxed)), wall)
    }
}

/// The clock that retention uses; see the module documentation.
#[derive(Debug)]
pub(crate) struct TrustedClock {
    /// The last trusted time, and the monotonic clock at that moment.
    anchor: (Millis, Duration),
    confirm: Duration,
    leap: Option<Leap>,
    file: PathBuf,
    written: Option<Millis>,
}

fn millis(time: Duration) -> Millis {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Path of the file with the trusted time.
pub(crate) fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("CLOCK")
}

/// Reads the trusted time; `None` if there is no file, or it is damaged, which is logged.
pub(crate) fn believed(file: &Path) -> Option<Millis> {
    let read = quiver_files::read_text(file, 1024);
    let why = match read.map(|text| text.trim().parse::<Millis>()) {
        Ok(Ok(time)) => return Some(time),
        Ok(Err(_)) => "it holds no number".to_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        Err(e) => e.to_string(),
    };
    tracing::warn!(
        path = %file.display(),
        why,
        "the time that retention goes by cannot be read; that of the newest commit or sample takes its place"
    );
    None
}

/// Describes how far the wall clock is from the trusted time.
pub(crate) fn words(wall: Millis, believed: Millis) -> String {
    let days = wall.abs_diff(believed) as f64 / DAY_MS as f64;
    let side = if wall > believed { "ahead of" } else { "behind" };
    format!(
        "the clock of this machine is {days:.1} days {side} the time that retention goes by; days are dropped by the \
         earlier of the two until the clock has held for hours{}",
        if wall > believed { " and samples of its time have kept coming" } else { "" }
    )
}

impl TrustedClock {
    /// Starts with a trusted time, which it was at `elapsed` of the monotonic clock. A deviating wall clock is trusted
    /// again once it has been in step for `confirm`.
    pub(super) fn new(file: PathBuf, time: Millis, elapsed: Duration, confirm: Duration) -> Self {
        Self { anchor: (time, elapsed), confirm, leap: None, file, written: None }
    }

    /// The time that retention may use now. Sets `note` to a message if that is not the wall clock's time.
    pub(super) async fn read(&mut self, now: ClockReading, note: &Mutex<Option<String>>) -> Millis {
        let time = self.judge(now);
        METRICS.retention_clock_lead.set_time(Duration::from_millis(now.wall.abs_diff(self.expected(now.elapsed))));
        *note.lock() = self.distrust(now);
        if self.written.is_none_or(|written| self.anchor.0.abs_diff(written) >= WRITE_EVERY as u64) {
            let (file, anchor) = (self.file.clone(), self.anchor.0);
            match tokio::task::spawn_blocking(move || write(&file, anchor)).await {
                Ok(Ok(())) => self.written = Some(anchor),
                Ok(Err(e)) => tracing::warn!(error = %chain(&e), "cannot note the time that retention goes by"),
                Err(error) => tracing::warn!(%error, "cannot note the time that retention goes by"),
            }
        }
        time
    }

    /// The time the wall clock should have.
    fn expected(&self, elapsed: Duration) -> Millis {
        self.anchor.0.saturating_add(millis(elapsed.saturating_sub(self.anchor.1)))
    }

    fn judge(&mut self, now: ClockReading) -> Millis {
        let expected = self.expected(now.elapsed);
        let off = |wall: Millis, expected: Millis| wall.saturating_sub(expected).saturating_abs() > LEAP_MAX;
        if !off(now.wall, expected) {
            (self.anchor, self.leap) = ((now.wall, now.elapsed), None);
            return now.wall;
        }
        let new = Leap { wall: now.wall, since: now.elapsed, said: None };
        let leap = *self.leap.get_or_insert(new);
        let held = now.elapsed.saturating_sub(leap.since);
        if off(now.wall, leap.wall.saturating_add(millis(held))) {
            // Another jump: start over.
            self.leap = Some(new);
        } else if held >= self.confirm {
            // A clock that is ahead also needs samples from the second half of the period.
            let half = leap.wall.saturating_add(millis(self.confirm / 2));
            if now.wall < expected || now.newest.is_some_and(|newest| newest >= half) {
                tracing::info!(
                    days = now.wall.saturating_sub(expected) / DAY_MS,
                    "the clock has held, retention goes by it again"
                );
                (self.anchor, self.leap) = ((now.wall, now.elapsed), None);
                return now.wall;
            }
        }
        expected.min(now.wall)
    }

    /// A message if the wall clock is not trusted; also logs it from time to time.
    fn distrust(&mut self, now: ClockReading) -> Option<String> {
        let expected = self.expected(now.elapsed);
        self.leap.as_mut().map(|leap| {
            let text = words(now.wall, expected);
            if leap.said.is_none_or(|said| now.elapsed.saturating_sub(said) >= SAY_EVERY) {
                leap.said = Some(now.elapsed);
                tracing::warn!("{text}");
            }
            text
        })
    }
}

/// Writes the trusted time.
pub(crate) fn write(file: &Path, time: Millis) -> Result<()> {
    let temporary = file.with_extension("tmp");
    let put = || {
        quiver_files::refuse_irregular(&temporary)?;
        let mut out = File::create(&temporary)?;
        writeln!(out, "{time}")?;
        out.sync_all()?;
        std::fs::rename(&temporary, file)
    };
    put().map_err(|e| io_error(format!("cannot write `{}`", file.display()), e))?;
    file.parent().map_or(Ok(()), sync_dir).internal("cannot sync the data directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Millis = 20_000 * DAY_MS;
    const HOUR: Millis = 3_600_000;

    fn clock() -> TrustedClock {
        let confirm = Duration::from_hours(6);
        TrustedClock { anchor: (START, Duration::ZERO), confirm, leap: None, file: PathBuf::new(), written: None }
    }

    /// Reads it `hours` after the start of the process; `wall` and `newest` are hours after the believed time.
    fn at(clock: &mut TrustedClock, hours: Millis, wall: Millis, newest: Option<Millis>) -> Millis {
        let elapsed = Duration::from_millis((hours * HOUR) as u64);
        let reading = ClockReading { wall: START + wall * HOUR, elapsed, newest: newest.map(|h| START + h * HOUR) };
        (clock.judge(reading) - START) / HOUR
    }

    #[test]
    fn a_clock_that_moves_evenly_is_believed() {
        let mut clock = clock();
        assert_eq!(at(&mut clock, 0, 20, None), 20, "a day ahead after a pause");
        // No sample for a year.
        for hours in 1..8760 {
            assert_eq!(at(&mut clock, hours, 20 + hours, None), 20 + hours);
        }
    }

    #[test]
    fn a_jump_is_not_believed_without_samples() {
        let mut clock = clock();
        for hours in 0..100 {
            assert_eq!(at(&mut clock, hours, 960 + hours, Some(0)), hours, "time goes on evenly");
        }
        assert_eq!(at(&mut clock, 100, 100, Some(0)), 100, "and is believed when it comes back");
    }

    #[test]
    fn times_that_the_clock_does_not_allow_are_no_senders_time() {
        let sent = SentTimes::default();
        assert_eq!(sent.newest(START), Some(0), "nothing was sent since 1970");
        let newest = |hours: &[Millis]| SentTimes::newest_of(hours.iter().map(|h| START + h * HOUR), START);
        assert_eq!((newest(&[]), newest(&[49, 5000])), (None, None));
        assert_eq!(newest(&[-7, 48, 3, 49]), Some(START + 48 * HOUR));
        for times in [&[1][..], &[], &[-5]] {
            sent.note(newest(times), START);
        }
        assert_eq!(sent.newest(START), Some(START + HOUR));
        let back = START - 100 * HOUR;
        assert_eq!(sent.newest(back), None, "the clock went back");
        sent.note(Some(back), back);
        assert_eq!(sent.newest(back), Some(back), "and samples of its time come");
        sent.note(Some(back - HOUR), back);
        assert_eq!(sent.newest(START), Some(back));
    }

    #[test]
    fn a_long_pause_is_believed_when_samples_keep_coming() {
        let mut clock = clock();
        for hours in 0..6 {
            assert_eq!(at(&mut clock, hours, 960 + hours, Some(960 + hours)), hours);
        }
        assert_eq!(at(&mut clock, 6, 966, Some(961)), 6, "they came at first only");
        assert_eq!(at(&mut clock, 7, 967, Some(966)), 967);
    }

    #[test]
    fn each_jump_begins_anew() {
        let mut clock = clock();
        assert_eq!(at(&mut clock, 0, 960, Some(960)), 0);
        assert_eq!(at(&mut clock, 5, 2000, Some(2000)), 5);
        assert_eq!(at(&mut clock, 6, 2001, Some(2001)), 6);
        assert_eq!(at(&mut clock, 11, 2006, Some(2006)), 2006);
    }

    #[test]
    fn a_clock_that_goes_back_drops_less() {
        let mut clock = clock();
        assert_eq!(at(&mut clock, 0, -960, None), -960);
        assert_eq!(at(&mut clock, 3, 3, None), 3, "it came back in time");
        assert_eq!(at(&mut clock, 4, -960, None), -960);
        assert_eq!(at(&mut clock, 10, -954, None), -954, "it has held");
        assert_eq!(at(&mut clock, 11, 11, None), -953, "so this is a jump");
    }

    #[test]
    fn the_time_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        assert_eq!(believed(&file), None);
        write(&file, START).unwrap();
        write(&file, START + 5).unwrap();
        assert_eq!(believed(&file), Some(START + 5));
        std::fs::write(&file, "x").unwrap();
        assert_eq!(believed(&file), None);
    }

    /// Breaks if a start, or a round of retention, blocks on a pipe until somebody opens its other end.
    #[test]
    fn a_pipe_in_its_place_is_not_waited_for() {
        use rustix::fs::{CWD, Mode, mkfifoat};

        let dir = tempfile::tempdir().unwrap();
        let (file, mode) = (file(dir.path()), Mode::RUSR | Mode::WUSR);
        mkfifoat(CWD, &file, mode).unwrap();
        assert_eq!(believed(&file), None);
        write(&file, START).unwrap();
        assert_eq!(believed(&file), Some(START), "it has taken the place of the pipe");
        mkfifoat(CWD, file.with_extension("tmp"), mode).unwrap();
        let told = chain(&write(&file, START + 5).unwrap_err());
        assert!(told.starts_with("cannot write `") && told.ends_with("CLOCK`: it is no regular file"), "{told}");
        assert_eq!(believed(&file), Some(START));
    }

    /// A file of a damaged disk may hold any number.
    #[test]
    fn a_believed_time_at_the_end_of_time_is_no_fault() {
        assert!(words(0, i64::MIN).contains(" is 106751991167.3 days ahead of the time"), "{}", words(0, i64::MIN));
        assert!(words(-2, i64::MAX).contains(" is 106751991167.3 days behind the time"), "{}", words(-2, i64::MAX));
        for (time, expected) in [(i64::MIN, i64::MIN), (i64::MAX, START)] {
            let mut clock = TrustedClock { anchor: (time, Duration::ZERO), ..clock() };
            let reading = |hours: Millis| ClockReading {
                wall: START + hours * HOUR,
                elapsed: Duration::from_hours(hours as u64),
                newest: Some(START + hours * HOUR),
            };
            assert_eq!(clock.judge(reading(0)), expected, "the earlier of the two");
            assert_eq!(clock.judge(reading(6)), START + 6 * HOUR, "the clock has held");
            assert_eq!(clock.judge(reading(7)), START + 7 * HOUR);
        }
    }

    #[test]
    fn how_far_the_clock_is_off_is_told_in_days() {
        let ahead = words(START + DAY_MS * 3 / 2, START);
        assert!(ahead.starts_with("the clock of this machine is 1.5 days ahead of the time"), "{ahead}");
        assert!(ahead.ends_with("until the clock has held for hours and samples of its time have kept coming"));
        let behind = words(START - 10 * DAY_MS, START);
        assert!(behind.contains("is 10.0 days behind the time") && behind.ends_with("held for hours"), "{behind}");
    }
}
