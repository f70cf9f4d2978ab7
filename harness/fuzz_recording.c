/*
 * fuzz_recording.c - any bytes at all as a recording: opened, every call checked, and every tensor of a
 * call that passes read in whole and in stripes.  Nothing may crash, hang, leak or read out of bounds,
 * and what passes must be readable.
 */
#include "harness/recording.h"
#include "harness/recording_rules.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* HDF5 1.10 forgets half-read object headers of damaged files.  What we forget to close it remembers, so
 * that is checked when a file is closed. */
const char *__lsan_default_suppressions(void)
{
	return "leak:libhdf5";
}

static void read_tensor(struct cpa_recording *recording, int i, const char *name, int64_t B, int64_t S,
	int64_t row)
{
	const struct cpa_range batches = {0, B};
	struct cpa_span all = {0, S, S, 1}, odd = {S > 1, 1, 2, S > 1 ? S / 2 : 1};
	struct cpa_spans spans = {&all, 1, 1};
	struct cpa_error error;
	void *dst = malloc((size_t)(B * S * row) * sizeof(float));

	if (!dst)
		return;
	/* Chunks that overlap pass as well as others do, so a failure here is no finding; a crash is. */
	(void)cpa_recording_read(recording, i, name, batches, &spans, CPA_DTYPE_FP32, dst, &error);
	spans.at = &odd;
	(void)cpa_recording_read(recording, i, name, batches, &spans, CPA_DTYPE_BF16, dst, &error);
	free(dst);
}

/* Every element of the mask and of the lists is there, and is one that the format allows. */
static void read_rule(const struct cpa_problem *p)
{
	const struct cpa_mask *mask = &p->rule.mask;
	const int64_t n = mask->kind == CPA_MASK_NONE ? 0 : 1 +
		(p->B - 1) * mask->batch + (p->Hq - 1) * mask->head + (p->Sq - 1) * mask->query +
		(p->Skv - 1) * mask->key;

	for (int64_t i = 0; i < n; i++)
		assert(mask->kind == CPA_MASK_BOOL ? ((const uint8_t *)mask->data)[i] <= 1
						   : cpa_load(mask->dtype, mask->data, i) <= DBL_MAX);
	for (int64_t b = 0; p->rule.key_lengths && b < p->B; b++)
		assert(p->rule.key_lengths[b] >= 0 && p->rule.key_lengths[b] <= p->Skv);
	for (int64_t i = 0; p->rule.documents && i < p->rule.ndocuments; i++)
		assert(p->rule.documents[i] <= p->rule.documents[i + 1]);
	for (int64_t h = 0; p->rule.sink && h < p->Hq; h++)
		assert(p->rule.sink[h] <= DBL_MAX && p->rule.sink[h] >= -DBL_MAX);
}

static void read_call(struct cpa_recording *recording, int i)
{
	const struct cpa_call *call = NULL;
	struct cpa_error error = {""};
	const struct cpa_problem *p;

	if (cpa_recording_call(recording, i, &call, &error) != CPA_OK) {
		assert(error.text[0] != '\0' && !call);
		return;
	}
	p = &call->problem;
	assert(cpa_problem_check(p, &error) == CPA_OK);
	read_rule(p);
	read_tensor(recording, i, "q", p->B, p->Sq, p->Hq * p->D);
	read_tensor(recording, i, "k", p->B, p->Skv, p->Hkv * p->D);
	read_tensor(recording, i, "v", p->B, p->Skv, p->Hkv * p->Dv);
	if (call->has_o)
		read_tensor(recording, i, "o", p->B, p->Sq, p->Hq * p->Dv);
	if (call->has_lse)
		read_tensor(recording, i, "lse", p->B, p->Sq, p->Hq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cpa_recording_guard guard;
	static int nasked;
	struct cpa_recording *recording = NULL;
	struct cpa_error error = {""};

	/* A fresh child now and then: HDF5 may have hurt itself without dying of it. */
	if (++nasked % 500 == 0 && guard.child)
		cpa_recording_guard_stop(&guard);
	if (cpa_recording_open_image(data, size, &guard, &recording, &error) != CPA_OK) {
		assert(error.text[0] != '\0' && !recording);
		return 0;
	}
	for (int i = 0; i < cpa_recording_ncalls(recording); i++)
		read_call(recording, i);
	cpa_recording_close(recording);
	return 0;
}
