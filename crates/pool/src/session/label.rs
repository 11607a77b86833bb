//! `label`: a session's labels.

use std::collections::BTreeMap;

use protocol::request::Label;
use protocol::{Event, Refusal, Session};

use crate::session::input;
use crate::worker::check_no_host;

/// Decides on `label`.
///
/// # Errors
/// Usage; refused for the host of a worker.
pub fn label(session: &Session, asked: &Label) -> Result<Vec<Event>, Refusal> {
    check_no_host(session)?;
    input::check_labels(&asked.set)?;
    let mut labels: BTreeMap<String, String> = session.labels.clone();
    labels.extend(asked.set.clone());
    labels.retain(|key, _| !asked.remove.contains(key));
    input::check_labels(&labels)?;
    let changed = labels != session.labels;
    Ok(if changed { vec![Event::SessionLabelled { session: session.id, labels }] } else { Vec::new() })
}
