/*
 * test_ring.h - a ring of two written by hand, for tests that break it in one place at a time.
 */
#ifndef CPA_TEST_RING_H
#define CPA_TEST_RING_H

#include "sim/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum cpa_fake_mode modes[] = { CPA_FAKE_EAGER, CPA_FAKE_RENDEZVOUS };
static struct cpa_error error;

/* ---- a ring of two, by hand ---- */

enum { P = 2, S = 8, SHARD = S / P };
enum { SENDS = 1, RECVS = 2 };
enum { Q, K, V, K_WIRE, V_WIRE, K_SLOT, V_SLOT, O_SUM, LSE_SUM, O_BLOCK, LSE_BLOCK, O, LSE };
/* Its steps, which the builder numbers in this order. */
enum { PACK_K, PACK_V, EXCHANGE, ATTEND_OWN, ATTEND_SLOT, MERGE, FINISH_O, FINISH_LSE };

static const struct cpa_problem problem = {
	.B = 2,
	.Sq = S,
	.Skv = S,
	.Hq = 4,
	.Hkv = 2,
	.D = 3,
	.Dv = 5,
	.dtype = CPA_DTYPE_FP64,
	.scale = 0.6,
	.rule = { .causal = true, .offset = 5 },
	.lse = true,
};

static inline int64_t dim_of(enum cpa_tensor tensor)
{
	if (tensor == CPA_TENSOR_LSE)
		return 1;
	return tensor == CPA_TENSOR_Q || tensor == CPA_TENSOR_K ? problem.D : problem.Dv;
}

static inline int add_buffer(struct cpa_schedule *s, enum cpa_tensor tensor, enum cpa_role role)
{
	bool kv = tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V;
	struct cpa_buffer buffer = { "", role, tensor,
		role == CPA_ROLE_WORK ? CPA_LAYOUT_SBHD : CPA_LAYOUT_BSHD, CPA_DTYPE_FP64,
		SHARD, problem.B, kv ? problem.Hkv : problem.Hq, dim_of(tensor), 0 };

	return cpa_schedule_buffer(s, &buffer);
}

static inline void add_buffers(struct cpa_schedule *s)
{
	static const struct {
		enum cpa_tensor tensor;
		enum cpa_role role;
	} list[] = {
		[Q] = { CPA_TENSOR_Q, CPA_ROLE_INPUT },
		[K] = { CPA_TENSOR_K, CPA_ROLE_INPUT },
		[V] = { CPA_TENSOR_V, CPA_ROLE_INPUT },
		[K_WIRE] = { CPA_TENSOR_K, CPA_ROLE_WORK },
		[V_WIRE] = { CPA_TENSOR_V, CPA_ROLE_WORK },
		[K_SLOT] = { CPA_TENSOR_K, CPA_ROLE_WORK },
		[V_SLOT] = { CPA_TENSOR_V, CPA_ROLE_WORK },
		[O_SUM] = { CPA_TENSOR_O, CPA_ROLE_WORK },
		[LSE_SUM] = { CPA_TENSOR_LSE, CPA_ROLE_WORK },
		[O_BLOCK] = { CPA_TENSOR_O, CPA_ROLE_WORK },
		[LSE_BLOCK] = { CPA_TENSOR_LSE, CPA_ROLE_WORK },
		[O] = { CPA_TENSOR_O, CPA_ROLE_OUTPUT },
		[LSE] = { CPA_TENSOR_LSE, CPA_ROLE_OUTPUT },
	};

	for (size_t i = 0; i < sizeof list / sizeof *list; i++)
		assert_int_equal(add_buffer(s, list[i].tensor, list[i].role), i);
}

/* All of a buffer, holding the tokens of rank `owner`. */
static inline struct cpa_operand all_of(struct cpa_schedule *s, int buffer, int owner)
{
	const struct cpa_buffer *b = &s->buffers[buffer];
	struct cpa_operand operand = { cpa_box_all(s, buffer),
		{ .tensor = b->tensor,
			.batches = { 0, b->nbatches },
			.heads = { 0, b->nheads },
			.dtype = b->dtype } };

	cpa_spans_append_range(&s->arena, &operand.content.tokens,
		(struct cpa_range){ owner * SHARD, (owner + 1) * SHARD });
	return operand;
}

