/*
 * test_peers_instead.c - what a system accepts instead of what it refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/test_peers.h"

#define BF16 "S=64,H=8,D=8,dtype=bf16"
#define KEYS "S=64,H=8,D=8,dtype=bf16,key_lengths=50"

static const char *instead(const struct asked *asked)
{
	static struct cpa_peer_answer answer;
	struct cpa_problem problem = parsed(asked->problem);
	struct cpa_peer_request r = request_of(asked, &problem);

	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	cpa_peer_find_instead(cpa_peer_find("diffusers"), &r, &answer);
	return answer.instead;
}

#define FLUX_1008 "S=3969,text=512,H=24,D=128,dtype=bf16"

static void a_ring_of_four_on_1008_by_1008_is_answered(void **state)
{
	static const struct asked asked = {
		FLUX_1008, ANY_NONE, 4, 1, 0, NULL, "R", "split hook", "AssertionError"};
	struct cpa_peer_answer answer = ask("diffusers", &asked);

	(void)state;
	check_all("diffusers", &asked, 1);
	assert_non_null(strstr(answer.why, "text has 512 tokens, 128 for each of 4 ranks"));
	assert_non_null(strstr(answer.why, "image has 3969 tokens, which 4 ranks do not divide"));
	assert_string_equal(instead(&asked),
		"ring_anything 1x4x1 with --backend flash, or ulysses_anything 1x1x4");
}

static void what_is_named_instead_is_accepted_and_nothing_else_is_named(void **state)
{
	static const struct {
		struct asked asked;
		const char *instead;
	} cases[] = {
		{{BF16, ANY_NONE, 4, 1, 0, NULL, "", NULL, ""},
			"ring 1x4x1 with --backend flash, or ulysses 1x1x4"},
		{{"S=64,H=8", ANY_NONE, 4, 1, 0, NULL, "", NULL, ""},
			"ulysses 1x1x4, or ring 1x4x1 with --backend flash in bf16"},
		{{KEYS, ANY_NONE, 4, 1, 0, "_native_cudnn", "", NULL, ""},
			"ulysses 1x1x4 with --backend _native_cudnn"},
		{{BF16, ANY_BOTH, 2, 2, 0, "flash", "", NULL, ""},
			"unified 1x2x2 with --backend flash, or ring_anything 1x4x1 with "
			"--backend flash"},
		{{"S=64,H=8,causal", ANY_NONE, 4, 1, 0, NULL, "", NULL, ""}, ""},
		{{"S=64,H=6", ANY_ULYSSES, 1, 4, 0, NULL, "", NULL, ""},
			"ulysses_anything 1x1x3"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_string_equal(instead(&cases[i].asked), cases[i].instead);
}

/* A key mask on each of many meshes: all that is named there is right when it is asked for. */
static void the_first_that_is_named_is_accepted_when_asked(void **state)
{
	static const char *const systems[] = {
		"diffusers", "cache-dit", "vllm-omni", "flashinfer"};

	(void)state;
	for (size_t s = 0; s < sizeof systems / sizeof *systems; s++)
		for (int R = 1; R <= 6; R++)
			for (int U = 1; U <= 6; U++) {
				struct cpa_problem problem = parsed(
					"S=70,H=6,D=8,key_lengths=50");
				struct cpa_peer_request r = {.problem = &problem,
					.world = R * U,
					.batch = 1,
					.ring = R,
					.ulysses = U,
					.tensor = 1};
				const struct cpa_peer *peer = cpa_peer_find(systems[s]);
				struct cpa_peer_answer answer;
				char name[32];
				int N;

				cpa_peer_judge(peer, &r, &answer);
				cpa_peer_find_instead(peer, &r, &answer);
				if (sscanf(answer.instead, "%31s %dx%dx%d", name, &N, &r.ring,
					    &r.ulysses) != 4 ||
					strstr(answer.instead, "--backend"))
					continue;
				r.world = r.ring * r.ulysses;
				r.ring_anything = strstr(name, "anything") && r.ring > 1;
				r.ulysses_anything = strstr(name, "anything") && r.ulysses > 1;
				assert_true(cpa_peer_accepts(peer, &r));
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_of_four_on_1008_by_1008_is_answered),
		cmocka_unit_test(what_is_named_instead_is_accepted_and_nothing_else_is_named),
		cmocka_unit_test(the_first_that_is_named_is_accepted_when_asked),
	};

	return cmocka_run_group_tests(tests, start_peers, end_peers);
}
