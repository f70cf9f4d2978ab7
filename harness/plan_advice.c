/*
 * plan_advice.c - what a plan says beside its counts: what a rotation that ignores the rule would
 * have moved, and which order and rotation suit the rule better.
 */
#include "harness/plan.h"

#include <inttypes.h>

#include "harness/result_parts.h"
#include "harness/text.h"

/* ---- bytes of the rotation --------------------------------------------------------------- */

/* Messages between hops, and the all-gather of keys; the exchange before the ring has no hop. */
static bool rotates(const struct cpa_op *op)
{
	if (op->kind == CPA_OP_SEND)
		return op->hop >= 1;
	return op->kind == CPA_OP_COLLECTIVE && op->nreads > 0 &&
		(op->reads[0].content.tensor == CPA_TENSOR_K ||
			op->reads[0].content.tensor == CPA_TENSOR_V);
}

int64_t cpa_plan_rotated_bytes(const struct cpa_schedule *schedule)
{
	int64_t nbytes = 0;

	for (int i = 0; i < schedule->nops; i++) {
		const struct cpa_op *op = &schedule->ops[i];
		int64_t copies = op->kind == CPA_OP_COLLECTIVE
			? schedule->comms[op->comm].nmembers - 1
			: 1;

		for (int k = 0; k < op->nreads && rotates(op); k++) {
			const struct cpa_box *box = &op->reads[k].box;
			const struct cpa_buffer *buffer = &schedule->buffers[box->buffer];

			nbytes += copies * cpa_box_nelements(buffer, box) *
				(int64_t)cpa_dtype_nbytes(buffer->dtype);
		}
	}
	return nbytes;
}

int64_t cpa_plan_full_ring_bytes(const struct cpa_partition *partition)
{
	const struct cpa_problem *p = &partition->problem;
	int R = partition->config.ring_degree;
	int64_t nbytes = 0, all = 0, token = (int64_t)cpa_dtype_nbytes(p->dtype) * (p->D + p->Dv);

	for (int j = 0; j < R; j++)
		all += cpa_spans_ntokens(&partition->kv_block[j]);
	for (int rank = 0; rank < partition->W; rank++) {
		struct cpa_coords at = cpa_partition_coords(partition, rank);
		struct cpa_range b = cpa_partition_batches(partition, at.b);
		struct cpa_range heads = cpa_partition_kv_heads(partition, at.u);

		nbytes += (b.end - b.start) * (heads.end - heads.start) * token *
			(all - cpa_spans_ntokens(&partition->kv_block[at.r]));
	}
	return nbytes;
}

void cpa_plan_print_moved(FILE *out, const struct cpa_partition *partition, int64_t moved)
{
	int64_t full = cpa_plan_full_ring_bytes(partition);

	if (moved < full)
		fprintf(out,
			"\n  keys and values: %s moved %" PRId64
			" bytes; a full ring would have moved %" PRId64 "\n",
			cpa_rotate_name(partition->config.rotate), moved, full);
}

/* ---- advice ------------------------------------------------------------------------------ */

enum suits { SUITS_ANY, SUITS_CAUSAL, SUITS_WINDOW, SUITS_DOCUMENTS };

/* A bound on one side is a triangle, however it was written; on both it is a band. */
static enum suits rule_suits(const struct cpa_problem *problem)
{
	const struct cpa_rule *rule = &problem->rule;
	int64_t far = problem->Sq + problem->Skv;
	bool left = rule->window && rule->left >= 0 && rule->left < far;
	bool right = rule->causal || (rule->window && rule->right >= 0 && rule->right < far);

	if (rule->documents && rule->ndocuments > 1)
		return SUITS_DOCUMENTS;
	return left && right ? SUITS_WINDOW : left || right ? SUITS_CAUSAL : SUITS_ANY;
}

static bool can_run(const struct cpa_problem *problem, const struct cpa_config *config)
{
	struct cpa_partition *partition;
	struct cpa_error ignored;

	if (cpa_partition_create(problem, config, &partition, &ignored) != CPA_OK)
		return false;
	cpa_partition_destroy(partition);
	return true;
}

/* "--order zigzag", and the variant that takes it where this one does not; false: none does. */
static bool put_order(struct cpa_text *text, const struct cpa_problem *problem,
	struct cpa_config config, enum cpa_order order)
{
	config.order = order;
	if (can_run(problem, &config)) {
		cpa_text_put(text, "--order %s", cpa_order_name(order));
		return true;
	}
	if (!cpa_variant_info(config.variant)->strict)
		return false;
	config.variant += CPA_VARIANT_RING_ANYTHING - CPA_VARIANT_RING;
	config.split = config.split == CPA_SPLIT_EQUAL ? CPA_SPLIT_BALANCED : config.split;
	config.split_kv =
		config.split_kv == CPA_SPLIT_EQUAL ? CPA_SPLIT_BALANCED : config.split_kv;
	if (!can_run(problem, &config))
		return false;
	cpa_text_put(text, "--order %s --variant %s", cpa_order_name(order),
		cpa_variant_info(config.variant)->name);
	return true;
}

bool cpa_plan_advise(const struct cpa_problem *problem, const struct cpa_config *config,
	char *advice, size_t size)
{
	static const char near[] = "--order contiguous --rotate direct";
	struct cpa_text text = cpa_text_begin(advice, size);
	enum suits suits = rule_suits(problem);
	bool is_near = config->order == CPA_ORDER_CONTIGUOUS &&
		config->rotate == CPA_ROTATE_DIRECT;

	/* Every rank works on all rows where there is no ring: neither option does anything. */
	if (config->ring_degree == 1 || suits == SUITS_ANY)
		return false;
	if (suits == SUITS_CAUSAL) {
		if (config->order == CPA_ORDER_ZIGZAG ||
			config->order == CPA_ORDER_ZIGZAG_DOCUMENTS ||
			!put_order(&text, problem, *config, CPA_ORDER_ZIGZAG))
			return false;
		cpa_text_put(&text, " spreads causal work evenly");
		return true;
	}
	if (is_near || (suits == SUITS_DOCUMENTS && config->order == CPA_ORDER_ZIGZAG_DOCUMENTS))
		return false;
	if (suits == SUITS_WINDOW) {
		cpa_text_put(&text, "%s moves the fewest keys of a window", near);
		return true;
	}
	if (put_order(&text, problem, *config, CPA_ORDER_ZIGZAG_DOCUMENTS))
		cpa_text_put(&text, " spreads the work of documents when compute-bound; ");
	cpa_text_put(&text, "%s moves the fewest keys when not", near);
	return true;
}

void cpa_plan_print_advice(FILE *out, const struct cpa_problem *problem,
	const struct cpa_config *config)
{
	char advice[256];

	if (!cpa_plan_advise(problem, config, advice, sizeof advice))
		return;
	fputs("  advice: ", out);
	cpa_print_wrapped(out, advice, 10, 4);
}
