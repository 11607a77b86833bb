#!/usr/bin/env bash
# fake.sh FIFO [POOLCTL]: an agent that takes each line of input for a prompt. It first writes the line to FIFO, which
# tells the benchmark the time; then, with POOLCTL, it calls its hooks, and its turn ends.
fifo=$1 poolctl=${2-}
tell() {
  [[ -z $poolctl ]] || printf '%s' "$1" | "$poolctl" hook generic
}
tell '{"event": "started"}'
# The prompt that `cli-agent-orchestrator` looks for.
printf '❯ '
while IFS= read -r line; do
  printf '%s\n' "$line" >"$fifo"
  tell "{\"event\": \"prompt\", \"text\": \"$line\"}"
  tell '{"event": "idle", "text": "done"}'
  printf '> MOCK: done\n❯ '
done
