//! `queue`: inspects and administers a session's queue.

mod admin;
mod inspect;
mod messages;
mod selection;

use std::time::Duration;

use clap::ValueEnum;
use protocol::request::Resolution;
use protocol::{MessageId, MessageState, Request};

use crate::args::kind;
use crate::show::time;
use crate::{Context, Error, Repeat};
use admin::Many;
use selection::{FINAL, STATES, Selection, state};

/// Inspect and administer a queue
#[derive(Debug, clap::Subcommand)]
pub(crate) enum QueueCommand {
    /// List the messages that wait or are in flight, and the newest final ones, by number
    Ls {
        /// The session
        session: String,
        /// Only those in this state; may be repeated
        #[arg(long = "state", value_name = "STATE", value_parser = state(&STATES))]
        states: Vec<MessageState>,
        /// Only those of this kind; may be repeated
        #[arg(long = "kind", value_name = "KIND", value_parser = kind)]
        kinds: Vec<String>,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u32,
    },
    /// Show messages and their history
    Show {
        /// The session
        session: String,
        /// The messages
        #[arg(required = true, value_name = "ID")]
        ids: Vec<MessageId>,
        /// The body too; if standard output is no terminal, its bytes and nothing else
        #[arg(long)]
        body: bool,
    },
    /// Cancel messages that wait, are in doubt or in flight
    Cancel {
        /// The session
        session: String,
        #[command(flatten)]
        which: Selection,
        /// All that wait
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        repeat: Repeat,
    },
    /// Queue messages again that are dead, cancelled, expired or in doubt; try one that waits at once
    Retry {
        /// The session
        session: String,
        #[command(flatten)]
        which: Selection,
        /// All that are dead
        #[arg(long)]
        dead: bool,
        #[command(flatten)]
        repeat: Repeat,
    },
    /// Resolve messages in doubt: it is not known whether they were typed
    Resolve {
        /// The session
        session: String,
        /// The messages
        #[arg(required = true, value_name = "ID")]
        ids: Vec<MessageId>,
        /// Their new state
        #[arg(long = "as", value_enum, value_name = "WHAT")]
        resolution: ResolveAs,
        #[command(flatten)]
        repeat: Repeat,
    },
    /// List dead messages, with the number of attempts and the reason
    Dead {
        /// The session
        session: String,
        /// Only those of this kind; may be repeated
        #[arg(long = "kind", value_name = "KIND", value_parser = kind)]
        kinds: Vec<String>,
    },
    /// Delete final messages, by default the dead ones, and print how many
    Purge {
        /// The session
        session: String,
        /// These, in whatever final state
        #[arg(value_name = "ID")]
        ids: Vec<MessageId>,
        /// Only those in this final state; may be repeated
        #[arg(long = "state", value_name = "STATE", value_parser = state(&FINAL))]
        states: Vec<MessageState>,
        /// Only those that have been final for at least this long
        #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
        older_than: Option<Duration>,
        #[command(flatten)]
        repeat: Repeat,
    },
}

/// The resolution of a message in doubt.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ResolveAs {
    /// It was typed.
    Done,
    /// It was not typed; type it.
    Retry,
    /// Give it up.
    Dead,
}

impl From<ResolveAs> for Resolution {
    fn from(word: ResolveAs) -> Self {
        match word {
            ResolveAs::Done => Self::Done,
            ResolveAs::Retry => Self::Retry,
            ResolveAs::Dead => Self::Dead,
        }
    }
}

/// Runs one of its commands.
pub(crate) fn run(context: &Context, command: QueueCommand) -> Result<(), Error> {
    use MessageState::{Dead, Queued};
    match command {
        QueueCommand::Ls { session, states, kinds, limit } => {
            inspect::list(context, &session, (kinds, states, limit))?;
        }
        QueueCommand::Dead { session, kinds } => inspect::dead(context, &session, kinds)?,
        QueueCommand::Show { session, ids, body } => inspect::show(context, &session, &ids, body)?,
        QueueCommand::Cancel { session, which, all, repeat } => {
            let many = Many { asked: all, state: Queued, flag: "--all" };
            admin::each(context, &session, (which, many, &repeat), Request::Cancel)?;
        }
        QueueCommand::Retry { session, which, dead, repeat } => {
            let many = Many { asked: dead, state: Dead, flag: "--dead" };
            admin::each(context, &session, (which, many, &repeat), Request::Retry)?;
        }
        QueueCommand::Resolve { session, ids, resolution, repeat } => {
            admin::resolve(context, &session, ids, (resolution.into(), &repeat))?;
        }
        QueueCommand::Purge { session, ids, states, older_than, repeat } => {
            admin::purge(context, &session, (ids, states, older_than), &repeat)?;
        }
    }
    Ok(())
}
