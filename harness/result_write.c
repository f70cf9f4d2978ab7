/*
 * result_write.c - results for programs: JSON, and the files asked for.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "harness/check_report.h"
#include "harness/commands.h"
#include "harness/diagnose_events.h"
#include "harness/diagnose_report.h"
#include "harness/fault.h"
#include "harness/guidance.h"
#include "harness/json.h"
#include "harness/measure_write.h"
#include "harness/output.h"
#include "harness/plan.h"
#include "harness/result_formats.h"
#include "harness/result_parts.h"

/* 0 or less: does not exist. */
static void put_positive(struct cpa_json *json, const char *key, int64_t value)
{
	cpa_json_key(json, key);
	if (value > 0)
		cpa_json_int(json, value);
	else
		cpa_json_null(json);
}

static void put_list(struct cpa_json *json, const char *key, const struct cpa_int_list *list)
{
	cpa_json_key(json, key);
	if (list->n == 0) {
		cpa_json_null(json);
		return;
	}
	cpa_json_array(json);
	for (int i = 0; i < list->n; i++)
		cpa_json_int(json, list->at[i]);
	cpa_json_end_array(json);
}

/* ---- machine and options ----------------------------------------------------------------- */

/* The value of "model name : X" in /proc/cpuinfo; false where there is none. */
static bool find_cpu(char *name, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "r");
	char line[256];
	bool found = false;

	while (file && !found && fgets(line, sizeof line, file)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
		found = true;
	}
	if (file)
		fclose(file);
	return found;
}

void cpa_result_put_machine(struct cpa_json *json)
{
	char cpu[200], os[3 * sizeof(((struct utsname *)0)->release)];
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	struct utsname name;

	cpa_json_key(json, "machine");
	cpa_json_object(json);
	cpa_json_put_string(json, "cpu", find_cpu(cpu, sizeof cpu) ? cpu : NULL);
	put_positive(json, "cores", sysconf(_SC_NPROCESSORS_ONLN));
	put_positive(json, "memory_bytes", pages > 0 && page > 0 ? (int64_t)pages * page : 0);
	if (uname(&name) == 0)
		snprintf(os, sizeof os, "%.60s %.60s %.60s", name.sysname, name.release,
			name.machine);
	cpa_json_put_string(json, "os", uname(&name) == 0 ? os : NULL);
	cpa_json_end_object(json);
}

static void put_options_inputs(struct cpa_json *json, const struct cpa_options *o)
{
	cpa_json_put_string(json, "command_line", o->command_line);
	cpa_json_key(json, "files");
	cpa_json_array(json);
	for (int i = 0; i < o->nfiles; i++)
		cpa_json_string(json, o->files[i]);
	cpa_json_end_array(json);
	cpa_json_put_string(json, "problem", o->has_problem ? o->problem_text : NULL);
	cpa_json_put_string(json, "fill", o->has_problem ? cpa_fill_name(o->fill) : NULL);
	cpa_json_key(json, "seed");
	cpa_json_uint(json, o->seed);
	cpa_json_put_string(json, "dtype", o->has_dtype ? cpa_dtype_name(o->dtype) : NULL);
	cpa_json_put_string(json, "call", o->call_glob);
	cpa_json_put_string(json, "as", o->as);
	cpa_json_put_string(json, "backend", o->backend);
}

