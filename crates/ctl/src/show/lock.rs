//! The holder of a session's lock as text.

use protocol::reply::LockView;
use protocol::{Timestamp, redact};

use crate::show::out::Style;
use crate::show::time::{due, when};

/// Formats everything about a lock: `deploy (pid 12, token 3.17), since 5m ago, expires in 55s, keys in
/// progress, 2 waiting`.
pub(crate) fn line(lock: &LockView, style: Style, now: Timestamp) -> String {
    let pid = lock.holder.map(|holder| format!("pid {}, ", holder.pid)).unwrap_or_default();
    let facts = [
        Some(format!("{} ({pid}token {})", redact::text(&lock.purpose), lock.token)),
        lock.since.map(|at| format!("since {}", when(at, style, now))),
        lock.expires_at.map(|at| format!("expires {}", due(at, style, now))),
        lock.inner.as_ref().map(|operation| format!("{operation} in progress")),
        (lock.waiting > 0).then(|| format!("{} waiting", lock.waiting)),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Formats the holder: `deploy (pid 12)`.
pub(crate) fn holder(lock: &LockView) -> String {
    let purpose = redact::text(&lock.purpose);
    lock.holder.map_or(purpose.clone(), |holder| format!("{purpose} (pid {})", holder.pid))
}

#[cfg(test)]
mod tests {
    use protocol::ProcId;

    use super::*;

    #[test]
    fn a_lock_has_a_holder_and_an_end() {
        let now = Timestamp(1_700_000_300_000);
        let mut lock = LockView {
            token: "3.17".parse().unwrap(),
            purpose: "deploy --token=hunter2".into(),
            holder: Some(ProcId { pid: 12, start: 1 }),
            since: Some(Timestamp(1_700_000_000_000)),
            expires_at: Some(Timestamp(1_700_000_355_000)),
            inner: Some("keys".into()),
            waiting: 2,
        };
        let terminal = Style { terminal: true, ..Style::default() };
        let told = "deploy --token=…redacted… (pid 12, token 3.17), since 5m ago, expires in 55s, \
                    keys in progress, 2 waiting";
        assert_eq!(line(&lock, terminal, now), told);
        assert_eq!(holder(&lock), "deploy --token=…redacted… (pid 12)");
        let piped = line(&lock, Style::default(), now);
        assert!(piped.contains("expires 2023-11-14T22:19:15.000Z"), "{piped}");
        (lock.purpose, lock.holder, lock.since) = ("park".into(), None, None);
        (lock.expires_at, lock.inner, lock.waiting) = (Some(now), None, 0);
        assert_eq!(line(&lock, terminal, now), "park (token 3.17), expires now");
        assert_eq!(holder(&lock), "park");
    }
}
