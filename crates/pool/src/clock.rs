//! Ages by the wall clock. Records have times of the wall clock, because people read them; but the clock is set, and
//! the machine sleeps. Where the wall clock diverges from the time that the machine was awake, a step is recorded. The
//! time that a step skipped is left out of every age, so that it makes nothing older.

use std::time::Duration;

use protocol::clock::{Clock, ClockStep};
use protocol::{Seq, Timestamp, millis};

/// Smallest difference that counts as a step. A smaller one comes from adjusting the clock, or from reading
/// the two clocks apart.
pub const STEP: Duration = Duration::from_secs(1);

/// Maximum drift by adjusting: one part in this many.
const DRIFT: u64 = 1000;

/// Longest time that a restart of the machine adds to an age. The time for which it was off is unknown: only the
/// readings of its wall clock before and after are known. This is half of the time for which random operation ids are
/// remembered, so that an answer from the last minutes before a restart with a wrong clock is still known.
pub const OFF_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum number of recorded steps. Beyond that, the two that are closest become one.
const STEPS_MAX: usize = 128;

/// A reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// The wall clock.
    pub wall: Timestamp,
    /// Time since the machine's start without its sleep, in milliseconds.
    pub awake_ms: u64,
}

/// A point in the time that passes only while the machine is awake and is never set: the difference of two
/// moments has really passed. Equal to the wall clock if that was never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(i64);

impl Moment {
    /// The moment after a delay; saturates.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(signed(millis(delay))))
    }

    /// The moment this long before; saturates.
    #[must_use]
    pub fn before(self, delay: Duration) -> Self {
        Self(self.0.saturating_sub(signed(millis(delay))))
    }

    /// The time until `later`; zero if it has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

/// Returns the clock after a reading and the step, if the wall clock diverged from its expected reading since
/// `last`.
pub fn step(clock: &Clock, last: Reading, now: Reading) -> Option<(Clock, ClockStep)> {
    let passed = awake(last.awake_ms, now);
    let is_step = differ(last.wall.after(passed), now.wall) >= millis(STEP);
    is_step.then(|| stepped(clock, dated(last.wall, passed, now.wall), now))
}

/// The clock after a reading without a step.
pub fn refreshed(clock: &Clock, seq: Seq, now: Reading) -> Clock {
    Clock { read_at: now.wall, awake_ms: now.awake_ms, seq, steps: clock.steps.clone() }
}

/// The clock at a start of the daemon, and the step meanwhile. `last` is the last event in its journal.
pub fn at_start(
    clock: &Clock,
    same_boot: bool,
    last: Option<(Seq, Timestamp)>,
    now: Reading,
) -> (Clock, Option<ClockStep>) {
    // An event from before the last reading may date from before the clock was set back.
    let since = last.filter(|(seq, _)| *seq > clock.seq).map(|(_, at)| at);
    let never_read = *clock == Clock::default();
    let step = if never_read && since.is_none() {
        None
    } else if !never_read && same_boot && now.awake_ms >= clock.awake_ms {
        let passed = awake(clock.awake_ms, now);
        let tolerated = millis(passed) / DRIFT + millis(STEP);
        let is_step = differ(clock.read_at.after(passed), now.wall) >= tolerated;
        is_step.then(|| dated(clock.read_at, passed, now.wall))
    } else {
        // The machine was off, or the clock was not read.
        let known = since.unwrap_or_default().max(clock.read_at);
        let expected = known..=known.after(OFF_MAX);
        let before = now.wall.clamp(known, known.after(OFF_MAX));
        (!expected.contains(&now.wall)).then(|| ClockStep::new(before, now.wall))
    };
    match step.map(|step| stepped(clock, step, now)) {
        Some((clock, step)) => (clock, Some(step)),
        None => (refreshed(clock, clock.seq, now), None),
    }
}

/// The end of a pause, moved by a step of the clock: the pause lasts as long as it would have lasted until `at`
/// without the step.
pub(crate) fn shifted(step: ClockStep, at: Timestamp) -> Timestamp {
    let by = i64::try_from(i128::from(step.after.0) - i128::from(step.before.0)).unwrap_or(0);
    Timestamp(at.0.saturating_add_signed(by))
}

/// Returns the time since `at`, without skipped time. If the wall clock was set back and showed `at` more than once,
/// the latest of these moments counts, so that nothing is taken for older than it is.
pub fn age(clock: &Clock, now: Timestamp, at: Timestamp) -> Duration {
    past_moment(clock, at, now).until(moment(clock, now))
}

/// Returns the moment of a past time; the latest one, if the clock showed that time more than once. A time a little
/// ahead of `now` counts as now: an adjustment was too small to be recorded as a step.
pub(crate) fn past_moment(clock: &Clock, at: Timestamp, now: Timestamp) -> Moment {
    let is_adjusted = at > now && at.since(now) < STEP;
    moment_by(clock, if is_adjusted { now } else { at }, now)
}

