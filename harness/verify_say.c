/*
 * verify_say.c - the sentence when a result is wrong.
 */
#include "harness/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/probe.h"
#include "harness/ranks.h"

/* One more thing that is wrong, behind a semicolon. */
void cpa_verify_say(struct cpa_result *result, const char *format, ...)
{
	char *reason = result->reason;
	size_t size = sizeof result->reason, used = strlen(reason);
	va_list args;
	if (used > 0 && used + 3 < size) {
		strcpy(reason + used, "; ");
		used += 2;
	}
	va_start(args, format);
	vsnprintf(reason + used, size - used, format, args);
	va_end(args);
}

static void print_place(const struct cpa_ranks *ranks, const char *tensor, int64_t batch,
	int64_t token, int64_t head, int64_t dim, char *text, size_t size)
{
	char feature[32] = "";
	if (dim >= 0)
		snprintf(feature, sizeof feature, ", dim %" PRId64, dim);
	snprintf(text, size,
		"%s at batch %" PRId64 ", token %" PRId64 ", head %" PRId64
		"%s (rank %d works on it)",
		tensor, batch, token, head, feature, cpa_ranks_worker(ranks, batch, token, head));
}

static void say_deviation(struct cpa_result *result, const struct cpa_ranks *ranks,
	const char *tensor, const struct cpa_deviation *d, int64_t soft_batch, int64_t soft_head)
{
	char place[160];
	if (d->ratio > 1.0) {
		print_place(
			ranks, tensor, d->batch, d->token, d->head, d->dim, place, sizeof place);
		if (isnan(d->error))
			cpa_verify_say(result,
				"%s is NaN: never written, or made from what was never written",
				place);
		else if (isinf(d->ratio))
			cpa_verify_say(result, "%s is off by %.3g, where nothing may be", place,
				d->error);
		else
			cpa_verify_say(result, "%s is off by %.3g, %.3g times its bound %.3g",
				place, d->error, d->ratio, d->bound);
	} else if (d->soft_ratio > 1.0) {
		cpa_verify_say(result,
			"%s of batch %" PRId64 ", head %" PRId64
			" as a whole is %.3g times as far off as one "
			"rank and the merges explain",
			tensor, soft_batch, soft_head, d->soft_ratio);
	}
}

void cpa_verify_say_judgement(
	struct cpa_result *result, const struct cpa_ranks *ranks, const struct cpa_judgement *j)
{
	say_deviation(result, ranks, "o", &j->o, j->o_soft_batch, j->o_soft_head);
	say_deviation(result, ranks, "lse", &j->lse, j->lse_soft_batch, j->lse_soft_head);
}

void cpa_verify_say_probe(struct cpa_result *result, const struct cpa_ranks *ranks,
	const char *probe, const struct cpa_probe_finding *f)
{
	char place[160];
	print_place(ranks, cpa_tensor_name(f->tensor), f->batch, f->token, f->head, f->dim, place,
		sizeof place);
	cpa_verify_say(
		result, "probe %s: %s is %.9g, should be %.9g", probe, place, f->got, f->want);
}
