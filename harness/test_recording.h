/*
 * test_recording.h - what the tests of recordings share: where the data lie, opening what must open, and
 * the table of shipped files.
 */
#ifndef CPA_TEST_RECORDING_H
#define CPA_TEST_RECORDING_H

#include "harness/recording.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *data_path(const char *name)
{
	static char path[4][1024];
	static int turn;
	const char *root = getenv("CPATTN_DATA");

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof path[turn], "%s/recordings/%s", root ? root : "data", name);
	return path[turn];
}

static inline struct cpa_recording *open_good(const char *name)
{
	struct cpa_recording *recording = NULL;
	struct cpa_error error = {""};

	if (cpa_recording_open(data_path(name), &recording, &error) != CPA_OK)
		fail_msg("%s: %s", name, error.text);
	return recording;
}

static inline const struct cpa_call *good_call(struct cpa_recording *recording, int i)
{
	const struct cpa_call *call = NULL;
	struct cpa_error error = {""};

	if (cpa_recording_call(recording, i, &call, &error) != CPA_OK)
		fail_msg("%s: %s", cpa_recording_call_name(recording, i), error.text);
	return call;
}

static const int64_t minilm_lengths_0[] = {256, 98, 17}, minilm_lengths_1[] = {17, 52, 98};
static const int64_t bert_lengths[] = {37, 0, 1}, qwen3_documents[] = {0, 129, 130, 188, 388, 390};

/* The table of data/README.md. */
static const struct known {
	const char *file;
	int i;
	const char *name;
	int64_t B, Sq, Skv, Hq, Hkv, D, Dv;
	enum cpa_dtype dtype;
	bool causal;
	int64_t offset;
	bool window;
	int64_t left, right;
	const int64_t *key_lengths, *documents; /* documents end with Sq */
	enum cpa_mask_kind mask;
	int64_t mask_shape[4];
} known[] = {
	{"minilm.h5", 0, "00_layer0", 3, 256, 256, 3, 3, 32, 32, CPA_DTYPE_FP32, false, 0,
		.key_lengths = minilm_lengths_0},
	{"minilm.h5", 1, "01_layer5", 3, 98, 98, 4, 4, 32, 32, CPA_DTYPE_FP32, false, 0,
		.key_lengths = minilm_lengths_1},
	{"minilm_bhsd_f16_boolmask.h5", 0, "00_layer2", 3, 98, 98, 2, 2, 32, 32, CPA_DTYPE_FP16, false, 0,
		.mask = CPA_MASK_BOOL, .mask_shape = {3, 1, 1, 98}},
	{"smollm2_causal.h5", 0, "00_layer1", 1, 211, 211, 6, 2, 64, 64, CPA_DTYPE_FP32, .causal = true, .offset = 0},
	{"smollm2_causal.h5", 1, "01_layer18", 1, 211, 211, 3, 1, 64, 64, CPA_DTYPE_FP32, .causal = true, .offset = 0},
	{"smollm2_bf16.h5", 0, "00_layer24", 1, 199, 199, 9, 3, 64, 64, CPA_DTYPE_BF16, .causal = true, .offset = 0},
	{"smollm2_chunk_prefill.h5", 0, "00_layer11", 1, 37, 131, 3, 1, 64, 64, CPA_DTYPE_FP32, .causal = true, .offset = 94},
	{"smollm2_empty_rows.h5", 0, "00_layer8", 2, 83, 83, 3, 1, 64, 64, CPA_DTYPE_FP32, false, 0,
		.mask = CPA_MASK_BOOL, .mask_shape = {2, 1, 83, 83}},
	{"smollm2_extreme_scores.h5", 0, "00_layer13", 1, 97, 97, 3, 1, 64, 64, CPA_DTYPE_FP32, .causal = true, .offset = 0},
	{"ocr_vision_d15.h5", 0, "00_block1", 1, 187, 187, 8, 8, 15, 15, CPA_DTYPE_FP32, .causal = false, .offset = 0},
	{"flux_512x512_bf16.h5", 0, "00_double0", 1, 1536, 1536, 4, 4, 128, 128, CPA_DTYPE_BF16, .causal = false, .offset = 0},
	{"flux_240x208_f32.h5", 0, "00_single0", 1, 451, 451, 3, 3, 128, 128, CPA_DTYPE_FP32, .causal = false, .offset = 0},
	{"qwen3_gqa_515.h5", 0, "00_layer1", 1, 515, 515, 8, 2, 64, 64, CPA_DTYPE_FP32, .causal = true, .offset = 0},
	{"qwen3_documents.h5", 0, "00_layer1", 1, 390, 390, 4, 1, 64, 64, CPA_DTYPE_FP32, true, 0,
		.documents = qwen3_documents},
	{"qwen3_f64_contiguous.h5", 0, "00_layer0", 1, 41, 41, 6, 3, 16, 16, CPA_DTYPE_FP64, .causal = true, .offset = 0},
	{"qwen3_f64_contiguous.h5", 1, "01_layer1", 1, 41, 41, 6, 3, 16, 16, CPA_DTYPE_FP64, .causal = true, .offset = 0},
	{"mistral_window.h5", 0, "00_causal48", 1, 131, 131, 6, 2, 32, 32, CPA_DTYPE_FP32, true, 0,
		.window = true, .left = 47, .right = -1},
	{"mistral_window.h5", 1, "01_two_sided", 1, 131, 131, 6, 2, 32, 32, CPA_DTYPE_FP32, false, 0,
		.window = true, .left = 20, .right = 7},
	{"wan_cross_226_bf16.h5", 0, "00_cross", 1, 660, 226, 5, 5, 64, 64, CPA_DTYPE_BF16, .causal = false, .offset = 0},
	{"t5_bias.h5", 0, "00_layer0", 1, 77, 77, 4, 4, 64, 64, CPA_DTYPE_FP32, false, 0,
		.mask = CPA_MASK_BIAS, .mask_shape = {1, 4, 77, 77}},
	{"deepseek_mla.h5", 0, "00_layer1", 1, 93, 93, 4, 4, 48, 24, CPA_DTYPE_FP32, .causal = true, .offset = 0},
	{"bert_key_length_0.h5", 0, "00_layer0", 3, 37, 37, 3, 3, 32, 32, CPA_DTYPE_FP32, false, 0,
		.key_lengths = bert_lengths},
	{"tiny_ranks.h5", 0, "00_tiny", 1, 6, 6, 4, 2, 8, 8, CPA_DTYPE_FP32, .causal = false, .offset = 0},
};
enum { NKNOWN = sizeof known / sizeof *known };

#endif
