/*
 * fuzz_report.c - the reader of reports on any input: it may refuse, in one sentence; what it
 * accepts makes pages, and compares with itself without a change.
 */
#include <assert.h>
#include <stdlib.h>

#include "harness/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_all(const struct cpa_report *report)
{
	char *text = NULL;
	size_t nbytes = 0;
	struct cpa_error error = {""};
	FILE *out = open_memstream(&text, &nbytes);

	if (!out)
		return;
	assert(cpa_report_markdown(out, report, &error) == CPA_OK);
	fflush(out);
	assert(nbytes <= CPA_MARKDOWN_LIMIT);
	cpa_report_html(out, report);
	cpa_report_annotations(out, report);
	cpa_report_junit(out, report);
	fclose(out);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cpa_report_run runs[2];
	struct cpa_comparison comparison;
	struct cpa_plots plots[2] = {{.n = 0}};
	struct cpa_error error = {""};
	struct cpa_arena arena;

	cpa_arena_init(&arena);
	if (cpa_report_parse("x", (const char *)data, size, &arena, &runs[0], &error) == CPA_OK) {
		struct cpa_report report = {
			.runs = runs, .nruns = 1, .plots = plots, .arena = &arena};

		write_all(&report);
		runs[1] = runs[0];
		assert(cpa_report_compare(&runs[0], &runs[1], &arena, &comparison, &error) ==
			CPA_OK);
		assert(comparison.nchanges == 0 && comparison.nregressions == 0);
		report.nruns = 2;
		report.comparison = &comparison;
		write_all(&report);
	} else {
		assert(error.text[0] != '\0');
	}
	cpa_arena_fini(&arena);
	return 0;
}
