//! The helpers of the daemon: since when one has no connection to it.

use std::time::Duration;

use tokio::time::Instant;

use super::Judge;

impl Judge {
    /// Notes that a helper has a connection, or none any more.
    pub(crate) fn helper(&self, name: &'static str, is_connected: bool) {
        let mut state = self.state();
        if is_connected {
            state.helpers_gone.remove(name);
        } else {
            state.helpers_gone.insert(name, Instant::now());
        }
    }

    /// True if a helper has had no connection for this time.
    pub(crate) fn helper_gone_for(&self, name: &str, time: Duration) -> bool {
        self.state().helpers_gone.get(name).is_some_and(|since| since.elapsed() > time)
    }
}
