/*
 * kernel_write.c - times of kernels: a table, JSON, CSV, JUnit.
 */
#include <math.h>
#include <string.h>

#include "harness/kernel_times.h"
#include "harness/measure_write.h"
#include "harness/result_formats.h"
#include "harness/result_parts.h"

static double share(const struct cpa_kernel_time *t)
{
	return t->limit > 0 ? cpa_kernel_time_rate(t) / t->limit : NAN;
}

/* "S=64,H=128,...", without the defaults of the command; the device always makes lse. */
static void print_shape(const struct cpa_kernel_time *t, char *text, size_t size)
{
	struct cpa_problem p = t->kernel.problem;
	p.lse = false;
	cpa_problem_print(&p, text, size);
	char *lse = strstr(text, ",lse=no");
	if (lse)
		memmove(lse, lse + 7, strlen(lse + 7) + 1);
	if (strncmp(text, "B=1,", 4) == 0)
		memmove(text, text + 4, strlen(text + 4) + 1);
}

static const char *limit_name(enum cpa_kernel_limit limit)
{
	static const char *const names[] = {"multiply-add", "copy", "read"};
	return names[limit];
}

void cpa_kernel_list_print(FILE *out, const struct cpa_kernel_list *list)
{
	fprintf(out,
		"# cpattn bench --kernels, device %s, %d thread%s: %d timed runs of each after "
		"%d, in "
		"turn\n"
		"# each was compared to full attention, or to its source, before.  Rate: GF/s "
		"of\n"
		"# attend, without masked pairs; GB/s read + written of the others.  Limit: of "
		"the\n"
		"# same minutes and threads: multiply-add in registers, the best copy of as many "
		"bytes\n#\n",
		list->device->ops->name, list->threads, list->threads == 1 ? "" : "s",
		list->repeat, list->warmup);
	fprintf(out, "# %-8s %9s %9s %7s %8s %8s %6s  %s\n", "kernel", "fastest", "median",
		"spread", "rate", "limit", "of it", "problem");
	fprintf(out, "# %-8s %9s %9s %7s %8s %8s %6s\n", "", "us", "us", "%", "G/s", "G/s", "%");
	for (int i = 0; i < list->n; i++) {
		const struct cpa_kernel_time *t = &list->at[i];
		char text[512];
		print_shape(t, text, sizeof text);
		if (t->verdict == CPA_VERDICT_RIGHT)
			fprintf(out, "  %-8s %9.1f %9.1f %7.1f %8.1f %8.1f %6.1f  %s\n",
				cpa_kernel_name(t->kernel.kind), 1e6 * t->seconds.min,
				1e6 * t->seconds.median, 100 * cpa_statistics_spread(&t->seconds),
				1e-9 * cpa_kernel_time_rate(t), 1e-9 * t->limit, 100 * share(t),
				text);
		else
			fprintf(out, "  %-8s %s: %s  %s\n", cpa_kernel_name(t->kernel.kind),
				cpa_verdict_name(t->verdict), t->reason, text);
	}
}

/* ---- for programs ---- */

static void put_kernel(struct cpa_json *json, const struct cpa_kernel_list *list,
	const struct cpa_kernel_time *t)
{
	bool timed = t->verdict == CPA_VERDICT_RIGHT;
	char text[512];
	print_shape(t, text, sizeof text);
	cpa_json_object(json);
	cpa_json_put_string(json, "kernel", cpa_kernel_name(t->kernel.kind));
	cpa_json_put_string(json, "problem", text);
	cpa_json_put_string(json, "dtype", cpa_dtype_name(t->kernel.problem.dtype));
	cpa_json_put_string(json, "device", list->device->ops->name);
	cpa_json_put_string(json, "verdict", cpa_verdict_name(t->verdict));
	cpa_json_put_string(json, "reason", t->reason[0] ? t->reason : NULL);
	cpa_json_put_int(json, "threads", list->threads);
	cpa_statistics_put_json(json, "seconds", &t->seconds);
	cpa_json_put_known(json, "spread", timed ? cpa_statistics_spread(&t->seconds) : NAN);
	cpa_json_put_known(json, "flop", t->kernel.flop > 0 ? t->kernel.flop : NAN);
	cpa_json_put_known(json, "bytes", t->kernel.bytes);
	cpa_json_put_known(json, "rate", timed ? cpa_kernel_time_rate(t) : NAN);
	cpa_json_put_string(json, "limited_by", limit_name(t->against));
	cpa_json_put_known(json, "limit", t->limit > 0 ? t->limit : NAN);
	cpa_json_put_known(json, "of_limit", timed ? share(t) : NAN);
	cpa_json_end_object(json);
}

