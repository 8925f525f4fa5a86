//! The server: from a listening socket to its end.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use crate::app::{self, App};
use crate::engine::Queue;
use crate::failure::ApiError;
use crate::guard;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::runner::Runner;

/// Why a server can't be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum ServeError {
    #[error("cannot listen on {address}: others can reach it, and there is no API key")]
    NoKey { address: SocketAddr },
    #[error("the API key can't be used: {reason}")]
    Key { reason: &'static str },
    #[error("the origin `{origin}` can't be used: it must be like http://localhost:3000, or *")]
    Origin { origin: String },
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error("cannot start the server: {0}")]
    Start(std::io::Error),
}

impl ServeError {
    /// What helps.
    pub fn hint(&self) -> Option<String> {
        match self {
            ServeError::NoKey { .. } => {
                Some("set one with `--api-key KEY` or DEMASK_API_KEY, or leave `--host` out".to_owned())
            }
            ServeError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
                Some("something listens there already; `--port` takes another, 0 any free one".to_owned())
            }
            _ => None,
        }
    }
}

/// Checks what can be checked before a model is loaded.
pub fn check(options: &Options) -> Result<(), ServeError> {
    match &options.api_key {
        None if !options.address.ip().is_loopback() => return Err(ServeError::NoKey { address: options.address }),
        Some(key) if key.trim().is_empty() => return Err(ServeError::Key { reason: "it is empty" }),
        Some(key) if key.trim() != key || !key.bytes().all(|b| b.is_ascii_graphic() || b == b' ') => {
            return Err(ServeError::Key { reason: "it must be printable ASCII without spaces around it" });
        }
        _ => {}
    }
    let is_origin = |origin: &str| {
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|host| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && b != b'/'))
    };
    match options.cors.iter().find(|origin| *origin != "*" && !is_origin(origin)) {
        Some(origin) => Err(ServeError::Origin { origin: origin.clone() }),
        None => Ok(()),
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
}

impl Server {
    /// Listens, and starts the thread that the model runs on.
    pub async fn bind(options: Options, runner: Arc<dyn Runner>) -> Result<Server, ServeError> {
        check(&options)?;
        let address = options.address;
        let listen = |error| ServeError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let local = listener.local_addr().map_err(listen)?;
        let metrics = Arc::new(Metrics::new());
        let (parallel, capacity) = (options.limits.parallel, options.limits.queue);
        let queue = Queue::start(Arc::clone(&runner), parallel, capacity, Arc::clone(&metrics));
        let model = options.alias.clone().unwrap_or_else(|| id_of(&runner.file().spec().name));
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let template = runner.file().chat_template().map_err(ApiError::from);
        let app = App {
            options,
            local,
            runner,
            queue: queue.map_err(ServeError::Start)?,
            metrics,
            template,
            readers: Arc::new(Semaphore::new(guard::READERS)),
            model,
            created: app::now(),
            requests: AtomicU64::new(1),
            stamp,
        };
        Ok(Server { listener, app: Arc::new(app) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.app.local
    }

    /// The model's name in requests.
    pub fn model(&self) -> &str {
        &self.app.model
    }

    /// Serves until `shutdown` is done; then takes nothing new, finishes what runs and returns.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let router = app::router(Arc::clone(&self.app));
        let permits = Arc::new(Semaphore::new(self.app.options.limits.connections.max(1)));
        let graceful = GracefulShutdown::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (stream, permit) = accept(&self.listener, &permits) => {
                    self.serve(stream, permit, router.clone(), &graceful);
                }
            }
        }
        drop(self.listener);
        tracing::info!("shutting down: what runs is finished, nothing new is taken");
        self.app.queue.close();
        graceful.shutdown().await;
        self.app.queue.ended().await;
        tracing::info!("done");
    }

    fn serve(&self, stream: TcpStream, permit: OwnedSemaphorePermit, router: Router, graceful: &GracefulShutdown) {
        let limits = &self.app.options.limits;
        // Chunks are small and each one counts.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.stall));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.arrival).max_buf_size(64 << 10);
        let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
        let connection = graceful.watch(connection);
        let metrics = Arc::clone(&self.app.metrics);
        metrics.connections.inc();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke off");
            }
            metrics.connections.dec();
            drop(permit);
        });
    }
}

/// The next connection, once there is room for one.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        let Ok(permit) = Arc::clone(permits).acquire_owned().await else {
            // The semaphore is never closed.
            std::future::pending::<()>().await;
            continue;
        };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                // Out of files, most likely: some will be closed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A model's name as an id: no spaces, no path, no extension.
fn id_of(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    let id: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.:".contains(c) { c } else { '-' }).collect();
    if id.is_empty() { "model".to_owned() } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_may_reach_it_only_with_a_key() {
        let options = |address: &str, key: Option<&str>, cors: &[&str]| Options {
            address: address.parse().expect("an address"),
            api_key: key.map(str::to_owned),
            cors: cors.iter().map(|&origin| origin.to_owned()).collect(),
            ..Options::default()
        };
        for (address, key, cors, fine) in [
            ("127.0.0.1:1", None, &[][..], true),
            ("[::1]:1", None, &["http://localhost:3000", "*"], true),
            ("127.9.9.9:1", None, &[], true),
            ("0.0.0.0:1", None, &[], false),
            ("[::]:1", None, &[], false),
            ("192.168.0.1:1", None, &[], false),
            ("0.0.0.0:1", Some("secret"), &[], true),
            ("0.0.0.0:1", Some(" "), &[], false),
            ("127.0.0.1:1", Some("tab\t"), &[], false),
            ("127.0.0.1:1", None, &["localhost"], false),
            ("127.0.0.1:1", None, &["http://a/b"], false),
        ] {
            assert_eq!(check(&options(address, key, cors)).is_ok(), fine, "{address} {key:?} {cors:?}");
        }
    }

    #[test]
    fn names_become_ids() {
        for (name, id) in [
            ("demask tiny", "demask-tiny"),
            ("/models/LLaDA-8B.Q4_K_M.gguf", "LLaDA-8B.Q4_K_M"),
            ("", "model"),
            ("ü", "-"),
        ] {
            assert_eq!(id_of(name), id);
        }
    }
}
