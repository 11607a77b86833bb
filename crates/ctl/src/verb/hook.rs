//! `hook`: what an agent's hooks call. It reports to `poold` what happened, and where `poold` is away leaves the report
//! in the session's directory. Whatever goes wrong is no matter of the agent's: this ends with 0, prints nothing but
//! a decision that was asked for, and takes no longer than it must.

mod file;
mod input;
mod install;
mod place;
mod report;
mod spool;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{out, time};

/// Whose hooks call.
const AGENTS: [&str; 6] = ["claude", "codex", "gemini", "opencode", "aider", "generic"];
/// Flags that are followed by what they are set to.
const TAKE_A_VALUE: [&str; 5] = ["--wait", "--socket", "--pool", "--timeout", "--color"];

/// What agents' hooks call, and the configuration by which they do
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Report what a hook of Claude Code says, as JSON on standard input
    Claude(Report),
    /// Report what a hook of Codex says, as JSON on standard input or as the last argument
    Codex(Report),
    /// Report what a hook of Gemini CLI says, as JSON on standard input
    Gemini(Report),
    /// Report what the pool's plugin of OpenCode says, as `generic`
    Opencode(Report),
    /// Report what Aider's notifications say, as `generic`
    Aider(Report),
    /// Report what any program says, as JSON: {"event": "prompt", "text": …, "conversation": …}
    ///
    /// The event is one of started, prompt, working, tool, permission, attention, idle, interrupted, error, ended. The
    /// text is what is said of it to people; with prompt it is the whole prompt, by which a message is confirmed. A
    /// permission names its tool; with --wait the decision is printed as {"allow": true} or {"allow": false, "reason": …}.
    Generic(Report),
    Install(install::Args),
}

/// How a hook calls.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Report {
    /// Where it asks for a permission: wait this long for `poolctl approve`, and print the decision
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub wait: Option<Duration>,
    /// The hook is of a configuration file: do nothing where the agent was started with hooks of its own (POOL_HOOKED)
    #[arg(long)]
    pub installed: bool,
    /// What it says, instead of standard input
    #[arg(value_name = "JSON")]
    pub said: Option<OsString>,
}

impl Command {
    /// The agent's word and the report, unless it is something else.
    fn report(&self) -> Option<(&'static str, &Report)> {
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

/// Reports, or installs.
pub(crate) fn run(context: &Context, command: &Command) -> Result<u8, Error> {
    if let Some((agent, report)) = command.report() {
        report::report(agent, report, Some(&context.paths.socket), &|trouble| context.remark(trouble));
        return Ok(exit::OK);
    }
    match command {
        Command::Install(args) => install::run(context, args),
        _ => Ok(exit::OK),
    }
}

/// A hook's call, carried out before anything else is looked at: to define and understand a command line as people
/// write them takes longer than the rest. Whatever such a call says, it is none of the agent's business, so a flag
/// of another version and a word that is none end with 0 as well. `None` for what people ask for.
#[must_use]
pub(crate) fn at_once(args: &[OsString]) -> Option<u8> {
    let (agent, rest) = calls(args)?;
    let Some(agent) = AGENTS.into_iter().find(|known| *known == agent) else {
        // Nobody but a person types at a terminal.
        return (!io::stdin().is_terminal()).then_some(exit::OK);
    };
    let call = Call::understand(rest);
    report::report(agent, &call.report, call.socket.as_deref(), &|trouble| {
        if call.verbose {
            out::note(trouble);
        }
    });
    Some(exit::OK)
}

/// Whether an agent calls: a fault of this program must not become one of the agent's, some of which take certain exit
/// codes of a hook for an answer.
#[must_use]
pub(crate) fn is_called(args: &[OsString]) -> bool {
    calls(args).is_some_and(|(agent, _)| AGENTS.contains(&agent))
}

/// What may be an agent's word, and what follows it. `None` for what people ask for.
fn calls(args: &[OsString]) -> Option<(&str, &[OsString])> {
    let [_, verb, agent, rest @ ..] = args else { return None };
    let agent = agent.to_str().unwrap_or_default();
    let other = agent == "install" || agent == "help" || agent.starts_with('-');
    let help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    (verb == "hook" && !other && !help).then_some((agent, rest))
}

/// A call as far as it is understood.
#[derive(Debug, Default)]
struct Call {
    report: Report,
    socket: Option<PathBuf>,
    verbose: bool,
}

impl Call {
    fn understand(args: &[OsString]) -> Self {
        let mut call = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let flag = arg.to_str().unwrap_or_default();
            match flag.split_once('=').filter(|_| flag.starts_with("--")) {
                Some((flag, value)) => call.set(flag, OsStr::new(value)),
                None if TAKE_A_VALUE.contains(&flag) => {
                    call.set(flag, args.next().map_or(OsStr::new(""), |value| value));
                }
                None if flag.starts_with('-') => call.set(flag, OsStr::new("")),
                None => call.report.said = Some(arg.clone()),
            }
        }
        call
    }

    fn set(&mut self, flag: &str, value: &OsStr) {
        match flag {
            "--wait" => self.report.wait = value.to_str().and_then(|wait| time::parse(wait).ok()),
            "--installed" => self.report.installed = true,
            "--socket" => self.socket = std::path::absolute(value).ok(),
            "-v" | "--verbose" => self.verbose = true,
            // The socket and the incarnation are the session's, which say which pool it is.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_people_ask_for_is_left_to_the_command_line() {
        for line in [
            "poolctl",
            "poolctl hook",
            "poolctl ls claude",
            "poolctl hook install claude",
            "poolctl hook help",
            "poolctl hook --help",
            "poolctl hook claude --help",
            "poolctl hook codex -h",
        ] {
            assert_eq!(calls(&args(line)), None, "{line}");
        }
    }

    #[test]
    fn a_call_is_understood_as_the_command_line_would_or_as_far_as_it_goes() {
        let understood = |line: &str| {
            let Call { report, socket, verbose } = Call::understand(&args(line));
            let said = report.said.map(|said| said.into_string().unwrap());
            (report.wait, report.installed, said, socket, verbose)
        };
        let wait = |seconds| Some(Duration::from_secs(seconds));
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(understood("--wait 90s --installed -v {}"), (wait(90), true, said("{}"), None, true));
        let of_tomorrow = "--wait=2m --of-tomorrow --pool p old {\"new=\":1}";
        assert_eq!(understood(of_tomorrow), (wait(120), false, said("{\"new=\":1}"), None, false));
        assert_eq!(understood("--socket /s"), (None, false, None, Some("/s".into()), false));
        assert_eq!(understood("--socket=/s --wait soon"), (None, false, None, Some("/s".into()), false));
        for cut_off in ["--wait", "--socket", "--wait="] {
            assert_eq!(understood(cut_off), (None, false, None, None, false), "{cut_off}");
        }
    }
}
