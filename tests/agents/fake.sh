#!/usr/bin/env bash
# An agent as seen from outside: `fake.sh claude|codex ARGUMENTS…`. It draws a composer, reads bracketed
# pastes, submits on Enter, and calls `poolctl hook` (POOLCTL) for each event. Words in a prompt control what
# it does with it. It records its input in its directory: pastes/N, prompts/N, a line each in `enters`,
# `strays` and `runs`; `early` exists if it was typed to while busy or while other text stood in its composer.
kind=$1
shift
mode=startup conversation=own-$$-$RANDOM wait=
while (($#)); do
  case $1 in
    --session-id) conversation=$2 ;;
    --resume | resume) conversation=$2 mode=resume ;;
    --plugin-dir) wait=$(sed -n 's/.*"\([0-9]*ms\)".*/\1/p' "$2/hooks/hooks.json") ;;
    hooks.PermissionRequest=*) wait=$(sed -n 's/.*--wait \([0-9]*ms\).*/\1/p' <<<"$1") ;;
  esac
  shift
done
echo "$mode $conversation" >>runs
echo "$POOL_INCARNATION" >>tag
mkdir -p pastes prompts
[[ ! $FAIL || ! -e fail ]] || { echo "cannot reach the service" && exit 1; }
rule=──────────────────────────────
[[ $kind = claude ]] && mark='❯' || mark='›'
case $BASH_VERSION in 3.*) later=1 ;; *) later=0.3 ;; esac
pastes=$(ls pastes | wc -l) prompts=$(ls prompts | wc -l)
pastes=$((pastes)) prompts=$((prompts)) background= text= turn= dialog= begun= swallowed= asked= above=

. "${0%/*}/terminal.sh"

event() { # EVENT [FIELDS]
  printf '{"hook_event_name":"%s","session_id":"%s","transcript_path":"%s","cwd":"%s","prompt_id":"%s","turn_id":"%s"%s}' \
    "$1" "$conversation" "$PWD/record.jsonl" "$PWD" "p$prompts" "p$prompts" "$2"
}

tell() {
  local code
  event "$@" | "$POOLCTL" hook "$kind" >>printed 2>&1
  code=$?
  [[ $code = 0 ]] || echo "$1: $code" >>failed
}

record() { # JSON
  printf '{"timestamp":"%s",%s}\n' "$(date -u +%Y-%m-%dT%H:%M:%S.999Z)" "$1" >>record.jsonl
}

said() { # TEXT, recorded as accepted
  if [[ $kind = claude ]]; then
    record "\"type\":\"user\",\"isSidechain\":false,\"message\":{\"role\":\"user\",\"content\":\"$(json "$1")\"}"
  else
    record "\"type\":\"event_msg\",\"payload\":{\"type\":\"item_completed\",\"item\":{\"type\":\"UserMessage\",\"content\":[{\"type\":\"text\",\"text\":\"$(json "$1")\"}]}}"
  fi
}

