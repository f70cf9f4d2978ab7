/*
 * order.c - every order planned and counted, and the least of them.
 */
#include "harness/order.h"

struct load {
	int64_t most_attended; /* of any rank */
	int64_t nbytes;        /* of all ranks together */
};

static enum cpa_status measure(const struct cpa_partition *partition, struct load *load,
	struct cpa_error *error)
{
	*load = (struct load){ 0 };
	for (int rank = 0; rank < partition->W; rank++) {
		struct cpa_schedule *schedule;
		struct cpa_counts counts;
		enum cpa_status status = cpa_plan_create(partition, rank, &schedule, error);

		if (status != CPA_OK)
			return status;
		cpa_schedule_count(schedule, &partition->problem, &counts);
		cpa_schedule_destroy(schedule);
		if (counts.attended > load->most_attended)
			load->most_attended = counts.attended;
		load->nbytes += counts.bytes_sent;
	}
	return CPA_OK;
}

static bool is_less(const struct load *a, const struct load *b)
{
	return a->most_attended != b->most_attended ? a->most_attended < b->most_attended
						    : a->nbytes < b->nbytes;
}

enum cpa_status cpa_order_pick(const struct cpa_problem *problem, struct cpa_config *config,
	struct cpa_error *error)
{
	enum cpa_order last = problem->rule.documents ? CPA_ORDER_ZIGZAG_DOCUMENTS
						      : CPA_ORDER_STRIPED;
	enum cpa_order picked = CPA_ORDER_CONTIGUOUS;
	struct cpa_config tried = *config;
	struct load load, least = { 0 };
	bool any = false;

	for (int order = CPA_ORDER_CONTIGUOUS; order <= (int)last; order++) {
		struct cpa_partition *partition;
		enum cpa_status status;

		tried.order = (enum cpa_order)order;
		status = cpa_partition_create(problem, &tried, &partition, error);
		if (status == CPA_UNSUPPORTED || status == CPA_INVALID)
			continue;
		if (status == CPA_OK) {
			status = measure(partition, &load, error);
			cpa_partition_destroy(partition);
		}
		if (status != CPA_OK)
			return status;
		if (any && !is_less(&load, &least))
			continue;
		any = true;
		least = load;
		picked = tried.order;
	}
	config->order = picked;
	return CPA_OK;
}