static void put_options(struct cpa_json *json, const struct cpa_options *o)
{
	static const char *const rotates[] = { NULL, "p2p", "allgather", "direct", "all" };
	char scales[80];
	struct cpa_text guidance = cpa_text_begin(scales, sizeof scales);

	cpa_guidance_put(&guidance, &o->guidance);
	cpa_json_key(json, "options");
	cpa_json_object(json);
	put_options_inputs(json, o);
	put_list(json, "ranks", &o->ranks);
	put_positive(json, "batch", o->batch);
	put_positive(json, "ring", o->ring);
	put_positive(json, "ulysses", o->ulysses);
	cpa_json_key(json, "variants");
	cpa_json_array(json);
	for (int i = 0; i < CPA_NVARIANTS; i++)
		if (o->variants[i])
			cpa_json_string(json, cpa_variant_info((enum cpa_variant)i)->name);
	cpa_json_end_array(json);
	cpa_json_put_string(json, "rotate", rotates[o->rotate]);
	cpa_json_put_string(json, "split", o->has_split ? cpa_split_name(o->split) : NULL);
	cpa_json_put_string(json, "split_kv", o->has_split_kv ? cpa_split_name(o->split_kv) : NULL);
	put_list(json, "sizes", &o->sizes);
	put_list(json, "sizes_kv", &o->sizes_kv);
	put_list(json, "head_counts", &o->head_counts);
	cpa_json_put_string(json, "order", o->order_auto ? "auto" : cpa_order_name(o->order));
	cpa_json_put_string(json, "heads_rule", cpa_heads_name(o->heads));
	cpa_json_put_string(json, "direction", o->direction < 0 ? "down" : "up");
	cpa_json_put_string(json, "partials", cpa_partials_name(o->partials));
	cpa_json_put_string(json, "mesh",
		o->mesh == CPA_MESH_BATCH_ULYSSES_RING ? "batch,ulysses,ring"
						       : "batch,ring,ulysses");
	cpa_json_put_string(json, "guidance", guidance.used ? guidance.at + sizeof " --guidance" : NULL);
	put_positive(json, "interleavings", o->interleavings);
	cpa_json_key(json, "interleaving_seed");
	cpa_json_uint(json, o->interleaving_seed);
	put_positive(json, "rows", o->rows);
	cpa_json_put_string(json, "arithmetic", o->arithmetic);
	cpa_json_put_string(json, "fault", o->fault);
	cpa_json_put_string(json, "record", o->record);
	if (o->command == CPA_COMMAND_BENCH) {
		cpa_json_put_int(json, "warmup", o->warmup);
		cpa_json_put_int(json, "repeat", o->repeat);
		put_positive(json, "threads", o->threads);
		put_positive(json, "one_rank_threads", o->one_rank_threads);
	}
	cpa_json_end_object(json);
}

/* ---- one result -------------------------------------------------------------------------- */

static void put_deviation_fields(struct cpa_json *json, const struct cpa_deviation *d)
{
	const int64_t place[] = { d->batch, d->token, d->head, d->dim };
	static const char *const names[] = { "batch", "token", "head", "dim" };

	cpa_json_put_known(json, "rel_l2", d->rel_l2);
	/* Of an element that is NaN the error is too; elsewhere NaN is what does not exist. */
	cpa_json_key(json, "error");
	if (isinf(d->ratio))
		cpa_json_number(json, d->error);
	else
		cpa_json_known(json, d->error);
	cpa_json_put_known(json, "bound", d->bound);
	cpa_json_put_known(json, "ratio", d->ratio);
	cpa_json_put_known(json, "soft_ratio", d->soft_ratio);
	cpa_json_key(json, "worst");
	cpa_json_object(json);
	for (int i = 0; i < 4; i++) {
		cpa_json_key(json, names[i]);
		if (place[i] >= 0)
			cpa_json_int(json, place[i]);
		else
			cpa_json_null(json);
	}
	cpa_json_end_object(json);
}

static void put_deviation(struct cpa_json *json, const char *key, const struct cpa_deviation *d)
{
	cpa_json_key(json, key);
	if (isnan(d->rel_l2) && isnan(d->ratio) && isnan(d->soft_ratio) && d->token < 0) {
		cpa_json_null(json);
		return;
	}
	cpa_json_object(json);
	put_deviation_fields(json, d);
	cpa_json_end_object(json);
}

/* Scales, and how far the combination is off; of a plan the scales alone. */
static void put_guidance(struct cpa_json *json, const struct cpa_result *r, bool plan)
{
	const struct cpa_guidance *guidance = &r->guidance;

	cpa_json_key(json, "guidance");
	if (guidance->nbranches == 0) {
		cpa_json_null(json);
		return;
	}
	cpa_json_object(json);
	cpa_json_put_int(json, "branches", guidance->nbranches);
	cpa_json_put_known(json, "s", guidance->s);
	cpa_json_put_known(json, "s2", guidance->nbranches == 3 ? guidance->s2 : NAN);
	if (!plan)
		put_deviation_fields(json, &r->combined);
	cpa_json_end_object(json);
}