draw() {
  local screen='\e[H\e[2J'"$kind\r\n" row=3 shown=$text
  [[ -z $above ]] || screen+="$above\r\n" row=4
  if [[ -n $dialog && $kind = claude ]]; then
    screen+="$rule\r\n Bash command\r\n\r\n   touch made\r\n\r\n Do you want to proceed?\r\n ❯ 1. Yes\r\n   3. No\r\n\r\n Esc to cancel"
  elif [[ $dialog = plan ]]; then
    screen+="  Question 1/1 (1 unanswered)\r\n  Which colour?\r\n\r\n  › 1. Red\r\n    2. Blue\r\n\r\n  tab to add notes | enter to submit answer | esc to interrupt"
  elif [[ $dialog = offer ]]; then
    screen+="\r\n  Approaching rate limits\r\n  Switch to gpt-6-luna for lower credit usage?\r\n\r\n› 1. Switch to gpt-6-luna  Fast\r\n  2. Keep current model\r\n  3. Keep current model (never show again)\r\n\r\n  enter select · esc back"
  elif [[ -n $dialog ]]; then
    screen+="\r\n  Would you like to run the following command?\r\n\r\n  \$ touch made\r\n\r\n› 1. Yes, proceed (y)\r\n  3. No\r\n\r\n  Press enter to confirm or esc to cancel"
  elif [[ $kind = claude ]]; then
    (( ${#shown} < 800 )) || shown="[Pasted text #1]"
    shown=${shown//\\/\\\\} shown=${shown//%/%%} shown=${shown//$'\n'/\\r\\n  }
    [[ -z $turn ]] || screen+="✽ Thinking…\r\n"
    screen+="$rule\r\n❯ $shown\e[7m \e[0m\r\n$rule\r\n"
    [[ -n $turn ]] && screen+="  esc to interrupt" || screen+="  ${background:-? for shortcuts}"
  else
    (( ${#shown} < 800 )) || shown="[Pasted Content]"
    shown=${shown//\\/\\\\} shown=${shown//%/%%} shown=${shown//$'\n'/ }
    [[ -n $turn ]] && screen+="• Working (1s • esc to interrupt)\r\n" || screen+="  Worked for 1s\r\n"
    [[ -n $shown ]] || shown='\e[2mAsk Codex to do anything\e[0m'
    [[ -z $background ]] || screen+="  $background\r\n" row=$((row + 1))
    screen+="\e[1m›\e[0m $shown\r\n\r\n  hints\e[$row;3H"
  fi
  printf "$screen"
}

started() {
  [[ -z $begun ]] || return
  begun=1
  tell SessionStart ",\"source\":\"$mode\""
}

over() { # WORDS
  turn=
  tell Stop ",\"last_assistant_message\":\"$(json "$1")\""
  echo "$1" >>overs
}

used() { # N
  local of=",\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"touch made\"},\"tool_use_id\":\"tool-$prompts-$1\""
  tell PreToolUse "$of"
  tell PostToolUse "$of,\"tool_response\":{\"stdout\":\"made\"}"
}

ask() { # [TOOL-AND-INPUT]
  local of=${1-',"tool_name":"Bash","tool_input":{"command":"touch made"}'}
  turn=ask
  tell PreToolUse "$of,\"tool_use_id\":\"tool-$prompts-1\""
  event PermissionRequest "$of" >asks
  "$POOLCTL" hook "$kind" --wait "${wait:-0ms}" <asks >answer 2>complaint &
  asked=$!
  [[ $kind = codex ]] || dialog=ask
}

allowed() {
  touch made
  asked= dialog=
  tell PostToolUse ",\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"touch made\"},\"tool_use_id\":\"tool-$prompts-1\""
  over "$1"
}

answered() { # the asking hook has ended
  wait "$asked"
  echo $? >>hooks-ended
  asked=
  case $(<answer) in
    *'"answers"'*) dialog= && over "answered: $(<answer)" ;;
    *'"allow"'*) allowed 'allowed from outside' ;;
    *'"deny"'*) dialog= && over "denied: $(<answer)" ;;
    *) dialog=ask ;;
  esac
}

refused() { # at the terminal, which no hook reports
  [[ -z $asked ]] || kill "$asked"
  turn= dialog= asked= above='⎿  Interrupted · What should Claude do instead?'
}

escape() {
  case $turn$dialog in
    ask*) refused ;;
    offer) dialog= ;;
    slow*)
      turn= above='⎿  Interrupted · What should Claude do instead?'
      [[ $kind = claude ]] || tell Interrupt
      [[ $prompt != *NOTED* ]] ||
        record '"type":"user","message":{"role":"user","content":[{"type":"text","text":"[Request interrupted by user]"}]}'
      ;;
  esac
}

submit() {
  prompt=$text
  # Like an agent that reads a paste as single keys.
  [[ $prompt != *ALTER* ]] || prompt=${prompt//$'\t'/}
  text= swallowed= above=
  prompts=$((prompts + 1))
  printf '%s' "$prompt" >prompts/$prompts
  case $prompt in
    *RECORDED*) said "$prompt" && return ;;
    *LOST*) return ;;
    /clear) clear_conversation && return ;;
    /new) conversation=own-$$-$RANDOM begun= mode=startup && return ;; # Codex reports it with the next prompt
    *DIE*) kill -9 $$ ;;
  esac
  echo "$conversation" >>conversations
  : >>record.jsonl
  turn=slow
  draw
  started
  tell UserPromptSubmit ",\"prompt\":\"$(json "$prompt")\""
  if [[ -e outage ]]; then
    turn=
    tell StopFailure ',"error":"server_error","last_assistant_message":"API Error: 500 out"'
    return
  fi
  case $prompt in
    *SLOW*) ;;
    *PLAN*) dialog=plan ;;
    *ASK*) ask ;;
    *QUESTION*) ask ',"tool_name":"AskUserQuestion","tool_input":{"questions":[{"question":"Which\ncolour?","options":[{"label":"Red"},{"label":"Blue"}]},{"question":"Why?"}]}' ;;
    *TOOL*) used 1 && used 2 && over 'used it twice' ;;
    *BACKGROUND*) begin_background && over 'it runs in the background' ;;
    *TREE*) # a tool in a terminal session of its own, and a helper
      setsid sleep 300 & echo $! >tool
      sleep 300 &
      over 'it runs on' ;;
    *ERROR*) turn= && tell StopFailure ',"error":"unknown","last_assistant_message":"it broke"' ;;
    *OFFER*) limit "${prompt#*OFFER }" && dialog=offer ;;
    *LIMIT*) limit "${prompt#*LIMIT }" ;;
    *) over "done: $prompt" ;;
  esac
}

