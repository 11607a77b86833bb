//! Cost of very many running sessions: memory, and processor time when idle.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use protocol::{ProcId, Request, SessionRef};

use super::makers;
use crate::floors::Client;
use crate::options::Options;
use crate::pool::{OPEN_FILES, Pool};
use crate::usage::{self, Memory};
use crate::{interrupt, print, report, stats};

/// Time for the last session to settle.
const SETTLE: Duration = Duration::from_secs(5);
/// Goal for poold's memory, in bytes.
const MEMORY: u64 = 48_000_000;

/// Cost of one process.
struct Taken {
    name: String,
    memory: Memory,
    /// Memory shared with no other process, in bytes.
    own: Option<u64>,
    /// Share of a core when idle, from 0.
    idle: f64,
}

/// Runs the suite with this many sessions and prints its table.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    process::runtime::rlimit::raise_open_files(OPEN_FILES)?;
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), sessions, "")?;
    pool.while_up(|pool| {
        report(&format!("making {sessions} sessions"));
        let began = Instant::now();
        makers::fill(pool, sessions)?;
        let took = began.elapsed();
        interrupt::sleep(SETTLE)?;
        report(&format!("idle for {} s", options.idle.as_secs()));
        print(&table(sessions, took, &measure(pool, options.idle)?))
    })
}

fn measure(pool: &Pool, time: Duration) -> Result<Vec<Taken>> {
    let parties = parties(pool)?;
    let cpu = || parties.iter().map(|(_, id)| usage::cpu(*id)).collect::<Result<Vec<_>>>();
    let (before, began) = (cpu()?, Instant::now());
    interrupt::sleep(time)?;
    let (after, took) = (cpu()?, began.elapsed());
    let used = before.into_iter().zip(after).map(|(before, after)| after.saturating_sub(before));
    let taken = parties.iter().zip(used).map(|((name, id), used)| Taken {
        name: name.clone(),
        memory: usage::memory(*id).unwrap_or_default(),
        own: usage::own_memory(*id),
        idle: used.as_secs_f64() / took.as_secs_f64(),
    });
    Ok(taken.collect())
}

/// Returns the processes involved, with the init and the log writer of the first session.
fn parties(pool: &Pool) -> Result<Vec<(String, ProcId)>> {
    let mut client = Client::connect(pool)?;
    let status = client.status()?;
    let session = client.session(Request::Show(SessionRef("old-0".to_owned())))?;
    let mut parties = vec![("poold".to_owned(), status.process)];
    for component in &status.components {
        let id = component.pid.map(process::identity::identify).transpose()?.flatten();
        parties.extend(id.map(|id| (component.name.clone(), id)));
    }
    let server = status.tmux.server.context("tmux is not watched")?.process;
    parties.push(("tmux server".to_owned(), server));
    let run = session.incarnation.context("a session without an incarnation")?;
    parties.push(("one init".to_owned(), run.init.context("a session without an init")?));
    let logs = pool.state().join("sessions").join(session.id.to_string()).join("logs");
    parties.extend(writer(&logs.display().to_string())?.map(|id| ("one log writer".to_owned(), id)));
    Ok(parties)
}

/// Returns the process that writes the log in this directory; `None` where the system does not tell.
fn writer(logs: &str) -> Result<Option<ProcId>> {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|&b| b == 0);
        if words.nth(1) == Some(b"log") && words.next() == Some(logs.as_bytes()) {
            let pid = entry.file_name().to_string_lossy().parse()?;
            return Ok(process::identity::identify(pid)?);
        }
    }
    Ok(None)
}

fn table(sessions: usize, took: Duration, taken: &[Taken]) -> String {
    let mib = |bytes: u64| {
        #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes")]
        let bytes = bytes as f64;
        bytes / f64::from(1 << 20)
    };
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let rate = sessions as f64 / took.as_secs_f64();
    let mut text = format!(
        "{sessions} running sessions, created in {:.1} s ({rate:.0} a second, {} at a time); load {}\n\n{:<16}{:>10}{:>10}{:>10}{:>10}\n",
        took.as_secs_f64(),
        super::AT_A_TIME,
        stats::load(),
        "process",
        "MiB",
        "peak",
        "private",
        "idle %",
    );
    for Taken { name, memory, own, idle } in taken {
        let own = own.map_or_else(|| "-".to_owned(), |own| format!("{:.1}", mib(own)));
        let (resident, peak, idle) = (mib(memory.resident), mib(memory.peak), 100.0 * idle);
        text.push_str(&format!("{name:<16}{resident:>10.1}{peak:>10.1}{own:>10}{idle:>10.2}\n"));
    }
    let met = taken.first().is_some_and(|daemon| daemon.memory.peak < MEMORY);
    text + &format!("\n{}: poold under {} MB\n", if met { "met" } else { "missed" }, MEMORY / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poold_is_to_stay_small() {
        let text = |peak| {
            let memory = Memory { resident: 1 << 20, peak };
            let taken = [Taken { name: "poold".to_owned(), memory, own: Some(3 << 19), idle: 0.0125 }];
            table(10, Duration::from_secs(2), &taken)
        };
        assert!(text(47_000_000).contains("\nmet: poold under 48 MB"), "{}", text(47_000_000));
        assert!(text(49_000_000).contains("\nmissed: "));
        assert!(text(1 << 21).contains("1.0       2.0       1.5      1.25"), "{}", text(1 << 21));
    }
}
