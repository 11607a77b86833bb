//! Support for the pool's own programs: the clock that all processes share, contained panics, crash points, memory,
//! resource limits, log files, files that others may have replaced, the terminal, and the ways to start a child.

pub mod awake;
pub mod containment;
pub mod crash;
pub mod dependent;
pub mod descriptors;
pub mod detach;
pub mod inherited_env;
pub mod logfile;
pub mod malloc;
pub mod own_end;
pub mod rlimit;
pub mod terminal;
pub mod untrusted_file;