static inline void add_copy(struct cpa_schedule *s, int from, int to)
{
	struct cpa_operand read = all_of(s, from, s->rank), write = all_of(s, to, s->rank);

	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_COPY,
			.peer = -1,
			.nreads = 1,
			.reads = &read,
			.nwrites = 1,
			.writes = &write });
}

static inline void add_attend(struct cpa_schedule *s, int k, int v, int owner, int o, int lse)
{
	struct cpa_operand reads[3] = { all_of(s, Q, s->rank), all_of(s, k, owner),
		all_of(s, v, owner) };
	struct cpa_operand writes[2] = { all_of(s, o, s->rank), all_of(s, lse, s->rank) };

	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_ATTEND,
			.peer = -1,
			.nreads = 3,
			.reads = reads,
			.nwrites = 2,
			.writes = writes });
}

static inline void add_group(struct cpa_schedule *s, int what)
{
	int peer = 1 - s->rank;
	struct cpa_operand out[2] = { all_of(s, K_WIRE, s->rank), all_of(s, V_WIRE, s->rank) };
	struct cpa_operand in[2] = { all_of(s, K_SLOT, peer), all_of(s, V_SLOT, peer) };

	cpa_schedule_begin(s, CPA_QUEUE_COMM);
	if (what & SENDS)
		cpa_schedule_add(s,
			&(struct cpa_op){
				.kind = CPA_OP_SEND, .peer = peer, .nreads = 2, .reads = out });
	if (what & RECVS)
		cpa_schedule_add(s,
			&(struct cpa_op){ .kind = CPA_OP_RECV,
				.peer = peer,
				.nwrites = 2,
				.writes = in });
	cpa_schedule_end(s);
}

/* together: one group, else the send and then the recv, each on its own. */
static inline struct cpa_schedule *make_schedule(int rank, bool together)
{
	struct cpa_schedule *s = cpa_schedule_create(rank, P);
	struct cpa_operand sum[4], *block = sum + 2;

	assert_non_null(s);
	add_buffers(s);
	add_copy(s, K, K_WIRE);
	add_copy(s, V, V_WIRE);
	add_group(s, together ? SENDS | RECVS : SENDS);
	if (!together)
		add_group(s, RECVS);
	add_attend(s, K, V, rank, O_SUM, LSE_SUM);
	add_attend(s, K_SLOT, V_SLOT, 1 - rank, O_BLOCK, LSE_BLOCK);
	sum[0] = all_of(s, O_SUM, rank);
	sum[1] = all_of(s, LSE_SUM, rank);
	block[0] = all_of(s, O_BLOCK, rank);
	block[1] = all_of(s, LSE_BLOCK, rank);
	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_MERGE,
			.peer = -1,
			.nreads = 4,
			.reads = sum,
			.nwrites = 2,
			.writes = sum });
	add_copy(s, O_SUM, O);
	add_copy(s, LSE_SUM, LSE);
	assert_int_equal(cpa_schedule_finish(s, &error), CPA_OK);
	return s;
}

/* ---- running it ---- */

struct rig {
	struct cpa_device *device;
	struct cpa_fake_world *world;
	struct cpa_schedule *schedules[P];
	struct cpa_exec *execs[P];
};

static inline void put_inputs(struct cpa_exec *exec, int rank)
{
	static const char letter[] = { 'q', 'k', 'v' };

	for (int i = Q; i <= V; i++) {
		const struct cpa_buffer *b = &cpa_exec_schedule(exec)->buffers[i];
		double *at = cpa_exec_memory(exec, i);

		for (int64_t n = 0; n < b->nbatches; n++)
			for (int64_t t = 0; t < SHARD; t++)
				for (int64_t h = 0; h < b->nheads; h++)
					for (int64_t d = 0; d < b->dim; d++)
						*at++ = cpa_fill_value(CPA_FILL_NORMAL,
							&problem, 3, letter[i], n,
							rank * SHARD + t, h, d);
	}
}

