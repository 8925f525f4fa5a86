//! Ctrl-C and its relatives while a model answers.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the user wants the answer to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// From here on Ctrl-C asks for a stop after the current step; a second one ends the program at once. What else stops
/// the program leaves the terminal as it was.
#[cfg(unix)]
pub(crate) fn watch() -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM, SIGTSTP};
    use signal_hook::low_level::emulate_default_handler;

    // A hangup is left alone: whoever started us with `nohup` had it ignored.
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGTSTP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGINT && !INTERRUPTED.swap(true, Ordering::Relaxed) {
                continue;
            }
            crate::view::restore();
            if signal == SIGINT {
                std::process::exit(130);
            }
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Without signals to watch, Ctrl-C ends the program at once.
#[cfg(not(unix))]
pub(crate) fn watch() -> std::io::Result<()> {
    Ok(())
}
