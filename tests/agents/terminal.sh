# The terminal of a scripted agent, to be sourced. The script defines `press KEY` (which may call `read_paste`),
# `draw`, and `look`, which `serve` calls while no key comes; descriptor 3 is the keyboard.
export LC_ALL=C
case $BASH_VERSION in 3.*) soon=1 ;; *) soon=0.05 ;; esac

stty raw -echo opost onlcr
# bash would also configure a terminal that it reads itself, turning Enter into a newline: another process
# reads it.
exec 4<&0 3< <(exec cat <&4)

json() { # TEXT, escaped for a JSON string
  local s=$1
  s=${s//\\/\\\\} s=${s//\"/\\\"} s=${s//$'\n'/\\n} s=${s//$'\t'/\\t}
  printf '%s' "$s"
}

read_paste() { # into `pasted`, after its opening bracket
  local end
  IFS= read -r -u 3 -d $'\e' pasted
  IFS= read -r -u 3 -n 5 -d '' end
}

serve() { # until the terminal is closed
  local key
  while [[ -t 0 ]]; do
    key=
    # A read that times out may have read something.
    IFS= read -r -u 3 -t $soon -n 1 -d '' key
    if [[ -n $key ]]; then
      press "$key"
      draw
    else
      look
    fi
  done
}
