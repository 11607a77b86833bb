//! The queues of messages.
//!
//! Each session has a queue, and in it one list per kind. The messages of a kind are worked one at a time, by
//! priority, then by age; a retried one keeps its place. Kinds are independent of each other. Prompts are
//! typed into the session's pane ([`crate::prompt`]); workers claim all other kinds ([`crate::worker`]).
//!
//! On the left the kinds that workers claim, on the right prompts. Both lead back to queued for another
//! attempt.
//!
//! ```text
//!                                    send
//!                                     ▼
//!         ┌─────────────────────── queued ◄───────────────────────────────┐
//!         │ claim: a token                │ typing: durable before the    │
//!         ▼ and a lease                   ▼ first byte goes to the pane   │
//!      claimed ── ack ──► done         typing ── receipt: not typed ─────►│
//!         │                               │ └─ the pane does not tell ─┐  │
//!         ├─ fail, lease over, or         ▼ text and Enter are typed   │  │
//!         │  holder proved dead:        typed ── arrived altered ───┐  │  │
//!         │  queued again, or dead        │ its hook reports        ▼  ▼  │
//!         │  after max_attempts           │ the same text         in_doubt┤ queue resolve:
//!         │                               ▼                          │    │ queued, done or dead
//!         └─ a registered worker       accepted ◄─ later proof ──────┘    │
//!            lives past its lease:        │                               │
//!            revoking, until it is        ├─ turn over ──► done           │
//!            proved gone                  ├─ interrupted, failed,         │
//!                                         │  agent ended ──► dead         │
//!                                         └─ outage: suspended ──────────►┘
//!
//!      queue cancel: cancelled                ttl over: expired
//! ```
//!
//! *Pending* messages are those that are not in a final state; *held* ones are pending and not queued:
//! claimed, typing, typed, accepted, revoking or in doubt. *Finished* messages are kept for a while
//! ([`past_retention`]).
//!
//! In the order of a message's life:
//! - Entry: [`send()`] decides on a request and its idempotency, with the index of `idempotency_index`.
//! - State: `state` folds the events into one `session_queue` each; `kind_queue` and `entry` keep a million
//!   messages in 16 bytes each; `expiry_index` has the ends of times to live; `lookup` answers questions
//!   about messages, `prompts` about prompts.
//! - Attempt: `claim` (which message is next, beginning of an attempt), `settle` (its end), with the event of
//!   each change from `transition`, pauses from `backoff` and failures counted in `breaker`.
//! - End: `expiry`, `retention`, and users' changes in `admin`.
//! - Trouble: `doubt` (a message that may not have arrived), `health` (messages that stand still).

pub(crate) mod admin;
pub(crate) mod archived;
pub(crate) mod backoff;
pub(crate) mod breaker;
pub(crate) mod claim;
pub(crate) mod doubt;
pub(crate) mod entry;
pub(crate) mod expiry;
pub(crate) mod expiry_index;
pub(crate) mod health;
pub(crate) mod idempotency_index;
pub(crate) mod kind_queue;
pub(crate) mod lookup;
pub(crate) mod pending;
pub(crate) mod prompts;
pub(crate) mod retention;
pub(crate) mod send;
pub(crate) mod session_queue;
pub(crate) mod settle;
pub(crate) mod state;
pub(crate) mod transition;

pub use admin::{
    FORGET_BATCH, cancel, check_purge, forget_finished, forget_messages, purge, resolve, resolve_command,
    retry,
};
pub use archived::ArchivedMessages;
pub use backoff::{PROBE_PAUSE_MAX, RETRY_PAUSE_MAX};
pub use breaker::apply_rules;
pub use claim::{ClaimQuery, begin_typing, came_due, claimable, claimed, next_due};
pub use doubt::{doubt, doubt_cut_off, settle_doubts, waits_for_person};
pub use expiry::{EXPIRY_BATCH, expired, is_overdue};
pub use health::{changes, stuck};
pub use lookup::PromptCounts;
pub use pending::PendingMessage;
pub use prompts::{deliverable, has_prompt_work, held_prompt, next_prompt, waiting_prompt};
pub use retention::{KEEP_RANDOM, keep_time, past_retention};
pub use send::{Body, EarlierMessages, SendInputs, SendOutcome, queued, send, strip_controls};
pub use settle::{
    LeaseEnd, ack, fail, forget_workers, give_back, is_cut_off, lease_ended, release_dead_worker,
};
pub use transition::transition;
