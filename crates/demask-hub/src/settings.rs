//! Where models are kept, where they come from, and how patient we are: the environment variables of the Hugging Face
//! tools.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use demask_gguf::escape;

use crate::error::Error;

/// The hub that is asked if nothing else is said.
pub(crate) const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// An access token. It is never shown: not even its `Debug` form holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token that can stand in a header.
    pub fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Token(text.to_owned()))
    }

    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(...)")
    }
}

/// How long to wait for a server, and how often to try again.
#[derive(Clone, Debug)]
pub struct Patience {
    /// Tries in a row that may pass without a single byte.
    pub tries: u32,
    /// The wait before the second try; it doubles from try to try.
    pub first_wait: Duration,
    /// The longest wait between two tries, also when the server asks for one.
    pub longest_wait: Duration,
    /// Until a connection stands.
    pub connect: Duration,
    /// Until the next byte comes.
    pub stall: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            tries: 6,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
        }
    }
}

/// Everything that a [`Hub`](crate::Hub) needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the cache (`HF_HUB_CACHE`).
    pub cache: PathBuf,
    /// Where verified hashes are remembered.
    pub records: PathBuf,
    /// The address of the hub, without a slash at its end.
    pub endpoint: String,
    /// Sent to the hub's own host only.
    pub token: Option<Token>,
    /// Where a token is kept, whether or not there is one.
    pub token_file: Option<PathBuf>,
    /// Whether nothing may be asked.
    pub offline: bool,
    /// Whether snapshots may link to blobs. Without, files are moved to their place.
    pub links: bool,
    /// How long to wait.
    pub patience: Patience,
    /// Asks the system how many bytes are free for a folder.
    pub free_space: fn(&Path) -> io::Result<u64>,
}

/// Reads one environment variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Settings {
    /// What the environment says.
    ///
    /// # Errors
    /// When a variable can't be used, or nothing says where the cache is.
    pub fn from_env() -> Result<Settings, Error> {
        Settings::from_variables(&|name| std::env::var_os(name))
    }

    /// The same with variables of one's own.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn from_variables(get: Variables<'_>) -> Result<Settings, Error> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let cache = hub_cache(&get)?;
        let mut patience = Patience::default();
        if let Some(seconds) = seconds(&get, "HF_HUB_DOWNLOAD_TIMEOUT")? {
            patience.stall = seconds;
        }
        Ok(Settings {
            // Whoever moves the models only still wants to have their hashes remembered.
            records: own_folder_in(&get, "XDG_CACHE_HOME", ".cache").unwrap_or_else(|| cache.join(".demask")),
            endpoint: endpoint(&get)?,
            token: token(&get)?,
            token_file: token_file(&get),
            offline: get("HF_HUB_OFFLINE").is_some_and(|value| is_yes(&value)),
            links: !get("HF_HUB_DISABLE_SYMLINKS").is_some_and(|value| is_yes(&value)),
            patience,
            free_space,
            cache,
        })
    }

    /// A file with a token that other users of the machine can read.
    pub fn exposed_token_file(&self) -> Option<PathBuf> {
        self.token_file.clone().filter(|path| others_can_read(path))
    }

    /// The host (and port) of the endpoint.
    pub fn host(&self) -> &str {
        crate::http::host_of(&self.endpoint)
    }
}

/// The folder of demask's own files below the XDG folder that a variable tells, or below the user's own; nothing if neither is
/// set.
pub fn own_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    own_folder_in(&|name| std::env::var_os(name).filter(|value| !value.is_empty()), variable, below_home)
}

/// The folder of demask's own files below an XDG folder, else (on Windows) below `LOCALAPPDATA`, else below `HOME`. A relative
/// path in such a variable is to be ignored, says the XDG specification.
fn own_folder_in(get: Variables<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let windows = || absolute("LOCALAPPDATA").filter(|_| cfg!(windows));
    let base = absolute(variable).or_else(windows).or_else(|| Some(absolute("HOME")?.join(below_home)))?;
    Some(base.join("demask"))
}

/// The folder that holds `hub` and `token`.
fn hf_home(get: Variables<'_>) -> Option<PathBuf> {
    if let Some(home) = get("HF_HOME") {
        return Some(expand(get, &home));
    }
    let cache = match get("XDG_CACHE_HOME") {
        Some(cache) => expand(get, &cache),
        None => PathBuf::from(get("HOME").or_else(|| get("USERPROFILE"))?).join(".cache"),
    };
    Some(cache.join("huggingface"))
}

fn hub_cache(get: Variables<'_>) -> Result<PathBuf, Error> {
    for name in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
        if let Some(cache) = get(name) {
            return Ok(expand(get, &cache));
        }
    }
    Ok(hf_home(get).ok_or(Error::NoHome)?.join("hub"))
}

/// A leading `~` is the home folder, as in the other tools.
fn expand(get: Variables<'_>, path: &OsString) -> PathBuf {
    let path = Path::new(path);
    match (path.strip_prefix("~"), get("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.to_owned(),
    }
}

fn endpoint(get: Variables<'_>) -> Result<String, Error> {
    let Some(value) = get("HF_ENDPOINT") else {
        return Ok(DEFAULT_ENDPOINT.to_owned());
    };
    let shown = escape(value.as_encoded_bytes());
    let fail = |reason: &str| Error::Variable { variable: "HF_ENDPOINT", reason: format!("`{shown}` {reason}") };
    let text = value.to_str().map(str::trim).unwrap_or_default().trim_end_matches('/');
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = rest.ok_or_else(|| fail("does not begin with https:// or http://"))?;
    let host = rest.split('/').next().unwrap_or_default();
    let legal = |b: u8| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'@' | b'\\' | b'"' | b'<' | b'>' | b'%');
    if host.is_empty() || host.starts_with(':') || !rest.bytes().all(legal) || !crate::http::is_address(text) {
        return Err(fail("is no address"));
    }
    Ok(text.to_owned())
}

