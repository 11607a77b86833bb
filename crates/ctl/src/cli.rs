//! The command line: what is common to all verbs. The arguments of a verb are in the verb's file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use protocol::ids::OP_ID_MAX;
use protocol::message::KIND_MAX;
use serde_json::json;

use crate::show::{out, time};
use crate::verb;

/// A crash-safe pool of tmux-hosted agent sessions.
#[derive(Debug, Parser)]
#[command(name = "poolctl", bin_name = "poolctl", version, max_term_width = 100, after_help = AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "A SESSION is an id (sess_12), a name or a workspace, or - for the one this shell runs in.\n\
    Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 refused, 6 timeout, 7 unavailable,\n\
    8 protocol, 9 storage; `run` and `wait --for exit` end with the session's own, and 125 for poolctl's.";

/// Flags of every verb.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The pool [env: POOL_NAME] [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub pool: Option<OsString>,
    /// Where poold listens [env: POOL_SOCKET]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON; one document, or one a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only what a script needs
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more on standard error
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// How long to wait for an answer; 0 or off: for ever [default: 10s; off where a verb waits or follows]
    #[arg(long, global = true, value_name = "DUR", value_parser = limit)]
    pub timeout: Option<Limit>,
    /// Colours; auto also heeds NO_COLOR
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Colour,
}

/// When to use colours: on a terminal, or regardless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    #[default]
    Auto,
    Always,
    Never,
}

/// A limit on waiting; `None` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub Option<Duration>);

fn limit(text: &str) -> Result<Limit, String> {
    if text == "off" {
        return Ok(Limit(None));
    }
    time::parse(text).map(|duration| Limit(Some(duration).filter(|d| !d.is_zero())))
}

/// Makes the repeat of a command explicit.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Repeat {
    /// Names this operation: repeating it under the same id changes nothing and answers alike
    #[arg(long, value_name = "ID", value_parser = op_id)]
    pub op_id: Option<String>,
}

fn op_id(text: &str) -> Result<String, String> {
    let fits = (1..=OP_ID_MAX).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if fits { Ok(text.to_owned()) } else { Err(format!("1 to {OP_ID_MAX} printable ASCII characters")) }
}

/// A pair like `K=V`.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it like KEY=VALUE")?;
    if key.is_empty() { Err("the key is empty".into()) } else { Ok((key.to_owned(), value.to_owned())) }
}

/// The kind of a message.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn kind(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let fits = (1..=KIND_MAX).contains(&text.len()) && text.bytes().all(allowed);
    if fits && !text.starts_with(['_', '-']) {
        Ok(text.to_owned())
    } else {
        Err(format!("1 to {KIND_MAX} of a-z, 0-9, '_' and '-', the first a letter or digit"))
    }
}

/// The verbs. Only the one that is asked for defines its arguments: to define them all takes longer
/// than a round trip to `poold`.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    Up(verb::up::Args),
    Down(verb::down::Args),
    Status(verb::status::Args),
    Inbox(verb::inbox::Args),
    Sync(verb::sync::Args),
    New(verb::new::Args),
    #[command(aliases = ["ps", "list"])]
    Ls(verb::ls::Args),
    #[command(aliases = ["inspect", "info"])]
    Show(verb::show::Args),
    #[command(aliases = ["switch"])]
    Attach(verb::attach::Args),
    Approve(verb::approve::Args),
    Send(verb::send::Args),
    Keys(verb::keys::Args),
    Capture(verb::capture::Args),
    #[command(aliases = ["tail"])]
    Logs(verb::logs::Args),
    Wait(verb::wait::Args),
    Run(verb::run::Args),
    #[command(aliases = ["stop"])]
    Kill(verb::kill::Args),
    #[command(aliases = ["remove", "delete"])]
    Rm(verb::rm::Args),
    Rename(verb::rename::Args),
    Label(verb::label::Args),
    Update(verb::update::Args),
    Restart(verb::restart::Args),
    Park(verb::park::Args),
    Restore(verb::restore::Args),
    Drain(verb::drain::Args),
    Pin(verb::pin::Args),
    Unpin(verb::pin::UnpinArgs),
    Clear(verb::clear::Args),
    Prune(verb::prune::Args),
    Stats(verb::stats::Args),
    #[command(subcommand)]
    Queue(verb::queue::Command),
    Work(verb::work::Args),
    Lock(verb::lock::Args),
    Generators(verb::generators::Args),
    #[command(subcommand)]
    Thought(verb::thought::Command),
    Adopt(verb::adopt::Args),
    Events(verb::events::Args),
    #[command(subcommand)]
    Hook(verb::hook::Command),
    Watch(verb::watch::Args),
    Feed(verb::feed::Args),
    Reap(verb::reap::Args),
    Rpc(verb::rpc::Args),
    Export(verb::export::Args),
    Import(verb::import::Args),
    Backup(verb::backup::Args),
    Check(verb::check::Args),
    Compact(verb::compact::Args),
    #[command(subcommand)]
    Config(verb::config::Command),
    Completions(verb::completions::Args),
    Become(verb::become_program::Args),
}

