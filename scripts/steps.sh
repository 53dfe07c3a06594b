# Sourced by the scripts that do several steps: run a step, say what it does and how long it took, and keep its output until it matters.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
started=$SECONDS
log_dir=build/log
mkdir -p "$log_dir"

# step NAME TEXT COMMAND…: quiet on success; on failure the end of its output and one line that says where the rest is.
step() {
    local name=$1 text=$2 begin=$SECONDS
    shift 2
    printf '== %s … ' "$text"
    if "$@" >"$log_dir/$name.log" 2>&1; then
        printf '%d s\n' $((SECONDS - begin))
    else
        local code=$?
        printf 'FAILED\n'
        tail -n 30 "$log_dir/$name.log"
        printf '%s: "%s" failed with exit code %d. All of its output: %s\n' "$(basename "$0")" "$text" "$code" "$log_dir/$name.log" >&2
        exit "$code"
    fi
}

# shown_step TEXT COMMAND…: its output is the point.
shown_step() {
    local text=$1 begin=$SECONDS
    shift
    printf '== %s\n' "$text"
    if "$@"; then
        printf '== done in %d s\n' $((SECONDS - begin))
    else
        local code=$?
        printf '%s: "%s" failed with exit code %d (see above).\n' "$(basename "$0")" "$text" "$code" >&2
        exit "$code"
    fi
}

total() { printf '== %s in %d min %02d s\n' "$1" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)); }
