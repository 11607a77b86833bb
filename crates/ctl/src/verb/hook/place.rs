//! Where a hook runs: which session and incarnation, and how `poold` is told.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use protocol::hook::SPOOL_DIR;
use protocol::socket::Env;
use protocol::{SessionId, Tag};

/// The surroundings of a hook within a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which session.
    pub session: SessionId,
    /// Which incarnation of it.
    pub tag: Tag,
    /// Where `poold` listens.
    pub socket: PathBuf,
    /// Where reports are left for it.
    pub spool: Option<PathBuf>,
}

impl Place {
    /// From the environment; `None` outside of any session, or where it says nothing sensible.
    pub(super) fn here() -> Option<Self> {
        Self::of(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let session: SessionId = variable("POOL_SESSION")?.to_str()?.parse().ok()?;
        let tag = variable("POOL_INCARNATION")?.to_str()?.parse().ok()?;
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let socket = absolute("POOL_SOCKET").or_else(|| Env::from_environment().socket_path().ok())?;
        let spool = absolute("POOL_HOOKS").or_else(|| beside(&socket, session));
        Some(Self { session, tag, socket, spool })
    }
}

/// The session's directory of hooks, where the socket is in its usual place in the state directory.
fn beside(socket: &Path, session: SessionId) -> Option<PathBuf> {
    let run = socket.parent().filter(|run| run.ends_with("run"))?;
    Some(run.parent()?.join("sessions").join(session.to_string()).join(SPOOL_DIR))
}

/// Whether the agent was started with hooks of its own.
pub(super) fn is_wired() -> bool {
    std::env::var_os("POOL_HOOKED").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "07070707070707070707070707070707";

    fn place(set: &[(&str, &str)]) -> Option<Place> {
        Place::of(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
    }

    #[test]
    fn a_session_and_its_incarnation_are_needed() {
        let socket = ("POOL_SOCKET", "/state/run/poold.sock");
        let session = ("POOL_SESSION", "sess_3");
        let tag = ("POOL_INCARNATION", TAG);
        assert_eq!(place(&[]), None);
        assert_eq!(place(&[socket, session]), None);
        assert_eq!(place(&[socket, tag]), None);
        assert_eq!(place(&[socket, session, ("POOL_INCARNATION", "7")]), None);
        assert_eq!(place(&[socket, tag, ("POOL_SESSION", "web")]), None);
        let found = place(&[socket, session, tag]).unwrap();
        assert_eq!((found.session, found.tag), (SessionId(3), Tag([7; 16])));
    }

    #[test]
    fn reports_are_left_where_the_session_says_else_where_the_state_is() {
        let of = |socket, hooks: Option<&str>| {
            let mut set =
                vec![("POOL_SESSION", "sess_3"), ("POOL_INCARNATION", TAG), ("POOL_SOCKET", socket)];
            set.extend(hooks.map(|hooks| ("POOL_HOOKS", hooks)));
            place(&set).unwrap().spool
        };
        let derived = Some("/state/sessions/sess_3/hooks".into());
        assert_eq!(of("/state/run/poold.sock", Some("/there/hooks")), Some("/there/hooks".into()));
        assert_eq!(of("/state/run/poold.sock", Some("hooks")), derived);
        assert_eq!(of("/state/run/poold.sock", None), derived);
        assert_eq!(of("/elsewhere/poold.sock", None), None);
    }
}
