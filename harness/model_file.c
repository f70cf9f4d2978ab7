/*
 * model_file.c - where models are: files by path, and the data directories by name.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/model.h"
#include "harness/result_parts.h"
#include "harness/suggest.h"

#ifndef CPA_DATADIR
#define CPA_DATADIR "data"
#endif

enum { MAX_FILE = 1 << 20, MAX_MODELS = 256, MAX_NAME = 64, MAX_PATH = 4300 };

static bool ends_in_json(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static enum cpa_status read_file(
	const char *path, struct cpa_model **model, struct cpa_error *error)
{
	struct cpa_error inner = {""};
	enum cpa_status status;
	FILE *file = fopen(path, "rb");
	char *text = malloc(MAX_FILE + 1);
	size_t n = file && text ? fread(text, 1, MAX_FILE + 1, file) : 0;

	if (file && !text)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	else if (!file || ferror(file))
		status = cpa_fail(
			error, CPA_INVALID, "%.300s: cannot be read: %s", path, strerror(errno));
	else if (n > MAX_FILE)
		status = cpa_fail(error, CPA_INVALID,
			"%.300s: above %d bytes, which no model has", path, MAX_FILE);
	else if ((status = cpa_model_read(text, n, model, &inner)) != CPA_OK)
		cpa_fail(error, status, "%.300s: %.700s", path, inner.text);
	if (file)
		fclose(file);
	free(text);
	return status;
}

/* The first of CPATTN_DATA (alone, where it is set), ./data and the installed data that has
 * models. */
static DIR *open_models(char *directory, size_t size)
{
	const char *asked = getenv("CPATTN_DATA");
	const char *const places[] = {asked && asked[0] ? asked : "data", CPA_DATADIR};
	int n = asked && asked[0] ? 1 : 2;
	DIR *dir = NULL;

	for (int i = 0; i < n && !dir; i++)
		if (snprintf(directory, size, "%s/models", places[i]) < (int)size)
			dir = opendir(directory);
	return dir;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Names without .json, sorted; how many.  directory is "" where there is none. */
static int find_names(char names[MAX_MODELS][MAX_NAME], char *directory, size_t size)
{
	DIR *dir = open_models(directory, size);
	int n = 0;

	if (!dir)
		directory[0] = '\0';
	for (struct dirent *entry; dir && n < MAX_MODELS && (entry = readdir(dir)) != NULL;) {
		size_t length = strlen(entry->d_name) - 5;

		if (!ends_in_json(entry->d_name) || entry->d_name[0] == '.' || length >= MAX_NAME)
			continue;
		memcpy(names[n], entry->d_name, length);
		names[n++][length] = '\0';
	}
	if (dir)
		closedir(dir);
	qsort(names, (size_t)n, MAX_NAME, by_name);
	return n;
}

enum cpa_status cpa_model_open(
	const char *name, struct cpa_model **model, struct cpa_error *error)
{
	char names[MAX_MODELS][MAX_NAME], directory[4200], path[MAX_PATH], near[80];
	const char *known[MAX_MODELS];
	int n;

	if (strchr(name, '/') || ends_in_json(name))
		return read_file(name, model, error);
	n = find_names(names, directory, sizeof directory);
	for (int i = 0; i < n; i++) {
		known[i] = names[i];
		if (strcmp(names[i], name) == 0) {
			snprintf(path, sizeof path, "%.4200s/%.63s.json", directory, name);
			return read_file(path, model, error);
		}
	}
	cpa_suggest_text(name, known, n, near, sizeof near);
	if (n == 0)
		return cpa_fail(error, CPA_INVALID,
			"--model %.60s: there are no models in CPATTN_DATA, ./data/models "
			"or " CPA_DATADIR "/models; name a file",
			name);
	return cpa_fail(error, CPA_INVALID,
		"--model: unknown model '%.60s'%s (cpattn list models names them; a file has a / "
		"or ends "
		"in .json)",
		name, near);
}

void cpa_model_list(FILE *out)
{
	char names[MAX_MODELS][MAX_NAME], directory[4200], path[MAX_PATH], text[1400];
	int n = find_names(names, directory, sizeof directory);

	fprintf(out, "models (plan --model NAME)\n");
	if (!cpa_model_readable()) {
		fprintf(out,
			"  none                    built without cJSON; install libcjson-dev and "
			"rebuild\n");
		return;
	}
	if (n == 0)
		fprintf(out,
			"  none                    neither ./data/models nor " CPA_DATADIR
			"/models is there\n");
	for (int i = 0; i < n; i++) {
		struct cpa_model *model = NULL;
		struct cpa_error error = {""};

		snprintf(path, sizeof path, "%.4200s/%.63s.json", directory, names[i]);
		if (read_file(path, &model, &error) == CPA_OK)
			snprintf(text, sizeof text, "%.200s; %.60s; plan %s", model->title,
				model->size, model->derived ? "derived" : "published");
		else
			snprintf(text, sizeof text, "refused: %s", error.text);
		fprintf(out, "  %-22s  ", names[i]);
		cpa_print_wrapped(out, text, 26, 26);
		cpa_model_destroy(model);
	}
}
