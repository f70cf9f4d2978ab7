/*
 * diagnose_report.c - the findings of one call, for people and for programs.
 */
#include "harness/diagnose_report.h"

#include <stdio.h>
#include <string.h>

#include "harness/result_parts.h"

enum { MOST_PRINTED = 12 };

enum cpa_status cpa_diagnosis_make(const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, const struct cpa_check_rules *rules,
	struct cpa_arena *arena, const struct cpa_diagnosis **diagnosis, struct cpa_error *error)
{
	struct cpa_diagnosis *made = cpa_arena_alloc(arena, sizeof *made);
	struct cpa_finding *findings = NULL, *kept;
	struct cpa_suspect s;
	enum cpa_status status = cpa_suspect_init(&s, checked, recording, i, rules, error);
	int n = 0, nties = 0;

	if (status == CPA_OK)
		status = cpa_diagnose(&s, &findings, &n, &nties, error);
	if (status == CPA_OK) {
		kept = cpa_arena_alloc(arena, ((size_t)n + 1) * sizeof *kept);
		if (!made || !kept)
			status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for a diagnosis");
		else {
			memcpy(kept, findings, (size_t)n * sizeof *kept);
			*made = (struct cpa_diagnosis){
				n, nties, kept, s.nrows, s.nwrong, s.too_large};
			*diagnosis = made;
		}
	}
	cpa_suspect_fini(&s);
	return status;
}

/* ---- for people ---- */

static void print_finding(FILE *out, const struct cpa_finding *f)
{
	fprintf(out, "    %s  ", f->class);
	cpa_print_wrapped(out, f->text, 9, 9);
	fprintf(out, "         explains %.4g %% of the error on %d rows\n", 100.0 * f->explained,
		f->nrows);
}

void cpa_diagnosis_print(FILE *out, const struct cpa_diagnosis *d)
{
	if (d->n == 0) {
		fprintf(out,
			"  wrong, and none of the known classes explains it (%d of %d sampled "
			"rows are "
			"wrong)\n",
			d->nwrong, d->nrows);
		if (d->too_large)
			fputs("  (it is too large for whole runs with a fault to be compared; a "
			      "recording of fewer\n  tokens or heads is looked at more "
			      "closely)\n", out);
		return;
	}
	fputs(d->nties == 1 ? "  the fault:\n"
			    : "  one of these, which this run does not tell apart:\n",
		out);
	for (int i = 0; i < d->nties && i < MOST_PRINTED; i++)
		print_finding(out, &d->findings[i]);
	if (d->nties > MOST_PRINTED)
		fprintf(out, "    and %d more (--json)\n", d->nties - MOST_PRINTED);
	for (int i = 0; d->nties > 1 && i < d->nties && i < MOST_PRINTED; i++)
		if (d->findings[i].probe &&
			(i == 0 || d->findings[i].probe != d->findings[i - 1].probe))
			fprintf(out, "    %s shows itself with: %s\n", d->findings[i].class,
				d->findings[i].probe);
}

/* ---- JSON ---- */

void cpa_diagnosis_put_json(struct cpa_json *json, const struct cpa_diagnosis *d)
{
	cpa_json_key(json, "findings");
	cpa_json_array(json);
	for (int i = 0; i < d->n; i++) {
		const struct cpa_finding *f = &d->findings[i];

		cpa_json_object(json);
		cpa_json_put_string(json, "class", f->class);
		cpa_json_put_string(json, "name", f->text);
		cpa_json_put_place(json, "rank", f->rank);
		cpa_json_put_place(json, "hop", f->hop);
		cpa_json_put_place(json, "block", f->block);
		cpa_json_put_place(json, "head", f->head);
		cpa_json_key(json, "explained");
		cpa_json_number(json, f->explained);
		/* How many others this one ties with. */
		cpa_json_put_int(json, "ties", i < d->nties ? d->nties - 1 : 0);
		cpa_json_end_object(json);
	}
	cpa_json_end_array(json);
}