/// Returns the time that the wall clock showed `delay` ago. If the clock was set back since, returns a time that is
/// earlier than everything it has shown since: whatever is earlier than that is older than the delay.
pub fn ago(clock: &Clock, now: Timestamp, delay: Duration) -> Timestamp {
    let (mut end, mut left, mut earliest) = (now, delay, now);
    for step in clock.steps.iter().rev() {
        let passed = end.since(step.after);
        if left <= passed {
            break;
        }
        // The result has to be earlier than `step.after`, which belongs to the later stretch.
        let lowest = step.joined.map_or(step.after, |(low, _)| low.min(step.after));
        let before_step = Timestamp(lowest.0.saturating_sub(1));
        (left, end, earliest) = (left - passed, step.before, earliest.min(before_step));
    }
    Timestamp(end.0.saturating_sub(millis(left))).min(earliest)
}

/// Returns the time and the moment of an event that another process stamped with both clocks. A wall-clock time that
/// contradicts the recorded steps is replaced: the clock was set and corrected while nobody recorded it, or it was set
/// shortly before the stamp and the step was recorded after it. Without a stamp of the time awake, the wall-clock time
/// is believed.
pub fn stamped(clock: &Clock, now: Reading, at: Timestamp, awake_ms: Option<u64>) -> (Timestamp, Moment) {
    let told = moment_of(clock, at, now.wall);
    let Some(delay) = awake_ms.and_then(|stamp| now.awake_ms.checked_sub(stamp)) else {
        return (at.min(now.wall), told);
    };
    let present = moment_by(clock, now.wall, now.wall);
    let real = Moment(present.0.saturating_sub(signed(delay)));
    let (off, tolerated) = (told.0.abs_diff(real.0), millis(STEP) + delay / DRIFT);
    let may_be_of = |stretch: &Stretch| {
        let (earliest, latest) = (stretch.begins.saturating_sub(signed(tolerated)), signed(tolerated));
        (earliest..=stretch.ends.saturating_add(latest)).contains(&real.0)
    };
    let off_in = |stretch: Stretch| stretch.moment(at).0.abs_diff(real.0);
    let nearest = stretches(clock, present).filter(may_be_of).map(off_in).min();
    if off < tolerated && nearest.is_none_or(|nearest| off <= nearest) {
        (if told >= present { now.wall } else { at }, told)
    } else {
        (shown(clock, real), real)
    }
}

/// The reading of the wall clock at a moment of the past.
fn shown(clock: &Clock, moment: Moment) -> Timestamp {
    let stretch = stretches(clock, moment).find(|stretch| stretch.begins <= moment.0);
    let shift = stretch.map_or(0, |stretch| stretch.shift);
    Timestamp(u64::try_from(moment.0.saturating_add(shift)).unwrap_or(0))
}

/// The moment of a time that may be in the future: in the last stretch between two steps that can contain it.
pub fn moment(clock: &Clock, at: Timestamp) -> Moment {
    moment_by(clock, at, Timestamp(u64::MAX))
}

/// The latest of these times, all of which have passed. If the clock was set back, the latest is not always the
/// greatest.
pub fn latest(
    clock: &Clock,
    now: Timestamp,
    times: impl IntoIterator<Item = Timestamp>,
) -> Option<Timestamp> {
    times.into_iter().max_by_key(|at| (moment_by(clock, *at, now), *at))
}

/// The wall clock's time at this moment, unless it is set again.
pub fn wall(clock: &Clock, moment: Moment) -> Timestamp {
    let shift = all_skipped(clock);
    Timestamp(u64::try_from(moment.0.saturating_add(shift)).unwrap_or(0))
}

/// The time between two steps, in milliseconds.
struct Stretch {
    /// The moment of its beginning.
    begins: i64,
    /// The moment of its end.
    ends: i64,
    /// The difference between the wall clock and the moments.
    shift: i64,
}

impl Stretch {
    /// The moment of a time by the clock of this stretch, which may lie outside of it.
    fn moment(&self, at: Timestamp) -> Moment {
        Moment(signed(at.0).saturating_sub(self.shift))
    }

    /// The moment of a time, if the clock showed it in this stretch.
    fn shown(&self, at: Timestamp) -> Option<Moment> {
        let moment = self.moment(at);
        (self.begins..=self.ends).contains(&moment.0).then_some(moment)
    }
}

/// The stretches between the steps up to `present`, from the last to the first.
fn stretches(clock: &Clock, present: Moment) -> impl Iterator<Item = Stretch> {
    let begin = |step: Option<&ClockStep>| step.map_or(i64::MIN, |step| signed(step.after.0));
    let steps = clock.steps.iter().rev().map(Some).chain([None]);
    steps.scan((all_skipped(clock), present.0), move |(shift, ends), step| {
        let begins = begin(step).saturating_sub(*shift);
        let stretch = Stretch { begins, ends: *ends, shift: *shift };
        (*shift, *ends) = (shift.saturating_sub(step.map_or(0, skipped)), begins);
        Some(stretch)
    })
}

