//! Identifiers, each a newtype. In JSON and for people an id is the text that tmux or a user would write
//! (`sess_12`, `%7`); on the wire and on disk it is the bare number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text that is no identifier of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {what}: {text:?}")]
pub struct ParseIdError {
    what: &'static str,
    text: String,
}

fn parse_error(what: &'static str, text: &str) -> ParseIdError {
    ParseIdError { what, text: text.chars().take(80).collect() }
}

/// Parses digits without sign, blanks and leading zeros, so that each id has exactly one spelling.
fn parse_digits<T: FromStr>(digits: &str) -> Option<T> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

macro_rules! text_serde {
    ($name:ident, $repr:ty, $to:expr, $from:expr) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                if s.is_human_readable() { s.collect_str(self) } else { $to(self).serialize(s) }
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                if d.is_human_readable() {
                    String::deserialize(d)?.parse().map_err(de::Error::custom)
                } else {
                    <$repr>::deserialize(d).map($from)
                }
            }
        }
    };
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $repr:ty, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0)
            }
        }
        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.strip_prefix($prefix)
                    .and_then(parse_digits)
                    .map(Self)
                    .ok_or_else(|| parse_error($what, text))
            }
        }
        text_serde!($name, $repr, |id: &$name| id.0, $name);
    };
}

number_id!(
    /// A session's number, `sess_N`. Never reused within a state directory, not even after deletion.
    SessionId, u64, "sess_", "a session id like sess_12");
number_id!(
    /// tmux's session number, `$3`. Meaningful only together with a [`ServerId`].
    TmuxSessionId, u32, "$", "a tmux session id like $3");
number_id!(
    /// tmux's window number, `@4`. Meaningful only together with a [`ServerId`].
    WindowId, u32, "@", "a tmux window id like @4");
number_id!(
    /// tmux's pane number, `%7`. Meaningful only together with a [`ServerId`].
    PaneId, u32, "%", "a tmux pane id like %7");

/// Defines an id that is a number in JSON too.
macro_rules! plain_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_digits(text).map(Self).ok_or_else(|| parse_error("a number", text))
            }
        }
    };
}

plain_number!(
    /// The position of an event in the journal. The first one is 1; 0 means "before the first".
    Seq);
plain_number!(
    /// A message's number: the [`Seq`] of the event that queued it.
    MessageId);
plain_number!(
    /// A generator's number: the [`Seq`] of the event that registered it.
    GeneratorId);
plain_number!(
    /// The number of times that this pool's `poold` has started. Grows by one, durably, at each start.
    Epoch);

/// A fencing token. Tokens only grow, even across restarts, because the epoch is the leading part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token {
    /// The daemon's start that issued the token.
    pub epoch: Epoch,
    /// Counts from 1 within the epoch.
    pub n: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.n)
    }
}

impl FromStr for Token {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let parts = text.split_once('.').and_then(|(e, n)| Some((parse_digits(e)?, parse_digits(n)?)));
        let (epoch, n) = parts.ok_or_else(|| parse_error("a lock token like 3.17", text))?;
        Ok(Self { epoch: Epoch(epoch), n })
    }
}

text_serde!(Token, (u64, u64), |t: &Token| (t.epoch.0, t.n), |(e, n)| Token { epoch: Epoch(e), n });

/// The random 128-bit tag of one incarnation of a session, written as 32 hexadecimal digits: the value of the
/// pane option `@pool_id` and of `POOL_INCARNATION` in the environment, and the name of the job file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 16]);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({self})")
    }
}

fn parse_hex16(text: &str) -> Option<[u8; 16]> {
    let lower = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if text.len() != 32 || !lower {
        return None;
    }
    let mut out = [0; 16];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

impl FromStr for Tag {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        parse_hex16(text).map(Self).ok_or_else(|| parse_error("a tag of 32 hexadecimal digits", text))
    }
}

impl Tag {
    /// Returns the tag that identifies the holder of a claim to the reaper. It differs from the tag of every
    /// incarnation: those are random, while the first bytes of a token are always zero.
    pub fn for_claim(token: Token) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&token.epoch.0.to_be_bytes());
        bytes[8..].copy_from_slice(&token.n.to_be_bytes());
        Self(bytes)
    }

    /// True if the tag identifies the holder of a claim. Another pool may have the same tag then.
    pub fn is_claim(self) -> bool {
        self.0[..4] == [0; 4]
    }
}

text_serde!(Tag, [u8; 16], |t: &Tag| t.0, Tag);

/// Maximum length of an operation id given by a user, in bytes.
pub const OP_ID_MAX: usize = 64;

/// An operation id chosen by the client. A retry under the same id gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpId {
    /// Generated by the client for one command; remembered for 10 minutes (that of a `send` for 5 to 10).
    Random([u8; 16]),
    /// Given by a user (`--op-id`), 1 to [`OP_ID_MAX`] printable ASCII bytes; remembered for 24 hours.
    Named(String),
}

/// A process of the operating system. A pid is reused, the pair practically never. Every signal goes through
/// a handle that is verified against the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcId {
    /// Process id.
    pub pid: u32,
    /// Start time: clock ticks since boot on Linux (`/proc/PID/stat` field 22), microseconds since the epoch
    /// on macOS.
    pub start: u64,
}

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start)
    }
}

/// One run of a tmux server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId {
    /// The server process.
    pub process: ProcId,
    /// The value of tmux's `#{start_time}`: seconds since the Unix epoch.
    pub started_at: u64,
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} started {}", self.process.pid, self.started_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_has_one_spelling() {
        assert_eq!("sess_12".parse(), Ok(SessionId(12)));
        for bad in
            ["sess_", "sess_+7", "sess_07", "sess_ 7", "Sess_7", "sess_7 ", "7", "sess_99999999999999999999"]
        {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
        assert_eq!("%0".parse(), Ok(PaneId(0)));
        assert!("%".parse::<PaneId>().is_err());
        assert_eq!("3.17".parse(), Ok(Token { epoch: Epoch(3), n: 17 }));
    }

    #[test]
    fn text_in_json_and_numbers_on_the_wire() {
        let tag = Tag([0xab; 16]);
        assert_eq!(serde_json::to_string(&tag).unwrap(), format!("\"{}\"", "ab".repeat(16)));
        assert_eq!(serde_json::to_string(&SessionId(4)).unwrap(), "\"sess_4\"");
        assert_eq!(serde_json::from_str::<Tag>(&serde_json::to_string(&tag).unwrap()).unwrap(), tag);
        assert!(serde_json::from_str::<Tag>("\"AB\"").is_err());
    }
}
