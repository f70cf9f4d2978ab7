/*
 * fuzz_model.c - the reader of models on any input: it may refuse, in one sentence; it may not
 * crash, leak, or accept what it then cannot apply to its own size.
 */
#include <assert.h>

#include "harness/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const sizes[] = {NULL, "1024x1024", "16x32x5"};
	struct cpa_model *model = NULL;
	struct cpa_error error = {""};

	if (cpa_model_read((const char *)data, size, &model, &error) != CPA_OK) {
		assert(error.text[0] != '\0');
		return 0;
	}
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		struct cpa_model_sized sized;
		int64_t shape[CPA_MODEL_MAX_DIMS];

		if (cpa_model_apply(model, sizes[s], &sized, &error) != CPA_OK) {
			assert(sizes[s]);
			continue;
		}
		for (int i = 0; i < model->nentries; i++)
			(void)cpa_model_shape(&sized, &model->entries[i], shape, &error);
		for (int i = 0; i < model->nattentions; i++) {
			struct cpa_problem problem;
			struct cpa_arena arena;

			cpa_arena_init(&arena);
			(void)cpa_model_problem(&sized, i, &arena, &problem, &error);
			cpa_arena_fini(&arena);
		}
	}
	cpa_model_destroy(model);
	return 0;
}
