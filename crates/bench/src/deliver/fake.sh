#!/usr/bin/env bash
# fake.sh FIFO [POOLCTL]: an agent that takes each line that it reads for a prompt. It writes the line to FIFO first, so
# that somebody knows when; then its hooks tell, where it has POOLCTL, and its turn is over.
fifo=$1 poolctl=${2-}
tell() {
  [[ -z $poolctl ]] || printf '%s' "$1" | "$poolctl" hook generic
}
tell '{"event": "started"}'
# What stands here is what `cli-agent-orchestrator` looks for.
printf '❯ '
while IFS= read -r line; do
  printf '%s\n' "$line" >"$fifo"
  tell "{\"event\": \"prompt\", \"text\": \"$line\"}"
  tell '{"event": "idle", "text": "done"}'
  printf '> MOCK: done\n❯ '
done
