//! The simulated world: each module is one part of it.

pub(crate) mod clock;
pub(crate) mod conversations;
pub(crate) mod disk;
pub(crate) mod life;
pub(crate) mod machine;
pub(crate) mod net;
pub(crate) mod program;
pub(crate) mod tmux;
