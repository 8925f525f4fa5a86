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
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
    use signal_hook::low_level::emulate_default_handler;

    use crate::view::mode;

    // A line editor has put the terminal back itself when it asks to be stopped, and takes it again as soon as it goes on.
    signal_hook::flag::register_conditional_default(SIGTSTP, mode::editing())?;
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGTSTP])?;
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGTSTP && mode::editing().load(Ordering::Relaxed) {
                continue;
            }
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
