/*
 * plan_text.c - plans for people.
 */
#include "harness/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/guidance.h"
#include "harness/result_parts.h"

enum { FEW_RANKS = 16 };

/* The counts in the order in which they are printed. */
static const struct {
	const char *name;
	size_t offset;
} fields[] = {
	{ "bytes sent", offsetof(struct cpa_counts, bytes_sent) },
	{ "messages", offsetof(struct cpa_counts, messages) },
	{ "peak bytes", offsetof(struct cpa_counts, peak_bytes) },
	{ "work", offsetof(struct cpa_counts, work) },
	{ "attended", offsetof(struct cpa_counts, attended) },
	{ "mask bytes", offsetof(struct cpa_counts, mask_bytes) }, /* where there is a mask */
	{ "gathered bytes", offsetof(struct cpa_counts, gathered_bytes) }, /* with guidance */
};
enum { NFIELDS = sizeof fields / sizeof fields[0] };

static bool has_field(const struct cpa_result *result, int f)
{
	if (fields[f].offset == offsetof(struct cpa_counts, mask_bytes))
		return result->problem && result->problem->rule.mask.kind != CPA_MASK_NONE;
	return fields[f].offset != offsetof(struct cpa_counts, gathered_bytes) ||
		result->config.guidance != 0;
}

static int64_t count_at(const struct cpa_counts *counts, size_t offset)
{
	return *(const int64_t *)((const char *)counts + offset);
}

struct cpa_spread cpa_plan_spread(const struct cpa_result *result, size_t offset)
{
	struct cpa_spread spread = { 0 };

	for (int rank = 0; rank < result->W; rank++) {
		int64_t value = count_at(&result->counts[rank], offset);

		spread.min = rank == 0 || value < spread.min ? value : spread.min;
		spread.max = rank == 0 || value > spread.max ? value : spread.max;
		spread.sum += (double)value;
	}
	spread.mean = result->W > 0 ? spread.sum / result->W : 0;
	return spread;
}

/* ---- best first -------------------------------------------------------------------------- */

struct ranked {
	struct cpa_result result;
	int64_t key;
	int at; /* keeps the sort stable */
};

static int compare(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->result.W != y->result.W)
		return x->result.W < y->result.W ? -1 : 1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->at - y->at;
}

void cpa_plan_sort(struct cpa_result *at, int n, const char *best)
{
	size_t offset = strcmp(best, "bytes") == 0 ? offsetof(struct cpa_counts, bytes_sent)
		: strcmp(best, "work") == 0        ? offsetof(struct cpa_counts, work)
						   : offsetof(struct cpa_counts, peak_bytes);
	struct ranked *ranked = malloc((size_t)n * sizeof *ranked);

	/* Without memory the order stays as it was, which is an order all the same. */
	for (int i = 0; i < n && ranked; i++) {
		ranked[i].result = at[i];
		ranked[i].key = at[i].counts ? cpa_plan_spread(&at[i], offset).max : INT64_MAX;
		ranked[i].at = i;
	}
	if (ranked)
		qsort(ranked, (size_t)n, sizeof *ranked, compare);
	for (int i = 0; i < n && ranked; i++)
		at[i] = ranked[i].result;
	free(ranked);
}

/* ---- one line a configuration ------------------------------------------------------------ */

static void print_line(FILE *out, const struct cpa_result *r)
{
	struct cpa_spread bytes, messages, peak, work, attended;
	char mesh[48];

	cpa_result_mesh(r, mesh, sizeof mesh);
	bytes = cpa_plan_spread(r, offsetof(struct cpa_counts, bytes_sent));
	messages = cpa_plan_spread(r, offsetof(struct cpa_counts, messages));
	peak = cpa_plan_spread(r, offsetof(struct cpa_counts, peak_bytes));
	work = cpa_plan_spread(r, offsetof(struct cpa_counts, work));
	attended = cpa_plan_spread(r, offsetof(struct cpa_counts, attended));
	fprintf(out, "  %5d %-18s %-15s %13" PRId64 " %4" PRId64 " %13" PRId64 " ", r->W,
		cpa_variant_info(r->config.variant)->name, mesh, bytes.max, messages.max,
		peak.max);
	if (work.sum > 0)
		fprintf(out, "%8.3f %8.3f", (double)work.max / work.mean,
			attended.sum / work.sum);
	else
		fprintf(out, "%8s %8s", "-", "-");
	fprintf(out, "  %s\n", r->proved ? "yes" : "NO");
}

