#!/bin/sh
# test_time.sh begin|end FILE: says at the beginning of `make test` how long it will take, and how long it took last time.
file=$2
case $1 in
begin)
  cores=$(nproc)
  echo "make test: about 9 minutes on 2 quiet cores with AVX-512, 12 on slower ones without (C++ tests 1 to 2, pytest 7 to 10), and 3 to 4 more the first time, for lint and to compile the C++ tests; $cores cores here"
  [ ! -s "$file" ] || echo "The last time it took $(($(cat "$file") / 60)) min $(($(cat "$file") % 60)) s in this folder."
  date +%s >"$file.begin"
  ;;
end)
  [ -s "$file.begin" ] || exit 0
  echo $(($(date +%s) - $(cat "$file.begin"))) >"$file"
  rm -f "$file.begin"
  echo "make test took $(($(cat "$file") / 60)) min $(($(cat "$file") % 60)) s"
  ;;
esac
