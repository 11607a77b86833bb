//! The inputs to decisions on eviction, from both halves of the state.

use protocol::Timestamp;

use crate::pool::Pool;
use crate::slots::eviction::EvictionInputs;
use crate::volatile::Volatile;

/// Calls `with` with the inputs to decisions on eviction.
pub(crate) fn with_inputs<R>(
    pool: &Pool,
    volatile: &Volatile,
    now: Timestamp,
    with: impl FnOnce(&EvictionInputs<'_>) -> R,
) -> R {
    let Volatile { scheduler, prompts, observed, .. } = volatile;
    with(&EvictionInputs {
        now,
        quiet_since: scheduler.quiet_since(),
        delivered_at: prompts.delivered_at(),
        attended: prompts.attended(),
        busy: &scheduler.busy(pool, observed.state(), prompts.delivering(), now),
    })
}
