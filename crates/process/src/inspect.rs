//! Read-only inspection of processes and of the machine. Nothing here is sufficient grounds for a signal.

pub mod machine;
pub mod program;
pub mod resources;
pub mod tty;
pub mod usage;
