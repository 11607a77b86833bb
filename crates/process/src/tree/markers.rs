//! Environment markers: the `POOL_*` variables in the initial environment of a process that tell to which
//! incarnation or tmux client it belongs.

use std::io;
use std::path::Path;

use protocol::paths::is_same;
use protocol::{OsBytes, ProcId, Tag};

use super::evidence::Evidence;
use crate::platform::{self, proc};

/// Variable of a tmux client: the process that started it, as `PID.START`.
const CLIENT: &str = "POOL_TMUX_CLIENT";

/// The markers of one process; at least one of `tag` and `client` is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Markers {
    /// `POOL_INCARNATION`.
    pub(crate) tag: Option<Tag>,
    /// `POOL_TMUX_CLIENT`: the owner of the client.
    pub(crate) client: Option<ProcId>,
    /// `POOL_SOCKET`.
    pub(crate) socket: Option<OsBytes>,
}

impl Markers {
    /// Reads the markers; `None` if the process has none or has ended.
    pub(crate) fn read(pid: u32) -> io::Result<Option<Self>> {
        Ok(platform::environ(pid)?.and_then(|environ| Self::parse(&environ)))
    }

    fn parse(environ: &[u8]) -> Option<Self> {
        let text = |name| std::str::from_utf8(proc::parse_variable(environ, name)?).ok();
        let tag = text("POOL_INCARNATION").and_then(|tag| tag.parse().ok());
        let client = text(CLIENT).and_then(parse_client);
        let socket = || proc::parse_variable(environ, "POOL_SOCKET").map(|path| OsBytes(path.to_vec()));
        (tag.is_some() || client.is_some()).then(|| Self { tag, client, socket: socket() })
    }

    /// True if they are those of the incarnation.
    pub(crate) fn match_incarnation(&self, evidence: &Evidence) -> bool {
        let same = |socket: &Path| self.socket.as_ref().is_some_and(|path| is_same(path.as_path(), socket));
        self.tag == Some(evidence.tag) && evidence.socket.as_deref().is_none_or(same)
    }
}

fn parse_client(text: &str) -> Option<ProcId> {
    let (pid, start) = text.split_once('.')?;
    Some(ProcId { pid: pid.parse().ok()?, start: start.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag([5; 16]);

    #[test]
    fn a_tag_a_client_or_neither() {
        let tag = format!("POOL_INCARNATION={TAG}\0POOL_SOCKET=/s\0");
        let markers = Markers::parse(tag.as_bytes()).unwrap();
        assert_eq!(markers, Markers { tag: Some(TAG), client: None, socket: Some("/s".into()) });
        let client = Markers::parse(b"A=1\0POOL_TMUX_CLIENT=7.99\0").unwrap();
        assert_eq!((client.tag, client.client), (None, Some(ProcId { pid: 7, start: 99 })));
        for none in ["", "POOL_SOCKET=/s\0", "POOL_INCARNATION=5\0", "POOL_TMUX_CLIENT=7@99\0"] {
            assert_eq!(Markers::parse(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn a_tag_that_others_may_have_counts_only_with_the_socket() {
        let markers =
            |socket: Option<&str>| Markers { tag: Some(TAG), client: None, socket: socket.map(Into::into) };
        let evidence = |tag, socket: Option<&str>| Evidence {
            init: None,
            sid: None,
            tag,
            cgroup: None,
            socket: socket.map(Into::into),
        };
        let matches = |socket, evidence| markers(socket).match_incarnation(&evidence);
        assert!(matches(None, evidence(TAG, None)) && matches(Some("/b"), evidence(TAG, None)));
        assert!(matches(Some("/a"), evidence(TAG, Some("/a"))));
        assert!(!matches(Some("/b"), evidence(TAG, Some("/a"))), "another pool's");
        assert!(!matches(None, evidence(TAG, Some("/a"))));
        assert!(!matches(Some("/a"), evidence(Tag([6; 16]), Some("/a"))));
    }
}
