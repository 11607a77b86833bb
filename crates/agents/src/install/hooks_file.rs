//! Parser of a configuration with hooks, which keeps the span of each part.

use serde_json::Value;

use super::splice::{Edits, Span, elements, members, root};
use super::{InstallError, handlers};
use crate::adapter::Adapter;

/// A configuration with hooks.
pub(super) struct HooksFile {
    /// The outermost object.
    pub(super) root: Span,
    /// Its members.
    pub(super) members: Vec<Span>,
    /// The index of the member `hooks`.
    hooks_index: usize,
    /// The value of `hooks`, an object.
    pub(super) hooks: Option<Span>,
    /// The members of `hooks`.
    pub(super) events: Vec<Event>,
}

/// The hooks of an event.
pub(super) struct Event {
    pub(super) name: String,
    pub(super) all: Span,
    /// The list of groups.
    pub(super) value: Span,
    pub(super) groups: Vec<Group>,
}

/// A group of handlers.
pub(super) struct Group {
    pub(super) all: Span,
    /// The list of handlers.
    list: Span,
    handlers: Vec<Span>,
    /// True for the handlers that are ours.
    ours: Vec<bool>,
}

impl HooksFile {
    pub(super) fn parse(adapter: Adapter, text: &str) -> Result<Self, InstallError> {
        serde_json::from_str::<Value>(text).map_err(|error| InstallError::Json(error.to_string()))?;
        let root = root(text);
        let top = members(text, &root).ok_or_else(|| shape("the file", "an object"))?;
        let mut file = Self {
            root,
            members: top.iter().map(|member| member.all.clone()).collect(),
            hooks_index: 0,
            hooks: None,
            events: Vec::new(),
        };
        for (index, member) in top.into_iter().enumerate().filter(|(_, member)| member.key == "hooks") {
            if file.hooks.is_some() {
                return Err(shape("hooks", "there only once"));
            }
            file.events = events(adapter, text, &member.value)?;
            (file.hooks_index, file.hooks) = (index, Some(member.value));
        }
        Ok(file)
    }

    /// Returns our handlers with their events, sorted by event.
    pub(super) fn our_handlers(&self, text: &str) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        for event in &self.events {
            for group in &event.groups {
                for (span, _) in group.handlers.iter().zip(&group.ours).filter(|(_, ours)| **ours) {
                    found.push((event.name.clone(), value(text, span)));
                }
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Removes our handlers, and the groups, events and `hooks` that are empty without them.
    pub(super) fn remove(&self, edits: &mut Edits) {
        let Some(hooks) = &self.hooks else { return };
        let emptied: Vec<bool> = self.events.iter().map(Event::is_ours).collect();
        if !emptied.is_empty() && emptied.iter().all(|empty| *empty) {
            let is_hooks: Vec<bool> =
                (0..self.members.len()).map(|index| index == self.hooks_index).collect();
            return edits.remove(&self.root, &self.members, &is_hooks);
        }
        if emptied.contains(&true) {
            let spans: Vec<Span> = self.events.iter().map(|event| event.all.clone()).collect();
            edits.remove(hooks, &spans, &emptied);
        }
        for event in self.events.iter().filter(|event| !event.is_ours()) {
            event.remove(edits);
        }
    }

    /// Returns one level of the text's indentation.
    pub(super) fn indent<'a>(&self, text: &'a str) -> &'a str {
        let first = self.members.first().map_or(0, |member| member.start);
        let line = text[..first].rsplit_once('\n').map_or("", |(_, line)| line);
        if line.is_empty() || !line.trim().is_empty() { "  " } else { line }
    }
}

impl Event {
    /// True if all handlers are ours and there is one at least.
    fn is_ours(&self) -> bool {
        !self.groups.is_empty() && self.groups.iter().all(Group::is_ours)
    }

    fn remove(&self, edits: &mut Edits) {
        let emptied: Vec<bool> = self.groups.iter().map(Group::is_ours).collect();
        if emptied.contains(&true) {
            let spans: Vec<Span> = self.groups.iter().map(|group| group.all.clone()).collect();
            edits.remove(&self.value, &spans, &emptied);
        }
        for group in self.groups.iter().filter(|group| !group.is_ours() && group.ours.contains(&true)) {
            edits.remove(&group.list, &group.handlers, &group.ours);
        }
    }
}

impl Group {
    /// True if all handlers are ours and there is one at least.
    fn is_ours(&self) -> bool {
        !self.ours.is_empty() && self.ours.iter().all(|ours| *ours)
    }
}

fn events(adapter: Adapter, text: &str, hooks: &Span) -> Result<Vec<Event>, InstallError> {
    let mut events: Vec<Event> = Vec::new();
    for member in members(text, hooks).ok_or_else(|| shape("hooks", "an object"))? {
        let at = format!("hooks.{}", member.key);
        if events.iter().any(|event| event.name == member.key) {
            return Err(shape(&at, "there only once"));
        }
        let list = elements(text, &member.value).ok_or_else(|| shape(&at, "a list"))?;
        let group = |(n, span): (usize, Span)| group(adapter, text, span, &format!("{at}[{n}]"));
        let groups = list.into_iter().enumerate().map(group).collect::<Result<_, _>>()?;
        events.push(Event { name: member.key, all: member.all, value: member.value, groups });
    }
    Ok(events)
}

fn group(adapter: Adapter, text: &str, all: Span, at: &str) -> Result<Group, InstallError> {
    let members = members(text, &all).ok_or_else(|| shape(at, "an object"))?;
    let at = format!("{at}.hooks");
    let mut lists = members.into_iter().filter(|member| member.key == "hooks");
    let list = lists.next().ok_or_else(|| shape(&at, "a list"))?.value;
    if lists.next().is_some() {
        return Err(shape(&at, "there only once"));
    }
    let handlers = elements(text, &list).ok_or_else(|| shape(&at, "a list"))?;
    let ours = handlers.iter().map(|span| handlers::is_ours(adapter, &value(text, span))).collect();
    Ok(Group { all, list, handlers, ours })
}

fn value(text: &str, span: &Span) -> Value {
    serde_json::from_str(&text[span.clone()]).unwrap_or_default()
}

fn shape(at: &str, expected: &'static str) -> InstallError {
    InstallError::Shape { at: at.to_owned(), expected }
}
