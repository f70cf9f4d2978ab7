/*
 * bench_faults.c - every fault, planted in random problems on 2 to 8 ranks in every variant: is
 * it seen by verify, found by check in what the ranks returned, and named by diagnose?  And runs
 * without a fault: is none of them called wrong?
 *
 *   bench_faults [TRIALS [SEED [NAME]]]      TRIALS planted of each fault (6), or of one and
 *                                            no right runs
 *
 * Prints a table.  Exit status 1: a right run was called wrong, or verify passed what check found to
 * be beyond its bound.
 */
#include <unistd.h>

#include "harness/test_fault_trial.h"

enum { DRAWS_A_TRIAL = 150 };

static uint64_t state;

/* ---- the table ---- */

struct row {
	int planted, seen, found, named, tied, other, missed;
};

static bool count(struct row *row, const struct fault_outcome *out)
{
	row->planted += out->planted;
	row->seen += out->seen;
	row->found += out->found;
	row->named += out->named;
	row->tied += out->tied;
	row->other += out->found && !out->named && !out->tied && out->nfindings > 0;
	row->missed += out->found && out->nfindings == 0;
	return out->found && !out->seen;
}

static void print_row(const char *class, const char *name, const struct row *row)
{
	printf("%-5s %-26s %7d %5d %6d %6d %5d %6d %7d\n", class, name, row->planted, row->seen,
		row->found, row->named, row->tied, row->other, row->missed);
	fflush(stdout);
}

static void add_row(struct row *total, const struct row *row)
{
	total->planted += row->planted;
	total->seen += row->seen;
	total->found += row->found;
	total->named += row->named;
	total->tied += row->tied;
	total->other += row->other;
	total->missed += row->missed;
}

/* False: verify passed a run that check found wrong. */
static bool try_fault(int fault, int trials, const char *path, struct cpa_device *device,
	struct row *row)
{
	bool good = true, failed = false;
	for (int i = 0; row->planted < trials && i < trials * DRAWS_A_TRIAL; i++) {
		struct fault_trial d;
		fault_trial_draw(&d, &state, cpa_fault_name(fault));
		struct fault_outcome out = fault_trial_run(&d, path, device, &failed);
		if (out.planted && out.found && !out.named && !out.tied) {
			printf("#   %s: ", out.nfindings ? "named otherwise" : "not named");
			fault_trial_print(stdout, &d);
		}
		if (!out.planted || !count(row, &out))
			continue;
		printf("# check finds it wrong, and verify does not: ");
		fault_trial_print(stdout, &d);
		good = false;
	}
	return good && !failed;
}

/* Runs without a fault; false: one is called wrong. */
static bool try_right(int trials, const char *path, struct cpa_device *device)
{
	bool good = true, failed = false;
	int nran = 0, nwrong = 0, nfound = 0;
	for (int i = 0; nran < trials && i < trials * DRAWS_A_TRIAL; i++) {
		struct fault_trial d;
		fault_trial_draw(&d, &state, "");
		struct fault_outcome out = fault_trial_run(&d, path, device, &failed);
		nran += out.ran;
		nwrong += out.seen;
		nfound += out.found;
		if (!out.seen && !out.found)
			continue;
		printf("# called wrong without a fault, by %s: ", out.seen ? "verify" : "check");
		fault_trial_print(stdout, &d);
		good = false;
	}
	printf("without a fault: %d runs, %d called wrong by verify, %d by check\n", nran, nwrong,
		nfound);
	return good && !failed;
}

int main(int argc, char **argv)
{
	int trials = argc > 1 ? atoi(argv[1]) : 6;
	char path[] = "faults-XXXXXX";
	struct cpa_device *device;
	struct cpa_error error;
	struct row total = {0};
	bool good = true;
	int fd = mkstemp(path);
	state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	if (trials < 1 || fd < 0 || cpa_device_create("cpu", &device, &error) != CPA_OK) {
		fprintf(stderr, "bench_faults: expected a number of trials, and a directory "
				"that can be written\n");
		return 2;
	}
	close(fd);
	printf("# planted: runs with the fault; seen: by verify; found: by check in what the ranks "
	       "returned (transport\n# faults return nothing).  named, tied, other, missed: by "
	       "diagnose, of those found;\n# named and tied have the right place\n");
	printf("%-5s %-26s %7s %5s %6s %6s %5s %6s %7s\n", "class", "fault", "planted", "seen",
		"found", "named", "tied", "other", "missed");
	for (int i = 0; cpa_fault_name(i); i++) {
		struct row row = {0};
		if (argc > 3 && strcmp(argv[3], cpa_fault_name(i)) != 0)
			continue;
		good &= try_fault(i, trials, path, device, &row);
		print_row(cpa_fault_class(i), cpa_fault_name(i), &row);
		add_row(&total, &row);
	}
	print_row("", "all", &total);
	if (argc <= 3)
		good &= try_right(trials * 40, path, device);
	unlink(path);
	cpa_device_destroy(device);
	return good ? 0 : 1;
}
