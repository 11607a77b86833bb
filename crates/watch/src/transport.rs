//! Choice of the transport: the best one that works, and the time of the next attempt. Time is passed in;
//! there is no clock here.

use std::time::Duration;

use protocol::tmux::TmuxTransport;
use tokio::time::Instant;

/// First and longest pause before reconnecting, after a first attempt without a pause; they double.
const RECONNECT_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Life of a connection after which it counts as stable, and its loss restarts the back-off.
const STABLE: Duration = Duration::from_secs(2);
/// Minimum time between two control clients: before tmux 3.7 each one that attaches may crash the server,
/// if anything changes in that moment.
const CONTROL_INTERVAL: Duration = Duration::from_secs(30);
/// Time on a lesser transport before the best is tried again.
const FALLBACK_TIME: Duration = Duration::from_secs(60);
/// Number of consecutive failures of native connections, on a server that answers, before the fallback.
const MAX_REFUSALS: u8 = 2;

/// Choice of the transport.
#[derive(Debug)]
pub(crate) struct TransportPolicy {
    forced: Option<TmuxTransport>,
    own: bool,
    /// Best transport that is thought to work.
    best: TmuxTransport,
    /// Consecutive refusals of native connections by a server that answers listings.
    refusals: u8,
    /// True if a listing is to tell whether the server answers at all.
    probe_listing: bool,
    pause: Duration,
    due: Instant,
    control_allowed_at: Instant,
    retry_best_at: Instant,
    opened: Option<(TmuxTransport, Instant)>,
}

impl TransportPolicy {
    /// Creates the initial policy. A server that is not the pool's `own` never gets a control client.
    pub(crate) fn new(forced: Option<TmuxTransport>, own: bool, now: Instant) -> Self {
        Self {
            forced,
            own,
            best: TmuxTransport::Native,
            refusals: 0,
            probe_listing: false,
            pause: Duration::ZERO,
            due: now,
            control_allowed_at: now,
            retry_best_at: now,
            opened: None,
        }
    }

    /// Returns the transport of the next attempt.
    pub(crate) fn choose(&mut self, now: Instant) -> TmuxTransport {
        if self.forced.is_none() && self.best != TmuxTransport::Native && now >= self.retry_best_at {
            (self.best, self.refusals) = (TmuxTransport::Native, 0);
        }
        let preferred = self.forced.unwrap_or(self.best);
        let barred = preferred == TmuxTransport::Control && (!self.own || now < self.control_allowed_at);
        if barred || (self.probe_listing && self.forced.is_none()) {
            TmuxTransport::Listings
        } else {
            preferred
        }
    }

    /// Time of the next attempt while disconnected.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Makes the next attempt due now.
    pub(crate) fn retry_now(&mut self, now: Instant) {
        self.due = now;
    }

    /// Sets the time of the next listing.
    pub(crate) fn schedule_listing(&mut self, due: Instant) {
        self.due = due;
    }

    /// Records an opened connection.
    pub(crate) fn opened(&mut self, transport: TmuxTransport, now: Instant) {
        self.opened = Some((transport, now));
    }

    /// Records that nothing listens.
    pub(crate) fn no_server(&mut self, now: Instant) {
        (self.refusals, self.probe_listing) = (0, false);
        self.back_off(now);
    }

    /// Records that the connection delivered data.
    pub(crate) fn useful(&mut self) {
        self.refusals = 0;
    }

    /// Records a timeout, which does not speak against the transport.
    pub(crate) fn timed_out(&mut self, transport: TmuxTransport, now: Instant) {
        let refusals = self.refusals;
        self.failed(transport, now);
        if transport == TmuxTransport::Native {
            self.refusals = refusals;
        }
    }

    /// Records any other failure of this transport.
    pub(crate) fn failed(&mut self, transport: TmuxTransport, now: Instant) {
        match transport {
            TmuxTransport::Native => {
                self.refusals = self.refusals.saturating_add(1);
                self.probe_listing = true;
            }
            TmuxTransport::Control => {
                self.control_allowed_at = now + CONTROL_INTERVAL;
                self.fall_back(TmuxTransport::Listings, now);
            }
            TmuxTransport::Listings => (self.refusals, self.probe_listing) = (0, false),
        }
        self.back_off(now);
    }

    /// Records a listing: the server does answer.
    pub(crate) fn listed(&mut self, now: Instant) {
        self.pause = Duration::ZERO;
        if std::mem::take(&mut self.probe_listing) && self.refusals >= MAX_REFUSALS {
            self.fall_back(if self.own { TmuxTransport::Control } else { TmuxTransport::Listings }, now);
        }
    }

    /// True if the next attempt is a listing.
    pub(crate) fn uses_listings(&mut self, now: Instant) -> bool {
        self.choose(now) == TmuxTransport::Listings
    }

