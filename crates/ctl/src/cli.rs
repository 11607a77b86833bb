//! The command line: the table of verbs, its parsing and the dispatch. A verb's arguments are in the verb's
//! file, those that several verbs take in [`crate::args`].

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::json;

use crate::args::Global;
use crate::exit::IntoCode;
use crate::show::{escape, out};
use crate::verb::*;
use crate::{Context, Error, exit, manual};

/// A crash-safe pool of tmux-hosted agent sessions.
#[derive(Debug, Parser)]
#[command(name = "poolctl", bin_name = "poolctl", version, max_term_width = 100, after_help = after())]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "A SESSION is an id (sess_12), a name or a workspace, or - for the one this shell runs in.\n\
    Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 refused, 6 timeout, 7 unavailable,\n\
    8 protocol, 9 storage; `run` and `wait --for exit` end with the session's own, and 125 for poolctl's.";

fn after() -> String {
    format!("{}\n\n{AFTER}", manual::listing())
}

/// Declares [`Command`] and its dispatch from one table: a line per verb, with its name, the type of its
/// arguments and the function that runs it.
macro_rules! verbs {
    ($($(#[$attribute:meta])* $name:ident($args:ty) => $run:expr,)+) => {
        /// The verbs. clap defines the arguments of the chosen verb only: defining all of them takes longer
        /// than a round trip to `poold`.
        #[derive(Debug, Subcommand)]
        #[command(defer = true)]
        pub(crate) enum Command {
            $($(#[$attribute])* $name($args),)+
        }

        /// Runs a verb and returns the code to exit with.
        pub(crate) fn run(context: &Context, command: Command) -> Result<u8, Error> {
            match command {
                $(Command::$name(args) => $run(context, args).map(IntoCode::into_code),)+
            }
        }
    };
}

verbs! {
    Up(up::Args) => up::run,
    Down(down::Args) => down::run,
    Status(status::Args) => status::run,
    Inbox(inbox::Args) => inbox::run,
    Sync(sync::Args) => sync::run,
    New(new::Args) => new::run,
    #[command(aliases = ["ps", "list"])]
    Ls(ls::Args) => ls::run,
    #[command(aliases = ["inspect", "info"])]
    Show(show::Args) => show::run,
    #[command(aliases = ["switch"])]
    Attach(attach::Args) => attach::run,
    Approve(approve::Args) => approve::run,
    Dismiss(dismiss::Args) => dismiss::run,
    Send(send::Args) => send::run,
    Keys(keys::Args) => keys::run,
    Capture(capture::Args) => capture::run,
    #[command(aliases = ["tail"])]
    Logs(logs::Args) => logs::run,
    Wait(wait::Args) => wait::run,
    Run(run::Args) => run::run,
    #[command(aliases = ["stop"])]
    Kill(kill::Args) => kill::run,
    #[command(aliases = ["remove", "delete"])]
    Rm(rm::Args) => rm::run,
    Rename(rename::Args) => rename::run,
    Label(label::Args) => label::run,
    Update(update::Args) => update::run,
    Restart(restart::Args) => restart::run,
    Park(park::Args) => park::run,
    #[command(aliases = ["start"])]
    Restore(restore::Args) => restore::run,
    Drain(drain::Args) => drain::run,
    Pin(pin::Args) => pin::run,
    Unpin(unpin::Args) => unpin::run,
    Clear(clear::Args) => clear::run,
    Reset(reset::Args) => reset::run,
    Prune(prune::Args) => prune::run,
    Stats(stats::Args) => stats::run,
    #[command(subcommand)]
    Queue(queue::QueueCommand) => queue::run,
    Work(work::Args) => work::run,
    #[command(subcommand)]
    Worker(worker::WorkerCommand) => |context, command| worker::run(context, command, logs::print),
    Lock(lock::Args) => lock::run,
    Generators(generators::Args) => generators::run,
    #[command(subcommand)]
    Thought(thought::ThoughtCommand) => thought::run,
    Adopt(adopt::Args) => adopt::run,
    Events(events::Args) => events::run,
    #[command(subcommand)]
    Hook(hook::HookCommand) => hook::run,
    Watch(watch::Args) => watch::run,
    Feed(feed::Args) => feed::run,
    Reap(reap::Args) => reap::run,
    Rpc(rpc::Args) => rpc::run,
    Export(export::Args) => export::run,
    Import(import::Args) => import::run,
    Backup(backup::Args) => backup::run,
    Check(check::Args) => check::run,
    Compact(compact::Args) => compact::run,
    #[command(subcommand)]
    Config(config::ConfigCommand) => config::run,
    Completions(completions::Args) => |_, args| completions::run(&args),
    Man(man::Args) => |context, args| man::run(context, &args, &whole()),
    Become(become_program::Args) => become_program::run,
}

/// True if a command ends with the exit code of the session's program.
pub(crate) fn ends_as_session(command: &Command) -> bool {
    match command {
        Command::Run(_) => true,
        Command::Wait(args) => args.is_for_exit(),
        _ => false,
    }
}

/// Parses a command line.
///
/// # Errors
/// The requested help, or what is wrong with the command line.
pub(crate) fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    // Help needs the definitions of all verbs.
    Cli::try_parse_from(args)
        .or_else(|_| Cli::from_arg_matches(&whole().try_get_matches_from(args)?))
        .or_else(|error| topic(args, &error).ok_or(error))
}

/// Parses `help TOPIC`, where there is no verb of that name, as the verb that shows a topic.
fn topic(args: &[OsString], error: &clap::Error) -> Option<Cli> {
    let [before @ .., help, topic] = args else { return None };
    let asked = error.kind() == ErrorKind::InvalidSubcommand && help == "help";
    let verb = [OsString::from("man"), topic.clone()];
    asked.then(|| Cli::try_parse_from([before, &verb].concat()).ok()).flatten()
}

/// The definition of the command line with the arguments of every verb.
pub(crate) fn whole() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// Prints the error of a command line that does not parse, or the help that it asks for, and returns the exit
/// code.
pub(crate) fn refuse(error: &clap::Error, args: &[OsString]) -> u8 {
    let exit = match u8::try_from(error.exit_code()).unwrap_or(2) {
        2 if line_ends_as_session(args) => exit::OWN_FAILURE,
        exit => exit,
    };
    let escaped = escaped(args);
    let error = escaped.as_ref().unwrap_or(error);
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    if json && !is_help {
        let message = error.render().to_string();
        let message = message.trim().trim_start_matches("error: ");
        let message =
            tip(error, args).map_or_else(|| message.to_owned(), |tip| format!("{message}\n\n{tip}"));
        let document = json!({"error": {"code": "usage", "message": message, "exit": exit}});
        out::note(&escape::json(&document.to_string()));
    } else {
        if escaped.is_none() && !is_help && has_control_characters(args) {
            // The line is a mistake only with those characters.
            out::note(escape::lines(&error.render().to_string()).trim_end());
        } else {
            // An error that cannot be printed cannot be reported either.
            drop(error.print());
        }
        if let Some(tip) = tip(error, args) {
            out::note(&tip);
        }
    }
    exit
}

fn has_control_characters(args: &[OsString]) -> bool {
    args.iter().any(|arg| escape::line(&arg.to_string_lossy()) != arg.to_string_lossy())
}

/// Returns the error of a line with the control characters in its arguments escaped, if there are any and it still is
/// a mistake: an error repeats arguments, which could command the terminal.
fn escaped(args: &[OsString]) -> Option<clap::Error> {
    let escaped = args.iter().map(|arg| OsString::from(escape::line(&arg.to_string_lossy())));
    let escaped: Vec<OsString> = escaped.collect();
    if escaped == args { None } else { parse(&escaped).err() }
}

/// True for a line that does not parse, if its verb ends with the exit code of a session's program: the code for the
/// mistake in the line must not look like the program's.
fn line_ends_as_session(args: &[OsString]) -> bool {
    let words: Vec<&str> =
        args.iter().skip(1).map_while(|arg| arg.to_str()).take_while(|arg| *arg != "--").collect();
    let is_verb = |word: &str| whole().find_subcommand(word).is_some();
    match words.iter().find(|word| is_verb(word)) {
        Some(&"run") => true,
        Some(&"wait") => conditions(&words).any(|word| word == "exit"),
        _ => false,
    }
}

/// Returns what a line waits for.
fn conditions<'a>(words: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let apart = words.windows(2).filter(|pair| pair[0] == "--for").map(|pair| pair[1]);
    let joined = words.iter().filter_map(|word| word.strip_prefix("--for="));
    apart.chain(joined).flat_map(|list| list.split(','))
}

/// Returns a hint for a command line that lacks `--` before its command, or `help` before a topic.
fn tip(error: &clap::Error, args: &[OsString]) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        return manual::find(word).map(|topic| format!("`poolctl help {}` shows the page", topic.name));
    }
    let definition = whole();
    let verb = args.iter().skip(1).find_map(|arg| definition.find_subcommand(arg))?;
    let takes_command = verb.get_arguments().any(clap::Arg::is_last_set);
    let lacks_dashes = takes_command && !args.iter().any(|arg| arg == "--");
    (lacks_dashes && error.kind() == ErrorKind::UnknownArgument).then(|| {
        format!("put `--` before the command to run: poolctl {} ... -- npm run dev", verb.get_name())
    })
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

    /// The command lines of the contract.
    const LINES: &[&str] = &[
        "poolctl up --foreground",
        "poolctl down --stop-sessions",
        "poolctl --pool p status --json",
        "poolctl sync --timeout 30s",
        "poolctl new web --agent shell --workspace w --cwd . --env K=V --env K --env-file f --label a=b --reuse",
        "poolctl new --size 80x24 --op-id x --prompt hi -- sh -c --json",
        "poolctl ls --all --state live --label a=b --agent claude",
        "poolctl show -",
        "poolctl show web --plan",
        "poolctl ls --full --all",
        "poolctl dismiss web www",
        "poolctl dismiss - --op-id x",
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
        "poolctl kill --all --label team=core --label stage=test --agent claude",
        "poolctl restart web www",
        "poolctl label web www a=b",
        "poolctl label --all --agent claude a=b",
        "poolctl update --label team=core --ttl 30d",
        "poolctl restore --label team=core",
        "poolctl rm --label team=core --stopped",
        "poolctl rm --all",
        "poolctl drain web --wait --deadline 5m",
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
        "poolctl start web www",
        "poolctl drain web --wait",
        "poolctl pin web www",
        "poolctl unpin web --op-id x",
        "poolctl clear web",
        "poolctl reset web www --soft",
        "poolctl reset web --grace 1s --wait-slot 1m --no-block --op-id x",
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
        "poolctl work web api --idle-end 3m --handler-timeout 1h -- h",
        "poolctl work --label a=b --agent claude -- h",
        "poolctl work --all -- h",
        "poolctl worker ls",
        "poolctl worker start index",
        "poolctl worker stop index --grace 1s",
        "poolctl worker logs index -f -n 5",
        "poolctl worker rm index --force",
        "poolctl worker add index --kind a --kind b --session web --session api -- h --json",
        "poolctl worker add index --own-queue --concurrency 4 --session-concurrency 2 --idle-end 1m --lease 9s -- h",
        "poolctl worker add index --all --fallback b --fallback-after 2 --handler-timeout 1h --max-restarts 3 --result -- h",
        "poolctl worker add index --label a=b --agent x --cwd . --env A=1 --clean-env --limit mem=1G -- h",
        "poolctl generators",
        "poolctl generators web",
        "poolctl export",
        "poolctl export file",
        "poolctl import -",
        "poolctl backup file",
        "poolctl check --offline",
        "poolctl check --discard",
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
        "poolctl kill web --label a=b",
        "poolctl park --label a",
        "poolctl restart web --agent claude",
        "poolctl rm web --stopped",
        "poolctl rm --stopped",
        "poolctl drain",
        "poolctl pin",
        "poolctl clear",
        "poolctl reset",
        "poolctl reset web --soft --grace 1s",
        "poolctl reset web --soft --no-block",
        "poolctl prune web",
        "poolctl rm",
        "poolctl rm web --all",
        "poolctl run",
        "poolctl events --kind session_life",
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
        "poolctl work -- h",
        "poolctl work web --all -- h",
        "poolctl worker add index --all",
        "poolctl worker add index -- h",
        "poolctl worker start",
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
}
