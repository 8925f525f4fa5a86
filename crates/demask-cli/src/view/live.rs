//! The canvas on the terminal, redrawn by the clock while steps come in.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossterm::{cursor, queue, style, terminal};
use demask::diffusion::Settings;
use demask::text::Tokenizer;
use demask::{Canvas, StepReport};

use super::frame::{Line, Picture, render};
use crate::args;

/// Frames are at least this far apart.
const PERIOD: Duration = Duration::from_millis(33);
/// Without news the clock in the status goes on this often.
const TICK: Duration = Duration::from_millis(200);

/// Whether the terminal is in a state that has to be undone.
static DRAWING: AtomicBool = AtomicBool::new(false);
/// Whether a panic has been told: then nothing is drawn over it.
static PANICKED: AtomicBool = AtomicBool::new(false);
/// Held by whoever writes to the terminal.
static TERMINAL: Mutex<()> = Mutex::new(());
/// A frame takes far less, unless somebody has stopped the terminal (Ctrl-S).
const PATIENCE: Duration = Duration::from_millis(300);

/// Waits for the frame that is being drawn; none if it doesn't come to its end.
fn hold() -> Option<MutexGuard<'static, ()>> {
    let asked = Instant::now();
    loop {
        match TERMINAL.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if asked.elapsed() > PATIENCE => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Puts the terminal back as it was; nothing is drawn while the result lives. What a stopped terminal can't take is left.
#[cfg(unix)]
#[must_use]
pub(crate) fn restore() -> Option<MutexGuard<'static, ()>> {
    super::mode::restore();
    if !DRAWING.load(Ordering::Relaxed) {
        return None;
    }
    let guard = hold()?;
    undo();
    Some(guard)
}

/// Puts the terminal back before a panic is told.
pub(crate) fn restore_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Who panics in the middle of a frame holds the terminal already, and won't go on drawing.
        let _guard = hold();
        PANICKED.store(true, Ordering::Relaxed);
        super::mode::restore();
        undo();
        tell(panic);
    }));
}

fn undo() {
    if DRAWING.swap(false, Ordering::Relaxed) {
        let mut stderr = io::stderr();
        let _ =
            queue!(stderr, terminal::EndSynchronizedUpdate, style::ResetColor, terminal::EnableLineWrap, cursor::Show);
        let _ = writeln!(stderr, "\r");
    }
}

/// Whether the terminal can't move its cursor.
pub(crate) fn terminal_is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether to draw the canvas.
pub(crate) fn is_wanted(live: args::Live, json: bool) -> bool {
    match live {
        args::Live::Always => true,
        args::Live::Never => false,
        args::Live::Auto => !json && io::stderr().is_terminal() && io::stdout().is_terminal() && !terminal_is_dumb(),
    }
}

/// Whether stdout and stderr are the same terminal.
#[cfg(unix)]
pub(crate) fn streams_share_a_terminal() -> bool {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::fs::MetadataExt as _;
    let device = |fd: BorrowedFd<'_>| {
        let file = std::fs::File::from(fd.try_clone_to_owned().ok()?);
        file.metadata().ok().map(|meta| meta.rdev())
    };
    let (stdout, stderr) = (io::stdout(), io::stderr());
    stdout.is_terminal() && stderr.is_terminal() && device(stdout.as_fd()) == device(stderr.as_fd())
}

