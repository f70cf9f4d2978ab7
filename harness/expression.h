/*
 * expression.h - lengths as text: "((frames - 1) / 4 + 1) * (height / 16)".
 */
#ifndef CPA_EXPRESSION_H
#define CPA_EXPRESSION_H

#include "ref/ref.h"

struct cpa_name {
	const char *name;
	int64_t value;
};

/*
 * Evaluates + - * / ( ) floor() ceil(), whole numbers and names [nnames], exactly.  A division
 * must come out whole unless floor() or ceil() is around it: a size that a model rounds in
 * silence is refused here. CPA_INVALID with the expression, where it went wrong and why.
 */
enum cpa_status cpa_expression(const char *text, const struct cpa_name *names, int nnames,
	int64_t *value, struct cpa_error *error);

#endif
