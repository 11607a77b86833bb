//! What a request may do, decided without doing it: the events of the intent, or a refusal that
//! says what is wrong and what to do. One file a verb.

mod adopt;
mod change;
mod create;
mod life;
mod mend;
mod resolve;
mod send;
mod text;

pub use adopt::{Adoptee, Program, Target, adopt, is_adoption, target};
pub use change::{Next, REMOVE, idle_enough, kill, label, next_incarnation, remove, rename, restart};
pub use create::{Admitted, Launch, Made, full, new};
pub use life::{drain, is_drained, outdated, park, pin, put_aside, restore_all, spoken_to, update};
pub use mend::{
    FORGET_AT_ONCE, cancel, forget_messages, forget_over, may_purge, purge, resolve_message, retry,
};
pub use resolve::{not_found, resolve};
pub use send::{Body, Earlier, Sending, Sent, kind, send};

use protocol::{ErrorCode, Refusal};

fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, message))
}
