/*
 * expression.c - a small recursive evaluator in exact fractions.
 */
#include "harness/expression.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { MAX_TEXT = 256, MAX_DEPTH = 32 };

struct fraction {
	int64_t n, d; /* d >= 1 */
};

struct reader {
	const char *text, *at;
	const struct cpa_name *names;
	int nnames, depth, rounding; /* rounding: inside floor() or ceil() */
	enum cpa_status status;
	struct cpa_error *error;
};

static struct fraction sum(struct reader *r);

static struct fraction wrong(struct reader *r, const char *why)
{
	if (r->status == CPA_OK)
		r->status = cpa_fail(r->error, CPA_INVALID, "'%.256s', character %d: %s", r->text,
			(int)(r->at - r->text) + 1, why);
	return (struct fraction){0, 1};
}

static void skip(struct reader *r)
{
	while (*r->at == ' ')
		r->at++;
}

static bool take(struct reader *r, char c)
{
	skip(r);
	if (*r->at != c)
		return false;
	r->at++;
	return true;
}

static struct fraction reduced(struct reader *r, int64_t n, int64_t d)
{
	int64_t a = n, b = d;

	if (n == INT64_MIN)
		return wrong(r, "the value leaves 64 bits");
	while (b != 0) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	a = a < 0 ? -a : a;
	return (struct fraction){n / a, d / a};
}

static struct fraction added(struct reader *r, struct fraction x, struct fraction y, bool minus)
{
	int64_t a, b, n, d;

	if (__builtin_mul_overflow(x.n, y.d, &a) || __builtin_mul_overflow(y.n, x.d, &b) ||
		__builtin_mul_overflow(x.d, y.d, &d) ||
		(minus ? __builtin_sub_overflow(a, b, &n) : __builtin_add_overflow(a, b, &n)))
		return wrong(r, "the value leaves 64 bits");
	return reduced(r, n, d);
}

static struct fraction multiplied(struct reader *r, struct fraction x, struct fraction y)
{
	int64_t n, d;

	if (__builtin_mul_overflow(x.n, y.n, &n) || __builtin_mul_overflow(x.d, y.d, &d))
		return wrong(r, "the value leaves 64 bits");
	return reduced(r, n, d);
}

static struct fraction divided(struct reader *r, struct fraction x, struct fraction y)
{
	struct fraction z;

	if (y.n == 0)
		return wrong(r, "division by zero");
	z = multiplied(
		r, x, y.n < 0 ? (struct fraction){-y.d, -y.n} : (struct fraction){y.d, y.n});
	if (r->status == CPA_OK && z.d != 1 && r->rounding == 0) {
		r->status = cpa_fail(r->error, CPA_INVALID,
			"'%.256s', character %d: %" PRId64 "/%" PRId64
			" does not come out whole; another size would, or floor() or ceil() "
			"around it",
			r->text, (int)(r->at - r->text), z.n, z.d);
		return (struct fraction){0, 1};
	}
	return z;
}

/* The value of a parenthesis that is open already, rounded where a function is in front of it. */
static struct fraction inside(struct reader *r, bool floor, bool ceil)
{
	struct fraction x;

	r->rounding += floor || ceil;
	x = sum(r);
	r->rounding -= floor || ceil;
	if (!take(r, ')'))
		return wrong(r, "expected )");
	if (floor || ceil) {
		int64_t down = x.n / x.d - (x.n % x.d < 0);

		x = (struct fraction){down + (ceil && x.d != 1), 1};
	}
	return x;
}

static struct fraction named(struct reader *r)
{
	const char *start = r->at;
	size_t n;

	while (isalnum((unsigned char)*r->at) || *r->at == '_')
		r->at++;
	n = (size_t)(r->at - start);
	if ((n == 5 && memcmp(start, "floor", 5) == 0) ||
		(n == 4 && memcmp(start, "ceil", 4) == 0))
		return take(r, '(') ? inside(r, n == 5, n == 4)
				    : wrong(r, "expected ( after a function");
	for (int i = 0; i < r->nnames; i++)
		if (strlen(r->names[i].name) == n && memcmp(r->names[i].name, start, n) == 0)
			return (struct fraction){r->names[i].value, 1};
	r->at = start;
	return wrong(r, "a name that is not known here");
}

static struct fraction number(struct reader *r)
{
	int64_t value = 0;

	for (; isdigit((unsigned char)*r->at); r->at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, *r->at - '0', &value))
			return wrong(r, "the number leaves 64 bits");
	return (struct fraction){value, 1};
}

static struct fraction factor(struct reader *r)
{
	skip(r);
	if (take(r, '('))
		return inside(r, false, false);
	if (isdigit((unsigned char)*r->at))
		return number(r);
	if (isalpha((unsigned char)*r->at) || *r->at == '_')
		return named(r);
	return wrong(r, "expected a number, a name or (");
}

static struct fraction product(struct reader *r)
{
	struct fraction x = factor(r);

	while (r->status == CPA_OK) {
		if (take(r, '*'))
			x = multiplied(r, x, factor(r));
		else if (take(r, '/'))
			x = divided(r, x, factor(r));
		else
			break;
	}
	return x;
}

static struct fraction sum(struct reader *r)
{
	struct fraction x;

	if (++r->depth > MAX_DEPTH)
		return wrong(r, "nested too deep");
	x = product(r);
	while (r->status == CPA_OK) {
		if (take(r, '+'))
			x = added(r, x, product(r), false);
		else if (take(r, '-'))
			x = added(r, x, product(r), true);
		else
			break;
	}
	r->depth--;
	return x;
}

enum cpa_status cpa_expression(const char *text, const struct cpa_name *names, int nnames,
	int64_t *value, struct cpa_error *error)
{
	struct reader r = {
		.text = text, .at = text, .names = names, .nnames = nnames, .error = error};
	struct fraction x;

	if (strlen(text) > MAX_TEXT)
		return cpa_fail(
			error, CPA_INVALID, "an expression has at most %d characters", MAX_TEXT);
	x = sum(&r);
	skip(&r);
	if (r.status == CPA_OK && *r.at)
		wrong(&r, "expected + - * / or the end");
	if (r.status == CPA_OK && x.d != 1)
		wrong(&r, "the value is not whole");
	if (r.status == CPA_OK)
		*value = x.n;
	return r.status;
}
