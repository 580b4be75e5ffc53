#!/bin/sh
# step.sh LOG TITLE COMMAND...: one line for the user, everything else to LOG, the end of it after a failure.
log=$1 title=$2
shift 2
mkdir -p "$(dirname "$log")"
echo "$title"
"$@" >"$log" 2>&1 && exit 0
status=$?
tail -n 20 "$log" | sed 's/^/    /' >&2
echo "That step failed (exit $status): $title. Whole log: $log" >&2
exit "$status"
