#!/bin/sh
# test_record.sh - tests of cpattn_record.py in a Python environment of its own.
#
#   PYTHON=python3 TORCH=auto CPATTN=build/release/cpattn sh harness/test_record.sh BUILD
#
# Run by `make test-record`; needs PyPI the first time.  TORCH=0 leaves PyTorch alone, and what needs it is
# skipped; auto takes its CPU build if it can be had, else that of PyPI, which brings CUDA (about 3 GB).
set -eu
build=$1
venv=$build/record-venv

die() {
	echo "test_record: $*" >&2
	exit 1
}

[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv" ||
	die "no Python environment: install python3 with venv (Debian: python3-venv), or name one by PYTHON="
has() {
	"$venv/bin/python" -c "import $1" 2>"$build/record-import.log"
}
pip() {
	"$venv/bin/python" -m pip install -q --disable-pip-version-check "$@"
}
{ has h5py && has numpy; } || pip h5py numpy || die "h5py and numpy cannot be installed: is PyPI reachable?"
if [ "${TORCH:-auto}" != 0 ] && ! has torch; then
	pip --retries 0 --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null || pip torch ||
		echo "test_record: no PyTorch; its tests are skipped"
fi
"$venv/bin/python" data/python/test_cpattn_record.py
"$venv/bin/python" data/example_record.py "$build/example.h5"
"$CPATTN" check "$build/example.h5"
rm -rf "$build/example.d"
"$venv/bin/python" data/example_record_ranks.py "$build/example.d"
"$CPATTN" merge "$build/example.d" -o "$build/example.h5"
"$CPATTN" check "$build/example.h5"
rm -rf "$build/example.d" "$build/example.h5"
