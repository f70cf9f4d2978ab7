#!/bin/sh
# test_install.sh - what a user of the library sees: the installed tree, pkg-config, the README's example.
#
#   MAKE=make MODE=release CC=gcc sh harness/test_install.sh PREFIX
#
# Run by `make test` from the top folder, when everything is built.
set -eu
prefix=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root

die() {
	echo "test_install: $*" >&2
	exit 1
}

$MAKE --no-print-directory MODE="$MODE" DESTDIR="$root" install >"$tmp/install.log" 2>&1 ||
	die "make install failed: $(cat "$tmp/install.log")"
for file in bin/cpattn lib/libcpattn.a lib/libcpattn.so lib/pkgconfig/cpattn.pc include/cpattn/ref/ref.h \
	share/cpattn/python/cpattn_record.py; do
	[ -e "$root$prefix/$file" ] || die "make install left out $file"
done
"$root$prefix/bin/cpattn" --version

# MPI is loaded only when asked for, from where it was installed, by the command and by the library.
needs_mpi() {
	readelf -d "$1" | grep -q 'NEEDED.*libmpi'
}
for file in bin/cpattn lib/libcpattn.so; do
	if needs_mpi "$root$prefix/$file"; then
		die "$file loads MPI whenever it starts"
	fi
done
cat >"$tmp/about.c" <<'end'
#include <dist/dist.h>
#include <stdio.h>
int main(void)
{
	printf("%s\n", cpa_mpi_about());
	return !cpa_mpi_usable();
}
end
module=$root$prefix/lib/cpattn/cpattn_mpi.so
has_mpi=0
if "$root$prefix/bin/cpattn" --version | grep -qw MPI; then
	has_mpi=1
	needs_mpi "$module" || die "lib/cpattn/cpattn_mpi.so does not need MPI"
	[ "$(nm -D --defined-only "$module" | awk '{ print $NF }')" = cpa_mpi_module ] ||
		die "cpattn_mpi.so exports more than cpa_mpi_module"
	"$root$prefix/bin/cpattn" list comms | grep -q 'mpirun -n N' ||
		die "the installed command does not find cpattn_mpi.so"
	said=$(CPATTN_MPI_MODULE=/nowhere/cpattn_mpi.so "$root$prefix/bin/cpattn" verify --comm mpi \
		--problem S=8,H=1,D=8 2>&1) && die "a module that is not there was found"
	case $said in
	*/nowhere/cpattn_mpi.so*"cannot be used"*) ;;
	*) die "a module that is not there is explained by: $said" ;;
	esac
elif [ -e "$module" ]; then
	die "make install installs $module, and there is no MPI"
fi

# Only names that begin with cpa_ leave the shared library.
nm -D --defined-only "$root$prefix/lib/libcpattn.so" | awk '{ print $NF }' >"$tmp/exported"
grep -q '^cpa_ref_attention$' "$tmp/exported" || die "libcpattn.so does not export cpa_ref_attention"
if grep -v '^cpa_' "$tmp/exported"; then
	die "libcpattn.so exports names without cpa_"
fi
# In the static one nothing can be hidden, so everything external has the prefix.  (A name that begins with
# a dot is the compiler's own: clang's lock for OpenMP reductions.)
if nm -g --defined-only "$root$prefix/lib/libcpattn.a" | awk 'NF == 3 && $NF !~ /^(cpa_|\.)/ { print $NF }' |
	grep .; then
	die "libcpattn.a has external names without cpa_"
fi

# The example, compiled as its user would, against both libraries.
export PKG_CONFIG_PATH="$root$prefix/lib/pkgconfig"
flags() {
	pkg-config --define-variable=prefix="$root$prefix" "$@" cpattn
}
# Flags are words: splitting them is meant.
# shellcheck disable=SC2046
$CC -std=c11 -Wall -Wextra -Werror -o "$tmp/shared" data/example_attention.c $(flags --cflags --libs) -lm ||
	die "data/example_attention.c does not compile against the installed library"
LD_LIBRARY_PATH="$root$prefix/lib" "$tmp/shared" || die "the example failed with libcpattn.so"
# shellcheck disable=SC2046
$CC -std=c11 -o "$tmp/static" data/example_attention.c $(flags --cflags) "$root$prefix/lib/libcpattn.a" \
	$(flags --libs --static | sed 's/-lcpattn//') || die "the example does not link with libcpattn.a"
"$tmp/static" || die "the example failed with libcpattn.a"

if [ $has_mpi = 1 ]; then
	# shellcheck disable=SC2046
	$CC -std=c11 -o "$tmp/about" "$tmp/about.c" $(flags --cflags --libs) || die "about.c does not compile"
	LD_LIBRARY_PATH="$root$prefix/lib" "$tmp/about" >/dev/null || die "libcpattn.so does not find cpattn_mpi.so"
fi

# Each public header stands alone.
for header in "$root$prefix"/include/cpattn/*/*.h; do
	# shellcheck disable=SC2046
	$CC -std=c11 -Wall -Wextra -Werror -fsyntax-only $(flags --cflags) -x c "$header" ||
		die "$header does not compile alone"
done

# README shows the example as it is, to the letter.
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$tmp/shown.c"
cmp -s "$tmp/shown.c" data/example_attention.c ||
	die "README.md does not show data/example_attention.c as it is"

# Nothing stays behind.
$MAKE --no-print-directory MODE="$MODE" DESTDIR="$root" uninstall >"$tmp/uninstall.log" 2>&1 ||
	die "make uninstall failed: $(cat "$tmp/uninstall.log")"
left=$(find "$root" -type f -o -type l)
[ -z "$left" ] || die "make uninstall left $left"
