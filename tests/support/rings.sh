# The table of rings and the loop that runs them; sourced by tests/run.
# shellcheck shell=bash

# name | budget in seconds (short form) | needs | proves
# A budget is what the ring takes on 2 cores when everything is built, tripled; it is shown, and a ring three times over fails.
rings_table() {
  cat <<'T'
lint|240|cargo fmt, clippy, cargo deny, shellcheck|formatting, lints, licences and bans, shell scripts
unit|180|cargo|rules, parsers, state machines; arrows between layers
loopback|600|cargo|daemons and control plane on one thread, simulated time, faults by seed: 2,000 schedules, 100,000 with --long
pure|240|cargo|manifests as snapshots, the wire's corpus and bounds, configuration, dialling over TLS and proxies, CLI messages
fuzz|600|cargo, g++|coverage-guided fuzzing of the frame and dispatch decoders and the log framer, 60 s each
control_plane|120|cargo|lakeshore serve over real HTTP, websocket and SQLite
chart|60|helm|golden renderings, schema refuses typos, RBAC exact
apiserver|240|root, a built cluster|daemon and control plane against a real kube-apiserver; RBAC by the chart's own account
kills|600|root, a built cluster|SIGKILL of daemon, control plane and both under 20 launches/s: 20 kills a kind, 300 with --long; nothing missing, doubled or wrong
faults|900|root, a built cluster, strace|the fault matrix, a line a row: kills, partitions, lost answers, an API server that fails, a hostile control plane
boot|240|root, a built cluster|the test cluster itself: boots, kills, cuts, leaves nothing behind
cluster|600|root, a built cluster, images|real Pods on two nodes with both charts installed
readme|120|root, a built cluster, images|the README's commands for one's own cluster, as they stand there, over TLS
mutants|1800|cargo, by name or with --long only|planted bugs, each caught by the test that it names
T
}

# What runs only by its name or with --long: planting bugs compiles the crate once for each.
rings_by_name='mutants'
rings_names() { rings_table | cut -d'|' -f1 | { [ -n "${NYMPH_LONG:-}" ] && cat || grep -vxE "$rings_by_name"; } | tr '\n' ' '; }
rings_list() { rings_table | awk -F'|' 'BEGIN { printf "%-14s %7s  %-38s %s\n", "ring", "budget", "needs", "proves" } { printf "%-14s %6ss  %-38s %s\n", $1, $2, $3, $4 }'; }
ring_known() { rings_table | cut -d'|' -f1 | grep -qx -- "$1"; }
ring_budget() { rings_table | awk -F'|' -v r="$1" '$1 == r { print $2 }'; }

# Each ring_NAME prints its runners' own output. Its counts are read from the closing lines that cargo test and our scripts
# print, so a ring that ran nothing shows 0 and fails.
ring_lint() { "$top/tests/support/lint"; }

ring_unit() {
  toolchain_rust
  cargo test --locked --lib --bins -- --skip loopback::
  cargo test --locked --test layering
}

ring_pure() {
  toolchain_rust
  cargo test --locked --test render --test wire --test config --test dial --test proxy --test cli
}

ring_fuzz() {
  toolchain_rust
  tests/fuzz/run
}

ring_loopback() {
  toolchain_rust
  if [ -n "${NYMPH_LONG:-}" ]; then
    loopback_long
  else
    NYMPH_SEEDS=${NYMPH_SEEDS:-2000} cargo test --locked --lib loopback:: -- --nocapture
  fi
}

# Names the committed files below these paths as they are now, so that what was shown of others is not taken for shown.
sources_id() { git ls-files -z -- "$@" | xargs -0 sha256sum | sha256sum | cut -c1-16; }

