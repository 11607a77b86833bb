//! Who holds a session's lock, as people read it.

use protocol::reply::LockView;
use protocol::{Timestamp, redact};

use crate::show::human::{due, when};
use crate::show::out::Style;

/// Everything about it: `deploy (pid 12, token 3.17), since 5m ago, until in 55s, typing under it, 2 wait`.
#[must_use]
pub(crate) fn line(lock: &LockView, style: Style, now: Timestamp) -> String {
    let pid = lock.holder.map(|holder| format!("pid {}, ", holder.pid)).unwrap_or_default();
    let facts = [
        Some(format!("{} ({pid}token {})", redact::text(&lock.purpose), lock.token)),
        lock.since.map(|at| format!("since {}", when(at, style, now))),
        lock.expires_at.map(|at| format!("until {}", due(at, style, now))),
        lock.inner.as_ref().map(|what| format!("{what} under it")),
        (lock.waiting > 0).then(|| format!("{} wait", lock.waiting)),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Who is waited for: `deploy (pid 12)`.
#[must_use]
pub(crate) fn holder(lock: &LockView) -> String {
    let purpose = redact::text(&lock.purpose);
    lock.holder.map_or(purpose.clone(), |holder| format!("{purpose} (pid {})", holder.pid))
}

#[cfg(test)]
mod tests {
    use protocol::ProcId;

    use super::*;

    #[test]
    fn a_lock_says_who_has_it_and_until_when() {
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
        let told = "deploy --token=…redacted… (pid 12, token 3.17), since 5m ago, until in 55s, keys under it, 2 wait";
        assert_eq!(line(&lock, terminal, now), told);
        assert_eq!(holder(&lock), "deploy --token=…redacted… (pid 12)");
        let piped = line(&lock, Style::default(), now);
        assert!(piped.contains("until 2023-11-14T22:19:15.000Z"), "{piped}");
        (lock.purpose, lock.holder, lock.since) = ("park".into(), None, None);
        (lock.expires_at, lock.inner, lock.waiting) = (Some(now), None, 0);
        assert_eq!(line(&lock, terminal, now), "park (token 3.17), until now");
        assert_eq!(holder(&lock), "park");
    }
}
