/*
 * bench_copies.c - merges, copies and poison of the cpu device against what this machine copies,
 * printed; nothing is asserted.  `make bench-copies`.
 *
 * All that is compared is measured in this one run, interleaved, and the best of REPEATS counts:
 * others on the machine only ever make a call slower.  Each timing is of a millisecond or
 * more, after one call that is not timed, because streaming stores leave nothing in the caches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "harness/clock.h"
#include "harness/peak.h"
#include "kernels/kernels.h"
#include "sim/sim.h"

enum { REPEATS = 15, MAX_ITEMS = 48, D = 128, H = 24 };

/* Two arrays and room to merge: small ones fit in a cache of 1 MiB together. */
struct arena {
	const char *title;
	size_t nbytes; /* of an array */
	char *a, *b;
	float *lse_a, *lse_b; /* a number for each 512 bytes */
};

struct item {
	const char *name;
	void (*run)(const struct item *item);
	struct arena *arena;
	bool ours;
	int64_t row;        /* bytes of a row, of those that have some */
	double bytes;       /* read and written by a call */
	double least, aim;  /* of the ratio */
	double best;        /* bytes a second */
	enum cpa_dtype to, from;
};

/* Bytes a second, read and written. */
struct limits {
	double copy, stream;
};

static struct cpa_device *device;

static void must(enum cpa_status status, const struct cpa_error *error)
{
	if (status == CPA_OK)
		return;
	fprintf(stderr, "bench_copies: %s\n", error->text);
	exit(2);
}

static void *memory_of(size_t nbytes)
{
	void *memory;
	struct cpa_error error;

	must(device->ops->alloc(device, nbytes, &memory, &error), &error);
	memset(memory, 0, nbytes);
	return memory;
}

/* ---- what is measured ---- */

static void run_memcpy(const struct item *item)
{
	memcpy(item->arena->a, item->arena->b, item->arena->nbytes);
}

static void run_merge(const struct item *item)
{
	const struct arena *arena = item->arena;
	int64_t nrows = (int64_t)arena->nbytes / (D * 4);
	struct cpa_merge merge = {{arena->a, CPA_DTYPE_FP32, D, nrows * D, D},
		{arena->lse_a, CPA_DTYPE_FP32, 1, nrows, 1},
		{arena->b, CPA_DTYPE_FP32, D, nrows * D, D},
		{arena->lse_b, CPA_DTYPE_FP32, 1, nrows, 1}, nrows, 1, 1, D, NULL};
	struct cpa_error error;

	must(device->ops->merge(device, 0, &merge, &error), &error);
}

/* [S, H] to [H, S], or back. */
static void transpose(const struct item *item, bool back)
{
	const struct arena *arena = item->arena;
	int64_t dim = item->row / 2, S = (int64_t)arena->nbytes / item->row / H;
	struct cpa_array by_token = {NULL, CPA_DTYPE_BF16, H * dim, S * H * dim, dim};
	struct cpa_array by_head = {NULL, CPA_DTYPE_BF16, dim, S * H * dim, S * dim};
	struct cpa_copy copy = {
		back ? by_token : by_head, back ? by_head : by_token, S, 1, H, dim, 0};
	struct cpa_error error;

	copy.dst.data = arena->a;
	copy.src.data = arena->b;
	must(device->ops->copy(device, 0, &copy, &error), &error);
}

static void run_to_heads(const struct item *item)
{
	transpose(item, false);
}

static void run_to_tokens(const struct item *item)
{
	transpose(item, true);
}

static void run_convert(const struct item *item)
{
	const struct arena *arena = item->arena;
	int64_t n = (int64_t)arena->nbytes / 8;
	struct cpa_copy copy = {
		{arena->a, item->to, n, n, n}, {arena->b, item->from, n, n, n}, 1, 1, 1, n, 0};
	struct cpa_error error;

	must(device->ops->copy(device, 0, &copy, &error), &error);
}

static void run_memset(const struct item *item)
{
	memset(item->arena->a, 0xff, item->arena->nbytes);
}

