//! How a server is set up, and its limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 takes any free one.
    pub address: SocketAddr,
    /// What clients must send as `Authorization: Bearer ...`. An address that isn't loopback needs one.
    pub api_key: Option<String>,
    /// Origins whose pages may use the server; `*` is all.
    pub cors: Vec<String>,
    /// Name of the model in requests and answers; default: its own.
    pub alias: Option<String>,
    /// What one client can take.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8033);
        Options { address, api_key: None, cors: Vec::new(), alias: None, limits: Limits::default() }
    }
}

/// What one client can take, and all of them together.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Runs that take turns on the model; each holds the keys and values of its canvas.
    pub parallel: usize,
    /// Runs that wait for their turn.
    pub queue: usize,
    /// Most open positions of a request.
    pub max_tokens: usize,
    /// Most runs of a request (`n`, times prompts).
    pub choices: usize,
    /// Most bytes of a body.
    pub body: usize,
    /// From a request's arrival to the end of its answer.
    pub time: Duration,
    /// For a request's head, and for its body.
    pub arrival: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub stall: Duration,
    /// Connections at a time.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            parallel: 4,
            queue: 64,
            max_tokens: 4096,
            choices: 8,
            body: 2 << 20,
            time: Duration::from_secs(600),
            arrival: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            connections: 512,
        }
    }
}
