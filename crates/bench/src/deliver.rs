//! A prompt's way to an agent and back: from the request until the agent has it and is done, beside the same keys typed by
//! hand; what a hook costs the agent, and how soon a subscriber knows what it told; what a program writes, until a
//! subscriber has it; and how others deliver.

mod agents;
mod hooks;
mod live;
mod peers;
mod prompt;
mod reader;
mod table;

use anyhow::{Result, bail, ensure};
use protocol::request::New;
use protocol::{Lifecycle, Request, Response, Session};

use crate::floors::Client;
use crate::options::Options;
use crate::pool::Pool;
use crate::{print, report};
use agents::Agents;
use reader::Reader;

/// As many files may be open here and in what is started here.
const OPEN_FILES: u64 = 65_536;
/// Sessions that the measurements themselves need.
const OURS: usize = 8;

/// All that was measured.
struct Measured {
    runs: usize,
    prompts: Vec<prompt::Row>,
    /// Why there are no real agents.
    missing: Option<String>,
    hooks: hooks::Hooks,
    live: live::Live,
    peers: peers::Peers,
}

/// Runs the suite with so many sessions besides, and prints its tables.
///
/// # Errors
/// The pool does not start or stop, or something cannot be measured.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    process::limits::raise_open_files(OPEN_FILES)?;
    let agents = Agents::find(&options.agents)?;
    let config = agents.config(&options.bin_dir);
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), OURS + sessions, &config)?;
    pool.while_up(|pool| print(&table::text(&measure(pool, &agents, (options, sessions))?)))
}

/// Wakes agents, and prints how soon they have their first prompt.
///
/// # Errors
/// As [`run`]; or there are no real agents.
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
        start(&mut client, new).map(|session| session.id)
    });
    let others = others.collect::<Result<Vec<_>>>()?;
    let live = live::measure(pool, &others, options.idle)?;
    let hooks = hooks::measure(pool)?;
    let prompts = prompt::measure(pool, agents, options.runs)?;
    let peers = peers::measure(pool, agents, &reader, options.runs)?;
    Ok(Measured { runs: options.runs, prompts, missing: agents.missing.clone(), hooks, live, peers })
}

/// Starts a session.
///
/// # Errors
/// It does not run.
fn start(client: &mut Client, new: New) -> Result<Session> {
    let Response::Session(view) = client.call(Request::New(Box::new(new)))? else {
        bail!("poold answers something else than a session");
    };
    let session = view.session;
    ensure!(session.lifecycle == Lifecycle::Live, "{} is {:?}", session.name, session.lifecycle);
    Ok(session)
}
