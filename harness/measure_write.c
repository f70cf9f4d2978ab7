/*
 * measure_write.c - times as JSON and as CSV.
 */
#include "harness/measure_write.h"

#include <math.h>

#include "harness/result_formats.h"

/* ---- JSON ---- */

void cpa_statistics_put_json(
	struct cpa_json *json, const char *key, const struct cpa_statistics *s)
{
	cpa_json_key(json, key);
	if (s->n == 0) {
		cpa_json_null(json);
		return;
	}
	cpa_json_object(json);
	cpa_json_put_int(json, "n", s->n);
	cpa_json_put_known(json, "min", s->min);
	cpa_json_put_known(json, "q1", s->q1);
	cpa_json_put_known(json, "median", s->median);
	cpa_json_put_known(json, "q3", s->q3);
	cpa_json_put_known(json, "max", s->max);
	cpa_json_end_object(json);
}

static void put_phases(struct cpa_json *json, const struct cpa_measured *m)
{
	cpa_json_key(json, "phases");
	cpa_json_object(json);
	for (int p = 0; p < CPA_NPHASES; p++)
		cpa_json_put_known(json, cpa_phase_name((enum cpa_phase)p), m->phases.seconds[p]);
	cpa_json_end_object(json);
	cpa_json_put_known(json, "beyond", cpa_measured_beyond(m));
}

static void put_one_rank(struct cpa_json *json, const struct cpa_measured *m)
{
	cpa_json_key(json, "one_rank");
	cpa_json_object(json);
	cpa_json_put_int(json, "threads", m->one_rank_threads);
	cpa_statistics_put_json(json, "seconds", &m->one_rank);
	cpa_json_put_known(json, "over_this", cpa_measured_speedup(m));
	cpa_json_end_object(json);
}

static void put_exchange(struct cpa_json *json, const struct cpa_measured *m)
{
	cpa_json_key(json, "exchange");
	cpa_json_object(json);
	cpa_json_put_known(json, "bytes", m->bytes);
	cpa_statistics_put_json(json, "seconds", &m->exchange);
	cpa_json_put_known(json, "bytes_per_second", cpa_measured_exchange_rate(m));
	cpa_json_put_known(json, "of_copy",
		2 * cpa_measured_exchange_rate(m) / m->limits.copy_bytes_per_second);
	cpa_json_end_object(json);
}

static void put_limits(struct cpa_json *json, const struct cpa_measured *m)
{
	cpa_json_key(json, "limits");
	cpa_json_object(json);
	cpa_json_put_known(json, "flop_per_second", m->limits.flop_per_second);
	cpa_json_put_known(json, "copy_bytes_per_second", m->limits.copy_bytes_per_second);
	cpa_json_end_object(json);
}

static void put_nothing(struct cpa_json *json)
{
	static const char *const keys[] = {"threads", "processes", "seconds", "spread", "phases",
		"beyond", "flop", "flop_per_second", "of_peak", "one_rank", "exchange", "limits"};
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		cpa_json_key(json, keys[i]);
		cpa_json_null(json);
	}
}

void cpa_measured_put_json(struct cpa_json *json, const struct cpa_measured *m)
{
	if (!m) {
		put_nothing(json);
		return;
	}
	cpa_json_put_int(json, "threads", m->threads);
	cpa_json_put_int(json, "processes", m->nprocesses);
	cpa_statistics_put_json(json, "seconds", &m->seconds);
	cpa_json_put_known(json, "spread", cpa_statistics_spread(&m->seconds));
	put_phases(json, m);
	cpa_json_put_known(json, "flop", m->flop);
	cpa_json_put_known(json, "flop_per_second", cpa_measured_flop_rate(m));
	cpa_json_put_known(json, "of_peak", cpa_measured_flop_rate(m) / m->limits.flop_per_second);
	put_one_rank(json, m);
	put_exchange(json, m);
	put_limits(json, m);
}

/* ---- CSV ---- */

