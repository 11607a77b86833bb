//! `hook`: called by an agent's hooks. It reports the event to `poold`, or leaves the report in the session's
//! directory if `poold` does not answer. A failure never affects the agent: the exit code is 0, nothing but a
//! requested decision is printed, and every wait has a limit.

mod call;
mod config_file;
mod environment;
mod install;
mod report;
mod spool;
mod stdin;

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use crate::show::out;
use crate::{Context, Error, exit};
use call::{HookCall, agent_call};
use report::ReportArgs;

/// The agents whose hooks call.
const AGENTS: [&str; 6] = ["claude", "codex", "gemini", "opencode", "aider", "generic"];

/// Report the events of agents' hooks, and configure hooks
#[derive(Debug, clap::Subcommand)]
pub(crate) enum HookCommand {
    /// Report the event of a Claude Code hook, as JSON on standard input
    Claude(ReportArgs),
    /// Report the event of a Codex hook, as JSON on standard input or as the last argument
    Codex(ReportArgs),
    /// Report the event of a Gemini CLI hook, as JSON on standard input
    Gemini(ReportArgs),
    /// Report an event from the pool's OpenCode plugin, as `generic`
    Opencode(ReportArgs),
    /// Report a notification of Aider, as `generic`
    Aider(ReportArgs),
    /// Report an event of any program, as JSON: {"event": "prompt", "text": …, "conversation": …}
    ///
    /// The event is one of started, prompt, working, tool, permission, attention, idle, interrupted, error,
    /// ended. The text describes it for people; with prompt it is the whole prompt, which confirms a message.
    /// A permission names its tool; with --wait the decision is printed as {"allow": true} or {"allow":
    /// false, "reason": …}.
    Generic(ReportArgs),
    Install(install::Args),
}

impl HookCommand {
    /// The agent's name and the arguments of a report.
    fn report(&self) -> Option<(&'static str, &ReportArgs)> {
        match self {
            Self::Claude(report) => Some(("claude", report)),
            Self::Codex(report) => Some(("codex", report)),
            Self::Gemini(report) => Some(("gemini", report)),
            Self::Opencode(report) => Some(("opencode", report)),
            Self::Aider(report) => Some(("aider", report)),
            Self::Generic(report) => Some(("generic", report)),
            Self::Install(_) => None,
        }
    }
}

/// Reports an event, or installs hooks.
pub(crate) fn run(context: &Context, command: HookCommand) -> Result<(), Error> {
    if let Some((agent, report)) = command.report() {
        report::report(agent, report, Some(&context.paths.socket), &|error| context.remark(error));
        return Ok(());
    }
    match command {
        HookCommand::Install(args) => install::run(context, &args),
        _ => Ok(()),
    }
}

/// Runs `hook` as called by an agent, without clap, and returns its exit code. An unknown flag (of another version,
/// perhaps) or an unknown agent also ends with 0, because any failure would be taken for the agent's. `None` for a
/// command line that people type.
pub(crate) fn run_agent_call(args: &[OsString]) -> Option<u8> {
    let (agent, rest) = agent_call(args)?;
    let Some(agent) = AGENTS.into_iter().find(|known| *known == agent) else {
        // With a terminal it was typed by a person.
        if io::stdin().is_terminal() {
            return None;
        }
        stdin::read();
        return Some(exit::OK);
    };
    let call = HookCall::parse(rest);
    report::report(agent, &call.report, call.socket.as_deref(), &|error| {
        if call.verbose {
            out::note(error);
        }
    });
    Some(exit::OK)
}

/// True if an agent calls `hook`. A panic must then not change the exit code, which some agents take for an answer.
pub(crate) fn is_agent_call(args: &[OsString]) -> bool {
    agent_call(args).is_some_and(|(agent, _)| AGENTS.contains(&agent))
}