static void print_heads(FILE *out)
{
	fprintf(out,
		"  %5s %-18s %-15s %13s %4s %13s %8s %8s  %s\n  %5s %-18s %-15s %13s %4s %13s %8s "
		"%8s\n",
		"ranks", "variant", "NxRxU", "bytes sent", "msgs", "peak bytes", "work",
		"attended", "proved", "", "", "", "max of ranks", "max", "max of ranks", "max/mean",
		"/work");
}

/* Of the first configuration that another order or rotation would suit better. */
static void print_first_advice(
	FILE *out, const struct cpa_result_list *list, int first, int end)
{
	char advice[256];

	for (int i = first; i < end; i++) {
		const struct cpa_result *r = &list->at[i];

		if (!r->has_proof || !r->problem ||
			!cpa_plan_advise(r->problem, &r->config, advice, sizeof advice))
			continue;
		cpa_plan_print_advice(out, r->problem, &r->config);
		return;
	}
}

/* Its record is of one size in all of them. */
static void print_table_preamble(FILE *out, const struct cpa_result *any)
{
	struct cpa_preamble preamble;

	if (any && cpa_result_preamble(any, &preamble))
		fprintf(out,
			"  preamble of each, outside bytes sent: an all-gather of sizes, %" PRId64
			" bytes from each rank\n",
			preamble.record_bytes);
}

void cpa_plan_print_table(FILE *out, const struct cpa_result_list *list, int first, int end,
	bool picked)
{
	struct cpa_reasons refused = { 0 };
	const struct cpa_result *before = NULL;

	for (int i = first; i < end; i++) {
		const struct cpa_result *r = &list->at[i];

		if (!r->has_proof) {
			cpa_reasons_add(&refused, r);
			continue;
		}
		if (!before)
			print_heads(out);
		if (picked && (!before || before->config.order != r->config.order))
			fprintf(out, "  order %s:\n", cpa_order_name(r->config.order));
		before = r;
		print_line(out, r);
	}
	print_table_preamble(out, before);
	print_first_advice(out, list, first, end);
	if (refused.n > 0)
		fputs("  refused:\n", out);
	cpa_reasons_print(out, &refused, 2, CPA_MAX_REASONS);
	for (int i = first; i < end; i++)
		if (list->at[i].has_proof && !list->at[i].proved) {
			fputs("  not proved: ", out);
			cpa_print_wrapped(out, list->at[i].reason, 14, 4);
			fprintf(out, "    repeat: ");
			cpa_print_clean(out, list->at[i].reproduce ? list->at[i].reproduce : "");
			fputc('\n', out);
		}
}

/* ---- one configuration at length --------------------------------------------------------- */

static void print_ranks(FILE *out, const struct cpa_result *r)
{
	fprintf(out, "\n  rank");
	for (int f = 0; f < NFIELDS; f++)
		if (has_field(r, f))
			fprintf(out, " %16s", fields[f].name);
	fputc('\n', out);
	for (int rank = 0; rank < r->W; rank++) {
		fprintf(out, "  %4d", rank);
		for (int f = 0; f < NFIELDS; f++)
			if (has_field(r, f))
				fprintf(out, " %16" PRId64,
					count_at(&r->counts[rank], fields[f].offset));
		fputc('\n', out);
	}
}

/* What is told before the plan is made: it is not part of it. */
static void print_preamble(FILE *out, const struct cpa_result *r)
{
	struct cpa_preamble preamble;
	char queries[160], keys[160], text[700];

	if (!r->problem)
		return;
	cpa_problem_print_split(r->problem, false, queries, sizeof queries);
	cpa_problem_print_split(r->problem, true, keys, sizeof keys);
	if (!cpa_result_preamble(r, &preamble))
		snprintf(text, sizeof text,
			"none: there are %s and %s, and a rank tells the lengths of at most %d; every "
			"rank must be given all sizes",
			queries, keys, CPA_SIZES_MAX_SEGMENTS);
	else
		snprintf(text, sizeof text,
			"one all-gather of %" PRId64 " bytes from each rank, %" PRId64
			" bytes sent a rank, outside the bytes below: its own tokens of %s and of %s, and "
			"all that the ranks must agree on",
			preamble.record_bytes, preamble.bytes, queries, keys);
	fputs("preamble: ", out);
	cpa_print_wrapped(out, text, 10, 4);
}

