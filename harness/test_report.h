/*
 * test_report.h - small reports as JSON, and a look at what is made of them.
 */
#ifndef CPA_TEST_REPORT_H
#define CPA_TEST_REPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/report.h"

/* One result of verify: variant, ring degree, verdict, reason, o/bound, and bytes of the two
 * ranks. */
#define RESULT(variant, ring, verdict, reason, ratio, bytes)                                     \
	"{\"file\": \"x.h5\", \"call\": \"c\", \"variant\": \"" variant                          \
	"\", \"batch\": 1, \"ring\": " ring ", \"ulysses\": 1, \"ranks\": " ring                 \
	", \"rotate\": \"p2p\", \"split\": \"equal\", "                                          \
	"\"order\": \"contiguous\", \"heads_rule\": \"balanced\", \"direction\": \"up\", "       \
	"\"partials\": \"fp32\", \"dtype\": \"fp32\", \"device\": \"cpu\", \"comm\": \"fake\", " \
	"\"verdict\": \"" verdict "\", \"reason\": " reason ", \"o\": {\"rel_l2\": 1e-7, "       \
	"\"error\": 1e-6, \"bound\": 1e-4, \"ratio\": " ratio ", \"soft_ratio\": 0.1, "          \
	"\"worst\": {\"batch\": 0, \"token\": 3, \"head\": 1, \"dim\": 2}}, \"lse\": null, "     \
	"\"probe\": {\"ratio\": 0.5}, \"bytes_sent\": [" bytes ", " bytes                        \
	"], \"messages\": [1, 1], "                                                              \
	"\"peak_bytes\": [100, 200], \"work\": [10, 30], \"seconds\": 0.25}"
#define HEAD(command)                                                                            \
	"{\"cpattn\": \"0.1.0\", \"format\": 1, \"command\": \"" command                         \
	"\", \"machine\": {\"cpu\": "                                                            \
	"\"a cpu\", \"cores\": 2, \"memory_bytes\": 1, \"os\": \"os\"}, \"options\": "           \
	"{\"command_line\": "                                                                    \
	"\"cpattn verify x.h5\", \"problem\": null, \"fault\": null}, \"results\": ["
#define TAIL                                                                                     \
	"], \"summary\": {\"right\": 1, \"wrong\": 0, \"unsupported\": 0, \"cannot_tell\": 0}}"
#define REFUSED "\"Sq = 37 is not divisible by R U = 2\""

/* Read, written as one of the formats; everything is freed by forget(). */
struct made {
	struct cpa_arena arena;
	struct cpa_report_run runs[2];
	struct cpa_comparison comparison;
	struct cpa_plots plots[2];
	struct cpa_report report;
	char *text;
	size_t nbytes;
};

static inline void parse_into(struct made *m, int i, const char *path, const char *json)
{
	struct cpa_error error = {""};

	if (cpa_report_parse(path, json, strlen(json), &m->arena, &m->runs[i], &error) != CPA_OK)
		fail_msg("%s", error.text);
}

static inline void make(struct made *m, const char *before, const char *after)
{
	struct cpa_error error;

	memset(m, 0, sizeof *m);
	cpa_arena_init(&m->arena);
	parse_into(m, 0, "before.json", before);
	if (after)
		parse_into(m, 1, "after.json", after);
	m->report = (struct cpa_report){
		.runs = m->runs, .nruns = after ? 2 : 1, .plots = m->plots, .arena = &m->arena};
	if (after) {
		assert_int_equal(cpa_report_compare(&m->runs[0], &m->runs[1], &m->arena,
					 &m->comparison, &error),
			CPA_OK);
		m->report.comparison = &m->comparison;
	}
}

static inline void write_html(struct made *m)
{
	FILE *out = open_memstream(&m->text, &m->nbytes);

	cpa_report_html(out, &m->report);
	fclose(out);
}

static inline void write_markdown(struct made *m)
{
	FILE *out = open_memstream(&m->text, &m->nbytes);
	struct cpa_error error;

	assert_int_equal(cpa_report_markdown(out, &m->report, &error), CPA_OK);
	fclose(out);
}

static inline void forget(struct made *m)
{
	free(m->text);
	cpa_arena_fini(&m->arena);
}

static inline void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static inline void assert_lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" in:\n%s", part, text);
}

static inline int count_of(const char *text, const char *part)
{
	int n = 0;

	for (; (text = strstr(text, part)); text++)
		n++;
	return n;
}

#endif
