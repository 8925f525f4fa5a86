//! The mode of the terminal while a line editor has it: kept, so that whatever ends the program can put it back.

#[cfg(unix)]
mod kept {
    use std::io::{self, Write as _};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, OnceLock, PoisonError};

    use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

    static KEPT: Mutex<Option<Termios>> = Mutex::new(None);
    static EDITING: OnceLock<Arc<AtomicBool>> = OnceLock::new();

    /// Whether a line editor has the terminal. It stops and resumes the program by itself.
    pub(crate) fn editing() -> Arc<AtomicBool> {
        Arc::clone(EDITING.get_or_init(Arc::default))
    }

    /// Remembers the mode, before a line editor changes it.
    pub(crate) fn keep() {
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(io::stdin()).ok();
        editing().store(true, Ordering::Relaxed);
    }

    /// The line editor has put it back.
    pub(crate) fn forget() {
        editing().store(false, Ordering::Relaxed);
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Puts the mode back, and ends what the line editor switched on.
    pub(crate) fn restore() {
        // Who holds the lock is about to set the mode or has just done so.
        let Ok(Some(mode)) = KEPT.try_lock().map(|mut kept| kept.take()) else { return };
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &mode);
        let _ = writeln!(io::stderr(), "\x1b[?2004l\r");
    }
}

#[cfg(unix)]
pub(crate) use kept::{editing, forget, keep, restore};

/// Nothing ends the program from outside here.
#[cfg(not(unix))]
pub(crate) fn keep() {}

/// See [`keep`].
#[cfg(not(unix))]
pub(crate) fn forget() {}

/// See [`keep`].
#[cfg(not(unix))]
pub(crate) fn restore() {}
