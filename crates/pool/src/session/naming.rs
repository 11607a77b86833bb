//! Names of new sessions.

use protocol::{Name, Session};

use crate::pool::Pool;

/// The explanation that a name is taken.
pub(crate) fn name_taken(name: &Name, other: &Session) -> String {
    format!("{name} is the name or workspace of {} already", other.id)
}

/// The name, or if it is taken, the name with a number appended.
pub(crate) fn first_free(pool: &Pool, base: &str) -> String {
    let free = |name: &String| pool.named(name).is_none();
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    std::iter::once(base.to_owned()).chain(numbered).find(free).unwrap_or_default()
}

/// One more than the highest name that is a number.
pub(crate) fn next_number(pool: &Pool) -> u64 {
    let digits = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    pool.names
        .keys()
        .filter(|name| digits(name))
        .filter_map(|name| name.parse().ok())
        .max()
        .map_or(1, |n: u64| n.saturating_add(1))
}