/// The time that all recorded steps skipped, in milliseconds.
fn all_skipped(clock: &Clock) -> i64 {
    clock.steps.iter().map(skipped).fold(0, i64::saturating_add)
}

fn skipped(step: &ClockStep) -> i64 {
    signed(step.after.0) - signed(step.before.0)
}

/// Returns the moment of a time that is no later than `now`: in the last stretch between two steps that contains it, or
/// at a joined step if the clock showed it within that step, or may have; otherwise at the end of the last stretch
/// before it.
pub fn moment_by(clock: &Clock, at: Timestamp, now: Timestamp) -> Moment {
    let mut shift = all_skipped(clock);
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
            if let Some((low, _)) = step.joined.filter(|(low, high)| (*low..=*high).contains(&at)) {
                // Until it was set back, the clock ran as usual. How time passed between joined steps is unknown.
                let shown_on = if low == step.before { at.since(low) } else { Duration::ZERO };
                return moment(start).after(shown_on).min(moment(end).max(moment(start)));
            }
            (shift, end) = (shift.saturating_sub(skipped(step)), step.before);
        }
    }
    behind.unwrap_or_default()
}

/// The moment of a past time. A time a little later than `now` that no earlier stretch contains dates from before an
/// adjustment of the clock that was too small to be recorded. Its moment is then after that of `now`, so that such
/// times keep their order.
pub fn moment_of(clock: &Clock, at: Timestamp, now: Timestamp) -> Moment {
    let moment = moment_by(clock, at, now);
    let is_adjusted = at > now && at.since(now) < STEP && moment == moment_by(clock, now, now);
    if is_adjusted { moment_by(clock, at, at) } else { moment }
}

/// As [`moment_of`]; if the wall clock showed the time more than once, the moment that is nearest to `other`.
pub(crate) fn moment_near(clock: &Clock, at: Timestamp, now: Timestamp, other: Moment) -> Moment {
    let told = moment_of(clock, at, now);
    let shown = stretches(clock, moment_by(clock, now, now)).filter_map(|stretch| stretch.shown(at));
    std::iter::once(told).chain(shown).min_by_key(|moment| moment.0.abs_diff(other.0)).unwrap_or(told)
}

/// The first moment at which the wall clock showed a time; `None` if it is not known to have shown it until `now`.
pub(crate) fn first_moment(clock: &Clock, at: Timestamp, now: Timestamp) -> Option<Moment> {
    let steps = clock.steps.iter().rev().map(Some).chain([None]);
    let known = stretches(clock, moment_by(clock, now, now)).zip(steps).filter_map(|(stretch, step)| {
        let joined = step.and_then(|step| step.joined).filter(|(low, high)| (*low..=*high).contains(&at));
        joined.map(|_| Moment(stretch.begins)).or_else(|| stretch.shown(at))
    });
    known.last()
}

/// Returns the step between an earlier reading of the wall clock and the current one, with `passed` of time awake in
/// between. When the clock was set is unknown, and times were recorded before and after that. The step is dated so
/// that nothing is taken for older than it is: a clock that was set back counts as set right after the earlier reading
/// (and may have shown its former time until now), and any other clock as set just now.
fn dated(last: Timestamp, passed: Duration, now: Timestamp) -> ClockStep {
    let expected = last.after(passed);
    match now.0.checked_sub(millis(passed)) {
        Some(back) if now < expected => {
            ClockStep { joined: Some((last, expected)), ..ClockStep::new(last, Timestamp(back)) }
        }
        _ => ClockStep::new(expected, now),
    }
}

fn stepped(clock: &Clock, step: ClockStep, now: Reading) -> (Clock, ClockStep) {
    let mut steps = clock.steps.clone();
    steps.push(step);
    if steps.len() > STEPS_MAX {
        join(&mut steps);
    }
    (Clock { steps, ..refreshed(clock, clock.seq, now) }, step)
}

/// Joins the two steps between which the least time passed. That time is no part of any age from then on.
fn join(steps: &mut Vec<ClockStep>) {
    let between = |pair: &[ClockStep]| pair[1].before.since(pair[0].after);
    let Some(first) = (0..steps.len() - 1).min_by_key(|n| between(&steps[*n..*n + 2])) else { return };
    let second = steps.remove(first + 1);
    let first = &mut steps[first];
    let between = (first.after.min(second.before), first.after.max(second.before));
    let shown = [Some(between), first.joined, second.joined];
    first.joined = shown.into_iter().flatten().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    first.after = second.after;
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
