#!/bin/sh
# config.sh - finds out what this machine has and writes it to a file that the Makefile includes.
#
#   CC=gcc OPENMP=auto HDF5=auto ... sh harness/config.sh FILE
#
# Each option is auto (take it if it is there), 1 (stop if it is missing) or 0 (do not look).  FILE is
# left alone where nothing changed, so that make does not start over.  One line says the result.
set -u

out=$1
tmp=$(mktemp -d "${TMPDIR:-/tmp}/cpattn-config.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$(dirname "$out")" || exit 1

die() {
	echo "config: $*" >&2
	exit 1
}

# Whether the program on standard input compiles and links with these flags.
links() {
	cat >"$tmp/probe.c"
	# shellcheck disable=SC2086
	$CC -o "$tmp/probe" "$tmp/probe.c" "$@" >>"$tmp/log" 2>&1
}

# option NAME VALUE WHAT: checks the value; true when NAME is to be looked for.
option() {
	case $2 in
	auto | 1) return 0 ;;
	0) return 1 ;;
	*) die "$1=$2: expected auto (take it if it is there), 1 (stop if it is missing) or 0 (do not look)" ;;
	esac
}

# absent NAME VALUE WHAT: an option that was looked for and not found.
absent() {
	[ "$2" = 1 ] && die "$1=1, but $3. Run make deps, or say $1=auto or $1=0"
	missing="$missing $1"
}

missing=
said=
features=

command -v "${CC%% *}" >/dev/null 2>&1 ||
	die "there is no C compiler called '$CC'. Run make deps (as in: make deps verify), or say CC=NAME"
echo 'int main(void) { return 0; }' >"$tmp/empty.c"
links -std=c11 <"$tmp/empty.c" ||
	die "'$CC' cannot compile a C11 program that does nothing ($(tail -n 1 "$tmp/log")). Run make deps"
# shellcheck disable=SC2086
said="$(basename "${CC%% *}") $($CC -dumpversion)"

# OpenMP: the CPU device and the reference spread rows and heads over cores.
openmp=0 openmp_cflags=
if option OPENMP "$OPENMP"; then
	if printf '#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n' |
		links -fopenmp; then
		openmp=1 openmp_cflags=-fopenmp
		features="$features OpenMP"
		said="$said, OpenMP yes"
	else
		absent OPENMP "$OPENMP" "'$CC -fopenmp' cannot build a program"
		said="$said, OpenMP not found (one core)"
	fi
else
	said="$said, OpenMP left out (one core)"
fi

