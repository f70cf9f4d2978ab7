/*
 * test_verify_rules.c - windows, documents, key lengths, masks and sinks, alone and together,
 * in every rotation and order; and faults planted under them are found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/fault.h"
#include "harness/verify.h"

static const char *const problems[] = {
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=fp32,window=6:2",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=fp32,causal,window=5:-1",
	"B=2,Sq=23,Skv=31,Hq=6,Hkv=2,D=8,dtype=fp32,causal,window=40:3,offset=-3",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=fp32,causal,documents=0:0:1:17:17:29",
	"B=3,S=29,Hq=6,Hkv=2,D=8,dtype=fp32,key_lengths=0:1:27",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=fp32,key_lengths=0:0",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=fp32,mask=bool:BxHxQxK:1",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=bf16,mask=bool:Bx1x1xK:2",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=fp16,mask=bias:1xHxQxK:3",
	"B=2,S=29,Hq=6,Hkv=2,D=8,mask=bias:BxHx1x1:4",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=fp32,sink=random",
	"B=2,S=29,Hq=6,Hkv=2,D=8,dtype=bf16,causal,offset=-4,sink=0.5",
	"B=2,S=29,Hq=6,Hkv=2,D=8,key_lengths=0:20,sink=random,mask=bool:1x1xQx1:5",
	"S=29,B=2,Hq=6,Hkv=2,D=8,causal,window=9:-1,documents=0:13:29,key_lengths=29:11,sink=random",
	"S=29,B=2,H=3,D=8,dtype=fp32,causal,documents=0:13:29,mask=bias:Bx1xQxK:6,sink=random",
};
enum { NPROBLEMS = sizeof problems / sizeof problems[0] };

struct mesh {
	int N, R, U;
};
static const struct mesh meshes[] = {
	{1, 1, 1}, {1, 4, 1}, {1, 1, 3}, {1, 2, 2}, {2, 3, 2}, {1, 30, 1}};
enum { NMESHES = sizeof meshes / sizeof meshes[0] };

struct bench {
	struct cpa_options options;
	struct cpa_tensors tensors;
	void *data[3];
	struct cpa_device *device;
};

static void set_up(struct bench *b, const char *text, const char *device)
{
	static const enum cpa_tensor tensors[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	char problem[512], *argv[] = {"cpattn", "verify", "--problem", problem};
	struct cpa_error error;
	snprintf(problem, sizeof problem, "%s", text);
	if (cpa_options_parse(4, argv, &b->options, &error) != CPA_OK)
		fail_msg("%s: %s", text, error.text);
	const struct cpa_problem *p = &b->options.problem;
	for (int i = 0; i < 3; i++) {
		b->data[i] = malloc((size_t)(p->B * cpa_tensor_ntokens(p, tensors[i])) *
				    cpa_token_nbytes(p, tensors[i]));
		cpa_inputs_fill(p, CPA_FILL_NORMAL, 11, tensors[i], b->data[i]);
	}
	b->tensors = (struct cpa_tensors){p, b->data[0], b->data[1], b->data[2]};
	assert_int_equal(cpa_device_create(device, &b->device, &error), CPA_OK);
}

static void tear_down(struct bench *b)
{
	cpa_device_destroy(b->device);
	for (int i = 0; i < 3; i++)
		free(b->data[i]);
	cpa_options_fini(&b->options);
}

static struct cpa_verifier *verifier_of(struct bench *b, int fault, uint64_t seed)
{
	struct cpa_verify_settings settings = {
		.device = b->device, .interleavings = 2, .fault = fault, .fault_seed = seed};
	struct cpa_verifier *verifier;
	struct cpa_error error;
	assert_int_equal(
		cpa_verifier_create(&settings, &b->tensors, NULL, &verifier, &error), CPA_OK);
	return verifier;
}

static struct cpa_config config_of(
	const struct bench *b, const struct mesh *mesh, int rotate, int order)
{
	struct cpa_config config =
		cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &b->options.problem);
	config.batch_degree = mesh->N;
	config.ring_degree = mesh->R;
	config.ulysses_degree = mesh->U;
	config.rotate = (enum cpa_rotate)rotate;
	config.order = (enum cpa_order)order;
	if (b->device->fp64_partials)
		config.partial_dtype = CPA_DTYPE_FP64;
	return config;
}

static void expect_right(struct cpa_verifier *verifier, const struct cpa_config *config)
{
	struct cpa_result result;
	cpa_result_init(&result);
	cpa_verifier_run(verifier, config, &result, NULL);
	if (result.verdict != CPA_VERDICT_RIGHT) {
		char text[256], problem[512];
		cpa_config_print(config, text, sizeof text);
		cpa_problem_print(result.problem, problem, sizeof problem);
		fail_msg("%s %s: %s", problem, text, result.reason);
	}
	assert_true(result.probe_ratio <= 1.0);
	free(result.counts);
}

static void every_rule_is_right_in_every_rotation_and_order(void **state)
{
	(void)state;
	for (int i = 0; i < NPROBLEMS; i++) {
		struct bench b;
		set_up(&b, problems[i], i % 2 ? "cpu" : "ref");
		struct cpa_verifier *verifier = verifier_of(&b, -1, 0);
		for (int m = 0; m < NMESHES; m++)
			for (int k = 0; k < 9; k++) {
				bool ring = meshes[m].R > 1, many = meshes[m].R > 4;
				/* Nothing rotates without a ring; many ranks take one order. */
				if ((k / 3 > 0 && !ring) || (many && k % 3 != (k / 3 + i) % 3))
					continue;
				struct cpa_config config = config_of(&b, &meshes[m],
					CPA_ROTATE_P2P + k / 3, CPA_ORDER_CONTIGUOUS + k % 3);
				expect_right(verifier, &config);
			}
		cpa_verifier_destroy(verifier);
		tear_down(&b);
	}
}

