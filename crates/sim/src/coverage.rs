//! The coverage of many runs: how often each thing occurred, and why some things are rare.

use std::collections::BTreeMap;

use protocol::ErrorCode;
use protocol::event::EventKind;

/// Occurrences of each thing in [`SEEDS`] seeds that count as enough.
const ENOUGH: u64 = 100;

/// Number of seeds for which [`ENOUGH`] is meant.
const SEEDS: u64 = 10_000;

/// Beginnings of the names of everything that has to occur: events, codes of refusals, transitions, faults, steps of
/// actors.
const REQUIRED: [&str; 8] =
    ["event:", "refusal:", "lifecycle:", "message:", "fault:", "person:", "verdict:", "step:"];

/// Things that are rare or never occur, with the reason.
const RARE: [(&str, &str); 13] = [
    ("event:log_resumed", "the world's logs have no writer that could end"),
    ("event:queue_", "a queue stands still for minutes, which few runs last"),
    ("fault:tmux-", "the call itself is rare"),
    ("lifecycle:session_parked > session_deleted", "few who park sessions remove them"),
    ("message:Cancelled > Queued", "somebody wants again what somebody has just taken back"),
    ("message:Expired > Queued", "somebody wants again what is too late"),
    ("message:Claimed > Dead", "the last of its attempts fails"),
    ("message:InDoubt > ", "a prompt is rarely in doubt, and then mostly given up at the end of a run"),
    ("message:Revoking > Cancelled", "it is taken back in the seconds in which its worker is ended"),
    ("message:Typed > Cancelled", "it is taken back in the moment before its agent has it"),
    ("message:Typing > Cancelled", "it is taken back in the moment of its typing"),
    ("message:Typed > Typed", "it is typed, and then not confirmed, in a run that lasts long enough"),
    ("refusal:Protocol", "the frames of the world are well-formed; crates/fuzz has others"),
];

/// Returns a line for each thing that occurred in this many runs, or could have; a rare one says why it is.
pub(crate) fn lines(counts: &BTreeMap<String, u64>, runs: u64) -> Vec<String> {
    let possible = EventKind::PUBLISHED.iter().map(|kind| (format!("event:{}", kind.as_str()), 0));
    let mut all: BTreeMap<String, u64> = possible.collect();
    all.extend(ErrorCode::ALL.map(|code| (format!("refusal:{code:?}"), 0)));
    for (what, count) in counts {
        *all.entry(what.clone()).or_default() += count;
        // A step of an actor, with its outcome.
        if let Some((step, outcome)) = what.split_once(':').filter(|_| !is_required(what)) {
            *all.entry(format!("step:{step}")).or_default() += count;
            if let Some(code) = ErrorCode::ALL.iter().find(|code| format!("{code:?}") == outcome) {
                *all.entry(format!("refusal:{code:?}")).or_default() += count;
            }
        }
    }
    all.iter().map(|(what, count)| line(what, *count, runs)).collect()
}

fn line(what: &str, count: u64, runs: u64) -> String {
    let is_rare = is_required(what) && count.saturating_mul(SEEDS) < ENOUGH.saturating_mul(runs);
    let why =
        RARE.iter().find(|(name, _)| what.starts_with(name)).map_or("no reason is known", |(_, why)| why);
    if is_rare { format!("{count:>9}  {what}  RARE: {why}") } else { format!("{count:>9}  {what}") }
}

fn is_required(what: &str) -> bool {
    REQUIRED.iter().any(|beginning| what.starts_with(beginning))
}
