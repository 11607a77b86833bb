//! Random identities of new incarnations.

use pool::scheduler::Identity;
use protocol::{ErrorCode, Refusal};

use crate::host::clock;

/// Random names for a new incarnation.
///
/// # Errors
/// Failed: the system gives no random numbers.
pub(crate) fn identity() -> Result<Identity, Refusal> {
    let failed = |e: std::io::Error| Refusal::new(ErrorCode::Failed, format!("no random numbers: {e}"));
    Ok(Identity { tag: clock::tag().map_err(failed)?, conversation: clock::uuid().map_err(failed)? })
}
