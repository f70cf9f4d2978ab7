/*
 * plan_peers.c - plan --as: what another system does with each configuration, beside what cpattn
 * does.
 */
#include <string.h>

#include "harness/peers.h"
#include "harness/plan.h"
#include "harness/plan_model.h"
#include "harness/result_formats.h"
#include "harness/result_parts.h"

enum { INDENT = 6, MOST_MESHES = 8 };

/* ---- asking --------------------------------------------------------------------------- */

/* What was asked for by name; the system's own rotation where nothing was. */
static const char *rotation(const struct cpa_options *options, const struct cpa_config *config)
{
	switch (options->rotate) {
	case CPA_ROTATE_CHOICE_P2P:
		return cpa_rotate_name(CPA_ROTATE_P2P);
	case CPA_ROTATE_CHOICE_ALLGATHER:
		return cpa_rotate_name(CPA_ROTATE_ALLGATHER);
	case CPA_ROTATE_CHOICE_DIRECT:
		return cpa_rotate_name(CPA_ROTATE_DIRECT);
	case CPA_ROTATE_CHOICE_ALL:
		return config->ring_degree > 1 ? cpa_rotate_name(config->rotate) : NULL;
	default:
		return NULL;
	}
}

enum cpa_status cpa_plan_judge(const struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_arena *arena, struct cpa_result *result,
	struct cpa_error *error)
{
	const struct cpa_peer *peer = options->as ? cpa_peer_find(options->as) : NULL;
	struct cpa_peer_request request;
	struct cpa_peer_answer *answer;

	if (!peer || !result->has_config || !result->problem)
		return CPA_OK;
	answer = cpa_arena_alloc(arena, sizeof *answer);
	if (!answer)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	request = cpa_peer_request_of(result->problem, &result->config);
	request.rotate = rotation(options, &result->config);
	request.backend = options->backend;
	request.keep_dtype = options->keep_dtype;
	request.no_plan = cpa_plan_model_is_derived(targets);
	if (options->tensor > 1) {
		request.tensor = options->tensor;
		request.world *= options->tensor;
	}
	cpa_peer_judge(peer, &request, answer);
	if (answer->verdict != CPA_PEER_ACCEPTED)
		cpa_peer_find_instead(peer, &request, answer);
	result->as = answer;
	return CPA_OK;
}

/* ---- for people ----------------------------------------------------------------------- */

static bool same_answer(const struct cpa_result *a, const struct cpa_result *b)
{
	return a->as && b->as && a->as->rule == b->as->rule && a->as->verdict == b->as->verdict &&
		a->config.variant == b->config.variant && a->verdict == b->verdict;
}

static void print_part(FILE *out, const char *before, const char *text)
{
	if (!text[0])
		return;
	fprintf(out, "%*s%s", INDENT, "", before);
	cpa_print_wrapped(out, text, INDENT + (int)strlen(before), INDENT + 2);
}

/* "1x2x1 1x4x1 and 5 more": the meshes of all that were answered like list->at[i]. */
static void put_meshes(struct cpa_text *text, const struct cpa_result_list *list, int i, int end)
{
	int n = 0;

	for (int j = i; j < end; j++) {
		const struct cpa_config *c = &list->at[j].config;

		if (same_answer(&list->at[i], &list->at[j]) && n++ < MOST_MESHES)
			cpa_text_put(text, " %dx%dx%d", c->batch_degree, c->ring_degree,
				c->ulysses_degree);
	}
	if (n > MOST_MESHES)
		cpa_text_put(text, " and %d more", n - MOST_MESHES);
}

/* What cpattn itself does with it. */
static void print_own(FILE *out, const struct cpa_result *r)
{
	if (r->verdict == CPA_VERDICT_RIGHT)
		print_part(out, "cpattn: ", "supported; its schedules are proved");
	else if (r->verdict == CPA_VERDICT_UNSUPPORTED)
		print_part(out, "cpattn: refused: ", r->reason);
	else
		print_part(out, "cpattn: ", r->reason);
}

/* "REFUSED, split hook: ValueError: text" */
static void put_verdict(struct cpa_text *text, const struct cpa_peer_answer *as)
{
	static const char *const words[] = {
		"accepted", "REFUSED", "accepted, and WRONG", "not known"};

	cpa_text_put(text, "%s", words[as->verdict]);
	if (as->fault)
		cpa_text_put(text, " (class %s)", as->fault);
	if (as->stage)
		cpa_text_put(text, ", %s", as->stage);
	if (as->error[0])
		cpa_text_put(text, ": %s", as->error);
}

