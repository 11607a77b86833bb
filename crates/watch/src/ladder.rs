//! By which means tmux is watched: the best that work, and when the next try is due. Knows what was
//! tried and what came of it, and no clock.

use std::time::Duration;

use protocol::tmux::Means;
use tokio::time::Instant;

/// The time before a lost connection is tried again: at once, then so long, doubling.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// A connection that lasted this long worked; the next loss starts the waiting anew.
const SETTLED: Duration = Duration::from_secs(2);
/// At least so long between two control clients: before tmux 3.7 each one that attaches may end the
/// server, if anything changes in that moment.
const CONTROL: Duration = Duration::from_secs(30);
/// How long lesser means are kept before the best are tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many times in a row native connections must fail on a server that does answer.
const REFUSALS: u8 = 2;

/// By which means to watch.
#[derive(Debug)]
pub(crate) struct Ladder {
    forced: Option<Means>,
    own: bool,
    /// The best that is thought to work.
    rung: Means,
    /// Native connections that were refused, in a row, where the server answers a listing.
    refusals: u8,
    /// Whether a listing is to tell if the server answers at all.
    probe: bool,
    pause: Duration,
    due: Instant,
    control_due: Instant,
    best_due: Instant,
    opened: Option<(Means, Instant)>,
}

impl Ladder {
    /// Nothing was tried. On a server that is not the pool's `own` there is no control client.
    pub(crate) fn new(forced: Option<Means>, own: bool, now: Instant) -> Self {
        Self {
            forced,
            own,
            rung: Means::Native,
            refusals: 0,
            probe: false,
            pause: Duration::ZERO,
            due: now,
            control_due: now,
            best_due: now,
            opened: None,
        }
    }

    /// What to try when the next try is due.
    pub(crate) fn next(&mut self, now: Instant) -> Means {
        if self.forced.is_none() && self.rung != Means::Native && now >= self.best_due {
            (self.rung, self.refusals) = (Means::Native, 0);
        }
        let wanted = self.forced.unwrap_or(self.rung);
        let barred = wanted == Means::Control && (!self.own || now < self.control_due);
        if barred || (self.probe && self.forced.is_none()) { Means::Listings } else { wanted }
    }

