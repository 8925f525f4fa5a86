//! A plain HTTP client over one socket: it does what a test wants, also what no library would.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// An error in OpenAI's shape; gives its `param`.
    pub(crate) fn refused(&self, status: u16) -> Option<String> {
        let body = self.json();
        assert_eq!(self.status, status, "{body}");
        let error = &body["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert!(error["type"].is_string() && error.get("code").is_some() && error.get("param").is_some(), "{body}");
        error["param"].as_str().map(str::to_owned)
    }

    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The data of all server-sent events.
    pub(crate) fn events(&self) -> Vec<String> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let text = std::str::from_utf8(&self.body).unwrap();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}

/// Opens a connection and sends a request; extra headers replace the usual ones.
pub(crate) fn open(at: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let length = body.len().to_string();
    let host = at.to_string();
    let usual = [
        ("host", host.as_str()),
        ("content-type", "application/json"),
        ("content-length", &length),
        ("connection", "close"),
    ];
    let given = |name: &str| headers.iter().any(|(other, _)| *other == name);
    for (name, value) in usual.iter().filter(|(name, _)| !given(name)).chain(headers) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    // A server that has refused the head may have closed already.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    stream
}

pub(crate) fn send(at: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let stream = open(at, method, path, headers, body);
    if method == "HEAD" {
        // It has a length and no body.
        let Answer { status, headers, .. } = Answer::begin(stream).unwrap();
        return Reply { status, headers, body: Vec::new() };
    }
    try_read(stream).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

pub(crate) fn get(at: SocketAddr, path: &str) -> Reply {
    send(at, "GET", path, &[], b"")
}

pub(crate) fn post(at: SocketAddr, path: &str, body: &Value) -> Reply {
    send(at, "POST", path, &[], body.to_string().as_bytes())
}

/// Reads an answer to its end.
pub(crate) fn try_read(stream: TcpStream) -> std::io::Result<Reply> {
    let mut answer = Answer::begin(stream)?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk()? {
        body.extend(chunk);
    }
    Ok(Reply { status: answer.status, headers: answer.headers, body })
}

/// An answer that is read piece by piece.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    chunked: bool,
    left: usize,
}

impl Answer {
    pub(crate) fn begin(stream: TcpStream) -> std::io::Result<Answer> {
        let broken = |what: &str| std::io::Error::other(format!("broken answer: {what}"));
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| broken(&line))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let find = |name: &str| headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
        let chunked = find("transfer-encoding").is_some_and(|value| value == "chunked");
        let left = find("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        Ok(Answer { status, headers, reader, chunked, left })
    }

    /// The next piece; none at the end.
    pub(crate) fn chunk(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        if !self.chunked {
            let mut body = vec![0; std::mem::take(&mut self.left)];
            self.reader.read_exact(&mut body)?;
            return Ok((!body.is_empty()).then_some(body));
        }
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16)
            .map_err(|_| std::io::Error::new(std::io::ErrorKind::UnexpectedEof, format!("chunk length {line:?}")))?;
        let mut body = vec![0; length + 2];
        self.reader.read_exact(&mut body)?;
        body.truncate(length);
        Ok((length > 0).then_some(body))
    }
}
