/*
 * bench_faults.c - every fault, planted in random problems on 2 to 8 ranks in every variant: is
 * it seen by verify, found by check in what the ranks returned, and named by diagnose?  And runs
 * without a fault: is none of them called wrong?
 *
 *   bench_faults [--json FILE] [TRIALS [SEED [NAME]]]   TRIALS planted of each fault (6), or of one
 *                                                       and no right runs
 *
 * Prints a table, and writes it for cpattn report.  Exit status 1: a right run was called wrong, verify
 * passed what check found to be beyond its bound, a fault was named otherwise, or fewer than 95 of
 * 100 were named.
 */
#include <unistd.h>

#include "harness/commands.h"
#include "harness/output.h"
#include "harness/result_parts.h"
#include "harness/test_fault_trial.h"

enum { DRAWS_A_TRIAL = 150 };

static uint64_t state;

/* ---- counting ---- */

struct row {
	int planted, seen, found, named, tied, other, missed;
	int of[CPA_NVARIANTS][2]; /* of each variant: found, named or tied */
	bool good; /* verify saw what check found */
};

/* The faults by their numbers, then runs without one, of which `planted` is how many ran. */
struct table {
	struct row *rows;
	int n;
	struct row all, right;
};

static void count(struct row *row, const struct fault_trial *d, const struct fault_outcome *out)
{
	enum cpa_variant variant = CPA_VARIANT_UNIFIED;
	bool named = out->named || out->tied;
	row->planted += out->planted;
	row->seen += out->seen;
	row->found += out->found;
	row->named += out->named;
	row->tied += out->tied;
	row->other += out->found && !named && out->nfindings > 0;
	row->missed += out->found && out->nfindings == 0;
	if (out->found && cpa_variant_parse(d->variant, &variant)) {
		row->of[variant][0]++;
		row->of[variant][1] += named;
	}
	row->good &= !out->found || out->seen;
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
	for (int v = 0; v < CPA_NVARIANTS; v++)
		for (int i = 0; i < 2; i++)
			total->of[v][i] += row->of[v][i];
	total->good &= row->good;
}

/* One may be missed among a few. */
static bool is_named(const struct row *row)
{
	return row->other == 0 && (row->missed <= 1 || 20 * row->missed <= row->found);
}

/* ---- the runs ---- */

static void try_fault(
	int fault, int trials, const char *path, struct cpa_device *device, struct row *row)
{
	bool failed = false;
	*row = (struct row){.good = true};
	for (int i = 0; row->planted < trials && i < trials * DRAWS_A_TRIAL; i++) {
		struct fault_trial d;
		fault_trial_draw(&d, &state, cpa_fault_name(fault));
		struct fault_outcome out = fault_trial_run(&d, path, device, &failed);
		if (!out.planted)
			continue;
		count(row, &d, &out);
		if (out.found && !out.named && !out.tied) {
			printf("#   %s: ", out.nfindings ? "named otherwise" : "not named");
			fault_trial_print(stdout, &d);
		}
		if (!out.found || out.seen)
			continue;
		printf("# check finds it wrong, and verify does not: ");
		fault_trial_print(stdout, &d);
	}
	row->good &= !failed;
}

static void try_right(int trials, const char *path, struct cpa_device *device, struct row *row)
{
	bool failed = false;
	*row = (struct row){.good = true};
	for (int i = 0; row->planted < trials && i < trials * DRAWS_A_TRIAL; i++) {
		struct fault_trial d;
		fault_trial_draw(&d, &state, "");
		struct fault_outcome out = fault_trial_run(&d, path, device, &failed);
		row->planted += out.ran;
		row->seen += out.seen;
		row->found += out.found;
		if (!out.seen && !out.found)
			continue;
		printf("# called wrong without a fault, by %s: ", out.seen ? "verify" : "check");
		fault_trial_print(stdout, &d);
	}
	row->good = !failed && row->seen + row->found == 0;
	printf("without a fault: %d runs, %d called wrong by verify, %d by check\n", row->planted,
		row->seen, row->found);
}

/* ---- the table ---- */

static void print_heads(void)
{
	printf("# planted: runs with the fault; seen: by verify; found: by check in what the ranks "
	       "returned (transport\n# faults return nothing).  named, tied, other, missed: by "
	       "diagnose, of those found;\n# named and tied have the right place\n");
	printf("%-5s %-26s %7s %5s %6s %6s %5s %6s %7s\n", "class", "fault", "planted", "seen",
		"found", "named", "tied", "other", "missed");
}

static void print_row(const char *class, const char *name, const struct row *row)
{
	printf("%-5s %-26s %7d %5d %6d %6d %5d %6d %7d\n", class, name, row->planted, row->seen,
		row->found, row->named, row->tied, row->other, row->missed);
	fflush(stdout);
}

