/*
 * bench_kernels.c - how fast attention is on one machine, as shares of what the machine can do;
 * nothing is asserted.  `make bench-kernels`, or bench_kernels PART... of those it lists.
 *
 * What is measured and the limit it is compared to take turns; each ratio is of the best of
 * REPEATS of either, because machines are shared and noisy.  Calls are cut to a few
 * milliseconds: longer ones would average over neighbours.
 */
#include "harness/clock.h"
#include "harness/limits.h"
#include "harness/peak.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { REPEATS = 12 };

/* One shape: B = 1, arrays [S, H, D]. */
struct shape {
	int64_t Sq, Skv, Hq, Hkv, D;
	enum cpa_dtype dtype;
	bool causal;
};

struct work {
	struct shape shape;
	struct cpa_problem problem;
	struct cpa_attend attend;
	struct cpa_arena arena;
	void *memory[5];
};

static struct cpa_device *device;

static void must(enum cpa_status status, const struct cpa_error *error)
{
	if (status == CPA_OK)
		return;
	fprintf(stderr, "bench_kernels: %s\n", error->text);
	exit(2);
}

static struct cpa_array array(
	struct work *work, int i, enum cpa_dtype dtype, int64_t S, int64_t H, int64_t D)
{
	struct cpa_array array = {NULL, dtype, H * D, S * H * D, D};
	struct cpa_error error;

	must(device->ops->alloc(device, (size_t)(S * H * D) * cpa_dtype_nbytes(dtype),
		     &work->memory[i], &error),
		&error);
	array.data = work->memory[i];
	return array;
}

/* Numbers of no pattern in -1..1, of unit variance or so. */
static void fill(const struct cpa_array *array, int64_t n)
{
	uint32_t state = 12345;

	for (int64_t i = 0; i < n; i++) {
		state = state * 1664525 + 1013904223;
		cpa_store(array->dtype, array->data, i, (double)(int32_t)state * 0x1p-30);
	}
}

static void work_make(struct work *work, struct shape s)
{
	enum cpa_dtype lse = s.dtype == CPA_DTYPE_FP64 ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;

	memset(work, 0, sizeof *work);
	work->shape = s;
	work->problem = (struct cpa_problem){.B = 1,
		.Sq = s.Sq,
		.Skv = s.Skv,
		.Hq = s.Hq,
		.Hkv = s.Hkv,
		.D = s.D,
		.Dv = s.D,
		.dtype = s.dtype,
		.scale = 1 / sqrt((double)s.D),
		.rule = {.causal = s.causal, .offset = s.Skv - s.Sq},
		.lse = true};
	cpa_arena_init(&work->arena);
	work->attend = (struct cpa_attend){.problem = &work->problem,
		.q = array(work, 0, s.dtype, s.Sq, s.Hq, s.D),
		.k = array(work, 1, s.dtype, s.Skv, s.Hkv, s.D),
		.v = array(work, 2, s.dtype, s.Skv, s.Hkv, s.D),
		.o = array(work, 3, s.dtype, s.Sq, s.Hq, s.D),
		.lse = array(work, 4, lse, s.Sq, s.Hq, 1),
		.nq = s.Sq,
		.nk = s.Skv,
		.batches = {0, 1},
		.heads = {0, s.Hq}};
	cpa_spans_append_range(&work->arena, &work->attend.q_tokens, (struct cpa_range){0, s.Sq});
	cpa_spans_append_range(
		&work->arena, &work->attend.k_tokens, (struct cpa_range){0, s.Skv});
	fill(&work->attend.q, s.Sq * s.Hq * s.D);
	fill(&work->attend.k, s.Skv * s.Hkv * s.D);
	fill(&work->attend.v, s.Skv * s.Hkv * s.D);
}

static void work_free(struct work *work)
{
	for (int i = 0; i < 5; i++)
		device->ops->free(device, work->memory[i]);
	cpa_arena_fini(&work->arena);
}

