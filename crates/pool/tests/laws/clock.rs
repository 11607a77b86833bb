//! Ages over clocks that are set and machines that sleep.

use std::time::Duration;

use pool::clock::{OFF_MAX, Reading, STEP};
use pool::{QueueRules, clock, queue};
use proptest::prelude::*;
use protocol::clock::{Clock, ClockStep};
use protocol::{Event, OpId, Seq, Timestamp};

use crate::queue::{asked, send};
use crate::world::{World, server};

const HOUR: u64 = 3_600_000;

const HOUR_MS: i64 = 3_600_000;

/// A step of the wall clock, or none.
fn any_step() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0_i64), 2 => 0..90 * HOUR_MS, 1 => -90 * HOUR_MS..0]
}

/// A step of hours, or none.
fn step_of_hours() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0_i64), 2 => HOUR_MS..90 * HOUR_MS, 1 => -90 * HOUR_MS..-HOUR_MS]
}

/// A machine whose wall clock can be set.
struct Machine {
    clock: Clock,
    last: Reading,
    /// The time that has really passed.
    real: u64,
}

impl Machine {
    fn new(wall: u64) -> Self {
        let last = Reading { wall: Timestamp(wall), awake_ms: 1000 };
        Self { clock: clock::at_start(&Clock::default(), false, None, last).0, last, real: 0 }
    }

    /// Lets time pass, and sets the clock meanwhile.
    fn passes(&mut self, ms: u64, set_by: i64) {
        self.real += ms;
        let wall = Timestamp((self.last.wall.0 + ms).saturating_add_signed(set_by));
        let now = Reading { wall, awake_ms: self.last.awake_ms + ms };
        if let Some((clock, _)) = clock::step(&self.clock, self.last, now) {
            self.clock = clock;
        }
        self.last = now;
    }

    fn age(&self, at: u64) -> u64 {
        u64::try_from(clock::age(&self.clock, self.last.wall, Timestamp(at)).as_millis()).unwrap()
    }
}

