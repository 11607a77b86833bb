//! Requests that change nothing.

use super::Request;
use crate::variants;

impl Request {
    /// True if the request changes nothing, so that it can be repeated when its answer is lost.
    pub fn is_read(&self) -> bool {
        let follows = matches!(self, variants!(Self: Subscribe Watch Output Wait));
        let lists = matches!(
            self,
            variants!(Self: List Snapshot Inbox ListMessages Messages Events Generators Candidates)
        );
        let shows =
            matches!(self, variants!(Self: Show ShowMessage Body Logs Capture Terminal Usage Explain));
        let of_pool = matches!(self, variants!(Self: Ping Status Config Sync Check Export));
        follows || lists || shows || of_pool
    }
}
