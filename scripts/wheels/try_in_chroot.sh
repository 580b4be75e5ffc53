#!/bin/sh
# try_in_chroot.sh SUITE [WHEEL_OR_FOLDER [OPTION...]]: try_wheel.py with a wheel of dist/ on a clean Debian (bookworm,
# trixie): debootstrap's smallest one with python3 and python3-venv, without compiler, toolkit or checkout.
# Needs root and debootstrap. The Debian stays in .build/debian/SUITE for the next time; delete the folder to begin anew.
# pip is configured as on this machine: its PIP_* variables and its certificate authorities are taken along.
set -eu
suite=$1
wheel=${2:-dist}
shift
[ $# -eq 0 ] || shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)/.build/debian/$suite

if [ ! -f "$root/complete" ]; then
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$root" ${MIRROR:+"$MIRROR"} >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log" >&2; exit 1; }
  touch "$root/complete"
fi
! chroot "$root" sh -c 'command -v cc c++ gcc make cmake nvcc git' || { echo "The Debian is not clean." >&2; exit 1; }

mkdir -p "$root/etc/ssl/certs"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
rm -rf "$root/srv/wheels"
mkdir -p "$root/srv/wheels"
if [ -d "$wheel" ]; then cp "$wheel"/*.whl "$root/srv/wheels/"; else cp "$wheel" "$root/srv/wheels/"; fi
cp "$here/try_wheel.py" "$root/srv/"
set -- python3 /srv/try_wheel.py /srv/wheels "$@"
# Mounts of its own, gone with the process; /tmp is fresh.
# shellcheck disable=SC2016
exec unshare --mount sh -c '
  root=$1; shift
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} ${PIP_EXTRA_INDEX_URL:+PIP_EXTRA_INDEX_URL="$PIP_EXTRA_INDEX_URL"} \
    chroot "$root" "$@"' sh "$root" "$@"
