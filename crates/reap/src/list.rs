//! `reaper --dry-run`: what the reaper would end now.

use std::io::Write;

use protocol::reap::{Candidate, CandidateKind};

use crate::Options;
use crate::link::Link;

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Columns, for people.
    Table,
    /// One JSON object a line.
    Json,
}

/// Writes the candidates, and touches none.
///
/// # Errors
/// There is no `poold`, or the output cannot be written.
pub async fn list(options: Options, form: Form, mut out: impl Write) -> anyhow::Result<()> {
    for candidate in Link::open(&options).await?.candidates().await? {
        match form {
            Form::Table => writeln!(out, "{}", row(&candidate))?,
            Form::Json => writeln!(out, "{}", serde_json::to_string(&candidate)?)?,
        }
    }
    Ok(())
}

fn row(candidate: &Candidate) -> String {
    let why = match candidate.kind {
        CandidateKind::Requested => "requested",
        CandidateKind::ZombiePane => "zombie_pane",
        CandidateKind::RetiredTag => "retired_tag",
    };
    let Candidate { session, name, evidence, .. } = candidate;
    format!("{session:<10} {name:<24} {why:<12} {}", evidence.replace(char::is_control, " "))
}
