#!/bin/sh
# deps.sh - installs what building and testing needs, on Debian and Ubuntu.
#
#   sh harness/deps.sh [PACKAGE...]
#
# Packages named on the command line are wanted as well.  MPI and gnuplot are optional: they are installed where that works,
# and left out where not.  Where all of them are there it does nothing
# and needs no network.  Otherwise it installs them, as root or through sudo; where it can do neither it
# prints the command that somebody else has to run, and exits with 1.
set -u

wanted="gcc libc6-dev libcjson-dev libcmocka-dev libhdf5-dev make pkg-config $*"
optional="libopenmpi-dev openmpi-bin gnuplot-nox"

if ! command -v dpkg-query >/dev/null 2>&1; then
	cat >&2 <<END
make deps knows the packages of Debian and Ubuntu, and this is neither.  Install the equivalents of
    $wanted
(a C11 compiler, the headers of HDF5, of cJSON and of cmocka, GNU make, pkg-config), then run make without deps.
An MPI library with its headers and mpirun is optional, and so is gnuplot.
END
	exit 1
fi

# Those of "$@" that are not installed.
missing() {
	for package in "$@"; do
		state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)
		[ "$state" = installed ] || echo "$package"
	done
}

# The words of the list are package names; splitting it is meant, here and below.
# shellcheck disable=SC2086
lacking=$(missing $wanted | tr '\n' ' ')
lacking=${lacking% }
# shellcheck disable=SC2086
extra=$(missing $optional | tr '\n' ' ')
extra=${extra% }
if [ -z "$lacking$extra" ]; then
	exit 0
fi

advise() {
	printf '%s\nInstall it as root, then run make again:\n    apt-get update && apt-get install -y --no-install-recommends %s\n' \
		"$1" "$lacking" >&2
	exit 1
}

if [ "$(id -u)" -eq 0 ]; then
	as_root=
elif command -v sudo >/dev/null 2>&1; then
	as_root="sudo"
	# Nobody can type a password where there is no terminal.
	[ -t 0 ] || as_root="sudo -n"
elif [ -z "$lacking" ]; then
	exit 0
else
	advise "make deps needs root or sudo to install: $lacking."
fi

echo "installing $lacking${lacking:+ }$extra"
# A repository that cannot be reached must not stop the installation from the others.
$as_root apt-get update -q || echo "apt-get update failed; going on with the package lists that are there" >&2
if [ -n "$lacking" ]; then
	# shellcheck disable=SC2086
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $lacking ||
		advise "apt-get could not install: $lacking."
fi
if [ -n "$extra" ]; then
	# shellcheck disable=SC2086
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $extra ||
		echo "going on without all of $extra: --comm mpi needs MPI, and plots in reports need gnuplot" >&2
fi

# shellcheck disable=SC2086
lacking=$(missing $wanted | tr '\n' ' ')
if [ -n "$lacking" ]; then
	advise "apt-get ended well, and yet these are not installed: $lacking."
fi
