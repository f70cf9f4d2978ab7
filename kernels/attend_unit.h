/*
 * attend_unit.h - between attend.c, which cuts a call into units, and the kernels, which do one
 * unit each; not a public header.
 *
 * A unit is up to CPA_UNIT_ROWS query rows that share a key head: consecutive rows of the list
 * "all tokens of the first head, all tokens of the second, ...".  The kernel lays them side by
 * side in the lanes of vectors, so a group of heads over few tokens (decoding) fills lanes as
 * well as many tokens of one head.
 */
#ifndef CPA_ATTEND_UNIT_H
#define CPA_ATTEND_UNIT_H

#include "kernels/host.h"

#include <string.h>

enum {
	CPA_UNIT_ROWS = 256,
	CPA_PARALLEL_FROM = 1 << 20, /* multiplications of a call; fewer are for one thread */
	CPA_SPLIT_KEYS = 1024, /* at least, of a part of a unit's keys */
	CPA_KEY_BLOCK = 192, /* keys whose weights are added up apart; a multiple of every tile */
	CPA_MAX_SPLITS = 16,
	CPA_SHARED_PARTS = 16
};

/* One call. */
struct cpa_attend_call {
	const struct cpa_attend *attend;
	struct cpa_range *visible; /* [batches][nq] */
	int64_t *q_ids, *k_ids; /* [nq], [nk] global; only with a mask */
	bool copies_v; /* rows of v lie so that reading them in place is slow */
	bool streams_o; /* o is too large for the caches, and its rows are whole lines */
	size_t state_nbytes; /* from one state of a unit to the next */
	/* Only for kernels that share: */
	unsigned char *seen; /* [batches][nk] whether any row of the call sees the key */
	char *shared; /* [batches][key heads][shared_nbytes] */
	size_t shared_nbytes;
	struct cpa_range shared_kv; /* key heads of the arrays */
};

/* What units over a key head of the arrays share. */
CPA_INLINE char *cpa_attend_shared(const struct cpa_attend_call *call, int64_t b, int64_t kv)
{
	int64_t nkv = call->shared_kv.end - call->shared_kv.start;

	return call->shared + (size_t)(b * nkv + kv - call->shared_kv.start) * call->shared_nbytes;
}

struct cpa_attend_unit {
	const struct cpa_attend_call *call;
	int64_t b, kv; /* of the arrays */
	int64_t token,
		head; /* of row 0; then the tokens that follow, then those of the next head */
	int n; /* rows, 1..CPA_UNIT_ROWS */
	int nkv; /* key heads from kv on, n rows each; 1 but for types of several heads */
	int nsplits; /* parts that its keys are cut into; 1: none */
	double work; /* about how long it takes */
	const struct cpa_attend_unit *next; /* likely to be done next, or NULL */
	char *state; /* [nsplits] states of the kernel; NULL without splits */
};

CPA_INLINE int cpa_unit_nrows(const struct cpa_attend_unit *unit)
{
	return unit->n * unit->nkv;
}

/*
 * What the tokens of a unit see by interval, closed up: keys between, which none sees, are left
 * out.  They cost time, and may hold anything; a weight of 0 times NaN would be NaN.
 */
struct cpa_sight {
	struct cpa_range token[CPA_UNIT_ROWS]; /* counted in keys kept; start > end: none */
	struct cpa_range piece[CPA_UNIT_ROWS]; /* kept indices into k: ascending, with gaps */
	int npieces;
	int64_t nkeys;
};
void cpa_sight_find(const struct cpa_attend_unit *unit, struct cpa_sight *sight);

/* Row i of a unit: which token and head of the arrays. */
struct cpa_unit_row {
	int64_t t, h;
};
CPA_INLINE struct cpa_unit_row cpa_unit_row(const struct cpa_attend_unit *unit, int64_t i)
{
	int64_t nq = unit->call->attend->nq, t = unit->token + i;

	/* Divisions for every row would take as long as a tenth of a short product. */
	if (t < nq)
		return (struct cpa_unit_row){t, unit->head};
	return (struct cpa_unit_row){t % nq, unit->head + t / nq};
}

/* What row i sees. */
CPA_INLINE const struct cpa_range *cpa_unit_keys(
	const struct cpa_attend_unit *unit, const struct cpa_sight *sight, int64_t i)
{
	bool wraps = unit->token + cpa_unit_nrows(unit) >
		     unit->call->attend->nq; /* sight is of all tokens */

	return &sight->token[wraps ? cpa_unit_row(unit, i).t : i];
}

/* Rows of a unit that another kernel computed, filled up to a multiple of 16. */
struct cpa_attend_rows {
	const void *m, *l, *o; /* [row] maximum and sum, [row][step] */
	int64_t step; /* at least Dv, up to whole vectors */
};

CPA_INLINE size_t cpa_whole_lines(size_t nbytes)
{
	return (nbytes + CPA_HOST_ALIGN - 1) / CPA_HOST_ALIGN * CPA_HOST_ALIGN;
}

/* Where a pointer lies, and how many numbers it is to point to. */
struct cpa_part {
	void *pointer;
	int64_t n;
};

/* Lays parts, of numbers of `size` bytes, over memory in whole lines; NULL: only counts.  Returns the
 * bytes. */
