/*
 * options.c - reads the command line: the command, its options by the table, its files.
 */
#include "harness/options.h"

#include <stdio.h>
#include <string.h>

#include "harness/options_table.h"
#include "harness/suggest.h"

enum { MAX_OPTIONS = 64, DEFAULT_FIRST_WORLD = 2, DEFAULT_LAST_WORLD = 8 };

/* The walk over argv. */
struct walk {
	int argc, at;
	char **argv;
	const char *seen[MAX_OPTIONS]; /* the value each option had; NULL: not given */
	bool only_files;               /* after -- */
};

static const char *const list_names[] = { "variants", "devices", "comms", "faults", "machines",
	"models", "recordings", "systems" };
enum { NLISTS = sizeof list_names / sizeof list_names[0] };

/* ---- beginnings -------------------------------------------------------------------------- */

static enum cpa_status no_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
}

static enum cpa_status set_defaults(struct cpa_options *o, int argc, struct cpa_error *error)
{
	int n = DEFAULT_LAST_WORLD - DEFAULT_FIRST_WORLD + 1;

	memset(o, 0, sizeof *o);
	cpa_arena_init(&o->arena);
	o->files = cpa_arena_alloc(&o->arena, (size_t)(argc + 1) * sizeof *o->files);
	o->ranks.at = cpa_arena_alloc(&o->arena, (size_t)n * sizeof *o->ranks.at);
	if (!o->files || !o->ranks.at)
		return no_memory(error);
	o->ranks.n = n;
	for (int i = 0; i < n; i++)
		o->ranks.at[i] = DEFAULT_FIRST_WORLD + i;
	o->seed = 1;
	o->direction = 1;
	o->device = "cpu";
	o->comm = "fake";
	o->interleavings = 2;
	o->interleaving_seed = 1;
	o->warmup = 2;
	o->repeat = 12;
	return CPA_OK;
}

static bool is_plain(const char *word)
{
	return word[0] != '\0' &&
		word[strspn(word,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			"0123456789_-+=:,./%@")] == '\0';
}

/* Appends word, quoted for a POSIX shell where it must be; returns the new end. */
static char *quote(char *p, const char *word)
{
	if (is_plain(word)) {
		memcpy(p, word, strlen(word));
		return p + strlen(word);
	}
	*p++ = '\'';
	for (; *word; word++) {
		if (*word == '\'') {
			memcpy(p, "'\\''", 4);
			p += 4;
		} else {
			*p++ = *word;
		}
	}
	*p++ = '\'';
	return p;
}

static enum cpa_status keep_command_line(struct cpa_options *o, int argc, char **argv,
	struct cpa_error *error)
{
	size_t nbytes = sizeof "cpattn";
	char *p;

	for (int i = 1; i < argc; i++)
		nbytes += 4 * strlen(argv[i]) + 3;
	p = o->command_line = cpa_arena_alloc(&o->arena, nbytes);
	if (!p)
		return no_memory(error);
	memcpy(p, "cpattn", 6);
	p += 6;
	for (int i = 1; i < argc; i++) {
		*p++ = ' ';
		p = quote(p, argv[i]);
	}
	*p = '\0';
	return CPA_OK;
}

/* ---- the command ------------------------------------------------------------------------- */

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static enum cpa_command find_command(const char *word)
{
	for (int i = 0; cpa_command_info(i); i++)
		if (strcmp(word, cpa_command_info(i)->name) == 0)
			return cpa_command_info(i)->command;
	return CPA_COMMAND_NONE;
}

static enum cpa_status unknown_command(const char *word, struct cpa_error *error)
{
	const char *names[16];
	char near[80];
	size_t length = strlen(word);
	int n = 0;

