#!/bin/sh
# check-machine.sh PYTHON: one clear sentence for each thing the build needs and a bare machine may lack.
# Debian's package names stand in brackets; other distributions call them much the same.
python=$1
fail() {
  echo "$1" >&2
  exit 1
}

case $(uname -s) in
Linux) ;;
*) fail "Unpaced builds and runs on Linux only (it wakes its event loop with eventfd); this is $(uname -s)." ;;
esac
command -v "$python" >/dev/null 2>&1 ||
  fail "No '$python' found: install Python 3.11 or newer [python3 python3-venv python3-dev], or name one: make PYTHON=/path/to/python3.12"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
  fail "'$python' does not run: name a working Python 3.11 or newer, as in make PYTHON=/path/to/python3.12"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "'$python' is Python $version, but Unpaced needs 3.11 or newer: name one, as in make PYTHON=/path/to/python3.12"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  fail "Python $version cannot make virtual environments here: install its venv module [python3-venv]."
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  fail "Python $version has no Python.h, which the native engine is compiled with: install its headers [python3-dev]."

# The command may hold arguments (CXX="ccache g++"), so it is split into words on purpose.
# shellcheck disable=SC2086
check_compiler() { # NAME COMMAND FLAGS SOURCE
  printf '%s\n' "$4" | $2 $3 -c -o /dev/null - 2>/dev/null
}
check_compiler C "${CC:-cc}" "-x c" 'int main(void) { return 0; }' ||
  fail "No working C compiler '${CC:-cc}': install one [g++], or set CC."
check_compiler C++ "${CXX:-c++}" "-x c++" 'int main() { return 0; }' ||
  fail "No working C++ compiler '${CXX:-c++}': install one [g++], or set CXX."
check_compiler C++20 "${CXX:-c++}" "-x c++ -std=c++20" '#include <concepts>
#include <span>
int main() { return std::same_as<int, int> ? 0 : 1; }' ||
  fail "'${CXX:-c++}' does not compile C++20: GCC 11 or newer does [g++], or Clang 14; set CXX to it."
