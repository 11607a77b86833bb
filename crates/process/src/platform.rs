//! The operating system's own interfaces: `/proc` and pidfds on Linux, libproc and kqueue on macOS. Both
//! files have the same functions.

pub mod proc;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;
