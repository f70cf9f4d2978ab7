/*
 * cpu_device.c - device "cpu": the blocked kernel on host memory.
 */
#include "kernels/cpu.h"
#include "kernels/host.h"

static const struct cpa_device_ops ops = {
	.name = "cpu",
	.alloc = cpa_host_alloc,
	.free = cpa_host_free,
	.upload = cpa_host_transfer,
	.download = cpa_host_transfer,
	.supports = cpa_host_supports,
	.copy = cpa_host_copy,
	.attend = cpa_cpu_attend,
	.merge = cpa_host_merge,
	.poison = cpa_host_poison,
	.event_record = cpa_host_event_record,
	.event_wait = cpa_host_event_wait,
	.event_done = cpa_host_event_done,
	.event_free = cpa_host_event_free,
	.destroy = cpa_host_destroy,
};

enum cpa_status cpa_cpu_device_create(struct cpa_device **device, struct cpa_error *error)
{
	enum cpa_status status = cpa_cpu_check(error);

	if (status)
		return status;
	return cpa_host_create(&ops, cpa_cpu_arithmetic, false, device, error);
}
