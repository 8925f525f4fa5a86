//! One line about a model that takes a while to load.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Loads faster than this say nothing.
const QUIET: Duration = Duration::from_millis(400);

/// How often the line changes.
const PERIOD: Duration = Duration::from_millis(100);

/// Draws progress on stderr if that is a terminal.
pub(crate) struct Progress {
    next: Option<Instant>,
    drawn: bool,
}

impl Progress {
    /// Nothing drawn yet.
    pub(crate) fn new() -> Progress {
        let draws = io::stderr().is_terminal() && !super::live::terminal_is_dumb();
        Progress { next: draws.then(|| Instant::now() + QUIET), drawn: false }
    }

    /// Takes the bytes done and the bytes in all.
    pub(crate) fn update(&mut self, done: u64, all: u64) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + PERIOD);
        self.drawn = true;
        let percent = (done as f64 / all.max(1) as f64 * 100.0) as u32;
        let _ = write!(io::stderr(), "\rloading the model: {percent:3} %\x1b[K");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
