/*
 * suggest.c - "did you mean".
 */
#include "harness/suggest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 63 };

static int min3(int a, int b, int c)
{
	int least = a < b ? a : b;

	return least < c ? least : c;
}

int cpa_edit_distance(const char *a, const char *b)
{
	/* Three rows of the table are alive: i-2 (for swaps), i-1 and i. */
	int rows[3][LONGEST + 1];
	size_t na = strlen(a), nb = strlen(b);

	if (na > LONGEST || nb > LONGEST)
		return na > nb ? (int)(na & 0xffff) : (int)(nb & 0xffff);
	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = (int)j;
	for (size_t i = 1; i <= na; i++) {
		int *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

		now[0] = (int)i;
		for (size_t j = 1; j <= nb; j++) {
			now[j] = min3(last[j] + 1, now[j - 1] + 1,
				last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
				before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
		}
	}
	return rows[na % 3][nb];
}

const char *cpa_suggest(const char *word, const char *const *names, int n)
{
	const char *best = NULL;
	int best_distance = 0;

	for (int i = 0; i < n; i++) {
		int length = (int)strlen(names[i]);
		int near = length < 4 ? 1 : (length + 2) / 3;
		int distance = cpa_edit_distance(word, names[i]);

		if (strlen(word) >= 3 && strncmp(word, names[i], strlen(word)) == 0)
			distance = distance > 1 ? 1 : distance;
		if (distance <= near && distance < length &&
			(!best || distance < best_distance)) {
			best = names[i];
			best_distance = distance;
		}
	}
	return best;
}

void cpa_suggest_text(const char *word, const char *const *names, int n, char *text,
	size_t size)
{
	const char *name = cpa_suggest(word, names, n);

	if (name)
		snprintf(text, size, ", did you mean %s?", name);
	else
		snprintf(text, size, "%s", "");
}
