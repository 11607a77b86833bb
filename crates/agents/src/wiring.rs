//! Wires the hooks of an agent that the pool launches: for this launch alone, without changing the user's
//! files.
//!
//! - Claude Code 2.1.197: `--plugin-dir DIR`, a plugin with nothing but hooks. Hooks of the user, of the
//!   project, of other `--plugin-dir`s and of the user's `--settings` run as well. (Of two `--settings` only
//!   the last counts, so the option is left to the user.)
//! - Codex 0.169.0: `-c hooks.EVENT=…`, merged with the hooks in the user's and the project's files. Codex
//!   runs trusted hooks only, so the hashes of our hooks are passed as well; nothing is written to the user's
//!   configuration. `--no-daemon` because a background server of Codex would run the hooks with its own
//!   environment instead of the session's.
//! - Gemini CLI 0.61.0: a settings file in place of the system defaults
//!   (`/etc/gemini-cli/system-defaults.json`, which is then not read), named in the environment. Gemini CLI
//!   reads it only if the file and every directory above it belong to root and are writable for root alone;
//!   otherwise it shows a warning and ignores our hooks.
//! - OpenCode 1.18.33: a plugin that a configuration file of this launch names (`OPENCODE_CONFIG`), merged
//!   with the user's and the project's configuration. If the user's environment sets `OPENCODE_CONFIG`, that
//!   file is read instead and there are no reports.
//! - Aider 0.86.2: environment variables name a command to run whenever it waits for input, and its files of
//!   prompts and of the conversation.

mod aider;
mod claude;
mod codex;
mod gemini;
mod hook_call;
mod opencode;

use std::path::{Path, PathBuf};

use protocol::OsBytes;

use crate::adapter::Adapter;
pub(crate) use hook_call::HookCall;

/// Environment variable of an agent whose hooks are wired per launch: hooks in the user's configuration then
/// do nothing. Its value is the adapter.
const WIRED_ENV: &str = "POOL_HOOKED";

/// The additions to a launch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wiring {
    /// Arguments, after the user's own; a subcommand (`codex resume ID`) may follow.
    pub args: Vec<OsBytes>,
    /// Files to write before the launch: paths relative to [`WiringOptions::dir`], and their contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// Environment variables to set.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// True if the variables take the place of the user's: without them nothing confirms a prompt.
    pub overrides: bool,
}

/// The parameters of a wiring.
#[derive(Debug, Clone, Copy)]
pub struct WiringOptions<'a> {
    /// Absolute path of the program that the hooks call.
    pub poolctl: &'a Path,
    /// Absolute path of the pool's directory for the session, which holds the files of the wiring.
    pub dir: &'a Path,
    /// Absolute path of the session's own directory, for files that the agent writes.
    pub own_dir: &'a Path,
    /// Time that a permission request waits for `poolctl approve`, in milliseconds; 0 to report it without
    /// waiting.
    pub approve_ms: u64,
    /// Time limit of any other hook, in milliseconds; rounded up for agents that count seconds.
    pub hook_ms: u64,
}

/// Returns the file in which the agent records its prompts, if its wiring sets it. `own_dir`: see
/// [`WiringOptions::own_dir`].
pub fn prompt_history(adapter: Adapter, own_dir: &Path) -> Option<PathBuf> {
    (adapter == Adapter::Aider).then(|| own_dir.join(aider::HISTORY))
}

/// Returns the file in which the agent records its conversation to resume it, if its wiring sets that, and the one for
/// the record of a conversation that is not to be resumed. `own_dir`: see [`WiringOptions::own_dir`].
pub fn chat_history(adapter: Adapter, own_dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let names = (adapter == Adapter::Aider).then_some((aider::CONVERSATION, aider::FORMER_CONVERSATION));
    names.map(|(record, former)| (own_dir.join(record), own_dir.join(former)))
}

/// True for a variable that the wiring of this adapter sets for one session, and that its programs would pass on to
/// others.
pub fn is_variable(adapter: Adapter, name: &[u8]) -> bool {
    match adapter {
        Adapter::Opencode => name == opencode::CONFIG_ENV.as_bytes(),
        Adapter::Aider => aider::VARIABLES.iter().any(|one| name == one.as_bytes()),
        Adapter::Claude | Adapter::Codex | Adapter::Gemini | Adapter::None => false,
    }
}

/// Returns the wiring of an agent. It is empty for [`Adapter::None`], and if the path of poolctl is not
/// UTF-8, since agents' configurations cannot name such a path.
pub fn wire(adapter: Adapter, options: &WiringOptions<'_>) -> Wiring {
    let Some(poolctl) = options.poolctl.to_str() else {
        return Wiring::default();
    };
    let mut wiring = match adapter {
        Adapter::Claude => claude::wire(poolctl, options),
        Adapter::Codex => codex::wire(poolctl, options),
        Adapter::Gemini => gemini::wire(poolctl, options),
        Adapter::Opencode => opencode::wire(poolctl, options),
        Adapter::Aider => aider::wire(poolctl, options),
        Adapter::None => return Wiring::default(),
    };
    wiring.env.push((WIRED_ENV.into(), adapter.to_string().into()));
    wiring
}

/// Options with the same directory for all files.
#[cfg(test)]
fn options_in(dir: &str, approve_ms: u64, hook_ms: u64) -> WiringOptions<'_> {
    let (poolctl, dir) = (Path::new("/bin/poolctl"), Path::new(dir));
    WiringOptions { poolctl, dir, own_dir: dir, approve_ms, hook_ms }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn an_agent_without_hooks_is_launched_as_it_is() {
        let named = options_in("/state/s1", 1, 1);
        assert_eq!(wire(Adapter::None, &named), Wiring::default());
        let odd = WiringOptions { poolctl: Path::new(OsStr::from_bytes(b"/b\xff/poolctl")), ..named };
        assert_eq!(wire(Adapter::Claude, &odd), Wiring::default());
    }

    #[test]
    fn hooks_that_the_user_installed_keep_quiet_beside_ours() {
        let named = options_in("/state/s1", 0, 1);
        for adapter in Adapter::ALL.into_iter().filter(|adapter| *adapter != Adapter::None) {
            let hooked = ("POOL_HOOKED".into(), adapter.to_string().into());
            assert!(wire(adapter, &named).env.contains(&hooked), "{adapter}");
            let stays = |name: &[u8]| is_variable(adapter, name) || protocol::env::is_stripped(name);
            assert!(
                wire(adapter, &named).env.iter().all(|(name, _)| stays(&name.0)),
                "no session inherits it"
            );
        }
    }
}
