/*
 * fault_branches.c - H: branches of guidance that are computed as another one.
 *
 * Faults of what ranks make of right branches are in fault.c: those leave every o right.
 */
#include "harness/fault_plant.h"

static int nbranches(const struct cpa_site *site)
{
	return site->target->guidance.nbranches;
}

static bool has_branches(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && nbranches(site) >= 2;
}

static bool has_three(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && nbranches(site) == 3;
}

/* Query, keys and rule of each item are those of the same item of another branch. */
static void compute_as(struct cpa_spoil *x, int (*as)(int branch, int n))
{
	int n = nbranches(&x->site);
	int64_t items = x->problem.B / n;
	for (int64_t b = 0; b < x->nb; b++) {
		int64_t item = x->batches.start + b;
		x->q_batch[b] = x->kv_batch[b] = x->rule_batch[b] =
			as((int)(item / items), n) * items + item % items;
	}
}

static int other_end(int branch, int n)
{
	return n - 1 - branch;
}

static int one_before(int branch, int n)
{
	return branch == n - 1 ? branch - 1 : branch;
}

static int last(int branch, int n)
{
	(void)branch;
	return n - 1;
}

static int first(int branch, int n)
{
	(void)branch;
	(void)n;
	return 0;
}

static void exchanged(struct cpa_spoil *x)
{
	compute_as(x, other_end);
}

static void replaced(struct cpa_spoil *x)
{
	compute_as(x, one_before);
}

static void alike(struct cpa_spoil *x)
{
	compute_as(x, last);
}

static void all_first(struct cpa_spoil *x)
{
	compute_as(x, first);
}

const struct cpa_fault_entry cpa_faults_branches[] = {
	{"branches-exchanged", "H01",
		"the positive branch is computed as the negative one and back",
		"no public report is known", "--guidance", "branches (--guidance)",
		CPA_FAULT_EVERYWHERE, 0, has_branches, .attend = exchanged},
	{"branch-as-another", "H02", "the positive branch is computed as the middle one",
		"vLLM-Omni 1578 lost the image term on two ranks", "--guidance with two scales",
		"three branches (--guidance S,S2)", CPA_FAULT_EVERYWHERE, 0, has_three,
		.attend = replaced},
	{"branches-alike", "H03", "every branch is computed as the positive one",
		"vLLM-Omni 1578 and cosmos-transfer2.5 205 took every rank for rank 0",
		"--guidance", "branches (--guidance)", CPA_FAULT_EVERYWHERE, 0, has_branches,
		.attend = alike},
	{"branches-as-first", "H04", "every rank acts as the first, and computes its branch",
		"cosmos-transfer2.5 205", "--guidance", "branches (--guidance)",
		CPA_FAULT_EVERYWHERE, 0, has_branches, .attend = all_first},
	{0},
};
