//! A terminal with the program on it, and somebody who reads and types.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal of 70 columns and 40 rows.
pub(crate) struct Terminal {
    /// Nothing once it has hung up.
    pty: Option<Arc<Pty>>,
    /// Tells the thread that reads to let go of it.
    gone: Arc<AtomicBool>,
    child: Child,
    received: Receiver<Vec<u8>>,
    /// Everything that the program wrote.
    raw: Vec<u8>,
    /// How much of it was read by [`Terminal::expect`].
    seen: usize,
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts `program` on a terminal of its own. Its home is `home`.
    pub(crate) fn start(program: &str, arguments: &[&str], home: &std::path::Path, more: &[(&str, &str)]) -> Terminal {
        let (columns, rows) = (70, 40);
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        // Under `nohup` and behind `&` signals are ignored, which a program inherits; here they count.
        let program: &[&str] = match cfg!(target_os = "linux") {
            true => &["env", "--default-signal=HUP,INT,QUIT", program],
            false => &[program],
        };
        let child = Command::new(program[0])
            .args(&program[1..])
            .args(arguments)
            .env_remove("NO_COLOR")
            .env_remove("XDG_STATE_HOME")
            .env("TERM", "xterm-256color")
            .env("HOME", home)
            // Nobody's own models and choices; and no test asks a real hub.
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("HF_HOME", home.join("hf"))
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .env_remove("HF_HUB_CACHE")
            .env_remove("HF_TOKEN")
            .envs(more.iter().copied())
            .spawn(pts)
            .unwrap();
        let pty = Arc::new(pty);
        let (sender, received) = mpsc::channel();
        let gone = Arc::new(AtomicBool::new(false));
        let (reader, over) = (Arc::clone(&pty), Arc::clone(&gone));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal whose program has left gives an error.
            while let Ok(n) = (&*reader).read(&mut buffer) {
                if n == 0 || over.load(Ordering::SeqCst) || sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let size = |n| NonZeroU16::new(n).unwrap();
        let screen = vt100::Parser::new(size(rows), size(columns), 1000);
        Terminal { pty: Some(pty), gone, child, received, raw: Vec::new(), seen: 0, screen }
    }

    /// The program `demask` on a terminal.
    pub(crate) fn demask(arguments: &[&str], home: &std::path::Path, more: &[(&str, &str)]) -> Terminal {
        Terminal::start(env!("CARGO_BIN_EXE_demask"), arguments, home, more)
    }

    /// Types.
    pub(crate) fn send(&mut self, keys: &str) {
        self.pty.as_deref().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` has come since the last time, and gives what came up to its end.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let unseen = &self.raw[self.seen..];
            if let Some(at) = unseen.windows(text.len()).position(|bytes| bytes == text.as_bytes()) {
                let read = String::from_utf8_lossy(&unseen[..at + text.len()]).into_owned();
                self.seen += at + text.len();
                return read;
            }
            match self.received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take(&bytes),
                Err(reason) => panic!("{reason}: no {text:?} in {:?}", String::from_utf8_lossy(unseen)),
            }
        }
    }

    /// Waits until a step from `step` on is drawn, of a run of `all`: by the clock, a frame may pass over some.
    pub(crate) fn expect_step(&mut self, step: usize, all: usize) {
        loop {
            let read = self.expect(&format!(" of {all}, block"));
            let number = read.trim_end_matches(&format!(" of {all}, block")).rsplit(' ').next();
            if number.unwrap().parse::<usize>().unwrap() >= step {
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.raw.extend(bytes);
        self.screen.process(bytes);
    }

    /// Changes the size.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.pty.as_ref().unwrap().resize(Size::new(rows, columns)).unwrap();
        self.screen.set_size(NonZeroU16::new(rows).unwrap(), NonZeroU16::new(columns).unwrap());
    }

    /// What a person sees now.
    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.screen.screen()
    }

    /// Number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes the terminal away, and waits for the program to end, see [`Terminal::finish`].
    pub(crate) fn hang_up(&mut self) -> (i32, String) {
        self.gone.store(true, Ordering::SeqCst);
        // What is typed is shown, which wakes the thread that reads.
        self.send("x");
        while self.received.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Disconnected) {}
        self.pty = None;
        self.finish()
    }

    /// Waits for the program to end: its exit code (128 and the signal, if one ended it) and everything that it wrote.
    pub(crate) fn finish(&mut self) -> (i32, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            match self.received.recv_timeout(Duration::from_millis(20)) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            assert!(Instant::now() < deadline, "it does not end: {:?}", String::from_utf8_lossy(&self.raw));
        };
        while let Ok(bytes) = self.received.recv_timeout(Duration::from_millis(200)) {
            self.take(&bytes);
        }
        let code = std::os::unix::process::ExitStatusExt::signal(&status).map_or(status.code(), |s| Some(128 + s));
        (code.unwrap(), String::from_utf8_lossy(&self.raw).into_owned())
    }
}

/// Sends a signal, such as `-TERM`.
pub(crate) fn kill(signal: &str, id: u32) {
    let status = std::process::Command::new("kill").args([signal, &id.to_string()]).status();
    assert!(status.unwrap().success());
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
