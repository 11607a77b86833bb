//! What the environment that a process was started with says of whose it is.

use std::io;
use std::os::unix::ffi::OsStrExt;

use protocol::ids::{ProcId, Tag};
use protocol::text::OsBytes;

use crate::tree::Evidence;
use crate::{platform, proc};

/// Who started a tmux client, as `PID.START`.
const CLIENT: &str = "POOL_TMUX_CLIENT";

/// The marks of one process, at least one of the first two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marks {
    /// `POOL_INCARNATION`.
    pub(crate) tag: Option<Tag>,
    /// `POOL_TMUX_CLIENT`: whose client it is.
    pub(crate) client: Option<ProcId>,
    /// `POOL_SOCKET`.
    pub(crate) socket: Option<OsBytes>,
}

impl Marks {
    /// `None` where it has none, has ended, or hides its memory.
    pub(crate) fn of(pid: u32) -> io::Result<Option<Self>> {
        Ok(platform::environ(pid)?.and_then(|environ| Self::parse(&environ)))
    }

    fn parse(environ: &[u8]) -> Option<Self> {
        let text = |name| std::str::from_utf8(proc::parse_variable(environ, name)?).ok();
        let tag = text("POOL_INCARNATION").and_then(|tag| tag.parse().ok());
        let client = text(CLIENT).and_then(parse_client);
        let socket = || proc::parse_variable(environ, "POOL_SOCKET").map(|path| OsBytes(path.to_vec()));
        (tag.is_some() || client.is_some()).then(|| Self { tag, client, socket: socket() })
    }

    /// Whether the process is of the incarnation.
    pub(crate) fn name(&self, evidence: &Evidence) -> bool {
        let path = self.socket.as_ref().map(|path| path.0.as_slice());
        let same = |socket: &std::path::Path| path == Some(socket.as_os_str().as_bytes());
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
        let marks = Marks::parse(tag.as_bytes()).unwrap();
        assert_eq!(marks, Marks { tag: Some(TAG), client: None, socket: Some("/s".into()) });
        let client = Marks::parse(b"A=1\0POOL_TMUX_CLIENT=7.99\0").unwrap();
        assert_eq!((client.tag, client.client), (None, Some(ProcId { pid: 7, start: 99 })));
        for none in ["", "POOL_SOCKET=/s\0", "POOL_INCARNATION=5\0", "POOL_TMUX_CLIENT=7@99\0"] {
            assert_eq!(Marks::parse(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn a_tag_that_others_may_have_counts_only_with_the_socket() {
        let marks =
            |socket: Option<&str>| Marks { tag: Some(TAG), client: None, socket: socket.map(Into::into) };
        let evidence = |tag, socket: Option<&str>| Evidence {
            init: None,
            sid: None,
            tag,
            cgroup: None,
            socket: socket.map(Into::into),
        };
        assert!(marks(None).name(&evidence(TAG, None)) && marks(Some("/b")).name(&evidence(TAG, None)));
        assert!(marks(Some("/a")).name(&evidence(TAG, Some("/a"))));
        assert!(!marks(Some("/a/")).name(&evidence(TAG, Some("/a"))), "another pool's");
        assert!(!marks(None).name(&evidence(TAG, Some("/a"))));
        assert!(!marks(Some("/a")).name(&evidence(Tag([6; 16]), Some("/a"))));
    }
}