CPA_INLINE size_t cpa_lay_parts(const struct cpa_part *parts, size_t n, size_t size, char *memory)
{
	size_t nbytes = 0;

	for (size_t i = 0; i < n; i++) {
		if (memory) {
			const char *at = memory + nbytes;

			memcpy(parts[i].pointer, &at, sizeof at);
		}
		nbytes += cpa_whole_lines((size_t)parts[i].n * size);
	}
	return nbytes;
}

/* One kernel.  Memory is aligned to CPA_HOST_ALIGN. */
struct cpa_attend_type {
	int lanes; /* rows that meet a key at a time; more rows should be a multiple */
	/* NULL, or whether so many rows of each key head are worth it, which else are left to the
	 * kernel of fp32. */
	bool (*suits)(const struct cpa_attend *attend, int64_t rows);
	/* What is better for few rows of each key head, if it takes the call. */
	const struct cpa_attend_type *few[2];
	/* Of such a type, whose units may have several key heads with so many rows together, those of
	 * a key head counting for `lanes` at least; NULL and 0 for others. */
	bool (*takes)(const struct cpa_attend *attend, int64_t rows);
	int together;
	double chain_key; /* additions of a row per key, see cpa_cpu_arithmetic() */
	/* Bytes of scratch for one thread, and of the state of one unit, with so many rows in all. */
	size_t (*space_nbytes)(const struct cpa_problem *problem, int nrows);
	size_t (*state_nbytes)(const struct cpa_problem *problem, int nrows);
	/* Keys of part `split`; what was found goes into state (NULL: into that of the space). */
	void (*attend)(const struct cpa_attend_unit *unit, int split, char *space, char *state);
	/* Joins the nsplits states of the unit (0: takes that of the space); writes o and lse. */
	void (*finish)(const struct cpa_attend_unit *unit, char *space, char *states);
	/* Instead of attend: makes a state of rows computed elsewhere.  NULL for some kernels. */
	void (*put)(const struct cpa_attend_unit *unit, char *space, char *state,
		const struct cpa_attend_rows *rows);
	/*
	 * NULL, or how to make, before any unit, what all units over a key head share: its bytes,
	 * parts 0..CPA_SHARED_PARTS-1 of it in any order and by any thread, then the end of it.
	 */
	size_t (*shared_nbytes)(const struct cpa_attend *attend);
	void (*share)(const struct cpa_attend_call *call, int64_t b, int64_t kv, int part);
	void (*share_end)(const struct cpa_attend_call *call, int64_t b, int64_t kv);
};
struct cpa_attend_kernels {
	/* By dtype of the problem; 16 bit may be widened to the kernel of fp32. */
	const struct cpa_attend_type *type[4];
	/* 2^(4 x), x <= 0, n of them in place (n a multiple of 16); for tests. */
	void (*exp2_fp32)(float *x, int64_t n);
	void (*exp2_fp64)(double *x, int64_t n);
};

/* The kernels of a set whose types are called f32_type and f64_type, and where 16 bit is
 * widened. */
#define CPA_ATTEND_TYPES                                                                         \
	{                                                                                        \
		[CPA_DTYPE_FP64] = &f64_type, [CPA_DTYPE_FP32] = &f32_type,                      \
		[CPA_DTYPE_BF16] = &f32_type, [CPA_DTYPE_FP16] = &f32_type                       \
	}

extern const struct cpa_attend_kernels cpa_attend_generic, cpa_attend_generic_v3,
	cpa_attend_generic_v4, cpa_attend_avx2, cpa_attend_avx512, cpa_attend_avx512_bf16,
	cpa_attend_amx, cpa_attend_amx_software;
extern const struct cpa_attend_type cpa_attend_avx512_pairs, cpa_attend_amx_bf16,
	cpa_attend_amx_software_bf16;

/* Blocks of CPA_KEY_BLOCK keys, the last of which may have fewer. */
CPA_INLINE int64_t cpa_range_nblocks(struct cpa_range keys)
{
	return (keys.end - keys.start + CPA_KEY_BLOCK - 1) / CPA_KEY_BLOCK;
}

/* Part `split` of the keys that a unit sees, in blocks that end where pieces do, so that each is in one
 * place: keys of the arrays, the first of which is kept key `start`. */
void cpa_unit_blocks(const struct cpa_attend_unit *unit, const struct cpa_sight *sight, int split,
	void (*block)(void *context, struct cpa_range keys, int64_t start), void *context);

/* type, or where the call has few rows to a key head, the type for them. */
const struct cpa_attend_type *cpa_attend_few_type(
	const struct cpa_attend_type *type, const struct cpa_attend *attend);
/* The units of a call for such a type; NULL: only counts.  Returns how many; nrows is the rows of
 * the largest. */
int64_t cpa_attend_cut_few(const struct cpa_attend_call *call, const struct cpa_attend_type *type,
	struct cpa_attend_unit *units, int *nrows);

/* Makes what units share, if the kernel wants that; the caller frees seen and shared of the call
 * in any case.  CPA_NO_MEMORY. */
enum cpa_status cpa_attend_share(struct cpa_attend_call *call, const struct cpa_attend_type *type,
	int nthreads, struct cpa_error *error);

#endif
