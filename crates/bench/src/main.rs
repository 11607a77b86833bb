//! The benchmarks. Each measures its floor and its peers in the same run, in turn with the subject, so that
//! a busy machine slows all of them alike and the ratios stay meaningful.

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
mod worker;

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
       bench worker [--bin-dir DIR] [--runs N] [--sessions N,…]

  cli    time from spawn to exit: `poolctl status` and `poolctl ls` against `true` and `tmux list-sessions`
  watch  time from a change in tmux, or the death of a pane's process, to its event at a subscriber of the
         pool, against the floor of each step; processor time and memory, idle and in a storm

  queue  durable messages: enqueue, and enqueue, claim and ack; against the disk itself, a bare log, and those of
         beanstalkd, Redis, SQLite and pueue that are installed
         --million: with a backlog of a million: memory, disk, time to serve again after a kill -9
         --hostile: one good client among stuck subscribers, clients and sessions
  create time from the request for a session until it is proved to run, with its init and log writer, one by one and
         8 at a time, against the bare `tmux new-session`
         --thousand: with a thousand running sessions: memory, and processor time when idle
  reap   time from the request to end sessions, or the end of their programs, until everything is proved gone, one and
         many at a time, against the bare end of the same processes; a scan of 1,000 processes; `poolctl lock`
         against `flock`; the idle reaper and poold
  deliver
         time from sending a prompt until the agent has it, and is done, against the same keys typed by hand: with a
         script, and with Claude Code and Codex if installed; `poolctl hook` against `true`; from a hook to a
         subscriber; a program's output to a subscriber; beside `tmux-cli` and `cli-agent-orchestrator`, if on the PATH
         --wake: from a wake until the agent has its first prompt, against the same by hand
  worker from `poolctl send` to the first line of a worker's handler, with its host running and ended, against the
         same handler by hand

  --bin-dir DIR   directory of the binaries; default: beside this one
  --agents DIR    deliver: where scripts/dev/install-agents has put the real agents ($AGENTS_DIR, else target/agents)
  --dir DIR       queue: directory on the disk to measure (/var/tmp)
  --runs N        measurements of each thing (cli: 200, watch: 30, queue, create: 5 rounds, --million: 3,
                  reap: 10 rounds, deliver: 20 prompts, worker: 50 rounds)
  --seconds S     queue: duration of each measurement (1, --hostile: 2)
  --sessions N,…  numbers of other sessions (cli: 200, watch: 10,100,1000, queue: 64, --million: 100,
                  --thousand: 1000, deliver, worker: 20); reap: number of concurrent ends (50)
  --existing N,…  create: numbers of sessions already present (0,500)
  --clients N,…   queue: numbers of clients that enqueue (1,8,64)
  --messages N    --million: size of the backlog (1000000)
  --idle SECONDS  watch, --thousand, reap, deliver: duration of the idle measurement (20, reap: 60)
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
        Suite::Worker => worker::run,
    };
    options.sessions.iter().try_for_each(|sessions| suite(options, *sessions))
}

/// Writes to standard output, where the tables go.
fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Writes a progress message to standard error.
fn report(text: &str) {
    // A failed write to standard error has no remedy.
    drop(writeln!(io::stderr(), "bench: {text}"));
}
