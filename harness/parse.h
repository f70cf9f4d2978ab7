/*
 * parse.h - strict readers of numbers and lists in options.  All of the text counts: no spaces,
 * no trailing characters, no overflow.  `what` names the option or key in the sentence.
 */
#ifndef CPA_PARSE_H
#define CPA_PARSE_H

#include "harness/options.h"

/* A decimal integer with an optional minus sign in [min, max]. */
enum cpa_status cpa_parse_int(const char *what, const char *text, int64_t min, int64_t max,
	int64_t *value, struct cpa_error *error);
/* A decimal integer in [0, 2^64). */
enum cpa_status cpa_parse_seed(const char *what, const char *text, uint64_t *value,
	struct cpa_error *error);
/* A finite decimal number. */
enum cpa_status cpa_parse_number(const char *what, const char *text, double *value,
	struct cpa_error *error);
/* A finite decimal number above zero. */
enum cpa_status cpa_parse_positive(const char *what, const char *text, double *value,
	struct cpa_error *error);
/* "2-8,12": a set of integers in [min, max] (max - min < 65536), ascending and without repeats.
 */
enum cpa_status cpa_parse_set(const char *what, const char *text, int64_t min, int64_t max,
	struct cpa_arena *arena, struct cpa_int_list *list, struct cpa_error *error);
/* "5,4,0,4": integers >= 0 in the order given, 4096 at most. */
enum cpa_status cpa_parse_sizes(const char *what, const char *text, struct cpa_arena *arena,
	struct cpa_int_list *list, struct cpa_error *error);
/* "0:129:390": integers in [min, max] in the order given, with colons between. */
enum cpa_status cpa_parse_colons(const char *what, const char *text, int64_t min, int64_t max,
	struct cpa_arena *arena, struct cpa_int_list *list, struct cpa_error *error);
/*
 * One of names [n]: its index.  later [nlater] are names that exist but not in this version.
 * The sentence lists the names.
 */
enum cpa_status cpa_parse_name(const char *what, const char *text, const char *const *names,
	int n, const char *const *later, int nlater, int *index, struct cpa_error *error);

#endif
