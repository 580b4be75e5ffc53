#!/bin/sh
# step.sh LOG TITLE COMMAND...: one line for the user, and ninja's [n/m] as it grows; everything to LOG, the end of it
# after a failure.
log=$1 title=$2
shift 2

# Copies the command's lines; of those that begin with [n/m] the user sees each tenth, or all in one place on a terminal.
follow() {
  shown=0
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line"
    case $line in *\[[0-9]*/[0-9]*\]*) ;; *) continue ;; esac
    of=${line%%]*} && of=${of##*\[} && n=${of%/*} m=${of#*/}
    case $n$m in *[!0-9]*) continue ;; esac
    [ "$m" -gt 0 ] || continue
    percent=$((100 * n / m))
    if [ -t 3 ]; then
      printf '\r  [%s] %s %%' "$of" "$percent" >&3
    elif [ $((percent / 10)) -gt "$shown" ]; then
      printf '  [%s] %s %%\n' "$of" "$percent" >&3
    fi
    shown=$((percent / 10))
  done
  [ "$shown" = 0 ] || [ ! -t 3 ] || printf '\n' >&3
}

mkdir -p "$(dirname "$log")"
echo "$title"
rm -f "$log.status"
exec 3>&1
{ "$@" 2>&1; echo $? >"$log.status"; } | follow >"$log"
status=$(cat "$log.status")
rm -f "$log.status"
[ "$status" = 0 ] && exit 0
tail -n 20 "$log" | sed 's/^/    /' >&2
echo "That step failed (exit $status): $title. Whole log: $log" >&2
exit "$status"
