/*
 * text.c - appending to a buffer of fixed size.
 */
#include "harness/text.h"

#include <stdarg.h>
#include <stdio.h>

struct cpa_text cpa_text_begin(char *at, size_t size)
{
	at[0] = '\0';
	return (struct cpa_text){ at, size, 0 };
}

void cpa_text_put(struct cpa_text *text, const char *format, ...)
{
	size_t left = text->size - text->used;
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(text->at + text->used, left, format, list);
	va_end(list);
	if (n > 0)
		text->used += (size_t)n < left ? (size_t)n : left - 1;
}
