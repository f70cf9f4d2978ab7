/*
 * result_formats.c - results as JUnit XML and as CSV.
 */
#include "harness/result_formats.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check_report.h"
#include "harness/commands.h"
#include "harness/json.h"
#include "harness/measure_write.h"
#include "harness/plan.h"
#include "harness/result_parts.h"

/* The diagnosis of a call, which its first result has, is about its wrong ranks. */
static bool is_explained(const struct cpa_result *r, const struct cpa_diagnosis *diagnosis)
{
	return diagnosis && r->part && r->part->rank >= 0 && r->verdict == CPA_VERDICT_WRONG;
}

/* ---- JUnit ------------------------------------------------------------------------------- */

/* Attribute text.  XML 1.0 has no control characters but tab and line ends, no U+FFFE and
 * U+FFFF. */
static void put_xml(FILE *out, const char *text)
{
	while (*text) {
		int n = cpa_utf8_length(text);
		unsigned char c = (unsigned char)*text;

		if (n == 0 || (n == 1 && c < 0x20 && !strchr("\t\n\r", c)) ||
			strncmp(text, "\xef\xbf\xbe", 3) == 0 ||
			strncmp(text, "\xef\xbf\xbf", 3) == 0)
			fputs("&#xfffd;", out);
		else if (c == '&')
			fputs("&amp;", out);
		else if (c == '<')
			fputs("&lt;", out);
		else if (c == '>')
			fputs("&gt;", out);
		else if (c == '"')
			fputs("&quot;", out);
		else if (c < 0x20)
			fprintf(out, "&#%u;", (unsigned)c);
		else
			fwrite(text, 1, (size_t)n, out);
		text += n ? n : 1;
	}
}

void cpa_xml_text(FILE *out, const char *text)
{
	put_xml(out, text);
}

static void put_call(FILE *out, const struct cpa_result *r)
{
	if (r->file)
		put_xml(out, r->file);
	if (r->file && r->call)
		fputc(' ', out);
	put_xml(out, r->call ? r->call : r->file ? "" : "problem");
}

/* Why it is no success, and how to see it again. */
static void put_outcome(FILE *out, const struct cpa_result *r, const char *element)
{
	fprintf(out, "      <%s message=\"", element);
	put_xml(out, r->reason);
	if (r->reproduce) {
		fputs("\">", out);
		put_xml(out, r->reproduce);
		fprintf(out, "</%s>\n", element);
	} else {
		fputs("\"/>\n", out);
	}
}

/* One line behind the outcome. */
static void put_finding(FILE *out, const struct cpa_diagnosis *diagnosis)
{
	char classes[CPA_CHECK_CLASSES], text[2000];

	cpa_check_findings(diagnosis, classes, text, sizeof text);
	fputs("      <system-out>", out);
	put_xml(out, text[0] ? text : "none of the known classes explains it");
	fputs("</system-out>\n", out);
}

/* diagnosis: of the call, NULL: none was asked for */
static void put_case(
	FILE *out, const struct cpa_result *r, const struct cpa_diagnosis *diagnosis)
{
	static const char *const elements[] = { NULL, "failure", "skipped", "error" };
	const char *element = elements[r->verdict];
	char *text = r->has_config ? cpa_config_text(&r->config) : NULL;
	char part[24] = "all of it";

	if (r->part)
		cpa_check_name_part(r->part, part, sizeof part);
	fputs("    <testcase classname=\"", out);
	put_call(out, r);
	fputs("\" name=\"", out);
	put_xml(out, text ? text : part);
	free(text);
	fprintf(out, "\" time=\"%.6f\"", isfinite(r->seconds) ? r->seconds : 0.0);
	if (!element && !r->as) {
		fputs("/>\n", out);
		return;
	}
	fputs(">\n", out);
	cpa_plan_answer_properties(out, r);
	if (element)
		put_outcome(out, r, element);
	cpa_plan_answer_output(out, r);
	if (is_explained(r, diagnosis))
		put_finding(out, diagnosis);
	fputs("    </testcase>\n", out);
}

