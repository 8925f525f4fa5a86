//! Ctrl-C and its relatives: the first asks the server to finish what runs, the second to stop at once.

use std::sync::Arc;

use crate::options::Options;
use crate::runner::Runner;
use crate::server::{ServeError, Server};

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// After one signal: everything that ran was finished.
    Finished,
    /// After a second one: at once.
    Stopped,
}

/// Serves until Ctrl-C (or SIGTERM); `ready` is told once the server listens.
pub fn serve(options: Options, runner: Arc<dyn Runner>, ready: impl FnOnce(&Server)) -> Result<Ending, ServeError> {
    // The model has threads of its own: these only move bytes.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(ServeError::Start)?;
    let ending = runtime.block_on(async {
        let mut signals = Signals::new().map_err(ServeError::Start)?;
        let server = Server::bind(options, runner).await?;
        ready(&server);
        let (first, asked) = tokio::sync::oneshot::channel::<()>();
        let second = async {
            signals.next().await;
            let _ = first.send(());
            signals.next().await;
        };
        let asked = async {
            let _ = asked.await;
        };
        Ok(tokio::select! {
            () = server.run(asked) => Ending::Finished,
            () = second => Ending::Stopped,
        })
    });
    // Whatever still runs is not waited for.
    runtime.shutdown_background();
    ending
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
