//! `hook install`: our hooks in an agent's own configuration, the user's or the project's.

use std::path::{Path, PathBuf};

use agents::{Adapter, install as merge};
use clap::ValueEnum;
use serde_json::json;

use super::file;
use crate::context::{Context, absolute};
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::up::programs;

/// Write the hook configuration of an agent; what else it holds stays. The hooks do nothing outside a pool's sessions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Of which agent
    #[arg(value_name = "AGENT")]
    agent: Agent,
    /// The user's configuration, for all projects (the default)
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// That of the project in this directory
    #[arg(long)]
    project: bool,
    /// Take the hooks out again
    #[arg(long)]
    uninstall: bool,
    /// Only show what would be written
    #[arg(long)]
    dry_run: bool,
}

/// An agent with a file for hooks.
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

    /// What is left to be done after the hooks are in its configuration.
    fn hint(self) -> Option<&'static str> {
        match self {
            Self::Claude => None,
            Self::Codex => Some(TRUST),
            Self::Gemini => Some(UNWIRED),
        }
    }

    /// The variable that names its directory (that of Gemini CLI names the home), that directory below the home or a
    /// project, and the file in it.
    fn place(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Claude => ("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
            Self::Codex => ("CODEX_HOME", ".codex", "hooks.json"),
            Self::Gemini => ("GEMINI_CLI_HOME", ".gemini", "settings.json"),
        }
    }
}

/// Installs, or takes out.
pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let path = path(args)?;
    let failed = |error: std::io::Error| Error::failed(format!("{}: {error}", path.display()));
    let before = file::read(&path).map_err(failed)?;
    let after = wanted(args, &path, before.as_deref())?;
    let change = before != after;
    let mut backup = None;
    if change && !args.dry_run {
        backup =
            file::replace(&path, before.as_deref(), after.as_deref(), !args.uninstall).map_err(failed)?;
    }
    show(context, args, &path, &Outcome { change, after, backup })?;
    Ok(exit::OK)
}

/// What came of it.
struct Outcome {
    change: bool,
    after: Option<String>,
    backup: Option<PathBuf>,
}

/// What the file is to hold; `None` where it is not to be.
fn wanted(args: &Args, path: &Path, before: Option<&str>) -> Result<Option<String>, Error> {
    let adapter = args.agent.adapter();
    let merged = if args.uninstall {
        merge::uninstall(adapter, before).map(|left| match left {
            Some(left) if holds_nothing(&left) && !file::backup(path).exists() => None,
            None => before.map(str::to_owned),
            left => left,
        })
    } else {
        merge::install(adapter, before, &this_program()).map(Some)
    };
    merged.map_err(|error| Error::failed(format!("{}: {error}; nothing was changed", path.display())))
}

/// Whether it is as good as no configuration.
fn holds_nothing(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<_, _>>(text).is_ok_and(|map| map.is_empty())
}

/// The agent's file.
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
    let home =
        home.ok_or_else(|| Error::usage(format!("there is no home directory: set HOME or {variable}")))?;
    Ok(home.join(dir).join(file))
}

/// This program as it is found, which an upgrade leaves in its place: the file behind a link is another after it.
fn this_program() -> PathBuf {
    let this = programs::this();
    let is_this = |path: &PathBuf| path.is_absolute() && path.canonicalize().is_ok_and(|found| found == this);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("poolctl")).find(is_this);
    found.unwrap_or(this)
}

fn show(context: &Context, args: &Args, path: &Path, outcome: &Outcome) -> Result<(), Error> {
    let done = match (outcome.change, args.uninstall, args.dry_run) {
        (false, ..) => "unchanged",
        (true, false, false) => "installed",
        (true, true, false) => "uninstalled",
        (true, false, true) => "would_install",
        (true, true, true) => "would_uninstall",
    };
    let hint = args.agent.hint().filter(|_| !args.uninstall);
    if context.style.json {
        return out::json(&json!({
            "agent": args.agent.adapter().word(),
            "path": path.to_string_lossy(),
            "done": done,
            "backup": outcome.backup.as_ref().map(|backup| backup.to_string_lossy()),
            "content": outcome.after,
            "hint": hint,
        }));
    }
    context.say(&sentence(args, path, outcome))?;
    if let Some(backup) = &outcome.backup {
        context.say(&format!("the file as it was: {}", backup.display()))?;
    }
    if args.dry_run && outcome.change {
        out::text(outcome.after.as_deref().unwrap_or_default())?;
    }
    if !args.uninstall {
        context.say(CONFIRM)?;
    }
    hint.map_or(Ok(()), |hint| context.say(hint))
}

const CONFIRM: &str = "An agent that the pool starts with hooks of its own does not need these; where [agents.X] says \
    hooks = false, let it say confirm = \"hook\" as well: else no prompt waits for its word.";

const TRUST: &str =
    "Codex runs hooks only once they are trusted: start it and answer its question, or use /hooks there.";

const UNWIRED: &str = "Only root's Gemini CLI takes hooks of the pool's own: for other users let [agents.gemini] say \
    confirm = \"hook\", and its prompts wait for these.";

fn sentence(args: &Args, path: &Path, outcome: &Outcome) -> String {
    let path = path.display();
    match (outcome.change, args.uninstall, outcome.after.is_none()) {
        (false, false, _) => format!("already so: {path}"),
        (false, true, _) => format!("already so: {path} has no hooks of tmux-pool"),
        (true, ..) if args.dry_run && outcome.after.is_none() => format!("would remove {path}"),
        (true, ..) if args.dry_run => format!("would write {path}:"),
        (true, _, true) => format!("removed {path}: nothing else was in it"),
        (true, true, false) => format!("wrote {path}: the hooks of tmux-pool are out of it"),
        (true, false, false) => format!("wrote {path}: the hooks of tmux-pool are in it"),
    }
}
