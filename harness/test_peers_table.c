/*
 * test_peers_table.c - every system asked every one of the common requests, and what is known to
 * go wrong in each.  The expectations were written from the source on their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/test_peers.h"

enum { NREQUESTS = 11 };

/* One request that is bad in one way, in the words of the table. */
static const struct asked requests[NREQUESTS] = {
	{"S=66,H=8,D=8,dtype=bf16", ANY_NONE, 4, 1, 0, NULL, NULL, NULL, NULL},
	{"S=66,H=8,D=8,dtype=bf16", ANY_NONE, 1, 4, 0, NULL, NULL, NULL, NULL},
	{"S=64,H=6,D=8,dtype=bf16", ANY_NONE, 1, 4, 0, NULL, NULL, NULL, NULL},
	{"S=64,H=8,D=8,dtype=bf16", ANY_BOTH, 2, 2, 0, NULL, NULL, NULL, NULL},
	{"S=64,H=8,D=8,dtype=bf16,mask=bias:1x1x1xK:3", ANY_NONE, 4, 1, 0, NULL, NULL, NULL,
		NULL},
	{"S=64,H=8,D=8,dtype=bf16,causal", ANY_NONE, 4, 1, 0, NULL, NULL, NULL, NULL},
	{"S=64,Hq=8,Hkv=2,D=8,dtype=bf16", ANY_NONE, 2, 4, 0, NULL, NULL, NULL, NULL},
	{"S=64,H=8,D=8,dtype=bf16", ANY_NONE, 4, 1, 8, NULL, NULL, NULL, NULL},
	{"S=64,H=8,D=8,dtype=bf16", ANY_NONE, 4, 1, 2, NULL, NULL, NULL, NULL},
	{"S=64,H=8,D=8,dtype=bf16", ANY_NONE, 4, 1, 0, "no-lse", NULL, NULL, NULL},
	{"S=64,H=8,D=8,dtype=bf16", ANY_NONE, 4, 1, 8, NULL, NULL, NULL, NULL},
};

/* "R", "A", "N" or a class; a refusal with its exception where that is known. */
static const struct {
	const char *name;
	const char *says[NREQUESTS];
} systems[] = {
	{"diffusers",
		{"R AssertionError", "R AssertionError", "R RuntimeError", "R ValueError", "C10",
			"R ValueError", "R ValueError", "N", "R ValueError", "R ValueError",
			"R ValueError"}},
	{"cache-dit",
		{"R AssertionError", "R AssertionError", "A", "R ValueError", "C10", "C01", "A",
			"N", "R ValueError", "N", "A"}},
	{"xdit",
		{"R AssertionError", "R AssertionError", "R AssertionError", "N",
			"R AssertionError", "A", "R", "R AssertionError", "R AssertionError", "N",
			"A"}},
	{"vllm-omni",
		{"N", "A", "R ValueError", "A", "R ValueError", "A", "R ValueError", "N", "N",
			"N", "A"}},
	{"tensorrt-llm",
		{"R", "R", "R ValueError", "N", "R NotImplementedError", "R NotImplementedError",
			"R ValueError", "N", "N", "R ValueError", "A"}},
	{"flashinfer",
		{"N", "N", "R ValueError", "A", "R NotImplementedError", "R NotImplementedError",
			"R ValueError", "N", "N", "N", "N"}},
	{"transformer-engine",
		{"R AssertionError", "R AssertionError", "R AssertionError", "N", "N", "A",
			"R AssertionError", "N", "N", "N", "A"}},
	{"pytorch", {"N", "N", "N", "N", "R NotImplementedError", "A", "N", "R", "R", "N", "A"}},
};

/* The system's own ways to be asked for a backend with lse, and one without. */
static struct cpa_peer_request request_to(
	const char *name, int i, const struct cpa_problem *problem)
{
	struct cpa_peer_request r = request_of(&requests[i], problem);

	if (i == NREQUESTS - 1)
		r.tensor = 2;
	if (strcmp(name, "diffusers") == 0)
		r.backend = r.backend ? "native" : "_native_cudnn";
	return r;
}

