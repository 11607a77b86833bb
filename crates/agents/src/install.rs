//! Adds our hooks to a user's or project's configuration, and removes them, on request: `settings.json` of
//! Claude Code and Gemini CLI, `hooks.json` of Codex. All have the form
//! `{"hooks": {EVENT: [{"hooks": [HANDLER, …]}, …]}, …}`. Everything else in the file stays as it is, byte for
//! byte.
//!
//! `hooks_file` parses the file into spans, `handlers` generates and recognises our handlers, `splice` edits
//! the text.

mod handlers;
mod hooks_file;
mod splice;

use std::path::Path;

use crate::adapter::Adapter;
use hooks_file::HooksFile;
use splice::Edits;

/// The argument by which an installed hook is recognised as ours, and recognises itself as installed.
const INSTALLED: &str = "--installed";

/// The reason for leaving a configuration unchanged; the messages are for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The agent has no such file.
    #[error("hooks are installed for claude, codex and gemini only, not for {0}")]
    Agent(Adapter),
    /// The path of poolctl cannot be written in JSON.
    #[error("the path of poolctl is not UTF-8")]
    Path,
    /// The file is not JSON.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// The file is JSON, but not of the form that the agent reads.
    #[error("{at} should be {expected}")]
    Shape {
        /// The path of the value in the JSON.
        at: String,
        /// The expected type.
        expected: &'static str,
    },
}

/// Returns the configuration with our hooks; the same text if it has them already.
///
/// # Errors
/// If there is nothing to install for the agent, or if the text is not of the form that the agent reads.
pub fn install(adapter: Adapter, existing: Option<&str>, poolctl: &Path) -> Result<String, InstallError> {
    let wanted = handlers::wanted(adapter, poolctl.to_str().ok_or(InstallError::Path)?)?;
    let existing = existing.filter(|text| !text.trim().is_empty()).unwrap_or("{}\n");
    if HooksFile::parse(adapter, existing)?.our_handlers(existing) == handlers::of_groups(&wanted) {
        return Ok(existing.to_owned());
    }
    let mut text = uninstall(adapter, Some(existing))?.unwrap_or_else(|| existing.to_owned());
    for (event, group) in &wanted {
        text = add(adapter, &text, event, group)?;
    }
    Ok(text)
}

/// Returns the configuration without our hooks; none if it has none of them.
pub fn uninstall(adapter: Adapter, existing: Option<&str>) -> Result<Option<String>, InstallError> {
    handlers::check(adapter)?;
    let Some(existing) = existing.filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    let mut edits = Edits::default();
    HooksFile::parse(adapter, existing)?.remove(&mut edits);
    Ok(Some(edits).filter(|edits| !edits.is_empty()).map(|edits| edits.apply(existing)))
}

/// Returns the text with a group of ours after the other groups of an event.
fn add(adapter: Adapter, text: &str, event: &str, group: &serde_json::Value) -> Result<String, InstallError> {
    let file = HooksFile::parse(adapter, text)?;
    let unit = file.indent(text);
    let mut edits = Edits::default();
    let spans =
        |events: &[hooks_file::Event]| events.iter().map(|event| event.all.clone()).collect::<Vec<_>>();
    match (&file.hooks, file.events.iter().find(|found| found.name == event)) {
        (Some(_), Some(event)) => {
            let groups: Vec<_> = event.groups.iter().map(|group| group.all.clone()).collect();
            edits.append(&event.value, &groups, &handlers::pretty(group, unit, 3), (unit, 2));
        }
        (Some(hooks), None) => {
            let member = format!("\"{event}\": {}", handlers::pretty(&[group], unit, 2));
            edits.append(hooks, &spans(&file.events), &member, (unit, 1));
        }
        (None, _) => {
            let hooks = std::collections::BTreeMap::from([(event, [group])]);
            let member = format!("\"hooks\": {}", handlers::pretty(&hooks, unit, 1));
            edits.append(&file.root, &file.members, &member, (unit, 0));
        }
    }
    Ok(edits.apply(text))
}