static void put_config(struct cpa_json *json, const struct cpa_result *r)
{
	const struct cpa_config *c = r->has_config ? &r->config : NULL;
	bool rings = c && c->ring_degree > 1;

	cpa_json_put_string(json, "variant", c ? cpa_variant_info(c->variant)->name : NULL);
	put_positive(json, "batch", c ? c->batch_degree : 0);
	put_positive(json, "ring", c ? c->ring_degree : 0);
	put_positive(json, "ulysses", c ? c->ulysses_degree : 0);
	put_positive(json, "ranks", r->W);
	cpa_json_put_string(json, "rotate", rings ? cpa_rotate_name(c->rotate) : NULL);
	cpa_json_put_string(json, "split", c ? cpa_split_name(c->split) : NULL);
	cpa_json_put_string(json, "order", c ? cpa_order_name(c->order) : NULL);
	cpa_json_put_string(json, "heads_rule", c ? cpa_heads_name(c->heads) : NULL);
	cpa_json_put_string(json, "direction", !c ? NULL : c->direction < 0 ? "down" : "up");
	cpa_json_put_string(json, "partials", c ? cpa_partials_name(c->partials) : NULL);
	cpa_json_put_string(json, "dtype", r->problem ? cpa_dtype_name(r->problem->dtype) : NULL);
	cpa_json_put_string(json, "device", r->device);
	cpa_json_put_string(json, "comm", r->comm);
}

static void put_counts(struct cpa_json *json, const struct cpa_result *r)
{
	static const struct {
		const char *name;
		size_t offset;
	} fields[] = {
		{ "bytes_sent", offsetof(struct cpa_counts, bytes_sent) },
		{ "messages", offsetof(struct cpa_counts, messages) },
		{ "peak_bytes", offsetof(struct cpa_counts, peak_bytes) },
		{ "mask_bytes", offsetof(struct cpa_counts, mask_bytes) },
		{ "work", offsetof(struct cpa_counts, work) },
		{ "attended", offsetof(struct cpa_counts, attended) },
		{ "gathered_bytes", offsetof(struct cpa_counts, gathered_bytes) },
	};

	for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
		bool exists = r->counts &&
			(fields[f].offset != offsetof(struct cpa_counts, mask_bytes) ||
				(r->problem && r->problem->rule.mask.kind != CPA_MASK_NONE)) &&
			(fields[f].offset != offsetof(struct cpa_counts, gathered_bytes) ||
				r->config.guidance != 0);

		cpa_json_key(json, fields[f].name);
		if (!exists) {
			cpa_json_null(json);
			continue;
		}
		cpa_json_array(json);
		for (int i = 0; i < r->W; i++)
			cpa_json_int(json,
				*(const int64_t *)((const char *)&r->counts[i] +
					fields[f].offset));
		cpa_json_end_array(json);
	}
}

static void put_preamble(struct cpa_json *json, const struct cpa_result *r)
{
	struct cpa_preamble preamble;

	cpa_json_key(json, "preamble");
	if (!cpa_result_preamble(r, &preamble)) {
		cpa_json_null(json);
		return;
	}
	cpa_json_object(json);
	cpa_json_put_int(json, "bytes", preamble.bytes);
	cpa_json_put_int(json, "messages", preamble.messages);
	cpa_json_put_int(json, "record_bytes", preamble.record_bytes);
	cpa_json_end_object(json);
}

/* As text: a JSON number does not hold 64 bits. */
static void put_hashes(struct cpa_json *json, const struct cpa_result *r)
{
	cpa_json_key(json, "output_hash");
	if (!r->hashes) {
		cpa_json_null(json);
		return;
	}
	cpa_json_array(json);
	for (int i = 0; i < r->W; i++) {
		char text[20];

		snprintf(text, sizeof text, "%016" PRIx64, r->hashes[i]);
		cpa_json_string(json, text);
	}
	cpa_json_end_array(json);
}

/* null where nothing was planted; its places are null where it is in more than one. */
static void put_planted(struct cpa_json *json, const struct cpa_result *r)
{
	cpa_json_key(json, "planted");
	if (r->fault < 0) {
		cpa_json_null(json);
		return;
	}
	cpa_json_object(json);
	cpa_json_put_string(json, "name", cpa_fault_name(r->fault));
	cpa_json_put_string(json, "class", cpa_fault_class(r->fault));
	cpa_json_put_place(json, "rank", r->fault_rank);
	cpa_json_put_place(json, "op", r->fault_op);
	cpa_json_put_place(json, "hop", r->fault_hop);
	cpa_json_put_place(json, "block", r->fault_block);
	cpa_json_put_string(json, "text", r->planted);
	cpa_json_key(json, "seen");
	cpa_json_bool(json, r->verdict == CPA_VERDICT_WRONG);
	cpa_json_end_object(json);
}

static void put_result(
	struct cpa_json *json, const struct cpa_result *r, enum cpa_command command)
{
	bool plan = command == CPA_COMMAND_PLAN, bench = command == CPA_COMMAND_BENCH;

