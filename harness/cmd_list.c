/*
 * cmd_list.c - the command list: what there is, what it needs, and whether it can run here.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/dist.h"
#include "harness/commands.h"
#include "harness/fault.h"
#include "harness/model.h"
#include "harness/peers.h"
#include "harness/recording.h"
#include "harness/result_parts.h"
#include "kernels/kernels.h"

#ifndef CPA_DATADIR
#define CPA_DATADIR "data"
#endif

static bool wanted(const struct cpa_options *options, const char *what)
{
	return !options->list_what || strcmp(options->list_what, what) == 0;
}

static void line(const char *name, const char *summary)
{
	printf("  %-22s  ", name);
	cpa_print_wrapped(stdout, summary, 26, 26);
}

static void list_variants(void)
{
	printf("variants (run everywhere)\n");
	for (int v = 0; v < CPA_NVARIANTS; v++)
		line(cpa_variant_info((enum cpa_variant)v)->name,
			cpa_variant_info((enum cpa_variant)v)->summary);
}

static void list_devices(void)
{
	char kernels[800];

	printf("devices\n");
	cpa_cpu_describe(kernels, sizeof kernels);
	for (int i = 0; cpa_device_name(i); i++) {
		struct cpa_device *device = NULL;
		struct cpa_error error = { "" };
		char text[1200];

		if (cpa_device_create(cpa_device_name(i), &device, &error) == CPA_OK)
			snprintf(text, sizeof text, "%s; can run here%s%s", cpa_device_summary(i),
				strcmp(cpa_device_name(i), "cpu") ? "" : "; ",
				strcmp(cpa_device_name(i), "cpu") ? "" : kernels);
		else
			snprintf(text, sizeof text, "%s; cannot run here: %.800s",
				cpa_device_summary(i), error.text);
		line(cpa_device_name(i), text);
		cpa_device_destroy(device);
	}
	line("cuda", "needs an NVIDIA GPU; not in this version yet");
	line("cudnn", "needs an NVIDIA GPU and cuDNN; not in this version yet");
}

static void list_comms(void)
{
	char text[512];

	printf("comms\n");
	line("fake", "all ranks in one process, seeded, eager and rendezvous; can run here");
	if (cpa_mpi_usable())
		snprintf(text, sizeof text,
			"one process a rank, started by mpirun -n N cpattn verify --comm mpi ...; %s; "
			"can run here", cpa_mpi_about());
	else
		snprintf(text, sizeof text, "one process a rank; cannot run here: %s",
			cpa_mpi_about());
	line("mpi", text);
	line("nccl", "needs NVIDIA GPUs and NCCL; not in this version yet");
}

static void list_fault(int i)
{
	char text[512];

	snprintf(text, sizeof text, "%s: %s. Seen in %s. Shows in %s.", cpa_fault_class(i),
		cpa_fault_summary(i), cpa_fault_seen_in(i), cpa_fault_shows(i));
	line(cpa_fault_name(i), text);
}

static void list_faults(void)
{
	printf("faults (verify --fault NAME[:where] plants one, to see it caught; where: rank=R,hop=I,"
		"block=R,head=H)\n");
	for (int i = 0; cpa_fault_name(i); i++)
		list_fault(i);
}

static void list_systems(void)
{
	printf("systems (plan --as NAME judges by the rules of one, as read at this version)\n");
	for (int i = 0; cpa_peer(i); i++) {
		const struct cpa_peer *peer = cpa_peer(i);
		char text[900];
		struct cpa_text w = cpa_text_begin(text, sizeof text);

		cpa_text_put(&w, "%s %s; %s; backends", peer->repository, peer->version,
			peer->summary);
		for (int b = 0; peer->backends[b]; b++)
			cpa_text_put(&w, " %s%s", peer->backends[b], b == 0 ? " (default)" : "");
		line(peer->name, text);
	}
}

/* ---- recordings -------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_recording(const char *name)
{
	size_t n = strlen(name);

	return n > 3 && name[0] != '.' && strcmp(name + n - 3, ".h5") == 0;
}

/* Names ending in .h5, sorted; the caller frees each and the list.  -1: no memory. */
static int read_names(DIR *dir, char ***names)
{
	int n = 0, capacity = 0;

	*names = NULL;
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		size_t nbytes = strlen(entry->d_name) + 1;
		char **more = *names;

		if (!is_recording(entry->d_name))
			continue;
		if (n == capacity) {
			capacity = capacity ? 2 * capacity : 32;
			more = realloc(*names, (size_t)capacity * sizeof *more);
			if (!more)
				return -1;
			*names = more;
		}
		more[n] = malloc(nbytes);
		if (!more[n])
			return -1;
		memcpy(more[n++], entry->d_name, nbytes);
	}
	if (n > 0)
		qsort(*names, (size_t)n, sizeof **names, by_name);
	return n;
}

