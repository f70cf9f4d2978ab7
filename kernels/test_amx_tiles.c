/*
 * test_amx_tiles.c - tiles in software against a plain model of what the manual says, and what
 * they refuse.
 */
#include "kernels/cpu.h"
#include "kernels/kernels.h"
#include "kernels/test_memory.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <signal.h>
#include <sys/wait.h>

#if CPA_CPU_X86
#define CPA_TILES_IN_SOFTWARE
#include "kernels/amx_tiles.h"

enum { C = 0, A = 5, B = 7, MOST = 16 };

/* c [m][n] += a [m][k][2] b [k][n][2] */
struct shape {
	int m, n, k;
};

static struct cpa_tile_config config_of(struct shape shape)
{
	struct cpa_tile_config config = {.palette = 1};

	config.rows[C] = config.rows[A] = (uint8_t)shape.m;
	config.rows[B] = (uint8_t)shape.k;
	config.colsb[C] = config.colsb[B] = (uint16_t)(4 * shape.n);
	config.colsb[A] = (uint16_t)(4 * shape.k);
	return config;
}

static float flush(float x)
{
	return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* a + x y, once rounded; numbers below the least normal one are 0 on either side. */
static float model_fma(uint16_t x, uint16_t y, float a)
{
	return flush(fmaf(flush(cpa_bf16_to_float(x)), flush(cpa_bf16_to_float(y)), a));
}

static void model(struct shape s, const uint16_t *a, const uint16_t *b, float *c)
{
	for (int m = 0; m < s.m; m++)
		for (int n = 0; n < s.n; n++) {
			float sum[2] = {0, 0}, *to = c + m * s.n + n;

			for (int k = 0; k < s.k; k++)
				for (int i = 0; i < 2; i++)
					sum[i] = model_fma(a[(m * s.k + k) * 2 + i],
						b[(k * s.n + n) * 2 + i], sum[i]);
			*to = flush(flush(*to) + flush(sum[0] + sum[1]));
		}
}

/* kind 0: about 1; 1: any size; 2: near the least normal number, and below; 3: any bits. */
static uint16_t random_bf16(uint64_t *seed, int kind)
{
	uint16_t bits = (uint16_t)(random_bits(seed) >> 40);
	int exponent = (int)random_int(seed, 0, 7);

	if (kind == 3)
		return bits;
	bits &= 0x807f;
	if (kind == 0)
		exponent += 123;
	else if (kind == 1)
		exponent = (int)random_int(seed, 1, 254);
	else
		exponent = exponent < 4 ? exponent : exponent + 120;
	return (uint16_t)(bits | exponent << 7);
}

static float random_float(uint64_t *seed, int kind)
{
	uint32_t bits = (uint32_t)random_bf16(seed, kind) << 16 |
		(uint32_t)random_int(seed, 0, 0xffff);
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

static bool same(float x, float y)
{
	return (isnan(x) && isnan(y)) || !memcmp(&x, &y, sizeof x);
}

static void a_product_is_that_of_the_manual_to_the_last_bit(void **state)
{
	uint64_t seed = 41;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		struct shape s = {(int)random_int(&seed, 1, 16), (int)random_int(&seed, 1, 16),
			(int)random_int(&seed, 1, 16)};
		struct cpa_tile_config config = config_of(s);
		uint16_t a[MOST * MOST * 2], b[MOST * MOST * 2];
		float c[MOST * MOST], exact[MOST * MOST];
		int kind = i % 4;

		for (int n = 0; n < MOST * MOST * 2; n++) {
			a[n] = random_bf16(&seed, kind);
			b[n] = random_bf16(&seed, kind);
		}
		for (int n = 0; n < MOST * MOST; n++)
			c[n] = exact[n] = random_float(&seed, kind);
		model(s, a, b, exact);
		TILE_CONFIGURE(&config);
		TILE_LOAD(C, c, 4 * s.n);
		TILE_LOAD(A, a, 4 * s.k);
		TILE_LOAD_ONCE(B, b, 4 * s.n);
		TILE_MULTIPLY(C, A, B);
		TILE_STORE(C, c, 4 * s.n);
		TILE_RELEASE();
		for (int n = 0; n < s.m * s.n; n++)
			assert_true(same(c[n], exact[n]));
	}
}

/* One pair, so that each operation can be told. */
static float one_pair(float c, float a0, float b0, float a1, float b1)
{
	struct cpa_tile_config config = config_of((struct shape){1, 1, 1});
	uint16_t a[2] = {cpa_bf16_from_float(a0), cpa_bf16_from_float(a1)};
	uint16_t b[2] = {cpa_bf16_from_float(b0), cpa_bf16_from_float(b1)};

	TILE_CONFIGURE(&config);
	TILE_LOAD(C, &c, 4);
	TILE_LOAD(A, a, 4);
	TILE_LOAD(B, b, 4);
	TILE_MULTIPLY(C, A, B);
	TILE_STORE(C, &c, 4);
	TILE_RELEASE();
	return c;
}

static void numbers_below_the_least_normal_one_are_0_in_and_out(void **state)
{
	(void)state;
	assert_true(one_pair(0, 0x1p-126f, 0x1p126f, 0, 0) == 1);
	assert_true(one_pair(0, 0x1p-127f, 0x1p127f, 0, 0) == 0);
	assert_true(one_pair(0, 0x1p-63f, 0x1p-63f, 0, 0) == 0x1p-126f);
	assert_true(one_pair(0, 0x1p-63f, 0x1p-64f, 0, 0) == 0);
	assert_true(one_pair(0, 0x1p-63f, 0x1.8p-63f, 0x1p-63f, -0x1p-63f) == 0);
	assert_true(one_pair(0x1p-127f, 0, 0, 0, 0) == 0);
	assert_true(one_pair(0x1.8p-126f, 0x1p-63f, -0x1p-63f, 0, 0) == 0);
	assert_true(isinf(one_pair(1, 0x1p-127f, 1, 0x1p127f, 2)));
}

static void what_the_thread_set_for_its_own_arithmetic_stays(void **state)
{
	volatile float least = FLT_MIN;
	unsigned before = _mm_getcsr();

	(void)state;
	_mm_setcsr(before | 0x6000); /* to 0 */
	assert_true(one_pair(1, 0x1.8p-13f, 0x1p-11f, 0, 0) == 1 + 0x1p-23f); /* to nearest */
	assert_int_equal(_mm_getcsr() & 0x6000, 0x6000);
	_mm_setcsr(before);
	assert_true(least / 2 > 0);
}

/* Rows of a tile that are not configured are neither read nor written. */
static void rows_beyond_the_configuration_are_left_alone(void **state)
{
	struct cpa_tile_config config = config_of((struct shape){5, 3, 2});
	struct guarded memory = guarded_alloc(4 * 40 + 12, 7);
	unsigned char to[5 * 40];

	(void)state;
	memset(to, 1, sizeof to);
	TILE_CONFIGURE(&config);
	TILE_LOAD(C, memory.data, 40);
	TILE_STORE(C, to, 40);
	for (int i = 0; i < 5 * 40; i++)
		assert_int_equal(to[i], i % 40 < 12 ? 7 : 1);
	TILE_ZERO(C);
	TILE_STORE(C, to, 40);
	assert_int_equal(to[11], 0);
	assert_int_equal(to[12], 1);
	TILE_RELEASE();
	guarded_free(&memory);
}

/* ---- misuse ---- */

static void use_without_configuring(void)
{
	TILE_ZERO(0);
}

static void use_after_release(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	TILE_CONFIGURE(&config);
	TILE_ZERO(0);
	TILE_RELEASE();
	TILE_ZERO(0);
}

static void use_a_tile_that_is_not_configured(void)
{
	struct cpa_tile_config config = config_of((struct shape){4, 4, 4});
	char row[64] = {0};

	TILE_CONFIGURE(&config);
	TILE_LOAD(1, row, 64);
}

static void use_a_ninth_tile(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;
	char memory[CPA_TILE_NBYTES];

	TILE_CONFIGURE(&config);
	TILE_STORE(8, memory, 64);
}

static void multiply_a_tile_by_itself(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	TILE_CONFIGURE(&config);
	TILE_MULTIPLY(0, 1, 1);
}

static void multiply_shapes_that_do_not_fit(void)
{
	struct cpa_tile_config config = config_of((struct shape){8, 8, 8});

	config.rows[B] = 7;
	TILE_CONFIGURE(&config);
	TILE_MULTIPLY(C, A, B);
}

static void multiply_half_a_number(void)
{
	struct cpa_tile_config config = config_of((struct shape){8, 8, 8});

	config.colsb[C] = config.colsb[B] = 30;
	TILE_CONFIGURE(&config);
	TILE_MULTIPLY(C, A, B);
}

static void configure_a_row_too_many(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	config.rows[3] = 17;
	TILE_CONFIGURE(&config);
}

static void configure_rows_without_columns(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	config.colsb[3] = 0;
	TILE_CONFIGURE(&config);
}

static void configure_a_ninth_tile(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	config.rows[8] = 16;
	config.colsb[8] = 64;
	TILE_CONFIGURE(&config);
}

static void configure_another_palette(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	config.palette = 2;
	TILE_CONFIGURE(&config);
}

static void configure_a_reserved_byte(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	config.reserved[13] = 1;
	TILE_CONFIGURE(&config);
}

static void configure_a_start_row(void)
{
	struct cpa_tile_config config = CPA_TILES_WHOLE;

	config.start_row = 1;
	TILE_CONFIGURE(&config);
}

/* Runs in a child; what it said, and whether it was aborted. */
static bool is_aborted(void (*run)(void), char *said, size_t size)
{
	int ends[2], status;
	ssize_t n;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		signal(SIGABRT, SIG_DFL);
		dup2(ends[1], 2);
		run();
		_exit(0);
	}
	close(ends[1]);
	n = read(ends[0], said, size - 1);
	said[n > 0 ? n : 0] = 0;
	close(ends[0]);
	assert_true(waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void what_a_processor_would_fault_on_aborts_with_a_sentence(void **state)
{
	static const struct {
		void (*run)(void);
		const char *says;
	} cases[] = {
		{use_without_configuring, "no tiles are configured in this thread"},
		{use_after_release, "no tiles are configured in this thread"},
		{use_a_tile_that_is_not_configured, "TILELOADD of tile 1: it is not configured"},
		{use_a_ninth_tile, "there are tiles 0 to 7"},
		{multiply_a_tile_by_itself, "are not three"},
		{multiply_shapes_that_do_not_fit, "shapes do not fit"},
		{multiply_half_a_number, "whole numbers"},
		{configure_a_row_too_many, "at most 16 rows"},
		{configure_rows_without_columns, "alone are 0"},
		{configure_a_ninth_tile, "there are tiles 0 to 7"},
		{configure_another_palette, "palettes 0 and 1"},
		{configure_a_reserved_byte, "reserved"},
		{configure_a_start_row, "start row"},
	};
	char said[256];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_true(is_aborted(cases[i].run, said, sizeof said));
		assert_non_null(strstr(said, cases[i].says));
	}
}

/* ---- the instruction set ---- */

static void tiles_that_the_machine_lacks_are_refused_with_a_reason(void **state)
{
	const char *lack = cpa_cpu_lacks(CPA_CPU_AMX);
	struct cpa_error error;

	(void)state;
	if (!lack) {
		assert_int_equal(cpa_cpu_select("amx", &error), CPA_OK);
		return;
	}
	assert_int_equal(cpa_cpu_select("amx", &error), CPA_INVALID);
	assert_non_null(strstr(error.text, lack));
	assert_non_null(strstr(error.text, "CPATTN_CPU=amx cannot run here"));
	assert_non_null(strstr(error.text, "amx-software"));
}

static void tiles_in_software_are_never_picked_unasked(void **state)
{
	struct cpa_error error;

	(void)state;
	unsetenv("CPATTN_CPU");
	assert_int_equal(cpa_cpu_select(NULL, &error), CPA_OK);
	assert_string_not_equal(cpa_cpu_kernels()->name, "amx-software");
	assert_int_equal(cpa_cpu_select("amx-software", &error), CPA_OK);
	assert_string_equal(cpa_cpu_kernels()->name, "amx-software");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_product_is_that_of_the_manual_to_the_last_bit),
		cmocka_unit_test(numbers_below_the_least_normal_one_are_0_in_and_out),
		cmocka_unit_test(what_the_thread_set_for_its_own_arithmetic_stays),
		cmocka_unit_test(rows_beyond_the_configuration_are_left_alone),
		cmocka_unit_test(what_a_processor_would_fault_on_aborts_with_a_sentence),
		cmocka_unit_test(tiles_that_the_machine_lacks_are_refused_with_a_reason),
		cmocka_unit_test(tiles_in_software_are_never_picked_unasked),
	};

	if (cpa_cpu_lacks(CPA_CPU_AVX512)) {
		print_message("without tiles in software: %s\n", cpa_cpu_lacks(CPA_CPU_AVX512));
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	print_message("without tiles: this is not an x86-64 build\n");
	return 0;
}
#endif
