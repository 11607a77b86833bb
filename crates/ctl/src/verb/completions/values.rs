//! Candidates for the values of the command line: the names that the pool knows, and files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use clap::{Arg, Command, FromArgMatches, ValueHint};
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use protocol::SessionView;
use protocol::request::List;

use crate::args::{Global, Limit};
use crate::show::session::state_line;
use crate::{Context, Error, calls};

/// Time limit for the pool's answer: a person waits for it in the midst of a line.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The conditions of `wait --for`.
const CONDITIONS: [&str; 10] =
    ["idle", "busy", "attention", "error", "started", "ready", "exit", "queue-empty", "message:", "output:"];

/// Adds what completes its value to each argument of a command, for the pool of a half-written line.
pub(super) fn add(command: Command, line: &[OsString]) -> Command {
    match context(command.clone(), line) {
        Ok(context) => add_to_command(command, &Arc::new(context)),
        Err(_) => command,
    }
}

/// The context of a line that does not parse yet: of its options, those that choose the pool count.
fn context(command: Command, line: &[OsString]) -> Result<Context, Error> {
    let words = command.ignore_errors(true).try_get_matches_from(line);
    let global = words.and_then(|words| Global::from_arg_matches(&words)).unwrap_or_default();
    Context::new(&Global { timeout: Some(Limit(Some(ANSWER_LIMIT))), quiet: true, ..global })
}

fn add_to_command(command: Command, context: &Arc<Context>) -> Command {
    let is_worker = command.get_name() == "worker";
    let command = command.mut_args(|arg| add_to_argument(arg, context));
    command.mut_subcommands(|verb| {
        let verb = add_to_command(verb, context);
        if is_worker { verb.mut_args(|arg| add_workers(arg, context)) } else { verb }
    })
}

fn add_to_argument(arg: Arg, context: &Arc<Context>) -> Arg {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match (arg.get_long(), value.as_deref().unwrap_or_default()) {
        (Some("for"), _) => arg.value_delimiter(',').add(ArgValueCandidates::new(conditions)),
        (_, "SESSION" | "SESSION|K=V") => arg.add(known(context, sessions)),
        (Some("agent"), _) => arg.add(known(context, agents)),
        (Some("label"), _) => arg.add(known(context, labels)),
        (_, "CMD" | "DIR" | "FILE" | "HANDLER" | "PATH") => arg.value_hint(ValueHint::AnyPath),
        _ => arg,
    }
}

fn add_workers(arg: Arg, context: &Arc<Context>) -> Arg {
    match arg.get_id().as_str() {
        "name" | "names" | "fallback" => arg.add(known(context, workers)),
        _ => arg,
    }
}

/// Returns candidates that the pool knows; none if it does not answer.
fn known(
    context: &Arc<Context>,
    find: fn(&Context) -> Result<Vec<CompletionCandidate>, Error>,
) -> ArgValueCandidates {
    let context = Arc::clone(context);
    ArgValueCandidates::new(move || {
        let mut candidates = find(&context).unwrap_or_default();
        candidates.retain(|candidate| candidate.get_value().as_encoded_bytes().iter().all(is_plain));
        candidates
    })
}

/// True for a character that means nothing to a shell: bash inserts what is offered as it is, and a label may contain
/// a command.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:/=@%+,".contains(byte)
}

fn conditions() -> Vec<CompletionCandidate> {
    CONDITIONS.map(CompletionCandidate::new).into()
}

/// Returns the sessions, those that run first.
fn sessions(context: &Context) -> Result<Vec<CompletionCandidate>, Error> {
    let candidate = |view: &SessionView| {
        CompletionCandidate::new(view.session.name.as_str())
            .help(Some(state_line(view).into()))
            .display_order(Some(usize::from(!view.session.lifecycle.holds_slot())))
    };
    Ok(list(context, false)?.iter().map(candidate).collect())
}

fn workers(context: &Context) -> Result<Vec<CompletionCandidate>, Error> {
    let workers = list(context, true)?.into_iter().filter_map(|view| view.session.worker);
    Ok(workers.map(|worker| CompletionCandidate::new(worker.name)).collect())
}

/// Returns the kinds of agents that are built in, and those of the sessions.
fn agents(context: &Context) -> Result<Vec<CompletionCandidate>, Error> {
    let built_in = Adapter::ALL.into_iter().filter(|adapter| *adapter != Adapter::None);
    let built_in = built_in.map(|adapter| adapter.as_str().to_owned());
    let used = list(context, false).unwrap_or_default().into_iter().map(|view| view.session.spec.agent);
    Ok(distinct(built_in.chain(used)))
}

fn labels(context: &Context) -> Result<Vec<CompletionCandidate>, Error> {
    let labels = list(context, false)?.into_iter().flat_map(|view| view.session.labels);
    Ok(distinct(labels.map(|(key, value)| format!("{key}={value}"))))
}

fn distinct(words: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    words.collect::<BTreeSet<_>>().into_iter().map(CompletionCandidate::new).collect()
}

fn list(context: &Context, workers: bool) -> Result<Vec<SessionView>, Error> {
    calls::sessions(&mut context.client(), List { all: true, workers, ..List::default() })
}
