/*
 * text.h - appending to a buffer of fixed size; what does not fit is cut off.
 */
#ifndef CPA_TEXT_H
#define CPA_TEXT_H

#include <stddef.h>

struct cpa_text {
	char *at;
	size_t size, used; /* used < size; always terminated */
};
/* An empty text in at [size], size >= 1. */
struct cpa_text cpa_text_begin(char *at, size_t size);
void cpa_text_put(struct cpa_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
