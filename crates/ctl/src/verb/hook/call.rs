//! The command line that an agent's hook calls. It is parsed leniently and without clap: to define and parse the
//! command line for people takes longer than the report itself.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::report::ReportArgs;
use crate::show::time;

/// Flags that are followed by a value.
const TAKE_A_VALUE: [&str; 5] = ["--wait", "--socket", "--pool", "--timeout", "--color"];

/// Returns the word in the place of the agent's name, and the arguments after it. `None` for a command line that people
/// type.
pub(super) fn agent_call(args: &[OsString]) -> Option<(&str, &[OsString])> {
    let [_, verb, agent, rest @ ..] = args else { return None };
    let agent = agent.to_str().unwrap_or_default();
    let other = agent == "install" || agent == "help" || agent.starts_with('-');
    let help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    (verb == "hook" && !other && !help).then_some((agent, rest))
}

/// The understood part of a hook's command line.
#[derive(Debug, Default)]
pub(super) struct HookCall {
    pub report: ReportArgs,
    pub socket: Option<PathBuf>,
    pub verbose: bool,
}

impl HookCall {
    /// Parses the arguments after the agent's name; unknown flags are ignored.
    pub(super) fn parse(args: &[OsString]) -> Self {
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
                None => call.report.payload = Some(arg.clone()),
            }
        }
        call
    }

    fn set(&mut self, flag: &str, value: &OsStr) {
        match flag {
            "--wait" => self.report.wait = value.to_str().and_then(|wait| time::parse_duration(wait).ok()),
            "--installed" => self.report.installed = true,
            "--socket" => self.socket = std::path::absolute(value).ok(),
            "-v" | "--verbose" => self.verbose = true,
            // The pool is known from the session's socket and incarnation.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn args(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_command_line_of_people_is_no_call() {
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
            assert_eq!(agent_call(&args(line)), None, "{line}");
        }
    }

    #[test]
    fn a_call_is_parsed_like_a_command_line_as_far_as_possible() {
        let parsed = |line: &str| {
            let HookCall { report, socket, verbose } = HookCall::parse(&args(line));
            let payload = report.payload.map(|said| said.into_string().unwrap());
            (report.wait, report.installed, payload, socket, verbose)
        };
        let wait = |seconds| Some(Duration::from_secs(seconds));
        let payload = |text: &str| Some(text.to_owned());
        assert_eq!(parsed("--wait 90s --installed -v {}"), (wait(90), true, payload("{}"), None, true));
        let of_tomorrow = "--wait=2m --of-tomorrow --pool p old {\"new=\":1}";
        assert_eq!(parsed(of_tomorrow), (wait(120), false, payload("{\"new=\":1}"), None, false));
        assert_eq!(parsed("--socket /s"), (None, false, None, Some("/s".into()), false));
        assert_eq!(parsed("--socket=/s --wait soon"), (None, false, None, Some("/s".into()), false));
        for cut_off in ["--wait", "--socket", "--wait="] {
            assert_eq!(parsed(cut_off), (None, false, None, None, false), "{cut_off}");
        }
    }
}
