//! The command line of `poold`, and what it prints of the configuration.

use std::path::PathBuf;

use protocol::Paths;
use protocol::paths::Env;

use crate::config::file::Config;
use crate::host::error::DaemonError;

/// The options of a start.
#[derive(Debug, Clone)]
pub struct Options {
    /// The environment variables that determine paths, overridden by the command line.
    pub env: Env,
    /// The configuration file, if it is not the usual one.
    pub config: Option<PathBuf>,
    /// Allows starting a tmux server. Off under a service manager, as the server would live in this service's
    /// control group.
    pub start_server: bool,
}

/// Returns the paths of the pool.
pub(super) fn paths(options: &Options) -> Result<Paths, DaemonError> {
    let mut paths = Paths::new(&options.env)?;
    if let Some(config) = &options.config {
        paths.config.clone_from(config);
    }
    Ok(paths)
}

/// Returns the paths. Refuses a missing configuration file if somebody named it: with the defaults, rules that the user
/// changed would be in force again.
pub(super) fn paths_with_config(options: &Options) -> Result<Paths, DaemonError> {
    let paths = paths(options)?;
    let is_named =
        options.config.is_some() || options.env.config.as_ref().is_some_and(|path| !path.is_empty());
    // A path that cannot be examined is left to the code that reads the file, which reports the error.
    if is_named && matches!(paths.config.try_exists(), Ok(false)) {
        let shown = paths.config.display();
        let how = "make the file, or start without POOL_CONFIG and --config, which name it";
        return Err(DaemonError::Config(format!("there is no {shown}: {how}")));
    }
    Ok(paths)
}

/// Checks the configuration file. Returns the result for people.
///
/// # Errors
/// The first mistake in it.
pub fn check_config(options: &Options) -> Result<String, String> {
    let path = paths_with_config(options).map_err(|e| e.to_string())?.config;
    let exists = path.exists();
    Config::read(&path).map_err(|e| e.to_string())?;
    let what = if exists { "is in order" } else { "is not there: every key has its default" };
    Ok(format!("{} {what}", path.display()))
}

/// Returns the configuration that a daemon started now would have, as TOML.
///
/// # Errors
/// The first mistake in the file.
pub fn print_config(options: &Options) -> Result<String, String> {
    let paths = paths_with_config(options).map_err(|e| e.to_string())?;
    Config::read(&paths.config).and_then(|config| config.to_toml()).map_err(|e| e.to_string())
}
