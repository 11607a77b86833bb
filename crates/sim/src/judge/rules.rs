//! Sessions that the pool parks by itself: they rest, and have rested for as long as was asked.

use std::time::Duration;

use protocol::Tag;
use protocol::request::Update;

use super::Judge;

/// Time within which the pool knows of a turn: a hook that is not answered is spooled, and the spool is read.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// Time by which the pool's measure of an idle time may be too long.
const IDLE_MARGIN: Duration = Duration::from_secs(2);

impl Judge {
    /// Notes that somebody asks for these settings of a session.
    pub(crate) fn update_asked(&self, update: &Update) {
        let mut state = self.state();
        let shortest = state.shortest_idle_ms.into_iter().chain(update.idle_timeout_ms).min();
        state.shortest_idle_ms = shortest;
    }

    /// Checks that an incarnation whose pane is closed because nobody uses it is not in a turn.
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

    /// Checks that an incarnation that was parked after its idle timeout has rested that long. `default` is the timeout of
    /// sessions for which nobody has asked for another one.
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