static void put_suite(FILE *out, const struct cpa_result_list *list, int first, int end)
{
	struct cpa_result_list part = { .at = list->at + first, .n = end - first };
	struct cpa_summary sum = cpa_result_summary(&part);
	double seconds = 0;

	for (int i = first; i < end; i++)
		seconds += isfinite(list->at[i].seconds) ? list->at[i].seconds : 0;
	fputs("  <testsuite name=\"", out);
	put_call(out, &list->at[first]);
	fprintf(out,
		"\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.6f\">\n",
		part.n, sum.wrong, sum.cannot_tell, sum.unsupported, seconds);
	for (int i = first; i < end; i++)
		put_case(out, &list->at[i], list->at[first].diagnosis);
	fputs("  </testsuite>\n", out);
}

void cpa_result_write_junit(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options)
{
	struct cpa_summary sum = cpa_result_summary(list);

	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cpattn %s\" "
		"tests=\"%d\" "
		"failures=\"%d\" errors=\"%d\" skipped=\"%d\">\n",
		cpa_command_name(options->command), list->n, sum.wrong,
		sum.cannot_tell, sum.unsupported);
	for (int first = 0; first < list->n; first = cpa_result_call_end(list, first))
		put_suite(out, list, first, cpa_result_call_end(list, first));
	fputs("</testsuites>\n", out);
}

/* ---- CSV --------------------------------------------------------------------------------- */