/// Whether stdout and stderr are the same terminal.
#[cfg(not(unix))]
pub(crate) fn streams_share_a_terminal() -> bool {
    io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// A canvas being drawn. Dropping it clears what was drawn.
pub(crate) struct Live {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    block_length: usize,
    /// Of steps that were set beforehand, how many.
    steps: Option<usize>,
    confidences: Vec<f64>,
}

struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    picture: Picture,
    /// Positions decided since the last frame.
    fresh: Vec<usize>,
    drawn: bool,
    done: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Starts drawing.
    pub(crate) fn start(tokenizer: &Tokenizer, canvas: &Canvas, settings: &Settings) -> io::Result<Live> {
        let picture = Picture::new(tokenizer, canvas, settings.block_length, &[], &[]);
        let state = State { picture, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), news: Condvar::new() });
        let drawn = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("live view".to_owned()).spawn(move || draw(&drawn))?;
        let confidences = vec![1.0; canvas.len()];
        let (block_length, scheduled) = (settings.block_length, settings.unmask.is_scheduled());
        let steps = scheduled.then_some(settings.steps);
        Ok(Live { shared, thread: Some(thread), block_length, steps, confidences })
    }

    /// Shows the canvas after a step.
    pub(crate) fn update(&mut self, tokenizer: &Tokenizer, report: &StepReport, canvas: &Canvas) {
        for edit in &report.transfer.edits {
            self.confidences[edit.position] = edit.confidence;
        }
        let mut state = self.shared.lock();
        if state.drawn {
            state.fresh.clear();
        }
        state.fresh.extend(report.transfer.edits.iter().map(|edit| edit.position));
        state.drawn = false;
        let mut picture = Picture::new(tokenizer, canvas, self.block_length, &self.confidences, &state.fresh);
        let asked = canvas.asked_range().filter(|&p| canvas.is_asked(p)).count();
        let open = canvas.open_in(canvas.asked_range()).count();
        let blocks = asked.div_ceil(self.block_length);
        let (step, block) = (report.step + 1, report.block.index + 1);
        let steps = self.steps.map(|steps| format!(" of {steps}")).unwrap_or_default();
        picture.status = format!("step {step}{steps}, block {block} of {blocks}, {} of {asked} decided", asked - open);
        state.picture = picture;
        self.shared.news.notify_one();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.lock().done = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Draws frames until there is nothing more to draw, then clears them away.
fn draw(shared: &Shared) {
    let started = Instant::now();
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen::default();
    loop {
        let mut state = shared.lock();
        if state.done {
            break;
        }
        state.drawn = true;
        let mut picture = state.picture.clone();
        drop(state);
        picture.status = match picture.status.as_str() {
            "" => format!("{:.1} s", started.elapsed().as_secs_f64()),
            text => format!("{text}, {:.1} s", started.elapsed().as_secs_f64()),
        };
        let (width, height) =
            terminal::size().map_or((80, 24), |(w, h)| (usize::from(w.max(1)), usize::from(h.max(2))));
        let _ = screen.draw(&render(&picture, width, height, colour), width);
        let frame = Instant::now();
        let mut state = shared.lock();
        // Not before the next period, and not before there is news or the clock has moved on.
        loop {
            let since = frame.elapsed();
            let due = if state.drawn { TICK } else { PERIOD };
            if state.done || since >= due {
                break;
            }
            state = shared.news.wait_timeout(state, due - since).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    let _ = screen.clear();
}

/// What stands on the terminal: the widths of the lines that were drawn, the cursor behind the last one.
#[derive(Default)]
struct Screen {
    widths: Vec<usize>,
}

impl Screen {
    fn draw(&mut self, lines: &[Line], width: usize) -> io::Result<()> {
        let _terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        if PANICKED.load(Ordering::Relaxed) {
            return Ok(());
        }
        let begun = DRAWING.swap(true, Ordering::Relaxed);
        if !begun {
            // Whoever undid our drawing left the cursor below it.
            self.widths.clear();
        }
        let mut out = Vec::new();
        queue!(out, terminal::BeginSynchronizedUpdate, cursor::Hide, terminal::DisableLineWrap)?;
        self.rewind(&mut out, width)?;
        for (index, line) in lines.iter().enumerate() {
            out.extend(if index > 0 { &b"\r\n"[..] } else { b"" });
            out.extend(line.text.as_bytes());
            queue!(out, terminal::Clear(terminal::ClearType::UntilNewLine))?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown), terminal::EndSynchronizedUpdate)?;
        self.widths = lines.iter().map(|line| line.width).collect();
        write(&out)
    }

    fn clear(&mut self) -> io::Result<()> {
        let _terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        if !DRAWING.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let width = terminal::size().map_or(80, |(width, _)| usize::from(width.max(1)));
        let mut out = Vec::new();
        self.rewind(&mut out, width)?;
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown), terminal::EnableLineWrap, cursor::Show)?;
        write(&out)
    }

    /// Moves to where the first line began. A terminal that became narrower has broken long lines.
    fn rewind(&self, out: &mut Vec<u8>, width: usize) -> io::Result<()> {
        let rows: usize = self.widths.iter().map(|&columns| columns.div_ceil(width).max(1)).sum();
        out.push(b'\r');
        if let Some(up) = rows.checked_sub(1).filter(|&up| up > 0) {
            queue!(out, cursor::MoveUp(u16::try_from(up).unwrap_or(u16::MAX)))?;
        }
        Ok(())
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(bytes)?;
    stderr.flush()
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt as _;

    use demask::{ModelFile, Request};
    use pty_process::blocking::{Command, open};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;
    use crate::view::mode;

    /// Panics as a release build does, while the canvas is drawn and the terminal gives single keys.
    #[test]
    #[ignore = "what the test below runs on a terminal"]
    fn panics_while_drawing() {
        restore_on_panic();
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            tell(panic);
            std::process::abort();
        }));
        let file = ModelFile::from_gguf(crate::embedded::open().expect("a model")).expect("a model");
        let canvas = file.canvas(&[], 64).expect("it fits");
        let settings = file.settings(&canvas, &Request::default()).expect("the defaults");
        mode::keep();
        terminal::enable_raw_mode().expect("a terminal");
        let _live = Live::start(file.tokenizer(), &canvas, &settings).expect("a thread");
        while !DRAWING.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        panic!("on purpose");
    }

    #[test]
    fn a_panic_leaves_the_terminal_as_it_was() {
        let (mut pty, pts) = open().expect("a terminal");
        let modes = |pty: &dyn AsFd| tcgetattr(pty.as_fd()).expect("a terminal").local_modes;
        let before = modes(&pty);
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
        let own = std::env::current_exe().expect("a path");
        let arguments = ["--ignored", "--exact", "--nocapture", "view::live::tests::panics_while_drawing"];
        let mut child = Command::new(own).args(arguments).spawn(pts).expect("it starts");
        let (mut raw, mut buffer) = (Vec::new(), [0; 4096]);
        // A terminal whose program has left gives an error.
        while let Ok(n @ 1..) = pty.read(&mut buffer) {
            raw.extend(&buffer[..n]);
        }
        let status = child.wait().expect("it ended");
        let raw = String::from_utf8_lossy(&raw);
        assert_eq!(status.signal(), Some(6), "{raw:?}");
        assert_eq!(modes(&pty), before);
        for (set, undo) in [("\x1b[?25l", "\x1b[?25h"), ("\x1b[?7l", "\x1b[?7h"), ("\x1b[?2026h", "\x1b[?2026l")] {
            let set = raw.rfind(set).expect("it was drawn");
            assert!(raw.rfind(undo).is_some_and(|undone| undone > set), "{raw:?}");
        }
        assert!(raw.rfind("on purpose") > raw.rfind("\x1b[?25h"), "told on a terminal that is as it was: {raw:?}");
    }
}