    /// Records the end of the connection; `useful` if it delivered data.
    pub(crate) fn lost(&mut self, useful: bool, now: Instant) {
        let Some((transport, opened)) = self.opened.take() else { return };
        if transport == TmuxTransport::Control {
            self.control_allowed_at = now + CONTROL_INTERVAL;
        }
        if useful && now.duration_since(opened) >= STABLE {
            self.pause = Duration::ZERO;
        }
        if useful { self.back_off(now) } else { self.failed(transport, now) }
    }

    fn fall_back(&mut self, best: TmuxTransport, now: Instant) {
        tracing::warn!(
            to = best.as_str(),
            from = self.best.as_str(),
            "falling back to a lesser transport to tmux"
        );
        (self.best, self.retry_best_at) = (best, now + FALLBACK_TIME);
    }

    fn back_off(&mut self, now: Instant) {
        self.due = now + self.pause;
        self.pause = (self.pause * 2).clamp(RECONNECT_PAUSE.0, RECONNECT_PAUSE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_tried_again_at_once_and_then_ever_later() {
        let now = Instant::now();
        let mut policy = TransportPolicy::new(None, true, now);
        let mut pauses = || {
            policy.opened(TmuxTransport::Native, now);
            policy.lost(true, now);
            (policy.due() - now).as_millis()
        };
        let found: Vec<u128> = (0..8).map(|_| pauses()).collect();
        assert_eq!(found, [0, 50, 100, 200, 400, 800, 1600, 2000]);
        policy.opened(TmuxTransport::Native, now);
        policy.lost(true, now + STABLE);
        assert_eq!(policy.due(), now + STABLE, "it had worked");
    }

    #[test]
    fn native_fails_twice_on_an_answering_server_before_lesser_means_are_used() {
        let now = Instant::now();
        for (own, lesser) in [(true, TmuxTransport::Control), (false, TmuxTransport::Listings)] {
            let mut policy = TransportPolicy::new(None, own, now);
            for _ in 0..MAX_REFUSALS {
                assert_eq!(policy.choose(now), TmuxTransport::Native);
                policy.failed(TmuxTransport::Native, now);
                assert_eq!(policy.choose(now), TmuxTransport::Listings, "does it answer at all?");
                policy.listed(now);
            }
            assert_eq!(policy.choose(now), lesser);
            assert_eq!(policy.choose(now + FALLBACK_TIME), TmuxTransport::Native, "again, some time");
        }
    }

    #[test]
    fn only_refusals_in_a_row_speak_against_native_connections() {
        let now = Instant::now();
        let mut policy = TransportPolicy::new(None, true, now);
        for _ in 0..5 {
            policy.failed(TmuxTransport::Native, now);
            policy.listed(now);
            policy.opened(TmuxTransport::Native, now);
            policy.useful();
            policy.lost(true, now);
            assert_eq!(policy.choose(now), TmuxTransport::Native, "it worked in between");
        }
        for _ in 0..5 {
            policy.timed_out(TmuxTransport::Native, now);
            policy.listed(now);
            assert_eq!(policy.choose(now), TmuxTransport::Native, "it may be slow");
        }
    }

    #[test]
    fn a_silent_server_says_nothing_of_the_means() {
        let now = Instant::now();
        let mut policy = TransportPolicy::new(None, true, now);
        for _ in 0..5 {
            policy.failed(TmuxTransport::Native, now);
            assert_eq!(policy.choose(now), TmuxTransport::Listings);
            policy.failed(TmuxTransport::Listings, now);
            assert_eq!(policy.choose(now), TmuxTransport::Native);
            policy.no_server(now);
            assert_eq!(policy.choose(now), TmuxTransport::Native);
        }
    }

    #[test]
    fn control_clients_are_far_apart() {
        let now = Instant::now();
        let mut policy = TransportPolicy::new(Some(TmuxTransport::Control), true, now);
        for n in 0..4 {
            let now = now + CONTROL_INTERVAL * n;
            assert_eq!(policy.choose(now), TmuxTransport::Control);
            policy.opened(TmuxTransport::Control, now);
            policy.lost(true, now);
            assert_eq!(policy.choose(now + CONTROL_INTERVAL / 2), TmuxTransport::Listings);
        }
        assert_eq!(
            TransportPolicy::new(Some(TmuxTransport::Control), false, now).choose(now),
            TmuxTransport::Listings
        );
    }

    #[test]
    fn what_is_forced_is_tried() {
        let now = Instant::now();
        let mut policy = TransportPolicy::new(Some(TmuxTransport::Native), true, now);
        (0..9).for_each(|_| policy.failed(TmuxTransport::Native, now));
        assert_eq!(policy.choose(now), TmuxTransport::Native);
        assert!(TransportPolicy::new(Some(TmuxTransport::Listings), true, now).uses_listings(now));
    }
}
