//! The configuration, in the order in which it is read: the sections of the file with every key (`sections`), the
//! parsers of their values (`values`), the file (`file`), the agent kinds (`agent_kinds`), the workers (`workers`), and
//! the checked result: the core's settings (`settings`) and the daemon's own (`daemon_settings`). `parse` puts it all
//! together.

pub(crate) mod agent_kinds;
pub(crate) mod daemon_settings;
pub(crate) mod file;
pub(crate) mod parse;
pub(crate) mod sections;
pub(crate) mod settings;
pub(crate) mod values;
pub(crate) mod workers;

pub(crate) use crate::config::daemon_settings::{CgroupPlacement, DaemonSettings};
pub use crate::config::file::Config;
pub use crate::config::sections::*;
pub use crate::config::values::ConfigError;
