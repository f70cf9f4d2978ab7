/*
 * cmd_random.c - what verify --random N prints.
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "harness/commands.h"
#include "harness/random.h"

static void print_summary(const struct cpa_random_report *r)
{
	printf("%" PRId64 " problem%s in %.1f s: %" PRId64 " right, %" PRId64 " wrong, %" PRId64
	       " unsupported, %" PRId64 " cannot tell\n",
		r->nproblems, r->nproblems == 1 ? "" : "s", r->seconds, r->nright, r->nwrong,
		r->nunsupported, r->ncannot_tell);
	if (r->nright > 0)
		printf("worst error over bound: o %.3g, lse %.3g, probes %.3g\n", r->o, r->lse,
			r->probe);
	if (r->ncombined > 0)
		printf("with guidance: %" PRId64 " right, combinations %.3g\n", r->ncombined,
			r->combined);
}

static void print_failure(const struct cpa_random_report *r, const struct cpa_options *o)
{
	printf("%s: problem %" PRId64 " of --seed %" PRIu64 "\n", cpa_verdict_name(r->verdict),
		r->problem, o->seed);
	printf("as drawn:  %s\n", r->drawn);
	printf("smallest:  %s\n", r->smallest);
	printf("  %s\n", r->reason);
}

int cpa_cmd_random(const struct cpa_options *options)
{
	struct cpa_random_report report;
	struct cpa_error error = {""};
	if (cpa_random_sweep(options, options->random, isatty(STDERR_FILENO) == 1, &report,
		    &error) != CPA_OK)
		return cpa_complain(&error);
	if (report.verdict != CPA_VERDICT_RIGHT)
		print_failure(&report, options);
	print_summary(&report);
	if (report.nwrong > 0)
		return 1;
	return report.ncannot_tell > 0 || report.nright == 0 ? 2 : 0;
}