static void every_system_answers_every_request(void **state)
{
	(void)state;
	for (size_t s = 0; s < sizeof systems / sizeof *systems; s++)
		for (int i = 0; i < NREQUESTS; i++) {
			const char *says = systems[s].says[i], *exception = strchr(says, ' ');
			struct cpa_problem problem = parsed(requests[i].problem);
			struct cpa_peer_request r = request_to(systems[s].name, i, &problem);
			struct cpa_peer_answer answer;

			cpa_peer_judge(cpa_peer_find(systems[s].name), &r, &answer);
			if (strncmp(says, short_verdict(&answer), strcspn(says, " ")) != 0 ||
				(exception &&
					strncmp(answer.error, exception + 1,
						strlen(exception + 1)) != 0) ||
				(answer.verdict == CPA_PEER_NOT_KNOWN && !answer.why[0]))
				fail_msg("%s, request %d: %s %s (%s), not %s", systems[s].name, i,
					short_verdict(&answer), answer.error, answer.why, says);
		}
}

/* Where the table has a question mark or a dash, the words are these. */
static void what_was_not_read_says_so(void **state)
{
	static const struct {
		const char *system, *why;
		int request;
	} cases[] = {
		{"cache-dit", "not known", 9},
		{"vllm-omni", "not known", 7},
		{"xdit", "not stated", 3},
		{"flashinfer", "not stated", 10},
		{"pytorch", "not known", 6},
		{"yunchang", "not stated", 5},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_problem problem = parsed(requests[cases[i].request].problem);
		struct cpa_peer_request r = request_to(
			cases[i].system, cases[i].request, &problem);
		struct cpa_peer_answer answer;

		cpa_peer_judge(cpa_peer_find(cases[i].system), &r, &answer);
		assert_int_equal(answer.verdict, CPA_PEER_NOT_KNOWN);
		assert_ptr_equal(strstr(answer.why, cases[i].why), answer.why);
	}
}

static void a_plain_request_is_accepted_by_every_system(void **state)
{
	static const struct asked plain = {
		"S=64,H=8,D=8,dtype=bf16", ANY_NONE, 4, 1, 0, NULL, "A", NULL, ""};

	(void)state;
	for (int i = 0; cpa_peer(i); i++) {
		struct asked asked = plain;

		asked.backend = i == 0 ? "flash" : NULL;
		check_all(cpa_peer(i)->name, &asked, 1);
	}
}

#define GQA "S=64,Hq=8,Hkv=2,D=8,dtype=bf16"
#define CROSS "Sq=64,Skv=32,H=8,D=8,dtype=bf16"
#define TEXT "S=64,H=8,D=8,dtype=bf16,segments=a:16:replicated/b:48:split"