void cpa_csv_field(FILE *out, const char *text)
{
	bool quoted = text && strpbrk(text, ",\"\r\n");

	if (quoted)
		fputc('"', out);
	for (; text && *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	if (quoted)
		fputc('"', out);
}

static void put_text(FILE *out, const char *text)
{
	cpa_csv_field(out, text);
	fputc(',', out);
}

static void put_int(FILE *out, int64_t value, bool exists)
{
	if (exists)
		fprintf(out, "%" PRId64, value);
	fputc(',', out);
}

void cpa_csv_text(FILE *out, const char *text)
{
	put_text(out, text);
}

void cpa_csv_int(FILE *out, int64_t value, bool exists)
{
	put_int(out, value, exists);
}

static void put_number(FILE *out, double value)
{
	if (isinf(value))
		fputs(value > 0 ? "inf" : "-inf", out);
	else if (!isnan(value))
		fprintf(out, "%.17g", value);
	fputc(',', out);
}

static void put_deviation(FILE *out, const struct cpa_deviation *d)
{
	put_number(out, d->rel_l2);
	/* Of an element that is NaN the error is too; elsewhere NaN is what does not exist. */
	if (isnan(d->error) && isinf(d->ratio))
		fputs("nan,", out);
	else
		put_number(out, d->error);
	put_number(out, d->bound);
	put_number(out, d->ratio);
	put_number(out, d->soft_ratio);
	put_int(out, d->batch, d->batch >= 0);
	put_int(out, d->token, d->token >= 0);
	put_int(out, d->head, d->head >= 0);
	put_int(out, d->dim, d->dim >= 0);
}

static void put_totals(FILE *out, const struct cpa_result *r)
{
	struct cpa_counts sum = { 0 }, max = { 0 };

	for (int i = 0; i < r->W && r->counts; i++) {
		const struct cpa_counts *c = &r->counts[i];

		sum.bytes_sent += c->bytes_sent;
		sum.messages += c->messages;
		sum.work += c->work;
		sum.attended += c->attended;
		max.bytes_sent =
			c->bytes_sent > max.bytes_sent ? c->bytes_sent : max.bytes_sent;
		max.peak_bytes =
			c->peak_bytes > max.peak_bytes ? c->peak_bytes : max.peak_bytes;
		max.work = c->work > max.work ? c->work : max.work;
	}
	put_int(out, sum.bytes_sent, r->counts);
	put_int(out, max.bytes_sent, r->counts);
	put_int(out, sum.messages, r->counts);
	put_int(out, max.peak_bytes, r->counts);
	put_int(out, sum.work, r->counts);
	put_int(out, max.work, r->counts);
	put_int(out, sum.attended, r->counts);
}

/* "one device", "rank 3" of check. */
static void put_part(FILE *out, const struct cpa_check_part *part)
{
	char name[24] = "";

	if (part)
		cpa_check_name_part(part, name, sizeof name);
	put_text(out, name);
}

static void put_line(FILE *out, const struct cpa_result *r)
{
	const struct cpa_config *c = r->has_config ? &r->config : NULL;

	put_text(out, r->file);
	put_text(out, r->call);
	put_text(out, c ? cpa_variant_info(c->variant)->name : NULL);
	put_int(out, c ? c->batch_degree : 0, c);
	put_int(out, c ? c->ring_degree : 0, c);
	put_int(out, c ? c->ulysses_degree : 0, c);
	put_int(out, r->W, r->W > 0);
	put_text(out, c && c->ring_degree > 1 ? cpa_rotate_name(c->rotate) : NULL);
	put_text(out, c ? cpa_split_name(c->split) : NULL);
	put_text(out, c ? cpa_order_name(c->order) : NULL);
	put_text(out, c ? cpa_heads_name(c->heads) : NULL);
	put_text(out, c ? c->direction < 0 ? "down" : "up" : NULL);
	put_text(out, c ? cpa_partials_name(c->partials) : NULL);
	put_text(out, r->problem ? cpa_dtype_name(r->problem->dtype) : NULL);
	put_text(out, r->device);
	put_text(out, r->comm);
	put_deviation(out, &r->o);
	put_deviation(out, &r->lse);
	put_number(out, r->probe_ratio);
	put_totals(out, r);
	put_number(out, r->seconds);
	put_text(out, r->has_proof ? r->proved ? "yes" : "no" : NULL);
	put_part(out, r->part);
	put_text(out, cpa_verdict_name(r->verdict));
	put_text(out, r->reason);
}

static void put_csv_finding(
	FILE *out, const struct cpa_result *r, const struct cpa_diagnosis *diagnosis)
{
	char classes[CPA_CHECK_CLASSES] = "", text[2000] = "";

	if (is_explained(r, diagnosis))
		cpa_check_findings(diagnosis, classes, text, sizeof text);
	fputc(',', out);
	cpa_csv_field(out, classes);
	fputc(',', out);
	cpa_csv_field(out, text);
}

void cpa_result_write_csv(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options)
{
	const struct cpa_diagnosis *diagnosis = NULL;

	if (options->command == CPA_COMMAND_BENCH) {
		cpa_measured_write_csv(out, list);
		return;
	}
	fputs("file,call,variant,batch,ring,ulysses,ranks,rotate,split,order,heads_rule,"
	      "direction,partials,"
	      "dtype,device,comm,o_rel_l2,o_error,o_bound,o_ratio,o_soft_ratio,o_batch,o_token,"
	      "o_head,o_dim,"
	      "lse_rel_l2,lse_error,lse_bound,lse_ratio,lse_soft_ratio,lse_batch,lse_token,lse_"
	      "head,lse_dim,"
	      "probe_ratio,bytes_sent_total,bytes_sent_max,messages_total,peak_bytes_max,work_"
	      "total,work_max,"
	      "attended_total,seconds,proved,part,verdict,reason,reproduce",
		out);
	if (options->as)
		cpa_plan_answer_csv_names(out);
	if (options->command == CPA_COMMAND_DIAGNOSE)
		fputs(",finding_classes,finding", out);
	fputs("\r\n", out);
	for (int i = 0; i < list->n; i++) {
		const char *reproduce = list->at[i].reproduce;

		put_line(out, &list->at[i]);
		/* The last field has no comma behind it. */
		fputc('"', out);
		for (; reproduce && *reproduce; reproduce++)
			fprintf(out, *reproduce == '"' ? "\"%c" : "%c", *reproduce);
		fputc('"', out);
		if (options->as)
			cpa_plan_answer_csv(out, &list->at[i]);
		if (i == 0 || !cpa_result_same_call(&list->at[i - 1], &list->at[i]))
			diagnosis = list->at[i].diagnosis;
		if (options->command == CPA_COMMAND_DIAGNOSE)
			put_csv_finding(out, &list->at[i], diagnosis);
		fputs("\r\n", out);
	}
}