/* class NULL: runs without a fault */
static void put_row(
	struct cpa_json *json, const char *class, const char *name, const struct row *row)
{
	bool right = row->good && is_named(row);
	cpa_json_object(json);
	cpa_json_put_string(json, "verdict",
		cpa_verdict_name(row->planted == 0 ? CPA_VERDICT_CANNOT_TELL
			: right		     ? CPA_VERDICT_RIGHT
					     : CPA_VERDICT_WRONG));
	cpa_json_put_string(json, "reason",
		row->planted == 0 ? "no problem that was drawn has a place for it"
		: !row->good      ? "what is right was called wrong, or what is wrong was passed"
		: right		  ? NULL
				  : "fewer than 95 of 100 are named, or one is named otherwise");
	cpa_json_key(json, "fault");
	cpa_json_object(json);
	cpa_json_put_string(json, "class", class);
	cpa_json_put_string(json, "name", name);
	cpa_json_put_int(json, "planted", row->planted);
	cpa_json_put_int(json, "seen", row->seen);
	cpa_json_put_int(json, "found", row->found);
	cpa_json_put_int(json, "named", row->named);
	cpa_json_put_int(json, "tied", row->tied);
	cpa_json_put_int(json, "other", row->other);
	cpa_json_put_int(json, "missed", row->missed);
	cpa_json_key(json, "variants");
	cpa_json_object(json);
	for (int v = 0; v < CPA_NVARIANTS; v++) {
		cpa_json_key(json, cpa_variant_info((enum cpa_variant)v)->name);
		cpa_json_array(json);
		cpa_json_int(json, row->of[v][0]);
		cpa_json_int(json, row->of[v][1]);
		cpa_json_end_array(json);
	}
	cpa_json_end_object(json);
	cpa_json_end_object(json);
	cpa_json_end_object(json);
}

static void put_table(FILE *out, const struct table *table, const char *command_line)
{
	struct cpa_json json;
	struct cpa_summary sum = {0};
	cpa_json_init(&json, out, 2);
	cpa_json_object(&json);
	cpa_json_put_string(&json, "cpattn", cpa_version());
	cpa_json_put_int(&json, "format", 1);
	cpa_json_put_string(&json, "command", "faults");
	cpa_result_put_machine(&json);
	cpa_json_key(&json, "options");
	cpa_json_object(&json);
	cpa_json_put_string(&json, "command_line", command_line);
	cpa_json_put_string(&json, "problem", NULL);
	cpa_json_end_object(&json);
	cpa_json_key(&json, "results");
	cpa_json_array(&json);
	for (int i = 0; i < table->n; i++) {
		const struct row *row = &table->rows[i];
		put_row(&json, cpa_fault_class(i), cpa_fault_name(i), row);
		*(row->planted == 0			? &sum.cannot_tell
			: row->good && is_named(row) ? &sum.right
						     : &sum.wrong) += 1;
	}
	put_row(&json, NULL, "none", &table->right);
	*(table->right.good ? &sum.right : &sum.wrong) += 1;
	cpa_result_end_json(&json, &sum);
}

static bool write_table(const char *path, const struct table *table, const char *command_line)
{
	struct cpa_output output;
	struct cpa_error error;
	enum cpa_status s = cpa_output_open(&output, path, &error);
	if (s == CPA_OK) {
		put_table(output.file, table, command_line);
		s = cpa_output_commit(&output, &error);
	}
	if (s != CPA_OK)
		fprintf(stderr, "bench_faults: %s\n", error.text);
	return s == CPA_OK;
}

static void fill_table(struct table *table, int trials, const char *name, const char *path,
	struct cpa_device *device)
{
	print_heads();
	table->all.good = true;
	for (int i = 0; i < table->n; i++) {
		if (name && strcmp(name, cpa_fault_name(i)) != 0)
			continue;
		try_fault(i, trials, path, device, &table->rows[i]);
		print_row(cpa_fault_class(i), cpa_fault_name(i), &table->rows[i]);
		add_row(&table->all, &table->rows[i]);
	}
	print_row("", "all", &table->all);
	table->right.good = true;
	if (!name)
		try_right(trials * 40, path, device, &table->right);
}

int main(int argc, char **argv)
{
	const char *json = argc > 2 && strcmp(argv[1], "--json") == 0 ? argv[2] : NULL;
	char **args = argv + (json ? 2 : 0), path[] = "faults-XXXXXX", line[64];
	int n = argc - (json ? 3 : 1), trials = n > 0 ? atoi(args[1]) : 6;
	struct table table = {0};
	struct cpa_device *device;
	struct cpa_error error;
	int fd = mkstemp(path);
	state = n > 1 ? strtoull(args[2], NULL, 10) : 1;
	while (cpa_fault_name(table.n))
		table.n++;
	table.rows = calloc((size_t)table.n, sizeof *table.rows);
	if (trials < 1 || fd < 0 || !table.rows ||
		cpa_device_create("cpu", &device, &error) != CPA_OK) {
		fprintf(stderr, "bench_faults: expected a number of trials, and a directory "
				"that can be written\n");
		return 2;
	}
	close(fd);
	fill_table(&table, trials, n > 2 ? args[3] : NULL, path, device);
	unlink(path);
	cpa_device_destroy(device);
	snprintf(line, sizeof line, "make check-faults FAULT_TRIALS=%d", trials);
	bool good = table.all.good && table.right.good && 20 * (table.all.missed + table.all.other) <= table.all.found &&
		    table.all.other == 0;
	if (json && !write_table(json, &table, line))
		return 2;
	free(table.rows);
	return good ? 0 : 1;
}
