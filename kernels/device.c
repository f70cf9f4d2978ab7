/*
 * device.c - the list of devices.
 */
#include "kernels/host.h"

#include <assert.h>
#include <string.h>

static const struct {
	const char *name, *summary;
	enum cpa_status (*create)(struct cpa_device **, struct cpa_error *);
} devices[] = {
	{"ref", "textbook attention in fp64, whatever the dtype", cpa_ref_device_create},
	{"cpu", "blocked attention with an online softmax, in fp32 (fp64 for fp64)",
		cpa_cpu_device_create},
};

enum { NDEVICES = sizeof devices / sizeof devices[0] };

const char *cpa_device_name(int i)
{
	return i >= 0 && i < NDEVICES ? devices[i].name : NULL;
}

const char *cpa_device_summary(int i)
{
	return i >= 0 && i < NDEVICES ? devices[i].summary : NULL;
}

enum cpa_status cpa_device_create(
	const char *name, struct cpa_device **device, struct cpa_error *error)
{
	char list[256] = "";

	assert(name && device && error);
	for (int i = 0; i < NDEVICES; i++) {
		if (!strcmp(devices[i].name, name))
			return devices[i].create(device, error);
		strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
		strncat(list, devices[i].name, sizeof list - strlen(list) - 1);
	}
	return cpa_fail(error, CPA_INVALID, "there is no device \"%.64s\"; the devices are: %s",
		name, list);
}

void cpa_device_destroy(struct cpa_device *device)
{
	if (device)
		device->ops->destroy(device);
}
