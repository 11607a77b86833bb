//! Cost of a scan of all processes, beside plain reading of the same files.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use process::tree::marker_scan::MarkerScanner;
use process::tree::{self, Evidence};
use protocol::Tag;

use crate::interrupt;
use crate::order::order;
use crate::stats::Times;

/// Number of scanned processes.
pub(super) const PROCESSES: usize = 1_000;
/// Number of scans.
const RUNS: usize = 30;

/// A kind of scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads the `stat` of each process without using it.
    Bare,
    /// The first scan, which also reads the environments.
    First,
    /// A later scan for orphans.
    Census,
    /// A later scan for the members of one tree.
    Members,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Bare, Self::First, Self::Census, Self::Members];
}

/// Durations of scans.
pub(super) struct Scan {
    /// Number of processes present.
    pub(super) processes: usize,
    /// Durations in the order of [`Kind::ALL`].
    pub(super) times: [Times; Kind::ALL.len()],
}

/// Fills the machine up to [`PROCESSES`], and scans.
pub(super) fn measure() -> Result<Scan> {
    let mut crowd = Crowd(Vec::new());
    for _ in bare()?..PROCESSES {
        crowd.0.push(Command::new("sleep").arg("100000").stdin(Stdio::null()).spawn().context("sleep")?);
    }
    let mut census = MarkerScanner::default();
    let mut times: [Times; Kind::ALL.len()] = std::array::from_fn(|_| Times::default());
    // The first scan of each kind does not count.
    for run in 0..=RUNS {
        interrupt::check()?;
        for at in order(run, times.len()) {
            let began = Instant::now();
            look(Kind::ALL[at], &mut census)?;
            let took = began.elapsed();
            if run > 0 {
                times[at].push(took);
            }
        }
    }
    Ok(Scan { processes: bare()?, times })
}

fn look(kind: Kind, census: &mut MarkerScanner) -> Result<()> {
    match kind {
        Kind::Bare => drop(bare()?),
        Kind::First => drop(MarkerScanner::default().scan()?),
        Kind::Census => drop(census.scan()?),
        Kind::Members => {
            let nobody = Evidence { init: None, sid: None, tag: Tag([7; 16]), cgroup: None, socket: None };
            drop(tree::members(&nobody, &[])?);
        }
    }
    Ok(())
}

/// Counts the processes.
#[cfg(target_os = "linux")]
fn bare() -> Result<usize> {
    use std::io::Read;

    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            let read =
                std::fs::File::open(entry.path().join("stat")).and_then(|mut file| file.read(&mut [0; 1024]));
            // A process that has ended meanwhile cannot be read.
            count += usize::from(read.is_ok());
        }
    }
    Ok(count)
}

#[cfg(not(target_os = "linux"))]
fn bare() -> Result<usize> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,stat="]).output().context("ps")?;
    Ok(output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count())
}

/// Idle processes, killed on drop.
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A failure to kill has no remedy.
            drop(child.kill());
        }
        for child in &mut self.0 {
            drop(child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_look_finds_the_table() {
        let mut census = MarkerScanner::default();
        assert!(bare().unwrap() > 1);
        Kind::ALL.into_iter().for_each(|kind| look(kind, &mut census).unwrap());
    }
}
