//! `worker add`: a worker that lasts, without an entry in the configuration.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgGroup;
use protocol::request::AddWorker;
use protocol::worker::{Selection, WorkerQueue, WorkerSpec};
use protocol::{Limits, OsBytes, Request};

use super::list;
use crate::args::{kind, labels, pair};
use crate::context::absolute;
use crate::create::{current_dir, of_caller, of_flags};
use crate::show::time;
use crate::{Context, Error, Repeat, expect_session};

/// The options that say which messages it gets.
const WHICH: [&str; 5] = ["session", "label", "agent", "all", "pool_queue"];

/// Add a worker: the pool starts it when messages for it come, and ends it when none do
///
/// The handler is run as by `poolctl work`, in this directory and with this environment. The worker lasts until
/// it is removed.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group(ArgGroup::new("which").required(true).multiple(true).args(WHICH)))]
pub(crate) struct Args {
    /// Its name, of a-z 0-9 _ -, 32 characters at most
    name: String,
    /// Only messages of this kind; may be repeated [default: all but prompt]
    #[arg(long, value_parser = kind)]
    kind: Vec<String>,
    /// The messages of this session; may be repeated
    #[arg(long, value_name = "SESSION")]
    session: Vec<String>,
    /// The messages of all sessions with this label; of several, with all of them
    #[arg(long, value_name = "K=V", value_parser = pair, conflicts_with = "session")]
    label: Vec<(String, String)>,
    /// The messages of all sessions with this kind of agent
    #[arg(long, value_name = "KIND", conflicts_with = "session")]
    agent: Option<String>,
    /// The messages of all sessions
    #[arg(long, conflicts_with_all = ["session", "label", "agent"])]
    all: bool,
    /// The messages of a queue of its own: `poolctl send @NAME`
    #[arg(long = "own-queue", id = "pool_queue", conflicts_with_all = ["session", "label", "agent", "all"])]
    own_queue: bool,
    /// Handlers at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: u32,
    /// Handlers at a time for one session
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    session_concurrency: u32,
    /// End its host after this long without a message
    #[arg(long, value_name = "DUR", default_value = "3m", value_parser = time::parse_positive_duration)]
    idle_end: Duration,
    /// Lease of its claims, from 1s to 24h [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_positive_duration)]
    lease: Option<Duration>,
    /// End a handler that runs for longer than this, and fail its attempt
    #[arg(long, value_name = "DUR", value_parser = time::parse_positive_duration)]
    handler_timeout: Option<Duration>,
    /// Store the first 64 KiB of a handler's output as the message's result, instead of logging it
    #[arg(long)]
    result: bool,
    /// Starts after a failure before it is given up, 1 to 128 [default: from the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    max_restarts: Option<u32>,
    /// Give its messages to this worker when they fail; may be repeated
    #[arg(long, value_name = "NAME")]
    fallback: Vec<String>,
    /// Attempts before that
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    fallback_after: u32,
    /// Resource limits of its host with all handlers: mem=2G cpu=150% tasks=200 …
    #[arg(long, value_name = "K=V,…")]
    limit: Vec<Limits>,
    /// The directory of its handlers [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Pass on only PATH, HOME, the language and the like of this environment
    #[arg(long)]
    clean_env: bool,
    /// Set a variable; a name alone passes the caller's value on
    #[arg(long, value_name = "K=V")]
    env: Vec<OsString>,
    #[command(flatten)]
    repeat: Repeat,
    /// The handler and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "HANDLER")]
    handler: Vec<OsString>,
}

pub(super) fn add(context: &Context, args: Args) -> Result<(), Error> {
    let repeat = args.repeat.clone();
    let request = request(context, args)?;
    let reply = context.client().change(&repeat, Request::AddWorker(Box::new(request)))?;
    list::print(context, &expect_session(reply)?)
}

fn request(context: &Context, args: Args) -> Result<AddWorker, Error> {
    let sessions = if args.own_queue {
        WorkerQueue::Own
    } else if args.session.is_empty() {
        let labels = labels(&args.label)?;
        WorkerQueue::Sessions(Selection::Matching { agent: args.agent, labels })
    } else {
        let named = args.session.iter().map(|session| context.session(session));
        WorkerQueue::Sessions(Selection::Named(named.collect::<Result<_, _>>()?))
    };
    let worker = WorkerSpec {
        name: args.name,
        command: args.handler.into_iter().map(OsBytes::from).collect(),
        kinds: args.kind,
        sessions,
        session_concurrency: args.session_concurrency,
        concurrency: args.concurrency,
        idle_end_ms: time::millis(args.idle_end),
        lease_ms: args.lease.map(time::millis),
        timeout_ms: args.handler_timeout.map(time::millis),
        result: args.result,
        fallback: args.fallback,
        fallback_after: args.fallback_after,
        configured: false,
        removed: false,
    };
    let cwd = match args.cwd {
        Some(cwd) => absolute(&cwd)?.into(),
        None => current_dir()?,
    };
    Ok(AddWorker {
        worker,
        cwd,
        env: of_flags(context, &[], &args.env)?,
        caller_env: of_caller(args.clean_env),
        limits: args.limit.iter().fold(Limits::default(), |earlier, later| later.clone().or(&earlier)),
        max_restarts: args.max_restarts,
    })
}
