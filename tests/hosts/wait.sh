# shellcheck shell=sh
# within SECONDS COMMAND...: tries until it succeeds, for what has no event to wait on.
within() {
    within_end=$(($(date +%s) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt $within_end ] || return 1
        sleep 0.1
    done
}
