//! Texts in the protocol: names with their rules, byte strings of the operating system, and numbers of things.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ids::SessionId;

/// Maximum length of the name of a session or workspace, in bytes. It fits a tmux status line and any file
/// system.
pub const NAME_MAX: usize = 64;
/// Maximum length of the name of a worker of the pool, in bytes.
const WORKER_NAME_MAX: usize = 32;
/// Maximum length of a label key, in bytes (as in container labels).
pub const LABEL_KEY_MAX: usize = 63;
/// Maximum length of a label value, in bytes.
pub const LABEL_VALUE_MAX: usize = 1024;
/// Maximum number of labels of a session.
pub const LABELS_MAX: usize = 64;

/// The reasons why a name is invalid, as sentences for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The length is zero or over [`NAME_MAX`].
    #[error("a name has 1 to 64 characters")]
    Length,
    /// A character is outside `a-z 0-9 _ -`, or the first one is `_` or `-`.
    #[error("a name is made of a-z, 0-9, '_' and '-', and starts with a letter or digit: {0:?}")]
    Character(String),
    /// The name has the form of an id, `sess_N`.
    #[error("{0:?} is reserved: names like sess_12 are session ids")]
    Reserved(String),
}

/// The name of a session or workspace: `^[a-z0-9][a-z0-9_-]{0,63}$`, but not of the form `sess_12`. No
/// character has a special meaning in tmux, a shell or a file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > NAME_MAX {
            return Err(NameError::Length);
        }
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if !text.bytes().all(allowed) || text.starts_with(['_', '-']) {
            return Err(NameError::Character(text.to_owned()));
        }
        if text.strip_prefix("sess_").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        {
            return Err(NameError::Reserved(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Prefix of the names of workers' sessions, which no name of a user has.
const OF_WORKER: &str = "_worker-";

impl Name {
    /// Returns the name of the session of a worker's host.
    ///
    /// # Errors
    /// The worker's name is not like that of a session, or is too long.
    pub fn of_worker(worker: &str) -> Result<Self, NameError> {
        let name: Self = worker.parse()?;
        if worker.len() > WORKER_NAME_MAX {
            return Err(NameError::Length);
        }
        Ok(Self(format!("{OF_WORKER}{name}")))
    }

    /// Returns the name of the worker if this is the name of the session that hosts it.
    pub fn worker(&self) -> Option<&str> {
        self.0.strip_prefix(OF_WORKER)
    }

    /// Returns what people call the session: `@NAME` if it is that of a worker's host.
    pub fn for_people(&self) -> Cow<'_, str> {
        match self.worker() {
            Some(worker) => Cow::Owned(format!("@{worker}")),
            None => Cow::Borrowed(&self.0),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        match text.strip_prefix(OF_WORKER) {
            Some(worker) => Self::of_worker(worker),
            None => text.parse(),
        }
        .map_err(de::Error::custom)
    }
}

/// A user's reference to a session: an id (`sess_12`), a name or a workspace, matched exactly.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionRef(pub String);

impl From<SessionId> for SessionRef {
    fn from(id: SessionId) -> Self {
        Self(id.to_string())
    }
}

impl fmt::Display for SessionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A byte string of the operating system, such as an argument, a path or an environment value. It need not be
/// UTF-8. In JSON it is a string if it is UTF-8, else `{"hex": "…"}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OsBytes(pub Vec<u8>);

impl OsBytes {
    /// Returns it as an operating-system string.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Returns it as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    /// Returns it as text, with invalid UTF-8 replaced.
    pub fn to_string_lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for OsBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_os_str().fmt(f)
    }
}

impl From<&str> for OsBytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for OsBytes {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&OsStr> for OsBytes {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&Path> for OsBytes {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<OsString> for OsBytes {
    fn from(text: OsString) -> Self {
        Self(text.into_vec())
    }
}

impl From<PathBuf> for OsBytes {
    fn from(path: PathBuf) -> Self {
        path.into_os_string().into()
    }
}

impl From<&OsBytes> for OsString {
    fn from(bytes: &OsBytes) -> Self {
        Self::from_vec(bytes.0.clone())
    }
}

#[derive(Serialize, Deserialize)]
struct Hex {
    hex: String,
}

impl Serialize for OsBytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if !s.is_human_readable() {
            return s.serialize_bytes(&self.0);
        }
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => Hex { hex: self.0.iter().map(|b| format!("{b:02x}")).collect() }.serialize(s),
        }
    }
}

struct OsBytesVisitor;

impl<'de> de::Visitor<'de> for OsBytesVisitor {
    type Value = OsBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or {\"hex\": \"…\"} for bytes that are not UTF-8")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OsBytes, E> {
        Ok(text.into())
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<OsBytes, E> {
        Ok(OsBytes(bytes.to_vec()))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<OsBytes, E> {
        Ok(OsBytes(bytes))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<OsBytes, A::Error> {
        let Hex { hex } = Hex::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let digits = hex.len() % 2 == 0 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        if !digits {
            return Err(de::Error::custom("hex must be pairs of hexadecimal digits"));
        }
        let byte = |i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(de::Error::custom);
        (0..hex.len() / 2).map(byte).collect::<Result<_, _>>().map(OsBytes)
    }
}

impl<'de> Deserialize<'de> for OsBytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            d.deserialize_any(OsBytesVisitor)
        } else {
            d.deserialize_byte_buf(OsBytesVisitor)
        }
    }
}

/// Returns a number of things for people: `1 message`, `2 messages`.
pub fn counted(number: u64, noun: &str) -> String {
    let end = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        let long = "a".repeat(65);
        let hostile = [
            "",
            "-x",
            "_x",
            "a.b",
            "a:b",
            "a b",
            "A",
            "é",
            "=x",
            "$1",
            "@2",
            "%3",
            "#(touch x)",
            "#{pid}",
            "a;b",
            "a\n",
            "a\0",
            "../x",
            "*",
            "p*",
            "'",
            "\"",
            "`",
            "\\",
            "~",
            "sess_1",
            "sess_007",
            &long,
        ];
        for text in hostile {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
        for good in ["a", "7", "a-b_c", "sess_", "sess_x", &"a".repeat(64)] {
            assert!(good.parse::<Name>().is_ok(), "{good:?}");
        }
    }

    #[test]
    fn one_thing_is_no_plural() {
        let told = [(0, "message"), (1, "message"), (2, "process")].map(|(n, noun)| counted(n, noun));
        assert_eq!(told, ["0 messages", "1 message", "2 processes"]);
    }

    #[test]
    fn bytes_survive_json() {
        for bytes in [&b"plain"[..], b"\xff\x00x", b""] {
            let value = OsBytes(bytes.to_vec());
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<OsBytes>(&json).unwrap(), value, "{json}");
        }
    }
}
