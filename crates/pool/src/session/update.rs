//! `update`: a session's policy.

use protocol::policy::{Policy, RestartPolicy};
use protocol::request::Update;
use protocol::{ErrorCode, Event, Refusal, Session};

use crate::refusal::refuse;
use crate::session::input;
use crate::settings::Settings;
use crate::slots::eviction;
use crate::worker::check_no_host;

/// Decides on `update`. Returns no event if nothing changes.
///
/// # Errors
/// Usage, if the settings contradict each other; refused for the host of a worker.
pub fn update(settings: &Settings, session: &Session, asked: &Update) -> Result<Option<Event>, Refusal> {
    check_no_host(session)?;
    let before = &session.policy;
    let mut reap = before.reap.clone();
    for (rule, action) in &asked.reap {
        match action {
            Some(action) => drop(reap.insert(*rule, *action)),
            None => drop(reap.remove(rule)),
        }
    }
    input::check_reap_actions(&reap)?;
    let policy = Policy {
        restart: asked.restart.unwrap_or(before.restart),
        max_restarts: asked.max_restarts.or(before.max_restarts),
        idle_timeout_ms: asked.idle_timeout_ms.or(before.idle_timeout_ms),
        ttl_ms: asked.ttl_ms.or(before.ttl_ms),
        max_runtime_ms: asked.max_runtime_ms.or(before.max_runtime_ms).filter(|ms| *ms != u64::MAX),
        reap,
        ..before.clone()
    };
    if policy.ephemeral && policy.restart != RestartPolicy::No {
        let why = "an ephemeral session is removed at its end: it cannot have a restart policy";
        return refuse(ErrorCode::Usage, why);
    }
    let parks = asked.idle_timeout_ms.is_some_and(|ms| ms != u64::MAX);
    if parks && !eviction::is_parkable(settings, session) {
        let why = format!(
            "{} is never parked automatically: its agent cannot resume its conversation",
            session.name
        );
        return refuse(ErrorCode::Usage, why);
    }
    let changed = policy != *before;
    Ok(changed.then_some(Event::SessionPolicyChanged { session: session.id, policy }))
}