static void findings_show_on_their_trigger_alone(void **state)
{
	static const struct {
		const char *system;
		struct asked asked;
	} cases[] = {
		{"flashinfer", {"S=64,H=8,dtype=bf16", 0, 4, 1, 0, "cutlass", "A01", NULL, ""}},
		{"flashinfer", {"S=64,H=8,dtype=bf16", 0, 1, 4, 0, "cutlass", "A", NULL, ""}},
		{"flashinfer", {"S=64,H=8,dtype=bf16", 0, 4, 1, 0, NULL, "A", NULL, ""}},
		{"flashinfer", {"S=66,H=8,dtype=bf16", ANY_BOTH, 2, 2, 0, NULL, "A", NULL, ""}},
		{"flashinfer",
			{"S=64,H=8,dtype=bf16,documents=0:20:64", 0, 2, 2, 0, NULL, "R", NULL,
				"NotImplementedError"}},
		{"tensorrt-llm", {CROSS, 0, 4, 1, 0, NULL, "E03", NULL, ""}},
		{"tensorrt-llm", {CROSS, 0, 1, 4, 0, NULL, "A", NULL, ""}},
		{"tensorrt-llm", {GQA, 0, 2, 2, 0, NULL, "A", NULL, ""}},
		{"transformer-engine",
			{"S=56,H=8,documents=0:7:56", 0, 2, 1, 0, NULL, "B04", NULL, ""}},
		{"transformer-engine",
			{"S=60,H=8,documents=0:10:60", 0, 2, 1, 0, NULL, "N", NULL, ""}},
		{"transformer-engine",
			{"S=56,H=8,documents=0:8:56", 0, 2, 1, 0, NULL, "A", NULL, ""}},
		{"transformer-engine",
			{"S=60,H=8", 0, 8, 1, 0, NULL, "R", NULL, "AssertionError"}},
		{"vllm-omni", {"S=66,H=8", ANY_BOTH, 2, 2, 0, NULL, "R", NULL, "ValueError"}},
		{"vllm-omni", {"S=66,H=8", ANY_ULYSSES, 1, 4, 0, NULL, "A", NULL, ""}},
		{"vllm-omni",
			{"S=64,H=8,causal,text=8", 0, 1, 4, 0, NULL, "R", NULL, "ValueError"}},
		{"vllm-omni", {"S=64,H=8,key_lengths=50", 0, 4, 1, 0, NULL, "A", NULL, ""}},
		{"cache-dit", {"S=66,H=7", ANY_ULYSSES, 1, 4, 0, NULL, "A", NULL, ""}},
		{"cache-dit",
			{"S=66,H=8", ANY_RING, 4, 1, 0, NULL, "R", "split hook",
				"AssertionError"}},
		{"cache-dit", {"S=64,H=8,causal", 0, 1, 4, 0, NULL, "A", NULL, ""}},
		{"xdit", {"S=66,H=8", ANY_RING, 4, 1, 0, NULL, "R", NULL, "AssertionError"}},
		{"pytorch", {"S=60,H=8,causal,dtype=bf16", 0, 4, 1, 0, NULL, "R", NULL, ""}},
		{"pytorch", {"S=64,H=8,dtype=bf16", 0, 4, 1, 0, "math", "W", NULL, ""}},
		{"pytorch", {"S=64,H=8,dtype=bf16", 0, 2, 1, 0, "math", "A", NULL, ""}},
		{"pytorch", {"S=64,H=8", 0, 4, 1, 0, NULL, "A03", NULL, ""}},
		{"pytorch", {"S=64,H=8", 0, 1, 4, 0, NULL, "A", NULL, ""}},
		{"paraattention", {"S=64,H=8", 0, 4, 1, 0, NULL, "A03", NULL, ""}},
		{"paraattention", {"S=66,H=8", 0, 4, 1, 0, NULL, "R", NULL, "AssertionError"}},
		{"yunchang", {"S=64,H=8,dtype=bf16", 0, 4, 1, 0, "torch_math", "A09", NULL, ""}},
		{"yunchang", {"S=64,H=8,dtype=bf16", 0, 1, 4, 0, "torch_math", "A", NULL, ""}},
		{"yunchang", {"S=64,H=8,window=5:5", 0, 1, 4, 0, "torch_cudnn", "C08", NULL, ""}},
		{"yunchang", {"S=64,H=8,window=5:5,dtype=bf16", 0, 4, 1, 0, NULL, "N", NULL, ""}},
		{"yunchang", {"S=64,H=8,causal,dtype=bf16", 0, 4, 1, 0, "fa3", "C10", NULL, ""}},
		{"ring-flash-attn",
			{"S=64,H=8,window=5:5,dtype=bf16", 0, 4, 1, 0, NULL, "C08", NULL, ""}},
		{"ring-flash-attn", {"S=64,H=8,dtype=bf16", 0, 1, 4, 0, NULL, "N", NULL, ""}},
		{"ring-attention-pytorch", {GQA, 0, 4, 1, 0, NULL, "D06", NULL, ""}},
		{"ring-attention-pytorch", {CROSS, 0, 4, 1, 0, NULL, "E03", NULL, ""}},
		{"sglang", {TEXT, 0, 2, 1, 0, NULL, "E01", NULL, ""}},
		{"sglang", {TEXT, 0, 2, 2, 0, NULL, "E04", NULL, ""}},
		{"sglang", {TEXT, 0, 1, 2, 0, NULL, "A", NULL, ""}},
		{"sglang", {"S=64,H=6", 0, 1, 4, 0, NULL, "R", NULL, ""}},
		{"xdit", {TEXT, 0, 2, 2, 0, NULL, "A", NULL, ""}},
		{"pytorch", {TEXT, 0, 2, 2, 0, NULL, "N", NULL, ""}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		check_all(cases[i].system, &cases[i].asked, 1);
}

/* With ulysses outermost the causal blocks of a ring are skipped by the wrong number. */
static void a_swapped_mesh_spoils_causal_rings_of_yunchang(void **state)
{
	struct cpa_problem problem = parsed("S=64,H=8,D=8,dtype=bf16,causal");
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED, &problem);
	struct cpa_peer_request r;
	struct cpa_peer_answer answer;

	(void)state;
	config.ring_degree = config.ulysses_degree = 2;
	config.mesh = CPA_MESH_BATCH_ULYSSES_RING;
	r = cpa_peer_request_of(&problem, &config);
	assert_int_equal(r.world, 4);
	cpa_peer_judge(cpa_peer_find("yunchang"), &r, &answer);
	assert_string_equal(short_verdict(&answer), "C04");
	r.mesh = CPA_MESH_BATCH_RING_ULYSSES;
	cpa_peer_judge(cpa_peer_find("yunchang"), &r, &answer);
	assert_string_equal(short_verdict(&answer), "N");
}

/* Batch groups are ranks that a system either has an axis for, or leaves over. */
static void batch_groups_are_an_axis_or_are_left_over(void **state)
{
	struct cpa_problem problem = parsed("B=2,S=64,H=8,D=8,dtype=bf16");
	struct cpa_config config = cpa_config_default(CPA_VARIANT_RING, &problem);
	struct cpa_peer_request r;
	struct cpa_peer_answer answer;

	(void)state;
	config.batch_degree = 2;
	config.ring_degree = 4;
	r = cpa_peer_request_of(&problem, &config);
	r.backend = NULL;
	cpa_peer_judge(cpa_peer_find("xdit"), &r, &answer);
	assert_string_equal(short_verdict(&answer), "A");
	cpa_peer_judge(cpa_peer_find("cache-dit"), &r, &answer);
	assert_string_equal(short_verdict(&answer), "N");
	r.backend = "flash";
	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	assert_string_equal(short_verdict(&answer), "N");
}

/* A form that a system does not have is judged as the plain one, and that is said. */
static void a_form_that_is_not_there_is_said(void **state)
{
	static const struct asked asked = {
		"S=64,H=8,dtype=bf16", ANY_RING, 4, 1, 0, NULL, "A", NULL, ""};

	(void)state;
	check_all("xdit", &asked, 1);
	assert_non_null(strstr(ask("xdit", &asked).notes, "judged as the plain one"));
	assert_null(strstr(ask("flashinfer", &asked).notes, "judged as the plain one"));
}

static void every_system_has_a_version_and_a_table(void **state)
{
	(void)state;
	for (int i = 0; cpa_peer(i); i++) {
		const struct cpa_peer *peer = cpa_peer(i);

		assert_ptr_equal(cpa_peer_find(peer->name), peer);
		assert_true(strlen(peer->version) >= 8 && strchr(peer->repository, '/'));
		assert_true(peer->parts[0].n > 0 && peer->backends[0] != NULL);
	}
	assert_null(cpa_peer_find("deepspeed"));
	assert_null(cpa_peer(-1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_system_answers_every_request),
		cmocka_unit_test(what_was_not_read_says_so),
		cmocka_unit_test(a_plain_request_is_accepted_by_every_system),
		cmocka_unit_test(findings_show_on_their_trigger_alone),
		cmocka_unit_test(a_swapped_mesh_spoils_causal_rings_of_yunchang),
		cmocka_unit_test(batch_groups_are_an_axis_or_are_left_over),
		cmocka_unit_test(a_form_that_is_not_there_is_said),
		cmocka_unit_test(every_system_has_a_version_and_a_table),
	};

	return cmocka_run_group_tests(tests, start_peers, end_peers);
}