    /// When the next try is due, where there is no connection.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// The next try is due now.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.due = now;
    }

    /// The next listing is due then.
    pub(crate) fn list_at(&mut self, due: Instant) {
        self.due = due;
    }

    /// There is a connection.
    pub(crate) fn opened(&mut self, means: Means, now: Instant) {
        self.opened = Some((means, now));
    }

    /// Nothing listens there.
    pub(crate) fn no_server(&mut self, now: Instant) {
        (self.refusals, self.probe) = (0, false);
        self.wait(now);
    }

    /// The connection was of use: something was learnt by it.
    pub(crate) fn useful(&mut self) {
        self.refusals = 0;
    }

    /// Nothing came in time: that says nothing of the means.
    pub(crate) fn timed_out(&mut self, means: Means, now: Instant) {
        let refusals = self.refusals;
        self.failed(means, now);
        if means == Means::Native {
            self.refusals = refusals;
        }
    }

    /// These means failed for another reason than that nothing listens or that nothing came in time.
    pub(crate) fn failed(&mut self, means: Means, now: Instant) {
        match means {
            Means::Native => {
                self.refusals = self.refusals.saturating_add(1);
                self.probe = true;
            }
            Means::Control => {
                self.control_due = now + CONTROL;
                self.step_down(Means::Listings, now);
            }
            Means::Listings => (self.refusals, self.probe) = (0, false),
        }
        self.wait(now);
    }

    /// A listing was taken: the server does answer.
    pub(crate) fn listed(&mut self, now: Instant) {
        self.pause = Duration::ZERO;
        if std::mem::take(&mut self.probe) && self.refusals >= REFUSALS {
            self.step_down(if self.own { Means::Control } else { Means::Listings }, now);
        }
    }

    /// Whether only listings are to be had for now.
    pub(crate) fn lists(&mut self, now: Instant) -> bool {
        self.next(now) == Means::Listings
    }

    /// The connection is over; it was `useful` if something was learnt by it.
    pub(crate) fn lost(&mut self, useful: bool, now: Instant) {
        let Some((means, opened)) = self.opened.take() else { return };
        if means == Means::Control {
            self.control_due = now + CONTROL;
        }
        if useful && now.duration_since(opened) >= SETTLED {
            self.pause = Duration::ZERO;
        }
        if useful { self.wait(now) } else { self.failed(means, now) }
    }

    fn step_down(&mut self, rung: Means, now: Instant) {
        tracing::warn!(to = rung.word(), from = self.rung.word(), "tmux is watched by lesser means");
        (self.rung, self.best_due) = (rung, now + PATIENCE);
    }

    fn wait(&mut self, now: Instant) {
        self.due = now + self.pause;
        self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_tried_again_at_once_and_then_ever_later() {
        let now = Instant::now();
        let mut ladder = Ladder::new(None, true, now);
        let mut pauses = || {
            ladder.opened(Means::Native, now);
            ladder.lost(true, now);
            (ladder.due() - now).as_millis()
        };
        let found: Vec<u128> = (0..8).map(|_| pauses()).collect();
        assert_eq!(found, [0, 50, 100, 200, 400, 800, 1600, 2000]);
        ladder.opened(Means::Native, now);
        ladder.lost(true, now + SETTLED);
        assert_eq!(ladder.due(), now + SETTLED, "it had worked");
    }

    #[test]
    fn native_fails_twice_on_an_answering_server_before_lesser_means_are_used() {
        let now = Instant::now();
        for (own, lesser) in [(true, Means::Control), (false, Means::Listings)] {
            let mut ladder = Ladder::new(None, own, now);
            for _ in 0..REFUSALS {
                assert_eq!(ladder.next(now), Means::Native);
                ladder.failed(Means::Native, now);
                assert_eq!(ladder.next(now), Means::Listings, "does it answer at all?");
                ladder.listed(now);
            }
            assert_eq!(ladder.next(now), lesser);
            assert_eq!(ladder.next(now + PATIENCE), Means::Native, "again, some time");
        }
    }

    #[test]
    fn only_refusals_in_a_row_speak_against_native_connections() {
        let now = Instant::now();
        let mut ladder = Ladder::new(None, true, now);
        for _ in 0..5 {
            ladder.failed(Means::Native, now);
            ladder.listed(now);
            ladder.opened(Means::Native, now);
            ladder.useful();
            ladder.lost(true, now);
            assert_eq!(ladder.next(now), Means::Native, "it worked in between");
        }
        for _ in 0..5 {
            ladder.timed_out(Means::Native, now);
            ladder.listed(now);
            assert_eq!(ladder.next(now), Means::Native, "it may be slow");
        }
    }

    #[test]
    fn a_silent_server_says_nothing_of_the_means() {
        let now = Instant::now();
        let mut ladder = Ladder::new(None, true, now);
        for _ in 0..5 {
            ladder.failed(Means::Native, now);
            assert_eq!(ladder.next(now), Means::Listings);
            ladder.failed(Means::Listings, now);
            assert_eq!(ladder.next(now), Means::Native);
            ladder.no_server(now);
            assert_eq!(ladder.next(now), Means::Native);
        }
    }

    #[test]
    fn control_clients_are_far_apart() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Some(Means::Control), true, now);
        for n in 0..4 {
            let now = now + CONTROL * n;
            assert_eq!(ladder.next(now), Means::Control);
            ladder.opened(Means::Control, now);
            ladder.lost(true, now);
            assert_eq!(ladder.next(now + CONTROL / 2), Means::Listings);
        }
        assert_eq!(Ladder::new(Some(Means::Control), false, now).next(now), Means::Listings);
    }

    #[test]
    fn what_is_forced_is_tried() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Some(Means::Native), true, now);
        (0..9).for_each(|_| ladder.failed(Means::Native, now));
        assert_eq!(ladder.next(now), Means::Native);
        assert!(Ladder::new(Some(Means::Listings), true, now).lists(now));
    }
}