# The long form's schedules in parts, optimized; a part that was played on these very sources before is not played again.
loopback_long() {
  local part=5000 total=100000 first kept sources
  sources=$(sources_id src tests/loopback Cargo.lock)
  mkdir -p "$top/target/loopback"
  for ((first = 1; first <= total; first += part)); do
    kept=$top/target/loopback/$sources.$first
    if [ -s "$kept" ]; then
      printf 'kept from an earlier run: %s\n1 passed, 0 failed\n' "$(<"$kept")"
    else
      NYMPH_FIRST_SEED=$first NYMPH_SEEDS=$part NYMPH_LOOPBACK_ROW=$kept cargo test --locked --profile simulation --lib loopback::schedules -- --nocapture
    fi
    cat "$kept" >>"$NYMPH_DETAILS_DIR/loopback.jsonl"
  done
}

ring_mutants() {
  toolchain_rust
  tests/mutants/run
}

ring_control_plane() {
  toolchain_rust
  toolchain_packages strace || true # the test that needs it says so
  cargo test --locked --test control_plane
}

ring_chart() {
  tests/cluster/cluster build --parts helm
  tests/chart/run
}

ring_apiserver() {
  toolchain_rust
  tests/apiserver/run
}

ring_kills() {
  toolchain_rust
  tests/kills/run
}

ring_faults() {
  toolchain_rust
  tests/faults/run
}

ring_boot() {
  tests/cluster/cluster build
  tests/cluster/test
}

ring_cluster() {
  toolchain_rust
  tests/cluster/ring/run
}

ring_readme() {
  toolchain_rust
  tests/readme/run
}

# Prints why the ring cannot run here, or nothing.
ring_missing() {
  case $1 in
    fuzz) command -v g++ >/dev/null || [ "$(id -u)" = 0 ] || echo "needs g++, or root to install it" ;;
    apiserver | kills | faults | boot | cluster | readme) [ "$(id -u)" = 0 ] || echo "needs root, for namespaces and mounts" ;;
    lint) command -v cargo-clippy >/dev/null && command -v cargo-fmt >/dev/null || echo "needs rustfmt and clippy beside cargo" ;;
  esac
}

# Sums "test result: ok. 3 passed; 0 failed; 1 ignored" and "3 passed, 0 failed, 1 skipped" lines of a log: prints P F S.
ring_counts() {
  sed -E 's/\x1b\[[0-9;]*m//g' "$1" | awk '
    /^test result: / { gsub(/;/, ""); for (i = 2; i <= NF; i++) { if ($i == "passed") p += $(i-1); if ($i == "failed") f += $(i-1); if ($i == "ignored") s += $(i-1) } next }
    /^([a-z]+: )?[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { gsub(/,/, ""); for (i = 1; i <= NF; i++) { if ($i == "passed") p += $(i-1); if ($i == "failed") f += $(i-1); if ($i == "skipped") s += $(i-1) } }
    END { printf "%d %d %d\n", p, f, s }'
}

rings_run() {
  local out=${NYMPH_TEST_OUT:-$top/target/rings} ring why started seconds status passed failed skipped budget rc=0
  local -a rows=()
  mkdir -p "$out"
  rm -rf "$out/covers" "$out/measures" "$out/details" && mkdir -p "$out/covers" "$out/measures" "$out/details"
  export NYMPH_COVERS_DIR=$out/covers NYMPH_MEASURES_DIR=$out/measures NYMPH_DETAILS_DIR=$out/details
  for ring in "$@"; do
    budget=$(ring_budget "$ring")
    why=$(ring_missing "$ring")
    if [ -n "$why" ]; then
      if [ "${CI:-}" = true ]; then
        status=FAILED rc=1
      else
        status=skipped
      fi
      echo "=== ring $ring: $status, $why" >&2
      rows+=("$ring|0|0|0|0|$budget|$status|$why")
      continue
    fi
    echo "=== ring $ring (budget $budget s)" >&2
    started=$SECONDS
    # A shell of its own: errexit is ignored inside an `if`, also in subshells, and a failing ring must not end the others.
    if top=$top bash -euo pipefail -c '. tests/support/toolchain; . tests/support/rings.sh; "ring_$1"' ring "$ring" 2>&1 | tee "$out/$ring.log"; then
      status=ok
    else
      status=FAILED
    fi
    seconds=$((SECONDS - started))
    read -r passed failed skipped < <(ring_counts "$out/$ring.log")
    why=$(sed -n 's/^skipped: //p' "$out/$ring.log" | paste -sd ';' - | cut -c1-100)
    if [ "$passed" = 0 ]; then status=FAILED why="ran no test"; fi
    if [ "$failed" != 0 ]; then status=FAILED; fi
    if [ $seconds -gt $((budget * 3)) ] && ! ring_built "$out/$ring.log"; then status=FAILED why="took over three times its budget"; fi
    [ $status = ok ] || rc=1
    rows+=("$ring|$passed|$failed|$skipped|$seconds|$budget|$status|$why")
  done
  rings_report "$out" "${rows[@]}"
  return $rc
}

# A run that had to compile is not held to the budget, which is for tests.
ring_built() { grep -qE '^ +Compiling |^building |(^| )built in ' "$1"; }

rings_report() {
  local out=$1 row total_passed=0 total_failed=0 total_skipped=0 ring passed failed skipped seconds budget status why
  shift
  printf '\n%-14s %7s %7s %8s %9s %8s  %-8s %s\n' ring passed failed skipped seconds budget result why
  for row in "$@"; do
    IFS='|' read -r ring passed failed skipped seconds budget status why <<<"$row"
    printf '%-14s %7s %7s %8s %9s %8s  %-8s %s\n' "$ring" "$passed" "$failed" "$skipped" "$seconds" "$budget" "$status" "$why"
    total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed)) total_skipped=$((total_skipped + skipped))
  done
  rings_measured "$out/measures"
  rings_covered "$out/covers"
  if [ -n "${NYMPH_LONG:-}" ]; then rings_record "$out/details" "$@"; fi
  printf '\n%d passed, %d failed, %d skipped\n' "$total_passed" "$total_failed" "$total_skipped"
}

