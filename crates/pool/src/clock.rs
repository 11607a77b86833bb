//! Ages. Times in records are the wall clock's, as people read them; it is set, and a machine sleeps. Neither makes
//! anything older: where the wall clock and the time that the machine was awake fall apart, a step is noted, and what a
//! step skipped is no part of any age.

use std::time::Duration;

use protocol::clock::{Clock, ClockStep};
use protocol::time::millis;
use protocol::{Seq, Timestamp};

/// The least difference that is a step: what is less is the clock being adjusted, or the two being read apart.
pub const STEP: Duration = Duration::from_secs(1);
/// Adjusting makes the wall clock this part faster or slower at most.
const DRIFT: u64 = 1000;
/// Longest time that a restart of the machine adds to an age: nobody knows how long it was off, only the times of its
/// wall clock before and after.
pub const OFF_MAX: Duration = Duration::from_secs(10 * 60);
/// Steps that are remembered at most. Beyond that, two that are close become one.
const STEPS_MAX: usize = 128;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// The wall clock.
    pub wall: Timestamp,
    /// Time since the machine's start without its sleep, in milliseconds.
    pub awake_ms: u64,
}

/// A point on the line on which time only passes while the machine is awake and is never set: two of them differ by
/// what has really passed. Equal to the wall clock where it was never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(i64);

impl Moment {
    /// The moment this much later; saturates.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(signed(millis(delay))))
    }

    /// How long until `later`; zero where it has passed.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

/// The clock after a reading, and the step, if it went otherwise than it should have since `last`. None: as before.
#[must_use]
pub fn step(clock: &Clock, last: Reading, now: Reading) -> Option<(Clock, ClockStep)> {
    let expected = last.wall.after(awake(last.awake_ms, now));
    (differ(expected, now.wall) >= millis(STEP)).then(|| stepped(clock, expected, now))
}

/// The clock as it is read anew: nothing happened to it.
#[must_use]
pub fn refreshed(clock: &Clock, seq: Seq, now: Reading) -> Clock {
    Clock { read_at: now.wall, awake_ms: now.awake_ms, seq, steps: clock.steps.clone() }
}

/// The clock at a start of the daemon, and the step that it went meanwhile. `last`: the last event in its journal.
#[must_use]
pub fn at_start(
    clock: &Clock,
    same_boot: bool,
    last: Option<(Seq, Timestamp)>,
    now: Reading,
) -> (Clock, Option<ClockStep>) {
    // An event from before the last reading may be from before the clock was set back.
    let since = last.filter(|(seq, _)| *seq > clock.seq).map(|(_, at)| at);
    let never_read = *clock == Clock::default();
    let step = if never_read && since.is_none() {
        None
    } else if !never_read && same_boot && now.awake_ms >= clock.awake_ms {
        let passed = awake(clock.awake_ms, now);
        let tolerated = millis(passed) / DRIFT + millis(STEP);
        let expected = clock.read_at.after(passed);
        (differ(expected, now.wall) >= tolerated).then_some(expected)
    } else {
        // It was off, or nobody looked.
        let known = since.unwrap_or_default().max(clock.read_at);
        let expected = known..=known.after(OFF_MAX);
        (!expected.contains(&now.wall)).then(|| now.wall.clamp(known, known.after(OFF_MAX)))
    };
    match step.map(|before| stepped(clock, before, now)) {
        Some((clock, step)) => (clock, Some(step)),
        None => (refreshed(clock, clock.seq, now), None),
    }
}

/// The time since `at`, without what the clock skipped. Where the clock said a time more than once, because it was set
/// back, the latest of these moments is meant: nothing is taken for older than it is.
#[must_use]
pub fn age(clock: &Clock, now: Timestamp, at: Timestamp) -> Duration {
    moment_by(clock, at, now).until(moment(clock, now))
}

/// The wall clock's time so long ago, by what has really passed. Where it was set back since, the earliest that it said
/// meanwhile: all that is before this is older than that.
#[must_use]
pub fn ago(clock: &Clock, now: Timestamp, delay: Duration) -> Timestamp {
    let (mut end, mut left, mut earliest) = (now, delay, now);
    for step in clock.steps.iter().rev() {
        let passed = end.since(step.after);
        if left <= passed {
            break;
        }
        (left, end, earliest) = (left - passed, step.before, earliest.min(step.after));
    }
    Timestamp(end.0.saturating_sub(millis(left))).min(earliest)
}

/// The moment of a time that may be still to come: in the last stretch between two steps that it can be in.
#[must_use]
pub fn moment(clock: &Clock, at: Timestamp) -> Moment {
    moment_by(clock, at, Timestamp(u64::MAX))
}

/// The latest of these times, none of which is later than `now`. Where the clock was set back it is not the greatest.
#[must_use]
pub fn latest(
    clock: &Clock,
    now: Timestamp,
    times: impl IntoIterator<Item = Timestamp>,
) -> Option<Timestamp> {
    times.into_iter().max_by_key(|at| (moment_by(clock, *at, now), *at))
}

/// The wall clock's time at this moment, unless it is set again.
#[must_use]
pub fn wall(clock: &Clock, moment: Moment) -> Timestamp {
    let shift = clock.steps.iter().map(skipped).fold(0, i64::saturating_add);
    Timestamp(u64::try_from(moment.0.saturating_add(shift)).unwrap_or(0))
}

fn skipped(step: &ClockStep) -> i64 {
    signed(step.after.0) - signed(step.before.0)
}

/// The moment of a time that is no later than `now`: in the last stretch between two steps that contains it, else at
/// the end of the last one that it is behind.
#[must_use]
pub fn moment_by(clock: &Clock, at: Timestamp, now: Timestamp) -> Moment {
    let mut shift: i64 = clock.steps.iter().map(skipped).fold(0, i64::saturating_add);
    let (mut end, mut behind) = (now, None);
    // From the last stretch, which is still open, to the first, before all steps.
    for step in clock.steps.iter().rev().map(Some).chain([None]) {
        let start = step.map_or(Timestamp(0), |step| step.after);
        let moment = |at: Timestamp| Moment(signed(at.0).saturating_sub(shift));
        if (start..=end).contains(&at) {
            return moment(at);
        }
        if at > end {
            behind = behind.or(Some(moment(end)));
        }
        if let Some(step) = step {
            (shift, end) = (shift.saturating_sub(skipped(step)), step.before);
        }
    }
    behind.unwrap_or_default()
}

fn stepped(clock: &Clock, before: Timestamp, now: Reading) -> (Clock, ClockStep) {
    let mut steps = clock.steps.clone();
    let step = ClockStep { before, after: now.wall };
    steps.push(step);
    if steps.len() > STEPS_MAX {
        join(&mut steps);
    }
    (Clock { steps, ..refreshed(clock, clock.seq, now) }, step)
}

/// Makes one step of the two between which the least time passed; that time, too, is no part of any age then.
fn join(steps: &mut Vec<ClockStep>) {
    let between = |pair: &[ClockStep]| pair[1].before.since(pair[0].after);
    let Some(first) = (0..steps.len() - 1).min_by_key(|n| between(&steps[*n..*n + 2])) else { return };
    let second = steps.remove(first + 1);
    steps[first].after = second.after;
}

fn awake(before: u64, now: Reading) -> Duration {
    Duration::from_millis(now.awake_ms.saturating_sub(before))
}

fn differ(a: Timestamp, b: Timestamp) -> u64 {
    a.0.abs_diff(b.0)
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
