#!/bin/sh
# run_test.sh - runs one test program, prints one line, and keeps what it said.
#
#   sh harness/run_test.sh MODE OUT COMMAND...
#
# OUT.log gets the output and OUT.result the counts "passed failed skipped", which the Makefile adds up.
# Always ends well, so that one failure does not hide the others.  A cmocka program counts as many tests
# as it says; one that stops half way has failed, whatever it said; so has one that runs no test.
mode=$1 out=$2
shift 2
name=${out#*/"$mode"/}
mkdir -p "$(dirname "$out")"
rm -f "$out.result"

# Two programs may share the cores: threads that wait must not spin.
export OMP_WAIT_POLICY=passive
export ASAN_OPTIONS="print_legend=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"

before=$(date +%s%N)
timeout "${TEST_SECONDS:-600}" "$@" >"$out.log" 2>&1 </dev/null
status=$?
tenths=$((($(date +%s%N) - before) / 100000000))

# The last number before "test" in the lines that begin with this word.
count() {
	awk -v word="[  $1" 'index($0, word) == 1 && match($0, /[0-9]+ test/) {
		n += substr($0, RSTART) + 0 } END { print n + 0 }' "$out.log"
}
case ${name##*/} in
test_*) passed=$(count PASSED) failed=$(count FAILED) skipped=$(count SKIPPED) ;;
*) passed=0 failed=0 skipped=0 && [ $status -eq 0 ] && passed=1 ;;
esac
verdict=ok
if [ $status -ne 0 ] || [ $((passed + skipped)) -eq 0 ]; then
	verdict=FAIL
	[ "$failed" -eq 0 ] && failed=1
fi
echo "$passed $failed $skipped" >"$out.result"

plural=s
[ $((passed + failed)) -eq 1 ] && plural=
report=$(printf '%-4s %-8s %-36s %4d test%-2s %4d.%d s' $verdict "$mode" "$name" \
	$((passed + failed)) "$plural" $((tenths / 10)) $((tenths % 10)))
if [ $verdict = FAIL ]; then
	case $status in
	0) why="it ran no test" ;;
	124) why="it took longer than ${TEST_SECONDS:-600} s" ;;
	*) why="exit status $status" ;;
	esac
	report="$report
---- $name: $why; the end of $out.log:
$(grep -v '^\[ *\(RUN\|OK\) ' "$out.log" | tail -n 60)
----"
fi
# In one piece: others may be printing at the same time.
printf '%s\n' "$report"
