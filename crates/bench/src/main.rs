//! The benchmarks. Each measures its floor and its peers in the same run, in turn with the subject, so that a
//! busy machine slows all of them alike and the ratios stay meaningful.

mod child;
mod cli;
mod create;
mod deliver;
mod floors;
mod interrupt;
mod options;
mod order;
mod pool;
mod queue;
mod reap;
mod remains;
mod stats;
mod subscriber;
mod usage;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use options::{Options, Suite};

const USAGE: &str = "\
usage: bench cli   [--bin-dir DIR] [--runs N] [--sessions N,…]
       bench watch [--bin-dir DIR] [--runs N] [--sessions N,…] [--idle SECONDS]
       bench queue [--million | --hostile] [--bin-dir DIR] [--dir DIR] [--runs N] [--seconds S] [--sessions N,…]
                   [--clients N,…] [--messages N]
       bench create [--bin-dir DIR] [--runs N] [--existing N,…]
       bench create --thousand [--bin-dir DIR] [--sessions N,…] [--idle SECONDS]
       bench reap  [--bin-dir DIR] [--runs N] [--sessions N,…] [--idle SECONDS]
       bench deliver [--bin-dir DIR] [--agents DIR] [--runs N] [--sessions N,…] [--idle SECONDS]
       bench deliver --wake [--bin-dir DIR] [--agents DIR] [--runs N]

  cli    time to start and end: `poolctl status` and `poolctl ls` against `true` and `tmux list-sessions`
  watch  time from a change in tmux, or the death of a pane's process, to its event at a subscriber of the
         pool, against the floors of each part of the way; processor time and memory, idle and in a storm

  queue  messages kept on disk: handed over, and handed over, taken and settled; against the disk itself, a bare
         log, and those of beanstalkd, Redis, SQLite and pueue that are installed
         --million: with a million that wait: memory, disk, time to start again after a kill -9
         --hostile: one good client among subscribers, clients and sessions that are stuck
  create time from asking for a session until it is proved to run, its init and log writer with it, one by one and
         8 at a time, against the bare `tmux new-session`
         --thousand: with a thousand that run: memory, and processor time while nothing happens
  reap   time from asking for the end of sessions, or the end of their programs, until all of it is proved gone, one
         and many at a time, against the bare end of the same processes; a look at 1,000 processes; `poolctl lock`
         against `flock`; what the reaper and poold take while nothing happens
  deliver
         time from sending a prompt until the agent has it, and is done, against the same keys typed by hand: with a
         script, and with Claude Code and Codex where they are installed; `poolctl hook` against `true`; from a hook to a
         subscriber; a program's output to a subscriber; beside `tmux-cli` and `cli-agent-orchestrator`, where they are
         on the PATH
         --wake: from a wake until the agent has its first prompt, against the same by hand

  --bin-dir DIR   where the binaries are; default: beside this one
  --agents DIR    deliver: where scripts/dev/install-agents has put the real ones ($AGENTS_DIR, else target/agents)
  --dir DIR       queue: on which disk (/var/tmp)
  --runs N        how often each thing is measured (cli: 200, watch: 30, queue, create: 5 rounds, --million: 3,
                  reap: 10 rounds, deliver: 20 prompts)
  --seconds S     queue: how long each time (1, --hostile: 2)
  --sessions N,…  how many sessions there are meanwhile (cli: 200, watch: 10,100,1000, queue: 64, --million: 100,
                  --thousand: 1000, deliver: 20); reap: how many are ended together (50)
  --existing N,…  create: how many there are already (0,500)
  --clients N,…   queue: with how many clients messages are handed over (1,8,64)
  --messages N    --million: how many wait (1000000)
  --idle SECONDS  watch, --thousand, reap, deliver: for how long the idle processes are watched (20, reap: 60)
";

fn main() -> ExitCode {
    if let Some(served) = queue::server::requested(std::env::args_os().skip(1)) {
        return ended(served);
    }
    let outcome = match Options::parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => run(&options),
        Ok(None) => print(USAGE),
        Err(error) => {
            report(&format!("{error}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    ended(outcome)
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    interrupt::listen()?;
    let suite = match options.suite {
        Suite::Cli => cli::run,
        Suite::Watch => watch::run,
        Suite::Queue => queue::run,
        Suite::Million => queue::million::run,
        Suite::Hostile => queue::hostile::run,
        Suite::Create => create::run,
        Suite::Thousand => create::thousand::run,
        Suite::Reap => reap::run,
        Suite::Deliver => deliver::run,
        Suite::Wake => deliver::wake,
    };
    options.sessions.iter().try_for_each(|sessions| suite(options, *sessions))
}

/// Writes to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Says something on standard error, where the tables are not.
fn report(text: &str) {
    // Nothing can be done about a standard error that cannot be written.
    drop(writeln!(io::stderr(), "bench: {text}"));
}
