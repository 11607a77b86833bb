//! `config`: the configuration in force, and reading its file again.

use std::sync::Arc;

use protocol::{Refusal, Reply, Response};

use crate::config::file::Config;
use crate::config::values::ConfigError;
use crate::engine::{Daemon, LoadedConfig};

/// The settings that are read only at a start of the daemon.
const AT_START: &str = "[tmux] socket, binary and config";

/// Said of a change of `[logs]`: a log writer has these settings from its start.
const FROM_NEXT_START: &str = "; [logs] counts for each session from its next start";

/// Answers with the configuration in force, as TOML.
pub(super) fn config(daemon: &Daemon) -> Reply {
    let loaded = daemon.loaded();
    let text = loaded.config.to_toml().map_err(|e| Refusal::failed(e.to_string()))?;
    let pending = needs_restart(&daemon.startup_config, &loaded.config);
    let note = if pending {
        format!("# Not in force before a restart of poold: {AT_START}.\n")
    } else {
        String::new()
    };
    Ok(Response::Text(note + &text))
}

/// True if the two differ in a setting that is read only at a start.
fn needs_restart(startup: &Config, config: &Config) -> bool {
    startup.tmux.socket != config.tmux.socket
        || startup.tmux.binary != config.tmux.binary
        || startup.tmux.config != config.tmux.config
}

/// Reads the configuration file again. Answers whether it changed, and which changes need a restart.
pub(crate) fn reload(daemon: &Daemon) -> Reply {
    let usage = |e: ConfigError| Refusal::usage(format!("{e}; the configuration is as before"));
    let path = &daemon.paths.config;
    if !path.exists() && daemon.loaded().config != Config::default() {
        let why = format!("there is no {}; the configuration is as before", path.display());
        return Err(Refusal::usage(why));
    }
    let mut loaded = LoadedConfig::read(&daemon.paths, daemon.settings().umask).map_err(usage)?;
    Arc::make_mut(&mut loaded.settings).enforceable = daemon.settings().enforceable;
    let restart = needs_restart(&daemon.startup_config, &loaded.config);
    let before = daemon.loaded();
    let changed = before.config != loaded.config;
    let later = if before.config.logs == loaded.config.logs { "" } else { FROM_NEXT_START };
    let (retention, rules) = (loaded.journal_retention(), loaded.settings.queue.clone());
    daemon.config.send_replace(Arc::new(loaded));
    daemon.engine.post(move |turn| {
        turn.set_retention(retention);
        let changed = pool::queue::apply_rules(turn.pool(), &rules, turn.now());
        turn.emit_all(changed);
        // The workers follow.
        turn.wake();
    });
    Ok(Response::Text(match (changed, restart) {
        (false, _) => "nothing changed".to_owned(),
        (true, false) => format!("the new configuration is in force{later}"),
        (true, true) => format!("in force, but for {AT_START}, which need a restart of poold{later}"),
    }))
}
