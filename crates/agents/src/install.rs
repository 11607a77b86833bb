//! Our hooks in a user's or project's own configuration, on request: `settings.json` of Claude Code and Gemini CLI,
//! `hooks.json` of Codex. All are `{"hooks": {EVENT: [{"hooks": [HANDLER, …]}, …]}, …}`. Only what is ours is written or removed; everything else
//! stays as it is, byte for byte.

mod found;
mod ours;
mod splice;

use std::path::Path;

use crate::kind::Adapter;
use found::Found;
use splice::Changes;

/// The argument by which an installed hook is known: as ours, and to itself.
pub const INSTALLED: &str = "--installed";

/// Why a configuration was left as it is; the sentences are for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// There is no such file for this agent.
    #[error("hooks are installed for claude, codex and gemini only, not for {0}")]
    Agent(Adapter),
    /// The path of poolctl cannot be written in JSON.
    #[error("the path of poolctl is not UTF-8")]
    Path,
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// It is JSON, but not of the form that the agent reads.
    #[error("{at} should be {expected}")]
    Shape {
        /// Where in it.
        at: String,
        /// What should be there.
        expected: &'static str,
    },
}

/// The configuration with our hooks in it. The same text where they are in it already.
///
/// # Errors
/// Where there is nothing to install, or the text is not what the agent itself would read.
pub fn install(adapter: Adapter, existing: Option<&str>, poolctl: &Path) -> Result<String, InstallError> {
    let wanted = ours::wanted(adapter, poolctl.to_str().ok_or(InstallError::Path)?)?;
    let existing = existing.filter(|text| !text.trim().is_empty()).unwrap_or("{}\n");
    if Found::in_text(adapter, existing)?.ours(existing) == ours::handlers(&wanted) {
        return Ok(existing.to_owned());
    }
    let mut text = uninstall(adapter, Some(existing))?.unwrap_or_else(|| existing.to_owned());
    for (event, group) in &wanted {
        text = add(adapter, &text, event, group)?;
    }
    Ok(text)
}

/// The configuration without our hooks; none where none of them is in it.
///
/// # Errors
/// As [`install`].
pub fn uninstall(adapter: Adapter, existing: Option<&str>) -> Result<Option<String>, InstallError> {
    ours::check(adapter)?;
    let Some(existing) = existing.filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    let mut changes = Changes::default();
    Found::in_text(adapter, existing)?.remove(&mut changes);
    Ok(Some(changes).filter(|changes| !changes.is_empty()).map(|changes| changes.made(existing)))
}

/// The text with a group of ours after those of an event.
fn add(adapter: Adapter, text: &str, event: &str, group: &serde_json::Value) -> Result<String, InstallError> {
    let found = Found::in_text(adapter, text)?;
    let unit = found.indent(text);
    let mut changes = Changes::default();
    let spans = |events: &[found::Event]| events.iter().map(|event| event.all.clone()).collect::<Vec<_>>();
    match (&found.hooks, found.events.iter().find(|found| found.name == event)) {
        (Some(_), Some(event)) => {
            let groups: Vec<_> = event.groups.iter().map(|group| group.all.clone()).collect();
            changes.append(&event.value, &groups, &ours::pretty(group, unit, 3), (unit, 2));
        }
        (Some(hooks), None) => {
            let member = format!("\"{event}\": {}", ours::pretty(&[group], unit, 2));
            changes.append(hooks, &spans(&found.events), &member, (unit, 1));
        }
        (None, _) => {
            let hooks = std::collections::BTreeMap::from([(event, [group])]);
            let member = format!("\"hooks\": {}", ours::pretty(&hooks, unit, 1));
            changes.append(&found.root, &found.members, &member, (unit, 0));
        }
    }
    Ok(changes.made(text))
}
