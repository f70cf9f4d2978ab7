/*
 * recording_config.c - the rules for how a distributed run was set up: degrees, sizes and choices.
 */
#include "harness/recording_rules.h"

static const char *const degree_names[] = {"batch_degree", "ring_degree", "ulysses_degree"};

/* degrees [3] out; world 0: the number of ranks is not known. */
static enum cpa_status read_degrees(struct cpa_recording *recording, const char *config, int64_t world,
	int64_t *degrees, struct cpa_error *error)
{
	int largest = 0;
	int64_t product = 1;

	for (int i = 0; i < 3; i++) {
		enum cpa_status status;
		bool present;

		degrees[i] = 1;
		status = cpa_recording_integers(recording, config, degree_names[i], false, 1, &degrees[i],
			&present, error);
		if (status != CPA_OK)
			return status;
		if (degrees[i] < 1 || degrees[i] > INT32_MAX / product)
			return cpa_fail(error, CPA_INVALID, "%s@%s: is %lld; expected 1 or more, and a product "
				"within the number of ranks", config, degree_names[i], (long long)degrees[i]);
		product *= degrees[i];
		if (degrees[i] > degrees[largest])
			largest = i;
	}
	if (world > 0 && product != world)
		return cpa_fail(error, CPA_INVALID, "%s@%s: is %lld; batch %lld x ring %lld x ulysses %lld is "
			"%lld, expected the number of ranks, %lld", config, degree_names[largest],
			(long long)degrees[largest], (long long)degrees[0], (long long)degrees[1],
			(long long)degrees[2], (long long)product, (long long)world);
	return CPA_OK;
}

/* sizes: one for each context-parallel rank; with one segment they sum to its length. */
static enum cpa_status read_sizes(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *config, const int64_t *degrees, const int64_t **list, struct cpa_error *error)
{
	const int64_t P = degrees[1] * degrees[2], Sq = entry->call.problem.Sq;
	int64_t *sizes, sum = 0;
	enum cpa_status status;
	bool present;

	if (P > CPA_H5_MAX_VALUES || !cpa_h5_attribute_exists(recording->file, config, "sizes"))
		return CPA_OK;
	sizes = cpa_arena_alloc(&recording->arena, (size_t)P * sizeof *sizes);
	if (!sizes)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	status = cpa_recording_integers(recording, config, "sizes", false, P, sizes, &present, error);
	for (int64_t i = 0; i < P && status == CPA_OK; i++) {
		if (sizes[i] < 0 || sizes[i] > Sq)
			return cpa_fail(error, CPA_INVALID, "%s@sizes: element [%lld] is %lld; expected 0 to "
				"%lld", config, (long long)i, (long long)sizes[i], (long long)Sq);
		sum += sizes[i];
	}
	if (status == CPA_OK && entry->call.nsegments <= 1 && sum != Sq)
		return cpa_fail(error, CPA_INVALID, "%s@sizes: sum to %lld; expected %lld, the number of query "
			"tokens", config, (long long)sum, (long long)Sq);
	*list = sizes;
	return status;
}

/* The text of an attribute; NULL where there is none. */
static enum cpa_status read_text(struct cpa_recording *recording, const char *config, const char *name,
	const char **text, struct cpa_error *error)
{
	struct cpa_h5_array array;
	enum cpa_status status;

	if (!cpa_h5_attribute_exists(recording->file, config, name))
		return CPA_OK;
	status = cpa_h5_array_open(recording->file, config, name, &array, error);
	if (status != CPA_OK)
		return status;
	/* Free text is for people: what is none is left out, not refused. */
	if (array.class == CPA_H5_STRING && array.count == 1)
		status = cpa_h5_read_strings(&array, &recording->arena, text, error);
	cpa_h5_array_close(&array);
	return status;
}

static enum cpa_status read_texts(struct cpa_recording *recording, const char *config,
	struct cpa_recorded_config *it, struct cpa_error *error)
{
	const struct {
		const char *name, **text;
	} texts[] = {{"system", &it->system}, {"variant", &it->variant}, {"backend", &it->backend},
		{"mesh", &it->mesh}};
	enum cpa_status status = CPA_OK;

	for (size_t i = 0; i < sizeof texts / sizeof *texts && status == CPA_OK; i++)
		status = read_text(recording, config, texts[i].name, texts[i].text, error);
	return status;
}

/* The names of choices, in the order of the enums of dist/ and ref/; alltoall is another word for p2p. */
static enum cpa_status read_choices(struct cpa_recording *recording, const char *config,
	struct cpa_recorded_config *it, struct cpa_error *error)
{
	static const char *const rotates[] = {"p2p", "allgather", "direct", "alltoall", NULL};
	static const char *const splits[] = {"equal", "balanced", "ceil", "given", NULL};
	static const char *const orders[] = {"contiguous", "zigzag", "striped", NULL};
	enum cpa_status status;

	it->rotate = it->split = it->order = -1;
	if ((status = cpa_recording_choice(recording, config, "rotate", rotates, &it->rotate, error)) !=
		    CPA_OK ||
	    (status = cpa_recording_choice(recording, config, "order", orders, &it->order, error)) != CPA_OK)
		return status;
	if (it->rotate == 3)
		it->rotate = 0;
	return cpa_recording_choice(recording, config, "split", splits, &it->split, error);
}

static enum cpa_status read_config(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *config, int64_t world, struct cpa_recorded_config *it, struct cpa_error *error)
{
	int64_t degrees[3], convert = 0;
	enum cpa_status status;
	bool present;

	if ((status = read_choices(recording, config, it, error)) != CPA_OK ||
	    (status = cpa_recording_integers(recording, config, "convert_to_fp32", true, 1, &convert,
		     &present, error)) != CPA_OK ||
	    (status = read_degrees(recording, config, world, degrees, error)) != CPA_OK ||
	    (status = read_sizes(recording, entry, config, degrees, &it->sizes, error)) != CPA_OK)
		return status;
	it->convert_to_fp32 = present ? convert != 0 : -1;
	it->batch_degree = degrees[0];
	it->ring_degree = degrees[1];
	it->ulysses_degree = degrees[2];
	return read_texts(recording, config, it, error);
}

enum cpa_status cpa_recording_config(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	int64_t world, struct cpa_error *error)
{
	static const char *const known[] = {"batch_degree", "ring_degree", "ulysses_degree", "rotate",
		"split", "order", "sizes", "convert_to_fp32", "system", "variant", "backend", "mesh", NULL};
	struct cpa_recorded_config *it = cpa_arena_alloc(&recording->arena, sizeof *it);
	char config[CPA_H5_WHERE];
	struct cpa_h5_names names;
	enum cpa_status status;

	if (!it)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	*it = (struct cpa_recorded_config){0};
	cpa_recording_join(config, entry->where, '/', "config");
	if ((status = cpa_recording_group(recording, config, &names, error)) != CPA_OK ||
	    (status = cpa_h5_attributes(recording->file, config, &recording->arena, &names, error)) !=
		    CPA_OK ||
	    (status = read_config(recording, entry, config, world, it, error)) != CPA_OK)
		return status;
	entry->call.config = it;
	cpa_recording_note_unknown(entry, &names, known, "config@");
	return CPA_OK;
}