# What tests measured against a limit that an issue states: `name|seconds|limit`. A test fails at three times the limit.
rings_measured() {
  [ -z "$(cat "$1"/* 2>/dev/null)" ] || { printf '\n%-60s %9s %9s\n' measured seconds limit && sort "$1"/* | awk -F'|' '{ printf "%-60s %9.2f %9.2f\n", $1, $2, $3 }'; }
}

# Requirements registered by tests that ran in this run.
rings_covered() {
  local n
  n=$(cat "$1"/* 2>/dev/null | sort -u -V | paste -sd ' ' -)
  [ -z "$n" ] || printf '\nrequirements registered by tests that ran: %s\n' "$n"
}

# The last long run of each ring, for the record: a file a ring, so that `--long` may be run in parts and gone on with later. A ring's own
# figures stand under `details`: JSON rows that its tests wrote into RING.jsonl.
rings_record() {
  local folder=$1 row ring passed failed skipped seconds budget status why details
  shift
  mkdir -p "$top/tests/results"
  for row in "$@"; do
    IFS='|' read -r ring passed failed skipped seconds budget status why <<<"$row"
    details=""
    [ ! -s "$folder/$ring.jsonl" ] || details=$(printf ',\n  "details": [\n%s\n  ]' "$(sed 's/^/    /; $!s/$/,/' "$folder/$ring.jsonl")")
    printf '{\n  "ring": "%s",\n  "date": "%s",\n  "machine": "%s cores, %s GiB, Linux %s",\n  "commit": "%s",\n  "passed": %d,\n  "failed": %d,\n  "skipped": %d,\n  "seconds": %d,\n  "result": "%s"%s\n}\n' \
      "$ring" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(nproc)" "$(awk '/MemTotal/ { printf "%d", $2 / 1048576 + 0.5 }' /proc/meminfo)" "$(uname -r)" \
      "$(git -C "$top" rev-parse --short HEAD)" "$passed" "$failed" "$skipped" "$seconds" "$status" "$details" >"$top/tests/results/$ring.json"
  done
}