clear_conversation() { # the agent's own command: a new conversation in the same process
  conversation=after-$conversation
  tell SessionStart ',"source":"clear"'
}

begin_background() { # until `background-ends` exists
  [[ $kind = claude ]] && background='1 shell · ← for agents' || background='1 background terminal running · /ps to view'
}

limit() { # UNTIL
  turn=
  if [[ $kind = claude ]]; then
    tell StopFailure ",\"error\":\"rate_limit\",\"last_assistant_message\":\"usage limit reached|$1\""
  else
    record "\"type\":\"event_msg\",\"payload\":{\"type\":\"token_count\",\"rate_limits\":{\"primary\":{\"used_percent\":100.0,\"resets_at\":$1}}}"
    record '"type":"event_msg","payload":{"type":"task_complete","turn_id":"t","last_agent_message":null,"error":{"message":"You’ve hit your usage limit.","codex_error_info":"usage_limit_exceeded"}}'
  fi
}

enter() {
  # Separate: an Enter that finds no text, pressed again while this script stood still.
  [[ -n $dialog$text ]] && echo enter >>enters || echo enter >>strays
  if [[ -n $dialog ]]; then
    [[ $turn = ask ]] && allowed 'allowed at the terminal'
    return
  fi
  [[ -n $text ]] || return
  case $text in
    *STUCK*) return ;;
    *SWALLOW*) [[ $swallowed ]] || { swallowed=1 && return; } ;;
    *DIALOG*) dialog=other && return ;;
    *SPEAKS*) tell PreToolUse ',"tool_name":"Bash","tool_input":{}' && return ;;
  esac
  submit
}

paste() {
  read_paste
  [[ -z $turn$text ]] || touch early
  pastes=$((pastes + 1))
  printf '%s' "$pasted" >pastes/$pastes
  text+=$pasted
}

press() {
  local next=
  case $1 in
    $'\e')
      IFS= read -r -u 3 -t $later -n 1 -d '' next
      [[ -n $next ]] || { escape && return; }
      IFS= read -r -u 3 -n 4 -d '' next
      [[ $next != 200~ ]] || paste
      ;;
    $'\r') enter ;;
    $'\3') text= ;;
    $'\t') ;;
    [1-3]) [[ $dialog = offer ]] && dialog= && echo "$1" >>chosen || keyed "$1" ;;
    *) text+=$1 ;;
  esac
}

keyed() { # NUMBER, at a dialog other than an offer, or at none
  case $1 in
    1) [[ $turn$dialog = askask ]] && allowed 'allowed at the terminal' || text+=$1 ;;
    2) [[ $dialog = plan ]] && dialog= && printf '\e]0;main\a' || text+=$1 ;;
    *) text+=$1 ;;
  esac
}

look() {
  # The title blinks while it asks.
  [[ $dialog != plan ]] || printf '\e]0;[ ! ] Action Required | main\a'
  # An agent that keeps writing is not silent.
  [[ $text != *SPEAKS* || $turn$dialog ]] || printf '\e7\e8'
  [[ -z $asked ]] || kill -0 "$asked" 2>/dev/null || { answered && draw; }
  [[ ! $background || ! -e background-ends ]] || { background= && draw; }
  if [[ -e go ]]; then
    case $turn$dialog in
      slow) rm go && over "done: $prompt" && draw ;;
      other) rm go && dialog= && submit && draw ;;
    esac
  fi
}

# A conversation exists once something was said in it. Without one, Claude Code reports its end but no start.
if [[ $mode = resume ]] && ! grep -qsxF "$conversation" conversations; then
  if [[ $kind = claude ]]; then
    tell SessionEnd ',"reason":"other"'
    echo "No conversation found with session ID: $conversation"
  else
    echo "Error: no rollout found for thread id $conversation"
  fi
  exit 1
fi
while [[ $LATE && ! -e ready ]]; do sleep 0.05; done
if [[ $LATE_PASTES && $mode = resume ]]; then # like Claude Code 2.1.197: earlier pastes are read as keys
  started
  until [[ -e pastes-taken ]]; do sleep 0.05; done
fi
printf '\e[?2004h'
draw
[[ $kind = codex ]] || started
serve