#[test]
fn a_clock_that_is_set_forward_and_a_sleep_make_nothing_older() {
    let mut machine = Machine::new(10 * HOUR);
    machine.passes(HOUR, 0);
    machine.passes(1000, i64::try_from(48 * HOUR).unwrap());
    assert_eq!((machine.age(10 * HOUR), machine.age(11 * HOUR)), (HOUR + 1000, 1000));
    machine.passes(500, 0);
    assert_eq!(machine.age(59 * HOUR + 1000), 500);
    // The time of a file from then.
    assert_eq!(machine.age(20 * HOUR), 500, "while it slept");
    assert_eq!(machine.age(100 * HOUR), 0, "in the future");
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_older() {
    let mut machine = Machine::new(10 * HOUR);
    machine.passes(2 * HOUR, 0);
    machine.passes(1000, -i64::try_from(HOUR).unwrap());
    machine.passes(2000, 0);
    assert_eq!(machine.age(11 * HOUR + 1500), 1500, "before or after it was set back: the later counts");
    assert_eq!(machine.age(11 * HOUR + 500), 2500, "perhaps after it, and before that was noticed");
    assert_eq!(machine.age(11 * HOUR - 500), HOUR + 3500, "said only before");
    assert_eq!(machine.age(10 * HOUR), 2 * HOUR + 3000);
    // The clock was a year ahead.
    let mut machine = Machine::new(9000 * HOUR);
    machine.passes(HOUR, -i64::try_from(8760 * HOUR).unwrap());
    assert_eq!(machine.age(9000 * HOUR), HOUR);
}

#[test]
fn what_the_clock_is_adjusted_by_is_no_step() {
    let mut machine = Machine::new(HOUR);
    let least = i64::try_from(STEP.as_millis()).unwrap();
    machine.passes(1000, least - 1);
    assert_eq!(machine.clock.steps, []);
    machine.passes(1000, least);
    assert_eq!(machine.clock.steps.len(), 1);
}

#[test]
fn a_restart_of_the_daemon_goes_on_with_the_same_clock_and_one_of_the_machine_adds_little() {
    let read = Reading { wall: Timestamp(10 * HOUR), awake_ms: HOUR };
    let (first, _) = clock::at_start(&Clock::default(), false, None, read);
    let start = |same_boot, known, wall, awake_ms| {
        let now = Reading { wall: Timestamp(wall), awake_ms };
        let (clock, _) = clock::at_start(&first, same_boot, Some((Seq(1), Timestamp(known))), now);
        clock::age(&clock, now.wall, Timestamp(10 * HOUR)).as_millis()
    };
    assert_eq!(OFF_MAX * 2, pool::queue::KEEP_RANDOM, "answers of the last minutes before are known");
    let off = OFF_MAX.as_millis();
    let hour = u128::from(HOUR);
    assert_eq!(start(true, 11 * HOUR, 12 * HOUR, 3 * HOUR), 2 * hour, "nothing happened to the clock");
    assert_eq!(start(true, 11 * HOUR, 99 * HOUR, 3 * HOUR), 2 * hour, "set while no daemon ran");
    assert_eq!(start(true, 11 * HOUR, 2 * HOUR, 3 * HOUR), 2 * hour, "set back while no daemon ran");
    assert_eq!(start(false, 11 * HOUR, 11 * HOUR + 60_000, 5000), hour + 60_000, "the machine restarted");
    assert_eq!(
        start(false, 11 * HOUR, 99 * HOUR, 5000),
        hour + off,
        "it was off for days, or its clock is wrong"
    );
    assert_eq!(start(false, 11 * HOUR, 5, 5000), hour, "its clock has no battery");
    assert_eq!(start(true, 11 * HOUR, 99 * HOUR, 5000), hour + off, "the boot's name is not known");
}

#[test]
fn an_event_of_before_the_clock_was_set_back_says_nothing_of_how_long_the_machine_was_off() {
    let read = Reading { wall: Timestamp(100 * HOUR), awake_ms: HOUR };
    let (first, _) = clock::at_start(&Clock::default(), false, None, read);
    // The clock was two days ahead.
    let back = Reading { wall: Timestamp(52 * HOUR), awake_ms: HOUR + 1000 };
    let (set, _) = clock::step(&first, read, back).unwrap();
    let set = Clock { seq: Seq(7), ..set };
    let restart = Reading { wall: Timestamp(53 * HOUR), awake_ms: 10 };
    let (clock, _) = clock::at_start(&set, false, Some((Seq(7), Timestamp(100 * HOUR))), restart);
    let age = clock::age(&clock, restart.wall, Timestamp(52 * HOUR));
    assert_eq!(age, OFF_MAX, "it was off for that long at most");
}

#[test]
fn the_latest_is_what_happened_last_and_not_the_greatest_number() {
    let mut machine = Machine::new(10 * HOUR);
    machine.passes(2 * HOUR, 0);
    machine.passes(0, -HOUR_MS);
    machine.passes(1000, 0);
    let (before, after) = (Timestamp(11 * HOUR + HOUR / 2), Timestamp(11 * HOUR + 500));
    assert_eq!(clock::latest(&machine.clock, machine.last.wall, [before, after]), Some(after));
    assert_eq!(
        clock::latest(&Clock::default(), Timestamp(5), [Timestamp(9), Timestamp(3)]),
        Some(Timestamp(9))
    );
}

#[test]
fn the_time_so_long_ago_is_behind_all_that_is_younger() {
    let mut machine = Machine::new(10 * HOUR);
    machine.passes(HOUR, i64::try_from(100 * HOUR).unwrap());
    machine.passes(HOUR, 0);
    let ago =
        |machine: &Machine, ms| clock::ago(&machine.clock, machine.last.wall, Duration::from_millis(ms)).0;
    assert_eq!(
        (ago(&machine, HOUR / 2), ago(&machine, HOUR + 1000)),
        (111 * HOUR + HOUR / 2, 11 * HOUR - 1000)
    );
    machine.passes(1000, -i64::try_from(100 * HOUR).unwrap());
    assert_eq!(ago(&machine, HOUR), 12 * HOUR - 1, "111 hours by then, and all later was shown since");
}

/// A time that the clock showed before it was set back is not taken for one of an adjustment.
#[test]
fn a_time_a_little_later_than_now_is_of_the_last_stretch_unless_an_earlier_one_contains_it() {
    let mut machine = Machine::new(10 * HOUR);
    machine.passes(1000, HOUR_MS);
    machine.passes(1000, 0);
    machine.passes(1000, -HOUR_MS);
    let now = machine.last.wall;
    let moment = |at| clock::moment_of(&machine.clock, Timestamp(at), now);
    assert!(moment(now.0 - 1) < moment(now.0));
    assert!(moment(now.0) < moment(now.0 + 300), "adjusted by half a second");
    assert!(moment(11 * HOUR + 1500) < moment(now.0), "shown before the step back");
    let now = Timestamp(11 * HOUR + 1200);
    let before = clock::moment_of(&machine.clock, Timestamp(11 * HOUR + 1500), now);
    assert!(before < clock::moment_of(&machine.clock, now, now), "and now nearly shown again");
}

/// The beginning of an observation stays before a change that came later, over a step of the clock in between.
#[test]
fn the_time_so_long_ago_is_not_after_a_step_that_came_since() {
    for set_by in [3_600_000, 36_000, -36_000, -3_600_000] {
        let mut machine = Machine::new(10 * HOUR);
        machine.passes(HOUR, 0);
        machine.passes(40, 0);
        let between = machine.last.wall;
        machine.passes(30, set_by);
        machine.passes(20, 0);
        let began = clock::ago(&machine.clock, machine.last.wall, Duration::from_millis(60));
        let moment = |at| clock::moment_by(&machine.clock, at, machine.last.wall);
        assert!(moment(began) < moment(between), "{set_by}: {began:?} is before {between:?}");
    }
}

/// A stamp between two steps in quick succession, of which the second is recorded only after the stamp.
#[test]
fn a_stamp_of_just_after_a_step_that_was_recorded_later_is_not_taken_for_an_earlier_one() {
    let mut machine = Machine::new(10 * HOUR);
    machine.passes(HOUR, HOUR_MS);
    machine.passes(400, 0);
    let first = machine.last;
    machine.passes(60, -HOUR_MS / 2);
    let second = Reading { wall: Timestamp(machine.last.wall.0 - 8), awake_ms: machine.last.awake_ms - 8 };
    let moment =
        |stamp: Reading| clock::stamped(&machine.clock, machine.last, stamp.wall, Some(stamp.awake_ms)).1;
    assert_eq!(moment(first).until(moment(second)), Duration::from_millis(52));
}

proptest! {
    /// Stamps of other processes are in the order in which they were made, even if nobody recorded that the clock was
    /// wrong at some of them, or if it was recorded only later that the clock had just been set.
    #[test]
    fn stamps_are_in_their_real_order(
        stamps in proptest::collection::vec((1..HOUR, step_of_hours(), step_of_hours(), 0..2000_u64), 1..40)
    ) {
        let mut machine = Machine::new(1000 * HOUR);
        let mut made = Vec::new();
        for (passed, set_by, error, unrecorded) in stamps {
            machine.passes(passed + unrecorded, set_by);
            let at = Timestamp((machine.last.wall.0 - unrecorded).saturating_add_signed(error));
            made.push((at, machine.last.awake_ms - unrecorded, error != 0));
        }
        let stamped = |at, awake| clock::stamped(&machine.clock, machine.last, at, Some(awake));
        for (index, (at, awake, is_wrong)) in made.iter().enumerate() {
            let (time, moment) = stamped(*at, *awake);
            let limit = STEP + Duration::from_millis(machine.real / 1000);
            for (later_at, later_awake, is_later_wrong) in &made[index + 1..] {
                // A wrong time may be one that the clock showed shortly before or after.
                if !is_wrong && !is_later_wrong || Duration::from_millis(later_awake - awake) > 2 * limit {
                    prop_assert!(moment < stamped(*later_at, *later_awake).1);
                }
            }
            let stored = clock::moment_of(&machine.clock, time, machine.last.wall);
            prop_assert!(stored >= moment, "a stored time is not taken for an earlier one");
        }
    }

    /// No time counts as older than it really is, and the recorded steps stay few, whatever happens to the clock.
    #[test]
    fn nothing_is_older_than_it_is(
        moves in proptest::collection::vec((1_u64..5 * HOUR, any_step()), 1..40)
    ) {
        let mut machine = Machine::new(100_000 * HOUR);
        let mut stamps = vec![(machine.last.wall.0, machine.real)];
        for (ms, set_by) in moves {
            machine.passes(ms, set_by);
            for (wall, real) in &stamps {
                let (age, really) = (machine.age(*wall), machine.real - real);
                // Smaller differences than a step are not noticed.
                let unnoticed = 1000 * stamps.len() as u64;
                prop_assert!(age <= really + unnoticed, "{age} > {really}");
            }
            stamps.push((machine.last.wall.0, machine.real));
        }
    }

    /// More steps than are kept: what was shown between two that became one is no older than it is, and no younger than
    /// the last step unless the clock showed that time since.
    #[test]
    fn what_was_shown_between_joined_steps_counts_at_the_step(
        moves in proptest::collection::vec((1_u64..10_000, step_of_hours()), 300..400)
    ) {
        let mut machine = Machine::new(1_000_000 * HOUR);
        let mut stamps = vec![];
        for (ms, set_by) in moves {
            machine.passes(ms, set_by);
            stamps.push((machine.last.wall.0, machine.real));
        }
        let (last, now) = (machine.clock.steps.last().unwrap().after, machine.last.wall);
        for (wall, real) in &stamps {
            let (age, really) = (machine.age(*wall), machine.real - real);
            prop_assert!(age <= really, "{age} > {really}");
            let is_of_last = (last..=now).contains(&Timestamp(*wall));
            let stretch = now.0 - last.0;
            prop_assert!(is_of_last || age >= stretch, "{age} < {stretch}");
            let ago = clock::ago(&machine.clock, now, Duration::from_millis(age + 1));
            prop_assert!(ago.0 <= *wall, "{age} old, and before {ago:?}");
        }
    }

    /// A laptop that sleeps every hour for years.
    #[test]
    fn many_sleeps_are_remembered_as_few(
        naps in proptest::collection::vec((60_000_u64..HOUR, 1000..9 * HOUR), 200..400),
    ) {
        let mut machine = Machine::new(HOUR);
        let mut stamps = vec![];
        for (ms, slept) in naps {
            machine.passes(ms, i64::try_from(slept).unwrap());
            stamps.push((machine.last.wall.0, machine.real));
        }
        prop_assert!(machine.clock.steps.len() <= 128);
        for (wall, real) in &stamps {
            let (age, really) = (machine.age(*wall), machine.real - real);
            prop_assert!(age <= really, "{age} > {really}");
        }
        // The shortest naps are left out.
        let age = machine.age(HOUR);
        prop_assert!(age >= machine.real / 4, "{age} is much less than {}", machine.real);
    }

    #[test]
    fn a_moment_is_a_time_of_the_wall_clock(at in 0..200 * HOUR, ahead in 0..HOUR) {
        let steps = vec![ClockStep::new(Timestamp(5 * HOUR), Timestamp(50 * HOUR))];
        let clock = Clock { steps, ..Clock::default() };
        let moment = clock::moment(&clock, Timestamp(at)).after(Duration::from_millis(ahead));
        if at >= 50 * HOUR {
            prop_assert_eq!(clock::wall(&clock, moment), Timestamp(at + ahead));
        }
    }
}

#[test]
fn a_message_has_its_time_whatever_the_clock_said_when_it_was_queued() {
    let hour = Duration::from_millis(HOUR);
    let mut world = World { now: 100 * HOUR, ..World::default() };
    let session = world.live("s", server(1), 1);
    let sending = protocol::request::Send { ttl_ms: Some(HOUR), ..asked(session, "job") };
    send(&mut world, &QueueRules::default(), &sending, &OpId::Named("a".into())).unwrap();
    let expired = |world: &World, now: Timestamp| queue::expired(&world.pool, now).len();
    // The clock was two days ahead. The daemon restarts after that, and loads the message again.
    let back = Timestamp(52 * HOUR);
    let steps = vec![ClockStep::new(Timestamp(100 * HOUR), back)];
    let clock = Event::ClockRead(Clock { read_at: back, steps, ..Clock::default() });
    world.emit(clock.clone());
    let mut anew = World { pool: world.rebuilt(), ..World::default() };
    anew.emit(clock);
    for world in [&world, &anew] {
        let soon = back.after(hour).0 - 1;
        assert_eq!((expired(world, Timestamp(soon)), expired(world, back.after(hour))), (0, 1));
    }
}

#[test]
fn of_a_time_that_the_clock_showed_twice_the_moment_next_to_the_report_counts() {
    // At 100 s since the start, the clock was set back: by 12 s, and by an hour.
    for back in [12_000, HOUR] {
        let begin = 10 * HOUR;
        let at = |awake_ms: u64| Timestamp(begin + awake_ms - if awake_ms < 100_000 { 0 } else { back });
        let steps = vec![ClockStep::new(Timestamp(begin + 100_000), at(100_000))];
        let now = Reading { wall: at(130_000), awake_ms: 130_000 };
        let mut world = World { now: now.wall.0, ..World::default() };
        world.emit(Event::ClockRead(Clock {
            read_at: now.wall,
            awake_ms: now.awake_ms,
            steps,
            ..Clock::default()
        }));
        let is_before = |report: u64, record: u64| {
            let (_, moment) = clock::stamped(world.pool.clock(), now, at(report), Some(report));
            pool::agent::is_before(&world.pool, (moment, now.wall), at(record))
        };
        for (earlier, later) in [(95_000, 97_000), (101_500, 103_000), (96_000, 101_000), (120_000, 121_000)]
        {
            assert!(is_before(earlier, later), "{earlier} {later} {back}");
            assert!(!is_before(later, earlier), "{later} {earlier} {back}");
        }
    }
}

#[test]
fn a_record_ahead_of_all_that_the_clock_is_known_to_have_shown_makes_no_report_late() {
    // Within half a second, the clock was set forward and back, and the daemon ended.
    let (expected, now) = (Timestamp(10 * HOUR), Timestamp(10 * HOUR + HOUR / 3));
    let record = Timestamp(11 * HOUR);
    let mut world = World { now: now.0, ..World::default() };
    let steps = vec![ClockStep::new(expected, now)];
    world.emit(Event::ClockRead(Clock { read_at: now, awake_ms: 50_000, steps, ..Clock::default() }));
    let later = Reading { wall: now.after(Duration::from_millis(30)), awake_ms: 50_030 };
    let (_, moment) =
        clock::stamped(world.pool.clock(), later, now.after(Duration::from_millis(10)), Some(50_010));
    assert!(!pool::agent::is_before(&world.pool, (moment, later.wall), record));
}

#[test]
fn what_was_before_the_clock_was_set_back_is_earlier_than_what_came_after() {
    let mut world = World { now: 9 * HOUR, ..World::default() };
    let (started_at, back) = (Timestamp(10 * HOUR), Timestamp(8 * HOUR));
    let steps = vec![ClockStep::new(started_at.after(Duration::from_secs(60)), back)];
    world.emit(Event::ClockRead(Clock { read_at: back, steps, ..Clock::default() }));
    let suspended_at = back.after(Duration::from_secs(20));
    let now = suspended_at.after(Duration::from_secs(5));
    assert!(world.pool.is_earlier(now, started_at, suspended_at));
    assert!(!world.pool.is_earlier(now, suspended_at, started_at));
    let a_moment_later = now.after(Duration::from_millis(3));
    assert!(
        world.pool.is_earlier(now, suspended_at, a_moment_later)
            && world.pool.is_earlier(now, now, a_moment_later)
    );
}

#[test]
fn what_was_written_before_a_step_back_was_noticed_is_no_older_than_it_is() {
    // Set back by an hour, and noticed half a second later.
    let mut machine = Machine::new(12 * HOUR);
    machine.passes(1000, 0);
    machine.passes(500, -HOUR_MS);
    machine.passes(5000, 0);
    assert_eq!(machine.age(11 * HOUR + 1200), 5300, "a file that was written in between");
    // Set back while no daemon ran, 50 minutes before it starts.
    let first = Reading { wall: Timestamp(12 * HOUR), awake_ms: HOUR };
    let (known, _) = clock::at_start(&Clock::default(), false, None, first);
    let now = Reading { wall: Timestamp(11 * HOUR + 50 * 60_000), awake_ms: HOUR + 50 * 60_000 };
    let (clock, step) = clock::at_start(&known, true, None, now);
    let (before, after) = step.map(|step| (step.before, step.after)).unwrap();
    assert_eq!((before, after), (first.wall, Timestamp(11 * HOUR)));
    let age = |at: u64| clock::age(&clock, now.wall, Timestamp(at));
    assert_eq!(age(now.wall.0 - 10_000), Duration::from_secs(10));
    assert_eq!(age(12 * HOUR + 20 * 60_000), Duration::from_secs(30 * 60), "shown before it was set back");
}

#[test]
fn a_time_that_is_ahead_by_an_adjustment_has_no_age() {
    let mut machine = Machine::new(12 * HOUR);
    machine.passes(HOUR, -HOUR_MS);
    machine.passes(HOUR / 2, 0);
    let at = machine.last.wall.0;
    machine.passes(100, -800);
    assert_eq!(machine.age(at), 0, "it is no hour old");
}
