//! `config`: the configuration in force, and reading its file again.

use std::path::Path;
use std::sync::Arc;

use protocol::{Paths, Refusal, Reply, Response};

use crate::config::file::Config;
use crate::config::values::ConfigError;
use crate::engine::{Daemon, LoadedConfig};
use crate::host::configured::{self, is_gone};

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

/// Returns the problem of a configuration file that is wrong or gone. With a wrong file the next start of `poold`
/// fails; without the file it begins with the defaults, as perhaps this one did.
pub(super) fn problem(paths: &Paths, in_force: &LoadedConfig) -> Option<String> {
    match LoadedConfig::read(paths, in_force.settings.umask) {
        Err(mistake) => Some(format!(
            "poold would not start again with its configuration: {mistake}; `poolctl config check`"
        )),
        Ok(_) if is_gone(&paths.config) => {
            let here = paths.config.display();
            let so = match (in_force.says_anything(), configured::noted(&paths.state)) {
                (true, _) => "the next start of poold would use the defaults instead",
                (false, Some(last)) if last == paths.config => "only the defaults are in force",
                (false, Some(last)) => return Some(left_out(&last, &paths.config)),
                (false, None) => return None,
            };
            Some(format!(
                "the configuration file {here} is gone, and {so}: put it back, or make an empty one for the defaults, \
                 then `poolctl config reload`"
            ))
        }
        Ok(_) => None,
    }
}

/// Returns the problem of a start without a configuration file after a start with a file at another path.
fn left_out(last: &Path, here: &Path) -> String {
    let (last, here) = (last.display(), here.display());
    format!(
        "an earlier start of poold had the configuration file {last}, and this one has none: start poold with \
         POOL_CONFIG={last}, or make an empty {here} for the defaults, then `poolctl config reload`"
    )
}

/// Reads the configuration file again. Answers whether it changed, and which changes need a restart.
pub(crate) fn reload(daemon: &Daemon) -> Reply {
    let usage = |e: ConfigError| Refusal::usage(format!("{e}; the configuration is as before"));
    let path = &daemon.paths.config;
    let mut loaded = LoadedConfig::read(&daemon.paths, daemon.settings().umask).map_err(usage)?;
    if daemon.loaded().says_anything() && is_gone(path) {
        let why = format!("there is no {}; the configuration is as before", path.display());
        return Err(Refusal::usage(why));
    }
    configured::note(&daemon.paths.state, path, loaded.says_anything());
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

#[cfg(test)]
mod tests {
    use protocol::paths::Env;

    use super::*;

    #[test]
    fn a_file_that_is_gone_is_a_problem_if_it_said_anything() {
        let dir = tempfile::tempdir().unwrap();
        let place = Some(dir.path().as_os_str().to_owned());
        let env = Env { state_dir: place, home: Some(dir.path().to_owned()), ..Env::default() };
        let paths = Paths { config: dir.path().join("config.toml"), ..Paths::new(&env).unwrap() };
        let read = |text: &str| {
            std::fs::write(&paths.config, text).unwrap();
            LoadedConfig::read(&paths, 0o022).unwrap()
        };
        let (defaults, changed) = (read(""), read("[pool]\nmax_sessions = 3\n"));
        assert_eq!((problem(&paths, &defaults), problem(&paths, &changed)), (None, None));
        std::fs::remove_file(&paths.config).unwrap();
        assert_eq!(problem(&paths, &defaults), None);
        let told = problem(&paths, &changed).unwrap_or_default();
        assert!(told.contains("config.toml is gone") && told.contains("put it back"), "{told}");
        std::fs::write(&paths.config, "").unwrap();
        configured::note(&paths.state, &paths.config, changed.says_anything());
        std::fs::remove_file(&paths.config).unwrap();
        configured::note(&paths.state, &paths.config, defaults.says_anything());
        let told = problem(&paths, &defaults).unwrap_or_default();
        assert!(told.contains("only the defaults are in force"), "{told}");
        let elsewhere = Paths { config: dir.path().join("other.toml"), ..paths.clone() };
        let told = problem(&elsewhere, &defaults).unwrap_or_default();
        let cure = format!("start poold with POOL_CONFIG={}", paths.config.display());
        assert!(told.contains(&cure) && !told.contains("is gone"), "{told}");
        std::os::unix::fs::symlink("nowhere", &paths.config).unwrap();
        let told = problem(&paths, &defaults).unwrap_or_default();
        assert!(
            told.contains("would not start again") && told.contains("is a link whose target is missing"),
            "{told}"
        );
    }
}
