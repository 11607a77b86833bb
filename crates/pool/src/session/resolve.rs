//! Resolution of what a user wrote to a session: exact, never by prefix.

use protocol::{Lifecycle, Refusal, Session, SessionId, SessionRef};

use crate::pool::Pool;

/// Number of similar names in an error.
const NEAREST: usize = 3;

/// Finds the session with this id, name or workspace; with `@` before it, that of the worker of this name.
///
/// # Errors
/// Not found, with similar names.
pub fn resolve<'a>(pool: &'a Pool, wanted: &SessionRef) -> Result<&'a Session, Refusal> {
    if let Some(worker) = wanted.0.strip_prefix('@') {
        return pool.worker(worker).ok_or_else(|| no_worker(worker));
    }
    let by_id = wanted.0.parse::<SessionId>().ok().and_then(|id| pool.session(id));
    by_id.or_else(|| pool.named(&wanted.0)).ok_or_else(|| not_found(pool, &wanted.0))
}

fn no_worker(wanted: &str) -> Refusal {
    let shown: String = wanted.chars().take(80).collect();
    let why = format!("no worker {shown:?}; `poolctl worker ls` shows what there is");
    Refusal::not_found(why)
}

/// The refusal of what only a running session can do.
pub fn not_running(session: &Session) -> Refusal {
    let name = &session.name;
    let why = match session.lifecycle {
        Lifecycle::Starting => {
            format!("{name} is being started; `poolctl wait {name} --for ready` waits for it")
        }
        Lifecycle::Live | Lifecycle::Draining => {
            format!("{name} is being ended; `poolctl wait {name} --for exit` waits for that")
        }
        _ => format!("{name} does not run; `{}` starts it", session.start_command()),
    };
    Refusal::refused(why)
}

/// Returns the session with this id.
///
/// # Errors
/// Not found.
pub fn get(pool: &Pool, id: SessionId) -> Result<&Session, Refusal> {
    pool.session(id).ok_or_else(|| not_found(pool, &id.to_string()))
}

/// The refusal of an unknown session.
pub fn not_found(pool: &Pool, wanted: &str) -> Refusal {
    let shown: String = wanted.chars().take(80).collect();
    let near = nearest(pool, wanted);
    let hint = match near.as_slice() {
        [] if pool.sessions.is_empty() => "; the pool has no sessions".to_owned(),
        [] => "; `poolctl ls --all` shows what there is".to_owned(),
        near => format!("; did you mean {}?", near.join(", ")),
    };
    Refusal::not_found(format!("no session {shown:?}{hint}"))
}

/// Similarity of two words, from 0 to 1: at least 0.8 for those that one slip of a finger makes of each other.
pub(crate) fn similarity(one: &str, other: &str) -> f64 {
    let is_slip = one.len() > 2 && strsim::damerau_levenshtein(one, other) == 1;
    strsim::jaro_winkler(one, other).max(if is_slip { 0.8 } else { 0.0 })
}

fn nearest(pool: &Pool, wanted: &str) -> Vec<String> {
    let mut scored: Vec<(f64, String)> = pool
        .user_sessions()
        .map(|s| (similarity(s.name.as_str(), wanted), s.name.to_string()))
        .filter(|(score, _)| *score > 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().take(NEAREST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::similarity;

    #[test]
    fn words_that_one_slip_makes_of_each_other_are_alike() {
        for (one, other) in
            [("wbe", "web"), ("we", "web"), ("webb", "web"), ("cluade", "claude"), ("wib", "web")]
        {
            assert!(similarity(one, other) > 0.75, "{one} {other}");
        }
        for (one, other) in [("a", "b"), ("ab", "ba"), ("job", "web"), ("codex", "claude")] {
            assert!(similarity(one, other) <= 0.75, "{one} {other}");
        }
    }
}