static inline void make_execs(struct rig *rig, const struct cpa_exec_options *options)
{
	for (int r = 0; r < P; r++) {
		assert_int_equal(cpa_exec_create(rig->schedules[r], &problem, rig->device,
					 cpa_fake_world_comm(rig->world, r), options,
					 &rig->execs[r], &error),
			CPA_OK);
		put_inputs(rig->execs[r], r);
	}
}

static inline struct rig make_rig(const char *device, bool together)
{
	struct rig rig;

	assert_int_equal(cpa_device_create(device, &rig.device, &error), CPA_OK);
	assert_int_equal(
		cpa_fake_world_create(P, CPA_FAKE_EAGER, 0, &rig.world, &error), CPA_OK);
	for (int r = 0; r < P; r++)
		rig.schedules[r] = make_schedule(r, together);
	return rig;
}

static inline void free_rig(struct rig *rig)
{
	for (int r = 0; r < P; r++) {
		cpa_exec_destroy(rig->execs[r]);
		cpa_schedule_destroy(rig->schedules[r]);
	}
	assert_int_equal(rig->device->nbytes, 0);
	cpa_fake_world_destroy(rig->world);
	cpa_device_destroy(rig->device);
}

static inline enum cpa_status run(struct rig *rig, enum cpa_fake_mode mode, uint64_t seed)
{
	cpa_fake_world_reset(rig->world, mode, seed);
	for (int r = 0; r < P; r++)
		assert_int_equal(cpa_exec_reset(rig->execs[r], &error), CPA_OK);
	return cpa_fake_run(rig->world, rig->execs, &error);
}

/* The largest difference from full attention; infinity where there is a NaN. */
static inline double worst(const struct rig *rig)
{
	enum { H = 4, DV = 5, B = 2 };
	static double q[B * S * 4 * 3], k[B * S * 2 * 3], v[B * S * 2 * 5];
	static double o[B * S * H * DV], lse[B * S * H];
	double most = 0, *whole[] = { q, k, v };

	for (int i = Q; i <= V; i++)
		for (int r = 0; r < P; r++) {
			size_t each =
				(size_t)cpa_buffer_nbytes(&rig->schedules[r]->buffers[i]) / B;

			for (size_t b = 0; b < B; b++)
				memcpy((char *)whole[i] + (b * P + (size_t)r) * each,
					(char *)cpa_exec_memory(rig->execs[r], i) + b * each,
					each);
		}
	assert_int_equal(cpa_ref_attention(&problem, cpa_view_bshd(q, CPA_DTYPE_FP64, S, 4, 3),
				 cpa_view_bshd(k, CPA_DTYPE_FP64, S, 2, 3),
				 cpa_view_bshd(v, CPA_DTYPE_FP64, S, 2, 5), o, lse, &error),
		CPA_OK);
	for (int i = 0; i < B * S * H * (DV + 1); i++) {
		int row = i / (DV + 1), d = i % (DV + 1), token = row / H % S,
		    rank = token / SHARD;
		int local = (row / H / S * SHARD + token % SHARD) * H + row % H;
		const double *got = cpa_exec_memory(rig->execs[rank], d < DV ? O : LSE);
		double have = got[d < DV ? local * DV + d : local];
		double off = fabs(have - (d < DV ? o[row * DV + d] : lse[row]));

		most = isnan(off) ? INFINITY : fmax(most, off);
	}
	return most;
}

static inline void assert_says(const char *part)
{
	if (!strstr(error.text, part))
		fail_msg("\"%s\" does not say \"%s\"", error.text, part);
}

static const struct cpa_exec_options poisoned = { .poison = true };

/* What the contract promises of fp64 on such inputs. */
static const double tolerance = 1e-12;

/* Drops ops of one kind on rank 0. */
static inline bool drop(void *context, struct cpa_exec *exec, int op)
{
	const struct cpa_schedule *s = cpa_exec_schedule(exec);

	return s->rank != 0 || s->ops[op].kind != *(const enum cpa_op_kind *)context;
}

#endif
