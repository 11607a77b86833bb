//! The pure core of the pool: what is true ([`Pool`]), what follows from an observation
//! ([`reconcile`]), what a request may do ([`admit`]), who may act ([`locks`]), what should be dead
//! ([`stale`]), what is to be typed ([`queue`]), who runs ([`slots`], [`budget`]). No clock, no files, no processes: what it needs to
//! know of the world is an argument.
//!
//! The laws, each guarded by a property test in `tests/laws`:
//! 1. The state's events and the rows of its messages, applied to an empty pool, give the state again.
//! 2. Reconciling twice with the same observation finds nothing the second time.
//! 3. Applying an event twice is applying it once; applying any event never panics.
//! 4. A lock has at most one holder, is granted in the order of asking, and tokens only grow.
//! 5. Queues are what a plain list of messages would be, over crashes and jumps of the clock too.
//! 6. No more sessions run than may, no slot and no message is lost, and nothing is started by itself more
//!    often than it may or against its user's wish: over crashes and jumps of the clock too.

pub mod activity;
pub mod admit;
pub mod agent;
mod apply;
pub mod budget;
pub mod clock;
pub mod deadlines;
pub mod delivery;
pub mod foreign;
pub mod heard;
pub mod inbox;
pub mod launch;
pub mod lock;
pub mod locks;
pub mod observe;
mod pool;
pub mod prompt;
pub mod queue;
pub mod reap;
pub mod reconcile;
pub mod redacted;
mod replicate;
pub mod resume;
pub mod scheduler;
pub mod settings;
pub mod slots;
pub mod stale;
pub mod thought;
mod turn;
pub mod view;
pub mod volatile;
pub mod worker;

pub use pool::{Operation, OperationState, Pool, ended, is_between};
pub use settings::{
    Adoption, Agent, Naming, OnFailedTurn, OnInterrupted, Passing, ReapRules, RestartRules, Settings,
};
pub use turn::{Changes, Output, Turn};
pub use volatile::Volatile;
