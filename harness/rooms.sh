#!/bin/sh
# rooms.sh - the rules of the house that a compiler does not check.
#
#   sh harness/rooms.sh [DIR]
#
# Includes go one way: ref <- kernels <- dist <- sim <- harness, and from other rooms only what is public.
# Planners, stages and the checker see nothing but ref/ref.h, dist/schedule.h and each other.  The header of a foreign library stands in one .c file.
# Files include each other by their name from the top, nothing names a path of one machine, and no option of
# the Makefile has two defaults.
# Prints every breach; exits with 1 if there is one.
set -u
cd "${1:-.}" || exit 2

tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
breaches=$tmp/breaches
: >"$breaches"

ls ref/*.[ch] kernels/*.[ch] dist/*.[ch] sim/*.[ch] harness/*.[ch] >"$tmp/files" 2>/dev/null
if [ ! -s "$tmp/files" ]; then
	echo "rooms: there is no source here" >&2
	exit 2
fi

# One line for each include: FILE:LINE KIND NAME, KIND being < or ".
xargs awk '/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
	match($0, /[<"]/)
	name = substr($0, RSTART + 1)
	sub(/[>"].*$/, "", name)
	print FILENAME ":" FNR, substr($0, RSTART, 1), name
}' <"$tmp/files" >"$tmp/includes"

awk '
BEGIN {
	n = split("ref kernels dist sim harness", order, " ")
	for (i = 1; i <= n; i++)
		rank[order[i]] = i
}
# The rooms of dist/ that run things; all others are data.
function runs(path) {
	return path ~ /^dist\/((exec|comm|test_).*|dist\.h)$/
}
{
	file = $1
	sub(/:.*/, "", file)
	room = file
	sub(/\/.*/, "", room)
	name = $3
	to = name
	sub(/\/.*/, "", to)
}
$2 == "\"" {
	if (!(to in rank) || to == name)
		print $1 ": \"" name "\" is not named from the top, as in \"ref/ref.h\""
	else if (rank[to] > rank[room])
		print $1 ": " room "/ includes " name "; includes go ref <- kernels <- dist <- sim <- harness"
	else if (rank[to] < rank[room] && name != to "/" to ".h" && name != "dist/schedule.h" &&
		 !(file ~ /\/test_/ && name ~ /\/test_/)) # tests share what makes their cases
		print $1 ": " name " is private to " to "/"
	if (room == "dist" && !runs(file) && name != "ref/ref.h" && (to != "dist" || runs(name)))
		print $1 ": includes " name "; planners, stages and the checker see only ref/ref.h and schedules"
}
$2 == "<" && name ~ /^(hdf5|cjson|mpi|nccl|cudnn|simgrid)(\.h|_|\/)/ {
	library = name
	sub(/[._\/].*/, "", library)
	if (file !~ /\.c$/)
		print $1 ": <" name "> belongs in a .c file"
	if (library in home && home[library] != file)
		print $1 ": <" name "> is included by " home[library] " already; one file only"
	home[library] = file
}
' "$tmp/includes" >>"$breaches"

# Folders that only one machine has; templates of temporary names (XXXXXX) are none.  The letters in
# brackets keep this line from finding itself.
places='/(wor[k]|roo[t]|hom[e]|User[s]|mn[t]|tm[p])/[A-Za-z0-9_]'
grep -nE "$places" -r ref kernels dist sim harness data reports .ci Makefile README.md \
	--include='*.[ch]' --include='*.sh' --include='*.py' --include='*.md' --include='*.in' \
	--include='*.gp' --include='*.json' --include=Makefile --include=run 2>/dev/null |
	grep -v XXXXXX | awk -F: '{ print $1 ":" $2 ": names a path of one machine" }' >>"$breaches"

# The second default of an option is never seen, whatever it was meant for.
if [ -f Makefile ]; then
	sed -n 's/^\([A-Z0-9_]*\) *?=.*/\1/p' Makefile | sort | uniq -d |
		sed 's/.*/Makefile: & has two defaults/' >>"$breaches"
fi

if [ -s "$breaches" ]; then
	sort "$breaches"
	exit 1
fi
echo "rooms: $(wc -l <"$tmp/includes") includes in $(wc -l <"$tmp/files") files go the right way"
