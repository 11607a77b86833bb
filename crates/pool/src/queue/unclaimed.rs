//! Messages of kinds that no worker requests.

use std::time::Duration;

use protocol::message::PROMPT;
use protocol::{Session, SessionId, Timestamp};

use crate::pool::Pool;

/// Age of the oldest message from which on a kind without a worker is reported.
const UNCLAIMED_MIN: Duration = Duration::from_secs(600);

/// Queued messages of one kind without a worker.
#[derive(Debug, Clone, Copy)]
pub struct Unclaimed<'a> {
    /// The session of the messages.
    pub session: &'a Session,
    /// Their kind.
    pub kind: &'a str,
    /// Their number.
    pub count: u64,
    /// Time at which the oldest was queued.
    pub oldest: Timestamp,
}

/// The kinds without a worker whose messages have waited for `UNCLAIMED_MIN`. `is_worked` tells whether a
/// kind of a session's messages has a worker.
pub fn unclaimed<'a>(
    pool: &'a Pool,
    is_worked: impl Fn(SessionId, &str) -> bool,
    now: Timestamp,
) -> impl Iterator<Item = Unclaimed<'a>> {
    let all = pool.sessions().flat_map(|session| {
        let of = move |(kind, count, oldest)| Unclaimed { session, kind, count, oldest };
        pool.waiting_kinds(session.id).map(of)
    });
    all.filter(move |found| {
        let is_late = found.kind != PROMPT && pool.age(now, found.oldest) >= UNCLAIMED_MIN;
        is_late && !is_worked(found.session.id, found.kind)
    })
}

impl Unclaimed<'_> {
    /// A sentence for people, and the command that starts a worker. `age` is that of the oldest message.
    #[must_use]
    pub fn describe(&self, age: Duration) -> (String, String) {
        let (kind, name, minutes) = (self.kind, &self.session.name, age.as_secs() / 60);
        let (messages, wait) = if self.count == 1 { ("message", "waits") } else { ("messages", "wait") };
        let count = self.count;
        let text = format!(
            "{count} {messages} of kind {kind} for {name} {wait} for a worker, the oldest for {minutes} min"
        );
        (text, format!("poolctl work {name} --kind {kind} -- …"))
    }
}
