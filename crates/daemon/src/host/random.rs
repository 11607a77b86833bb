//! Random identifiers of incarnations.

use std::io;

use pool::slots::RunIdentity;
use protocol::Refusal;
use world::random::Random;

/// Returns the random tag and conversation id of a new incarnation.
///
/// # Errors
/// Failed: the source of random bytes failed.
pub(crate) fn identity(random: &dyn Random) -> Result<RunIdentity, Refusal> {
    let failed = |e: io::Error| Refusal::failed(format!("no random numbers: {e}"));
    Ok(RunIdentity { tag: random.tag().map_err(failed)?, conversation: random.uuid().map_err(failed)? })
}
