//! What should be dead is dead, or named; and nothing else is touched.

#[cfg(target_os = "linux")]
mod support;
#[cfg(target_os = "linux")]
mod trees;
#[cfg(target_os = "linux")]
mod held;
#[cfg(target_os = "linux")]
mod locks;
