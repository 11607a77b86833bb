//! Commands to sessions, in any order. A command names its subject by a position among what exists at its
//! turn, so that every sequence of commands makes sense, and every part of one.

use pool::reap::SESSION_RULES;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::policy::RestartPolicy;
use protocol::reap::{Action, Rule};
use protocol::request::New;

use crate::queue::command::Bits;

#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// A user requests a session, and waits for a slot if none is free.
    New(Box<New>),
    /// The waiter at this position tries again.
    Serve(usize),
    /// All waiters that can be served are, from the front.
    Fill,
    /// Sessions are parked for those that wait.
    Evict,
    /// A decided session is created in tmux, or its creation fails.
    Make(usize),
    NotMade(usize),
    /// A program ends by itself with this code; its pane vanishes; the tmux server dies, with its programs or
    /// not.
    Exit(usize, i32),
    Vanish(usize),
    ServerDies {
        survivors: bool,
    },
    /// The reaper ends the candidate with this number.
    Reap(usize),
    /// A session between the two halves of a restart gets its next incarnation.
    Continue(usize),
    Send(usize),
    Type(usize),
    Settle(usize),
    /// A session is being worked on, or no longer; its program writes; this many clients attach.
    Busy(usize),
    Write(usize),
    Attach(usize, u32),
    Pin(usize, bool),
    Kill(usize),
    Park(usize, bool),
    Drain(usize),
    Restart(usize),
    /// A user wants a session to run, and waits for a slot.
    Start(usize),
    RestoreAll,
    /// A running session violates a rule with this action.
    Rule(usize, Rule, Action),
    /// Idle time-outs and retention are checked.
    Idle,
    Outdated,
    /// Both clocks advance.
    Pass(u64),
    /// The wall clock alone jumps.
    Jump(i64),
    /// The daemon dies, and another one starts from disk.
    Crash,
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;

fn new(bits: &mut Bits) -> New {
    use RestartPolicy::{Always, No, OnFailure};
    let agent = bits.of(&["claude", "claude", "batch", "shell"]);
    let idle = bits.of(&[None, None, Some(5 * MINUTE), Some(u64::MAX)]).filter(|_| agent != "shell");
    let restart = bits.of(&[No, Always, OnFailure, Always]);
    New {
        agent: Some(agent.to_owned()),
        restart: Some(restart),
        max_restarts: bits.of(&[None, Some(1), None, Some(0)]),
        idle_timeout_ms: idle,
        ttl_ms: bits.of(&[None, Some(60 * MINUTE), Some(u64::MAX)]),
        pinned: bits.below(6) == 5,
        ephemeral: restart == No && bits.below(4) == 3,
        ..New::default()
    }
}

/// The command for a number.
fn decode(which: u8, number: u64) -> Command {
    let mut bits = Bits(number);
    let bits = &mut bits;
    let nth = bits.below(6);
    match which {
        0..=4 => Command::New(Box::new(new(bits))),
        5..=6 => Command::Serve(nth),
        7..=11 => Command::Fill,
        12..=14 => Command::Evict,
        15..=21 => Command::Make(nth),
        22 => Command::NotMade(nth),
        23..=25 => Command::Exit(nth, bits.of(&[0, 1, 137])),
        26 => Command::Vanish(nth),
        27 => Command::ServerDies { survivors: bits.below(2) == 1 },
        28..=33 => Command::Reap(nth),
        34..=35 => Command::Continue(nth),
        36..=40 => Command::Send(nth),
        41..=43 => Command::Type(nth),
        44..=46 => Command::Settle(nth),
        47 => Command::Busy(nth),
        48 => Command::Write(nth),
        49 => Command::Attach(nth, bits.of(&[0, 1])),
        50 => Command::Pin(nth, bits.below(2) == 1),
        51 => Command::Kill(nth),
        52..=54 => Command::Park(nth, bits.below(3) > 0),
        55 => Command::Drain(nth),
        56 => Command::Restart(nth),
        57 => Command::Start(nth),
        58 => Command::RestoreAll,
        59 => Command::Idle,
        60 => Command::Outdated,
        61..=68 => {
            let short = [SECOND, 3 * SECOND, 10 * SECOND, 31 * SECOND];
            let long = [2 * MINUTE, 6 * MINUTE, 11 * MINUTE, 70 * MINUTE];
            Command::Pass(bits.of(&[short.as_slice(), &short, &long].concat()))
        }
        69 => Command::Jump(bits.of(&[-3_600_000, 3_600_000, -2000, 2000])),
        70 => Command::Crash,
        _ => Command::Rule(nth, bits.of(&SESSION_RULES), bits.of(&Action::ALL)),
    }
}

pub(crate) fn commands(most: usize) -> impl Strategy<Value = Vec<Command>> {
    vec((0_u8..74, any::<u64>()).prop_map(|(which, number)| decode(which, number)), 0..=most)
}
