#!/usr/bin/env bash
# An agent like OpenCode, Aider, or one that the pool does not know: `plain.sh opencode|aider|mine`. It draws
# a composer, reads bracketed pastes and submits on Enter. It reports as the real ones do: OpenCode's plugin
# by `poolctl hook opencode`, Aider by its prompt history and its notification command, the unknown one by
# `poolctl hook generic`. Accepted prompts are in prompts/N. `ASK` in a prompt asks for a permission, `LOOK`
# asks at the terminal; a `SLOW` prompt takes until the file `go` exists.
kind=$1
mkdir -p prompts
prompts=0 before= text= turn= asks= hook= paused=
. "${0%/*}/terminal.sh"

report() { # EVENT [TEXT]
  local as=$kind
  [[ $kind = aider ]] && return
  [[ $kind = mine ]] && as=generic
  printf '{"event":"%s","text":"%s","conversation":"own-1"}' "$1" "$(json "$2")" | "$POOLCTL" hook $as >>printed 2>&1
}

draw() {
  local shown=${text##*$'\n'} bar='  ┃' screen='\e[H\e[2J' row column
  shown=${shown//\\/\\\\} shown=${shown//%/%%}
  case $kind$asks in
    opencode)
      screen+="$bar\r\n$bar  $shown\r\n$bar\r\n$bar  Build\r\n  ╹▀▀▀▀\r\n"
      [[ -z $turn ]] || screen+="   esc interrupt"
      row=2 column=$((6 + ${#shown}))
      screen+="\e[$row;${column}H"
      ;;
    opencode*) screen+="$bar  △ Permission required\r\n$bar   Allow once   Reject    enter confirm\r\n$bar" ;;
    aider) [[ -n $turn ]] && screen+="Waiting" || screen+="answered\r\n> $shown" ;;
    mine) [[ -n $turn ]] && screen+="mine works" || screen+="mine: $shown" ;;
    *) screen+="Add it? (Y)es/(N)o [Yes]: " ;;
  esac
  printf "$screen"
}

over() {
  turn=
  report idle "done: $1"
  [[ $kind != aider ]] || sh -c "$AIDER_NOTIFICATIONS_COMMAND"
}

permission() {
  local as=$kind
  [[ $kind = mine ]] && as=generic
  printf '{"event":"permission","tool":"bash","text":"touch made","conversation":"own-1"}' |
    "$POOLCTL" hook $as --wait 60s >answer 2>>printed &
  hook=$! asks=permission
}

take() {
  local prompt=$text
  text= turn=works prompts=$((prompts + 1))
  printf '%s' "$prompt" >prompts/$prompts
  # Like Aider: the same text twice in a row is recorded once.
  if [[ $kind = aider && $prompt != "$before" ]]; then
    { printf '\n# 2026-11-24 02:00:37.845368\n'; printf '%s\n' "$prompt" | sed 's/^/+/'; } >>"$AIDER_INPUT_HISTORY_FILE"
  fi
  before=$prompt
  draw
  report prompt "$prompt"
  case $prompt in
    *ASK*) permission ;;
    *LOOK*) # as Aider, which calls before it shows what it asks
      [[ $kind != aider ]] || sh -c "$AIDER_NOTIFICATIONS_COMMAND"
      sleep 0.2
      asks=look
      ;;
    *SLOW*) paused=$prompt ;;
    *) over "$prompt" ;;
  esac
}

press() {
  local next=
  case $1 in
    $'\e')
      IFS= read -r -u 3 -n 5 -d '' next
      [[ $next != '[200~' ]] || { read_paste && text+=$pasted; }
      ;;
    $'\r')
      if [[ $asks = look ]]; then
        asks= && over 'told at the terminal'
      elif [[ -z $asks && -n $text ]]; then
        take
      fi
      ;;
    $'\3') text= ;;
    *) text+=$1 ;;
  esac
}

look() {
  if [[ -n $hook ]] && ! kill -0 "$hook" 2>/dev/null; then
    hook= asks=
    [[ $(<answer) != *'"allow":true'* ]] || touch made
    over "answered: $(<answer)"
    draw
  elif [[ -n $paused && -e go ]]; then
    over "$paused"
    paused=
    draw
  fi
}

printf '\e[?2004h'
report started startup
draw
serve
