//! How far a long measurement is: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::output;

/// A terminal's bar changes this often.
const PERIOD: Duration = Duration::from_millis(100);
/// Elsewhere a line comes this often.
const PLAIN_PERIOD: Duration = Duration::from_secs(10);
/// Columns of the bar.
const COLUMNS: usize = 20;

/// Tells progress on stderr.
pub(crate) struct Bar {
    terminal: bool,
    started: Instant,
    next: Instant,
    /// What was done when it started, of `all`.
    before: usize,
    all: usize,
    drawn: bool,
}

impl Bar {
    /// Nothing told yet; `before` of `all` are done already.
    pub(crate) fn new(before: usize, all: usize) -> Bar {
        let terminal = io::stderr().is_terminal() && !super::live::terminal_is_dumb();
        let started = Instant::now();
        let next = if terminal { started } else { started + PLAIN_PERIOD };
        Bar { terminal, started, next, before, all, drawn: false }
    }

    /// Takes what is done, and something to say about it.
    pub(crate) fn update(&mut self, done: usize, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + if self.terminal { PERIOD } else { PLAIN_PERIOD };
        let line =
            line(done, self.all, remaining(done - self.before, self.all - done, self.started.elapsed()), &text());
        if self.terminal {
            self.drawn = true;
            let columns = crossterm::terminal::size().map_or(80, |(width, _)| usize::from(width.max(1)));
            let filled = COLUMNS * done / self.all.max(1);
            let line = format!("{}{} {line}", "\u{2588}".repeat(filled), "\u{2591}".repeat(COLUMNS - filled));
            let line: String = line.chars().take(columns.saturating_sub(1)).collect();
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        } else {
            output::say(&line);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(done: usize, all: usize, left: Option<Duration>, text: &str) -> String {
    let left = left.map(|left| format!(", {} left", spelled(left))).unwrap_or_default();
    let text = if text.is_empty() { String::new() } else { format!(", {text}") };
    format!("{done} of {all} answers{left}{text}")
}

fn remaining(done: usize, open: usize, elapsed: Duration) -> Option<Duration> {
    (done > 0).then(|| elapsed.mul_f64(open as f64 / done as f64))
}

fn spelled(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_what_is_done_and_how_long_it_takes() {
        let left = remaining(10, 30, Duration::from_secs(50));
        assert_eq!(line(10, 40, left, "exact 90 %"), "10 of 40 answers, 2 min 30 s left, exact 90 %");
        assert_eq!(line(0, 40, remaining(0, 40, Duration::ZERO), ""), "0 of 40 answers");
        assert_eq!(spelled(Duration::from_secs(7265)), "2 h 01 min");
    }
}