/* Pairs that the rule lets through, times 4 D. */
static double flop(const struct shape *s)
{
	double pairs = (double)s->Sq * (double)s->Skv;

	if (s->causal)
		pairs = (double)s->Sq * ((double)(s->Skv - s->Sq) + ((double)s->Sq + 1) / 2);
	return 4 * pairs * (double)(s->D * s->Hq);
}

static double seconds(struct work *work)
{
	struct cpa_error error;
	double start = cpa_now();

	must(device->ops->attend(device, 0, &work->attend, &error), &error);
	return cpa_now() - start;
}

static void use_threads(int n)
{
#ifdef _OPENMP
	omp_set_num_threads(n);
#else
	(void)n;
#endif
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Best flop/s of each work, and of the limit, all taking turns. */
static double measure(struct work *works, int n, const char *set, int nthreads, double *rates)
{
	double peak = 0;

	use_threads(nthreads);
	for (int i = 0; i < n; i++) {
		rates[i] = 0;
		seconds(&works[i]);
	}
	for (int r = 0; r < REPEATS; r++) {
		peak = larger(peak, cpa_peak_fma(set, nthreads));
		for (int i = 0; i < n; i++)
			rates[i] = larger(rates[i], flop(&works[i].shape) / seconds(&works[i]));
	}
	return peak;
}

static int most_threads(void)
{
#ifdef _OPENMP
	return omp_get_num_procs() < 2 ? 1 : 2;
#else
	return 1;
#endif
}

/* ---- tables ---- */

/* fp32 against the limit of its instruction set. */
static void bench_full(void)
{
	static const struct shape shapes[] = {
		{384, 4608, 2, 2, 128, CPA_DTYPE_FP32, false},
		{384, 4608, 2, 2, 64, CPA_DTYPE_FP32, false},
		{1024, 1024, 2, 2, 128, CPA_DTYPE_FP32, false},
		{1024, 1024, 4, 4, 64, CPA_DTYPE_FP32, false},
		{512, 512, 8, 8, 128, CPA_DTYPE_FP32, false},
		{512, 512, 16, 16, 64, CPA_DTYPE_FP32, false},
		{256, 256, 16, 16, 128, CPA_DTYPE_FP32, false},
		{256, 256, 16, 16, 64, CPA_DTYPE_FP32, false},
		{128, 128, 24, 24, 128, CPA_DTYPE_FP32, false},
		{128, 128, 48, 48, 64, CPA_DTYPE_FP32, false},
		{64, 64, 64, 64, 128, CPA_DTYPE_FP32, false},
		{64, 64, 128, 128, 64, CPA_DTYPE_FP32, false},
	};
	enum { N = sizeof shapes / sizeof shapes[0] };
	struct work works[N];
	double rates[N];
	const char *set = cpa_limit_set(CPA_DTYPE_FP32);

	printf("\n# fp32, share of the %s multiply-add rate\n", set);
	printf("# threads    Sq   Skv    H    D     GF/s  share\n");
	for (int i = 0; i < N; i++)
		work_make(&works[i], shapes[i]);
	for (int n = 1; n <= most_threads(); n++) {
		double peak = measure(works, N, set, n, rates);

		printf("%9d %29s %6.1f  1\n", n, "limit", peak / 1e9);
		for (int i = 0; i < N; i++)
			printf("%9d %5d %5d %4d %4d %8.1f  %.3f\n", n, (int)shapes[i].Sq,
				(int)shapes[i].Skv, (int)shapes[i].Hq, (int)shapes[i].D,
				rates[i] / 1e9, rates[i] / peak);
	}
	for (int i = 0; i < N; i++)
		work_free(&works[i]);
}

/* Pairs of works: the second of each as a share of the first. */
static void bench_pairs(const char *title, const struct shape *shapes, int n)
{
	struct work works[16];
	double rates[16];

	printf("\n# %s\n# threads    Sq   Skv    H    D dtype causal     GF/s  ratio\n", title);
	for (int i = 0; i < n; i++)
		work_make(&works[i], shapes[i]);
	for (int t = 1; t <= most_threads(); t++) {
		measure(works, n, cpa_limit_set(CPA_DTYPE_FP32), t, rates);
		for (int i = 1; i < n; i++)
			if (i % 2)
				printf("%9d %5d %5d %4d %4d %5s %6s %8.1f  %.3f\n", t,
					(int)shapes[i].Sq, (int)shapes[i].Skv, (int)shapes[i].Hq,
					(int)shapes[i].D, cpa_dtype_name(shapes[i].dtype),
					shapes[i].causal ? "yes" : "no", rates[i] / 1e9,
					rates[i] / rates[i - 1]);
	}
	for (int i = 0; i < n; i++)
		work_free(&works[i]);
}

static void bench_causal(void)
{
	static const struct shape shapes[] = {
		{4608, 4608, 1, 1, 128, CPA_DTYPE_FP32, false},
		{4608, 4608, 1, 1, 128, CPA_DTYPE_FP32, true},
		{1024, 1024, 4, 4, 128, CPA_DTYPE_FP32, false},
		{1024, 1024, 4, 4, 128, CPA_DTYPE_FP32, true},
		{512, 512, 8, 8, 128, CPA_DTYPE_FP32, false},
		{512, 512, 8, 8, 128, CPA_DTYPE_FP32, true},
		{1024, 1024, 4, 4, 64, CPA_DTYPE_FP32, false},
		{1024, 1024, 4, 4, 64, CPA_DTYPE_FP32, true},
	};

	bench_pairs("causal: useful flop/s over those of the whole", shapes,
		sizeof shapes / sizeof shapes[0]);
}

static void bench_dtypes(void)
{
	static const struct shape shapes[] = {
		{384, 4608, 2, 2, 128, CPA_DTYPE_FP32, false},
		{384, 4608, 2, 2, 128, CPA_DTYPE_BF16, false},
		{384, 4608, 2, 2, 128, CPA_DTYPE_FP32, false},
		{384, 4608, 2, 2, 128, CPA_DTYPE_FP16, false},
		{512, 512, 8, 8, 128, CPA_DTYPE_FP32, false},
		{512, 512, 8, 8, 128, CPA_DTYPE_BF16, false},
		{512, 512, 8, 8, 64, CPA_DTYPE_FP32, false},
		{512, 512, 8, 8, 64, CPA_DTYPE_FP16, false},
		{64, 64, 64, 64, 128, CPA_DTYPE_FP32, false},
		{64, 64, 64, 64, 128, CPA_DTYPE_BF16, false},
		{384, 2048, 2, 2, 128, CPA_DTYPE_FP32, false},
		{384, 2048, 2, 2, 128, CPA_DTYPE_FP64, false},
	};

	bench_pairs("other types: flop/s over those of fp32", shapes,
		sizeof shapes / sizeof shapes[0]);
}

/* Few queries: keys and values are read once, and that is the limit. */
static void bench_decode(void)
{
	static const struct shape shapes[] = {
		{1, 16384, 32, 8, 128, CPA_DTYPE_FP32, false},
		{1, 16384, 32, 4, 128, CPA_DTYPE_BF16, false},
		{1, 65536, 8, 1, 128, CPA_DTYPE_FP32, false},
		{4, 16384, 32, 8, 128, CPA_DTYPE_FP32, false},
		{16, 16384, 8, 8, 128, CPA_DTYPE_BF16, false},
		{16, 16384, 8, 8, 128, CPA_DTYPE_FP32, false},
		{1, 16384, 8, 8, 128, CPA_DTYPE_FP32, false},
	};
	enum { N = sizeof shapes / sizeof shapes[0] };

	printf("\n# few queries, keys and values beyond the caches: share of the read rate\n"
	       "# threads    Sq   Skv   Hq  Hkv    D dtype     GB/s  share  most\n"
	       "# most: the share at which multiply-add would be at its own rate\n");
	for (int t = 1; t <= most_threads(); t++) {
		struct cpa_peak_space *space = cpa_peak_space_create((64 << 20) / (size_t)t, t);

		for (int i = 0; space && i < N; i++) {
			const struct shape *s = &shapes[i];
			double nbytes = 2 * (double)(s->Skv * s->Hkv * s->D) *
				(double)cpa_dtype_nbytes(s->dtype);
			double best = 0, limit = 0, peak = 0;
			struct work work;

			work_make(&work, *s);
			use_threads(t);
			for (int r = 0; r < REPEATS / 2; r++) {
				limit = larger(limit, cpa_peak_read(space));
				peak = larger(peak, cpa_peak_fma(cpa_limit_set(CPA_DTYPE_FP32), t));
				best = larger(best, nbytes / seconds(&work));
			}
			printf("%9d %5d %5d %4d %4d %4d %5s %8.1f  %.3f %5.2f\n", t, (int)s->Sq,
				(int)s->Skv, (int)s->Hq, (int)s->Hkv, (int)s->D,
				cpa_dtype_name(s->dtype), best / 1e9, best / limit,
				peak / flop(s) * nbytes / limit);
			work_free(&work);
		}
		cpa_peak_space_destroy(space);
	}
}

static void bench_bf16(void)
{
	static const struct shape shapes[] = {
		{512, 4608, 4, 4, 128, CPA_DTYPE_BF16, false},
		{1024, 4096, 2, 2, 128, CPA_DTYPE_BF16, false},
		{1024, 1024, 4, 4, 128, CPA_DTYPE_BF16, false},
		{4096, 4096, 1, 1, 128, CPA_DTYPE_BF16, true},
	};
	enum { N = sizeof shapes / sizeof shapes[0] };
	struct work works[N];
	double rates[N];
	const char *set = cpa_cpu_bf16_set();

	printf("\n# bf16 as it is, D 128, share of the same-run rate of its instructions\n");
	if (!set) {
		printf("not measured: kernels in use widen bf16, and AMX: %s\n",
			cpa_cpu_lacks_tiles() ? cpa_cpu_lacks_tiles() : "is not asked for");
		return;
	}
	printf("# threads    Sq   Skv    H    D causal     GF/s  share\n");
	for (int i = 0; i < N; i++)
		work_make(&works[i], shapes[i]);
	for (int n = 1; n <= most_threads(); n++) {
		double peak = measure(works, N, set, n, rates);

		printf("%9d %36s %6.1f  1\n", n, set, peak / 1e9);
		for (int i = 0; i < N; i++)
			printf("%9d %5d %5d %4d %4d %6s %8.1f  %.3f\n", n, (int)shapes[i].Sq,
				(int)shapes[i].Skv, (int)shapes[i].Hq, (int)shapes[i].D,
				shapes[i].causal ? "yes" : "no", rates[i] / 1e9, rates[i] / peak);
	}
	for (int i = 0; i < N; i++)
		work_free(&works[i]);
}

/* `apart` is run only where it is named: it does not depend on CPATTN_CPU as the others do. */
static const struct {
	const char *name;
	void (*run)(void);
	bool apart;
} parts[] = {
	{"full", bench_full, false},
	{"causal", bench_causal, false},
	{"dtypes", bench_dtypes, false},
	{"decode", bench_decode, false},
	{"bf16", bench_bf16, true},
};

enum { NPARTS = sizeof parts / sizeof parts[0] };

static void run_part(const char *name)
{
	for (int i = 0; i < NPARTS; i++)
		if (!strcmp(parts[i].name, name)) {
			parts[i].run();
			return;
		}
	fprintf(stderr,
		"bench_kernels: no part \"%s\"; the parts are full, causal, dtypes, decode and "
		"bf16\n",
		name);
	exit(2);
}

int main(int argc, char **argv)
{
	struct cpa_error error;
	char kernels[800];

	must(cpa_device_create("cpu", &device, &error), &error);
	cpa_cpu_describe(kernels, sizeof kernels);
	printf("# %s\n", kernels);
	for (int i = 1; i < argc; i++)
		run_part(argv[i]);
	for (int i = 0; argc == 1 && i < NPARTS; i++)
		if (!parts[i].apart)
			parts[i].run();
	cpa_device_destroy(device);
	return 0;
}