static const char *layout_text(enum cpa_layout layout)
{
	switch (layout) {
	case CPA_LAYOUT_BHSD:
		return "q, k, v and o are [B, H, S, D], lse [B, H, S]";
	case CPA_LAYOUT_FUSED:
		return "q, k and v are one array [B, S, Hq + 2 Hkv, D]; o is [B, S, H, D]";
	default:
		return "q, k, v and o are [B, S, H, D], lse [B, S, H]";
	}
}

/* What the gather is for, and what it costs beside the rest of bytes sent. */
static void print_guidance(FILE *out, const struct cpa_result *r)
{
	char text[200];
	struct cpa_spread s = cpa_plan_spread(r, offsetof(struct cpa_counts, gathered_bytes));

	if (r->guidance.nbranches == 0)
		return;
	cpa_guidance_describe(&r->guidance, text, sizeof text);
	fprintf(out, "\n  %s\n", text);
	if (r->config.batch_degree == 1)
		fputs("  every rank has all branches of its rows: nothing is gathered\n", out);
	else
		fprintf(out,
			"  o is gathered among the %d batch groups: %.0f bytes of all ranks, "
			"%" PRId64 " of one at most\n",
			r->config.batch_degree, s.sum, s.max);
}

void cpa_plan_print_result(FILE *out, const struct cpa_result *r)
{
	char text[512], *config = cpa_config_text(&r->config);

	fprintf(out, "%s\n", config ? config : "");
	free(config);
	if (r->problem) {
		cpa_problem_print(r->problem, text, sizeof text);
		fprintf(out, "%s\n", text);
		fprintf(out, "layout %s: %s\n", cpa_layout_name(r->problem->layout),
			layout_text(r->problem->layout));
	}
	if (!r->has_proof) {
		fputs("refused: ", out);
		cpa_print_wrapped(out, r->reason, 9, 4);
		return;
	}
	print_preamble(out, r);
	fputs(r->proved ? "proved: " : "NOT PROVED: ", out);
	cpa_print_wrapped(out,
		r->proved ? "every rank's data flow, no race, every message meets its partner, "
			    "no deadlock"
			  : r->reason,
		12, 4);
	print_guidance(out, r);
	fprintf(out, "\n  %-24s %16s %16s %16s %9s\n", "per rank", "min", "mean", "max",
		"max/mean");
	for (int f = 0; f < NFIELDS; f++) {
		struct cpa_spread s = cpa_plan_spread(r, fields[f].offset);
		char name[48];

		if (!has_field(r, f))
			continue;
		snprintf(name, sizeof name, "%s%s", fields[f].name,
			f == 0 ? r->problem && r->problem->lse ? " (lse an output)"
							       : " (lse no output)"
			       : "");
		fprintf(out, "  %-24s %16" PRId64 " %16.1f %16" PRId64, name, s.min, s.mean,
			s.max);
		if (s.mean > 0)
			fprintf(out, " %9.4f\n", (double)s.max / s.mean);
		else
			fprintf(out, " %9s\n", "-");
	}
	if (r->W <= FEW_RANKS)
		print_ranks(out, r);
}

static const char *queue_name(int queue)
{
	static const char *const names[CPA_NQUEUES] = { "compute", "comm", "queue 2",
		"queue 3" };

	return names[queue];
}

void cpa_plan_print_schedule(FILE *out, const struct cpa_schedule *schedule)
{
	fprintf(out, "\nrank %d: %d buffers, %d operations in %d steps\n", schedule->rank,
		schedule->nbuffers, schedule->nops, schedule->nsteps);
	for (int s = 0; s < schedule->nsteps; s++) {
		const struct cpa_step *step = &schedule->steps[s];

		fprintf(out, "  step %d, %s", s, queue_name(step->queue));
		for (int q = 0; q < CPA_NQUEUES; q++)
			if (q != step->queue && step->waits[q] >= 0)
				fprintf(out, ", after step %d", step->waits[q]);
		fputc('\n', out);
		for (int i = step->first; i < step->first + step->nops; i++) {
			char text[512];

			cpa_op_print(schedule, i, text, sizeof text);
			fprintf(out, "    %s\n", text);
		}
	}
}