	cpa_json_object(json);
	cpa_json_put_string(json, "file", r->file);
	cpa_json_put_string(json, "call", r->call);
	put_config(json, r);
	cpa_json_put_string(json, "verdict", cpa_verdict_name(r->verdict));
	cpa_json_put_string(json, "reason", r->reason[0] ? r->reason : NULL);
	if (!plan && !bench) {
		put_deviation(json, "o", &r->o);
		put_deviation(json, "lse", &r->lse);
		cpa_json_key(json, "probe");
		cpa_json_object(json);
		cpa_json_put_known(json, "ratio", r->probe_ratio);
		cpa_json_end_object(json);
	}
	put_guidance(json, r, plan);
	cpa_json_key(json, "lse_asked");
	if (r->problem)
		cpa_json_bool(json, r->problem->lse);
	else
		cpa_json_null(json);
	cpa_json_put_string(json, "layout", r->problem ? cpa_layout_name(r->problem->layout) : NULL);
	put_counts(json, r);
	if (bench)
		cpa_measured_put_json(json, r->measured);
	else if (!plan) {
		put_hashes(json, r);
		put_planted(json, r);
		cpa_json_put_known(json, "seconds", r->seconds);
	}
	if (plan) {
		put_preamble(json, r);
		cpa_json_key(json, "proof");
		if (r->has_proof) {
			cpa_json_object(json);
			cpa_json_key(json, "proved");
			cpa_json_bool(json, r->proved);
			cpa_json_put_string(json, "fault", r->proved ? NULL : r->reason);
			cpa_json_end_object(json);
		} else {
			cpa_json_null(json);
		}
		cpa_plan_put_answer(json, r);
	}
	if (r->part)
		cpa_check_put_json(json, r);
	if (r->diagnosis)
		cpa_diagnosis_put_json(json, r->diagnosis);
	if (r->hang)
		cpa_hang_put_json(json, r->hang);
	cpa_json_end_object(json);
}

void cpa_result_begin_json(struct cpa_json *json, FILE *out, const struct cpa_options *options,
	const struct cpa_result_list *list)
{
	cpa_json_init(json, out, 2);
	cpa_json_object(json);
	cpa_json_put_string(json, "cpattn", cpa_version());
	cpa_json_put_int(json, "format", 1);
	cpa_json_put_string(json, "command", cpa_command_name(options->command));
	cpa_result_put_machine(json);
	put_options(json, options);
	if (list && list->put_members)
		list->put_members(json, list->context);
	cpa_json_key(json, "results");
	cpa_json_array(json);
}

void cpa_result_end_json(struct cpa_json *json, const struct cpa_summary *sum)
{
	cpa_json_end_array(json);
	cpa_json_key(json, "summary");
	cpa_json_object(json);
	cpa_json_put_int(json, "right", sum->right);
	cpa_json_put_int(json, "wrong", sum->wrong);
	cpa_json_put_int(json, "unsupported", sum->unsupported);
	cpa_json_put_int(json, "cannot_tell", sum->cannot_tell);
	cpa_json_end_object(json);
	cpa_json_end_object(json);
}

void cpa_result_write_json(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options)
{
	struct cpa_summary sum = cpa_result_summary(list);
	struct cpa_json json;

	cpa_result_begin_json(&json, out, options, list);
	for (int i = 0; i < list->n; i++)
		put_result(&json, &list->at[i], options->command);
	cpa_result_end_json(&json, &sum);
}

bool cpa_result_takes_stdout(const struct cpa_options *options)
{
	return cpa_output_is_stdout(options->json) || cpa_output_is_stdout(options->junit) ||
	       cpa_output_is_stdout(options->csv);
}

enum cpa_status cpa_result_write(const struct cpa_result_list *list,
	const struct cpa_options *options, struct cpa_error *error)
{
	const struct {
		const char *path;
		void (*write)(FILE *, const struct cpa_result_list *,
			const struct cpa_options *);
	} files[] = {
		{ options->json, cpa_result_write_json },
		{ options->junit, cpa_result_write_junit },
		{ options->csv, cpa_result_write_csv },
	};
	enum cpa_status status = CPA_OK;

	for (size_t i = 0; i < sizeof files / sizeof files[0] && status == CPA_OK; i++) {
		struct cpa_output output;

		if (!files[i].path)
			continue;
		status = cpa_output_open(&output, files[i].path, error);
		if (status != CPA_OK)
			break;
		files[i].write(output.file, list, options);
		status = cpa_output_commit(&output, error);
	}
	return status;
}
