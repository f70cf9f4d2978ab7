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
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/cpu.h"
#include "kernels/host.h"
#include "kernels/move.h"
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
	const char *isa;    /* NULL: not ours */
	int64_t row;        /* bytes of a row, of those that have some */
	double bytes;       /* read and written by a call */
	double least, aim;  /* of the ratio */
	double best;        /* bytes a second */
	enum cpa_dtype to, from;
};

static struct cpa_device *device;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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

/* Whole arrays, threads sharing them where there is more than one. */
static void copy_whole(const struct item *item, bool stream)
{
	enum { PARTS = 16 };
	size_t part = item->arena->nbytes / PARTS;

	CPA_OMP(omp parallel for schedule(static) if (item->arena->nbytes > (1 << 20)))
	for (int i = 0; i < PARTS; i++) {
		struct cpa_move_rows rows = {item->arena->a + (size_t)i * part,
			item->arena->b + (size_t)i * part, 0, 0, 1, part, NULL};

		cpa_move()->copy(&rows, stream);
		cpa_move()->fence();
	}
}

static void run_loop(const struct item *item)
{
	copy_whole(item, false);
}

static void run_stream(const struct item *item)
{
	copy_whole(item, true);
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

static void measure(struct item *items, int n)
{
	const double least_seconds = 1e-3;
	struct cpa_error error;

	for (int repeat = 0; repeat < REPEATS; repeat++)
		for (int i = 0; i < n; i++) {
			struct item *item = &items[i];
			double start, seconds;
			int ncalls = 0;

			must(cpa_cpu_select(item->isa, &error), &error);
			item->run(item);
			start = now();
			do {
				item->run(item);
				ncalls++;
				seconds = now() - start;
			} while (seconds < least_seconds);
			if (item->best < item->bytes * ncalls / seconds)
				item->best = item->bytes * ncalls / seconds;
		}
	must(cpa_cpu_select(NULL, &error), &error);
}

struct list {
	struct item at[MAX_ITEMS];
	int n;
};

static struct item *add(struct list *list, const char *name, void (*run)(const struct item *),
	struct arena *arena, const char *isa, double bytes)
{
	struct item *item = &list->at[list->n++];

	if (list->n > MAX_ITEMS)
		abort();
	*item = (struct item){
		.name = name, .run = run, .arena = arena, .isa = isa, .bytes = bytes};
	return item;
}

static void add_target(struct item *item, bool gated, double least, double aim)
{
	item->least = gated ? least : 0;
	item->aim = aim;
}

/* The largest rate of the items that are not ours; those of row > 0 only if such are asked. */
static double yardstick(const struct list *list, bool streaming, bool setting)
{
	double best = 0;

	for (int i = 0; i < list->n; i++) {
		const struct item *item = &list->at[i];
		bool stream = item->run == run_stream, set = item->run == run_memset;

		if (item->isa || set != setting || (streaming && !stream))
			continue;
		best = item->best > best ? item->best : best;
	}
	return best;
}

static void print(const struct list *list, bool large)
{
	double best_memcpy = list->at[0].best;

	for (int i = 0; i < list->n; i++) {
		const struct item *item = &list->at[i];
		bool set = item->run == run_poison, row = item->row > 0;
		double over = !item->isa ? 0
			: set            ? yardstick(list, false, true)
			: large          ? yardstick(list, true, false)
			: row            ? best_memcpy
					 : yardstick(list, false, false);

		printf("  %-34s %-8s %7.1f", item->name, item->isa ? item->isa : "",
			item->best * 1e-9);
		if (over > 0)
			printf("  %5.2f", item->best / over);
		if (item->isa && item->least > 0)
			printf("   at least %.1f, aim %.1f", item->least, item->aim);
		printf("\n");
	}
}

/* Ours with one instruction set; targets are for the one that is picked. */
static void add_set(struct list *list, struct arena *arena, const char *isa, bool picked)
{
	static const char *const names[2][2] = {
		{"[S,H] to [H,S], rows of 256 B", "[H,S] to [S,H], rows of 256 B"},
		{"[S,H] to [H,S], rows of 512 B", "[H,S] to [S,H], rows of 512 B"}};
	bool large = arena->nbytes > 1 << 20;
	double n = (double)arena->nbytes;

	add_target(add(list, "merge in place", run_merge, arena, isa, 3 * n), picked,
		large ? 0.7 : 1.0, large ? 0.8 : 1.2);
	for (int i = 0; i < 4; i++) {
		int64_t row = i < 2 ? 256 : 512;
		double bytes = 2 * floor(n / (double)(row * H)) * (double)(row * H);
		struct item *item = add(list, names[i / 2][i % 2],
			i % 2 ? run_to_tokens : run_to_heads, arena, isa, bytes);

		item->row = row;
		add_target(item, picked, large ? 0.9 : 0.7, large ? 1.1 : 0.8);
	}
	add(list, "poison", run_poison, arena, isa, n);
}

static void add_conversions(struct list *list, struct arena *arena, const char *isa)
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
			item = add(list, names[to][from], run_convert, arena, isa,
				(double)(arena->nbytes / 8) * size);
			item->to = (enum cpa_dtype)to;
			item->from = (enum cpa_dtype)from;
		}
}

static void compare(struct arena *arena, int nthreads)
{
	struct list list = {.n = 0};
	bool large = arena->nbytes > 1 << 20;
	double n = (double)arena->nbytes;
	const char *picked = cpa_cpu_kernels()->name;

	add(&list, "memcpy", run_memcpy, arena, NULL, 2 * n);
	add(&list, "copy, vector loop", run_loop, arena, NULL, 2 * n);
	add(&list, "copy, streaming stores", run_stream, arena, NULL, 2 * n);
	add(&list, "memset", run_memset, arena, NULL, n);
	for (int set = 0; set < CPA_NCPUS; set++) {
		const char *isa = cpa_cpu_name((enum cpa_cpu)set);
		bool here = !strcmp(isa, picked);

		if (!cpa_cpu_lacks((enum cpa_cpu)set) && (here || nthreads == 1))
			add_set(&list, arena, isa, here);
	}
	if (!large)
		add_conversions(&list, arena, picked);
	measure(list.at, list.n);
	printf("%s, %d thread%s\n", arena->title, nthreads, nthreads > 1 ? "s" : "");
	printf("  %-34s %-8s %7s  ratio to %s\n", "", "set", "GB/s",
		large ? "the streaming copy (poison: to memset)"
		      : "the best copy (rows: to memcpy; poison: to memset)");
	print(&list, large);
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

int main(void)
{
	struct cpa_error error;
	struct arena small, large;
	int nthreads = 1;

	must(cpa_device_create("cpu", &device, &error), &error);
#ifdef _OPENMP
	nthreads = omp_get_max_threads();
	omp_set_num_threads(1);
#endif
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
