//! The mode of the terminal while a line editor has it: kept, so that whatever ends the program can put it back.

#[cfg(unix)]
mod kept {
    use std::io::{self, Write as _};
    use std::sync::{Mutex, PoisonError};

    use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

    static KEPT: Mutex<Option<Termios>> = Mutex::new(None);

    /// Remembers the mode, before a line editor changes it.
    pub(crate) fn keep() {
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(io::stdin()).ok();
    }

    /// The line editor has put it back.
    pub(crate) fn forget() {
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
pub(crate) use kept::{forget, keep, restore};

/// Nothing ends the program from outside here.
#[cfg(not(unix))]
pub(crate) fn keep() {}

/// See [`keep`].
#[cfg(not(unix))]
pub(crate) fn forget() {}

/// See [`keep`].
#[cfg(not(unix))]
pub(crate) fn restore() {}