	if (word[0] == '\0')
		return cpa_fail(error, CPA_INVALID,
			"the command is empty; expected %s", cpa_command_list());
	if (cpa_later_command(word))
		return cpa_fail(error, CPA_INVALID, "the command %s %s", word,
			cpa_later_command(word));
	if (word[0] == '-')
		return cpa_fail(error, CPA_INVALID,
			"a command comes first, before '%.60s': cpattn %s (see cpattn --help)",
			word, cpa_command_list());
	if (length > 3 && strcmp(word + length - 3, ".h5") == 0)
		return cpa_fail(error, CPA_INVALID,
			"a command comes first; did you mean cpattn verify %.200s?", word);
	for (int i = 0; cpa_command_info(i) && n < 16; i++)
		names[n++] = cpa_command_info(i)->name;
	cpa_suggest_text(word, names, n, near, sizeof near);
	return cpa_fail(error, CPA_INVALID,
		"unknown command '%.60s'%s (expected %s; see cpattn --help)",
		word, near, cpa_command_list());
}

static enum cpa_status read_help(struct cpa_options *o, const char *about,
	struct cpa_error *error)
{
	o->command = CPA_COMMAND_HELP;
	if (!about || is_help(about))
		return CPA_OK;
	o->help_about = find_command(about);
	return o->help_about == CPA_COMMAND_NONE ? unknown_command(about, error) : CPA_OK;
}

/* --help anywhere before -- wins over all else. */
static bool asks_for_help(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (is_help(argv[i]))
			return true;
	return false;
}

/* ---- options ----------------------------------------------------------------------------- */

static enum cpa_status unknown_option(const struct cpa_options *o, const char *name,
	struct cpa_error *error)
{
	const char *names[MAX_OPTIONS + 2];
	char near[80];
	int n = 0;

	for (int i = 0; cpa_option_info(i) && n < MAX_OPTIONS; i++)
		if (cpa_option_info(i)->commands & 1u << o->command)
			names[n++] = cpa_option_info(i)->name;
	names[n++] = "--help";
	cpa_suggest_text(name, names, n, near, sizeof near);
	return cpa_fail(error, CPA_INVALID, "unknown option '%.60s'%s (see cpattn %s --help)",
		name, near,
		o->command == CPA_COMMAND_PLAN            ? "plan"
			: o->command == CPA_COMMAND_BENCH ? "bench"
			: o->command == CPA_COMMAND_LIST ? "list"
			: o->command == CPA_COMMAND_REPORT ? "report"
							 : "verify");
}

static int find_option(const char *name)
{
	for (int i = 0; cpa_option_info(i); i++)
		if (strcmp(name, cpa_option_info(i)->name) == 0)
			return i;
	return -1;
}

static enum cpa_status not_of_command(const struct cpa_options *o,
	const struct cpa_option_info *info, struct cpa_error *error)
{
	const char *here = "", *there = "";

	for (int i = 0; cpa_command_info(i); i++) {
		const struct cpa_command_info *command = cpa_command_info(i);

		if (command->command == o->command)
			here = command->name;
		else if (!there[0] && info->commands & 1u << command->command)
			there = command->name;
	}
	return cpa_fail(error, CPA_INVALID, "%s takes no %s (%s does)", here, info->name,
		there);
}

static enum cpa_status set_option(struct cpa_options *o, struct walk *walk, int i,
	const char *value, struct cpa_error *error)
{
	const struct cpa_option_info *info = cpa_option_info(i);
	const char *before = walk->seen[i];

	walk->seen[i] = value ? value : "";
	if (before && value && strcmp(info->name, "--variant") != 0 &&
		strcmp(before, value) != 0)
		return cpa_fail(error, CPA_INVALID,
			"%s is given twice, as '%.60s' and as '%.60s'", info->name, before,
			value);
	return info->set(o, value, error);
}

/* The option at argv[at], as --name value or --name=value; leaves `at` at the last word it
 * used. */
static enum cpa_status read_option(struct cpa_options *o, struct walk *walk,
	struct cpa_error *error)
{
	const char *word = walk->argv[walk->at], *equals = strchr(word, '='), *value = NULL;
	const struct cpa_option_info *info;
	char name[64];
	int i;

