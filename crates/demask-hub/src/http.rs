//! One request: redirects followed by hand, so that the token stays with the host it is for, and failures sorted into
//! those that may pass and those that won't.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use demask_gguf::escape;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::error::Error;
use crate::settings::{Patience, Settings, Token};

/// Redirects that are followed.
const MOST_REDIRECTS: usize = 10;

/// Why a request failed.
pub(crate) enum Failure {
    /// Another try may help, after `wait` if the server says so.
    Passing { error: Error, wait: Option<Duration> },
    /// It won't.
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Final(error)
    }
}

/// What the hub says of a file on the way to it.
#[derive(Default, Debug)]
pub(crate) struct Told {
    pub(crate) etag: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) commit: Option<String>,
}

/// An answer that is no redirect.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Who sent it.
    pub(crate) host: String,
    pub(crate) headers: HeaderMap,
    pub(crate) told: Told,
    pub(crate) body: Body,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The media type without its parameters.
    pub(crate) fn media_type(&self) -> &str {
        self.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim()
    }
}

/// A client of one hub.
pub(crate) struct Http {
    agent: Agent,
    endpoint: String,
    token: Option<Token>,
    patience: Patience,
    /// Whether anybody has answered yet: if not, a host that can't be found is no passing failure.
    answered: Cell<bool>,
}

impl Http {
    pub(crate) fn new(settings: &Settings) -> Http {
        let patience = settings.patience.clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls)
            .user_agent(concat!("demask/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(patience.connect))
            .timeout_recv_response(Some(patience.stall))
            .timeout_per_read(Some(patience.stall))
            .timeout_per_write(Some(patience.stall))
            .build();
        Http {
            agent: config.new_agent(),
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
            patience,
            answered: Cell::new(false),
        }
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Asks what the hub knows of a file, without fetching it. The storage host is not asked.
    pub(crate) fn head(&self, url: &str) -> Result<Reply, Failure> {
        self.request("HEAD", url, None)
    }

    /// Fetches, from byte `from` on.
    pub(crate) fn get(&self, url: &str, from: Option<u64>) -> Result<Reply, Failure> {
        self.request("GET", url, from)
    }

    fn request(&self, method: &'static str, url: &str, from: Option<u64>) -> Result<Reply, Failure> {
        let home = origin(&self.endpoint);
        let mut told = Told::default();
        let mut url = url.to_owned();
        for _ in 0..=MOST_REDIRECTS {
            let own = origin(&url) == home;
            let response = self.once(method, &url, own, from)?;
            let (status, host) = (response.status().as_u16(), host_of(&url).to_owned());
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            // Whoever was asked first knows best: the storage host has entity tags of its own.
            told.etag = told.etag.take().or_else(|| header("x-linked-etag").map(plain_etag));
            told.size = told.size.or_else(|| header("x-linked-size")?.parse().ok());
            told.commit = told.commit.take().or_else(|| header("x-repo-commit").map(str::to_owned));
            let location = header("location").filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308));
            let Some(location) = location else {
                if (200..300).contains(&status) {
                    told.etag = told.etag.take().or_else(|| header("etag").map(plain_etag));
                    if method == "HEAD" {
                        told.size = told.size.or_else(|| header("content-length")?.parse().ok());
                    }
                }
                let (parts, body) = response.into_parts();
                let reply = Reply { status, host, headers: parts.headers, told, body };
                return self.sorted(reply, method);
            };
            let next = join(&url, location).ok_or_else(|| Error::Portal {
                host: host.clone(),
                expected: "an address to go on to".to_owned(),
                found: format!("`{}`", escape(location.chars().take(80).collect::<String>())),
            })?;
            if url.starts_with("https://") && !next.starts_with("https://") {
                let found = format!("a redirect to plain http ({})", escape(host_of(&next)));
                return Err(Error::Portal { host, expected: "an encrypted address".to_owned(), found }.into());
            }
            if method == "HEAD" && told.etag.is_some() && origin(&next) != home {
                let (parts, body) = response.into_parts();
                return Ok(Reply { status: 200, host, headers: parts.headers, told, body });
            }
            url = next;
        }
        let found = format!("more than {MOST_REDIRECTS} redirects");
        Err(Error::Portal { host: host_of(&url).to_owned(), expected: "an answer".to_owned(), found }.into())
    }

    fn once(
        &self,
        method: &str,
        url: &str,
        own: bool,
        from: Option<u64>,
    ) -> Result<ureq::http::Response<Body>, Failure> {
        let mut request = if method == "HEAD" { self.agent.head(url) } else { self.agent.get(url) };
        if let Some(token) = self.token.as_ref().filter(|_| own) {
            request = request.header("authorization", token.header());
        }
        if let Some(from) = from.filter(|&from| from > 0) {
            request = request.header("range", format!("bytes={from}-"));
        }
        match request.call() {
            Ok(response) => {
                self.answered.set(true);
                Ok(response)
            }
            Err(error) => Err(self.sort_error(url, &error)),
        }
    }