static void list_call(struct cpa_recording *recording, int i)
{
	const struct cpa_call *call;
	struct cpa_error error;
	char text[512];

	printf("    ");
	cpa_print_clean(stdout, cpa_recording_call_name(recording, i));
	if (cpa_recording_call(recording, i, &call, &error) != CPA_OK) {
		printf(": refused: ");
		cpa_print_wrapped(stdout, error.text, 24, 6);
		return;
	}
	cpa_problem_print(&call->problem, text, sizeof text);
	printf("  %s\n", text);
}

static void list_recording(const char *path)
{
	struct cpa_recording *recording = NULL;
	struct cpa_error error;

	printf("  ");
	cpa_print_clean(stdout, path);
	if (cpa_recording_open(path, &recording, &error) != CPA_OK) {
		printf(": refused: ");
		cpa_print_wrapped(stdout, error.text, 24, 6);
		return;
	}
	fputc('\n', stdout);
	for (int i = 0; i < cpa_recording_ncalls(recording); i++)
		list_call(recording, i);
	cpa_recording_close(recording);
}

static void list_names(const char *directory, char **names, int n)
{
	for (int i = 0; i < n; i++) {
		size_t nbytes = strlen(directory) + strlen(names[i]) + 2;
		char *path = malloc(nbytes);

		if (path) {
			snprintf(path, nbytes, "%s/%s", directory, names[i]);
			list_recording(path);
		}
		free(path);
		free(names[i]);
	}
	free(names);
}

/* The first of CPATTN_DATA, ./data and the installed data that has recordings. */
static DIR *open_recordings(char *directory, size_t size, struct cpa_error *error)
{
	const char *asked = getenv("CPATTN_DATA");
	const char *const places[] = { "data", CPA_DATADIR };
	DIR *dir = NULL;

	if (asked && asked[0]) {
		if (snprintf(directory, size, "%s/recordings", asked) < (int)size)
			dir = opendir(directory);
		if (!dir)
			cpa_fail(error, CPA_INVALID,
				"CPATTN_DATA is '%.300s', and it has no directory recordings: "
				"%s",
				asked, strerror(errno));
		return dir;
	}
	for (int i = 0; i < 2 && !dir; i++) {
		snprintf(directory, size, "%s/recordings", places[i]);
		dir = opendir(directory);
	}
	error->text[0] = '\0';
	return dir;
}

static enum cpa_status list_recordings(struct cpa_error *error)
{
	char directory[4200], **names;
	DIR *dir = open_recordings(directory, sizeof directory, error);
	int n;

	if (!dir && error->text[0])
		return CPA_INVALID;
	printf("recordings\n");
	if (!dir) {
		line("none",
			"neither ./data/recordings nor " CPA_DATADIR "/recordings is there; "
								     "CPATTN_DATA names "
			"another place");
		return CPA_OK;
	}
	n = read_names(dir, &names);
	closedir(dir);
	if (n < 0)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	if (n == 0)
		line("none", "no .h5 file in the directory");
	list_names(directory, names, n);
	return CPA_OK;
}

int cpa_cmd_list(const struct cpa_options *options)
{
	struct cpa_error error;
	enum cpa_status status = CPA_OK;

	if (wanted(options, "variants"))
		list_variants();
	if (wanted(options, "devices"))
		list_devices();
	if (wanted(options, "comms"))
		list_comms();
	if (wanted(options, "faults"))
		list_faults();
	if (wanted(options, "machines")) {
		printf("machines\n");
		line("none", "they come with simulate, which is not in this version yet");
	}
	if (wanted(options, "models")) {
		cpa_model_list(stdout);
	}
	if (wanted(options, "systems"))
		list_systems();
	if (wanted(options, "recordings"))
		status = list_recordings(&error);
	return status == CPA_OK ? 0 : cpa_complain(&error);
}
