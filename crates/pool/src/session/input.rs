//! Checks of users' input.

use std::collections::BTreeMap;

use protocol::reap::{Action, Rule};
use protocol::text::{LABEL_KEY_MAX, LABEL_VALUE_MAX, LABELS_MAX};
use protocol::{ErrorCode, Name, OsBytes, Refusal};

use crate::refusal::refuse;

/// Maximum size of a command line with its environment, in bytes: it has to fit into a frame.
const LAUNCH_MAX: usize = 512 * 1024;

pub(crate) fn check_name(text: &str) -> Result<Name, Refusal> {
    text.parse().map_err(|e| Refusal::usage(format!("bad name: {e}")))
}

pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if labels.len() > LABELS_MAX {
        return refuse(ErrorCode::Usage, format!("a session has at most {LABELS_MAX} labels"));
    }
    labels.iter().try_for_each(|(key, value)| check_label(key, value))
}

fn check_label(key: &str, value: &str) -> Result<(), Refusal> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._/-".contains(&b);
    let starts = key.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !starts || key.len() > LABEL_KEY_MAX || !key.bytes().all(allowed) {
        let rule =
            format!("starts with a letter or digit, then also . _ / -, {LABEL_KEY_MAX} characters at most");
        return refuse(ErrorCode::Usage, format!("bad label key {key:?}: it {rule}"));
    }
    if value.len() > LABEL_VALUE_MAX {
        return refuse(ErrorCode::Usage, format!("the value of label {key} is over {LABEL_VALUE_MAX} bytes"));
    }
    Ok(())
}

pub(crate) fn check_command(argv: &[OsBytes]) -> Result<(), Refusal> {
    let Some(program) = argv.first().filter(|program| !program.0.is_empty()) else {
        return refuse(ErrorCode::Usage, "no command to run");
    };
    if argv.iter().any(|arg| arg.0.contains(&0)) {
        return refuse(ErrorCode::Usage, format!("an argument of {program:?} contains a NUL byte"));
    }
    Ok(())
}

/// # Errors
/// Usage: a variable that no program can be started with.
pub fn check_environment(env: &[(OsBytes, OsBytes)]) -> Result<(), Refusal> {
    for (key, value) in env {
        let bad_key = key.0.is_empty() || key.0.contains(&b'=') || key.0.contains(&0);
        if bad_key || value.0.contains(&0) {
            return refuse(ErrorCode::Usage, format!("bad environment variable {key:?}"));
        }
    }
    Ok(())
}

pub(crate) fn check_launch_size(argv: &[OsBytes], env: &[(OsBytes, OsBytes)]) -> Result<(), Refusal> {
    // An empty word costs as much as the kernel's pointer to it.
    let word = |word: &OsBytes| word.0.len() + size_of::<usize>();
    let bytes: usize = argv.iter().map(word).chain(env.iter().map(|(k, v)| word(k) + word(v))).sum();
    if bytes > LAUNCH_MAX {
        return refuse(
            ErrorCode::Usage,
            format!(
                "command and environment are {bytes} bytes, over {LAUNCH_MAX}; --clean-env leaves most of the \
                 environment out"
            ),
        );
    }
    Ok(())
}

pub(crate) fn check_directory(path: &OsBytes) -> Result<(), Refusal> {
    if path.as_path().is_absolute() && !path.0.contains(&0) {
        return Ok(());
    }
    refuse(ErrorCode::Usage, format!("bad directory {path:?}: it must be absolute"))
}

pub(crate) fn check_reap_actions(actions: &BTreeMap<Rule, Action>) -> Result<(), Refusal> {
    for (rule, action) in actions {
        if !rule.applies_to_session() {
            let why = format!(
                "{} is not a rule about a session: the configuration says what becomes of it",
                rule.as_str()
            );
            return refuse(ErrorCode::Usage, why);
        }
        if !rule.allows(*action) {
            return refuse(ErrorCode::Usage, format!("{} cannot be {}", rule.as_str(), action.as_str()));
        }
    }
    Ok(())
}
