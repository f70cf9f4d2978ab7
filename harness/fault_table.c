/*
 * fault_table.c - every fault by its number and name, and the text of --fault.
 */
#include "harness/fault_plant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/suggest.h"

#define BLOCK (CPA_WHERE_RANK | CPA_WHERE_HOP | CPA_WHERE_BLOCK)

const struct cpa_fault_entry cpa_faults_first[] = {
	{"hop-skipped", "A10",
		"one hop of the ring is left out: its block is neither attended nor merged",
		"sibling of long-context-attention 176, which kept only the last block",
		"probe count", "a hop whose block is merged", CPA_FAULT_ONE_RANK, BLOCK,
		.touches = NULL},
	{"wrong-rank-kv", "F01",
		"one hop attends the rank's own keys and values in place of its peer's",
		"diffusers 14265 reread the block of hop 0 at every hop", "probe count",
		"a hop that attends the block of another rank", CPA_FAULT_ONE_OP, BLOCK,
		.touches = NULL},
	{"lse-base-2", "A01", "the partials of one rank come with a base-2 lse",
		"flashinfer 2113 and 4485, vLLM 28840 and 47079, sglang 40903",
		"lse is off by a factor; blocks of unlike weight", "a row that sees a key",
		CPA_FAULT_ONE_RANK, CPA_WHERE_RANK | CPA_WHERE_HOP,
		.touches = NULL},
	{"merge-lost", "A10", "one partial is computed and never merged",
		"long-context-attention 176 assigned instead of merging", "probe count",
		"a merge", CPA_FAULT_ONE_OP, BLOCK,
		.touches = NULL},
	{"head-swapped", "D01", "two heads change places in the output of one rank",
		"DeepSpeed 5664, TensorRT-LLM 10350", "everywhere", "2 heads on a rank",
		CPA_FAULT_ONE_RANK, CPA_WHERE_RANK | CPA_WHERE_HEAD,
		.touches = NULL},
	{"pad-key-counted", "B01", "a zero key that pads a block takes part in the softmax",
		"vLLM-Omni 1324, TensorRT-LLM 14044 and 18705, HunyuanVideo 310",
		"rows shrink; probe count", "a row that sees a key", CPA_FAULT_ONE_OP, BLOCK,
		.touches = NULL},
	{"stale-buffer", "F01",
		"a block is attended before it has arrived, on what the buffer held before",
		"TransformerEngine 1624, Cornstarch 70", "probe count",
		"a block that comes from a peer", CPA_FAULT_ONE_OP, BLOCK,
		.touches = NULL},
	{"lse-zero-start", "A07", "the accumulator of one rank starts at lse 0 instead of -inf",
		"vLLM 49294; torch on a CPU returns lse 0 for a row without keys",
		"rows shrink, on one rank alone too", "a row that sees a key", CPA_FAULT_ONE_RANK,
		CPA_WHERE_RANK,
		.touches = NULL},
	{"branches-swapped", "H01",
		"one rank takes the positive branch of guidance for the negative one and back",
		"no public report is known", "--guidance", "branches (--guidance), and scales "
		"that tell them apart", CPA_FAULT_ONE_RANK, CPA_WHERE_RANK,
		.touches = NULL},
	{"branch-dropped", "H02",
		"the middle one of three branches does not count on one rank",
		"vLLM-Omni 1578 lost the image term on two ranks", "--guidance with two scales",
		"three branches (--guidance S,S2)", CPA_FAULT_ONE_RANK, CPA_WHERE_RANK,
		.touches = NULL},
	{"branch-repeated", "H03",
		"one rank takes one branch for two, so that the scale changes nothing",
		"vLLM-Omni 1578 and cosmos-transfer2.5 205 took every rank for rank 0",
		"--guidance", "branches (--guidance)", CPA_FAULT_ONE_RANK, CPA_WHERE_RANK,
		.touches = NULL},
	{"scale-sign", "H01", "one rank goes from the positive branch to the negative one",
		"the difference is taken the other way round, neg + s (neg - pos)", "--guidance",
		"branches (--guidance)", CPA_FAULT_ONE_RANK, CPA_WHERE_RANK,
		.touches = NULL},
	{0},
};

static const struct cpa_fault_entry *const tables[] = {cpa_faults_first, cpa_faults_merging,
	cpa_faults_lengths, cpa_faults_masks, cpa_faults_layout, cpa_faults_groups,
	cpa_faults_plans, cpa_faults_branches};
enum { NTABLES = sizeof tables / sizeof tables[0], MAX_FAULTS = 128 };

const struct cpa_fault_entry *cpa_fault_entry(int i)
{
	for (int t = 0; i >= 0 && t < NTABLES; t++)
		for (const struct cpa_fault_entry *entry = tables[t]; entry->name; entry++)
			if (i-- == 0)
				return entry;
	return NULL;
}

