//! How the hooks of an agent that the pool launches are wired: for this launch alone, never in a file of the user's.
//!
//! - Claude Code 2.1.197: `--plugin-dir DIR`, a plugin with nothing but hooks. The user's and the project's hooks run as well,
//!   and so do those of other `--plugin-dir`s and of a `--settings` of the user's (of two `--settings` only the last counts, so that
//!   one is left to the user).
//! - Codex 0.169.0: `-c hooks.EVENT=…`, merged with the hooks of the user's and the project's files. A hook runs only if it is
//!   trusted, so its hash is passed as well, for ours alone; nothing is written to the user's configuration. `--no-daemon`:
//!   a background server of Codex would run the hooks with its own environment instead of the session's.
//! - Gemini CLI 0.61.0: a settings file in the place of the system's defaults, named in the environment. It is read only where
//!   the file and every directory above it belong to root and nobody else may write there; else Gemini CLI shows a warning
//!   and has no hooks of ours. Defaults of the system (`/etc/gemini-cli/system-defaults.json`) are not read then.
//! - OpenCode 1.18.33: a plugin, which a configuration file of the launch's names (`OPENCODE_CONFIG`). It is merged with the user's
//!   and the project's; one that the user's environment names is read in its place, and then nothing is told.
//! - Aider 0.86.2: its environment names a command for when it waits, and the file in which it keeps the prompts that it took.

mod aider;
mod claude;
mod codex;
mod command;
mod gemini;
mod opencode;

use std::path::{Path, PathBuf};

use protocol::text::OsBytes;

use crate::kind::Adapter;
pub(crate) use command::HookCall;

/// Says to hooks that the user installed that hooks are wired per launch: they are to do nothing.
pub const WIRED: &str = "POOL_HOOKED";

/// What is added to a launch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wiring {
    /// Arguments, after the user's own; a subcommand (`codex resume ID`) may follow.
    pub args: Vec<OsBytes>,
    /// Files to write first: their paths in the directory, and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
    /// Environment to add.
    pub env: Vec<(OsBytes, OsBytes)>,
}

/// What a wiring is made of.
#[derive(Debug, Clone, Copy)]
pub struct Wire<'a> {
    /// The program that the hooks call, absolute.
    pub poolctl: &'a Path,
    /// Where its files go: the directory that the pool keeps of its session, absolute.
    pub dir: &'a Path,
    /// The session's own directory, for what the agent itself writes, absolute.
    pub own_dir: &'a Path,
    /// How long a request for a permission waits for `approve`, in milliseconds; 0: it is only told.
    pub approve_ms: u64,
    /// How long any other hook may take, in milliseconds. Agents count seconds: it is rounded up.
    pub hook_ms: u64,
}

/// The agent's record of its prompts, where its wiring chooses the place. `own_dir` is the session's own directory.
#[must_use]
pub fn record(adapter: Adapter, own_dir: &Path) -> Option<PathBuf> {
    (adapter == Adapter::Aider).then(|| own_dir.join(aider::HISTORY))
}

/// The wiring of an agent. Nothing for a program that has no hooks we know, and where the path of poolctl is not UTF-8: no
/// agent's configuration can name it.
#[must_use]
pub fn wire(adapter: Adapter, wire: &Wire<'_>) -> Wiring {
    let Some(poolctl) = wire.poolctl.to_str() else {
        return Wiring::default();
    };
    let mut wiring = match adapter {
        Adapter::Claude => claude::wire(poolctl, wire),
        Adapter::Codex => codex::wire(poolctl, wire),
        Adapter::Gemini => gemini::wire(poolctl, wire),
        Adapter::Opencode => opencode::wire(poolctl, wire),
        Adapter::Aider => aider::wire(poolctl, wire),
        Adapter::None => return Wiring::default(),
    };
    wiring.env.push((WIRED.into(), "1".into()));
    wiring
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn an_agent_without_hooks_is_launched_as_it_is() {
        let dir = Path::new("/state/s1");
        let named = |poolctl| Wire { poolctl, dir, own_dir: dir, approve_ms: 1, hook_ms: 1 };
        assert_eq!(wire(Adapter::None, &named(Path::new("/bin/poolctl"))), Wiring::default());
        let odd = Path::new(OsStr::from_bytes(b"/b\xff/poolctl"));
        assert_eq!(wire(Adapter::Claude, &named(odd)), Wiring::default());
    }

    #[test]
    fn hooks_that_the_user_installed_keep_quiet_beside_ours() {
        let named = Wire {
            poolctl: Path::new("/bin/poolctl"),
            dir: Path::new("/state/s1"),
            own_dir: Path::new("/state/s1"),
            approve_ms: 0,
            hook_ms: 1,
        };
        for adapter in Adapter::ALL.into_iter().filter(|adapter| *adapter != Adapter::None) {
            assert!(wire(adapter, &named).env.contains(&("POOL_HOOKED".into(), "1".into())), "{adapter}");
        }
    }
}