fn token(get: Variables<'_>) -> Result<Option<Token>, Error> {
    for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        if let Some(value) = get(name) {
            let reason = "it holds characters that no token has".to_owned();
            let token = value.to_str().and_then(Token::new);
            return token.map(Some).ok_or(Error::Variable { variable: "HF_TOKEN", reason });
        }
    }
    // Most people have no such file.
    Ok(token_file(get).and_then(|path| std::fs::read_to_string(path).ok()).and_then(|text| Token::new(&text)))
}

fn token_file(get: Variables<'_>) -> Option<PathBuf> {
    match get("HF_TOKEN_PATH") {
        Some(path) => Some(expand(get, &path)),
        None => Some(hf_home(get)?.join("token")),
    }
}

#[cfg(unix)]
fn others_can_read(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o044 != 0)
}

#[cfg(not(unix))]
fn others_can_read(_: &Path) -> bool {
    false
}

/// Bytes that are free for a folder.
///
/// # Errors
/// When the system doesn't tell.
pub fn free_space(folder: &Path) -> io::Result<u64> {
    fs4::available_space(folder)
}

/// Whether this process may make files in a folder; nothing is made.
pub fn can_write(folder: &Path) -> bool {
    #[cfg(unix)]
    {
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
    }
    #[cfg(not(unix))]
    {
        std::fs::metadata(folder).is_ok_and(|meta| !meta.permissions().readonly())
    }
}

fn seconds(get: Variables<'_>, variable: &'static str) -> Result<Option<Duration>, Error> {
    let Some(value) = get(variable) else { return Ok(None) };
    let parsed = value.to_str().and_then(|text| text.trim().parse::<f64>().ok());
    match parsed.filter(|seconds| (0.001..1e6).contains(seconds)) {
        Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        None => {
            let reason = format!("`{}` is no number of seconds", escape(value.as_encoded_bytes()));
            Err(Error::Variable { variable, reason })
        }
    }
}

/// What the Hugging Face tools take as a yes.
fn is_yes(value: &OsString) -> bool {
    value.to_str().is_some_and(|text| ["1", "on", "yes", "true"].contains(&text.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        let variables = variables.to_vec();
        Settings::from_variables(&move |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn e16_the_cache_is_where_the_variables_say() {
        let home = ("HOME", "/h");
        let cache = |variables: &[(&str, &str)]| of(variables).unwrap().cache.to_str().unwrap().to_owned();
        assert_eq!(cache(&[home]), "/h/.cache/huggingface/hub");
        assert_eq!(cache(&[home, ("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub");
        assert_eq!(cache(&[home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f")]), "/f/hub");
        assert_eq!(cache(&[home, ("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")]), "/c");
        assert_eq!(cache(&[home, ("HF_HOME", "~/f")]), "/h/f/hub");
        assert_eq!(cache(&[("HF_HUB_CACHE", "/c")]), "/c", "no home is needed");
        assert_eq!(cache(&[home, ("HF_HOME", "")]), "/h/.cache/huggingface/hub", "empty is unset");
        let error = of(&[]).unwrap_err();
        assert!(matches!(error, Error::NoHome) && error.hint().unwrap().contains("HF_HUB_CACHE"));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "rel")]).unwrap().records, Path::new("/h/.cache/demask"));
    }

    #[test]
    fn e22_endpoints_are_checked() {
        let with = |value: &str| of(&[("HOME", "/h"), ("HF_ENDPOINT", value)]).map(|settings| settings.endpoint);
        assert_eq!(with("").unwrap(), DEFAULT_ENDPOINT);
        assert_eq!(with("http://127.0.0.1:80").unwrap(), "http://127.0.0.1:80");
        assert_eq!(with("http://127.0.0.1:80/").unwrap(), "http://127.0.0.1:80");
        assert_eq!(with("https://m.example/hf//").unwrap(), "https://m.example/hf");
        for garbage in
            ["garbage", "ftp://x", "http://", "http:///x", "http://a b", "http://x?y", "https://:1", "http://a:b"]
        {
            let error = with(garbage).unwrap_err();
            assert!(error.to_string().contains("HF_ENDPOINT"), "{garbage}: {error}");
        }
    }

    #[test]
    fn e23_tokens_are_never_shown() {
        let settings = of(&[("HOME", "/h"), ("HF_TOKEN", " hf_secret\n")]).unwrap();
        assert_eq!(settings.token.as_ref().unwrap().header(), "Bearer hf_secret");
        assert!(!format!("{settings:?}").contains("secret"));
        let error = of(&[("HOME", "/h"), ("HF_TOKEN", "hf_sec ret")]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sec ret"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        let settings = of(&[("HF_HOME", folder.path().to_str().unwrap())]).unwrap();
        assert_eq!(settings.token.unwrap().header(), "Bearer hf_file");
    }

    #[test]
    fn offline_and_times_are_read() {
        for (value, offline) in [("1", true), ("ON", true), ("true", true), ("0", false), ("", false), ("no", false)] {
            assert_eq!(of(&[("HOME", "/h"), ("HF_HUB_OFFLINE", value)]).unwrap().offline, offline, "{value}");
        }
        let settings = of(&[("HOME", "/h"), ("HF_HUB_DOWNLOAD_TIMEOUT", "2.5")]).unwrap();
        assert_eq!(settings.patience.stall, Duration::from_millis(2500));
        assert!(of(&[("HOME", "/h"), ("HF_HUB_DOWNLOAD_TIMEOUT", "soon")]).is_err());
    }
}
