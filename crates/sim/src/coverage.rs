//! The coverage of many runs: how often each thing occurred, and why some things are rare.

use std::collections::BTreeMap;

use protocol::ErrorCode;
use protocol::event::EventKind;

/// Occurrences of each thing in [`SEEDS`] seeds that count as enough.
const ENOUGH: u64 = 100;

/// Number of seeds for which [`ENOUGH`] is meant.
const SEEDS: u64 = 10_000;

/// Things that are rare or never occur, with the reason.
const RARE: [(&str, &str); 0] = [];

/// Returns a line for each thing that occurred in this many runs, or could have; a rare one says why it is.
pub(crate) fn lines(counts: &BTreeMap<String, u64>, runs: u64) -> Vec<String> {
    let mut all: BTreeMap<String, u64> = possible().map(|what| (what, 0)).collect();
    all.extend(counts.iter().map(|(what, count)| (what.clone(), *count)));
    for code in codes() {
        let of_code = counts.iter().filter(|(what, _)| what.ends_with(&format!(":{code:?}")));
        all.insert(format!("refusal:{code:?}"), of_code.map(|(_, count)| count).sum());
    }
    all.iter().map(|(what, count)| line(what, *count, runs)).collect()
}

fn line(what: &str, count: u64, runs: u64) -> String {
    let is_rare = count.saturating_mul(SEEDS) < ENOUGH.saturating_mul(runs);
    let reason = RARE.iter().find(|(name, _)| *name == what).map_or("rare, nobody knows why", |(_, why)| why);
    if is_rare { format!("{count:>9}  {what}: {reason}") } else { format!("{count:>9}  {what}") }
}

/// Returns the names of what has a name without having occurred.
fn possible() -> impl Iterator<Item = String> {
    EventKind::PUBLISHED.iter().map(|kind| format!("event:{}", kind.as_str()))
}

fn codes() -> [ErrorCode; 9] {
    use ErrorCode::{Conflict, Failed, NotFound, Protocol, Refused, Storage, Timeout, Unavailable, Usage};
    [Failed, Usage, NotFound, Conflict, Refused, Timeout, Unavailable, Protocol, Storage]
}