void cpa_kernel_list_json(
	FILE *out, const struct cpa_kernel_list *list, const struct cpa_options *options)
{
	struct cpa_json json;
	int n[4] = {0};
	cpa_result_begin_json(&json, out, options, NULL);
	for (int i = 0; i < list->n; i++) {
		put_kernel(&json, list, &list->at[i]);
		n[list->at[i].verdict]++;
	}
	const struct cpa_summary sum = {n[CPA_VERDICT_RIGHT], n[CPA_VERDICT_WRONG],
		n[CPA_VERDICT_UNSUPPORTED], n[CPA_VERDICT_CANNOT_TELL]};
	cpa_result_end_json(&json, &sum);
}

static void put_field(FILE *out, double value)
{
	if (!isnan(value))
		fprintf(out, "%.17g", value);
	fputc(',', out);
}

void cpa_kernel_list_csv(FILE *out, const struct cpa_kernel_list *list)
{
	fputs("kernel,problem,dtype,device,verdict,reason,threads,repeat,seconds_min,seconds_q1,"
	      "seconds_median,seconds_q3,seconds_max,spread,flop,bytes,rate,limit,of_limit,"
	      "limited_by\r\n",
		out);
	for (int i = 0; i < list->n; i++) {
		const struct cpa_kernel_time *t = &list->at[i];
		const struct cpa_statistics *s = &t->seconds;
		bool timed = t->verdict == CPA_VERDICT_RIGHT;
		char text[512];
		print_shape(t, text, sizeof text);
		cpa_csv_text(out, cpa_kernel_name(t->kernel.kind));
		cpa_csv_text(out, text);
		cpa_csv_text(out, cpa_dtype_name(t->kernel.problem.dtype));
		cpa_csv_text(out, list->device->ops->name);
		cpa_csv_text(out, cpa_verdict_name(t->verdict));
		cpa_csv_text(out, t->reason);
		cpa_csv_int(out, list->threads, true);
		cpa_csv_int(out, s->n, true);
		const double values[] = {s->min, s->q1, s->median, s->q3, s->max,
			timed ? cpa_statistics_spread(s) : NAN, t->kernel.flop, t->kernel.bytes,
			timed ? cpa_kernel_time_rate(t) : NAN, t->limit > 0 ? t->limit : NAN,
			timed ? share(t) : NAN};
		for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
			put_field(out, values[v]);
		fprintf(out, "%s\r\n", limit_name(t->against));
	}
}

static void put_case(FILE *out, const struct cpa_kernel_time *t)
{
	static const char *const elements[] = {NULL, "failure", "skipped", "error"};
	const char *element = elements[t->verdict];
	char text[512];
	print_shape(t, text, sizeof text);
	fprintf(out, "    <testcase classname=\"%s\" name=\"", cpa_kernel_name(t->kernel.kind));
	cpa_xml_text(out, text);
	fprintf(out, "\" time=\"%.9f\"", element ? 0.0 : t->seconds.median);
	if (!element) {
		fputs("/>\n", out);
		return;
	}
	fprintf(out, ">\n      <%s message=\"", element);
	cpa_xml_text(out, t->reason);
	fputs("\"/>\n    </testcase>\n", out);
}

void cpa_kernel_list_junit(FILE *out, const struct cpa_kernel_list *list)
{
	int n[4] = {0};
	double seconds = 0.0;
	for (int i = 0; i < list->n; i++) {
		n[list->at[i].verdict]++;
		seconds += list->at[i].verdict == CPA_VERDICT_RIGHT
			? list->at[i].seconds.median
			: 0.0;
	}
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", out);
	for (int i = 0; i < 2; i++) {
		fprintf(out,
			"%s tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\"",
			i ? "  <testsuite name=\"kernels\"" : "<testsuites name=\"cpattn bench\"",
			list->n, n[CPA_VERDICT_WRONG], n[CPA_VERDICT_CANNOT_TELL],
			n[CPA_VERDICT_UNSUPPORTED]);
		if (i)
			fprintf(out, " time=\"%.9f\"", seconds);
		fputs(">\n", out);
	}
	for (int i = 0; i < list->n; i++)
		put_case(out, &list->at[i]);
	fputs("  </testsuite>\n</testsuites>\n", out);
}
