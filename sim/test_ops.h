/*
 * test_ops.h - schedules of a few ops on the ref device, some functions of which a test may replace.
 */
#ifndef CPA_TEST_OPS_H
#define CPA_TEST_OPS_H

#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct cpa_problem problem = { .B = 2,
	.Sq = 6,
	.Skv = 6,
	.Hq = 3,
	.Hkv = 3,
	.D = 2,
	.Dv = 2,
	.dtype = CPA_DTYPE_FP64,
	.scale = 1 };
static struct cpa_error error;

enum { FROM, TO, THERE, LAST };

/* The device under test: the ref device with some functions replaced. */
struct rig {
	struct cpa_device *device;
	struct cpa_device_ops ops;
	const struct cpa_device_ops *kept;
	struct cpa_fake_world *world;
	struct cpa_schedule *schedules[2];
	struct cpa_exec *execs[2];
	int W;
};

static inline struct rig make_rig(int W)
{
	struct rig rig = { .W = W };

	assert_int_equal(cpa_device_create("ref", &rig.device, &error), CPA_OK);
	rig.kept = rig.device->ops;
	rig.ops = *rig.kept;
	assert_int_equal(
		cpa_fake_world_create(W, CPA_FAKE_EAGER, 0, &rig.world, &error), CPA_OK);
	for (int r = 0; r < W; r++)
		assert_non_null(rig.schedules[r] = cpa_schedule_create(r, W));
	return rig;
}

static inline void free_rig(struct rig *rig)
{
	for (int r = 0; r < rig->W; r++) {
		cpa_exec_destroy(rig->execs[r]);
		cpa_schedule_destroy(rig->schedules[r]);
	}
	cpa_fake_world_destroy(rig->world);
	rig->device->ops = rig->kept;
	cpa_device_destroy(rig->device);
}

static inline void make_execs(struct rig *rig, const struct cpa_exec_options *options)
{
	for (int r = 0; r < rig->W; r++) {
		assert_int_equal(cpa_schedule_finish(rig->schedules[r], &error), CPA_OK);
		assert_int_equal(cpa_exec_create(rig->schedules[r], &problem, rig->device,
					 cpa_fake_world_comm(rig->world, r), options,
					 &rig->execs[r], &error),
			CPA_OK);
	}
}

static inline void add_buffer(struct cpa_schedule *s, enum cpa_role role, enum cpa_layout layout,
	enum cpa_dtype dtype, int64_t ntokens, enum cpa_tensor tensor)
{
	struct cpa_buffer buffer = { "", role, tensor, layout, dtype, ntokens, 2, 3,
		tensor == CPA_TENSOR_LSE ? 1 : 2, 0 };

	cpa_schedule_buffer(s, &buffer);
}

#endif