# HDF5: recordings.  Debian keeps the serial library in a folder of its own.
hdf5_program='#include <stdio.h>
#include <hdf5.h>
int main(void)
{
	unsigned a, b, c;

	if (H5get_libversion(&a, &b, &c) < 0)
		return 1;
	printf("%u.%u.%u\n", a, b, c);
	return 0;
}'
hdf5_try() {
	# shellcheck disable=SC2086
	printf '%s\n' "$hdf5_program" | links $1 $2 || return 1
	hdf5=1 hdf5_cflags=$1 hdf5_libs=$2
}
hdf5=0 hdf5_cflags='' hdf5_libs=''
if option HDF5 "$HDF5"; then
	for name in hdf5-serial hdf5; do
		[ $hdf5 = 1 ] && break
		flags=$(pkg-config --cflags "$name" 2>/dev/null) || continue
		hdf5_try "$flags" "$(pkg-config --libs "$name" 2>/dev/null)"
	done
	[ $hdf5 = 1 ] || hdf5_try "" "-lhdf5"
	for folder in /usr/lib/*/hdf5/serial; do
		[ $hdf5 = 1 ] && break
		hdf5_try "-I/usr/include/hdf5/serial" "-L$folder -lhdf5"
	done
	if [ $hdf5 = 1 ]; then
		features="$features HDF5"
		said="$said, HDF5 $("$tmp/probe" 2>/dev/null || echo yes)"
	else
		absent HDF5 "$HDF5" "no HDF5 library with headers was found"
		said="$said, HDF5 not found (no recordings)"
	fi
else
	said="$said, HDF5 left out (no recordings)"
fi

# cJSON: models.
cjson=0 cjson_cflags='' cjson_libs=''
cjson_try() {
	# shellcheck disable=SC2086
	printf '#include <stddef.h>\n#include <cjson/cJSON.h>\nint main(void) { return cJSON_Version() == 0; }\n' |
		links $1 $2 || return 1
	cjson=1 cjson_cflags=$1 cjson_libs=$2
}
if option CJSON "$CJSON"; then
	if flags=$(pkg-config --cflags libcjson 2>/dev/null); then
		cjson_try "$flags" "$(pkg-config --libs libcjson 2>/dev/null)"
	fi
	[ $cjson = 1 ] || cjson_try "" "-lcjson"
	if [ $cjson = 1 ]; then
		features="$features cJSON"
		said="$said, cJSON yes"
	else
		absent CJSON "$CJSON" "no cJSON library with headers was found"
		said="$said, cJSON not found (no models)"
	fi
else
	said="$said, cJSON left out (no models)"
fi

# MPI: ranks that are processes.
mpi=0 mpi_cflags='' mpi_libs=''
mpi_try() {
	# shellcheck disable=SC2086
	printf '#include <mpi.h>\nint main(int argc, char **argv) { return argc > 9 && MPI_Init(&argc, &argv); }\n' |
		links $1 $2 || return 1
	mpi=1 mpi_cflags=$1 mpi_libs=$2
}
if option MPI "$MPI"; then
	for name in ompi-c mpi-c mpich mpi; do
		[ $mpi = 1 ] && break
		flags=$(pkg-config --cflags "$name" 2>/dev/null) || continue
		mpi_try "$flags" "$(pkg-config --libs "$name" 2>/dev/null)"
	done
	[ $mpi = 1 ] || mpi_try "" "-lmpi"
	if [ $mpi = 1 ]; then
		features="$features MPI"
		said="$said, MPI yes"
	else
		absent MPI "$MPI" "no MPI library with headers was found"
		said="$said, MPI not found (ranks in one process)"
	fi
else
	said="$said, MPI left out (ranks in one process)"
fi

# cmocka: only the tests use it.
cmocka=0
if printf '#include <%s.h>\n' stdarg stddef setjmp stdint cmocka | cat - "$tmp/empty.c" |
	links -lcmocka; then
	cmocka=1
	said="$said, cmocka yes"
else
	missing="$missing cmocka"
	said="$said, cmocka not found (no tests)"
fi

# Names that are kept for what comes: no code of this version uses them.
unused=
for pair in CUDA="$CUDA" NCCL="$NCCL" CUDNN="$CUDNN" SIMGRID="$SIMGRID"; do
	name=${pair%%=*} value=${pair#*=}
	option "$name" "$value" || continue
	[ "$value" = 1 ] && die "$name=1, but no code of this version uses $name. Say $name=auto or $name=0"
	unused="$unused $name"
done

{
	echo "# Written by harness/config.sh; make writes it again when an option changes."
	printf 'CONFIG_OPTIONS := %s\n' "$CONFIG_OPTIONS"
	printf 'CONFIG_MISSING :=%s\n' "$missing"
	printf 'HAVE_OPENMP := %s\nOPENMP_CFLAGS := %s\n' "$openmp" "$openmp_cflags"
	printf 'HAVE_HDF5 := %s\nHDF5_CFLAGS := %s\nHDF5_LIBS := %s\n' "$hdf5" "$hdf5_cflags" "$hdf5_libs"
	printf 'HAVE_CJSON := %s\nCJSON_CFLAGS := %s\nCJSON_LIBS := %s\n' "$cjson" "$cjson_cflags" "$cjson_libs"
	printf 'HAVE_MPI := %s\nMPI_CFLAGS := %s\nMPI_LIBS := %s\n' "$mpi" "$mpi_cflags" "$mpi_libs"
	printf 'HAVE_CMOCKA := %s\n' "$cmocka"
	printf 'FEATURES := %s\n' "${features# }"
} >"$tmp/config.mk"
if ! cmp -s "$tmp/config.mk" "$out"; then
	cp "$tmp/config.mk" "$out" || exit 1
	echo "config: $said${unused:+; not used in this version:$unused}"
fi
