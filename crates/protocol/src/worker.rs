//! Workers: the sessions whose messages one works, and the workers that the pool starts by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ids::Tag;
use crate::text::{Name, NameError, OsBytes, SessionRef};

/// Sessions whose messages are worked. The pool's own workers have none of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// These sessions, which need not all exist.
    Named(Vec<SessionRef>),
    /// All sessions, also later ones, with this agent kind, if one is given, and all of these labels.
    Matching {
        /// The agent kind.
        agent: Option<String>,
        /// The labels.
        labels: BTreeMap<String, String>,
    },
}

impl Selection {
    /// Every session.
    pub fn all() -> Self {
        Self::Matching { agent: None, labels: BTreeMap::new() }
    }
}

impl From<SessionRef> for Selection {
    fn from(session: SessionRef) -> Self {
        Self::Named(vec![session])
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(sessions) => {
                let names: Vec<&str> = sessions.iter().map(|session| session.0.as_str()).collect();
                f.write_str(&names.join(","))
            }
            Self::Matching { agent: None, labels } if labels.is_empty() => f.write_str("all"),
            Self::Matching { agent, labels } => {
                let agent = agent.iter().map(|kind| format!("agent:{kind}"));
                let labels = labels.iter().map(|(key, value)| format!("label:{key}={value}"));
                f.write_str(&agent.chain(labels).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// True if a session may have this name or id, or if it names a worker of the pool (`@NAME`). False for the words that
/// stand for several sessions.
fn is_session(part: &str) -> bool {
    let name = part.strip_prefix('@').unwrap_or(part).parse::<Name>();
    matches!(name, Ok(_) | Err(NameError::Reserved(_))) && !matches!(part, "all" | "pool")
}

impl FromStr for Selection {
    type Err = &'static str;

    /// Parses `all`, names of sessions, or any of `agent:KIND` and `label:K=V`; several are separated by
    /// commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "sessions are \"all\", \"pool\", names, or \"agent:KIND\" and \"label:K=V\"";
        match text {
            "all" => return Ok(Self::all()),
            "" => return Ok(Self::Named(Vec::new())),
            _ => {}
        }
        let (mut named, mut kind, mut labels) = (Vec::new(), None, BTreeMap::new());
        for part in text.split(',').map(str::trim) {
            match part.split_once(':') {
                Some(("agent", agent)) if kind.is_none() && !agent.is_empty() => {
                    kind = Some(agent.to_owned());
                }
                Some(("label", label)) => {
                    let (key, value) = label.split_once('=').ok_or(WRONG)?;
                    if key.is_empty() {
                        return Err(WRONG);
                    }
                    let before = labels.insert(key.to_owned(), value.to_owned());
                    if before.is_some_and(|before| before != value) {
                        return Err("no session has two values of a label");
                    }
                }
                None if is_session(part) => named.push(SessionRef(part.to_owned())),
                _ => return Err(WRONG),
            }
        }
        match (named.is_empty(), kind.is_none() && labels.is_empty()) {
            (false, true) => Ok(Self::Named(named)),
            (true, false) => Ok(Self::Matching { agent: kind, labels }),
            _ => Err(WRONG),
        }
    }
}

/// The messages that a registration or a claim is about. In JSON it is a string: that of a [`Selection`], or
/// `host:TAG`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimScope {
    /// The messages of these sessions.
    Sessions(Selection),
    /// The messages of a worker of the pool, whose host the caller is: the incarnation of the worker's session
    /// that has this tag. Its kinds and limits are the worker's.
    Host(Tag),
}

impl From<SessionRef> for ClaimScope {
    fn from(session: SessionRef) -> Self {
        Self::Sessions(session.into())
    }
}

/// A [`ClaimScope`] in binary encodings.
#[derive(Serialize, Deserialize)]
enum Encoded {
    Sessions(Selection),
    Host(Tag),
}

impl fmt::Display for ClaimScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sessions(selection) => selection.fmt(f),
            Self::Host(tag) => write!(f, "host:{tag}"),
        }
    }
}

impl FromStr for ClaimScope {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("host:") {
            Some(tag) => tag.parse().map(Self::Host).map_err(|_| "host: is followed by a tag"),
            None => text.parse().map(Self::Sessions),
        }
    }
}

impl Serialize for ClaimScope {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() {
            return s.collect_str(self);
        }
        match self.clone() {
            Self::Sessions(selection) => Encoded::Sessions(selection),
            Self::Host(tag) => Encoded::Host(tag),
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for ClaimScope {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            return String::deserialize(d)?.parse().map_err(de::Error::custom);
        }
        Ok(match Encoded::deserialize(d)? {
            Encoded::Sessions(selection) => Self::Sessions(selection),
            Encoded::Host(tag) => Self::Host(tag),
        })
    }
}

/// The queues that a worker of the pool works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerQueue {
    /// The queues of these sessions.
    Sessions(Selection),
    /// A queue of its own, which belongs to no user's session.
    Own,
}

impl fmt::Display for WorkerQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sessions(selection) => selection.fmt(f),
            Self::Own => f.write_str("pool"),
        }
    }
}

impl FromStr for WorkerQueue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pool" => Ok(Self::Own),
            "" => Err("no sessions are named"),
            _ => text.parse().map(Self::Sessions),
        }
    }
}

/// A worker that the pool starts when messages for it come, and ends when none do. Its host, `poolctl work`,
/// is the program of a session that is hidden from users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// The name, unique among workers.
    pub name: String,
    /// The handler and its arguments, run for each message.
    pub command: Vec<OsBytes>,
    /// The kinds of messages that it works; empty for all except prompts.
    pub kinds: Vec<String>,
    /// The queues that it works.
    pub sessions: WorkerQueue,
    /// Maximum number of handlers at a time for messages of one session.
    pub session_concurrency: u32,
    /// Maximum number of handlers at a time.
    pub concurrency: u32,
    /// Time without a message after which its host ends, in milliseconds.
    pub idle_end_ms: u64,
    /// The lease of its claims, in milliseconds; defaults to the configuration's.
    pub lease_ms: Option<u64>,
    /// Run time after which a handler is ended and its attempt has failed, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// True to store the output of its handlers as the messages' results.
    pub result: bool,
    /// Names of the workers that get its messages when it fails.
    pub fallback: Vec<String>,
    /// Number of attempts after which a message goes to the next of them.
    pub fallback_after: u32,
    /// True if it is in the configuration file.
    pub configured: bool,
    /// True if it was taken out of the configuration file: it works nothing and is about to be removed.
    pub removed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_that_no_session_can_match_is_refused() {
        for wrong in [
            "agent=claude",
            "ALL",
            "all,web",
            "pool,web",
            "a b",
            "-",
            "label:=y",
            "label:x",
            "web,",
            "agent:",
            "label:x=1,label:x=2",
        ] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong}");
        }
        for text in ["all", "web", "sess_1,@w", "agent:claude,label:x=1", "label:x="] {
            assert_eq!(text.parse::<Selection>().unwrap().to_string(), text);
        }
    }
}
