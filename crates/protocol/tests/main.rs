//! The tests of the protocol, in one binary. (`cfg(test)` tells clippy that this is test code.)

#[cfg(test)]
mod agents;
#[cfg(test)]
mod any;
#[cfg(test)]
mod connection;
#[cfg(test)]
mod diff;
#[cfg(test)]
mod frame;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod serde_rules;
#[cfg(test)]
#[path = "aio.rs"]
mod with_tokio;
