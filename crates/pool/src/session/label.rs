//! `label`: a session's labels.

use std::collections::BTreeMap;

use protocol::request::Label;
use protocol::{Event, Refusal, Session};

use crate::session::input;

/// Decides on `label`.
///
/// # Errors
/// Usage.
pub fn label(session: &Session, asked: &Label) -> Result<Vec<Event>, Refusal> {
    input::check_labels(&asked.set)?;
    let mut labels: BTreeMap<String, String> = session.labels.clone();
    labels.extend(asked.set.clone());
    labels.retain(|key, _| !asked.remove.contains(key));
    input::check_labels(&labels)?;
    let changed = labels != session.labels;
    Ok(if changed { vec![Event::SessionLabelled { session: session.id, labels }] } else { Vec::new() })
}
