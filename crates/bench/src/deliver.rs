//! Latency of a prompt to an agent: from the request until the agent has it and is done, beside the same
//! keys typed by hand; cost of a hook to the agent, and delay of its report to a subscriber; delay of a
//! program's output to a subscriber; and other tools that deliver prompts.

mod agents;
mod hooks;
mod live;
mod peers;
mod prompt;
mod reader;
mod table;

use anyhow::{Result, bail};
use protocol::request::New;

use crate::floors::Client;
use crate::options::Options;
use crate::pool::{OPEN_FILES, Pool};
use crate::{print, report};
use agents::Agents;
use reader::Reader;

/// Number of sessions that the measurements need.
const OURS: usize = 8;

/// All results.
struct Measured {
    runs: usize,
    prompts: Vec<prompt::Row>,
    /// Reason for missing real agents.
    missing: Option<String>,
    hooks: hooks::Hooks,
    live: live::Live,
    peers: peers::Peers,
}

/// Runs the suite beside this many other sessions, and prints its tables.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    process::runtime::rlimit::raise_open_files(OPEN_FILES)?;
    let agents = Agents::find(&options.agents)?;
    let config = agents.config(&options.bin_dir);
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), OURS + sessions, &config)?;
    pool.while_up(|pool| print(&table::text(&measure(pool, &agents, (options, sessions))?)))
}

/// Wakes agents, and prints the time until they have their first prompt.
pub(crate) fn wake(options: &Options, _sessions: usize) -> Result<()> {
    let agents = Agents::find(&options.agents)?;
    if let Some(why) = &agents.missing {
        bail!("{why}");
    }
    let config = agents.config(&options.bin_dir);
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), OURS, &config)?;
    pool.while_up(|pool| print(&table::wakes(&prompt::wake::measure(pool, &agents, options.runs)?)))
}

fn measure(pool: &Pool, agents: &Agents, (options, sessions): (&Options, usize)) -> Result<Measured> {
    let reader = Reader::open(&agents.fifo())?;
    report(&format!("creating {sessions} sessions"));
    let mut client = Client::connect(pool)?;
    let others = (0..sessions).map(|n| {
        let new = New { name: Some(format!("other-{n}")), command: vec!["cat".into()], ..New::default() };
        client.start(new).map(|session| session.id)
    });
    let others = others.collect::<Result<Vec<_>>>()?;
    let live = live::measure(pool, &others, options.idle)?;
    let hooks = hooks::measure(pool)?;
    let prompts = prompt::measure(pool, agents, options.runs)?;
    let peers = peers::measure(pool, agents, &reader, options.runs)?;
    Ok(Measured { runs: options.runs, prompts, missing: agents.missing.clone(), hooks, live, peers })
}
