//! A download as people see it: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use demask_gguf::escape;
use demask_hub::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{self, size};

/// Elsewhere than on a terminal a line comes this often.
const PLAIN_PERIOD: Duration = Duration::from_secs(10);
/// Hashing faster than this isn't told.
const QUIET: Duration = Duration::from_millis(500);

/// Tells events on stderr.
pub(crate) struct Transfer {
    bar: Option<ProgressBar>,
    terminal: bool,
    /// What the bar or the lines are about.
    subject: String,
    all: u64,
    began: Instant,
    next: Instant,
}

impl Transfer {
    /// Nothing told yet.
    pub(crate) fn new() -> Transfer {
        let terminal = io::stderr().is_terminal() && !super::live::terminal_is_dumb();
        let now = Instant::now();
        Transfer { bar: None, terminal, subject: String::new(), all: 0, began: now, next: now }
    }

    /// Takes what happened.
    pub(crate) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::File { name, done, size } => self.begin(&escape(name), done, size),
            Event::Bytes { done } => self.advance(done),
            Event::Hashing { name, done, size } => self.hashing(&escape(name), done, size),
            Event::Retry { reason, wait } => {
                self.note(&format!("{reason}; trying again in {:.1} s", wait.as_secs_f64()));
            }
            Event::Restart { name, reason } => self.note(&format!("{} starts over: {reason}", escape(name))),
            Event::Waiting { name } => {
                self.note(&format!("another process downloads {}; waiting for it", escape(name)))
            }
            Event::Copied { name } => {
                self.note(&format!("{} was copied, because it can't be linked here", escape(name)));
            }
            Event::Done { name, verified } => {
                self.clear();
                if !verified {
                    output::line(
                        "warning",
                        &format!("the hub tells no SHA-256 of {}: only its size was checked", escape(name)),
                    );
                }
            }
        }
    }

    /// Progress of reading a file for its hash.
    pub(crate) fn hashing(&mut self, name: &str, done: u64, all: u64) {
        self.work(&format!("checking {name}"), done, all);
    }

    /// Progress of something that isn't a download; it isn't told unless it takes a while.
    pub(crate) fn work(&mut self, subject: &str, done: u64, all: u64) {
        if self.subject != subject {
            self.clear();
            (self.subject, self.all, self.began) = (subject.to_owned(), all, Instant::now());
            self.next = self.began + PLAIN_PERIOD;
        }
        if self.began.elapsed() > QUIET && done < all {
            if self.bar.is_none() {
                self.draw(done);
            }
            self.advance(done);
        } else if done >= all {
            self.clear();
        }
    }

    fn begin(&mut self, name: &str, done: u64, all: u64) {
        self.clear();
        (self.subject, self.all, self.began) = (format!("downloading {name}"), all, Instant::now());
        self.next = self.began + PLAIN_PERIOD;
        if !self.terminal {
            let from = if done > 0 { format!(", {} of it are here", size(done)) } else { String::new() };
            output::line("note", &format!("{} ({}{from})", self.subject, size(all)));
        }
        self.draw(done);
    }

    fn draw(&mut self, done: u64) {
        if !self.terminal {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(self.all), ProgressDrawTarget::stderr_with_hz(8));
        let template = "{msg}  {bar:24} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("\u{2588}\u{2592}\u{2591}"));
        }
        bar.set_message(self.subject.clone());
        bar.set_position(done);
        // The rate is that of this connection, not of bytes that were here.
        bar.reset_eta();
        self.bar = Some(bar);
    }

    fn advance(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        if !self.terminal && Instant::now() >= self.next {
            self.next = Instant::now() + PLAIN_PERIOD;
            output::say(&format!("{}: {} of {}", self.subject, size(done), size(self.all)));
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::line("note", text)),
            None => output::line("note", text),
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.subject.clear();
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.clear();
    }
}
