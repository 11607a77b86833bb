//! Sessions that the pool parks or ends by itself: they rest, have rested for as long as was asked, and nobody is
//! attached to them.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::Tag;
use protocol::request::Update;
use tokio::time::Instant;

use super::Judge;

/// Time within which the pool has to know of a turn: a hook that gets no answer is spooled, and the spool is read.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// The most by which the pool may overestimate an idle time.
const IDLE_MARGIN: Duration = Duration::from_secs(2);

impl Judge {
    /// Notes that the daemon stands still until this time.
    pub(crate) fn stands_still(&self, until: Instant) {
        self.state().still_until = Some(until);
    }

    /// True if the daemon stands still, or did so until less than this time ago.
    pub(crate) fn stood_still_within(&self, past: Duration) -> bool {
        self.state().still_until.is_some_and(|until| Instant::now() < until + past)
    }

    /// Notes that somebody asks for these settings of a session.
    pub(crate) fn update_asked(&self, update: &Update) {
        let mut state = self.state();
        let shortest = state.shortest_idle_ms.into_iter().chain(update.idle_timeout_ms).min();
        state.shortest_idle_ms = shortest;
    }

    /// Notes that somebody asks for an incarnation to be parked whatever it does.
    pub(crate) fn park_asked(&self, tag: Tag) {
        self.state().park_asked.insert(tag);
    }

    /// Checks that an incarnation whose pane is closed for lack of use is not in a turn.
    pub(crate) fn hung_up_unattended(&self, tag: Tag) {
        self.count("checked:hung up unattended");
        if let Some(texts) = self.known_work(tag)
            && !self.state().park_asked.contains(&tag)
        {
            self.violated(format!("T: {tag} was parked at work on {texts:?}"));
        }
    }

    /// Checks that an incarnation that was parked after its idle timeout had been idle for that long. `default` is the
    /// timeout of sessions without one of their own.
    pub(crate) fn parked_as_idle(&self, tag: Tag, default: Option<Duration>) {
        let state = self.state();
        let asked = state.shortest_idle_ms.map(Duration::from_millis);
        let shortest = asked.into_iter().chain(default).min().unwrap_or_default();
        let rested = state.rested_at.get(&tag).map(Instant::elapsed);
        let is_excused = state.forgotten.contains(&tag) || state.park_asked.contains(&tag);
        drop(state);
        self.count("checked:parked as idle");
        if let Some(rested) = rested.filter(|rested| *rested + IDLE_MARGIN < shortest)
            && !is_excused
        {
            self.violated(format!("T: {tag} was parked as idle after {rested:?}, and not {shortest:?}"));
        }
    }

    /// Notes that the pane of a running incarnation was closed while a client was attached to it.
    pub(crate) fn closed_attended(&self, tag: Tag) {
        self.state().closed_attended.insert(tag);
    }

    /// True if the pane of an incarnation was closed while its program ran and a client was attached to it.
    pub(crate) fn was_closed_attended(&self, tag: Tag) -> bool {
        self.state().closed_attended.contains(&tag)
    }

    /// Checks that an incarnation that is to be ended because it was drained is not in a turn.
    pub(crate) fn ended_as_drained(&self, tag: Tag) {
        self.count("checked:ended as drained");
        if let Some(texts) = self.known_work(tag) {
            self.violated(format!("T: {tag} was drained, and is ended at work on {texts:?}"));
        }
    }

    /// Returns the texts of the turn of an incarnation, if the pool has to know of that turn.
    fn known_work(&self, tag: Tag) -> Option<BTreeSet<String>> {
        let state = self.state();
        let stood_still = state.still_until.is_some_and(|until| Instant::now() < until + KNOWN_WITHIN);
        let known = |turn: &&super::Turn| turn.began.elapsed() > KNOWN_WITHIN && !stood_still;
        let turn = state.at_work.get(&tag).filter(known);
        turn.filter(|_| !state.forgotten.contains(&tag)).map(|turn| turn.texts.clone())
    }
}
