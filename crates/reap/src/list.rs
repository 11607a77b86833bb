//! `reaper --dry-run`: what the reaper would end now.

use std::io::Write;

use protocol::reap::{Candidate, CandidateKind};

use crate::Options;
use crate::link::Link;

/// Writes the candidates, as columns for people or as one JSON object a line, and touches none.
///
/// # Errors
/// There is no `poold`, or the output cannot be written.
pub async fn list(options: Options, json: bool, mut out: impl Write) -> anyhow::Result<()> {
    for candidate in Link::open(&options).await?.candidates().await? {
        let line = if json { serde_json::to_string(&candidate)? } else { row(&candidate) };
        writeln!(out, "{line}")?;
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