	snprintf(name, sizeof name, "%.*s",
		equals && equals - word < 63 ? (int)(equals - word) : 63, word);
	i = find_option(name);
	if (i < 0)
		return unknown_option(o, name, error);
	info = cpa_option_info(i);
	if (!(info->commands & 1u << o->command))
		return not_of_command(o, info, error);
	if (!info->value && equals)
		return cpa_fail(error, CPA_INVALID, "%s takes no value, and is given '%.60s'",
			name, equals + 1);
	if (info->value)
		value = equals                      ? equals + 1
			: walk->at + 1 < walk->argc ? walk->argv[++walk->at]
						    : NULL;
	if (info->value && (!value || (!equals && strncmp(value, "--", 2) == 0)))
		return cpa_fail(error, CPA_INVALID, "%s needs a value: %s %s, %s", name, name,
			info->value, info->help);
	return set_option(o, walk, i, value, error);
}

static enum cpa_status read_word(struct cpa_options *o, struct walk *walk,
	struct cpa_error *error)
{
	const char *word = walk->argv[walk->at];
	char near[80];

	if (!walk->only_files && strcmp(word, "--") == 0) {
		walk->only_files = true;
		return CPA_OK;
	}
	if (!walk->only_files && word[0] == '-' && word[1] != '\0')
		return read_option(o, walk, error);
	if (o->command != CPA_COMMAND_LIST) {
		o->files[o->nfiles++] = word;
		return CPA_OK;
	}
	for (int i = 0; i < NLISTS; i++)
		if (!o->list_what && strcmp(word, list_names[i]) == 0) {
			o->list_what = list_names[i];
			return CPA_OK;
		}
	if (o->list_what)
		return cpa_fail(error, CPA_INVALID,
			"list takes one word, and '%.60s' comes after '%s'", word,
			o->list_what);
	cpa_suggest_text(word, list_names, NLISTS, near, sizeof near);
	return cpa_fail(error, CPA_INVALID,
		"list: unknown '%.60s'%s (expected variants, devices, comms, "
		"faults, machines, models, recordings or systems)",
		word, near);
}

/* ---- the whole --------------------------------------------------------------------------- */

static enum cpa_status finish(struct cpa_options *o, const struct walk *walk,
	struct cpa_error *error)
{
	bool any = false;

	for (int i = 0; i < CPA_NVARIANTS; i++)
		any |= o->variants[i];
	for (int i = 0; i < CPA_NVARIANTS && !any; i++)
		o->variants[i] = true;
	return cpa_options_check(o, walk->seen[find_option("--fill")] != NULL, error);
}

enum cpa_status cpa_options_parse(int argc, char **argv, struct cpa_options *options,
	struct cpa_error *error)
{
	struct walk walk = { .argc = argc, .at = 2, .argv = argv };
	enum cpa_status status = set_defaults(options, argc, error);

	if (status == CPA_OK)
		status = keep_command_line(options, argc, argv, error);
	if (status != CPA_OK)
		return status;
	if (argc < 2)
		return cpa_fail(error, CPA_INVALID,
			"a command is missing: cpattn %s (see cpattn --help)",
			cpa_command_list());
	if (strcmp(argv[1], "--version") == 0 && argc > 2)
		return cpa_fail(error, CPA_INVALID,
			"--version stands alone, and '%.60s' follows it", argv[2]);
	if (strcmp(argv[1], "--version") == 0) {
		options->command = CPA_COMMAND_VERSION;
		return CPA_OK;
	}
	if (strcmp(argv[1], "help") == 0 || is_help(argv[1]))
		return read_help(options, argc > 2 ? argv[2] : NULL, error);
	options->command = find_command(argv[1]);
	if (options->command == CPA_COMMAND_NONE)
		return unknown_command(argv[1], error);
	if (asks_for_help(argc, argv))
		return read_help(options, argv[1], error);
	for (; walk.at < argc && status == CPA_OK; walk.at++)
		status = read_word(options, &walk, error);
	return status == CPA_OK ? finish(options, &walk, error) : status;
}

void cpa_options_fini(struct cpa_options *options)
{
	cpa_arena_fini(&options->arena);
}
