#!/bin/sh
# step.sh LOG TITLE COMMAND...: one line for the user, and how far ninja's [n/m] is, with a forecast; everything to LOG,
# the end of it after a failure. STEP_NAME stands before how far it is, where several steps tell at a time.
log=$1 title=$2
shift 2
every=${STEP_EVERY_S:-30} # seconds between lines where there is no terminal; there one is rewritten

# Copies the command's lines and tells of those that begin with [n/m].
follow() {
  begin=$(date +%s) told=$begin shown=
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line"
    case $line in *\[[0-9]*/[0-9]*\]*) ;; *) continue ;; esac
    of=${line%%]*} && of=${of##*\[} && n=${of%/*} m=${of#*/}
    case $n$m in *[!0-9]*) continue ;; esac
    [ "$n" -gt 0 ] && [ "$m" -gt 0 ] || continue
    now=$(date +%s)
    [ -t 9 ] || [ $((now - told)) -ge "$every" ] || continue
    told=$now left=$(((now - begin) * (m - n) / n)) text="${STEP_NAME:-}[$of] $((100 * n / m)) %"
    if [ "$left" -ge 90 ]; then
      text="$text, about $(((left + 30) / 60)) min left"
    elif [ "$n" -lt "$m" ] && [ "$now" -gt "$begin" ]; then
      text="$text, about $left s left"
    fi
    if [ -t 9 ]; then
      printf '\r\033[K  %s' "$text" >&9
    else
      printf '  %s\n' "$text" >&9
    fi
    shown=yes
  done
  [ -z "$shown" ] || [ ! -t 9 ] || printf '\n' >&9
}

mkdir -p "$(dirname "$log")"
echo "$title"
rm -f "$log.status"
exec 9>&1 # 3 and 4 may be make's jobserver
{ "$@" 2>&1; echo $? >"$log.status"; } | follow >"$log"
status=$(cat "$log.status")
rm -f "$log.status"
[ "$status" = 0 ] && exit 0
tail -n 20 "$log" | sed 's/^/    /' >&2
echo "That step failed (exit $status): $title. Whole log: $log" >&2
exit "$status"
