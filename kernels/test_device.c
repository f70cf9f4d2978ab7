/*
 * test_device.c - the list of devices, memory, transfers, events and what devices declare.
 */
#include "kernels/host.h"
#include "kernels/test_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct cpa_device *make(const char *name)
{
	struct cpa_device *device = NULL;
	struct cpa_error error;

	assert_int_equal(cpa_device_create(name, &device, &error), CPA_OK);
	assert_string_equal(device->ops->name, name);
	return device;
}

static void every_listed_device_can_be_made(void **state)
{
	int n = 0;

	(void)state;
	for (; cpa_device_name(n); n++) {
		assert_non_null(cpa_device_summary(n));
		cpa_device_destroy(make(cpa_device_name(n)));
	}
	assert_int_equal(n, 2);
	assert_null(cpa_device_name(-1));
	assert_null(cpa_device_summary(n));
	cpa_device_destroy(NULL);
}

static void an_unknown_device_is_refused_with_the_list(void **state)
{
	struct cpa_device *device = NULL;
	struct cpa_error error;

	(void)state;
	assert_int_equal(cpa_device_create("gpu", &device, &error), CPA_INVALID);
	assert_null(device);
	assert_string_equal(
		error.text, "there is no device \"gpu\"; the devices are: ref, cpu");
	assert_int_equal(cpa_device_create("", &device, &error), CPA_INVALID);
	assert_int_equal(cpa_device_create("CPU", &device, &error), CPA_INVALID);
}

static void scratch_is_not_counted_nor_given_twice_at_once(void **state)
{
	struct cpa_device *device = make("cpu");
	char *a = cpa_host_borrow(device, 1000), *b = cpa_host_borrow(device, 1000), *c;

	(void)state;
	assert_non_null(a);
	assert_non_null(b);
	assert_true(a + 1000 <= b || b + 1000 <= a);
	assert_int_equal((uintptr_t)a % CPA_HOST_ALIGN, 0);
	memset(a, 1, 1000);
	memset(b, 2, 1000);
	assert_int_equal(a[999], 1);
	cpa_host_return(device, a);
	cpa_host_return(device, b);
	c = cpa_host_borrow(device, 5000);
	assert_non_null(c);
	memset(c, 3, 5000);
	cpa_host_return(device, c);
	assert_int_equal(device->nbytes, 0);
	assert_int_equal(device->peak, 0);
	assert_null(cpa_host_borrow(device, SIZE_MAX - 8));
	cpa_device_destroy(device);
}

#ifndef __SANITIZE_ADDRESS__
static void scratch_given_back_is_used_again(void **state)
{
	struct cpa_device *device = make("cpu");
	void *a = cpa_host_borrow(device, 1 << 20), *b;

	(void)state;
	cpa_host_return(device, a);
	b = cpa_host_borrow(device, 1 << 10);
	assert_ptr_equal(a, b);
	cpa_host_return(device, b);
	cpa_device_destroy(device);
}
#endif

static void bytes_are_counted_exactly(void **state)
{
	struct cpa_device *device = make("cpu");
	struct cpa_error error;
	void *a, *b, *c;

	(void)state;
	assert_int_equal(device->ops->alloc(device, 13, &a, &error), CPA_OK);
	assert_int_equal(device->ops->alloc(device, 1000, &b, &error), CPA_OK);
	assert_int_equal(device->nbytes, 1013);
	device->ops->free(device, a);
	device->ops->free(device, NULL);
	assert_int_equal(device->nbytes, 1000);
	assert_int_equal(device->peak, 1013);
	assert_int_equal(device->ops->alloc(device, 0, &c, &error), CPA_OK);
	assert_non_null(c);
	assert_int_equal((uintptr_t)b % 64, 0);
	assert_int_equal((uintptr_t)c % 64, 0);
	memset(b, 1, 1000);
	device->ops->free(device, b);
	device->ops->free(device, c);
	assert_int_equal(device->nbytes, 0);
	assert_int_equal(device->peak, 1013);
	cpa_device_destroy(device);
}

/* Gives one block at a time, and nothing above 1000 bytes. */
struct store {
	_Alignas(64) char block[1000];
	bool out;
};

static void *take(void *context, size_t nbytes)
{
	struct store *store = context;

	if (store->out || nbytes > sizeof store->block)
		return NULL;
	store->out = true;
	return store->block;
}

