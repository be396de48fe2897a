# shellcheck shell=bash disable=SC2154 # demo_options is set by deploy/demo
# Steps with a title, their output indented, their times in a table at the end, and a last word when one fails.

# The person's own terminal, for the last word when a step ends the script from within its own output. Whatever a step leaves
# running must close it (6>&-), else a pipe that the demo writes to never ends.
exec 6>&2

steps_titles=() steps_times=()
step_title=""

say() { printf '%s\n' "$*" >&2; }

die() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

now_ms() { local t=${EPOCHREALTIME/[.,]/}; printf '%s\n' "$((t / 1000))"; }

as_seconds() { printf '%d.%d' "$(($1 / 1000))" "$(($1 % 1000 / 100))"; }

# step TITLE COMMAND…: runs it in this shell, so that what it sets stays.
step() {
  local began
  step_title=$1
  shift
  printf '\n==> %s\n' "$step_title" >&2
  began=$(now_ms)
  exec 7> >(exec sed -u -e "/^$step_end\$/Q" -e 's/^/    /' >&6)
  step_indent=$!
  "$@" >&7 2>&1
  step_output_ends
  steps_titles+=("$step_title")
  steps_times+=($(($(now_ms) - began)))
  step_title=""
}

# step_output_ends waits until the last line is out. The end is a word of its own, since what a step leaves running, and this shell
# in the middle of a function, hold the output open.
step_end=$'\x04'
step_output_ends() {
  printf '%s\n' "$step_end" >&7
  exec 7>&-
  wait "$step_indent" 2>/dev/null || true
}

steps_table() {
  local i total=0
  printf '\n  %-54s %9s\n' step seconds >&2
  for i in "${!steps_titles[@]}"; do
    printf '  %-54s %9s\n' "${steps_titles[i]}" "$(as_seconds "${steps_times[i]}")" >&2
    total=$((total + steps_times[i]))
  done
  printf '  %-54s %9s\n' total "$(as_seconds $total)" >&2
}

# steps_ended is the EXIT trap: silent after a success.
steps_ended() {
  local status=$?
  if [ $status != 0 ] && [ -n "$step_title" ]; then
    exec 1>&6 2>&6
    step_output_ends
    steps_table
    say ""
    say "demo: FAILED in step: $step_title. What was done before stays; the same command goes on from there, and deploy/demo --down${demo_options[*]:+ ${demo_options[*]}} removes all."
  fi
  exit $status
}

# wait_until SECONDS WHAT COMMAND…: polls the command until it holds.
wait_until() {
  local deadline=$(($(now_ms) + $1 * 1000)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$(now_ms)" -ge "$deadline" ]; then
      say "gave up waiting for $what"
      return 1
    fi
    sleep 0.2
  done
}
