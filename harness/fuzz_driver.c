/*
 * fuzz_driver.c - a main() for fuzz targets where no libFuzzer is: runs every file of a corpus, then
 * seeded mutations of them.
 *
 *   fuzz_NAME [-runs=20000] [-seed=1] [-first=0] [-max_len=65536] FILE|DIRECTORY...
 *
 * Input number r is a pure function of seed, r and the corpus, so `-first=r -runs=1` repeats it.  What
 * crashes or takes longer than 60 seconds is left in fuzz-crash in the working directory.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	uint8_t *data;
	size_t size;
};

static struct {
	struct input *at;
	int n, capacity;
	size_t max_len;
} corpus = {.max_len = 65536};

/* For the signal handler: what is running. */
static const uint8_t *volatile running;
static volatile size_t running_size;


/* ---- corpus ---------------------------------------------------------------------------------- */

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void add_file(const char *path, size_t size)
{
	FILE *file = fopen(path, "rb");
	struct input *input;

	if (!file)
		die(path);
	if (corpus.n == corpus.capacity) {
		corpus.capacity = corpus.capacity ? 2 * corpus.capacity : 64;
		corpus.at = realloc(corpus.at, (size_t)corpus.capacity * sizeof *corpus.at);
		if (!corpus.at)
			die("realloc");
	}
	input = &corpus.at[corpus.n++];
	input->data = malloc(size + 1);
	if (!input->data)
		die("malloc");
	input->size = fread(input->data, 1, size, file);
	fclose(file);
}

static void add_path(const char *path, int depth)
{
	struct dirent **entries;
	struct stat info;
	int n;

	if (stat(path, &info) != 0)
		die(path);
	if (S_ISREG(info.st_mode) && (size_t)info.st_size <= corpus.max_len)
		add_file(path, (size_t)info.st_size);
	if (!S_ISDIR(info.st_mode) || depth > 3)
		return;
	n = scandir(path, &entries, NULL, alphasort);
	if (n < 0)
		die(path);
	for (int i = 0; i < n; i++) {
		char below[4096];

		if (entries[i]->d_name[0] != '.' &&
		    snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name) < (int)sizeof below)
			add_path(below, depth + 1);
		free(entries[i]);
	}
	free(entries);
}

/* ---- mutations ------------------------------------------------------------------------------- */

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
	return n ? (size_t)(draw(state) % n) : 0;
}

/* Writes a number that is often a limit of something: 0, 1, all ones, a power of two, near those. */
static void write_limit(struct input *input, uint64_t *state)
{
	size_t width = (size_t)1 << below(state, 4), at = below(state, input->size);
	uint64_t value = (below(state, 2) ? UINT64_MAX : 0) + draw(state) % 3 - 1;

	if (below(state, 2))
		value = (UINT64_C(1) << below(state, 64)) + draw(state) % 3 - 1;
	for (size_t i = 0; i < width && at + i < input->size; i++)
		input->data[at + i] = (uint8_t)(value >> 8 * i);
}

/* Overwrites a stretch with one of this or another input. */
static void splice_in(struct input *input, uint64_t *state)
{
	const struct input *from = below(state, 2) ? input : &corpus.at[below(state, (size_t)corpus.n)];
	size_t to = below(state, input->size), start = below(state, from->size);
	size_t n = 1 + below(state, below(state, 2) ? 16 : 512);

	if (n > input->size - to)
		n = input->size - to;
	if (n > from->size - start)
		n = from->size - start;
	memmove(input->data + to, from->data + start, n);
}

static void mutate(struct input *input, uint64_t *state)
{
	if (input->size == 0)
		return;
	switch (below(state, 16)) {
	case 0:
		input->size = below(state, input->size + 1);
		break;
	case 1:
	case 2:
	case 3:
		splice_in(input, state);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
		write_limit(input, state);
		break;
	case 8:
		/* Text to text: names and types that are nearly right. */
		input->data[below(state, input->size)] = (uint8_t)(' ' + below(state, 95));
		break;
	default:
		input->data[below(state, input->size)] ^= (uint8_t)(1u << below(state, 8));
	}
}

/* ---- running --------------------------------------------------------------------------------- */

static void save_and_die(int number)
{
	static const char text[] = "fuzz: crash or hang, the input is in ./fuzz-crash\n";
	int fd = open("fuzz-crash", O_WRONLY | O_CREAT | O_TRUNC, 0666);

	if (fd >= 0 && write(fd, running, running_size) == (ssize_t)running_size)
		(void)!write(2, text, sizeof text - 1);
	signal(number, SIG_DFL);
	raise(number);
}

static void run(const uint8_t *data, size_t size)
{
	/* A copy of exactly this size, so that reading past the end is seen. */
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		die("malloc");
	memcpy(copy, data, size);
	running = copy;
	running_size = size;
	alarm(60);
	LLVMFuzzerTestOneInput(copy, size);
	alarm(0);
	free(copy);
}

static void run_mutated(uint64_t seed, long number)
{
	uint64_t state = seed * UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)number;
	const struct input *parent = &corpus.at[below(&state, (size_t)corpus.n)];
	struct input child = {malloc(parent->size + 1), parent->size};
	size_t n = 1 + below(&state, below(&state, 4) ? 3 : 24);

	if (!child.data)
		die("malloc");
	memcpy(child.data, parent->data, parent->size);
	for (size_t i = 0; i < n; i++)
		mutate(&child, &state);
	run(child.data, child.size);
	free(child.data);
}

int main(int argc, char **argv)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
	unsigned long long seed = 1, max_len = 0;
	long runs = 20000, first = 0;

	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		signal(signals[i], save_and_die);
	for (int i = 1; i < argc; i++)
		if (sscanf(argv[i], "-max_len=%llu", &max_len) == 1)
			corpus.max_len = (size_t)max_len;
	for (int i = 1; i < argc; i++) {
		if (sscanf(argv[i], "-runs=%ld", &runs) != 1 && sscanf(argv[i], "-seed=%llu", &seed) != 1 &&
		    sscanf(argv[i], "-first=%ld", &first) != 1 && argv[i][0] != '-')
			add_path(argv[i], 0);
	}
	if (corpus.n == 0) {
		fprintf(stderr, "usage: %s [-runs=N] [-seed=N] [-first=N] [-max_len=N] FILE|DIRECTORY...\n",
			argv[0]);
		return 2;
	}
	for (int i = 0; i < corpus.n; i++)
		run(corpus.at[i].data, corpus.at[i].size);
	for (long i = first; i < first + runs; i++)
		run_mutated(seed, i);
	printf("%d inputs and %ld mutations of them, seed %llu: no crash\n", corpus.n, runs, seed);
	for (int i = 0; i < corpus.n; i++)
		free(corpus.at[i].data);
	free(corpus.at);
	return 0;
}