static void print_answer(FILE *out, const struct cpa_result_list *list, int i, int end)
{
	const struct cpa_result *r = &list->at[i];
	char line[900];
	struct cpa_text text = cpa_text_begin(line, sizeof line);

	cpa_text_put(&text, "%s", cpa_variant_info(r->config.variant)->name);
	put_meshes(&text, list, i, end);
	cpa_text_put(&text, ": ");
	put_verdict(&text, r->as);
	fputs("  ", out);
	cpa_print_wrapped(out, line, 2, INDENT);
	print_part(out, "", r->as->why);
	if (r->as->verdict != CPA_PEER_ACCEPTED)
		print_part(out, "accepted there: ",
			r->as->instead[0] ? r->as->instead
					  : "nothing that was tried, on as many ranks or fewer");
	print_part(out, "note: ", r->as->notes);
	print_own(out, r);
}

static void print_call(FILE *out, const struct cpa_result_list *list, int first, int end)
{
	const struct cpa_result *r = &list->at[first];

	if (r->call) {
		fputs("  of ", out);
		cpa_print_clean(out, r->call);
		fputc('\n', out);
	}
	for (int i = first; i < end; i++) {
		bool before = !list->at[i].as;

		for (int j = first; j < i && !before; j++)
			before = same_answer(&list->at[j], &list->at[i]);
		if (!before)
			print_answer(out, list, i, end);
	}
}

void cpa_plan_print_answers(
	FILE *out, const struct cpa_result_list *list, const struct cpa_options *options)
{
	const struct cpa_peer *peer = cpa_peer_find(options->as);
	int first = 0;

	fprintf(out, "\nas %s (%s, read at %s; backend %s)\n", peer->name, peer->repository,
		peer->version, options->backend ? options->backend : peer->backends[0]);
	for (; first < list->n; first = cpa_result_call_end(list, first))
		print_call(out, list, first, cpa_result_call_end(list, first));
}

/* ---- for programs --------------------------------------------------------------------- */

enum { NFIELDS = 10 };
static const char *const fields[NFIELDS] = {"system", "version", "backend", "verdict", "stage",
	"error", "class", "why", "instead", "notes"};

/* values [NFIELDS] out; NULL: it does not exist */
static void list_values(const struct cpa_peer_answer *as, const char **values)
{
	const char *const all[NFIELDS] = {as->peer->name, as->peer->version, as->backend,
		cpa_peer_verdict_name(as->verdict), as->stage, as->error, as->fault, as->why,
		as->instead, as->notes};

	for (int i = 0; i < NFIELDS; i++)
		values[i] = all[i] && all[i][0] ? all[i] : NULL;
}

void cpa_plan_put_answer(struct cpa_json *json, const struct cpa_result *result)
{
	const char *values[NFIELDS];

	cpa_json_key(json, "as");
	if (!result->as) {
		cpa_json_null(json);
		return;
	}
	list_values(result->as, values);
	cpa_json_object(json);
	for (int i = 0; i < NFIELDS; i++)
		cpa_json_put_string(json, fields[i], values[i]);
	cpa_json_end_object(json);
}

void cpa_plan_answer_csv_names(FILE *out)
{
	for (int i = 0; i < NFIELDS; i++)
		fprintf(out, ",as_%s", fields[i]);
}

void cpa_plan_answer_csv(FILE *out, const struct cpa_result *result)
{
	const char *values[NFIELDS] = {NULL};

	if (result->as)
		list_values(result->as, values);
	for (int i = 0; i < NFIELDS; i++) {
		fputc(',', out);
		cpa_csv_field(out, values[i]);
	}
}

void cpa_plan_answer_properties(FILE *out, const struct cpa_result *result)
{
	const char *values[NFIELDS];

	if (!result->as)
		return;
	list_values(result->as, values);
	fputs("      <properties>\n", out);
	for (int i = 0; i < NFIELDS; i++) {
		if (!values[i])
			continue;
		fprintf(out, "        <property name=\"as_%s\" value=\"", fields[i]);
		cpa_xml_text(out, values[i]);
		fputs("\"/>\n", out);
	}
	fputs("      </properties>\n", out);
}

void cpa_plan_answer_output(FILE *out, const struct cpa_result *result)
{
	char line[900];
	struct cpa_text text = cpa_text_begin(line, sizeof line);

	if (!result->as)
		return;
	cpa_text_put(&text, "as %s: ", result->as->peer->name);
	put_verdict(&text, result->as);
	fputs("      <system-out>", out);
	cpa_xml_text(out, line);
	fputs("</system-out>\n", out);
}