/// Understands a command line.
///
/// # Errors
/// What to tell instead: help that was asked for, or what is wrong.
pub(crate) fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    // Help shows what only the definition of each verb knows.
    Cli::try_parse_from(args).or_else(|_| Cli::from_arg_matches(&whole().try_get_matches_from(args)?))
}

/// The definition with that of every verb.
pub(crate) fn whole() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// Shows why a command line was not understood, or the help that it asked for. The exit code.
pub(crate) fn refuse(error: &clap::Error, args: &[OsString]) -> u8 {
    let exit = u8::try_from(error.exit_code()).unwrap_or(2);
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    if json && !asked {
        let message = error.render().to_string();
        let message = message.trim().trim_start_matches("error: ");
        let message =
            tip(error, args).map_or_else(|| message.to_owned(), |tip| format!("{message}\n\n{tip}"));
        let document = json!({"error": {"code": "usage", "message": message, "exit": exit}});
        out::note(&document.to_string());
    } else {
        // Output that cannot be written leaves nobody to tell.
        drop(error.print());
        if let Some(tip) = tip(error, args) {
            out::note(tip);
        }
    }
    exit
}

/// A hint for a command line that lacks `--` before its command.
fn tip(error: &clap::Error, args: &[OsString]) -> Option<&'static str> {
    let verb = args.iter().skip(1).find(|arg| !arg.as_encoded_bytes().starts_with(b"-"))?;
    let takes_command = ["new", "run", "work", "lock"].iter().any(|of| verb == of);
    let without = takes_command && !args.iter().any(|arg| arg == "--");
    (without && error.kind() == ErrorKind::UnknownArgument)
        .then_some("What is to run comes after `--`: poolctl new web -- npm run dev")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        super::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// As the contract has them.
    const LINES: &[&str] = &[
        "poolctl up --foreground",
        "poolctl down --stop-sessions",
        "poolctl --pool p status --json",
        "poolctl sync --timeout 30s",
        "poolctl new web --agent shell --workspace w --cwd . --env K=V --env K --env-file f --label a=b --reuse",
        "poolctl new --size 80x24 --op-id x --prompt hi -- sh -c --json",
        "poolctl ls --all --state live --label a=b --agent claude",
        "poolctl show -",
        "poolctl attach web --read-only",
        "poolctl attach web --window",
        "poolctl send web hello world --key k --wait done --ttl 5m",
        "poolctl send web -",
        "poolctl send web --file f",
        "poolctl keys web C-c Enter",
        "poolctl capture web --lines 5 --ansi",
        "poolctl capture web --all",
        "poolctl logs web -f --lines 5 --raw",
        "poolctl wait web --for exit",
        "poolctl wait web --for queue-empty --timeout 5",
        "poolctl wait web --for message:12",
        "poolctl wait web --for idle,attention,error --for exit --any",
        "poolctl wait web --for busy,output:a{1,2}$",
        "poolctl send web /clear --raw --result",
        "poolctl thought set web --state active --tokens 5 --context-limit 9 --objective fp Reading it",
        "poolctl thought set %3 --commit-candidate --stream s --seq 3 -",
        "poolctl thought get -",
        "poolctl run --rm --no-stream --env A=1 -- true",
        "poolctl kill web --grace 200ms",
        "poolctl rm web --keep-tmux --force",
        "poolctl rm --all --stopped",
        "poolctl rename web www",
        "poolctl label web a=b --remove c",
        "poolctl restart web",
        "poolctl restart web --fresh --wait-slot 1m --grace 1s",
        "poolctl new --limit mem=2G,cpu=150% --limit cpus=0-3,5 --limits best-effort --max-runtime 2h",
        "poolctl new --restart on-failure --max-restarts 3 --idle-timeout never --ttl 30d --pin --wait-slot 0",
        "poolctl new --ephemeral --idle-timeout 5m",
        "poolctl run --limit nofile=4096 --restart always --prompt hi -- true",
        "poolctl send web hi --wake",
        "poolctl wait web --for started",
        "poolctl park web www --force --grace 1s",
        "poolctl restore web www --wait-slot 5m",
        "poolctl restore --all --wait-slot 0",
        "poolctl drain web --wait",
        "poolctl pin web www",
        "poolctl unpin web --op-id x",
        "poolctl clear web",
        "poolctl prune",
        "poolctl prune --older 7d --archive --purge --dry-run",
        "poolctl rm web --archive",
        "poolctl stats",
        "poolctl stats web --json",
        "poolctl queue ls web",
        "poolctl queue ls web --state queued --state in_doubt --kind a --limit 5",
        "poolctl queue show web 3",
        "poolctl queue show web 3 4 --body",
        "poolctl queue cancel web 3 4",
        "poolctl queue cancel web --all --kind a --kind b",
        "poolctl queue retry web 3 --op-id x",
        "poolctl queue retry web --dead",
        "poolctl queue dead web --kind a",
        "poolctl queue purge web",
        "poolctl queue purge web 3 --state done --older-than 24h",
        "poolctl queue resolve web 3 --as retry",
        "poolctl send web hi --kind summarize --priority -100 --wait accepted",
        "poolctl work web -- handler --json",
        "poolctl work web --kind a --kind b --concurrency 4 --heartbeat 5s --lease 30s --result -- h",
        "poolctl work web --once -- h",
        "poolctl work web --until-empty -- h",
        "poolctl generators",
        "poolctl generators web",
        "poolctl export",
        "poolctl export file",
        "poolctl import -",
        "poolctl backup file",
        "poolctl check --offline",
        "poolctl compact",
        "poolctl compact --offline",
        "poolctl events --since 3 --follow --session web --kind session_live",
        "poolctl reap",
        "poolctl reap --dry-run",
        "poolctl reap --force --op-id x",
        "poolctl reap --explain -",
        "poolctl lock web -- cmd --json",
        "poolctl lock - --wait 0 --lease 30s --force -- cmd",
        "poolctl update web --reap hung=restart --reap idle-session=default",
        "poolctl update web --restart no --max-restarts 3 --idle-timeout never --ttl 30d --max-runtime 2h",
        "poolctl new --reap hung=park --reap orphans=report",
        "poolctl run --reap memory=kill -- true",
        "poolctl watch",
        "poolctl watch --print",
        "poolctl feed",
        "poolctl feed --take-over",
        "poolctl approve web",
        "poolctl approve web --answer Blue --answer 2",
        "poolctl approve - --deny --reason because --ask 3 --op-id x",
        "poolctl hook claude --wait 60s",
        "poolctl hook codex --installed {}",
        "poolctl hook gemini",
        "poolctl hook generic",
        "poolctl hook install claude --project --dry-run",
        "poolctl hook install codex --user --uninstall",
        "poolctl adopt %7",
        "poolctl adopt $3 --workspace w --op-id x",
        "poolctl rpc",
        "poolctl config show",
        "poolctl config path",
        "poolctl config check",
        "poolctl config reload",
        "poolctl completions bash",
    ];

    #[test]
    fn every_line_of_the_contract_is_understood() {
        for line in LINES {
            if let Err(error) = parse(line) {
                panic!("{line}: {error}");
            }
        }
    }

    const NONSENSE: &[&str] = &[
        "poolctl",
        "poolctl nonsense",
        "poolctl new --size 0x5",
        "poolctl new --size 5",
        "poolctl new --label a",
        "poolctl ls --state asleep",
        "poolctl capture web --lines 5 --all",
        "poolctl wait web --for sunrise",
        "poolctl new --limit mem",
        "poolctl new --limit mem=lots",
        "poolctl new --limits strict",
        "poolctl new --max-runtime 0",
        "poolctl new --restart sometimes",
        "poolctl new --idle-timeout 0",
        "poolctl new --ephemeral --restart always",
        "poolctl new --ephemeral --ttl 1h",
        "poolctl run --rm --restart always -- true",
        "poolctl park",
        "poolctl restore",
        "poolctl restore web --all",
        "poolctl drain",
        "poolctl pin",
        "poolctl clear",
        "poolctl prune web",
        "poolctl rm",
        "poolctl rm web --all",
        "poolctl run",
        "poolctl reap --dry-run --force",
        "poolctl reap --explain",
        "poolctl reap --explain web --dry-run",
        "poolctl lock web",
        "poolctl lock web cmd",
        "poolctl lock web --lease 0 -- cmd",
        "poolctl lock -- cmd",
        "poolctl update",
        "poolctl update web --reap hung",
        "poolctl update web --reap orphans=restart",
        "poolctl new --reap hung=default",
        "poolctl new --reap hang=kill",
        "poolctl approve",
        "poolctl approve web --reason because",
        "poolctl approve web --deny --answer Blue",
        "poolctl hook",
        "poolctl hook clod",
        "poolctl hook install",
        "poolctl hook install aider",
        "poolctl hook install claude --user --project",
        "poolctl adopt",
        "poolctl adopt a b",
        "poolctl feed file",
        "poolctl keys web",
        "poolctl queue resolve web 3",
        "poolctl queue ls web --state asleep",
        "poolctl queue show web",
        "poolctl queue cancel web 3 --kind a",
        "poolctl queue purge web --state queued",
        "poolctl send web hi --kind Prompt",
        "poolctl send web hi --priority 101",
        "poolctl work web",
        "poolctl work web handler",
        "poolctl work web --concurrency 0 -- h",
        "poolctl work web --kind a/b -- h",
        "poolctl import",
        "poolctl backup",
        "poolctl status --timeout soon",
        "poolctl send web hi --file f",
    ];

    #[test]
    fn what_makes_no_sense_is_a_usage_error() {
        for line in NONSENSE {
            match parse(line) {
                Ok(cli) => panic!("{line}: {cli:?}"),
                Err(error) => assert_eq!(error.exit_code(), 2, "{line}"),
            }
        }
    }

    #[test]
    fn help_is_no_failure_and_hides_what_is_not_for_people() {
        let help = parse("poolctl --help").unwrap_err();
        assert_eq!(help.exit_code(), 0);
        let help = help.to_string();
        assert!(help.contains("exit 0 only when healthy") && !help.contains("become"), "{help}");
    }

    #[test]
    fn no_limit_has_two_spellings() {
        assert_eq!(limit("0"), Ok(Limit(None)));
        assert_eq!(limit("off"), Ok(Limit(None)));
        assert_eq!(limit("1m"), Ok(Limit(Some(Duration::from_secs(60)))));
    }

    #[test]
    fn operation_ids_have_a_rule() {
        assert!(op_id(&"x".repeat(64)).is_ok() && op_id("a b").is_ok());
        assert!(op_id("").is_err() && op_id(&"x".repeat(65)).is_err() && op_id("é").is_err());
    }
}