static void run_poison(const struct item *item)
{
	struct cpa_error error;

	must(device->ops->poison(device, 0, item->arena->a, item->arena->nbytes, &error), &error);
}

/* ---- measuring ---- */

static void measure(struct item *items, int n, struct cpa_peak_space *space,
	struct limits *limits)
{
	const double least_seconds = 1e-3;

	for (int repeat = 0; repeat < REPEATS; repeat++) {
		limits->copy = fmax(limits->copy, cpa_peak_copy(space));
		limits->stream = fmax(limits->stream, cpa_peak_stream(space));
		for (int i = 0; i < n; i++) {
			struct item *item = &items[i];
			double start, seconds;
			int ncalls = 0;

			item->run(item);
			start = cpa_now();
			do {
				item->run(item);
				ncalls++;
				seconds = cpa_now() - start;
			} while (seconds < least_seconds);
			item->best = fmax(item->best, item->bytes * ncalls / seconds);
		}
	}
}

struct list {
	struct item at[MAX_ITEMS];
	int n;
};

static struct item *add(struct list *list, const char *name, void (*run)(const struct item *),
	struct arena *arena, bool ours, double bytes)
{
	struct item *item = &list->at[list->n++];

	if (list->n > MAX_ITEMS)
		abort();
	*item = (struct item){
		.name = name, .run = run, .arena = arena, .ours = ours, .bytes = bytes};
	return item;
}

static void add_moves(struct list *list, struct arena *arena)
{
	static const char *const names[2][2] = {
		{"[S,H] to [H,S], rows of 256 B", "[H,S] to [S,H], rows of 256 B"},
		{"[S,H] to [H,S], rows of 512 B", "[H,S] to [S,H], rows of 512 B"}};
	bool large = arena->nbytes > 1 << 20;
	double n = (double)arena->nbytes;
	struct item *item = add(list, "merge in place", run_merge, arena, true, 3 * n);

	item->least = large ? 0.7 : 1.0;
	item->aim = large ? 0.8 : 1.2;
	for (int i = 0; i < 4; i++) {
		int64_t row = i < 2 ? 256 : 512;
		double bytes = 2 * floor(n / (double)(row * H)) * (double)(row * H);

		item = add(list, names[i / 2][i % 2], i % 2 ? run_to_tokens : run_to_heads, arena,
			true, bytes);
		item->row = row;
		item->least = large ? 0.9 : 0.7;
		item->aim = large ? 1.1 : 0.8;
	}
	add(list, "poison", run_poison, arena, true, n);
}

static void add_conversions(struct list *list, struct arena *arena)
{
	static char names[4][4][32];

	for (int to = CPA_DTYPE_FP64; to <= CPA_DTYPE_FP16; to++)
		for (int from = CPA_DTYPE_FP64; from <= CPA_DTYPE_FP16; from++) {
			double size = (double)(cpa_dtype_nbytes((enum cpa_dtype)to) +
				cpa_dtype_nbytes((enum cpa_dtype)from));
			struct item *item;

			if (to == from)
				continue;
			snprintf(names[to][from], sizeof names[to][from], "%s to %s",
				cpa_dtype_name((enum cpa_dtype)from),
				cpa_dtype_name((enum cpa_dtype)to));
			item = add(list, names[to][from], run_convert, arena, true,
				(double)(arena->nbytes / 8) * size);
			item->to = (enum cpa_dtype)to;
			item->from = (enum cpa_dtype)from;
		}
}

/* What a line is compared with: the title says so. */
static double yardstick(const struct list *list, const struct item *item, bool large,
	const struct limits *limits)
{
	double by_memcpy = list->at[0].best, by_memset = list->at[1].best;

	if (!item->ours)
		return 0;
	if (item->run == run_poison)
		return by_memset;
	if (large)
		return limits->stream;
	return item->row > 0 ? by_memcpy : fmax(by_memcpy, limits->copy);
}