static void give(void *context, void *memory)
{
	struct store *store = context;

	assert_ptr_equal(memory, store->block);
	assert_true(store->out);
	store->out = false;
}

static bool holds(const struct store *store, const void *memory)
{
	return (uintptr_t)memory - (uintptr_t)store->block < sizeof store->block;
}

static void memory_may_be_of_others_and_goes_back_to_them(void **state)
{
	static struct store store;
	const struct cpa_host_memory memory = {take, give, &store};
	struct cpa_device *device = make("cpu");
	struct cpa_error error;
	void *a, *b, *c;

	(void)state;
	device->memory = &memory;
	assert_int_equal(device->ops->alloc(device, 500, &a, &error), CPA_OK);
	assert_int_equal(device->ops->alloc(device, 200, &b, &error), CPA_OK);
	device->memory = NULL;
	assert_true(holds(&store, a) && (uintptr_t)a % 64 == 0);
	assert_false(holds(&store, b));
	assert_int_equal(device->nbytes, 700);
	memset(a, 1, 500);
	device->ops->free(device, a);
	device->ops->free(device, b);
	assert_false(store.out);
	device->memory = &memory;
	assert_int_equal(device->ops->alloc(device, 1001, &c, &error), CPA_OK);
	assert_false(store.out);
	assert_int_equal(
		device->ops->alloc(device, SIZE_MAX - 10, &b, &error), CPA_NO_MEMORY);
	device->ops->free(device, c);
	assert_int_equal(device->nbytes, 0);
	cpa_device_destroy(device);
}

#ifdef __linux__
/* Whether the pages at `memory` may be large: flag hg of the mapping in /proc/self/smaps. */
static bool asks_for_large_pages(const void *memory)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	bool within = false, asks = false;
	uintptr_t from, to;
	char line[512];

	assert_non_null(file);
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
			within = (uintptr_t)memory >= from && (uintptr_t)memory < to;
		if (within && !strncmp(line, "VmFlags:", 8))
			asks = strstr(line, " hg") != NULL;
	}
	fclose(file);
	return asks;
}

static void much_memory_comes_in_large_pages_that_end_with_it(void **state)
{
	enum { MIB = 1 << 20 };
	struct cpa_device *device = make("cpu");
	struct cpa_error error;
	char *memory;

	(void)state;
	if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK))
		skip(); /* a kernel without */
	assert_int_equal(
		device->ops->alloc(device, 19 * MIB, (void **)&memory, &error), CPA_OK);
	assert_int_equal(device->nbytes, 19 * MIB);
	assert_int_equal((uintptr_t)memory % 64, 0);
	assert_true(asks_for_large_pages(memory));
	assert_true(asks_for_large_pages(memory + 17 * MIB));
	assert_false(asks_for_large_pages(memory + 19 * MIB - 1));
	memset(memory, 1, 19 * MIB);
	device->ops->free(device, memory);
	cpa_device_destroy(device);
}
#endif

/* At any alignment, around a line and in many lines, in the caches and past them. */
static void bytes_are_copied_as_they_are_and_no_more(void **state)
{
	static const size_t lengths[] = {0, 1, 63, 64, 65, 1000, 40000};
	static char from[40200], to[40200];

	(void)state;
	for (size_t i = 0; i < sizeof from; i++)
		from[i] = (char)(i * 7 % 251);
	for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
		for (size_t shift = 0; shift < 3 * 65; shift += 13) {
			size_t length = lengths[n], at = shift % 65;

			memset(to, -1, sizeof to);
			cpa_copy_bytes(to + 1 + at, from + shift / 3, length,
				shift % 2 ? (size_t)1 << 40 : length);
			assert_memory_equal(to + 1 + at, from + shift / 3, length);
			assert_int_equal(to[at], -1);
			assert_int_equal(to[1 + at + length], -1);
		}
}

static void memory_that_cannot_be_had_is_reported(void **state)
{
	struct cpa_device *device = make("ref");
	struct cpa_error error;
	void *memory = &error;

	(void)state;
	assert_int_equal(
		device->ops->alloc(device, SIZE_MAX - 10, &memory, &error), CPA_NO_MEMORY);
	assert_ptr_equal(memory, &error);
	assert_non_null(strstr(error.text, "device ref"));
	assert_int_equal(device->nbytes, 0);
	assert_int_equal(device->peak, 0);
	cpa_device_destroy(device);
}

