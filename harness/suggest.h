/*
 * suggest.h - "did you mean": the nearest of a list of names, by edit distance.
 */
#ifndef CPA_SUGGEST_H
#define CPA_SUGGEST_H

#include <stddef.h>

/* Insertions, deletions, substitutions and swaps of neighbours, each 1; names above 63
 * characters are as far as their length. */
int cpa_edit_distance(const char *a, const char *b);

/* The name in names [n] that is nearest to word (the first of equals), or NULL when none is
 * near enough to be a slip: within a third of its length, or word is a beginning of it (3
 * characters at least). */
const char *cpa_suggest(const char *word, const char *const *names, int n);

/* Writes ", did you mean NAME?" or, when nothing is near, "" to text. */
void cpa_suggest_text(const char *word, const char *const *names, int n, char *text,
	size_t size);

#endif
