//! Processes that should be dead are ended or named; no others are touched.

#[cfg(target_os = "linux")]
mod bystanders;
#[cfg(target_os = "linux")]
mod chaos;
#[cfg(target_os = "linux")]
mod held;
#[cfg(target_os = "linux")]
mod locks;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(target_os = "linux")]
mod points;
#[cfg(target_os = "linux")]
mod rules;
#[cfg(target_os = "linux")]
mod shortage;
#[cfg(target_os = "linux")]
mod spared;
#[cfg(target_os = "linux")]
mod support;
#[cfg(target_os = "linux")]
mod trees;
#[cfg(target_os = "linux")]
mod workers;
