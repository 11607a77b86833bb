//! Workers: external processes that claim messages. A claim is a token and a lease; the decisions on both are
//! in [`crate::queue`], and the leases themselves are volatile. A worker of the pool has a record, in a hidden
//! session that runs its host, and is started when messages for it come.
//!
//! `heartbeat` renews leases, `suspension` gives them their whole time again, and `claim_end` decides what becomes of a
//! message whose worker is silent or dead.

pub(crate) mod claim_end;
pub(crate) mod claims;
pub mod configure;
pub(crate) mod coverage;
pub mod demand;
pub(crate) mod heartbeat;
pub(crate) mod host;
pub(crate) mod state;
pub(crate) mod suspension;

pub use claim_end::{awaits_proof, lease_end};
pub use claims::{Asked, next_messages, serve, waits_for_host};
pub use coverage::{check_scope, is_worked, listed_under, scope_text, takes_kind, waiting, worker_off};
pub use heartbeat::heartbeat;
pub use host::{check_no_host, check_removable};
pub use state::{HANDLER_END, Registration, WaitingRequest, Worker, Workers};
pub use suspension::{SUSPENDED, note_suspension};
