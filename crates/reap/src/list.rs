//! `reaper --dry-run`: lists the present candidates.

use std::io::Write;

use protocol::reap::Candidate;

use crate::Options;
use crate::link::Link;

/// Writes the candidates, as columns for people or as one JSON object a line, without touching them.
///
/// # Errors
/// There is no `poold`, or the output cannot be written.
pub async fn list(options: Options, json: bool, mut out: impl Write) -> anyhow::Result<()> {
    for candidate in Link::open(&options).await?.candidates().await? {
        let line = if json { serde_json::to_string(&candidate)? } else { row(&candidate)? };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn row(candidate: &Candidate) -> anyhow::Result<String> {
    let Candidate { session, name, kind, evidence, .. } = candidate;
    let why = serde_json::to_value(kind)?;
    let why = why.as_str().unwrap_or_default();
    Ok(format!("{session:<10} {name:<24} {why:<12} {}", evidence.replace(char::is_control, " ")))
}
