//! Sessions that the pool parks by itself: they rest, and have rested for as long as was asked.

use std::time::Duration;

use protocol::Tag;
use protocol::request::Update;

use super::Judge;

/// Time within which the pool has to know of a turn: a hook that gets no answer is spooled, and the spool is read.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// The most by which the pool may overestimate an idle time.
const IDLE_MARGIN: Duration = Duration::from_secs(2);

impl Judge {
    /// Notes that somebody asks for these settings of a session.
    pub(crate) fn update_asked(&self, update: &Update) {
        let mut state = self.state();
        let shortest = state.shortest_idle_ms.into_iter().chain(update.idle_timeout_ms).min();
        state.shortest_idle_ms = shortest;
    }

    /// Checks that an incarnation whose pane is closed for lack of use is not in a turn.
    pub(crate) fn hung_up_unattended(&self, tag: Tag) {
        let state = self.state();
        let turn = state.at_work.get(&tag).filter(|turn| turn.began.elapsed() > KNOWN_WITHIN);
        let texts = turn.filter(|_| !state.forgotten.contains(&tag)).map(|turn| turn.texts.clone());
        drop(state);
        self.count("checked:hung up unattended");
        if let Some(texts) = texts {
            self.violated(format!("T: {tag} was parked at work on {texts:?}"));
        }
    }

    /// Checks that an incarnation that was parked after its idle timeout had been idle for that long. `default` is the
    /// timeout of sessions without one of their own.
    pub(crate) fn parked_as_idle(&self, tag: Tag, default: Option<Duration>) {
        let state = self.state();
        let asked = state.shortest_idle_ms.map(Duration::from_millis);
        let shortest = asked.into_iter().chain(default).min().unwrap_or_default();
        let rested = state.rested_at.get(&tag).map(tokio::time::Instant::elapsed);
        let is_forgotten = state.forgotten.contains(&tag);
        drop(state);
        self.count("checked:parked as idle");
        if let Some(rested) = rested.filter(|rested| *rested + IDLE_MARGIN < shortest)
            && !is_forgotten
        {
            self.violated(format!("T: {tag} was parked as idle after {rested:?}, and not {shortest:?}"));
        }
    }
}
