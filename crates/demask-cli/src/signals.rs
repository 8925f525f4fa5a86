//! Ctrl-C and its relatives while a model answers.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the user wants the answer to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Whether somebody is asked for a line, which Ctrl-C can't stop.
static AT_PROMPT: AtomicBool = AtomicBool::new(false);

/// Forgets an earlier Ctrl-C, so that it doesn't stop what comes next.
pub(crate) fn forget() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// Tells that a line is waited for, or that it has come. Ctrl-C then says how to leave, and leaves the second time.
pub(crate) fn at_prompt(waits: bool) {
    forget();
    AT_PROMPT.store(waits, Ordering::Relaxed);
}

/// From here on Ctrl-C asks for a stop after the current step; a second one ends the program at once. What else stops
/// the program leaves the terminal as it was.
#[cfg(unix)]
pub(crate) fn watch() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::low_level::emulate_default_handler;

    stops::watch()?;
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGQUIT])?;
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGINT && !INTERRUPTED.swap(true, Ordering::Relaxed) {
                if AT_PROMPT.load(Ordering::Relaxed) {
                    crate::output::say("");
                    crate::output::line("note", "Ctrl-C again leaves, as Ctrl-D and `/quit` do");
                }
                continue;
            }
            let _held = crate::view::restore();
            if signal == SIGINT {
                std::process::exit(130);
            }
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Ctrl-Z: who stops the program then.
#[cfg(unix)]
mod stops {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, LazyLock, Mutex, PoisonError};
    use std::thread::{self, JoinHandle};

    use signal_hook::consts::SIGTSTP;
    use signal_hook::iterator::{Handle, Signals};
    use signal_hook::low_level::emulate_default_handler;

    /// Whether the program stops as it is.
    static AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
    /// The thread that stops it otherwise.
    static WATCHER: Mutex<Option<(Handle, JoinHandle<()>)>> = Mutex::new(None);

    /// From here on the terminal is as it was before while the program is stopped.
    pub(super) fn watch() -> io::Result<()> {
        signal_hook::flag::register_conditional_default(SIGTSTP, Arc::clone(&AT_ONCE))?;
        *WATCHER.lock().unwrap_or_else(PoisonError::into_inner) = Some(start()?);
        Ok(())
    }

    fn start() -> io::Result<(Handle, JoinHandle<()>)> {
        let mut signals = Signals::new([SIGTSTP])?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("stops".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let _held = crate::view::restore();
                let _ = emulate_default_handler(signal);
            }
        })?;
        Ok((handle, thread))
    }

    /// A line editor has put the terminal back itself when it asks to be stopped, and takes it again as soon as it goes
    /// on. The watcher leaves meanwhile: what it hears late would stop the program a second time.
    pub(crate) fn editing(edits: bool) {
        let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((handle, thread)) = watcher.take() {
            handle.close();
            let _ = thread.join();
        }
        *watcher = if edits { None } else { start().ok() };
        AT_ONCE.store(watcher.is_none(), Ordering::SeqCst);
    }
}

#[cfg(unix)]
pub(crate) use stops::editing;

/// Whether a signal was ignored when the program started, as `nohup` does with hangups: it has to stay so. Where the
/// system doesn't tell, that is assumed.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Without signals to watch, Ctrl-C ends the program at once.
#[cfg(not(unix))]
pub(crate) fn watch() -> std::io::Result<()> {
    Ok(())
}

/// Nothing stops the program from outside here.
#[cfg(not(unix))]
pub(crate) fn editing(_edits: bool) {}