static void put_config(FILE *out, const struct cpa_result *r)
{
	const struct cpa_config *c = r->has_config ? &r->config : NULL;
	cpa_csv_text(out, r->file);
	cpa_csv_text(out, r->call);
	cpa_csv_text(out, c ? cpa_variant_info(c->variant)->name : NULL);
	cpa_csv_int(out, c ? c->batch_degree : 0, c);
	cpa_csv_int(out, c ? c->ring_degree : 0, c);
	cpa_csv_int(out, c ? c->ulysses_degree : 0, c);
	cpa_csv_int(out, r->W, r->W > 0);
	cpa_csv_text(out, c && c->ring_degree > 1 ? cpa_rotate_name(c->rotate) : NULL);
	cpa_csv_text(out, c ? cpa_split_name(c->split) : NULL);
	cpa_csv_text(out, c ? cpa_order_name(c->order) : NULL);
	cpa_csv_text(out, c ? cpa_heads_name(c->heads) : NULL);
	cpa_csv_text(out, c ? c->direction < 0 ? "down" : "up" : NULL);
	cpa_csv_text(out, c ? cpa_partials_name(c->partials) : NULL);
	cpa_csv_text(out, r->problem ? cpa_dtype_name(r->problem->dtype) : NULL);
	cpa_csv_text(out, r->device);
	cpa_csv_text(out, r->comm);
	cpa_csv_text(out, cpa_verdict_name(r->verdict));
	cpa_csv_text(out, r->reason);
}

static void put_counts(FILE *out, const struct cpa_result *r)
{
	int64_t bytes = 0, messages = 0, peak = 0;
	for (int i = 0; i < r->W && r->counts; i++) {
		bytes += r->counts[i].bytes_sent;
		messages += r->counts[i].messages;
		peak = r->counts[i].peak_bytes > peak ? r->counts[i].peak_bytes : peak;
	}
	cpa_csv_int(out, bytes, r->counts);
	cpa_csv_int(out, messages, r->counts);
	cpa_csv_int(out, peak, r->counts);
}

enum { NCOLUMNS = 24 };
static const char *const columns[NCOLUMNS] = {"threads", "processes", "repeat", "seconds_min",
	"seconds_q1", "seconds_median", "seconds_q3", "seconds_max", "spread", "attend", "merge",
	"copy", "exchange", "wait", "beyond", "flop_per_second", "of_peak", "one_rank_threads",
	"one_rank_seconds_min", "one_rank_over_this", "exchange_seconds_min", "of_copy",
	"peak_flop_per_second", "copy_bytes_per_second"};

static void fill_columns(const struct cpa_measured *m, double *at)
{
	const struct cpa_statistics *s = &m->seconds;
	const double *phase = m->phases.seconds;
	const double values[NCOLUMNS] = {m->threads, m->nprocesses, s->n, s->min, s->q1,
		s->median, s->q3, s->max, cpa_statistics_spread(s), phase[CPA_PHASE_ATTEND],
		phase[CPA_PHASE_MERGE], phase[CPA_PHASE_COPY], phase[CPA_PHASE_EXCHANGE],
		phase[CPA_PHASE_WAIT], cpa_measured_beyond(m), cpa_measured_flop_rate(m),
		cpa_measured_flop_rate(m) / m->limits.flop_per_second, m->one_rank_threads,
		m->one_rank.min, cpa_measured_speedup(m), m->exchange.min,
		2 * cpa_measured_exchange_rate(m) / m->limits.copy_bytes_per_second,
		m->limits.flop_per_second, m->limits.copy_bytes_per_second};
	for (int i = 0; i < NCOLUMNS; i++)
		at[i] = values[i];
}

void cpa_measured_write_csv(FILE *out, const struct cpa_result_list *list)
{
	fputs("file,call,variant,batch,ring,ulysses,ranks,rotate,split,order,heads_rule,"
	      "direction,"
	      "partials,dtype,device,comm,verdict,reason,bytes_sent_total,messages_total,"
	      "peak_bytes_max",
		out);
	for (int i = 0; i < NCOLUMNS; i++)
		fprintf(out, ",%s", columns[i]);
	fputs("\r\n", out);
	for (int i = 0; i < list->n; i++) {
		double values[NCOLUMNS];
		put_config(out, &list->at[i]);
		put_counts(out, &list->at[i]);
		for (int c = 0; c < NCOLUMNS; c++)
			values[c] = NAN;
		if (list->at[i].measured)
			fill_columns(list->at[i].measured, values);
		for (int c = 0; c < NCOLUMNS; c++) {
			if (!isnan(values[c]))
				fprintf(out, "%.17g", values[c]);
			/* The last field has no comma behind it. */
			fputs(c + 1 < NCOLUMNS ? "," : "\r\n", out);
		}
	}
}
