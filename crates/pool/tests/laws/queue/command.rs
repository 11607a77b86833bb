//! Commands to queues, in any order. A command names its subject by a position among what exists at its turn,
//! so that every sequence of commands makes sense, and every part of one.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::request::{Disposition, Resolution};
use protocol::{MessageState, PROMPT, SessionId};

pub(crate) const KINDS: [&str; 3] = [PROMPT, "observation", "summarize"];

#[derive(Debug, Clone)]
pub(crate) enum Command {
    Send(Sending),
    /// Messages of these kinds, or of all except prompts; by the worker with this number, or a client without
    /// a process.
    Claim {
        session: SessionId,
        kinds: Vec<String>,
        max: usize,
        worker: Option<usize>,
    },
    /// Under the token that was issued this many claims ago, current or not.
    Heartbeat(usize),
    Ack(usize),
    Fail(usize, Disposition),
    WorkerDies(usize),
    /// The next prompt of a session is typed.
    Type(SessionId),
    /// A prompt at an agent moves on.
    Prompt(usize, Moves),
    Cancel(usize),
    Retry(usize),
    Resolve(usize, Resolution),
    Purge {
        session: SessionId,
        states: Vec<MessageState>,
        older_ms: u64,
    },
    /// Both clocks advance.
    Pass(u64),
    /// The wall clock alone jumps.
    Jump(i64),
    /// Retention is over: of finished messages; of random operation ids.
    Forget,
    AgeOperations,
    /// The daemon dies, and another one starts from disk.
    Crash,
}

#[derive(Debug, Clone)]
pub(crate) struct Sending {
    pub(crate) session: SessionId,
    pub(crate) kind: &'static str,
    pub(crate) priority: i8,
    pub(crate) size: u32,
    pub(crate) key: Option<usize>,
    pub(crate) op: Op,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) cause: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Fresh,
    /// Repeats the send of this many sends ago.
    Again(usize),
    Named(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Moves {
    /// The next state: typed, accepted, done.
    On,
    Dead,
    InDoubt,
    /// The prompt was not begun.
    Back,
}

/// Bits of a number, taken from its low end.
pub(crate) struct Bits(pub(crate) u64);

impl Bits {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        let taken = self.0 % n;
        self.0 /= n;
        usize::try_from(taken).unwrap()
    }

    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Mostly the first session; the last one is over.
    fn session(&mut self) -> SessionId {
        SessionId(self.of(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 3]))
    }
}

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: i64 = 24 * 3600 * 1000;

fn sending(bits: &mut Bits) -> Sending {
    let op = bits.below(6);
    let nth = bits.below(4);
    Sending {
        session: bits.session(),
        kind: bits.of(&[KINDS[1], KINDS[0], KINDS[1], KINDS[2]]),
        priority: bits.of(&[0, 0, 0, 0, 5, -3]),
        size: bits.of(&[1, 2, 30, 90]),
        key: bits.of(&[None, None, None, Some(0), Some(1)]),
        op: match op {
            0 => Op::Again(nth),
            1 => Op::Named(nth),
            _ => Op::Fresh,
        },
        ttl_ms: bits.of(&[None, None, None, Some(SECOND), Some(50 * SECOND), Some(3 * HOUR)]),
        cause: bits.of(&[None, None, None, None, Some(0), Some(3)]),
    }
}

fn purge(bits: &mut Bits) -> Command {
    use MessageState::{Cancelled, Dead, Done, Expired, Queued};
    let states = bits.of(&[vec![], vec![Done], vec![Dead], vec![Expired, Cancelled], vec![Queued]]);
    Command::Purge { session: bits.session(), states, older_ms: bits.of(&[0, 60 * SECOND, 3 * HOUR]) }
}

/// The command for a number. Small numbers give simple commands, so that failures shrink to those.
pub(crate) fn decode(which: u8, number: u64) -> Command {
    let mut bits = Bits(number);
    let bits = &mut bits;
    match which {
        0..=9 => Command::Send(sending(bits)),
        10..=15 => {
            let one = vec![KINDS[1].to_owned()];
            let both = KINDS[1..].iter().rev().map(|kind| (*kind).to_owned()).collect();
            let (session, max) = (bits.session(), bits.of(&[1, 2, 64]));
            let (kinds, worker) = (bits.of(&[vec![], one, both]), bits.of(&[None, Some(0), Some(1)]));
            Command::Claim { session, kinds, max, worker }
        }
        16..=17 => Command::Ack(bits.of(&[0, 0, 1, 2, 4])),
        18..=22 => {
            let then = [
                Disposition::Retry,
                Disposition::Retry,
                Disposition::Later(None),
                Disposition::Later(Some(7)),
                Disposition::Dead,
                Disposition::GiveBack,
            ];
            Command::Fail(bits.of(&[0, 0, 0, 1, 2]), bits.of(&then))
        }
        23 => Command::Heartbeat(bits.below(5)),
        24..=26 => Command::Type(bits.session()),
        27..=30 => Command::Prompt(
            bits.below(2),
            bits.of(&[Moves::On, Moves::On, Moves::Dead, Moves::InDoubt, Moves::Back]),
        ),
        31 => Command::WorkerDies(bits.below(2)),
        32 => Command::Cancel(bits.below(20)),
        33..=34 => Command::Retry(bits.below(20)),
        35..=36 => Command::Resolve(
            bits.below(20),
            bits.of(&[Resolution::Done, Resolution::Retry, Resolution::Dead]),
        ),
        37 => purge(bits),
        38..=43 => {
            let short = [100, SECOND, 2 * SECOND, 5 * SECOND, 31 * SECOND, 61 * SECOND];
            let long = [600 * SECOND, 2 * HOUR, 30 * HOUR];
            Command::Pass(bits.of(&[short.as_slice(), &short, &long].concat()))
        }
        44 => Command::Jump(bits.of(&[-DAY, DAY, -2000, 2000])),
        45 => Command::Forget,
        46 => Command::AgeOperations,
        _ => Command::Crash,
    }
}

pub(crate) fn commands(most: usize) -> impl Strategy<Value = Vec<Command>> {
    vec((0_u8..49, any::<u64>()).prop_map(|(which, number)| decode(which, number)), 0..=most)
}