/* These are planted where their rows see keys; then o, lse or a probe shows them. */
static bool always_shows(int fault)
{
	static const char *const names[] = {"hop-skipped", "wrong-rank-kv", "lse-base-2",
		"merge-lost", "head-swapped", "pad-key-counted", "stale-buffer", "lse-zero-start"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(cpa_fault_name(fault), names[i]) == 0)
			return true;
	return false;
}

/* Whatever else is planted is found, or said not to show in these inputs; what is not planted never is. */
static void faults_under_every_rule_are_found(void **state)
{
	(void)state;
	int nplanted = 0, nseen = 0;
	for (int i = 0; i < NPROBLEMS; i++) {
		struct bench b;
		set_up(&b, problems[i], "cpu");
		for (int fault = 0; cpa_fault_name(fault); fault++)
			for (int m = 0; m < NMESHES - 1; m++) {
				struct cpa_result result;
				struct cpa_verify_trace trace;
				if (!always_shows(fault) && m != (fault + i) % (NMESHES - 1))
					continue;
				struct cpa_verifier *verifier =
					verifier_of(&b, fault, (uint64_t)(i + m));
				struct cpa_config config = config_of(&b, &meshes[m],
					(i + m) % 3, CPA_ORDER_CONTIGUOUS);
				cpa_result_init(&result);
				cpa_verifier_run(verifier, &config, &result, &trace);
				free(result.counts);
				cpa_verifier_destroy(verifier);
				bool wrong = result.verdict == CPA_VERDICT_WRONG;
				bool unseen = strstr(result.reason, "planted and not seen") != NULL;
				nplanted += trace.planted;
				nseen += trace.planted && wrong;
				if (trace.planted ? !wrong && (always_shows(fault) || !unseen) : wrong)
					fail_msg("%s in %dx%dx%d, %s: %s %s",
						cpa_fault_name(fault), meshes[m].N, meshes[m].R,
						meshes[m].U, problems[i], trace.plant,
						result.reason);
			}
		tear_down(&b);
	}
	assert_true(nplanted > 200 && nseen > nplanted / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_is_right_in_every_rotation_and_order),
		cmocka_unit_test(faults_under_every_rule_are_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