static void what_was_uploaded_is_downloaded(void **state)
{
	struct cpa_device *device = make("cpu");
	const char in[] = "thirteen bytes";
	char out[sizeof in] = "";
	struct cpa_error error;
	void *memory;

	(void)state;
	assert_int_equal(device->ops->alloc(device, sizeof in, &memory, &error), CPA_OK);
	assert_int_equal(device->ops->upload(device, memory, in, sizeof in, &error), CPA_OK);
	assert_int_equal(device->ops->download(device, out, memory, sizeof in, &error), CPA_OK);
	assert_string_equal(out, in);
	assert_int_equal(device->ops->upload(device, memory, NULL, 0, &error), CPA_OK);
	device->ops->free(device, memory);
	cpa_device_destroy(device);
}

static void poison_is_not_a_number_in_any_dtype(void **state)
{
	struct cpa_device *device = make("cpu");
	uint64_t memory[3] = {0, 0, 0};
	struct cpa_error error;

	(void)state;
	assert_int_equal(device->ops->poison(device, 0, memory, 16, &error), CPA_OK);
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		assert_true(isnan(cpa_load((enum cpa_dtype)dtype, memory, 1)));
	assert_int_equal(memory[2], 0);
	assert_int_equal(device->ops->poison(device, 0, NULL, 0, &error), CPA_OK);
	cpa_device_destroy(device);
}

static void events_are_done_when_recorded(void **state)
{
	struct cpa_device *device = make("ref");
	struct cpa_device_event *event = NULL;
	struct cpa_error error;

	(void)state;
	assert_int_equal(device->ops->event_record(device, 0, &event, &error), CPA_OK);
	assert_non_null(event);
	assert_true(device->ops->event_done(device, event));
	assert_int_equal(device->ops->event_wait(device, 1, event, &error), CPA_OK);
	device->ops->event_free(device, event);
	device->ops->event_free(device, NULL);
	cpa_device_destroy(device);
}

static void devices_declare_what_they_compute_in(void **state)
{
	struct cpa_device *ref = make("ref"), *cpu = make("cpu");
	struct cpa_problem problem = {
		1, 8, 8, 2, 1, 4, 4, CPA_DTYPE_FP64, 1, {.causal = false}, .lse = true};
	struct cpa_error error;

	(void)state;
	assert_true(ref->fp64_partials);
	assert_false(cpu->fp64_partials);
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		bool wide = dtype == CPA_DTYPE_FP64, half = dtype > CPA_DTYPE_FP32;

		problem.dtype = (enum cpa_dtype)dtype;
		assert_int_equal(ref->ops->supports(ref, &problem, &error), CPA_OK);
		assert_int_equal(cpu->ops->supports(cpu, &problem, &error), CPA_OK);
		assert_true(ref->arithmetic(&problem).u == 0x1p-53);
		assert_false(ref->arithmetic(&problem).rounds_p);
		assert_true(cpu->arithmetic(&problem).u == (wide ? 0x1p-53 : 0x1p-24));
		assert_true(cpu->arithmetic(&problem).rounds_p == half);
	}
	cpa_device_destroy(ref);
	cpa_device_destroy(cpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_listed_device_can_be_made),
		cmocka_unit_test(an_unknown_device_is_refused_with_the_list),
		cmocka_unit_test(scratch_is_not_counted_nor_given_twice_at_once),
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(scratch_given_back_is_used_again),
#endif
		cmocka_unit_test(bytes_are_counted_exactly),
#ifdef __linux__
		cmocka_unit_test(much_memory_comes_in_large_pages_that_end_with_it),
#endif
		cmocka_unit_test(memory_may_be_of_others_and_goes_back_to_them),
		cmocka_unit_test(bytes_are_copied_as_they_are_and_no_more),
		cmocka_unit_test(memory_that_cannot_be_had_is_reported),
		cmocka_unit_test(what_was_uploaded_is_downloaded),
		cmocka_unit_test(poison_is_not_a_number_in_any_dtype),
		cmocka_unit_test(events_are_done_when_recorded),
		cmocka_unit_test(devices_declare_what_they_compute_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