const char *cpa_fault_name(int i)
{
	const struct cpa_fault_entry *entry = cpa_fault_entry(i);
	return entry ? entry->name : NULL;
}

const char *cpa_fault_class(int i)
{
	return cpa_fault_entry(i)->class;
}

const char *cpa_fault_summary(int i)
{
	return cpa_fault_entry(i)->summary;
}

const char *cpa_fault_seen_in(int i)
{
	return cpa_fault_entry(i)->seen_in;
}

const char *cpa_fault_shows(int i)
{
	return cpa_fault_entry(i)->shows;
}

enum cpa_fault_scope cpa_fault_scope(int i)
{
	return cpa_fault_entry(i)->scope;
}

int cpa_fault_where_keys(int i)
{
	return cpa_fault_entry(i)->where;
}

bool cpa_fault_is_in_attention(int i)
{
	const struct cpa_fault_entry *entry = cpa_fault_entry(i);
	return entry->class[0] != 'G' && entry->class[0] != 'H' && !entry->change;
}

int cpa_fault_find(const char *name)
{
	for (int i = 0; cpa_fault_name(i); i++)
		if (strcmp(cpa_fault_name(i), name) == 0)
			return i;
	return -1;
}

/* ---- the text of --fault ---- */

static const char *const where_names[] = {"rank", "hop", "block", "head"};

static enum cpa_status unknown_name(const char *name, struct cpa_error *error)
{
	const char *names[MAX_FAULTS];
	char near[80];
	int n = 0;
	for (; n < MAX_FAULTS && cpa_fault_name(n); n++)
		names[n] = cpa_fault_name(n);
	cpa_suggest_text(name, names, n, near, sizeof near);
	return cpa_fail(error, CPA_INVALID,
		"--fault: unknown '%.60s'%s (cpattn list faults names them all)", name, near);
}

/* "rank, hop or block" */
static void name_keys(const struct cpa_fault_entry *entry, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (int k = 0; k < 4; k++)
		if (entry->where & 1 << k)
			used += (size_t)snprintf(text + used, size - used, "%s%s",
				used == 0			? ""
					: entry->where >> (k + 1) ? ", "
								  : " or ",
				where_names[k]);
}

static enum cpa_status set_where(const struct cpa_fault_entry *entry, const char *key,
	const char *value, int *to, int which, struct cpa_error *error)
{
	char keys[80], *end;
	long number = strtol(value, &end, 10);
	name_keys(entry, keys, sizeof keys);
	if (entry->where == 0)
		return cpa_fail(error, CPA_INVALID,
			"--fault %s is of all ranks together; leave out :%.40s", entry->name, key);
	if (!(entry->where & 1 << which))
		return cpa_fail(error, CPA_INVALID, "--fault %s takes %s, not '%.40s'",
			entry->name, keys, key);
	if (*value < '0' || *value > '9' || *end || number > 1000000)
		return cpa_fail(error, CPA_INVALID,
			"--fault %s: %s=%.40s: expected a number from 0 on", entry->name, key,
			value);
	if (*to >= 0)
		return cpa_fail(error, CPA_INVALID, "--fault %s: %s is there twice",
			entry->name, key);
	*to = (int)number;
	return CPA_OK;
}

/* One "key=value". */
static enum cpa_status parse_where(const struct cpa_fault_entry *entry, char *word,
	struct cpa_fault_where *where, struct cpa_error *error)
{
	int *const to[] = {&where->rank, &where->hop, &where->block, &where->head};
	char *value = strchr(word, '='), near[80];
	if (value)
		*value++ = '\0';
	for (int k = 0; value && k < 4; k++)
		if (strcmp(word, where_names[k]) == 0)
			return set_where(entry, word, value, to[k], k, error);
	cpa_suggest_text(word, where_names, 4, near, sizeof near);
	return cpa_fail(error, CPA_INVALID,
		"--fault %s: '%.40s'%s: expected rank=, hop=, block= or head= and a number",
		entry->name, word, near);
}

enum cpa_status cpa_fault_parse(const char *text, int *fault, struct cpa_fault_where *where,
	struct cpa_error *error)
{
	char copy[200], *rest, *next;
	struct cpa_fault_where at = {-1, -1, -1, -1};
	enum cpa_status s = CPA_OK;
	int i;
	snprintf(copy, sizeof copy, "%s", text);
	rest = strchr(copy, ':');
	if (rest)
		*rest++ = '\0';
	i = cpa_fault_find(copy);
	if (i < 0)
		return unknown_name(copy, error);
	for (; rest && s == CPA_OK; rest = next) {
		next = strchr(rest, ',');
		if (next)
			*next++ = '\0';
		s = parse_where(cpa_fault_entry(i), rest, &at, error);
	}
	if (s == CPA_OK) {
		*fault = i;
		*where = at;
	}
	return s;
}
