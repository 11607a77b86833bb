//! Names of new sessions.

use protocol::{Event, Name, Refusal, Session};

use crate::pool::Pool;
use crate::session::input;

/// The explanation that a name is taken, and what frees it if its session is over.
pub(crate) fn name_taken(name: &Name, other: &Session) -> String {
    let taken = format!("{name} is the name or workspace of {} already", other.id);
    if other.lifecycle.is_over() {
        format!("{taken}; it is not running: `poolctl rm {}` frees the name", other.name)
    } else {
        taken
    }
}

/// The name, or if it is taken in the pool or by a session in tmux, the name with a number appended.
pub(crate) fn first_free(pool: &Pool, base: &str, tmux_names: &[String]) -> String {
    let free = |name: &String| pool.named(name).is_none() && !tmux_names.contains(name);
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    std::iter::once(base.to_owned()).chain(numbered).find(free).unwrap_or_default()
}

/// The next numeric name: above the highest number that names a session of the pool or, as last listed, any
/// session in tmux.
pub(crate) fn next_number(pool: &Pool, tmux_names: &[String]) -> Result<Name, Refusal> {
    let digits = |name: &&String| name.bytes().all(|b| b.is_ascii_digit());
    let numbers = pool.names.keys().chain(tmux_names).filter(digits).filter_map(|name| name.parse().ok());
    let next = numbers.max().map_or(1, |n: u64| n.saturating_add(1));
    input::check_name(&first_free(pool, &next.to_string(), tmux_names))
}

/// Gives a session that is being created the next numeric name, because tmux has a session of its name.
///
/// # Errors
/// Usage, if there is no such name.
pub fn renumber(pool: &Pool, session: &Session, tmux_names: &[String]) -> Result<Event, Refusal> {
    let name = next_number(pool, tmux_names)?;
    let session = Session { workspace: name.clone(), name, ..session.clone() };
    Ok(Event::SessionCreated(Box::new(session)))
}