    fn sort_error(&self, url: &str, error: &ureq::Error) -> Failure {
        // A connection that broke off may come back. One that never was may, too, but only if anybody has answered yet:
        // without a network nobody wants to wait.
        let broke = match error {
            ureq::Error::Io(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            ),
            ureq::Error::Timeout(timeout) => !matches!(timeout, ureq::Timeout::Connect | ureq::Timeout::Resolve),
            ureq::Error::Protocol(_) | ureq::Error::BodyStalled => true,
            _ => false,
        };
        let never_was = matches!(
            error,
            ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed
        );
        let passes = broke || (never_was && self.answered.get());
        let error = Error::Unreachable { host: host_of(url).to_owned(), reason: reason(error) };
        if passes { Failure::Passing { error, wait: None } } else { Failure::Final(error) }
    }

    /// An answer that isn't one for the moment becomes a failure; others are the caller's.
    fn sorted(&self, reply: Reply, method: &str) -> Result<Reply, Failure> {
        let status = reply.status;
        if !(matches!(status, 408 | 429) || (500..600).contains(&status)) {
            return Ok(reply);
        }
        let wait = reply.header("retry-after").and_then(wait_of);
        let host = reply.host.clone();
        if let (429, Some(wait)) = (status, wait.filter(|&wait| wait > self.patience.longest_wait)) {
            return Err(Error::Busy { host, wait }.into());
        }
        let error = match status {
            429 => Error::Busy { host, wait: wait.unwrap_or(self.patience.longest_wait) },
            _ => Error::Status { host, status, request: method.to_owned(), message: message(&reply) },
        };
        Err(Failure::Passing { error, wait })
    }
}

/// What the hub says about a refusal, made fit for a terminal.
pub(crate) fn message(reply: &Reply) -> String {
    escape(reply.header("x-error-message").unwrap_or_default().chars().take(200).collect::<String>())
}

/// In our words: the client's name its own parts.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "its name is not known (no network?)".to_owned(),
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            "it doesn't answer (no network?)".to_owned()
        }
        ureq::Error::Timeout(_) => "it has stopped sending".to_owned(),
        ureq::Error::Io(error) if error.to_string().contains("lookup address") => {
            "its name is not known (no network?)".to_owned()
        }
        ureq::Error::Io(error) => escape(error.to_string()),
        other => escape(other.to_string()),
    }
}

/// The reason of a body that broke off.
pub(crate) fn body_reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
        Some(inner) => reason(inner),
        None if error.kind() == io::ErrorKind::TimedOut => "it has stopped sending".to_owned(),
        None => escape(error.to_string()),
    }
}

/// Seconds, or a date.
fn wait_of(text: &str) -> Option<Duration> {
    match text.trim().parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(text.trim()).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

/// Without the mark of a weak tag and the quotes.
fn plain_etag(etag: &str) -> String {
    etag.trim().trim_start_matches("W/").trim_matches('"').to_owned()
}

/// Whether a text is an address with a host, and a port that is one if there is any.
pub(crate) fn is_address(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    let behind = host_of(url).strip_prefix(host).unwrap_or_default();
    let port = behind.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    uri.scheme().is_some() && !host.is_empty() && port
}

/// Whether a value of `HTTPS_PROXY` and the like can be used; one that can't is ignored.
pub fn is_proxy(value: &str) -> bool {
    ureq::Proxy::new(value).is_ok()
}

/// Host and port of an address.
pub(crate) fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// Scheme, host and port.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// Where a redirect leads.
fn join(base: &str, location: &str) -> Option<String> {
    let (scheme, rest) = base.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let location = location.split('#').next()?;
    let url = if location.starts_with("https://") || location.starts_with("http://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.is_empty() || location.split(['/', '?']).next()?.contains(':') {
        return None; // another scheme
    } else {
        let path = rest[authority.len()..].split(['?', '#']).next()?;
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    is_address(&url).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e21_redirects_are_joined() {
        let base = "https://h:1/a/b/c?q=1";
        for (location, wanted) in [
            ("/x/y?z", Some("https://h:1/x/y?z")),
            ("x", Some("https://h:1/a/b/x")),
            ("//o/x", Some("https://o/x")),
            ("http://o:2/x#f", Some("http://o:2/x")),
            ("ftp://o/x", None),
            ("javascript:x", None),
            ("http://", None),
            ("", None),
        ] {
            assert_eq!(join(base, location).as_deref(), wanted, "{location}");
        }
        assert_eq!(join("http://h", "x").as_deref(), Some("http://h/x"));
    }

    #[test]
    fn e23_origins_tell_hosts_ports_and_schemes_apart() {
        assert_eq!(origin("https://H/x"), origin("https://h:443/y"));
        for other in ["http://h/x", "https://h:444/x", "https://g/x", "https://h.g/x"] {
            assert_ne!(origin("https://h/x"), origin(other), "{other}");
        }
        assert_eq!(host_of("https://user:pw@h:8/x@y"), "h:8");
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        assert_eq!(wait_of("7"), Some(Duration::from_secs(7)));
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(wait_of(&date).is_some_and(|wait| (98..=100).contains(&wait.as_secs())));
        assert_eq!(wait_of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(wait_of("soon"), None);
    }
}