static void print_line(const char *name, double rate, double over)
{
	printf("  %-34s %7.1f", name, rate * 1e-9);
	if (over > 0)
		printf("  %5.2f", rate / over);
}

static void print(const struct list *list, bool large, const struct limits *limits)
{
	print_line("copy, the best of ordinary stores", limits->copy, 0);
	printf("\n");
	print_line("copy, streaming stores", limits->stream, 0);
	printf("\n");
	for (int i = 0; i < list->n; i++) {
		const struct item *item = &list->at[i];

		print_line(item->name, item->best, yardstick(list, item, large, limits));
		if (item->least > 0)
			printf("   at least %.1f, aim %.1f", item->least, item->aim);
		printf("\n");
	}
}

static void compare(struct arena *arena, int nthreads)
{
	struct list list = {.n = 0};
	struct limits limits = {0, 0};
	bool large = arena->nbytes > 1 << 20;
	double n = (double)arena->nbytes;
	struct cpa_peak_space *space =
		cpa_peak_space_create(arena->nbytes / (size_t)nthreads, nthreads);

	if (!space) {
		fprintf(stderr, "bench_copies: out of memory\n");
		exit(2);
	}
	add(&list, "memcpy", run_memcpy, arena, false, 2 * n);
	add(&list, "memset", run_memset, arena, false, n);
	add_moves(&list, arena);
	if (!large)
		add_conversions(&list, arena);
	measure(list.at, list.n, space, &limits);
	cpa_peak_space_destroy(space);
	printf("%s, %d thread%s\n  %-34s %7s  ratio to %s\n", arena->title, nthreads,
		nthreads > 1 ? "s" : "", "", "GB/s",
		large ? "the streaming copy (poison: to memset)"
		      : "the best copy (rows: to memcpy; poison: to memset)");
	print(&list, large, &limits);
}

static struct arena make_arena(const char *title, size_t nbytes)
{
	size_t nrows = nbytes / (D * 4);
	struct arena arena = {title, nbytes, memory_of(nbytes), memory_of(nbytes),
		memory_of(4 * nrows), memory_of(4 * nrows)};

	uint64_t state = 1;

	/* Not zeros: machines are faster with those. */
	for (size_t i = 0; i < nbytes / 4; i++) {
		((float *)arena.a)[i] = (float)(cpa_random(&state) >> 40) * 0x1p-23f - 1;
		((float *)arena.b)[i] = (float)(cpa_random(&state) >> 40) * 0x1p-23f - 1;
	}
	for (size_t i = 0; i < nrows; i++)
		arena.lse_b[i] = (float)(i % 7) - 3;
	return arena;
}

/* An argument: only whether the device can be had. */
int main(int argc, char **argv)
{
	struct cpa_error error;
	struct arena small, large;
	char kernels[800];
	int nthreads = 1;

	(void)argv;
	must(cpa_device_create("cpu", &device, &error), &error);
	if (argc > 1) {
		cpa_device_destroy(device);
		return 0;
	}
#ifdef _OPENMP
	nthreads = omp_get_max_threads();
	omp_set_num_threads(1);
#endif
	cpa_cpu_describe(kernels, sizeof kernels);
	printf("# %.*s\n", (int)strcspn(kernels, ";"), kernels);
	printf("# GB/s read and written (merge: 12 bytes a number of fp32); best of %d, "
	       "interleaved\n",
		REPEATS);
	small = make_arena("arrays of 240 KiB, in L2", 240 << 10);
	large = make_arena("arrays of 30 MiB", 30 << 20);
	compare(&small, 1);
	compare(&large, 1);
#ifdef _OPENMP
	omp_set_num_threads(nthreads);
#endif
	if (nthreads > 1)
		compare(&large, nthreads);
	for (int i = 0; i < 2; i++) {
		struct arena *arena = i ? &large : &small;

		device->ops->free(device, arena->a);
		device->ops->free(device, arena->b);
		device->ops->free(device, arena->lse_a);
		device->ops->free(device, arena->lse_b);
	}
	cpa_device_destroy(device);
	return 0;
}
