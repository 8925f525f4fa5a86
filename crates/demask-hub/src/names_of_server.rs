//! What a server calls things, before any of it becomes a path.

use demask_gguf::escape;

use crate::error::Error;

/// Checks a file's name: a relative path that stays below its folder on every system.
pub(crate) fn check_file(host: &str, name: &str) -> Result<(), Error> {
    let reason = file_fault(name);
    refuse(host, "a file called", name, reason)
}

fn file_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > 1024 {
        return Some("a name has 1 to 1024 bytes");
    }
    if name.contains(['\\', ':']) || name.chars().any(char::is_control) {
        return Some("backslashes, colons and control characters have no place in it");
    }
    for part in name.split('/') {
        match part {
            "" => return Some("it is no path below a folder"),
            "." | ".." => return Some("it leaves its folder"),
            _ if part.eq_ignore_ascii_case(".git") => return Some("it would write into a `.git` folder"),
            _ if part.len() > 255 => return Some("a part of it is longer than 255 bytes"),
            _ if part.ends_with(['.', ' ']) => return Some("a part of it ends in a dot or a space"),
            _ => {}
        }
    }
    None
}

/// Checks an entity tag, without its quotes: it becomes the name of a file.
pub(crate) fn check_etag(host: &str, etag: &str) -> Result<(), Error> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ill = etag.is_empty() || etag.len() > 128 || etag.starts_with('.') || !etag.bytes().all(legal);
    refuse(host, "the entity tag", etag, ill.then_some("it must be letters, digits, `-`, `_` or `.`"))
}

/// Checks a commit: it becomes the name of a folder.
pub(crate) fn check_commit(host: &str, commit: &str) -> Result<(), Error> {
    let ill = !(7..=64).contains(&commit.len()) || !commit.bytes().all(|b| b.is_ascii_hexdigit());
    refuse(host, "the commit", commit, ill.then_some("it must be hexadecimal digits"))
}

/// Whether a text is a SHA-256 in hexadecimal digits.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn refuse(host: &str, what: &'static str, value: &str, reason: Option<&'static str>) -> Result<(), Error> {
    match reason {
        None => Ok(()),
        Some(reason) => {
            let value = escape(value.chars().take(80).collect::<String>());
            Err(Error::Hostile { host: host.to_owned(), what, value, reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e31_names_that_leave_the_folder_are_refused() {
        for name in [
            "../../evil",
            "/abs",
            "C:\\x",
            "C:x",
            "a/../../b",
            "a\0b",
            ".git/hooks/x",
            "a/.GIT/x",
            "",
            "a//b",
            "a/",
            "./a",
            "a\nb",
            "a\\..\\b",
            "a./b",
            "x ",
        ] {
            assert!(check_file("h", name).is_err(), "{name:?}");
        }
        for name in ["a.gguf", "Q4_K_M/a-00001-of-00002.gguf", ".gitattributes", "ünï code.gguf", "a..b"] {
            assert!(check_file("h", name).is_ok(), "{name:?}");
        }
        for etag in ["../../x", "", "a/b", ".x", "a b", &"a".repeat(129)] {
            assert!(check_etag("h", etag).is_err(), "{etag:?}");
        }
        for commit in ["../x", "", "main", "abc", "0123456789abcdef0123456789abcdef0123456g"] {
            assert!(check_commit("h", commit).is_err(), "{commit:?}");
        }
        assert!(check_commit("h", "0123456789abcdef0123456789abcdef01234567").is_ok());
    }
}
