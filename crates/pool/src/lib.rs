//! The pure core of the pool: the whole state, and every decision on it. No clock, file, process or
//! environment is read here: time, randomness and observations are arguments, and effects are left to the
//! caller.
//!
//! The durable half of the state is [`Pool`]. It changes only by events ([`Pool::apply`]), which decisions
//! return and the store commits. The volatile half is [`Volatile`]: what a restart may lose. A [`Turn`] takes
//! decisions one after the other on both halves, and collects the events that they lead to.
//!
//! The features, in the order in which data travels through them. Each has a folder with its durable and its
//! volatile part (`state`, private fields behind methods), its decisions, and a map in its `mod.rs`:
//!
//! - In: [`observe`] turns observations of tmux into events. [`agent`] does so with the reports of agents'
//!   hooks, and with what can be seen of agents from outside. [`worker`] knows the connections that work
//!   messages.
//! - Requests: [`session`] decides on the commands for sessions, with the state machine of their lifecycle;
//!   [`queue`] on those for messages, with the state machine of messages; [`lock`] on who may act on a
//!   session.
//! - By itself: [`prompt`] decides when a prompt is typed and whether it arrived; [`slots`] which sessions
//!   run; [`reap`] which processes and panes should be dead.
//! - Out: [`inbox`] lists what waits for a person, [`session::view()`] shows a session, and [`redaction`]
//!   removes secrets from what is published.
//!
//! Shared: [`clock`] (ages without steps of the wall clock), [`shift_pauses`] (at a step), [`deadlines`] (on the
//! monotonic clock), and the [`Settings`].
//!
//! Within the crate, files import each other directly and never through a `mod.rs`, and their imports form no
//! circle; the `mod.rs` of a feature gives each public item its one path.
//!
//! The laws, each guarded by a property test in `tests/laws`:
//!
//! 1. The state's events and the rows of its messages, applied to an empty pool, give the state again.
//! 2. Reconciling the same observation twice finds nothing the second time.
//! 3. Applying an event twice is the same as applying it once, and no event panics.
//! 4. A lock has at most one holder, is granted in the order of requests, and tokens only grow.
//! 5. Queues behave like plain lists of messages, over crashes and jumps of the clock too.
//! 6. No more sessions run than there are slots, no slot and no message is lost, and nothing is started by
//!    itself more often than allowed or against its user's wish: over crashes and jumps of the clock too.

pub mod agent;
mod apply;
pub mod clock;
pub mod deadlines;
pub mod inbox;
pub mod lock;
pub mod observe;
mod pauses;
mod pool;
pub mod prompt;
pub mod queue;
pub mod reap;
pub mod redaction;
mod refusal;
mod replicate;
pub mod session;
mod settings;
pub mod slots;
mod turn;
mod volatile;
pub mod worker;

pub use pauses::shift_pauses;
pub use pool::{Operation, OperationState, Pool};
pub use settings::{
    Adoption, Agent, EnforceableLimits, EnvFilter, QueueRules, ReapRules, RestartRules, Settings,
    WorkerSettings,
};
pub use turn::{Changes, Output, Turn, WaitsFor};
pub use volatile::Volatile;
