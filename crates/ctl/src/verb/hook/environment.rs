//! The environment of a hook: its session and incarnation, and the way to reach `poold`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use protocol::hook::SPOOL_DIR;
use protocol::paths::Env;
use protocol::{SessionId, Tag};

/// The environment of a hook that runs in a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HookEnvironment {
    pub session: SessionId,
    /// The tag of the session's incarnation.
    pub tag: Tag,
    /// The socket of `poold`.
    pub socket: PathBuf,
    /// The directory in which reports are left for `poold`.
    pub spool: Option<PathBuf>,
}

impl HookEnvironment {
    /// Reads the variables; `None` outside of any session, or if a variable is invalid.
    pub(super) fn read() -> Option<Self> {
        Self::from_variables(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let session: SessionId = variable("POOL_SESSION")?.to_str()?.parse().ok()?;
        let tag = variable("POOL_INCARNATION")?.to_str()?.parse().ok()?;
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let socket = absolute("POOL_SOCKET").or_else(|| Env::from_environment().socket_path().ok())?;
        let spool = absolute("POOL_HOOKS").or_else(|| default_spool(&socket, session));
        Some(Self { session, tag, socket, spool })
    }
}

/// The spool directory of the session, if the socket is in its usual place in the state directory.
fn default_spool(socket: &Path, session: SessionId) -> Option<PathBuf> {
    let run = socket.parent().filter(|run| run.ends_with("run"))?;
    Some(run.parent()?.join("sessions").join(session.to_string()).join(SPOOL_DIR))
}

/// True if the agent was started with the pool's own hooks.
pub(super) fn has_own_hooks() -> bool {
    std::env::var_os("POOL_HOOKED").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "07070707070707070707070707070707";

    fn environment(set: &[(&str, &str)]) -> Option<HookEnvironment> {
        HookEnvironment::from_variables(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn a_session_and_its_incarnation_are_needed() {
        let socket = ("POOL_SOCKET", "/state/run/poold.sock");
        let session = ("POOL_SESSION", "sess_3");
        let tag = ("POOL_INCARNATION", TAG);
        assert_eq!(environment(&[]), None);
        assert_eq!(environment(&[socket, session]), None);
        assert_eq!(environment(&[socket, tag]), None);
        assert_eq!(environment(&[socket, session, ("POOL_INCARNATION", "7")]), None);
        assert_eq!(environment(&[socket, tag, ("POOL_SESSION", "web")]), None);
        let found = environment(&[socket, session, tag]).unwrap();
        assert_eq!((found.session, found.tag), (SessionId(3), Tag([7; 16])));
    }

    #[test]
    fn the_spool_is_named_by_a_variable_or_derived_from_the_socket() {
        let of = |socket, hooks: Option<&str>| {
            let mut set =
                vec![("POOL_SESSION", "sess_3"), ("POOL_INCARNATION", TAG), ("POOL_SOCKET", socket)];
            set.extend(hooks.map(|hooks| ("POOL_HOOKS", hooks)));
            environment(&set).unwrap().spool
        };
        let derived = Some("/state/sessions/sess_3/hooks".into());
        assert_eq!(of("/state/run/poold.sock", Some("/there/hooks")), Some("/there/hooks".into()));
        assert_eq!(of("/state/run/poold.sock", Some("hooks")), derived);
        assert_eq!(of("/state/run/poold.sock", None), derived);
        assert_eq!(of("/elsewhere/poold.sock", None), None);
    }
}
