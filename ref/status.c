/* status.c - the one way in which a sentence is attached to a status. */
#include "ref/ref.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

enum cpa_status cpa_fail(
	struct cpa_error *error, enum cpa_status status, const char *format, ...)
{
	va_list arguments;

	assert(error != NULL && status != CPA_OK);
	va_start(arguments, format);
	if (vsnprintf(error->text, sizeof error->text, format, arguments) < 0)
		error->text[0] = '\0';
	va_end(arguments);
	return status;
}
