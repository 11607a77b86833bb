//! `hook install`: adds our hooks to an agent's own configuration, the user's or the project's.

use std::path::{Path, PathBuf};

use agents::{Adapter, install as merge};
use clap::ValueEnum;
use protocol::OsBytes;
use serde_json::json;

use super::config_file;
use crate::context::absolute;
use crate::show::out;
use crate::up::programs;
use crate::{Context, Error};

/// Add the pool's hooks to an agent's configuration. The hooks do nothing outside of a pool's sessions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: Agent,
    /// In the user's configuration, for all projects (the default)
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// In the configuration of the project in this directory
    #[arg(long)]
    project: bool,
    /// Remove the hooks
    #[arg(long)]
    uninstall: bool,
    /// Only print what would be written
    #[arg(long)]
    dry_run: bool,
}

/// An agent with a configuration file for hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Agent {
    Claude,
    Codex,
    Gemini,
}

impl Agent {
    fn adapter(self) -> Adapter {
        match self {
            Self::Claude => Adapter::Claude,
            Self::Codex => Adapter::Codex,
            Self::Gemini => Adapter::Gemini,
        }
    }

    /// The next step for the user after the installation.
    fn hint(self) -> Option<&'static str> {
        match self {
            Self::Claude => None,
            Self::Codex => Some(TRUST),
            Self::Gemini => Some(UNWIRED),
        }
    }

    /// The variable with its configuration directory (for Gemini CLI: the home directory), that directory
    /// below the home or a project, and the file in it.
    fn place(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Claude => ("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
            Self::Codex => ("CODEX_HOME", ".codex", "hooks.json"),
            Self::Gemini => ("GEMINI_CLI_HOME", ".gemini", "settings.json"),
        }
    }
}

/// Installs the hooks, or removes them.
pub(super) fn run(context: &Context, args: &Args) -> Result<(), Error> {
    let path = path(args)?;
    let failed = |error: std::io::Error| Error::failed(format!("{}: {error}", path.display()));
    let before = config_file::read(&path).map_err(failed)?;
    let after = wanted(args, &path, before.as_deref())?;
    let changed = before != after;
    let mut backup = None;
    if changed && !args.dry_run {
        backup = config_file::replace(&path, before.as_deref(), after.as_deref(), !args.uninstall)
            .map_err(failed)?;
    }
    show(context, args, &path, &Installed { changed, after, backup })
}

/// The result of an installation.
struct Installed {
    changed: bool,
    after: Option<String>,
    backup: Option<PathBuf>,
}

/// The new content of the file; `None` if it is to be removed.
fn wanted(args: &Args, path: &Path, before: Option<&str>) -> Result<Option<String>, Error> {
    let adapter = args.agent.adapter();
    let merged = if args.uninstall {
        merge::uninstall(adapter, before).map(|left| match left {
            Some(left) if holds_nothing(&left) && !config_file::backup(path).exists() => None,
            None => before.map(str::to_owned),
            left => left,
        })
    } else {
        merge::install(adapter, before, &this_program()).map(Some)
    };
    merged.map_err(|error| Error::failed(format!("{}: {error}; nothing was changed", path.display())))
}

/// True if the text is an empty configuration.
fn holds_nothing(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<_, _>>(text).is_ok_and(|map| map.is_empty())
}

/// The path of the agent's configuration file.
fn path(args: &Args) -> Result<PathBuf, Error> {
    let (variable, dir, file) = args.agent.place();
    if args.project {
        return Ok(absolute(Path::new(dir))?.join(file));
    }
    if let Some(own) = std::env::var_os(variable).filter(|own| !own.is_empty()) {
        let own = absolute(Path::new(&own))?;
        return Ok(if args.agent == Agent::Gemini { own.join(dir) } else { own }.join(file));
    }
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Error::usage(format!("no home directory: set HOME or {variable}")))?;
    Ok(home.join(dir).join(file))
}

/// The path of this program as found in `PATH`, which stays the same over an upgrade; the target of a
/// symbolic link does not.
fn this_program() -> PathBuf {
    let this = programs::this();
    let is_this = |path: &PathBuf| path.is_absolute() && path.canonicalize().is_ok_and(|found| found == this);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("poolctl")).find(is_this);
    found.unwrap_or(this)
}

fn show(context: &Context, args: &Args, path: &Path, result: &Installed) -> Result<(), Error> {
    let done = match (result.changed, args.uninstall, args.dry_run) {
        (false, ..) => "unchanged",
        (true, false, false) => "installed",
        (true, true, false) => "uninstalled",
        (true, false, true) => "would_install",
        (true, true, true) => "would_uninstall",
    };
    let hint = args.agent.hint().filter(|_| !args.uninstall);
    if context.style.json {
        return out::json(&json!({
            "agent": args.agent.adapter().as_str(),
            "path": OsBytes::from(path),
            "done": done,
            "backup": result.backup.as_deref().map(OsBytes::from),
            "content": result.after,
            "hint": hint,
        }));
    }
    context.say(&sentence(args, path, result))?;
    if let Some(backup) = &result.backup {
        context.say(&format!("backup of the old file: {}", backup.display()))?;
    }
    if args.dry_run && result.changed {
        out::text(result.after.as_deref().unwrap_or_default())?;
    }
    if !args.uninstall {
        context.say(CONFIRM)?;
    }
    hint.map_or(Ok(()), |hint| context.say(hint))
}

const CONFIRM: &str = "Agents that the pool starts with its own hooks do not need these. If [agents.X] has \
    hooks = false, set confirm = \"hook\" too: without it prompts are not confirmed by these hooks.";

const TRUST: &str = "Codex runs only trusted hooks: start it and answer its question, or use /hooks there.";

const UNWIRED: &str = "Gemini CLI accepts the pool's own hooks for root only: for other users set \
    confirm = \"hook\" in [agents.gemini], so that these hooks confirm its prompts.";

fn sentence(args: &Args, path: &Path, result: &Installed) -> String {
    let path = path.display();
    match (result.changed, args.uninstall, result.after.is_none()) {
        (false, false, _) => format!("unchanged: {path} has the hooks of tmux-pool"),
        (false, true, _) => format!("unchanged: {path} has no hooks of tmux-pool"),
        (true, ..) if args.dry_run && result.after.is_none() => format!("would remove {path}"),
        (true, ..) if args.dry_run => format!("would write {path}:"),
        (true, _, true) => format!("removed {path}: it had no other content"),
        (true, true, false) => format!("wrote {path}: removed the hooks of tmux-pool"),
        (true, false, false) => format!("wrote {path}: added the hooks of tmux-pool"),
    }
}
